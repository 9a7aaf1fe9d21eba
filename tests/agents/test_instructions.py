"""Instructions in the system message, and the choice of tools."""

import asyncio
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from batonflow.agents import AgentWorkflow, CodeActAgent, FunctionAgent, Middleware, ReActAgent, each_step
from batonflow.llms import ChatMessage, MessageRole, ScriptedLLM, tool_call
from batonflow.tools import tool
from batonflow.workflow_core import Context, RunInterruptedError
from tests.workflow_core.flows import until


def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


def agent(*script: Any, **options: Any) -> FunctionAgent:
    return FunctionAgent(**{"llm": ScriptedLLM(list(script)), "tools": [add], "name": "adder", **options})


def system(agent: Any, request: int = 0) -> list[str]:
    """The texts of the system message of a request."""
    first: ChatMessage = agent.llm.requests[request].messages[0]
    return [block.text for block in first.blocks] if first.role == MessageRole.SYSTEM else []  # type: ignore[union-attr]


class TestTheSystemMessage:
    async def test_fixed_texts_stand_first_and_each_text_is_a_block(self) -> None:
        async def who(ctx: Context) -> str:
            return f"The user is {await ctx.store.get('user', default='Ann')}."

        made = agent("Done.", system_prompt="You help.", instructions=[who, "Be brief.", lambda: "It rains."])
        await made.run("Go.")
        assert system(made) == ["You help.", "Be brief.", "The user is Ann.", "It rains."]

    async def test_a_single_one_needs_no_list(self) -> None:
        for given in ("Be brief.", lambda: "Be brief.", lambda ctx: "Be brief."):
            made = agent("Done.", instructions=given)
            await made.run("Go.")
            assert system(made) == ["Be brief."]

    async def test_an_object_that_can_be_called_is_one_too(self) -> None:
        @dataclass
        class Weather:  # compared by value, so it cannot be a key
            text: str

            def __call__(self, ctx: Context) -> str:
                return self.text

        made = agent("Done.", instructions=Weather("It rains."))
        await made.run("Go.")
        assert system(made) == ["It rains."]

    async def test_none_and_an_empty_text_leave_it_out(self) -> None:
        made = agent("Done.", instructions=[lambda: None, lambda: ""])
        await made.run("Go.")
        assert system(made) == []

    async def test_those_of_middleware_are_added(self) -> None:
        class Notes(Middleware):
            def instructions(self) -> str:
                return "Read the note."

        made = agent("Done.", middleware=[Notes()], instructions="Be brief.")
        await AgentWorkflow([made]).run("Go.")
        assert system(made) == ["Read the note.", "Be brief."]

    @pytest.mark.parametrize("kind", [ReActAgent, CodeActAgent])
    async def test_agents_with_a_prompt_of_their_own_have_it_once(self, kind: type[Any]) -> None:
        made = kind(
            llm=ScriptedLLM(["Thought: easy.\nAnswer: Done."]), system_prompt="You help.", instructions=["Be brief."]
        )
        await made.run("Go.")
        texts = [one.content or "" for one in made.llm.requests[0].messages]
        assert sum(text.count("You help.") for text in texts) == 1
        assert sum(text.count("Be brief.") for text in texts) == 1


