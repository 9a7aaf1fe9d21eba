"""Hooks and guards: what users hang into a run to look at calls, results, questions and answers."""

import asyncio
import re
from typing import Any

import pytest
from pydantic import BaseModel

from batonflow.agents import (
    AgentOutput,
    AgentStream,
    AgentStreamStructuredOutput,
    AgentWorkflow,
    CodeActAgent,
    FunctionAgent,
    Middleware,
    ModelRequest,
    ReActAgent,
    ToolCallResult,
)
from batonflow.agents.hooks import Block, Deny, Replace
from batonflow.llms import ChatMessage, ScriptedLLM, tool_call
from batonflow.tools import ToolOutput, tool
from batonflow.workflow_core import Context, HumanResponseEvent, InputRequiredEvent

SENT: list[str] = []


@pytest.fixture(autouse=True)
def _nothing_sent() -> None:
    SENT.clear()


def send(to: str, times: int = 1) -> str:
    """Send a letter."""
    SENT.extend([to] * times)
    return f"sent to {to}"


def agent(*turns: Any, **options: Any) -> FunctionAgent:
    options.setdefault("tools", [send])
    options.setdefault("name", "writer")
    return FunctionAgent(description="Writes.", llm=ScriptedLLM(turns), **options)


async def results(handler: Any) -> list[str]:
    await handler
    return [event.tool_output.content async for event in handler.stream_events() if isinstance(event, ToolCallResult)]


def no_ann(ctx: Context, call: Any) -> Deny | None:
    return Deny("Ann wants no letters") if call.tool_kwargs.get("to") == "Ann" else None


async def no_ann_asked(ctx: Context, call: Any) -> Deny | None:
    await asyncio.sleep(0)
    return no_ann(ctx, call)


class TestBeforeATool:
    @pytest.mark.parametrize("hook", [no_ann, no_ann_asked], ids=["sync", "async"])
    async def test_a_hook_denies_a_call_and_the_model_reads_why(self, hook: Any) -> None:
        calls = [tool_call("send", to="Ann"), tool_call("send", to="Bob")]
        handler = agent(calls, "Done.", before_tool=[hook]).run("Send both.")
        assert sorted(await results(handler)) == ["Tool send was not run: Ann wants no letters", "sent to Bob"]
        assert SENT == ["Bob"]

    async def test_or_has_it_made_with_other_arguments_that_the_next_one_sees(self) -> None:
        seen: list[Any] = []

        def twice(ctx: Context, call: Any) -> Replace:
            return Replace({**call.tool_kwargs, "times": "2"})

        def watch(ctx: Context, call: Any) -> None:
            seen.append((call.tool_name, call.tool_kwargs))

        handler = agent(tool_call("send", to="Bob"), "Done.", before_tool=[twice, watch]).run("Send it.")
        output = await handler
        assert [call.tool_kwargs for call in output.tool_calls] == [{"to": "Bob", "times": "2"}]
        assert seen == [("send", {"to": "Bob", "times": "2"})]
        assert SENT == ["Bob", "Bob"]

    async def test_other_arguments_are_checked_like_the_models(self) -> None:
        handler = agent(
            tool_call("send", to="Bob"), "Done.", before_tool=[lambda ctx, call: Replace({"who": "Bob"})]
        ).run("Send it.")
        assert "to: missing" in (await results(handler))[0]
        assert SENT == []

    async def test_after_a_denial_nobody_else_is_asked(self) -> None:
        def never(ctx: Context, call: Any) -> None:
            raise AssertionError("asked")

        handler = agent(tool_call("send", to="Ann"), "Done.", before_tool=[no_ann, never]).run("Send it.")
        assert await results(handler) == ["Tool send was not run: Ann wants no letters"]

    @pytest.mark.parametrize(
        ("hook", "words"),
        [
            (lambda ctx, call: 1 / 0, "failed: ZeroDivisionError: division by zero"),
            (lambda ctx, call: True, "failed: TypeError: .* returned bool: a hook here returns None, Deny, Replace"),
        ],
        ids=["raises", "returns nonsense"],
    )
    async def test_a_hook_that_fails_has_not_agreed(self, hook: Any, words: str) -> None:
        handler = agent(tool_call("send", to="Bob"), "Done.", before_tool=[hook]).run("Send it.")
        (told,) = await results(handler)
        assert re.search(words, told)
        assert SENT == []

    async def test_people_are_asked_about_the_arguments_as_the_hooks_leave_them(self) -> None:
        ask = tool(requires_approval=True)(send)
        made = agent(
            tool_call("send", to="Bob"), "Done.", tools=[ask], before_tool=[lambda ctx, call: Replace({"to": "Cleo"})]
        )
        handler = made.run("Send it.")
        async for request in handler.approvals():
            assert request.arguments == {"to": "Cleo"}
            request.approve()
        await handler
        assert SENT == ["Cleo"]

    async def test_hooks_read_and_write_the_state_of_the_run(self) -> None:
        async def count(ctx: Context, call: Any) -> None:
            await ctx.store.set("calls", 1 + await ctx.store.get("calls", default=0))

        handler = agent(tool_call("send", to="Bob"), tool_call("send", to="Cleo"), "Done.", before_tool=[count]).run(
            "Go."
        )
        await handler
        assert await handler.ctx.store.get("calls") == 2

    async def test_a_hook_may_ask_a_person(self) -> None:
        async def ask(ctx: Context, call: Any) -> Deny | None:
            said = await ctx.wait_for_event(HumanResponseEvent, waiter_event=InputRequiredEvent(prefix="May I?"))
            return None if said.response == "yes" else Deny("not today")

        handler = agent(tool_call("send", to="Bob"), "Done.", before_tool=[ask]).run("Send it.")
        async for event in handler.stream_events():
            if isinstance(event, InputRequiredEvent):
                handler.ctx.send_event(HumanResponseEvent(response="yes"))
        await handler
        assert SENT == ["Bob"]

    async def test_a_handoff_is_a_call_too(self) -> None:
        handoff = tool_call("handoff", to_agent="other", reason="it knows")
        first = agent(
            handoff,
            "Then I do it.",
            before_tool=[lambda ctx, call: Deny("stay") if call.tool_name == "handoff" else None],
        )
        other = FunctionAgent(name="other", description="Another.", llm=ScriptedLLM([]))
        output = await AgentWorkflow(agents=[first, other], root_agent="writer").run("Go.")
        assert (str(output), output.current_agent_name) == ("Then I do it.", "writer")


