"""Agents behind OpenAI's chat completions, driven by OpenAI's own client over a socket."""

import asyncio
import base64
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from openai import APIError, AsyncOpenAI, BadRequestError, InternalServerError, NotFoundError

from batonflow import AgentWorkflow, FunctionAgent, ReActAgent, tool
from batonflow.agents import Block
from batonflow.llms import ImageBlock, ScriptedLLM, ToolCallBlock, tool_call
from batonflow.server.endpoints import chat_completions_app
from batonflow.workflow_core import MemoryStore
from tests.serving import serving


def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


def adder(**options):
    llm = ScriptedLLM([["Let me add.", tool_call("add", a=2, b=40)], "It is 42."])
    return FunctionAgent(name="adder", tools=[add], llm=llm, **options)


@contextmanager
def client_of(agents) -> Iterator[AsyncOpenAI]:
    with serving(chat_completions_app(agents)) as url:
        yield AsyncOpenAI(base_url=url, api_key="-", max_retries=0)


def asked(text="What is 2 + 40?", **more):
    return {"model": "adder", "messages": [{"role": "user", "content": text}], **more}


async def read(client: AsyncOpenAI, *, stream: bool) -> str:
    answer = await client.chat.completions.create(**asked(), stream=stream)
    if not stream:
        return answer.choices[0].message.content
    return "".join([chunk.choices[0].delta.content or "" async for chunk in answer])


async def test_the_answer_comes_whole_and_the_tools_stay_inside():
    with client_of(adder()) as client:
        async with client:
            answer = await client.chat.completions.create(**asked())
            assert answer.choices[0].message.content == "It is 42."
            assert answer.choices[0].message.tool_calls is None
            assert answer.choices[0].finish_reason == "stop"
            assert answer.usage.total_tokens == answer.usage.prompt_tokens + answer.usage.completion_tokens > 0
            assert [model.id async for model in client.models.list()] == ["adder"]


async def test_streamed_it_comes_piece_by_piece_in_paragraphs_with_the_usage_at_the_end():
    with client_of(adder()) as client:
        async with client:
            stream = await client.chat.completions.create(
                **asked(), stream=True, stream_options={"include_usage": True}
            )
            chunks = [chunk async for chunk in stream]
    texts = [chunk.choices[0].delta.content or "" for chunk in chunks if chunk.choices]
    assert len(texts) > 4
    assert "".join(texts) == "Let me add.\n\nIt is 42."
    assert [chunk.choices[0].finish_reason for chunk in chunks if chunk.choices][-1] == "stop"
    assert chunks[-1].usage.total_tokens > 0
    assert not any(chunk.choices[0].delta.tool_calls for chunk in chunks if chunk.choices)


@tool(return_direct=True)
def tide() -> str:
    """Say when the tide comes."""
    return "At nine."


async def never(ctx, text):
    return Block("Not here.")


@pytest.mark.parametrize(
    ("agent", "told"),
    [
        (lambda: adder(streaming=False), "It is 42."),
        (lambda: adder(input_guards=[never]), "Not here."),
        (
            lambda: FunctionAgent(name="adder", tools=[tide], llm=ScriptedLLM([["I look.", tool_call("tide")]])),
            "I look.\n\nAt nine.",
        ),
        (lambda: ReActAgent(name="adder", llm=ScriptedLLM(["<think>Hm.</think>It is 42."])), "It is 42."),
        (lambda: adder(output_guards=[never]), "Let me add.\n\nIt is 42.\n\nNot here."),
    ],
    ids=["not streamed", "input guard", "direct tool", "thought aloud", "output guard"],
)
async def test_an_answer_that_no_model_has_streamed_comes_at_the_end(agent, told):
    with client_of(agent()) as client:
        async with client:
            assert await read(client, stream=True) == told


async def test_the_conversation_so_far_is_what_the_model_reads():
    seen = []

    def answer(request):
        seen.extend((message.role.value, message.content) for message in request.messages)
        return "yes"

    agent = FunctionAgent(name="adder", llm=ScriptedLLM([answer]), tools=[], system_prompt="Be kind.")
    with client_of(agent) as client:
        async with client:
            messages = [
                {"role": "system", "content": "Be short."},
                {"role": "user", "content": "My name is Ann."},
                {"role": "assistant", "content": "Hello Ann."},
                {"role": "user", "content": [{"type": "text", "text": "Who am I?"}]},
            ]
            await client.chat.completions.create(model="adder", messages=messages)
    assert seen == [
        ("system", "Be kind."), ("system", "Be short."), ("user", "My name is Ann."), ("assistant", "Hello Ann."),
        ("user", "Who am I?"),
    ]  # fmt: skip


