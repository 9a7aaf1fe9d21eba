"""FunctionTool: a function, and what a model sees of it."""

import asyncio
import contextvars
import functools
from collections.abc import AsyncGenerator
from datetime import date, datetime
from typing import TYPE_CHECKING, Annotated, Any, Literal, TypedDict

import pytest
from pydantic import BaseModel, Field

from batonflow.llms import ImageBlock, TextBlock
from batonflow.tools import (
    BaseTool,
    DefaultToolFnSchema,
    FunctionTool,
    ToolArgumentsError,
    ToolDefinitionError,
    ToolMetadata,
    ToolOutput,
    adapt_to_async_tool,
    create_schema_from_function,
    run_tool,
    tool,
)
from batonflow.workflow_core.context import Context

if TYPE_CHECKING:
    from batonflow.workflow_core.context import Context as LateContext


def add(a: int, b: int = 1) -> int:
    """Add two numbers."""
    return a + b


def properties(made: FunctionTool) -> dict[str, Any]:
    return made.metadata.get_parameters_dict().get("properties", {})


class TestWhatTheModelSees:
    def test_name_description_and_schema_come_from_the_function(self) -> None:
        made = FunctionTool.from_defaults(add)
        assert made.metadata.name == "add"
        assert made.metadata.description == "add(a: int, b: int = 1) -> int\nAdd two numbers."
        assert made.metadata.get_parameters_dict() == {
            "type": "object",
            "properties": {
                "a": {"title": "A", "type": "integer"},
                "b": {"title": "B", "type": "integer", "default": 1},
            },
            "required": ["a"],
        }

    def test_each_can_be_given(self) -> None:
        class Numbers(BaseModel):
            a: int = Field(description="the first")

        made = FunctionTool.from_defaults(add, name="plus", description="Adds.", return_direct=True, fn_schema=Numbers)
        assert (made.metadata.name, made.metadata.description) == ("plus", "Adds.")
        assert made.metadata.return_direct
        assert made.metadata.fn_schema is Numbers
        with pytest.raises(ValueError, match="return_direct is True or False, not 'no'"):
            FunctionTool.from_defaults(add, return_direct="no")
        metadata = ToolMetadata(description="d", name="n")
        assert FunctionTool.from_defaults(add, tool_metadata=metadata).metadata is metadata

    def test_the_form_of_openai_with_a_clean_name(self) -> None:
        made = FunctionTool.from_defaults(add, name="add[int]", description="Adds.").metadata.to_openai_tool()
        assert made["type"] == "function"
        assert made["function"]["name"] == "add_int_"
        assert set(made["function"]) == {"name", "description", "parameters"}

    def test_a_long_description_is_refused_unless_told_otherwise(self) -> None:
        metadata = ToolMetadata(description="x" * 1025, name="n")
        with pytest.raises(ValueError, match="1024"):
            metadata.to_openai_tool()
        assert metadata.to_openai_tool(skip_length_check=True)["function"]["description"] == "x" * 1025

    def test_the_earlier_form_of_openai_is_the_function_alone_and_says_that_it_is_deprecated(self) -> None:
        metadata = ToolMetadata(description="x" * 1025, name="n")
        with pytest.warns(DeprecationWarning, match=r"use to_openai_tool\(\)"):
            earlier = metadata.to_openai_function()
        assert earlier == metadata.to_openai_tool(skip_length_check=True)["function"]

    def test_metadata_without_schema_or_name(self) -> None:
        assert ToolMetadata(description="d").fn_schema is DefaultToolFnSchema
        bare = ToolMetadata(description="d", fn_schema=None)
        assert bare.get_parameters_dict()["required"] == ["input"]
        with pytest.raises(ValueError, match="fn_schema is None"):
            _ = bare.fn_schema_str
        with pytest.raises(ValueError, match="name is None"):
            bare.get_name()

    @pytest.mark.parametrize(
        "docstring",
        [
            "Search.\n\nArgs:\n    query: what to look for\n        in the index\n    limit (int): at most so many",
            "Search.\n\nArgs:\n    query (str): what to look for\n        in the index\n    limit: at most so many",
            "Search.\n\n:param query: what to look for in the index\n:param int limit: at most so many",
            (
                "Search.\n\nParameters\n----------\nquery : str\n    what to look for in the index\n"
                "limit : int\n    at most so many"
            ),
            (
                "Search.\n\nArguments\n---------\nquery\n    what to look for\n    in the index\n\n"
                "Other Parameters\n----------------\nlimit : int, optional\n    at most so many\n\n"
                "Returns\n-------\nstr\n    what was found"
            ),
            "Search.\n\n:arg query: what to look for\n    in the index\n:keyword limit: at most so many\n:returns: it",
            "Search.\n\n@param query what to look for in the index\n@param limit at most so many",
            "Args:\n    query: what to look for in the index\n    limit (int): at most so many",
            "Search.\n\nArgs:\n    query: what to look for in the index\n\nKeyword Args:\n    limit: at most so many",
            "Params:\n    query: what to look for in the index\n\nKeyword Args:\n    limit: at most so many",
            "Keyword Args:\n    query: what to look for in the index\n\nOther Args:\n    limit: at most so many",
            "Args:\nquery: what to look for in the index\nlimit: at most so many",
            "Search so:\n\n    Args:\n        query: what to look for in the index\n        limit: at most so many",
        ],
        ids=[
            "google",
            "google-typed",
            "sphinx",
            "numpy",
            "numpy-sections",
            "sphinx-synonyms",
            "javadoc",
            "google-at-once",
            "google-keywords",
            "google-params",
            "google-others",
            "google-dedented",
            "colon-before",
        ],
    )
    def test_docstrings_describe_parameters(self, docstring: str) -> None:
        def search(query: str, limit: int = 3) -> str:
            return query * limit

        search.__doc__ = docstring
        shown = properties(FunctionTool.from_defaults(search))
        assert shown["query"]["description"] == "what to look for in the index"
        assert shown["limit"]["description"] == "at most so many"

    def test_one_line_may_describe_several_parameters(self) -> None:
        def move(x: int, y: int) -> int:
            """Move.

            Parameters
            ----------
            x, y : int
                Metres from here.
            """
            return x + y

        shown = properties(FunctionTool.from_defaults(move))
        assert [shown[name]["description"] for name in ("x", "y")] == ["Metres from here."] * 2

    def test_a_section_of_rarer_parameters_alone(self) -> None:
        def search(limit: int = 3) -> int:
            """Search.

            Other Parameters
            ----------------
            limit : int
                At most so many.
            """
            return limit

        assert properties(FunctionTool.from_defaults(search))["limit"]["description"] == "At most so many."

    def test_a_parameter_s_own_description_wins(self) -> None:
        def search(
            query: Annotated[str, "from the annotation"],
            limit: Annotated[int, Field(description="from the field", ge=1)],
            page: int = Field(default=2, description="from the default", le=9),
            order: str = Field(default="up"),
        ) -> str:
            """Search.

            Args:
                query: from the docstring
                limit: from the docstring
                page: from the docstring
                order: from the docstring
            """
            return f"{query} {limit} {page} {order}"

        made = FunctionTool.from_defaults(search)
        shown = properties(made)
        assert [shown[name]["description"] for name in ("query", "limit", "page", "order")] == [
            "from the annotation",
            "from the field",
            "from the default",
            "from the docstring",
        ]
        assert (shown["limit"]["minimum"], shown["page"]["maximum"], shown["page"]["default"]) == (1, 9, 2)
        assert "Field" not in made.metadata.description
        assert made.call(query="q", limit=1).content == "q 1 2 up"

    def test_dates_choices_and_nested_models(self) -> None:
        class Place(BaseModel):
            city: str

        def book(day: date, at: datetime, kind: Literal["a", "b"], place: Place) -> str:
            return f"{day} {at} {kind} {place}"

        made = FunctionTool.from_defaults(book)
        shown = properties(made)
        assert (shown["day"]["format"], shown["at"]["format"]) == ("date", "date-time")
        assert shown["kind"]["enum"] == ["a", "b"]
        assert shown["place"] == {"$ref": "#/$defs/Place"}
        assert made.metadata.get_parameters_dict()["$defs"]["Place"]["required"] == ["city"]

    def test_star_arguments_are_left_out(self) -> None:
        def loose(a: int, *args: int, **kwargs: int) -> str:
            return f"{a} {args} {kwargs}"

        assert list(properties(FunctionTool.from_defaults(loose))) == ["a"]

    def test_names_that_pydantic_reserves_keep_their_names(self) -> None:
        def odd(schema: str, _hidden: int, model_name: str, json: bool = False) -> str:
            return f"{schema} {_hidden} {model_name} {json}"

        made = FunctionTool.from_defaults(odd)
        assert list(properties(made)) == ["schema", "_hidden", "model_name", "json"]
        values = made.validate_arguments({"schema": "s", "_hidden": "4", "model_name": "m", "json": True})
        assert made.call(**values).content == "s 4 m True"

    def test_methods_partials_lambdas_and_callable_objects(self) -> None:
        class Counter:
            """Counts."""

            def __init__(self) -> None:
                self.count = 0

            def up(self, by: int) -> int:
                """Count up."""
                self.count += by
                return self.count

            async def __call__(self, by: int) -> int:
                """Count when called."""
                return self.up(by)

        counter = Counter()
        method = FunctionTool.from_defaults(counter.up)
        assert (list(properties(method)), method.call(by=2).content) == (["by"], "2")
        unbound = FunctionTool.from_defaults(Counter.up)
        assert list(properties(unbound)) == ["by"]
        called = FunctionTool.from_defaults(counter)
        assert called.metadata.description == "Counter(by: int) -> int\nCount when called."
        assert called.call(by=3).content == "5"
        part = FunctionTool.from_defaults(functools.partial(add, b=5))
        assert (part.metadata.name, part.call(a=1).content) == ("add", "6")
        assert FunctionTool.from_defaults(lambda x: x, name="same").call(x=1).content == "1"

    def test_partial_params_are_hidden_and_always_given(self) -> None:
        made = FunctionTool.from_defaults(add, partial_params={"b": 10})
        assert list(properties(made)) == ["a"]
        assert made.metadata.description.startswith("add(a: int) -> int")
        assert made.call(a=1).content == "11"
        assert made.call(a=1, b=2).content == "3"

    def test_a_model_cannot_send_what_is_hidden(self) -> None:
        class Anything(BaseModel):
            model_config = {"extra": "allow"}

        def loose(ctx: Context, a: int = 0, b: int = 0, **rest: Any) -> str:
            return f"{b} {rest}"

        made = FunctionTool.from_defaults(loose, partial_params={"b": 10})
        anything = FunctionTool.from_defaults(loose, partial_params={"b": 10}, fn_schema=Anything)
        for one in (made, anything):
            for name in ("b", "ctx"):
                with pytest.raises(ToolArgumentsError, match=f"{name}: no such argument"):
                    one.validate_arguments({name: 99})
            assert one.validate_arguments({"a": 1, "c": 2}) == {"a": 1, "c": 2}

    def test_a_type_without_json_form_is_refused_by_name(self) -> None:
        class Database:
            pass

        def ask(query: str, database: Database) -> str:
            return query

        with pytest.raises(ToolDefinitionError, match=r"'database'.*partial_params"):
            FunctionTool.from_defaults(ask)
        made = FunctionTool.from_defaults(ask, partial_params={"database": Database()})
        assert list(properties(made)) == ["query"]

    def test_such_a_parameter_with_a_default_is_left_out(self) -> None:
        class Database:
            pass

        def ask(query: str, database: Database | None = None) -> str:
            return query

        assert list(properties(FunctionTool.from_defaults(ask))) == ["query"]

    def test_additional_fields_of_a_schema(self) -> None:
        schema = create_schema_from_function("S", add, additional_fields=[("c", int), ("d", str, "x")])
        assert schema.model_json_schema()["required"] == ["a", "c"]
        with pytest.raises(ValueError, match="additional field"):
            create_schema_from_function("S", add, additional_fields=[("c",)])


