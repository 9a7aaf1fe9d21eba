"""Model calls in the records of runs: the model, its options, its usage, its times and its errors."""

import json
from pathlib import Path
from typing import Any

import pytest
from pydantic import BaseModel

from batonflow.agents import FunctionAgent
from batonflow.durable.stores.memory import MemoryStore
from batonflow.durable.trace import LARGEST_BLOCK, trace_of
from batonflow.llms import (
    LLM,
    Anthropic,
    ChatMessage,
    FallbackLLM,
    LLMServerError,
    ModelCall,
    OpenAI,
    Price,
    RateLimitError,
    ScriptedLLM,
    Usage,
    tool_call,
)
from batonflow.tools import tool
from batonflow.workflow_core import SQLiteStore, StartEvent, StopEvent, Workflow, step
from batonflow.workflow_core.retry_policy import retry_policy, stop_after_attempt, wait_none
from tests.llms.loopback import Answer, loopback

SECRET = "sk-abcdefghijklmnop1234"


@tool
def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


class Told(BaseModel):
    text: str


class Asks(Workflow):
    """Asks a model in one of several ways."""

    def __init__(self, llm: LLM, how: str = "achat", **options: Any) -> None:
        super().__init__(workflow_name="asks", timeout=None, **options)
        self.llm, self.how = llm, how

    @step
    async def ask(self, ev: StartEvent) -> StopEvent:
        messages = [ChatMessage("Hello")]
        match self.how:
            case "achat":
                return StopEvent(result=(await self.llm.achat(messages)).message.content)
            case "acomplete":
                return StopEvent(result=(await self.llm.acomplete("Hello")).text)
            case "sync":
                return StopEvent(result=self.llm.chat(messages).message.content)
            case "whole stream":
                return StopEvent(result=[one.delta async for one in await self.llm.astream_chat(messages)][-1])
            case _:
                stream = await self.llm.astream_chat(messages)
                first = await anext(stream)
                await stream.aclose()
                return StopEvent(result=first.delta)


async def calls_of(store: Any, run_id: str = "r") -> list[ModelCall]:
    return (await store.replay(run_id)).model_calls


def stream(*chunks: dict[str, Any]) -> list[bytes]:
    head = {"id": "chatcmpl-1", "object": "chat.completion.chunk", "created": 1, "model": "gpt-5.6-2026"}
    return [b"data: " + json.dumps({**head, **one}).encode() + b"\n\n" for one in chunks] + [b"data: [DONE]\n\n"]


def said(delta: dict[str, Any], finish: str | None = None) -> dict[str, Any]:
    return {"choices": [{"index": 0, "delta": delta, "finish_reason": finish}]}


USED = {"choices": [], "usage": {"prompt_tokens": 9, "completion_tokens": 4, "total_tokens": 13}}


async def test_each_call_of_an_agent_is_recorded_with_its_step(tmp_path: Path) -> None:
    store = SQLiteStore(tmp_path / "runs.db")
    llm = ScriptedLLM([tool_call("add", a=2, b=40), "It is 42."], price=Price(1000.0, 2000.0))
    agent = FunctionAgent(llm=llm, tools=[add], store=store, workflow_name="sums")
    await agent.run("What is 2 + 40?", run_id="r")
    first, second = await calls_of(store)
    assert (first.model, first.vendor, first.tools) == ("scripted", "scripted", ["add"])
    assert (first.finish, second.finish) == ("tool_calls", "stop")
    assert first.usage is not None
    assert first.usage.input_tokens > 0
    assert first.usage.cost == llm.cost_of(first.usage)
    assert first.first is not None
    assert 0 <= first.first <= first.took
    assert second.began >= first.began
    steps = [entry["step"] for entry in trace_of(await store.read("r")) for _ in entry.get("calls", ())]
    assert steps == ["run_agent_step", "run_agent_step"]
    await store.aclose()


async def test_a_call_has_what_the_model_saw_and_said(tmp_path: Path) -> None:
    for store in (SQLiteStore(tmp_path / "runs.db"), MemoryStore()):
        llm = ScriptedLLM([tool_call("add", a=2, b=40), f"It is 42, and not {SECRET}."])
        agent = FunctionAgent(name="sums", llm=llm, tools=[add], store=store, system_prompt="Be brief.")
        await agent.run(f"What is 2 + 40? {SECRET}", run_id="r")
        first, second = await calls_of(store)
        assert (first.agent, first.purpose) == ("sums", "turn")
        assert [message.role for message in first.messages] == ["system", "user"]
        assert [message.role for message in second.messages] == ["system", "user", "assistant", "tool"]
        assert second.messages[:2] == first.messages
        assert second.messages[2] == first.answer
        assert second.answer is not None
        assert second.answer.content == "It is 42, and not [redacted]."
        assert first.messages[1].content == "What is 2 + 40? [redacted]"
        [tool] = second.tool_specs
        assert (tool.name, set(tool.parameters["properties"])) == ("add", {"a", "b"})
        told = [call for entry in trace_of(await store.read("r")) for call in entry.get("calls", ())]
        assert [call["answer"]["role"] for call in told] == ["assistant", "assistant"]
        assert [message["role"] for message in told[0]["messages"]] == ["system", "user"]
        await store.aclose()


