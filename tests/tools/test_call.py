"""Calling tools for a model: nothing it sends and nothing a tool does breaks the caller."""

import asyncio
import functools
from typing import Any

import pytest
from pydantic import BaseModel

from batonflow.tools import (
    AsyncBaseTool,
    FunctionTool,
    ToolArgumentsError,
    ToolMetadata,
    ToolOutput,
    ToolSelection,
    acall_tool,
    acall_tool_with_selection,
    call_tool,
    call_tool_with_selection,
    needs_approval,
    run_tool,
    tool,
)
from batonflow.tools.call import unknown_tool_output
from batonflow.workflow_core.context import Context


class Place(BaseModel):
    city: str
    country: str = "NL"


@tool
def add(a: int, b: int = 1) -> int:
    """Add."""
    return a + b


class TestValidation:
    async def test_values_are_converted_before_the_body_runs(self) -> None:
        @tool
        async def visit(place: Place, days: int) -> str:
            return f"{type(place).__name__} {place.city} {days + 1}"

        output = await run_tool(visit, {"place": {"city": "Delft"}, "days": "2"})
        assert (output.content, output.is_error) == ("Place Delft 3", False)

    async def test_the_function_s_own_defaults_hold(self) -> None:
        assert (await run_tool(add, {"a": 1})).content == "2"

    async def test_the_model_reads_what_was_wrong(self) -> None:
        ran: list[bool] = []

        @tool
        def visit(place: Place, days: int) -> None:
            ran.append(True)

        output = await run_tool(visit, {"place": {"country": 5}, "days": "soon", "hotel": "x"})
        assert output.is_error
        assert ran == []
        assert isinstance(output.exception, ToolArgumentsError)
        for part in (
            "'visit'",
            "place.city: missing",
            "place.country: Input should be a valid string (got 5)",
            "days: Input should be a valid integer",
            "hotel: no such argument (known: place, days)",
        ):
            assert part in output.content

    async def test_null_for_what_takes_none_means_left_out(self) -> None:
        class Stay(BaseModel):
            nights: int = 1
            note: str | None = "none"

        def book(city: str, stay: Stay, price: float = 9.5, more: list[Stay] | None = None) -> str:
            return f"{city} {stay.nights} {stay.note} {price} {[one.nights for one in more or []]}"

        tool = FunctionTool.from_defaults(book)
        sent: dict[str, Any] = {"city": "Bern", "stay": {"nights": None, "note": None}, "price": None}
        assert (await run_tool(tool, sent)).content == "Bern 1 None 9.5 []"
        assert sent["stay"] == {"nights": None, "note": None}
        sent["more"] = [{"nights": 2}, {"nights": None}]
        assert (await run_tool(tool, sent)).content == "Bern 1 None 9.5 [2, 1]"
        refused = await run_tool(tool, {"city": None, "stay": None})
        assert (refused.is_error, "city: missing" in refused.content) == (True, True)

    async def test_arguments_that_are_no_object_are_told_to_the_model(self) -> None:
        output = await run_tool(add, {}, invalid_arguments='{"a": ')
        assert output.is_error
        assert "not a JSON object: '{\"a\": '" in output.content

    async def test_a_function_that_takes_any_name_gets_any_name(self) -> None:
        @tool
        def loose(a: int, **rest: Any) -> str:
            return f"{a} {rest}"

        assert (await run_tool(loose, {"a": "1", "b": 2})).content == "1 {'b': 2}"

    async def test_a_schema_of_the_user_s_own_gives_dicts_to_functions_that_take_dicts(self) -> None:
        class Trip(BaseModel):
            place: Place
            stops: list[Place] = []
            days: int = 1

        def visit(place: dict[str, Any], stops: list[Any], days: int) -> str:
            return f"{place} {stops} {days!r}"

        made = FunctionTool.from_defaults(visit, fn_schema=Trip)
        output = await run_tool(made, {"place": {"city": "Delft"}, "stops": [{"city": "Gouda"}], "days": "2"})
        assert output.content == "{'city': 'Delft', 'country': 'NL'} [{'city': 'Gouda', 'country': 'NL'}] 2"

    async def test_tools_of_another_make_are_checked_and_get_what_was_sent(self) -> None:
        class Own(AsyncBaseTool):
            @property
            def metadata(self) -> ToolMetadata:
                return ToolMetadata(description="d", name="own", fn_schema=Place)

            def call(self, **kwargs: Any) -> ToolOutput:  # type: ignore[override]
                return ToolOutput(tool_name="own", content=str(kwargs))

            async def acall(self, **kwargs: Any) -> ToolOutput:  # type: ignore[override]
                return self.call(**kwargs)

        assert (await run_tool(Own(), {"city": "Delft"})).content == "{'city': 'Delft'}"
        assert (await run_tool(Own(), {"town": "Delft"})).is_error