class TestContext:
    def test_a_context_parameter_is_not_shown(self) -> None:
        def note(ctx: Context, text: str) -> str:
            """Write it down."""
            return text

        made = FunctionTool.from_defaults(note)
        assert (made.requires_context, made.ctx_param_name) == (True, "ctx")
        assert list(properties(made)) == ["text"]
        assert made.metadata.description == "note(text: str) -> str\nWrite it down."

    def test_it_is_known_in_all_its_forms(self) -> None:
        class State(BaseModel):
            count: int = 0

        def typed(c: Context[State], x: int) -> int:
            return x

        def optional(c: Context | None, x: int) -> int:
            return x

        def text(c: "Context", x: "int") -> int:
            return x

        def text_typed(c: "Context[State]", x: int) -> int:
            return x

        def only_for_type_checkers(c: "LateContext", x: int) -> int:
            return x

        def annotated(c: Annotated[Context, "the context"], x: int) -> int:
            return x

        for function in (typed, optional, text, text_typed, annotated):
            made = FunctionTool.from_defaults(function)
            assert made.ctx_param_name == "c", function.__name__
            assert list(properties(made)) == ["x"]
        # A name that is nowhere at run time and is not called Context either is a parameter of a type nobody knows.
        with pytest.raises(ToolDefinitionError, match="parameter 'c' has the type LateContext"):
            FunctionTool.from_defaults(only_for_type_checkers)

    def test_an_unresolvable_context_is_known_by_its_name(self) -> None:
        namespace: dict[str, Any] = {}
        exec("def note(ctx: 'Context[State]', text: 'str'): return text", namespace)
        made = FunctionTool.from_defaults(namespace["note"])
        assert made.ctx_param_name == "ctx"
        assert properties(made)["text"]["type"] == "string"

    def test_a_class_of_the_user_s_called_context_is_an_argument(self) -> None:
        class Context(BaseModel):
            paragraph: str

        def read(context: Context) -> str:
            return context.paragraph

        made = FunctionTool.from_defaults(read)
        assert not made.requires_context
        assert list(properties(made)) == ["context"]

    async def test_without_one_the_call_is_refused(self) -> None:
        def note(ctx: Context, text: str) -> str:
            return text

        made = FunctionTool.from_defaults(note)
        with pytest.raises(ValueError, match="Context is required for this tool"):
            made.call(text="x")
        with pytest.raises(ValueError, match="Context is required for this tool"):
            await made.acall(text="x")

    async def test_it_does_not_appear_in_the_output(self) -> None:
        def note(ctx: Context, text: str) -> str:
            return text

        output = await FunctionTool.from_defaults(note).acall(ctx="anything", text="x")
        assert output.raw_input == {"args": (), "kwargs": {"text": "x"}}