async def test_a_schema_and_a_message_are_written_once_for_all_calls() -> None:
    described = "Add two numbers. " * 30

    @tool(description=described)
    def add_up(a: int, b: int) -> int:
        return a + b

    store = MemoryStore()
    llm = ScriptedLLM([*[tool_call("add_up", a=one, b=1) for one in range(8)], "Done."])
    await FunctionAgent(llm=llm, tools=[add_up], store=store).run(f"Add. {described}", run_id="r")
    loaded = await store.load("r")
    assert loaded is not None
    written = b"".join([*loaded.parts, *(commit.body for commit in loaded.commits)])
    assert written.count(described.encode()) == 2  # in the message and in the schema
    assert [len(call.messages) for call in await calls_of(store)] == list(range(1, 18, 2))


@pytest.mark.parametrize("purpose", ["turn", "structured", "answer", "tool"])
async def test_a_call_has_its_purpose(purpose: str) -> None:
    store = MemoryStore()

    @tool
    async def ask(question: str) -> str:
        """Ask a model."""
        return str((await ScriptedLLM(["Yes."], model="asked").achat([ChatMessage(question)])).message.content)

    script = [tool_call("ask", question="Is it?"), "It is."]
    agent = FunctionAgent(
        name="a", llm=ScriptedLLM([*script, '{"text": "It is."}']), tools=[ask], store=store,
        output_cls=Told if purpose == "structured" else None,
    )  # fmt: skip
    options: dict[str, Any] = {"max_iterations": 1, "early_stopping_method": "generate"} if purpose == "answer" else {}
    await agent.run("Is it?", run_id="r", **options)
    calls = await calls_of(store)
    assert purpose in [call.purpose for call in calls]
    assert {call.agent for call in calls} == {"a"}
    if purpose == "tool":
        assert [call.model for call in calls if call.purpose == "tool"] == ["asked"]


async def test_a_call_that_is_left_early_has_the_answer_so_far() -> None:
    store = MemoryStore()
    await Asks(ScriptedLLM(["one two three"]), "left early", store=store).run(run_id="r")
    [call] = await calls_of(store)
    assert call.answer is not None
    assert "one two three".startswith(str(call.answer.content))
    assert (call.agent, call.purpose) == ("", "")


async def test_the_call_of_a_vendor_has_its_options_and_the_ids_of_the_vendor_and_no_key() -> None:
    store = MemoryStore()
    async with loopback() as server:
        server.answers.append(
            Answer(stream(said({"content": "Hi."}), said({}, "stop"), USED), headers={"x-request-id": "req-7"})
        )
        llm = OpenAI(
            "gpt-5.6", api_key=SECRET, base_url=f"{server.url}/v1", temperature=0.5, price=Price(1.0, 2.0, per=1000),
            default_headers={"x-key": SECRET},
        )  # fmt: skip
        agent = FunctionAgent(llm=llm, tools=[add], store=store, workflow_name="talks")
        await agent.run("Hello", run_id="r")
        await llm.aclose()
    [call] = await calls_of(store)
    assert (call.model, call.vendor, call.request_id, call.finish) == ("gpt-5.6-2026", "openai", "req-7", "stop")
    assert call.options["temperature"] == 0.5
    assert call.usage == Usage(input_tokens=9, output_tokens=4, cost=0.017)
    assert SECRET not in str(await store.history("r"))


async def test_a_call_that_fails_says_why_and_each_attempt_of_a_step_has_its_own() -> None:
    class Retries(Asks):
        @step(retry_policy=retry_policy(wait=wait_none(), stop=stop_after_attempt(2)))
        async def ask(self, ev: StartEvent) -> StopEvent:
            return await super().ask(ev)

    store = MemoryStore()
    async with loopback() as server:
        refusal = b'{"error": {"message": "slow down"}}'
        server.answers.append(Answer([refusal], status=429, content_type="application/json"))
        server.answers.append(Answer(stream(said({"content": "Hi."}), said({}, "stop"))))
        llm = OpenAI("gpt-5.6", api_key=SECRET, base_url=f"{server.url}/v1", max_retries=0)
        assert await Retries(llm, store=store).run(run_id="r") == "Hi."
        await llm.aclose()
    failed, whole = await calls_of(store)
    assert failed.error is not None
    assert failed.error.startswith(f"{RateLimitError.__name__}: ")
    assert (failed.finish, failed.usage, failed.first) == (None, None, None)
    assert (whole.error, whole.finish) == (None, "stop")


@pytest.mark.parametrize("how", ["achat", "acomplete", "sync", "whole stream", "left early"])
async def test_a_step_of_a_workflow_may_ask_in_any_way(how: str) -> None:
    store = MemoryStore()
    await Asks(ScriptedLLM(["one two three"]), how, store=store).run(run_id="r")
    [call] = await calls_of(store)
    assert call.model == "scripted"
    assert call.finish == (None if how == "left early" else "stop")
    assert call.error is None


