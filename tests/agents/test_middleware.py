"""Middleware: objects of the user around models, tools and the ends of a turn."""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from batonflow.agents import (
    AgentOutput,
    AgentStream,
    AgentWorkflow,
    Block,
    Budget,
    BudgetExceededError,
    CodeActAgent,
    Deny,
    FunctionAgent,
    Middleware,
    ModelRequest,
    ReActAgent,
    ToolCallResult,
    ToolRequest,
)
from batonflow.agents.invocation import ToolInvocation
from batonflow.agents.tool_calls import _layers_around  # pyright: ignore[reportPrivateUsage]
from batonflow.llms import ChatMessage, ScriptedLLM, TextBlock, tool_call
from batonflow.tools import FunctionTool, ToolOutput, tool
from batonflow.workflow_core import Context, RunInterruptedError
from tests.workflow_core.flows import until

RAN: list[Any] = []


@pytest.fixture(autouse=True)
def _nothing_ran() -> None:
    RAN.clear()


def add(a: int, b: int) -> int:
    """Add two numbers."""
    RAN.append((a, b))
    return a + b


def agent(*script: Any, **options: Any) -> FunctionAgent:
    options = {"name": "adder", "description": "Adds.", "tools": [add], **options}
    return FunctionAgent(llm=ScriptedLLM(list(script)), **options)


def adding(a: int = 1, b: int = 2) -> Any:
    return tool_call("add", a=a, b=b)


class Notes(Middleware):
    """Keeps the order in which its methods are called."""

    def __init__(self, log: list[str], label: str) -> None:
        self.log, self.label = log, label

    async def before_run(self, ctx: Context, message: ChatMessage) -> None:
        self.log.append(f"{self.label} before")

    async def around_model(self, ctx: Context, request: ModelRequest, call_next: Any) -> AgentOutput:
        self.log.append(f"{self.label} asks")
        output = await call_next(request)
        self.log.append(f"{self.label} answered")
        return output

    async def around_tool(self, ctx: Context, request: ToolRequest, call_next: Any) -> ToolOutput:
        self.log.append(f"{self.label} calls")
        output = await call_next(request)
        self.log.append(f"{self.label} called")
        return output

    async def after_run(self, ctx: Context, output: AgentOutput) -> None:
        self.log.append(f"{self.label} after")


class TestTheOrder:
    async def test_the_first_is_the_outermost_and_a_team_is_outside_its_members(self) -> None:
        log: list[str] = []
        member = agent(adding(), "Done.", middleware=[Notes(log, "a"), Notes(log, "b")])
        assert str(await AgentWorkflow([member], middleware=[Notes(log, "t")]).run("Go.")) == "Done."
        asking = ["t asks", "a asks", "b asks", "b answered", "a answered", "t answered"]
        calling = ["t calls", "a calls", "b calls", "b called", "a called", "t called"]
        ends = ["t before", "a before", "b before"], ["b after", "a after", "t after"]
        assert log == [*ends[0], *asking, *calling, *asking, *ends[1]]

    async def test_each_member_has_its_own(self) -> None:
        log: list[str] = []
        first = agent(tool_call("handoff", to_agent="last", reason="r"), middleware=[Notes(log, "first")])
        last = agent(adding(), "Done.", name="last", description="Ends.", middleware=[Notes(log, "last")])
        await AgentWorkflow([first, last], root_agent="adder").run("Go.")
        assert log[:4] == ["first before", "first asks", "first answered", "first calls"]
        assert log[-1] == "last after"
        assert log.count("last calls") == 1

    async def test_it_follows_changes_of_the_option(self) -> None:
        log: list[str] = []
        made = agent("One.", "Two.", middleware=[Notes(log, "a")])
        await made.run("Go.")
        made.middleware = [Notes(log, "b")]
        await made.run("Go.")
        assert [line[0] for line in log] == ["a"] * 4 + ["b"] * 4

    async def test_methods_without_an_override_add_no_layer(self) -> None:
        class Empty(Middleware): ...

        made = agent(max_result_chars=None, middleware=[Empty(), Empty(), Empty()])
        (used,) = await made.get_tools()
        call: Any = adding()
        invocation = ToolInvocation(Context(made), made.__batonflow_team__, made, used, call, "0")
        assert _layers_around(invocation, None) == ()

    async def test_hooks_are_outside_of_it_and_limits_inside(self) -> None:
        made = agent(
            adding(1, 1), adding(2, 2), "Done.",
            before_tool=[lambda ctx, call: Deny("no") if call.tool_kwargs["a"] == 1 else None],
            middleware=[Middleware.of(around_tool=twice)], budget=Budget(max_tool_calls=1, on_exceeded="raise"),
        )  # fmt: skip
        with pytest.raises(BudgetExceededError):
            await made.run("Go.")
        assert RAN == [(2, 2)]


