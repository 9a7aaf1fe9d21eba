"""What the package offers, and what it says of what it does not."""

import importlib

import pytest

from batonflow.agents import memory
from batonflow.agents.memory import BaseMemory, ChatMemoryBuffer


@pytest.mark.parametrize(
    ("name", "instead"),
    [
        ("VectorMemory", "Use Memory with a VectorMemoryBlock"),
        ("SQLAlchemyChatStore", "SQLiteChatStore keeps messages in a file"),
        ("SimpleComposableMemory", "Use Memory with memory_blocks"),
    ],
)
def test_what_is_not_offered_says_why(name: str, instead: str) -> None:
    with pytest.raises(ImportError, match=f"{name} is not offered: .*{instead}"):
        getattr(importlib.import_module("batonflow.agents.memory"), name)


def test_other_names_are_unknown() -> None:
    assert not hasattr(memory, "ElephantMemory")


def test_everything_offered_is_there() -> None:
    assert all(getattr(memory, name) is not None for name in memory.__all__)


@pytest.mark.parametrize("kind", ["ChatMemoryBuffer", "ChatSummaryMemoryBuffer", "Memory"])
def test_the_data_of_a_memory_name_its_class(kind: str) -> None:
    made = getattr(memory, kind)()
    data = made.to_dict()
    assert data["class_name"] == kind
    assert type(made).from_dict(data).to_dict() == data


class TestMemoriesOfYourOwn:
    async def test_the_synchronous_methods_are_enough(self) -> None:
        class Last(BaseMemory):
            kept: list[str] = []

            @classmethod
            def from_defaults(cls, **kwargs: object) -> "Last":
                return cls()

            def get(self, input: str | None = None, **kwargs: object) -> list:  # noqa: A002
                return self.kept[-1:]

            def get_all(self) -> list:
                return list(self.kept)

            def put(self, message) -> None:
                self.kept.append(message)

            def set(self, messages) -> None:
                self.kept = list(messages)

            def reset(self) -> None:
                self.kept = []

        own = Last.from_defaults()
        await own.aset(["a"])
        await own.aput("b")
        await own.aput_messages(["c", "d"])
        assert (await own.aget("?"), await own.aget_all(), own.class_name()) == (["d"], ["a", "b", "c", "d"], "Last")
        assert Last.from_dict(own.to_dict()) == Last.from_string(own.to_string()) == own
        await own.areset()
        assert own.get_all() == []

    def test_from_defaults_takes_no_unknown_options(self) -> None:
        with pytest.raises(TypeError, match="elephants"):
            ChatMemoryBuffer.from_defaults(elephants=2)