async def test_the_model_that_answered_is_named() -> None:
    store = MemoryStore()
    broken = ScriptedLLM([RateLimitError("slow down")], model="broken")
    await Asks(FallbackLLM([broken, ScriptedLLM(["Hi."], model="works")]), store=store).run(run_id="r")
    [call] = await calls_of(store)
    assert call.model == "works"


async def test_a_resumed_run_records_its_calls_too() -> None:
    store = MemoryStore()

    @tool(requires_approval=True)
    def pay(a: int) -> str:
        """Pay."""
        return "paid"

    def model(request: Any) -> Any:
        return "It is paid." if request.messages[-1].role == "tool" else tool_call("pay", a=1)

    def agent() -> FunctionAgent:
        return FunctionAgent(llm=ScriptedLLM([model] * 2), tools=[pay], store=store, workflow_name="payer")

    handler = agent().run("Pay.", run_id="r")
    await anext(handler.approvals())
    await handler.interrupt()
    again = agent().resume("r")
    (await anext(again.approvals())).approve()
    await again
    assert [call.finish for call in await calls_of(store)] == ["tool_calls", "stop"]


async def test_differences_of_two_runs_leave_the_times_of_calls_out() -> None:
    store = MemoryStore()
    for run_id in ("a", "b"):
        await Asks(ScriptedLLM(["Hi."]), store=store).run(run_id=run_id)
    assert (await store.diff("a", "b")).differences == []


async def test_a_call_comes_back_from_its_data_and_what_is_not_known_is_left_out() -> None:
    call = ModelCall(model="m", vendor="v", usage=Usage(input_tokens=3, cost=0.5), first=0.0, took=1.0, tools=["add"])
    data = json.loads(json.dumps(call.as_data()))
    assert ModelCall.from_data(data) == call
    assert ModelCall.from_data({**data, "newer": 1}) == call
    assert set(data) == {"model", "vendor", "usage", "first", "took", "tools", "began"}


async def test_without_a_store_no_call_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[ModelCall] = []
    monkeypatch.setattr("batonflow.llms.stream.ModelCall", lambda **values: made.append(values))
    await Asks(ScriptedLLM(["Hi."])).run()
    await ScriptedLLM(["Hi."]).achat([ChatMessage("Hello")])
    assert made == []


@pytest.mark.parametrize("make", [OpenAI, Anthropic], ids=["OpenAI", "Anthropic"])
async def test_the_requests_of_a_call_are_counted(make: Any) -> None:
    failing = Answer([b"{}"], status=500, headers={"retry-after-ms": "1"})
    store = MemoryStore()
    async with loopback() as server:
        server.answers = lambda _: failing
        base = f"{server.url}/v1" if make is OpenAI else server.url
        llm = make("m", api_key="k", base_url=base, max_retries=2)
        with pytest.raises(LLMServerError) as raised:
            await Asks(llm, store=store).run(run_id="fails")
        assert raised.value.attempts == len(server.received) == 3
        server.answers = [failing, Answer(stream(said({"content": "42."}, "stop"), USED))]
        if make is OpenAI:
            await Asks(llm, store=store).run(run_id="r")
            assert [call.attempts for call in await calls_of(store)] == [2]
        await llm.aclose()
    assert [call.attempts for call in await calls_of(store, "fails")] == [3]


async def test_a_reader_may_take_each_message_of_the_calls_once_and_without_secrets() -> None:
    store = MemoryStore()
    model = ScriptedLLM([tool_call("add", a=1, b=2), "3"])
    agent = FunctionAgent(name="adder", tools=[add], llm=model, store=store)
    await agent.run(f"My key is {SECRET}. {'Long. ' * 20_000}", run_id="r")
    commits = await store.read("r", 0, 1000)
    parts: list[Any] = []
    first, second = [call for entry in trace_of(commits, largest=4096, parts=parts) for call in entry.get("calls", ())]
    assert second["messages"] == [*first["messages"], *first["answer"], parts.index(parts[second["messages"][2]])]
    assert second["tool_specs"] == first["tool_specs"]
    assert [parts[index]["role"] for index in second["messages"]] == ["user", "assistant", "tool"]
    assert parts[first["tool_specs"][0]]["name"] == "add"
    assert parts[first["messages"][0]]["blocks"][0]["text"].endswith("Long. "), "a conversation is not cut"
    assert SECRET not in json.dumps([parts, trace_of(commits)])


async def test_only_a_block_of_extreme_size_is_cut_in_shared_messages() -> None:
    store = MemoryStore()
    await Asks(ScriptedLLM(["x" * (LARGEST_BLOCK + 1)]), store=store).run(run_id="r")
    parts: list[Any] = []
    calls = [call for entry in trace_of(await store.read("r", 0, 9), parts=parts) for call in entry.get("calls", ())]
    [block] = parts[calls[0]["answer"][0]]["blocks"]
    assert block["block_type"] == "text"
    assert block["text"]["$large"] > LARGEST_BLOCK