class TestAfterATool:
    async def test_a_hook_says_what_the_model_is_told(self) -> None:
        def redact(ctx: Context, result: ToolCallResult) -> ToolOutput:
            text = result.tool_output.content.replace("Bob", "B.")
            return ToolOutput(tool_name=result.tool_name, content=text, raw_input=result.tool_kwargs)

        def shout(ctx: Context, result: ToolCallResult) -> ToolOutput:
            return ToolOutput(tool_name="send", content=result.tool_output.content.upper())

        made = agent(tool_call("send", to="Bob"), "Done.", after_tool=[redact, shout])
        assert await results(made.run("Send it.")) == ["SENT TO B."]

    async def test_a_hook_that_raises_withholds_the_result(self) -> None:
        def fails(ctx: Context, result: ToolCallResult) -> None:
            raise LookupError("no such list")

        handler = agent(tool_call("send", to="Bob"), "Done.", after_tool=[fails]).run("Send it.")
        (told,) = await results(handler)
        assert told.startswith("The result of send is withheld: the check ")
        assert "LookupError: no such list" in told
        assert "sent to" not in told
        assert SENT == ["Bob"]

    async def test_hooks_see_failures_and_the_arguments_that_were_used(self) -> None:
        seen: list[Any] = []

        def broken(to: str) -> str:
            """Fail."""
            raise OSError("no stamps")

        def watch(ctx: Context, result: ToolCallResult) -> None:
            seen.append((result.tool_kwargs, result.tool_output.is_error))

        made = agent(
            tool_call("broken", to="Bob"), "Done.",
            tools=[broken], before_tool=[lambda ctx, call: Replace({"to": "Cleo"})], after_tool=[watch],
        )  # fmt: skip
        await made.run("Send it.")
        assert seen == [({"to": "Cleo"}, True)]


class EventForReader(BaseModel):
    text: str


def no_secrets(ctx: Context, message: ChatMessage) -> Block | None:
    return Block("I may not speak about that.") if "secret" in (message.content or "") else None


async def no_secrets_asked(ctx: Context, message: ChatMessage) -> Block | None:
    await asyncio.sleep(0)
    return no_secrets(ctx, message)