class TestCalls:
    async def test_both_ways_for_both_kinds_of_function(self) -> None:
        async def aadd(a: int, b: int) -> int:
            await asyncio.sleep(0)
            return a + b

        for function in (add, aadd):
            made = FunctionTool.from_defaults(function)
            for output in (made.call(1, b=2), made(a=1, b=2), await made.acall(1, 2)):
                assert (output.content, output.raw_output, output.is_error) == ("3", 3, False)
                assert output.tool_name == made.metadata.name
            assert made.real_fn is function
            assert made.fn(1, 2) == await made.async_fn(1, 2) == 3

    async def test_a_separate_async_function_is_used_when_awaited(self) -> None:
        async def other(a: int, b: int) -> str:
            return "async"

        made = FunctionTool.from_defaults(add, async_fn=other)
        assert made.call(a=1, b=2).content == "3"
        assert (await made.acall(a=1, b=2)).content == "async"
        only = FunctionTool.from_defaults(async_fn=other)
        assert (only.metadata.name, only.call(a=1, b=2).content) == ("other", "async")

    async def test_a_synchronous_function_runs_in_a_thread_with_the_caller_s_context_variables(self) -> None:
        variable = contextvars.ContextVar("variable", default="unset")

        def read() -> str:
            return variable.get()

        variable.set("set")
        assert (await FunctionTool.from_defaults(read).acall()).content == "set"

    def test_a_typed_dict_gets_dicts_from_a_schema_of_the_user_s_own(self) -> None:
        class Room(TypedDict):
            beds: int

        class Stay(BaseModel):
            class Room(BaseModel):
                beds: int

            room: Room

        def book(room: Room) -> int:
            return room["beds"]

        made = FunctionTool.from_defaults(book, fn_schema=Stay)
        assert made.call(**made.validate_arguments({"room": {"beds": 2}})).content == "2"

    def test_the_context_may_go_by_position(self) -> None:
        def note(ctx: Context, text: str) -> str:
            return f"{text} in {ctx}"

        assert FunctionTool.from_defaults(note).call("the context", "x").content == "x in the context"

    def test_positional_only_parameters(self) -> None:
        def power(base: int, exponent: int = 2, /, offset: int = 0) -> int:
            return base**exponent + offset

        made = FunctionTool.from_defaults(power)
        assert made.call(base=3).content == "9"
        assert made.call(base=3, exponent=3, offset=1).content == "28"

    def test_what_is_returned_becomes_blocks(self) -> None:
        class Document:
            def get_content(self) -> str:
                return "the text"

        picture = ImageBlock(image=b"\x89PNG\r\n\x1a\n")
        cases: list[tuple[Any, list[Any]]] = [
            ({"a": 1}, [TextBlock(text="{'a': 1}")]),
            (None, [TextBlock(text="None")]),
            ([], [TextBlock(text="[]")]),
            (picture, [picture]),
            ([TextBlock(text="t"), picture], [TextBlock(text="t"), picture]),
            (Document(), [TextBlock(text="the text")]),
            ([Document(), Document()], [TextBlock(text="the text"), TextBlock(text="the text")]),
        ]
        for value, blocks in cases:

            def give(value: Any = value) -> Any:
                return value

            assert FunctionTool.from_defaults(give).call().blocks == blocks

    def test_an_output_is_passed_on(self) -> None:
        own = ToolOutput(tool_name="x", content="mine", is_error=True)
        assert FunctionTool.from_defaults(lambda: own, name="own").call() is own

    async def test_callbacks_replace_output_or_content(self) -> None:
        other = ToolOutput(tool_name="x", content="other")

        async def acallback(value: Any) -> str:
            return f"async {value}"

        assert FunctionTool.from_defaults(add, callback=lambda value: None).call(1, 1).content == "2"
        made = FunctionTool.from_defaults(add, callback=lambda value: f"<{value}>")
        assert (made.call(1, 1).content, made.call(1, 1).raw_output) == ("<2>", 2)
        assert (await made.acall(1, 1)).content == "<2>"
        assert FunctionTool.from_defaults(add, callback=lambda value: other).call(1, 1) is other
        asynchronous = FunctionTool.from_defaults(add, async_callback=acallback)
        assert (await asynchronous.acall(1, 1)).content == "async 2"
        assert asynchronous.call(1, 1).content == "async 2"

    def test_what_is_missing_is_refused(self) -> None:
        with pytest.raises(ValueError, match="fn must be provided"):
            FunctionTool.from_defaults()
        with pytest.raises(ValueError, match="fn or async_fn"):
            FunctionTool()
        with pytest.raises(ValueError, match="metadata"):
            FunctionTool(fn=add)