async def twice(ctx: Context, request: ToolRequest, call_next: Any) -> ToolOutput:
    await call_next(request)
    return await call_next(request)


class TestAroundATool:
    async def test_it_changes_arguments_and_output(self) -> None:
        async def tenfold(ctx: Context, request: ToolRequest, call_next: Any) -> ToolOutput:
            assert (request.agent, request.tool.metadata.name, request.arguments) == ("adder", "add", {"a": 1, "b": 2})
            output = await call_next(request.with_(arguments={"a": 10, "b": 20}))
            return output.model_copy(update={"blocks": [TextBlock(text=f"about {output.content}")]})

        output = await agent(adding(), "Done.", middleware=[Middleware.of(around_tool=tenfold)]).run("Go.")
        (result,) = output.tool_calls
        assert RAN == [(10, 20)]
        assert isinstance(result, ToolCallResult)
        assert (result.tool_output.content, result.tool_kwargs) == ("about 30", {"a": 10, "b": 20})

    async def test_changed_arguments_are_validated_like_those_of_the_model(self) -> None:
        async def wrong(ctx: Context, request: ToolRequest, call_next: Any) -> ToolOutput:
            return await call_next(request.with_(arguments={"a": "many"}))

        output = await agent(adding(), "Done.", middleware=[Middleware.of(around_tool=wrong)]).run("Go.")
        assert RAN == []
        assert output.tool_calls[0].tool_output.is_error

    async def test_arguments_that_are_changed_in_place_reach_the_tool(self) -> None:
        async def double(ctx: Context, request: ToolRequest, call_next: Any) -> ToolOutput:
            request.arguments["a"] *= 2
            return await call_next(request)

        output = await agent(adding(), "Done.", middleware=[Middleware.of(around_tool=double)]).run("Go.")
        assert RAN == [(2, 2)]
        result = output.tool_calls[0]
        assert isinstance(result, ToolCallResult)
        assert result.tool_kwargs == {"a": 2, "b": 2}

    async def test_its_own_answer_takes_the_place_of_the_tool(self) -> None:
        async def dry(ctx: Context, request: ToolRequest, call_next: Any) -> ToolOutput:
            return ToolOutput(tool_name="add", content="not run")

        seen: list[str] = []
        made = agent(
            adding(), "Done.", middleware=[Middleware.of(around_tool=dry)],
            after_tool=[lambda ctx, result: seen.append(result.tool_output.content)],
        )  # fmt: skip
        await made.run("Go.")
        assert (RAN, seen) == ([], ["not run"])

    async def test_the_tool_may_run_again_under_the_same_key_with_a_record_of_its_own(self, tmp_path: Path) -> None:
        keys: list[str] = []

        @tool
        async def pay(ctx: Context, amount: int, idempotency_key: str) -> str:
            """Pay."""
            keys.append(idempotency_key)
            if len(keys) == 1:
                raise OSError("busy")
            return f"paid {amount}"

        async def again(ctx: Context, request: ToolRequest, call_next: Any) -> ToolOutput:
            output = await call_next(request)
            return await call_next(request) if output.is_error else output

        made = agent(
            tool_call("pay", amount=3), "Done.", tools=[pay], middleware=[Middleware.of(around_tool=again)],
            store=str(tmp_path / "runs.db"),
        )  # fmt: skip
        output = await made.run("Go.", run_id="r")
        assert output.tool_calls[0].tool_output.content == "paid 3"
        assert len(keys) == 2
        assert len(set(keys)) == 1

    async def test_an_approval_holds_for_the_same_arguments_and_not_for_others(self) -> None:
        asked: list[dict[str, Any]] = []

        @tool(requires_approval=True)
        def pay(amount: int) -> str:
            """Pay."""
            RAN.append(amount)
            return "paid"

        async def three_times(ctx: Context, request: ToolRequest, call_next: Any) -> ToolOutput:
            await call_next(request)
            await call_next(request)
            return await call_next(request.with_(arguments={"amount": 50}))

        made = agent(
            tool_call("pay", amount=3), "Done.", tools=[pay], middleware=[Middleware.of(around_tool=three_times)]
        )
        handler = made.run("Go.")
        async for request in handler.approvals():
            asked.append(request.arguments)
            request.approve(arguments={"amount": 4} if len(asked) == 1 else None)
        await handler
        assert asked == [{"amount": 3}, {"amount": 50}]
        assert RAN == [4, 4, 50]

    async def test_only_arguments_can_be_changed(self) -> None:
        async def other(ctx: Context, request: ToolRequest, call_next: Any) -> ToolOutput:
            return await call_next(request.with_(tool=FunctionTool.from_defaults(print)))

        with pytest.raises(TypeError, match="may change the arguments of a request, and nothing else"):
            await agent(adding(), middleware=[Middleware.of(around_tool=other)]).run("Go.")

    async def test_calls_in_code_pass_through_it(self) -> None:
        log: list[str] = []
        script = ["<execute>\nprint(await add(a=1, b=2))\n</execute>", "Done."]
        made = CodeActAgent(llm=ScriptedLLM(script), tools=[add], middleware=[Notes(log, "a")])
        await made.run("Go.")
        assert RAN == [(1, 2)]
        assert log.count("a calls") >= 1