async def kept(ctx: Context[Any]) -> list[tuple[str, str | None]]:
    return [(one.role.value, one.content) for one in await (await ctx.store.get("memory")).aget_all()]


class TestGuards:
    @pytest.mark.parametrize("guard", [no_secrets, no_secrets_asked], ids=["sync", "async"])
    async def test_a_question_that_is_blocked_is_not_shown_to_the_model_nor_kept(self, guard: Any) -> None:
        made = agent("Hello.", input_guards=[guard])
        ctx: Context[Any] = Context(made)
        output = await made.run("Tell me a secret.", ctx=ctx)
        assert (str(output), output.get("blocked")) == ("I may not speak about that.", "input")
        assert str(await made.run("Hello?", ctx=ctx)) == "Hello."
        assert await kept(ctx) == [("user", "Hello?"), ("assistant", "Hello.")]

    async def test_an_answer_that_is_blocked_is_not_kept(self) -> None:
        made = agent(tool_call("send", to="Bob"), "The secret is 7.", "Hello.", output_guards=[no_secrets])
        ctx: Context[Any] = Context(made)
        output = await made.run("What is it?", ctx=ctx)
        assert (str(output), output.get("blocked")) == ("I may not speak about that.", "output")
        assert str(await made.run("Hello?", ctx=ctx)) == "Hello."
        said = [text for role, text in await kept(ctx) if role in {"user", "assistant"} and text]
        assert said == ["What is it?", "Hello?", "Hello."]

    async def test_the_usage_of_a_blocked_answer_is_reported(self) -> None:
        output = await agent("The secret is 7.", output_guards=[no_secrets]).run("What is it?")
        assert output.usage is not None
        assert output.usage.output_tokens > 0

    async def test_the_first_that_blocks_decides_and_one_that_raises_blocks(
        self, caplog: pytest.LogCaptureFixture
    ) -> None:
        made = agent("Never.", input_guards=[lambda ctx, message: None, lambda ctx, message: 1 / 0, no_secrets])
        output = await made.run("A secret.")
        assert str(output) == "The message could not be checked."
        [logged] = caplog.records
        assert "<lambda> failed" in logged.getMessage()
        assert logged.exc_info is not None
        assert logged.exc_info[0] is ZeroDivisionError

    async def test_in_a_team_those_of_the_agent_that_begins_and_of_the_one_that_answers(self) -> None:
        handoff = tool_call("handoff", to_agent="second", reason="it knows")
        first = agent(handoff, name="first", output_guards=[no_secrets])
        second = FunctionAgent(name="second", description="Second.", llm=ScriptedLLM(["The secret is 7."] * 2))
        team = AgentWorkflow(agents=[first, second], root_agent="first")
        assert str(await team.run("What is it?")) == "The secret is 7."
        guarded = FunctionAgent(
            name="second", description="Second.", llm=ScriptedLLM(["The secret is 7."]), output_guards=[no_secrets]
        )
        first = agent(
            handoff, name="first", input_guards=[lambda ctx, m: Block("no") if m.content == "Stop." else None]
        )
        team = AgentWorkflow(agents=[first, guarded], root_agent="first")
        output = await team.run("What is it?")
        assert (output.get("blocked"), output.current_agent_name) == ("output", "second")
        assert (await team.run("Stop.")).get("blocked") == "input"

    @pytest.mark.parametrize("of", ["agent", "team"])
    async def test_the_structured_form_of_an_answer_is_guarded_too(self, of: str) -> None:
        options: dict[str, Any] = {"output_cls": EventForReader} if of == "agent" else {}
        made: Any = agent("All fine.", '{"text": "a secret"}', output_guards=[no_secrets], **options)
        if of == "team":
            made = AgentWorkflow(agents=[made], output_cls=EventForReader)
        handler = made.run("What is it?")
        shown = [event async for event in handler.stream_events() if isinstance(event, AgentStreamStructuredOutput)]
        output = await handler
        assert (str(output), output.get("blocked")) == ("All fine.", "structured")
        assert (output.structured_response, shown) == (None, [])

    async def test_a_guard_of_a_structured_form_sees_the_text_too_and_values_of_every_kind(self) -> None:
        seen: list[str] = []

        def look(ctx: Context, message: ChatMessage) -> Block | None:
            seen.append(message.content or "")
            return None if "[1]" in (message.content or "") else Block("Cite!")

        made = agent("It is so [1].", output_guards=[look], structured_output_fn=lambda messages: {"raw": b"\xff"})
        output = await made.run("Is it?")
        assert (output.structured_response, output.get("blocked")) == ({"raw": b"\xff"}, None)
        assert seen == ["It is so [1].", 'It is so [1].\n{"raw": "/w=="}']

    async def test_what_was_called_stays_with_a_blocked_answer(self) -> None:
        made = agent(tool_call("send", to="Bob"), "The secret is 7.", output_guards=[no_secrets])
        output = await made.run("What is it?")
        assert [call.tool_name for call in output.tool_calls] == ["send"]

    async def test_an_agent_behind_a_tool_has_its_own(self) -> None:
        helper = agent("The secret is 7.", name="helper", output_guards=[no_secrets])
        made = agent(tool_call("helper", input="What is it?"), "It would not say.", tools=[helper.as_tool()])
        handler = made.run("Ask.")
        assert (await results(handler))[-1] == "I may not speak about that."
        assert str(await handler) == "It would not say."

    async def test_they_see_what_was_streamed_already(self) -> None:
        handler = agent("The secret is 7.", output_guards=[no_secrets]).run("What is it?")
        shown = [event.delta async for event in handler.stream_events() if isinstance(event, AgentStream)]
        assert "".join(shown) == "The secret is 7."
        assert isinstance(await handler, AgentOutput)

    @pytest.mark.parametrize("held_back", ["by the agent", "by a middleware"])
    async def test_a_blocked_answer_that_is_held_back_is_in_no_event(self, held_back: str) -> None:
        class Whole(Middleware[Any]):
            async def around_model(self, ctx: Any, request: ModelRequest, call_next: Any) -> AgentOutput:
                return await call_next(request.with_(stream=False))

        options: Any = {"streaming": False} if held_back == "by the agent" else {"middleware": [Whole()]}
        handler = agent("The secret is 7.", output_guards=[no_secrets], **options).run("What is it?")
        events = [event async for event in handler.stream_events()]
        assert "secret is 7" not in repr(events)
        assert [str(event) for event in events if type(event) is AgentOutput] == ["I may not speak about that."]

    async def test_a_permitted_answer_is_streamed_after_the_guards(self) -> None:
        handler = agent("All fine.", output_guards=[no_secrets], streaming=False).run("What is it?")
        outputs = [str(event) async for event in handler.stream_events() if type(event) is AgentOutput]
        assert outputs == ["All fine."]