class TestRunning:
    async def test_what_a_tool_raises_becomes_an_output(self) -> None:
        @tool
        def fail(a: int) -> None:
            raise RuntimeError("the disk is full")

        @tool
        def silent(a: int) -> None:
            raise KeyError

        output = await run_tool(fail, {"a": 1})
        assert (output.content, output.raw_output, output.is_error) == ("the disk is full",) * 2 + (True,)
        assert output.raw_input == {"a": 1}
        assert isinstance(output.exception, RuntimeError)
        assert (await run_tool(silent, {"a": 1})).content == "KeyError"

    async def test_control_flow_and_cancellation_pass_through(self) -> None:
        class Suspend(BaseException):
            pass

        @tool
        async def suspend() -> None:
            try:
                raise Suspend
            except Exception:  # noqa: BLE001 - what careless tools do
                pytest.fail("swallowed")

        @tool
        async def forever() -> None:
            await asyncio.Event().wait()

        with pytest.raises(Suspend):
            await run_tool(suspend, {})
        task = asyncio.create_task(run_tool(forever, {}))
        await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    async def test_the_context_is_handed_over_under_its_name(self) -> None:
        @tool
        async def note(text: str, where: Context) -> str:
            return f"{text} in {where}"

        output = await run_tool(note, {"text": "x"}, ctx="the context")
        assert output.content == "x in the context"
        assert output.raw_input == {"args": (), "kwargs": {"text": "x"}}
        without = await run_tool(note, {"text": "x"})
        assert without.content == "Context is required for this tool"

    async def test_a_model_cannot_send_the_context(self) -> None:
        @tool
        def note(ctx: Context, text: str) -> str:
            return text

        output = await run_tool(note, {"ctx": "forged", "text": "x"}, ctx="real")
        assert "ctx: no such argument" in output.content

    def test_an_unknown_tool(self) -> None:
        output = unknown_tool_output("nope", {"a": 1}, ["add"])
        assert output.content == ("Tool nope not found. Please select a tool that is available. Available tools: add.")
        assert output.is_error
        assert output.raw_output is None


class TestApproval:
    async def test_a_tool_that_requires_it_does_not_run_without(self) -> None:
        ran: list[str] = []

        @tool(requires_approval=True)
        def publish(title: str) -> str:
            ran.append(title)
            return "published"

        refused = await run_tool(publish, {"title": "Tides"})
        assert refused.is_error
        assert "requires a person's approval" in refused.content
        assert ran == []
        assert (await run_tool(publish, {"title": "Tides"}, approved=True)).content == "published"
        assert ran == ["Tides"]

    async def test_a_function_of_the_arguments_decides(self) -> None:
        async def large(arguments: dict[str, Any]) -> bool:
            return arguments["amount"] > 100

        @tool(requires_approval=large)
        def pay(amount: int) -> str:
            return f"paid {amount}"

        assert (await run_tool(pay, {"amount": "5"})).content == "paid 5"
        assert (await run_tool(pay, {"amount": "500"})).is_error
        assert await needs_approval(pay, {"amount": 500})
        assert not await needs_approval(add, {})

    async def test_a_function_that_fails_refuses(self) -> None:
        @tool(requires_approval=lambda arguments: arguments["missing"])
        def pay(amount: int) -> str:
            return "paid"

        output = await run_tool(pay, {"amount": 5})
        assert output.is_error
        assert output.content == (
            "Tool 'pay' was not run: the check of its requires_approval failed (KeyError: 'missing')."
        )


class TestCallingByHand:
    async def test_arguments_go_by_name_and_errors_become_outputs(self) -> None:
        @tool
        def fail(a: int) -> None:
            raise RuntimeError("no")

        assert call_tool(add, {"a": 1, "b": 2}).content == "3"
        assert (await acall_tool(add, {"a": 1, "b": 2})).content == "3"
        for output in (call_tool(fail, {"a": 1}), await acall_tool(fail, {"a": 1})):
            assert output.content == "Encountered error: no"
            assert output.is_error

    async def test_a_single_argument_may_go_by_position(self) -> None:
        class Other(BaseModel):
            input: str

        made = FunctionTool.from_defaults(lambda text: text.upper(), name="up", fn_schema=Other)
        assert call_tool(made, {"input": "a"}).content == "A"
        assert (await acall_tool(made, {"input": "a"})).content == "A"
        named = FunctionTool.from_defaults(lambda text: text.upper(), name="up")
        assert call_tool(named, {"text": "a"}).content == "A"

    async def test_a_schema_may_say_nothing_of_properties(self) -> None:
        class Open(ToolMetadata):
            def get_parameters_dict(self) -> dict[str, Any]:
                return {"type": "object"}

        def count(**values: Any) -> int:
            return len(values)

        made = FunctionTool(fn=count, metadata=Open(description="Counts.", name="count"))
        assert call_tool(made, {"a": 1}).content == "1"
        assert (await acall_tool(made, {"a": 1})).content == "1"

    async def test_by_selection(self, capsys: pytest.CaptureFixture[str]) -> None:
        selection = ToolSelection(tool_id="1", tool_name="add", tool_kwargs={"a": 1, "b": 2})
        assert call_tool_with_selection(selection, [add]).content == "3"
        assert capsys.readouterr().out == ""
        assert (await acall_tool_with_selection(selection, [add], verbose=True)).content == "3"
        assert capsys.readouterr().out == (
            '=== Calling Function ===\nCalling function: add with args: {"a": 1, "b": 2}\n=== Function Output ===\n3\n'
        )
        with pytest.raises(KeyError):
            call_tool_with_selection(ToolSelection(tool_id="1", tool_name="no", tool_kwargs={}), [add])


class TestApprovalsThatSayNothing:
    @pytest.mark.parametrize("said", [None, "", 1])
    async def test_a_predicate_that_says_neither_yes_nor_no_keeps_the_tool_from_running(self, said: Any) -> None:
        ran: list[int] = []

        @tool(requires_approval=lambda _: said)
        def act() -> None:
            """Do something."""
            ran.append(1)

        output = await run_tool(act, {})
        assert output.is_error
        assert "requires_approval of tool 'act' returned" in output.content
        assert not ran


async def test_a_coroutine_that_a_plain_decorator_lets_through_is_awaited() -> None:
    def decorated(function: Any) -> Any:
        @functools.wraps(function)
        def call(*args: Any, **kwargs: Any) -> Any:
            return function(*args, **kwargs)

        return call

    async def add(a: int, b: int) -> int:
        """Add."""
        return a + b

    assert (await run_tool(FunctionTool.from_defaults(decorated(add)), {"a": 1, "b": 2})).content == "3"