class TestAroundAModel:
    async def test_it_changes_the_messages_and_leaves_out_tools(self) -> None:
        async def brief(ctx: Context, request: ModelRequest, call_next: Any) -> AgentOutput:
            return await call_next(request.with_(messages=[ChatMessage("Only this.")], tools=[]))

        made = agent("Done.", middleware=[Middleware.of(around_model=brief)])
        await made.run("Go.")
        llm: Any = made.llm
        assert [one.content for one in llm.requests[0].messages] == ["Only this."]
        assert not llm.requests[0].tools

    @pytest.mark.parametrize("kind", [FunctionAgent, ReActAgent])
    async def test_another_model_answers(self, kind: type[Any]) -> None:
        answer = "Thought: easy.\nAnswer: other" if kind is ReActAgent else "other"
        other = ScriptedLLM([answer])

        async def route(ctx: Context, request: ModelRequest, call_next: Any) -> AgentOutput:
            return await call_next(request.with_(llm=other))

        made = kind(llm=ScriptedLLM(["own"]), tools=[add], middleware=[Middleware.of(around_model=route)])
        assert str(await made.run("Go.")) == "other"

    @pytest.mark.parametrize("kind", [FunctionAgent, ReActAgent])
    async def test_an_answer_can_be_held_back_until_it_is_whole(self, kind: type[Any]) -> None:
        async def whole(ctx: Context, request: ModelRequest, call_next: Any) -> AgentOutput:
            return await call_next(request.with_(stream=False))

        answer = "Thought: easy.\nAnswer: a secret" if kind is ReActAgent else "a secret"
        made = kind(
            llm=ScriptedLLM([answer]), tools=[add], middleware=[Middleware.of(around_model=whole)],
            output_guards=[lambda ctx, message: Block("blocked")],
        )  # fmt: skip
        handler = made.run("Go.")
        pieces = [one async for one in handler.stream_events() if isinstance(one, AgentStream)]
        assert (str(await handler), pieces) == ("blocked", [])

    async def test_tool_choice_and_options_reach_the_model(self) -> None:
        async def strict(ctx: Context, request: ModelRequest, call_next: Any) -> AgentOutput:
            return await call_next(request.with_(tool_choice="add", options={"temperature": 0.1}))

        made = agent("Done.", middleware=[Middleware.of(around_model=strict)])
        await made.run("Go.")
        llm: Any = made.llm
        assert llm.requests[0].tool_choice == "add"
        assert llm.requests[0].options["temperature"] == 0.1

    async def test_its_own_answer_takes_the_place_of_the_model(self) -> None:
        async def cached(ctx: Context, request: ModelRequest, call_next: Any) -> AgentOutput:
            return AgentOutput(response=ChatMessage("cached", role="assistant"), current_agent_name=request.agent)

        made = agent(middleware=[Middleware.of(around_model=cached)])
        assert str(await made.run("Go.")) == "cached"
        llm: Any = made.llm
        assert llm.requests == []

    async def test_usage_of_a_second_request_counts(self) -> None:
        async def again(ctx: Context, request: ModelRequest, call_next: Any) -> AgentOutput:
            await call_next(request)
            return await call_next(request)

        output = await agent("One.", "Two.", middleware=[Middleware.of(around_model=again)]).run("Go.")
        once = await agent("One.").run("Go.")
        assert output.usage is not None
        assert once.usage is not None
        assert output.usage.output_tokens == 2 * once.usage.output_tokens

    @pytest.mark.parametrize("kind", [FunctionAgent, CodeActAgent])
    async def test_it_sees_and_changes_the_messages_of_the_turn(self, kind: type[Any]) -> None:
        seen: list[list[str]] = []

        async def hide(ctx: Context, request: ModelRequest, call_next: Any) -> AgentOutput:
            seen.append([message.role.value for message in request.turn])
            hidden = [ChatMessage((one.content or "").replace("4711", "[card]"), role=one.role) for one in request.turn]
            return await call_next(request.with_(turn=hidden) if request.turn else request)

        async def run_code(code: str) -> str:
            return "card 4711"

        def look_up() -> str:
            """Look up."""
            return "card 4711"

        calls = "<execute>look_up()</execute>" if kind is CodeActAgent else tool_call("look_up")
        llm = ScriptedLLM([calls, "Done."])
        options = {"code_execute_fn": run_code} if kind is CodeActAgent else {}
        one = kind(llm=llm, tools=[look_up], middleware=[Middleware.of(around_model=hide)], **options)
        handler = one.run("Which card?")
        await handler
        result = "user" if kind is CodeActAgent else "tool"
        assert seen == [[], ["assistant", result]]
        assert "4711" not in str(llm.requests[-1].messages)
        assert "[card]" in str(llm.requests[-1].messages)
        kept = await (await handler.ctx.store.get("memory")).aget_all()
        assert "4711" in str(kept)  # the middleware changes the request, not the conversation

    async def test_a_tool_that_the_agent_lacks_is_refused(self) -> None:
        async def more(ctx: Context, request: ModelRequest, call_next: Any) -> AgentOutput:
            return await call_next(request.with_(tools=[*request.tools, FunctionTool.from_defaults(print)]))

        with pytest.raises(ValueError, match=r"adder has no tool 'print'.*tools\(\)"):
            await agent(middleware=[Middleware.of(around_model=more)]).run("Go.")