class TestInOtherKindsOfAgents:
    async def test_reasoning_in_text(self) -> None:
        turns = [
            'Thought: To Ann.\nAction: send\nAction Input: {"to": "Ann"}',
            "Thought: No.\nAnswer: The secret is 7.",
        ]
        made = ReActAgent(llm=ScriptedLLM(turns), tools=[send], before_tool=[no_ann], output_guards=[no_secrets])
        ctx: Context[Any] = Context(made)
        handler = made.run("Send it.", ctx=ctx)
        assert await results(handler) == ["Tool send was not run: Ann wants no letters"]
        assert str(await handler) == "I may not speak about that."
        assert not any("secret" in (text or "") for _, text in await kept(ctx))

    async def test_calls_in_code(self) -> None:
        code = (
            "<execute>\ntry:\n    print(await send(to='Ann'))\nexcept Exception as error:\n    print('no:', error)\n"
            "print(await send(to='Bob'))\n</execute>"
        )

        def short(ctx: Context, result: ToolCallResult) -> ToolOutput | None:
            if result.tool_name == "send":
                return ToolOutput(tool_name="send", content="done", raw_output="done")
            return None

        made = CodeActAgent(llm=ScriptedLLM([code, "Done."]), tools=[send], before_tool=[no_ann], after_tool=[short])
        handler = made.run("Send both.")
        shown = await results(handler)
        assert "no: Tool send was not run: Ann wants no letters" in shown[-1]
        assert shown[-1].endswith("done")
        assert SENT == ["Bob"]


@pytest.mark.parametrize("place", ["before_tool", "after_tool"])
async def test_a_hook_that_is_broken_is_logged(place: str, caplog: pytest.LogCaptureFixture) -> None:
    options: dict[str, Any] = {place: [lambda ctx, call: call.nope]}
    await agent(tool_call("send", to="Bob"), "Done.", **options).run("Go.")
    [logged] = caplog.records
    assert logged.exc_info is not None
    assert logged.exc_info[0] is AttributeError