class TestToolOutput:
    def test_content_is_the_text_of_the_blocks_and_can_be_set(self) -> None:
        output = ToolOutput(tool_name="t", blocks=[TextBlock(text="a"), TextBlock(text="b")], raw_input={"x": 1})
        assert (output.content, str(output)) == ("a\nb", "a\nb")
        output.content = "c"
        assert output.blocks == [TextBlock(text="c")]

    def test_content_and_blocks_exclude_each_other(self) -> None:
        with pytest.raises(ValueError, match="both content and blocks"):
            ToolOutput(tool_name="t", content="a", blocks=[TextBlock(text="b")])

    def test_the_exception_is_kept_but_not_written(self) -> None:
        error = ValueError("no")
        output = ToolOutput(tool_name="t", content="no", is_error=True, exception=error)
        assert output.exception is error
        again = ToolOutput.model_validate_json(output.model_dump_json())
        assert (again.content, again.is_error, again.exception) == ("no", True, None)

    def test_one_of_a_text_is_the_one_that_the_constructor_makes(self) -> None:
        raw_input = {"args": (), "kwargs": {"a": 2}}
        made = ToolOutput.of_text("add", "42", raw_input, 42)
        validated = ToolOutput("add", "42", raw_input=raw_input, raw_output=42)
        assert made == validated
        assert (repr(made), made.model_dump(), made.exception) == (repr(validated), validated.model_dump(), None)