class TestTheEndsOfATurn:
    async def test_the_message_can_be_replaced_before_it_is_kept(self) -> None:
        async def redact(ctx: Context, message: ChatMessage) -> ChatMessage:
            return ChatMessage((message.content or "").replace("1234", "****"))

        made = agent("Done.", middleware=[Middleware.of(before_run=redact)])
        handler = made.run("My PIN is 1234.")
        await handler
        llm: Any = made.llm
        assert "1234" not in str(llm.requests[0].messages)
        memory: Any = await handler.ctx.store.get("memory")
        assert [one.content for one in await memory.aget_all()] == ["My PIN is ****.", "Done."]
        assert await handler.ctx.store.get("user_msg_str") == "My PIN is ****."

    async def test_a_question_in_the_history_is_replaced_there(self) -> None:
        async def louder(ctx: Context, message: ChatMessage) -> ChatMessage:
            return ChatMessage((message.content or "").upper())

        made = agent("Done.", middleware=[Middleware.of(before_run=louder)])
        await made.run(chat_history=[ChatMessage("one"), ChatMessage("a", role="assistant"), ChatMessage("two")])
        llm: Any = made.llm
        assert [one.content for one in llm.requests[0].messages] == ["one", "a", "TWO"]

    @pytest.mark.parametrize("team", [False, True])
    async def test_a_blocked_message_ends_the_turn_with_the_reason(self, team: bool) -> None:
        async def never(ctx: Context, message: ChatMessage) -> Block:
            return Block("not today")

        middleware = [Middleware.of(before_run=never)]
        made: Any = (
            AgentWorkflow([agent("Done.")], middleware=middleware) if team else agent("Done.", middleware=middleware)
        )
        output = await made.run("Go.")
        assert (str(output), output.get("blocked")) == ("not today", "input")

    @pytest.mark.parametrize("kind", [FunctionAgent, ReActAgent])
    async def test_another_answer_is_the_result_and_is_kept(self, kind: type[Any]) -> None:
        async def polite(ctx: Context, output: AgentOutput) -> AgentOutput:
            said = ChatMessage(f"Please: {output}", role="assistant")
            return output.model_copy(update={"response": said})

        answer = "Thought: easy.\nAnswer: yes" if kind is ReActAgent else "yes"
        made = kind(llm=ScriptedLLM([answer]), tools=[add], middleware=[Middleware.of(after_run=polite)])
        handler = made.run("Go.")
        assert str(await handler) == "Please: yes"
        memory: Any = await handler.ctx.store.get("memory")
        kept = [one.content for one in await memory.aget_all()]
        assert kept[-1].endswith("Please: yes")
        assert len(kept) == 2

    async def test_a_blocked_answer_is_not_kept(self) -> None:
        async def never(ctx: Context, output: AgentOutput) -> Block:
            return Block("withheld")

        guarded: list[str] = []
        made = agent(
            "secret", middleware=[Middleware.of(after_run=never)],
            output_guards=[lambda ctx, message: guarded.append(str(message.content))],
        )  # fmt: skip
        handler = made.run("Go.")
        output = await handler
        assert (str(output), output.get("blocked"), guarded) == ("withheld", "output", [])
        memory: Any = await handler.ctx.store.get("memory")
        assert [one.content for one in await memory.aget_all()] == ["Go."]

    async def test_guards_see_the_answer_after_it(self) -> None:
        async def other(ctx: Context, output: AgentOutput) -> AgentOutput:
            return output.model_copy(update={"response": ChatMessage("changed", role="assistant")})

        seen: list[str] = []
        made = agent(
            "own", middleware=[Middleware.of(after_run=other)],
            output_guards=[lambda ctx, message: seen.append(str(message.content))],
        )  # fmt: skip
        await made.run("Go.")
        assert seen == ["changed"]