class TestWhenItIsAsked:
    async def test_once_in_a_turn_and_anew_in_the_next(self) -> None:
        asked: list[int] = []

        def counted() -> str:
            asked.append(len(asked))
            return f"Turn {len(asked)}."

        made = agent(tool_call("add", a=1, b=2), "Done.", "Again.", instructions=counted)
        handler = made.run("Go.")
        await handler
        await made.run("Go on.", ctx=handler.ctx)
        assert [system(made, number) for number in range(3)] == [["Turn 1."], ["Turn 1."], ["Turn 2."]]

    async def test_before_each_request_where_that_is_wanted(self) -> None:
        asked: list[int] = []

        def counted() -> str:
            asked.append(len(asked))
            return f"Request {len(asked)}."

        made = agent(tool_call("add", a=1, b=2), "Done.", instructions=[each_step(counted), lambda: "Fixed."])
        await made.run("Go.")
        assert [system(made, number) for number in range(2)] == [["Request 1.", "Fixed."], ["Request 2.", "Fixed."]]

    async def test_a_resumed_turn_says_the_same_as_before(self, tmp_path: Path) -> None:
        stop = asyncio.Event()
        texts = iter(["first", "second"])

        async def wait() -> str:
            """Wait."""
            stop.set()
            await asyncio.Event().wait()
            return "over"

        async def quick() -> str:
            """Wait."""
            return "over"

        def made(script: list[Any], waits: Any) -> FunctionAgent:
            return FunctionAgent(
                llm=ScriptedLLM(script), tools=[tool(waits, name="wait", idempotent=True)],
                instructions=lambda: next(texts), store=str(tmp_path / "runs.db"),
            )  # fmt: skip

        handler = made([tool_call("wait")], wait).run("Go.", run_id="r")
        await until(stop.is_set)
        await handler.interrupt()
        with pytest.raises(RunInterruptedError):
            await handler
        again = made(["Done."], quick)
        assert str(await again.resume("r")) == "Done."
        assert system(again) == ["first"]


class TestMistakes:
    async def test_one_that_raises_fails_the_run_with_a_note(self) -> None:
        def broken(ctx: Context) -> str:
            raise KeyError("user")

        with pytest.raises(KeyError) as caught:
            await agent("Done.", instructions=broken).run("Go.")
        assert any(note.startswith("in instruction ") and "broken" in note for note in caught.value.__notes__)

    async def test_one_that_returns_something_else_fails_the_run(self) -> None:
        with pytest.raises(TypeError, match="an instruction returns a text or None, not int"):
            await agent("Done.", instructions=lambda: 3).run("Go.")

    @pytest.mark.parametrize("given", [3, ["Be brief.", 3]])
    def test_what_is_not_an_instruction_is_refused_at_construction(self, given: Any) -> None:
        with pytest.raises(ValueError, match="instructions"):
            agent(instructions=given)


class TestTheChoiceOfTools:
    async def test_a_value_holds_for_the_first_request_of_a_turn(self) -> None:
        made = agent(tool_call("add", a=1, b=2), "Done.", tool_choice="required")
        await made.run("Go.")
        llm: Any = made.llm
        assert [one.tool_choice for one in llm.requests] == ["required", None]

    async def test_a_function_is_asked_before_each_request(self) -> None:
        async def choose(ctx: Context) -> str | None:
            return "add" if not await ctx.store.get("current_tool_calls") else "none"

        made = agent(tool_call("add", a=1, b=2), "Done.", tool_choice=choose)
        await made.run("Go.")
        llm: Any = made.llm
        assert [one.tool_choice for one in llm.requests] == ["add", "none"]

    async def test_one_that_returns_something_else_fails_the_run(self) -> None:
        with pytest.raises(TypeError, match="tool_choice returns a text or None, not int"):
            await agent("Done.", tool_choice=lambda ctx: 3).run("Go.")

    async def test_a_name_that_no_tool_has_is_refused_before_the_model_is_asked(self) -> None:
        for choice in ("nope", lambda ctx: "nope"):
            made = agent("Done.", tool_choice=choice)
            with pytest.raises(ValueError, match="or the name of a tool of the request, not 'nope'; there is add"):
                await made.run("Go.")
            assert made.llm.requests == []  # type: ignore[union-attr]
        with pytest.raises(ValueError, match="not 'nope'; there are no tools"):
            await agent("Done.", tools=[]).run("Go.", tool_choice="nope")

    def test_wrong_options_are_refused_at_construction(self) -> None:
        with pytest.raises(ValueError, match="tool_choice and initial_tool_choice say the same"):
            agent(tool_choice="required", initial_tool_choice="add")
        with pytest.raises(ValueError, match="tool_choice is 'auto', 'required', 'none', the name of a tool"):
            agent(tool_choice=3)
