"""CodeActAgent: acting by code, run by a function of the user's or in a sandbox that calls the tools."""

import asyncio
import json
import subprocess
import sys
from pathlib import Path
from typing import Annotated, Any

import pytest
from pydantic import Field

from batonflow.agents import AgentWorkflow, CodeActAgent, FunctionAgent, ToolCall, ToolCallResult
from batonflow.agents.memory import Memory, StaticMemoryBlock
from batonflow.agents.memory.turns import cuts
from batonflow.agents.snippets import _keepers, _open  # pyright: ignore[reportPrivateUsage]
from batonflow.llms import ChatMessage, CustomLLM, ImageBlock, LLMMetadata, ScriptedLLM, TextBlock, tool_call
from batonflow.llms.prompts import PromptTemplate
from batonflow.tools import FunctionTool, ToolOutput, tool
from batonflow.tools.code import Limits, MontyExecutor, SandboxUnavailableError, UnsafeLocalExecutor
from batonflow.tools.code.base import Executor
from batonflow.workflow_core import Context

PUBLISHED: list[str] = []


@pytest.fixture(autouse=True)
def _nothing_published() -> None:
    PUBLISHED.clear()


def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


@tool(requires_approval=True)
def publish(title: str) -> str:
    """Publish an article."""
    PUBLISHED.append(title)
    return f"published {title}"


def echo(code: str) -> str:
    """Run nothing."""
    return code


def code(text: str) -> str:
    return f"<execute>\n{text}\n</execute>"


def agent(*turns: Any, **options: Any) -> CodeActAgent:
    options.setdefault("tools", [add, publish])
    return CodeActAgent(llm=ScriptedLLM([*turns, "Done."]), **options)


def observations(made: CodeActAgent) -> list[str]:
    """What the model was shown of its code, snippet by snippet."""
    assert isinstance(made.llm, ScriptedLLM)
    head = "Result of executing the code given:\n\n"
    messages = made.llm.requests[-1].messages
    return [str(one.content).removeprefix(head) for one in messages if str(one.content).startswith(head)]


async def observed(*turns: Any, **options: Any) -> list[str]:
    made = agent(*turns, **options)
    assert str(await made.run("Go.")) == "Done."
    return observations(made)


def calls_and_results(events: list[Any]) -> list[str]:
    shown = [event for event in events if isinstance(event, ToolCall | ToolCallResult)]
    return [f"{'call' if isinstance(event, ToolCall) else 'result'} {event.tool_name}" for event in shown]