async def test_a_history_with_calls_of_tools_is_what_the_model_reads():
    seen = []

    def answer(request):
        seen.extend(
            (
                message.role.value,
                message.content,
                [(call.tool_call_id, call.tool_name, call.tool_kwargs) for call in calls],
            )
            for message in request.messages
            for calls in [[block for block in message.blocks if isinstance(block, ToolCallBlock)]]
        )
        return "yes"

    def call(name, arguments):
        return {"id": f"call-{name}", "type": "function", "function": {"name": name, "arguments": arguments}}

    agent = FunctionAgent(name="adder", llm=ScriptedLLM([answer]), tools=[])
    with client_of(agent) as client:
        async with client:
            messages = [
                {"role": "user", "content": "Is it raining, and what is the time?"},
                {"role": "assistant", "content": None, "tool_calls": [call("look", '{"at": "sky"}'), call("now", "")]},
                {"role": "tool", "tool_call_id": "call-look", "content": "rain"},
                {"role": "tool", "tool_call_id": "call-now", "content": [{"type": "text", "text": "noon"}]},
                {"role": "assistant", "content": None, "refusal": "I would rather not say."},
                {"role": "user", "content": "Well?"},
            ]
            told = await client.chat.completions.create(model="adder", messages=messages)
            assert told.choices[0].message.content == "yes"
    assert seen == [
        ("user", "Is it raining, and what is the time?", []),
        ("assistant", None, [("call-look", "look", {"at": "sky"}), ("call-now", "now", "")]),
        ("tool", "rain", []),
        ("tool", "noon", []),
        ("assistant", "I would rather not say.", []),
        ("user", "Well?", []),
    ]


async def test_a_message_of_the_client_goes_back_as_it_came():
    """What programs do: they append the message of an answer, whose fields without a value are null."""
    llm = ScriptedLLM(["Hello.", lambda request: str(len(request.messages))])
    with client_of(FunctionAgent(name="adder", llm=llm, tools=[])) as client:
        async with client:
            first = await client.chat.completions.create(**asked("Hi."))
            messages = [*asked("Hi.")["messages"], first.choices[0].message, *asked("And?")["messages"]]
            second = await client.chat.completions.create(model="adder", messages=messages)
    assert second.choices[0].message.content == "3"


CALL = {
    "role": "assistant",
    "content": None,
    "tool_calls": [{"id": "c", "type": "function", "function": {"name": "f"}}],
}


@pytest.mark.parametrize(
    ("before", "says"),
    [
        ([CALL], "the results of the calls c are missing"),
        ([{"role": "tool", "tool_call_id": "c", "content": "x"}], "no call before has the id 'c'"),
        ([CALL, {"role": "tool", "tool_call_id": "d", "content": "x"}], "no call before has the id 'd'"),
        ([CALL, *[{"role": "tool", "tool_call_id": "c", "content": "x"}] * 2], "no call before has the id 'c'"),
        ([{"role": "user", "content": None}], "messages.0.content: a message of the user has one"),
        ([{**CALL, "role": "user", "content": "x"}], "only the assistant can have tool_calls"),
    ],
)
async def test_a_history_that_no_model_takes_is_refused(before, says):
    with client_of(adder()) as client:
        async with client:
            with pytest.raises(BadRequestError, match=says):
                await client.chat.completions.create(model="adder", messages=[*before, *asked()["messages"]])


async def test_a_single_model_is_told():
    with client_of({"adder": adder(), "team/adder": adder()}) as client:
        async with client:
            assert (await client.models.retrieve("adder")).id == "adder"
            assert (await client.models.retrieve("team/adder")).owned_by == "batonflow"
            with pytest.raises(NotFoundError, match="unknown model 'other'; the agents are adder, team/adder"):
                await client.models.retrieve("other")


async def test_a_team_answers_with_the_words_of_whoever_has_the_last():
    first = FunctionAgent(
        name="first",
        description="Begins.",
        tools=[],
        can_handoff_to=["second"],
        llm=ScriptedLLM([tool_call("handoff", to_agent="second", reason="it knows")]),
    )
    second = FunctionAgent(name="second", description="Ends.", tools=[], llm=ScriptedLLM(["It is low water."]))
    team = AgentWorkflow(agents=[first, second], root_agent="first")
    with client_of({"tides": team}) as client:
        async with client:
            answer = await client.chat.completions.create(**{**asked(), "model": "tides"})
    assert answer.choices[0].message.content == "It is low water."


@pytest.mark.parametrize(
    ("change", "error", "says"),
    [
        ({"model": "nobody"}, NotFoundError, "unknown model 'nobody'; the agents are adder"),
        ({"messages": []}, BadRequestError, "messages"),
        ({"messages": [{"role": "assistant", "content": "x"}]}, BadRequestError, "the last message"),
        ({"n": 3}, BadRequestError, "n: "),
        (
            {"tools": [{"type": "function", "function": {"name": "f", "parameters": {}}}]},
            BadRequestError,
            "the agent has tools of its own",
        ),
    ],
)
async def test_what_cannot_be_done_is_refused_in_words(change, error, says):
    with client_of(adder()) as client:
        async with client:
            with pytest.raises(error, match=says):
                await client.chat.completions.create(**{**asked(), **change})


