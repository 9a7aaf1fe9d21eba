"""Templates of prompts."""

import copy
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel

import batonflow.llms.prompts
from batonflow.llms import ChatMessage, ImageBlock, MessageRole, TextBlock
from batonflow.llms.prompts import BasePromptTemplate, ChatPromptTemplate, PromptTemplate, PromptType
from batonflow.llms.prompts.base import fill, placeholders

# Without the name that format() has for a parameter of its own.
NAMES = st.from_regex(r"[a-z_][a-z0-9_]{0,3}", fullmatch=True).filter(lambda name: name != "llm")
BRACED_TEXT = st.text(alphabet='ab{}":1, \n', max_size=40)
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=8,
)


class TestFilling:
    @pytest.mark.parametrize(
        ("template", "filled"),
        [
            ("{a} and {b}", "1 and 2"),
            ("{a}{a}", "11"),
            ("{a} and {unknown}", "1 and {unknown}"),
            ("{{a}}", "{a}"),
            ("{{{a}}}", "{1}"),
            ('{{"x": {a}, "y": {{}}}}', '{"x": 1, "y": {}}'),
            ('{{"x": {"y": {a}}}}', '{"x": {"y": 1}}'),
            ('{"x": {"y": {"z": {a}}}}', '{"x": {"y": {"z": 1}}}'),
            ('{"x": {{a}}}', '{"x": {a}}'),
            ("{} {a!r} {a:>5} { a } {0}", "{} {a!r} {a:>5} { a } {0}"),
            ("{a.b} {größe}", "3 4"),
            ("{{ and {a} are open", "{{ and 1 are open"),
            ("}} and {a} close nothing }", "}} and 1 close nothing }"),
            ("\\frac{a}{b}", "\\frac12"),
            ("", ""),
        ],
    )
    def test_known_names_are_filled_in_and_all_else_is_text(self, template: str, filled: str) -> None:
        assert fill(template, {"a": 1, "b": 2, "a.b": 3, "größe": 4}) == filled

    def test_what_is_put_in_is_not_looked_at_again(self) -> None:
        assert fill("{a} {b}", {"a": "{b}", "b": "{{x}}"}) == "{b} {{x}}"

    def test_placeholders_are_named_once_in_order(self) -> None:
        assert placeholders('{b} {a} {b} {{c}} {"d": 1} {e.f}') == ["b", "a", "e.f"]

    @given(st.text())
    def test_text_without_braces_is_never_touched(self, text: str) -> None:
        plain = text.replace("{", "").replace("}", "")
        assert fill(plain, {"a": 1}) == plain

    @given(JSON)
    def test_json_is_never_touched(self, value: Any) -> None:
        text = json.dumps(value)
        for template in (text, json.dumps(value, indent=1)):
            if not placeholders(template) and "{{" not in template:
                assert fill(template, {"a": 1}) == template

    @given(JSON)
    def test_doubling_the_braces_protects_any_json(self, value: Any) -> None:
        text = json.dumps(value, ensure_ascii=False)
        inside = [one for one in _strings(value) if "{" in one or "}" in one]
        if not inside:
            assert fill(text.replace("{", "{{").replace("}", "}}"), {"a": 1}) == text

    @given(st.lists(st.sampled_from(["{a}", "{b}", "{{", "}}", " ", "x"]), max_size=12))
    def test_balanced_templates_of_str_format_mean_the_same(self, parts: list[str]) -> None:
        opened = 0
        for part in parts:
            opened += (part == "{{") - (part == "}}")
            if opened < 0:
                return
        if opened == 0:
            template = "".join(parts)
            assert fill(template, {"a": 1, "b": "y"}) == template.format(a=1, b="y")

    @given(BRACED_TEXT)
    def test_any_braces_are_survived_and_only_braces_are_ever_lost(self, template: str) -> None:
        filled = fill(template, {})
        assert filled.translate({123: None, 125: None}) == template.translate({123: None, 125: None})

    @pytest.mark.parametrize("piece", ["{", "}", "{{", "{a", "{{{a}", '{"a":'])
    def test_long_hostile_templates_take_no_longer_than_their_length(self, piece: str) -> None:
        assert len(fill(piece * 50_000, {"b": 1})) == len(piece) * 50_000