class TestItsTools:
    class Notebook(Middleware):
        def tools(self) -> Sequence[Any]:
            return [self.read_note]

        def read_note(self) -> str:
            """Read the note."""
            return "buy milk"

    @pytest.mark.parametrize("team", [False, True])
    async def test_they_are_added_to_those_of_the_agent(self, team: bool) -> None:
        middleware = [self.Notebook()]
        member = agent(tool_call("read_note"), "Done.", middleware=() if team else middleware)
        made: Any = AgentWorkflow([member], middleware=middleware) if team else member
        output = await made.run("Go.")
        assert [one.tool_output.content for one in output.tool_calls] == ["buy milk"]

    async def test_a_name_that_the_agent_has_already_is_refused(self) -> None:
        class Adds(Middleware):
            def tools(self) -> Sequence[Any]:
                return [add]

        with pytest.raises(ValueError, match="adder and its middleware both have a tool 'add'"):
            await agent("Done.", middleware=[Adds()]).run("Go.")


class TestMistakes:
    @pytest.mark.parametrize(
        ("name", "meant"),
        [("arround_tool", "around_tool"), ("before_runs", "before_run"), ("aroundmodel", "around_model")],
    )
    async def test_a_misspelt_method_is_refused(self, name: str, meant: str) -> None:
        async def method(self: Any, ctx: Any, *arguments: Any) -> None: ...

        kind: Any = type("Redact", (Middleware,), {name: method})
        with pytest.raises(ValueError, match=f"Redact has a method {name}: is {meant} meant"):
            agent("Done.", middleware=[kind()])

    async def test_other_methods_have_any_names(self) -> None:
        class Redact(Middleware):
            async def hide_numbers(self) -> None: ...

            def tool_names(self) -> list[str]:
                return []

        assert str(await agent("Done.", middleware=[Redact()]).run("Go.")) == "Done."

    async def test_an_exception_fails_the_run_with_a_note_that_names_it(self) -> None:
        class Broken(Middleware):
            async def around_tool(self, ctx: Context, request: ToolRequest, call_next: Any) -> ToolOutput:
                raise RuntimeError("boom")

        passing = Middleware.of(around_tool=lambda ctx, request, call_next: call_next(request))
        with pytest.raises(RuntimeError, match="boom") as caught:
            await agent(adding(), middleware=[passing, Broken()]).run("Go.")
        assert [note for note in caught.value.__notes__ if "middleware" in note] == [
            "in around_tool of middleware Broken"
        ]

    @pytest.mark.parametrize("point", ["before_run", "around_model", "around_tool", "after_run"])
    async def test_a_result_of_another_class_is_refused(self, point: str) -> None:
        async def wrong(*given: Any) -> str:
            return "text"

        options: dict[str, Any] = {point: wrong}
        with pytest.raises(TypeError, match=f"{point} of middleware wrong returned str, not"):
            await agent(adding(), "Done.", middleware=[Middleware.of(**options)]).run("Go.")

    async def test_a_method_that_is_not_a_coroutine_function_is_refused(self) -> None:
        class Plain(Middleware):
            def around_tool(self, ctx: Any, request: Any, call_next: Any) -> Any:
                return ToolOutput(tool_name="add", content="3")

        with pytest.raises(TypeError, match="around_tool of middleware Plain is not a coroutine function"):
            await agent(adding(), middleware=[Plain()]).run("Go.")

    @pytest.mark.parametrize(
        ("given", "text"),
        [
            ([Notes], r"middleware\[0\] is the class Notes: make an object of it"),
            ([twice], r"middleware\[0\] is not a Middleware but .*Middleware.of\(around_tool=...\)"),
            (Notes([], "a"), "middleware is a list of Middleware objects"),
            ("none", "middleware is a list of Middleware objects"),
        ],
    )
    def test_what_is_not_middleware_is_refused_at_construction(self, given: Any, text: str) -> None:
        with pytest.raises(ValueError, match=text):
            agent(middleware=given)
        with pytest.raises(ValueError, match=text):
            AgentWorkflow([agent()], middleware=given)

    def test_an_unknown_change_of_a_request_is_refused(self) -> None:
        request = ModelRequest(agent="a", messages=[], tools=[], llm=None, stream=True)
        with pytest.raises(TypeError, match=r"ModelRequest.with_\(\) does not know message; there are agent, messages"):
            request.with_(message=[])

    def test_of_takes_at_least_one_function(self) -> None:
        with pytest.raises(TypeError, match="takes at least one of before_run, around_model"):
            Middleware.of()
        with pytest.raises(TypeError, match=r"Middleware.of\(around_tool=...\) takes a function, not 'twice'"):
            Middleware.of(around_tool="twice")  # type: ignore[arg-type]

    @pytest.mark.parametrize(
        ("point", "change", "text"),
        [
            ("around_tool", {"arguments": "a"}, "arguments of a ToolRequest are a dict, not 'a'"),
            ("around_model", {"messages": "Hi"}, "messages of a ModelRequest are a list of ChatMessage, not 'Hi'"),
            ("around_model", {"tools": [len]}, "tools of a ModelRequest are a list of tools, not"),
            ("around_model", {"llm": "gpt"}, "llm of a ModelRequest is a model, not 'gpt'"),
            ("around_model", {"options": 5}, "options of a ModelRequest are a dict, not 5"),
        ],
    )
    async def test_a_changed_request_is_checked(self, point: str, change: dict[str, Any], text: str) -> None:
        async def passes(ctx: Any, request: Any, call_next: Any) -> Any:
            return await call_next(request.with_(**change))

        wrong = agent([tool_call("add", a=1, b=2), "Done."], middleware=[Middleware.of(**{point: passes})])
        with pytest.raises(TypeError, match=text) as failed:
            await wrong.run("Go.")
        assert f"in {point} of middleware passes" in failed.value.__notes__


def test_a_dataclass_with_equality_can_be_a_middleware() -> None:
    @dataclass
    class Limit(Middleware):
        most: int = 3

    assert agent(middleware=[Limit()]).middleware[0] == Limit()
    assert Limit.name == "Limit"


async def test_after_a_restart_it_is_entered_again_and_finds_the_recorded_output(tmp_path: Path) -> None:
    entered: list[str] = []
    stop: list[Any] = []

    class Enters(Middleware):
        async def around_tool(self, ctx: Context, request: ToolRequest, call_next: Any) -> ToolOutput:
            output = await call_next(request)
            entered.append(output.content)
            if stop:
                await asyncio.Event().wait()
            return output

    def made(*script: Any) -> FunctionAgent:
        return agent(*script, tools=[tool(add)], middleware=[Enters()], store=str(tmp_path / "runs.db"))

    stop.append(True)
    handler = made(adding()).run("Go.", run_id="r")
    await until(lambda: bool(entered))
    await handler.interrupt()
    with pytest.raises(RunInterruptedError):
        await handler
    stop.clear()
    assert str(await made("Done.").resume("r")) == "Done."
    assert (RAN, entered) == ([(1, 2)], ["3", "3"])