class TestDecorator:
    def test_with_and_without_arguments(self) -> None:
        @tool
        def plain(a: int) -> int:
            """Plain."""
            return a

        @tool(name="other", return_direct=True, requires_approval=True, approval_timeout=60, idempotent=True)
        def dressed(a: int) -> int:
            """Dressed."""
            return a

        assert isinstance(plain, FunctionTool)
        assert plain(3).content == "3"
        assert dressed.metadata.name == "other"
        assert dressed.metadata.return_direct
        policy = dressed.policy
        assert (policy.requires_approval, policy.approval_timeout, policy.idempotent) == (True, 60, True)
        assert policy.on_unknown == "ask"


async def test_a_synchronous_tool_is_adapted_to_run_in_a_thread() -> None:
    class Shout(BaseTool):
        @property
        def metadata(self) -> ToolMetadata:
            return ToolMetadata(description="Shouts.", name="shout")

        def __call__(self, input: Any) -> ToolOutput:  # noqa: A002
            return ToolOutput(tool_name="shout", content=str(input).upper())

    adapted = adapt_to_async_tool(Shout())
    assert adapted.metadata.name == "shout"
    assert (await adapted.acall("hey")).content == "HEY"
    assert (await adapted.acall(input="hey")).content == "HEY"  # type: ignore[call-arg]
    assert adapted("hey").content == "HEY"
    assert adapt_to_async_tool(adapted) is adapted