class TestPromptTemplate:
    def test_formats_to_text_and_to_a_message_of_the_user(self) -> None:
        template = PromptTemplate("Answer in {language}: {question}")
        assert template.format(language="French", question="Who?") == "Answer in French: Who?"
        assert template.format_messages(language="French") == [ChatMessage("Answer in French: {question}")]
        assert template.get_template() == "Answer in {language}: {question}"
        assert template.template_vars == ["language", "question"]

    def test_some_values_may_be_known_before(self) -> None:
        template = PromptTemplate("{a} {b}", a=1)
        more = template.partial_format(b=2)
        assert more.format() == "1 2"
        assert more.format(a="won") == "won 2"
        more.metadata["version"] = 2
        assert template.format() == "1 {b}"
        assert "version" not in template.metadata
        assert isinstance(more, PromptTemplate)

    @given(BRACED_TEXT, st.dictionaries(NAMES, st.text(max_size=5)), st.dictionaries(NAMES, st.text(max_size=5)))
    def test_first_some_then_the_rest_is_the_same_as_all_at_once(
        self, text: str, some: dict[str, str], rest: dict[str, str]
    ) -> None:
        template = PromptTemplate(text + "".join(f" {{{name}}}" for name in (*some, *rest)))
        at_once = fill(template.get_template(), {**some, **rest})
        assert template.partial_format(**some).format(**rest) == at_once
        assert template.partial_format(**some).partial_format(**rest).format() == at_once

    def test_names_may_be_mapped_and_values_computed(self) -> None:
        template = PromptTemplate(
            "{facts} in {count}",
            template_var_mappings={"context_str": "facts", "number": "count"},
            function_mappings={"number": lambda context_str, **_: len(context_str)},
        )
        assert template.format(context_str="tides") == "tides in 5"
        assert template.format(context_str="tides", number="computed all the same") == "tides in 5"

    def test_a_parser_and_a_wrapper_have_the_last_word(self) -> None:
        class Shouting:
            def format(self, text: str) -> str:
                return f"{text}!"

        template = PromptTemplate("{a}", output_parser=Shouting())
        assert template.format(completion_to_prompt=lambda text: f"<{text}>", a=1) == "<1!>"
        assert template.partial_format(a=2).format_messages() == [ChatMessage("2!")]

    def test_metadata_says_what_it_is_for_and_the_callers_dict_is_left_alone(self) -> None:
        given_metadata = {"version": 3}
        template = PromptTemplate("x", prompt_type=PromptType.SUMMARY, metadata=given_metadata)
        assert template.metadata == {"version": 3, "prompt_type": "summary"}
        assert given_metadata == {"version": 3}
        assert PromptTemplate("x").metadata["prompt_type"] is PromptType.CUSTOM

    def test_equal_copied_and_restored(self) -> None:
        template = PromptTemplate("{a} {b}", a=1)
        assert template == PromptTemplate("{a} {b}", a=1) != PromptTemplate("{a} {b}", a=2)
        assert copy.deepcopy(template) == template
        assert PromptTemplate.model_validate_json(template.model_dump_json()).format(b=2) == "1 2"

    def test_is_a_field_of_other_models(self) -> None:
        class Holder(BaseModel):
            prompt: BasePromptTemplate

        assert Holder(prompt=PromptTemplate("{a}")).prompt.format(a=1) == "1"


