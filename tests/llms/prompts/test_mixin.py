"""Prompts that can be read and exchanged by name."""

import pytest

from batonflow.llms.prompts import PromptTemplate
from batonflow.llms.prompts.base import PromptDictType, PromptMixin, PromptMixinType


class Writer(PromptMixin):
    def __init__(self, **parts: PromptMixin) -> None:
        self.prompts: PromptDictType = {"draft": PromptTemplate("Write {topic}"), "edit": PromptTemplate("Edit {text}")}
        self.parts = parts

    def _get_prompts(self) -> PromptDictType:
        return self.prompts

    def _get_prompt_modules(self) -> PromptMixinType:
        return self.parts

    def _update_prompts(self, prompts_dict: PromptDictType) -> None:
        self.prompts.update(prompts_dict)


def texts(module: PromptMixin) -> dict[str, str]:
    return {name: prompt.get_template() for name, prompt in module.get_prompts().items()}


def test_prompts_of_parts_are_named_after_the_part_however_deep() -> None:
    team = Writer(writer=Writer(helper=Writer()))
    assert list(team.get_prompts()) == [
        "draft", "edit", "writer:draft", "writer:edit", "writer:helper:draft", "writer:helper:edit",
    ]  # fmt: skip


def test_some_prompts_are_exchanged_and_the_others_stay() -> None:
    team = Writer(writer=Writer(helper=Writer()))
    before = texts(team)
    new = {
        "edit": PromptTemplate("Cut {text}"),
        "writer:draft": "Sketch {topic}",
        "writer:helper:edit": PromptTemplate("Spell {text}"),
    }
    team.update_prompts(new)
    assert texts(team) == before | {
        "edit": "Cut {text}",
        "writer:draft": "Sketch {topic}",
        "writer:helper:edit": "Spell {text}",
    }


def test_what_is_read_can_be_put_back() -> None:
    team = Writer(writer=Writer())
    team.update_prompts(team.get_prompts())
    assert texts(team) == texts(Writer(writer=Writer()))


def test_what_is_read_is_a_copy() -> None:
    writer = Writer()
    writer.get_prompts()["draft"].kwargs["topic"] = "tides"
    writer.get_prompts().clear()
    assert writer.get_prompts()["draft"].format() == "Write {topic}"


@pytest.mark.parametrize(
    ("key", "message"),
    [
        ("nosuch", "Prompt nosuch not found in Writer; its prompts: draft, edit, writer:draft"),
        ("nosuch:draft", "Module nosuch not found in Writer; its parts: writer"),
        ("writer:nosuch", "Prompt writer:nosuch not found in Writer"),
    ],
)
def test_an_unknown_name_is_refused_before_anything_is_exchanged(key: str, message: str) -> None:
    team = Writer(writer=Writer())
    before = texts(team)
    with pytest.raises(ValueError, match=message):
        team.update_prompts({"draft": "new", "writer:draft": "new", key: "new"})
    assert texts(team) == before


def test_a_colon_in_a_name_is_refused() -> None:
    writer = Writer()
    writer.prompts["a:b"] = PromptTemplate("x")
    with pytest.raises(ValueError, match="Prompt key a:b cannot contain ':'"):
        writer.get_prompts()
    with pytest.raises(ValueError, match="Prompt key a:b cannot contain ':'"):
        Writer(**{"a:b": Writer()}).get_prompts()


def test_without_parts_two_methods_are_enough() -> None:
    class Small(PromptMixin):
        def _get_prompts(self) -> PromptDictType:
            return {"only": PromptTemplate("x")}

        def _update_prompts(self, prompts_dict: PromptDictType) -> None: ...

    assert texts(Small()) == {"only": "x"}
    with pytest.raises(TypeError, match="abstract"):
        PromptMixin()  # type: ignore[abstract]