class TestAFunctionOfTheUsers:
    @pytest.mark.parametrize("streaming", [True, False])
    async def test_it_is_given_all_blocks_and_its_result_is_shown(self, streaming: bool) -> None:
        ran: list[str] = []

        def run(code: str) -> str:
            ran.append(code)
            return "42"

        said = f"First {code('x = 2')} and then {code('print(x + 40)')}"
        made = agent(said, code_execute_fn=run, streaming=streaming, tools=[add])
        assert str(await made.run("What is 2 + 40?")) == "Done."
        assert ran == ["x = 2\n\nprint(x + 40)"]
        assert observations(made) == ["42"]
        assert isinstance(made.llm, ScriptedLLM)
        last = made.llm.requests[-1].messages[-1]
        assert (last.role.value, list(made.llm.requests[-1].tools)) == ("user", [])

    async def test_asynchronous_and_with_a_parameter_of_another_name(self) -> None:
        async def run(snippet: str) -> dict[str, str]:
            return {"ran": snippet}

        made = CodeActAgent(run, llm=ScriptedLLM([code("1"), "Done."]))
        await made.run("Go.")
        assert observations(made) == ["{'ran': '1'}"]

    async def test_what_it_gives_is_cut_where_it_is_too_long_as_code_cannot_read_on(self) -> None:
        made = agent(code("1"), code_execute_fn=lambda code: "x" * 30, tools=[add], max_result_chars=10)
        assert str(await made.run("Go.")) == "Done."
        assert observations(made) == ["xxxxxxxxxx\n\n[The first 10 of 30 characters.]"]

    async def test_what_it_raises_is_shown(self) -> None:
        def run(code: str) -> str:
            raise RuntimeError(f"no {code}")

        assert await observed(code("1"), code_execute_fn=run, tools=[add]) == ["no 1"]

    async def test_the_model_is_shown_functions_and_the_system_prompt(self) -> None:
        made = agent(code_execute_fn=echo, tools=[add], system_prompt="You work for a port.")
        await made.run("Go.")
        assert isinstance(made.llm, ScriptedLLM)
        (prompt,) = [one.content for one in made.llm.requests[0].messages if one.role == "system"]
        assert 'def add(a: int, b: int) -> int:\n    """Add two numbers."""' in prompt
        assert prompt.endswith("You work for a port.")

    @pytest.mark.parametrize("prompt", ["Use {tool_descriptions}!", PromptTemplate("Use {tool_descriptions}!")])
    async def test_a_prompt_of_ones_own(self, prompt: Any) -> None:
        made = agent(code_execute_fn=echo, tools=[add], code_act_system_prompt=prompt, system_prompt="Be brief.")
        await made.run("Go.")
        assert isinstance(made.llm, ScriptedLLM)
        shown = str(made.llm.requests[0].messages[0].content)
        assert shown.startswith("Use def add(a: int, b: int) -> int:")
        assert shown.endswith("!\nBe brief.")

    async def test_the_callers_list_of_tools_stays_as_it_is(self) -> None:
        tools = [add]
        made = CodeActAgent(echo, tools=tools)
        assert tools == [add]
        assert [one.metadata.name for one in await made.get_tools()] == ["add", "execute"]

    async def test_tools_that_are_no_functions_of_a_program_are_refused(self) -> None:
        async def wants(ctx: Context[Any]) -> None: ...

        made = agent(code_execute_fn=echo, tools=[wants])
        with pytest.raises(ValueError, match="Tool wants requires context"):
            await made.run("Go.")

    async def test_a_call_that_is_not_allowed_ends_the_run_and_leaves_nothing_half_done(self) -> None:
        both = [TextBlock(text=code("second")), tool_call("add", a=2, b=40)]
        made = agent(code("first"), both, "Done.", tool_call("add", a=2, b=40), code_execute_fn=echo, tools=[add])
        ctx: Context[Any] = Context(made)
        with pytest.raises(ValueError, match="Unknown tool name: add"):
            await made.run("Go.", ctx=ctx)
        assert str(await made.run("And now?", ctx=Context.from_dict(made, ctx.to_dict()))) == "Done."
        assert isinstance(made.llm, ScriptedLLM)
        _, *shown = made.llm.requests[-1].messages
        assert [str(one.content).splitlines()[-1] for one in shown if one.role == "user"] == [
            *["Go.", "first", "second", "And now?"]
        ]
        assert [one.content for one in shown if one.role == "assistant"] == [code("first"), code("second")]
        assert all(one.blocks == [TextBlock(text=one.content or "")] for one in shown)
        with pytest.raises(ValueError, match="Unknown tool name: add"):
            await made.run("Once more.", ctx=ctx)
        memory = await ctx.store.get("memory")
        assert [one.content for one in await memory.aget_all()][-1] == "Once more."

    async def test_what_came_of_code_begins_no_turn_of_the_conversation(self) -> None:
        made = agent(code("1"), code("2"), code_execute_fn=echo, tools=[add])
        ctx: Context[Any] = Context(made)
        await made.run("Go.", ctx=ctx)
        memory = await (Context.from_dict(made, json.loads(json.dumps(ctx.to_dict())))).store.get("memory")
        kept = await memory.aget_all()
        assert [one.role.value for one in kept] == ["user", "assistant", "user", "assistant", "user", "assistant"]
        assert cuts([*kept, ChatMessage("And now?")]) == [6]
        assert isinstance(made.llm, ScriptedLLM)
        assert all(one.additional_kwargs == {} for one in (*made.llm.requests[-1].messages, *await memory.aget()))

    @pytest.mark.parametrize("prompt", [None, "Be brief."])
    async def test_a_system_message_of_the_memory_s_is_shown_beside_the_prompt(self, prompt: str | None) -> None:
        memory = Memory.from_defaults(memory_blocks=[StaticMemoryBlock(name="user", static_content="Ann")])
        made = agent(code_execute_fn=echo, tools=[add], system_prompt=prompt)
        await made.run("Who am I?", memory=memory)
        assert isinstance(made.llm, ScriptedLLM)
        first, known, asked = made.llm.requests[0].messages
        assert (first.role.value, known.role.value) == ("system", "system")
        assert (known.content, asked.content) == ("<memory>\n<user>\nAnn\n</user>\n</memory>", "Who am I?")

    async def test_state_structure_and_timeout_are_options_too(self) -> None:
        made = agent(code_execute_fn=echo, tools=[], initial_state={"port": "Emden"}, timeout=60)
        await made.run("Go.")
        assert isinstance(made.llm, ScriptedLLM)
        assert "Emden" in str(made.llm.requests[0].messages[-1].content)

    def test_it_is_a_function_or_an_executor(self) -> None:
        with pytest.raises(ValueError, match="code_execute_fn= or executor=, not both"):
            CodeActAgent(echo, executor=MontyExecutor())

    def test_the_name_of_the_tool_is_taken(self) -> None:
        with pytest.raises(ValueError, match="'execute'"):
            CodeActAgent(echo, tools=[FunctionTool.from_defaults(add, name="execute")])


