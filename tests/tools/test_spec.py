"""BaseToolSpec: an object's methods as tools that share the object."""

from typing import Any

import pytest
from pydantic import BaseModel

from batonflow.tools import BaseToolSpec, ToolDefinitionError, ToolMetadata, run_tool


class Letter(BaseModel):
    to: str


class Mail(BaseToolSpec):
    spec_functions = ("send", "count", ("read", "aread"))

    def __init__(self) -> None:
        self.sent: list[str] = []

    def send(self, text: str) -> str:
        """Send a message."""
        self.sent.append(text)
        return "sent"

    async def count(self) -> int:
        """Count what was sent."""
        return len(self.sent)

    def read(self, number: int) -> str:
        """Read a message."""
        return f"sync {self.sent[number]}"

    async def aread(self, number: int) -> str:
        """Read a message."""
        return f"async {self.sent[number]}"


async def test_every_method_is_a_tool_of_the_same_object() -> None:
    send, count, read = Mail().to_tool_list()
    assert [tool.metadata.name for tool in (send, count, read)] == ["send", "count", "read"]
    assert send.metadata.description == "send(text: str) -> str\nSend a message."
    assert (await run_tool(send, {"text": "hello"})).content == "sent"
    assert (await run_tool(count, {})).content == "1"
    assert count.call().content == "1"
    assert read.call(number=0).content == "sync hello"
    assert (await run_tool(read, {"number": "0"})).content == "async hello"


def test_others_may_be_chosen_and_described() -> None:
    metadata = {
        "send": ToolMetadata(description="Post it.", name="post"),
        "aread": ToolMetadata(description="Open it.", name="open"),
    }
    tools = Mail().to_tool_list(["send", ("read", "aread")], func_to_metadata_mapping=metadata)
    assert [tool.metadata.description for tool in tools] == ["Post it.", "Open it."]


def test_a_name_without_method_is_refused() -> None:
    for wrong in ("delete", "sent"):
        with pytest.raises(
            ToolDefinitionError, match=f"spec_functions of Mail name '{wrong}', which is not one of its methods"
        ):
            Mail().to_tool_list([wrong])


@pytest.mark.parametrize("entry", [3, ("send",) * 3, ("send", 3), ()], ids=str)
def test_an_entry_of_another_form_is_refused(entry: object) -> None:
    with pytest.raises(ValueError, match="spec_functions must be of type") as refused:
        Mail().to_tool_list([entry])  # type: ignore[list-item]
    assert repr(entry) in str(refused.value)


class TestWhatASpecSaysItself:
    """Specs written for LlamaIndex say by methods of their own what the model reads."""

    async def test_of_a_method(self) -> None:
        class Spec(BaseToolSpec):
            spec_functions = ("send", "read")

            def send(self, **given: Any) -> str:
                return f"sent {given}"

            def read(self, number: int) -> str:
                """Read."""
                return f"number {number}"

            def get_metadata_from_fn_name(self, fn_name: str, spec_functions: Any = None) -> ToolMetadata | None:
                if fn_name == "send":
                    return ToolMetadata(name="mail", description="Send mail.", fn_schema=Letter)
                return super().get_metadata_from_fn_name(fn_name, spec_functions)

        mail, read = Spec().to_tool_list()
        assert (mail.metadata.name, mail.metadata.description) == ("mail", "Send mail.")
        assert list(mail.metadata.get_parameters_dict()["properties"]) == ["to"]
        assert (await run_tool(mail, {"to": "Ann"})).content == "sent {'to': 'Ann'}"
        assert (read.metadata.name, (await run_tool(read, {"number": "1"})).content) == ("read", "number 1")

    def test_of_a_methods_arguments(self) -> None:
        class Spec(BaseToolSpec):
            spec_functions = ("send",)

            def send(self, **given: Any) -> str:
                """Send."""
                return f"sent {given}"

            def get_fn_schema_from_fn_name(self, fn_name: str, spec_functions: Any = None) -> Any:
                return Letter

        (made,) = Spec().to_tool_list()
        assert made.metadata.name == "send"
        assert "Send." in made.metadata.description
        assert list(made.metadata.get_parameters_dict()["properties"]) == ["to"]

    async def test_as_programs_await_them(self) -> None:
        class Spec(BaseToolSpec):
            spec_functions = ("send",)

            def send(self) -> str:
                """Send."""
                return "sent"

            def read(self) -> str:
                """Read."""
                return "read"

        assert [one.metadata.name for one in await Spec().to_tool_list_async()] == ["send"]
        assert [one.metadata.name for one in await Spec().to_tool_list_async(["read"])] == ["read"]