class TestGuardsPutAroundACall:
    """Programs put something of their own in the place of ``acall``: it is what is called."""

    @staticmethod
    async def refused(*args: Any, **kwargs: Any) -> ToolOutput:
        return ToolOutput(content="refused", tool_name="add", raw_input=kwargs, raw_output=None, is_error=True)

    async def test_on_one_tool(self) -> None:
        guarded, free = FunctionTool.from_defaults(add), FunctionTool.from_defaults(add)
        guarded.acall = self.refused  # type: ignore[method-assign]
        assert (await run_tool(guarded, {"a": 1})).content == "refused"
        assert (await run_tool(free, {"a": 1})).content == "2"

    async def test_by_a_library_that_wraps_methods(self, monkeypatch: pytest.MonkeyPatch) -> None:
        class Wrapper:  # as wrapt has them: what is wrapped shows through
            def __init__(self, wrapped: Any) -> None:
                self.wrapped = wrapped

            def __get__(self, tool: Any, owner: Any) -> Any:
                return Wrapper(self.wrapped.__get__(tool, owner))

            def __getattr__(self, name: str) -> Any:
                return getattr(self.wrapped, name)

            async def __call__(self, *args: Any, **kwargs: Any) -> ToolOutput:
                return await TestGuardsPutAroundACall.refused()

        monkeypatch.setattr(FunctionTool, "acall", Wrapper(FunctionTool.acall))
        assert (await run_tool(FunctionTool.from_defaults(add), {"a": 1})).content == "refused"

    async def test_progress_comes_through_them(self) -> None:
        async def count() -> AsyncGenerator[Any, None]:
            yield 1
            yield 2
            yield "counted"

        made, told = FunctionTool.from_defaults(count), list[Any]()
        usual = made.acall

        async def watched(*args: Any, **kwargs: Any) -> ToolOutput:
            return await usual(*args, **kwargs)

        made.acall = watched  # type: ignore[method-assign]
        assert (await run_tool(made, {}, report=told.append)).content == "counted"
        assert told == [1, 2, "counted"]

    async def test_progress_is_that_of_the_call_alone(self, monkeypatch: pytest.MonkeyPatch) -> None:
        usual, told = FunctionTool.acall, list[Any]()

        async def watched(self: FunctionTool, *args: Any, **kwargs: Any) -> ToolOutput:
            return await usual(self, *args, **kwargs)

        monkeypatch.setattr(FunctionTool, "acall", watched)

        async def dig(depth: int) -> AsyncGenerator[Any, None]:
            yield f"down {depth}"
            if depth:
                await made.acall(depth=depth - 1)
            yield f"up {depth}"

        made = FunctionTool.from_defaults(dig)
        await run_tool(made, {"depth": 1}, report=told.append)
        assert told == ["down 1", "up 1"]

    async def test_on_the_class(self, monkeypatch: pytest.MonkeyPatch) -> None:
        seen: list[Any] = []
        usual = FunctionTool.acall

        async def watched(self: FunctionTool, *args: Any, **kwargs: Any) -> ToolOutput:
            seen.append(kwargs)
            return await usual(self, *args, **kwargs)

        monkeypatch.setattr(FunctionTool, "acall", watched)
        assert (await run_tool(FunctionTool.from_defaults(add), {"a": 1})).content == "2"
        assert seen == [{"a": 1}]