class TestInTheSandbox:
    async def test_tools_are_functions_of_the_code_and_calls_are_events(self) -> None:
        made = agent(code("print('so')\nawait add(2, b=40)"))
        handler = made.run("What is 2 + 40?")
        events = [event async for event in handler.stream_events()]
        await handler
        assert calls_and_results(events) == ["call execute", "call add", "result add", "result execute"]
        call, result = (event for event in events if getattr(event, "tool_name", "") == "add")
        assert (call.tool_kwargs, call.tool_id) == ({"a": 2, "b": 40}, result.tool_id)
        assert result.tool_output.content == "42"
        assert observations(made) == ["so\nValue of the last expression: 42"]

    async def test_variables_stay_from_snippet_to_snippet(self) -> None:
        seen = await observed(code("x = await add(2, 40)"), code("x + 1"))
        assert "printed nothing" in seen[0]
        assert seen[1] == "Value of the last expression: 43"

    @pytest.mark.parametrize("text", ["print(add(2, 40))", "print(f'{add(2, 40)}')", "x = [add(2, 40)]\nprint(x)"])
    async def test_a_call_that_was_not_awaited_and_is_shown_is_pointed_out(self, text: str) -> None:
        [seen] = await observed(code(text))
        assert seen.startswith(("<coroutine ", "[<coroutine "))
        assert seen.endswith("was not awaited: write `await` before the call.")

    @pytest.mark.parametrize(
        ("said", "shown"),
        [
            ("<execute>\n    x = 1\n    print(x)\n</execute>", "1"),
            ("<execute>\r\n```python\r\nprint(1)\r\n```\r\n</execute>", "1"),
            ("Let me look.\n<execute>print(1)", "1"),
            ("Let me look. <execute>\nprint(1)", "1"),
            ("Let me look. <execute>print(1)", "1"),
            ("Let me look. <execute> print(1)", "1"),
            ("<execute> \n    x = 1\n    print(x)\n</execute>", "1"),
            ("Let me look. <execute></execute>", "The code ran to its end and printed nothing"),
            ('<execute>\nprint("""a\n   \nb""" == "a\\n   \\nb")\n</execute>', "True"),
            ("<execute>\n    x = '```'\n    print(x)\n</execute>", "```"),
            ("Let me look.\n<execute>\n</execute>", "The code ran to its end and printed nothing"),
        ],
        ids=[
            "indented",
            "line ends of Windows",
            "not closed",
            "not closed, at the end of a line",
            "not closed, in a line",
            "not closed, in a line, behind a space",
            "indented below a space",
            "empty, in a line",
            "lines of spaces in a text",
            "indented, with a fence in a text",
            "empty",
        ],
    )
    async def test_code_as_models_write_it(self, said: str, shown: str) -> None:
        [seen] = await observed(said)
        assert seen.startswith(shown)

    async def test_a_mark_that_is_only_mentioned_begins_no_code(self) -> None:
        assert str(await agent("4. (I did not need an <execute> block.)").run("2 + 2?")).endswith("block.)")

    async def test_of_pictures_the_code_gets_that_they_are_there(self) -> None:
        picture = ImageBlock(image=b"GIF89a")

        def draw(how: str) -> Any:
            """Draw."""
            return {"one": picture, "some": [TextBlock(text="Here:"), picture]}.get(
                how, ToolOutput("draw", blocks=[picture], raw_output="")
            )

        text = "for how in ('one', 'some', 'other'):\n    print(await draw(how))"
        seen = await observed(code(text), tools=[draw])
        assert seen == ["[picture, image/gif]\nHere:\n[picture, image/gif]\n[picture, image/gif]"]

    async def test_code_with_half_of_a_character_is_not_run_and_the_model_reads_where_it_is(self) -> None:
        [seen] = await observed(code("print(1)\nprint('\ud83d')"))
        assert seen.startswith(r"Nothing was run, as line 2 holds half of a character (\ud83d).")

    async def test_calls_that_are_gathered_run_at_the_same_time(self) -> None:
        met = asyncio.Barrier(2)

        async def meet(name: str) -> str:
            """Wait for the other one."""
            await asyncio.wait_for(met.wait(), 30)
            return name

        text = "import asyncio\nawait asyncio.gather(meet('a'), meet('b'))"
        assert await observed(code(text), tools=[meet]) == ["Value of the last expression: ['a', 'b']"]

    async def test_what_a_tool_raises_can_be_caught(self) -> None:
        def find(name: str) -> str:
            """Find somebody."""
            raise LookupError(f"there is no {name}")

        text = "try:\n    await find('Ann')\nexcept LookupError as err:\n    print('caught', err)"
        first, second = await observed(code(text), code("await find('Bob')"), tools=[find])
        assert first == "caught there is no Ann"
        assert second.endswith("LookupError: there is no Bob")

    async def test_arguments_are_checked_as_those_of_every_call(self) -> None:
        def tide(hour: Annotated[int, Field(ge=0, le=23)]) -> float:
            """The height of the water."""
            return 5.7

        (seen,) = await observed(
            code("try:\n    await tide(24)\nexcept ValueError as err:\n    print(err)"), tools=[tide]
        )
        assert "hour: " in seen
        assert "less than or equal to 23" in seen

    @pytest.mark.parametrize("text", ["x = (", "await subtract(1, 2)", "add(1, 2)"])
    async def test_what_would_not_work_is_told_and_not_run(self, text: str) -> None:
        made = agent(code(text), code("await add(1, 2)"))
        handler = made.run("Go.")
        events = [event async for event in handler.stream_events()]
        assert str(await handler) == "Done."
        first, second = observations(made)
        assert "Nothing was run" in first
        assert second == "Value of the last expression: 3"
        assert calls_and_results(events).count("call add") == 1

    async def test_an_endless_loop_meets_the_limit_and_the_agent_goes_on(self) -> None:
        seen = await observed(code("x = 1"), code("while True: pass"), code("x"), limits=Limits(seconds=0.3))
        assert "ran for more than 0.3 seconds" in seen[1]
        assert seen[2] == "Value of the last expression: 1"

    async def test_a_session_that_is_lost_is_told(self) -> None:
        seen = await observed(code("x = 1"), code("import os\nos._exit(1)"), code("x"), executor=UnsafeLocalExecutor())
        assert "variables are lost" in seen[1]
        assert "NameError" in seen[2]

    async def test_a_mark_that_is_missing_and_fences_are_forgiven(self) -> None:
        assert await observed("<execute>\n```python\n1 + 1\n```") == ["Value of the last expression: 2"]

    async def test_a_call_that_the_code_does_not_wait_for_has_a_result_all_the_same(self) -> None:
        async def wait() -> None:
            """Wait for ever."""
            await asyncio.Event().wait()

        def fail() -> None:
            """Fail."""
            raise ValueError("no")

        made = agent(code("import asyncio\nawait asyncio.gather(wait(), fail())"), tools=[wait, fail])
        handler = made.run("Go.")
        events = [event async for event in handler.stream_events()]
        await handler
        results = {event.tool_name: event.tool_output.content for event in events if isinstance(event, ToolCallResult)}
        assert "the code ended before" in results["wait"]

    async def test_a_tool_may_use_the_context(self) -> None:
        async def note(ctx: Context[Any], text: str) -> None:
            """Note something."""
            await ctx.store.set("state.noted", text)

        made = agent(code("await note('tides')"), tools=[note], initial_state={"noted": ""})
        handler = made.run("Go.")
        await handler
        assert await handler.ctx.store.get("state.noted") == "tides"

    async def test_the_model_is_told_of_the_sandbox_and_of_its_functions(self) -> None:
        made = agent()
        await made.run("Go.")
        assert isinstance(made.llm, ScriptedLLM)
        prompt = str(made.llm.requests[0].messages[0].content)
        assert "async def add(a: int, b: int) -> int:" in prompt
        assert MontyExecutor().hints in prompt

    @pytest.mark.parametrize("executor", [MontyExecutor, UnsafeLocalExecutor])
    async def test_code_can_read_on_in_a_long_result_and_keeps_its_variables(self, executor: Any) -> None:
        first, second = (
            code("x = 'ab' * 100\nprint(x)"),
            code("page = await read_result('1/0', 100)\npage[:100] == x[100:]"),
        )
        made = agent(first, second, max_result_chars=100, executor=executor())
        await made.run("Go.")
        told = observations(made)
        assert "To read on call read_result with handle='1/0' and offset=100" in told[0]
        assert told[1] == "Value of the last expression: True"

    def test_without_a_sandbox_there_is_no_agent(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setitem(sys.modules, "pydantic_monty", None)
        with pytest.raises(SandboxUnavailableError, match="UnsafeLocalExecutor"):
            CodeActAgent(llm=ScriptedLLM([]))


class TestApproval:
    async def test_a_call_waits_for_a_person(self) -> None:
        made = agent(code("await publish('Tides')"))
        handler = made.run("Go.")
        async for request in handler.approvals():
            assert (request.tool_name, request.arguments, PUBLISHED) == ("publish", {"title": "Tides"}, [])
            request.approve(arguments={"title": "Ebb"})
        await handler
        assert PUBLISHED == ["Ebb"]
        assert observations(made) == ["Value of the last expression: 'published Ebb'"]

    async def test_a_denied_call_raises_and_can_be_caught(self) -> None:
        text = "try:\n    await publish('Tides')\nexcept OSError as err:\n    print(type(err).__name__, err)"
        made = agent(code(text), code("await publish('Ebb')"))
        handler = made.run("Go.")
        async for request in handler.approvals():
            request.deny("too early")
        await handler
        first, second = observations(made)
        assert first == "PermissionError Tool publish was not run, a person denied it: too early."
        assert "PermissionError" in second
        assert PUBLISHED == []

    async def test_several_at_a_time_in_any_order(self) -> None:
        made = agent(code("import asyncio\nawait asyncio.gather(publish('a'), publish('b'), publish('a'))"))
        handler = made.run("Go.")
        requests: list[Any] = []
        async for request in handler.approvals():
            requests.append(request)
            if len(requests) == 3:
                requests[2].approve()
                requests[0].approve()
                requests[1].approve()
        await handler
        assert observations(made) == ["Value of the last expression: ['published a', 'published b', 'published a']"]

    @pytest.mark.parametrize("hurried", [True, False])
    async def test_the_same_call_in_two_snippets_of_one_answer_is_asked_twice(self, hurried: bool) -> None:
        made = agent([tool_call("execute", code="await publish('Tides')")] * 2)
        handler = made.run("Go.")
        ids: list[str] = []
        async with asyncio.timeout(10):
            async for request in handler.approvals():
                ids.append(request.id)
                request.approve()
                if not hurried:
                    await asyncio.sleep(0.01)
            await handler
        assert PUBLISHED == ["Tides", "Tides"]
        assert len(set(ids)) == 2


class TestSeveralSnippetsInOneAnswer:
    """A model that calls ``execute`` as a tool may do so several times at once."""

    async def test_the_same_call_has_a_key_of_its_own_in_each(self) -> None:
        keys: list[str] = []

        def order(item: str, idempotency_key: str) -> str:
            """Order."""
            keys.append(idempotency_key)
            return item

        made = agent([tool_call("execute", code="await order('rope')")] * 2, tools=[order])
        await made.run("Go.", run_id="voyage")
        assert len(set(keys)) == len(keys) == 2

    async def test_and_keeps_it_over_an_interruption(self) -> None:
        calls = [tool_call("execute", code="await publish('Tides')")] * 2
        handler = agent(calls).run("Go.")
        requests = handler.approvals()
        (await anext(requests)).approve()
        second = await anext(requests)
        saved = json.loads(json.dumps(handler.ctx.to_dict()))
        await requests.aclose()
        await handler.cancel_run()
        made = agent()
        handler = made.run(ctx=Context.from_dict(made, saved))
        ids: list[str] = []
        async for request in handler.approvals():
            ids.append(request.id)
            request.approve()
        await handler
        assert (ids, PUBLISHED) == ([second.id], ["Tides", "Tides"])

    async def test_a_limit_holds_for_all_of_them(self) -> None:
        ran: list[str] = []

        @tool(max_calls=1)
        def order(item: str) -> str:
            """Order."""
            ran.append(item)
            return item

        made = agent([tool_call("execute", code="await order('rope')")] * 2, tools=[order])
        output = await made.run("Go.")
        assert ran == ["rope"]
        told = [call.tool_output.content for call in output.tool_calls if isinstance(call, ToolCallResult)]
        assert "may run 1 times" in told[1]


class TestInATeam:
    async def test_code_and_handoff(self) -> None:
        handoff = tool_call("handoff", to_agent="writer", reason="counted")
        coder = CodeActAgent(
            name="coder",
            description="Counts.",
            tools=[add],
            llm=ScriptedLLM([code("x = await add(2, 40)\nx"), handoff]),
        )
        writer = FunctionAgent(name="writer", description="Writes.", llm=ScriptedLLM(["It is 42."]))
        handler = AgentWorkflow(agents=[coder, writer], root_agent="coder").run("Count and write.")
        output = await handler
        assert (str(output), output.current_agent_name) == ("It is 42.", "writer")
        assert isinstance(coder.llm, ScriptedLLM)
        assert [[one.metadata.name for one in request.tools] for request in coder.llm.requests] == [["handoff"]] * 2
        assert isinstance(writer.llm, ScriptedLLM)
        roles = [one.role.value for one in writer.llm.requests[0].messages]
        assert roles == ["user", "assistant", "user", "assistant", "tool"]

    async def test_who_gets_the_task_back_finds_the_variables_again(self) -> None:
        turns = [code("x = 42"), tool_call("handoff", to_agent="helper", reason="help"), code("x + 1"), "It is 43."]
        coder = CodeActAgent(name="coder", description="Counts.", llm=ScriptedLLM(turns))
        back = tool_call("handoff", to_agent="coder", reason="go on")
        helper = FunctionAgent(name="helper", description="Helps.", llm=ScriptedLLM([back]))
        assert str(await AgentWorkflow(agents=[coder, helper], root_agent="coder").run("Count.")) == "It is 43."
        assert observations(coder)[-1] == "Value of the last expression: 43"

    async def test_a_model_that_cannot_call_tools_cannot_hand_over(self) -> None:
        class Plain(CustomLLM):
            @property
            def metadata(self) -> LLMMetadata:
                return LLMMetadata()

            def complete(self, prompt: str, formatted: bool = False, **kwargs: Any) -> Any:
                raise AssertionError("it is not asked")

            def stream_complete(self, prompt: str, formatted: bool = False, **kwargs: Any) -> Any:
                raise AssertionError("it is not asked")

        coder = CodeActAgent(echo, name="coder", description="Counts.", llm=Plain())
        writer = FunctionAgent(name="writer", description="Writes.", llm=ScriptedLLM([]))
        with pytest.raises(ValueError, match="FunctionCallingLLM"):
            await AgentWorkflow(agents=[coder, writer], root_agent="coder").run("Go.")


class TestTheEnd:
    @pytest.mark.parametrize("executor", [MontyExecutor, UnsafeLocalExecutor])
    async def test_after_the_answer_nothing_is_left(self, executor: type[Any]) -> None:
        opened = Opened()
        made = agent(code("x = 1"), executor=_watched(executor(), opened))
        await made.run("Go.")
        assert [one._closed for one in opened] == [True]

    @pytest.mark.parametrize("executor", [MontyExecutor, UnsafeLocalExecutor])
    async def test_nor_after_a_failure(self, executor: type[Any]) -> None:
        opened = Opened()
        made = agent(code("x = 1"), ZeroDivisionError(), executor=_watched(executor(), opened))
        with pytest.raises(ZeroDivisionError):
            await made.run("Go.")
        await _closed(opened)

    @pytest.mark.parametrize("text", ["while True: pass", "await publish('a')"])
    @pytest.mark.parametrize("executor", [MontyExecutor, UnsafeLocalExecutor])
    async def test_nor_after_a_cancel_in_the_middle_of_a_line(self, executor: type[Any], text: str) -> None:
        opened = Opened()
        handler = agent(code(text), executor=_watched(executor(), opened)).run("Go.")
        await opened.once.wait()
        await asyncio.sleep(0.05)
        await handler.cancel_run()
        await _closed(opened)
        assert PUBLISHED == []

    async def test_the_next_run_begins_with_no_variables(self) -> None:
        made = CodeActAgent(llm=ScriptedLLM([code("x = 1"), "One.", code("x"), "Two."]))
        ctx: Context[Any] = Context(made)
        await made.run("Go.", ctx=ctx)
        await made.run("Again.", ctx=ctx)
        assert isinstance(made.llm, ScriptedLLM)
        messages = [str(one.content) for one in made.llm.requests[-1].messages]
        assert any("x" in text and "Nothing was run" in text for text in messages)


class Opened(list[Any]):
    """The sessions that were opened."""

    def __init__(self) -> None:
        self.once = asyncio.Event()


TWO_AT_A_TIME = """
import asyncio

async def both(title):
    return [await note(title), await publish(title)]

kept = await asyncio.gather(both("a"), both("b"), both("a"))
kept
"""


class TestTakenUpAgain:
    async def _snapshot(self, tools: list[Any], executor: Any) -> dict[str, Any]:
        """Of a run that waits for two people, when a third has agreed."""
        handler = agent(code(TWO_AT_A_TIME), tools=tools, executor=executor).run("Go.")
        requests: list[Any] = []
        async for request in handler.approvals():
            requests.append(request)
            if len(requests) == 3:
                next(one for one in requests if one.arguments["title"] == "b").approve()
                break
        async for event in handler.stream_events():
            if isinstance(event, ToolCallResult) and event.tool_name == "publish":
                break
        written = json.dumps(handler.ctx.to_dict())
        await handler.cancel_run()
        return json.loads(written)

    @pytest.mark.parametrize("executor", [MontyExecutor, UnsafeLocalExecutor])
    async def test_no_call_that_had_ended_is_made_again(self, executor: type[Any]) -> None:
        noted: list[str] = []

        async def note(title: str) -> str:
            """Note something."""
            await asyncio.sleep(0.02 if title == "a" else 0)  # the answers come in another order than the calls
            noted.append(title)
            return f"noted {title}"

        tools = [FunctionTool.from_defaults(note), publish]
        snapshot = await self._snapshot(tools, executor())
        made = agent(code("kept[1]"), tools=tools, executor=executor())
        handler = made.run(ctx=Context.from_dict(made, snapshot))
        async for request in handler.approvals():
            assert request.arguments == {"title": "a"}
            request.approve()
        assert str(await handler) == "Done."
        assert noted == ["b", "a", "a"]
        assert PUBLISHED == ["b", "a", "a"]
        assert observations(made)[-1] == "Value of the last expression: ['noted b', 'published b']"


def _watched(executor: Any, opened: Opened) -> Executor:
    inner = executor.open

    async def open_(*args: Any, **kwargs: Any) -> Any:
        opened.append(await inner(*args, **kwargs))
        opened.once.set()
        return opened[-1]

    executor.open = open_
    return executor


async def _closed(opened: Opened) -> None:
    await asyncio.gather(*_keepers)
    here = [run for run in _open if run.loop is asyncio.get_running_loop()]
    assert (len(opened), here) == (1, [])
    assert all(one._closed for one in opened)


PROGRAM = """
import asyncio, json, sys
from batonflow.agents import CodeActAgent
from batonflow.llms import ScriptedLLM
from batonflow.tools import tool
from batonflow.tools.code import MontyExecutor
from batonflow.workflow_core import Context

@tool
def count(name: str) -> int:
    "Count."
    print("counted", name)
    return len(name)

@tool(requires_approval=True)
def publish(title: str) -> str:
    "Publish."
    print("published", title)
    return f"published {title}"

KEY = {"kept": b"a key for tests, 32 bytes long..", "lost": None}[sys.argv[2]]
FIRST = "<execute>title = 'tides'</execute>"
SECOND = "<execute>n = await count(title)\\ns = await publish(title)\\nprint(n, s)</execute>"

def agent(*turns):
    llm = ScriptedLLM(turns)
    return CodeActAgent(llm=llm, tools=[count, publish], executor=MontyExecutor(KEY)), llm

async def main():
    if sys.argv[1] == "-":
        made, _ = agent(FIRST, SECOND)
        handler = made.run("Publish.")
        requests = handler.approvals()
        await anext(requests)
        print(json.dumps(handler.ctx.to_dict()))
        await requests.aclose()
        await handler.cancel_run()
        return
    made, llm = agent("<execute>print(title)</execute>", "Done.")
    handler = made.run(ctx=Context.from_dict(made, json.load(open(sys.argv[1]))))
    async for request in handler.approvals():
        request.approve()
    await handler
    for message in llm.requests[-1].messages:
        if str(message.content).startswith("Result"):
            print(message.content.splitlines()[2:])

asyncio.run(main())
"""


class TestInAnotherProcess:
    def run(self, tmp_path: Path, key: str, *, warned: str = "") -> list[str]:
        program, snapshot = tmp_path / "program.py", tmp_path / "run.json"
        program.write_text(PROGRAM)

        def go(*arguments: str, warned: str = "") -> list[str]:
            command = [sys.executable, str(program), *arguments]
            done = subprocess.run(command, capture_output=True, text=True, cwd=Path.cwd(), check=False)
            assert done.returncode == 0, done.stderr
            assert warned in done.stderr if warned else not done.stderr
            return done.stdout.splitlines()

        counted, written = go("-", key)
        assert counted == "counted tides"
        snapshot.write_text(json.dumps(json.loads(written)))
        return go(str(snapshot), key, warned=warned)

    def test_a_run_goes_on_in_the_middle_of_a_snippet_and_calls_nothing_twice(self, tmp_path: Path) -> None:
        published, *told = self.run(tmp_path, "kept")
        assert published == "published tides"
        assert told[1:] == ["['5 published tides']", "['tides']"]

    def test_without_the_key_the_model_is_told_that_variables_are_gone(self, tmp_path: Path) -> None:
        told = self.run(tmp_path, "lost", warned="is withdrawn, as the code does not ask for it any more")
        assert any("variables of earlier code are gone" in line for line in told)


async def test_wherever_a_kept_run_is_taken_up_its_turn_comes_into_the_memory() -> None:
    def by_what_was_said(request: Any) -> str:
        answers = sum(message.role == "assistant" for message in request.messages)
        return [code("40 + 2"), "It is 42."][answers]

    async def remembered(handler: Any) -> list[tuple[str, Any]]:
        await handler
        return [(one.role.value, one.content) for one in (await handler.ctx.store.get("memory")).get_all()]

    made = CodeActAgent(llm=ScriptedLLM([by_what_was_said] * 60), tools=[add], store="memory:")
    whole = await remembered(made.run("What is 2 + 40?", run_id="a"))
    assert len(whole) == 4
    last = (await made.run_store.history("a"))[-1]["commit"]
    for commit in range(1, last):
        assert await remembered(made.fork("a", at=commit)) == whole, f"from commit {commit} on"


async def test_a_subclass_may_read_code_and_describe_tools_in_its_own_way() -> None:
    class Fenced(CodeActAgent):
        def _extract_code_from_response(self, response_text: str) -> str | None:
            return response_text.partition("```")[2].rpartition("```")[0] or None

        def _get_tool_descriptions(self, tools: Any) -> str:
            return f"{len(tools)} functions, add among them"

    made = Fenced(llm=ScriptedLLM(["```print(await add(a=2, b=40))```", "Done."]), tools=[add])
    output = await made.run("Go.")
    assert (str(output), output.tool_calls[0].tool_output.content) == ("Done.", "42")
    assert isinstance(made.llm, ScriptedLLM)
    assert "2 functions, add among them" in (made.llm.requests[0].messages[0].content or "")