async def test_pictures_come_with_the_request_and_no_address_is_followed():
    seen = []

    def answer(request):
        seen.extend(block for message in request.messages for block in message.blocks if isinstance(block, ImageBlock))
        return "A lighthouse."

    agent = FunctionAgent(name="adder", tools=[], llm=ScriptedLLM([answer]))
    picture = base64.b64encode(b"\x89PNG\r\n\x1a\n").decode()
    with client_of(agent) as client:
        async with client:

            async def show(url: str) -> str:
                content = [{"type": "text", "text": "What is it?"}, {"type": "image_url", "image_url": {"url": url}}]
                answer = await client.chat.completions.create(
                    model="adder", messages=[{"role": "user", "content": content}]
                )
                return answer.choices[0].message.content

            assert await show(f"data:image/png;base64,{picture}") == "A lighthouse."
            for url in ("http://127.0.0.1:9/x.png", "file:///etc/passwd", "data:text/html,<b>", ""):
                with pytest.raises(BadRequestError, match="image_url must be a data: address"):
                    await show(url)
    assert [(block.image_mimetype, block.url) for block in seen] == [("image/png", None)]


async def test_a_run_that_failed_is_not_begun_again_by_the_client():
    asked_of = []

    def fail(request):
        asked_of.append(request)
        raise ConnectionError

    agent = FunctionAgent(name="adder", tools=[], llm=ScriptedLLM([fail] * 3))
    with serving(chat_completions_app(agent)) as url:
        async with AsyncOpenAI(base_url=url, api_key="-", max_retries=2) as client:
            with pytest.raises(InternalServerError):
                await client.chat.completions.create(**asked())
    assert len(asked_of) == 1


async def test_a_body_that_is_no_json_is_refused():
    with client_of(adder()) as client:
        async with client:
            with pytest.raises(BadRequestError, match="Invalid JSON"):
                await client.post("/chat/completions", content=b"{", cast_to=object)


@pytest.mark.parametrize("stream", [False, True])
async def test_the_text_of_an_error_stays_inside(stream):
    def fail(request):
        raise ConnectionError("the key sk-123 is not good for db.internal")

    agent = FunctionAgent(name="adder", tools=[], llm=ScriptedLLM([fail]))
    with client_of(agent) as client:
        async with client:
            with pytest.raises(APIError) as caught:
                await read(client, stream=stream)
    assert "failed with" in str(caught.value)
    assert "sk-123" not in str(caught.value)
    assert "db.internal" not in str(caught.value)


def careful(**options):
    done = []

    @tool(requires_approval=True)
    def publish(title: str) -> str:
        """Publish."""
        done.append(title)
        return "published"

    llm = ScriptedLLM([tool_call("publish", title="Tides"), "It is out."])
    return FunctionAgent(name="adder", tools=[publish], llm=llm, **options), done


@pytest.mark.parametrize("stream", [False, True])
async def test_a_run_that_needs_a_person_says_so_and_waits_in_its_store(stream):
    store = MemoryStore()
    agent, done = careful(store=store)
    with client_of(agent) as client:
        async with client:
            text = await read(client, stream=stream)
        assert text.startswith("[waits for a person: approval of publish(title='Tides'); run chatcmpl-")
        [run] = await store.list_runs()
        assert run.run_id in text
        assert run.status not in ("completed", "failed", "cancelled")
        assert done == []


async def test_without_a_store_a_run_that_needs_a_person_is_cancelled():
    agent, done = careful()
    with client_of(agent) as client:
        async with client:
            answer = await client.chat.completions.create(**asked())
    assert answer.choices[0].message.content == ("[stopped, as it needs a person: approval of publish(title='Tides')]")
    assert done == []


@pytest.mark.parametrize("stream", [False, True])
async def test_a_caller_who_hangs_up_cancels_the_run(stream):
    store = MemoryStore()
    begun = threading.Event()

    async def slow() -> str:
        """Take long."""
        begun.set()
        await asyncio.sleep(60)
        return "done"

    agent = FunctionAgent(name="adder", tools=[slow], llm=ScriptedLLM([["Wait.", tool_call("slow")]]), store=store)
    with client_of(agent) as client:
        async with client:
            reading = asyncio.create_task(read(client, stream=stream))
            assert await asyncio.to_thread(begun.wait, 10)
            reading.cancel()
            await asyncio.wait([reading])
            while (await store.list_runs())[0].status != "cancelled":  # noqa: ASYNC110 - of another thread
                await asyncio.sleep(0.01)


def test_two_agents_of_one_name_need_a_dict():
    with pytest.raises(ValueError, match="Two agents have the name 'adder': pass a dict"):
        chat_completions_app([adder(), adder()])