class TestChatPromptTemplate:
    TEMPLATE = ChatPromptTemplate.from_messages([("system", "Be {tone}."), ("user", "{question} {{x}}")])

    def test_formats_to_messages_and_to_text(self) -> None:
        messages = self.TEMPLATE.format_messages(tone="kind")
        assert messages == [ChatMessage("Be kind.", role="system"), ChatMessage("{question} {x}")]
        assert self.TEMPLATE.format(tone="kind", question="Who?") == "system: Be kind.\nuser: Who? {x}\nassistant: "
        assert self.TEMPLATE.format(messages_to_prompt=lambda found: f"{len(found)} messages") == "2 messages"
        assert self.TEMPLATE.get_template() == "system: Be {tone}.\nuser: {question} {{x}}\nassistant: "
        assert self.TEMPLATE.template_vars == ["tone", "question"]

    def test_some_values_may_be_known_before_and_the_template_stays(self) -> None:
        kind = self.TEMPLATE.partial_format(tone="kind")
        assert kind.format_messages(question="Who?")[1].content == "Who? {x}"
        assert self.TEMPLATE.message_templates[0].content == "Be {tone}."

    def test_other_blocks_and_arguments_of_messages_stay(self) -> None:
        picture = ImageBlock(url="https://example.com/{a}.png")
        message = ChatMessage([TextBlock(text="{a}"), picture], additional_kwargs={"id": "{a}"})
        [filled] = ChatPromptTemplate(message_templates=[message]).format_messages(a=1)
        assert filled.blocks == [TextBlock(text="1"), picture]
        assert filled.additional_kwargs == {"id": "{a}"}

    def test_messages_and_pairs_may_be_mixed_and_none_is_fine(self) -> None:
        mixed = ChatPromptTemplate.from_messages([ChatMessage("a"), (MessageRole.ASSISTANT, "b")])
        assert [message.role.value for message in mixed.message_templates] == ["user", "assistant"]
        assert ChatPromptTemplate.from_messages([]).format_messages() == []

    def test_an_unknown_role_is_named_beside_those_there_are(self) -> None:
        with pytest.raises(ValueError, match=r"'boss' is not a role of a message; the roles are system, .*"):
            ChatPromptTemplate.from_messages([("boss", "work")])

    def test_a_parser_adds_to_the_system_message_or_to_the_last(self) -> None:
        class Shouting:
            def format(self, text: str) -> str:
                return f"{text}!"

        with_system = ChatPromptTemplate.from_messages([("system", "a"), ("user", "b")], output_parser=Shouting())
        without = ChatPromptTemplate.from_messages([("user", "a"), ("user", "b")], output_parser=Shouting())
        for _ in range(2):
            assert [message.content for message in with_system.format_messages()] == ["a!", "b"]
            assert [message.content for message in without.format_messages()] == ["a", "b!"]


class TestNames:
    def test_what_is_not_offered_says_why_and_what_to_use(self) -> None:
        with pytest.raises(ImportError, match=r"RichPromptTemplate is not offered: .* Use ChatPromptTemplate"):
            from batonflow.llms.prompts import RichPromptTemplate  # noqa: F401
        with pytest.raises(ImportError, match=r"SelectorPromptTemplate is not offered: .* Choose the PromptTemplate"):
            from batonflow.llms.prompts import SelectorPromptTemplate  # noqa: F401

    def test_a_name_that_never_was_is_an_attribute_error(self) -> None:
        assert not hasattr(batonflow.llms.prompts, "Nonsense")

    def test_a_template_of_ones_own_says_how_it_formats(self) -> None:
        class Shout(BasePromptTemplate):
            def format(self, llm: Any = None, **kwargs: Any) -> str:
                return fill(self.get_template(), self._values(kwargs)).upper()

            def format_messages(self, llm: Any = None, **kwargs: Any) -> list[ChatMessage]:
                return [ChatMessage(self.format(**kwargs))]

            def get_template(self, llm: Any = None) -> str:
                return "hello {name}"

        assert Shout().partial_format(name="you").format() == "HELLO YOU"
        with pytest.raises(TypeError, match="abstract"):
            BasePromptTemplate()  # type: ignore[abstract]


def _strings(value: Any) -> list[str]:
    if isinstance(value, str):
        return [value]
    if isinstance(value, dict):
        return [found for pair in value.items() for one in pair for found in _strings(one)]
    if isinstance(value, list):
        return [found for one in value for found in _strings(one)]
    return []


def test_the_text_of_a_partly_formatted_template_has_its_values() -> None:
    template = PromptTemplate("{who} asks: {msg}", template_var_mappings={"name": "who"}).partial_format(name="Ann")
    assert template.known_values() == {"who": "Ann"}
    assert template.partial_text() == "Ann asks: {msg}"
    assert PromptTemplate("{{a}} {msg}").partial_text() == "{{a}} {msg}"