def test_partial_params_that_the_function_does_not_take_are_an_error() -> None:
    with pytest.raises(ToolDefinitionError, match=r"'add': partial_params has 'c', .* \(its parameters: a, b\)"):
        FunctionTool.from_defaults(add, partial_params={"a": 1, "c": 2})


@pytest.mark.parametrize("wrap", [functools.cache, lambda f: functools.partial(functools.lru_cache(f), b=1)])
async def test_functions_that_remember_are_tools(wrap: Any) -> None:
    made = FunctionTool.from_defaults(wrap(add), name="add")
    assert (await run_tool(made, {"a": 41})).content == "42"
    with pytest.raises(ToolDefinitionError, match="partial_params has 'c'"):
        FunctionTool.from_defaults(wrap(add), name="add", partial_params={"c": 1})


def test_partial_params_may_be_those_of_a_wrapper() -> None:
    def as_user(function: Any) -> Any:
        @functools.wraps(function)
        def call(path: str, user: str = "nobody") -> str:
            return f"{function(path)} by {user}"

        return call

    @as_user
    def read(path: str) -> str:
        return path

    made = FunctionTool.from_defaults(read, partial_params={"user": "Ann"})
    assert made.call(path="a").content == "a by Ann"


async def test_a_default_that_is_no_text_is_not_shown_to_the_model() -> None:
    def sign(text: str, key: bytes = b"\xff\x00") -> str:
        return f"{text} {key.hex()}"

    made = FunctionTool.from_defaults(sign)
    assert "default" not in properties(made)["key"]
    assert (await run_tool(made, {"text": "a"})).content == "a ff00"


async def test_a_tool_may_change_what_it_is_given() -> None:
    def take(items, deep: dict[str, Any]) -> str:  # type: ignore[no-untyped-def]
        items.pop()
        deep["in"]["it"].append(1)
        return "taken"

    sent: dict[str, Any] = {"items": [1, 2], "deep": {"in": {"it": []}}}
    await run_tool(FunctionTool.from_defaults(take), sent)
    assert sent == {"items": [1, 2], "deep": {"in": {"it": []}}}
