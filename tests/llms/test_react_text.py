"""Tools for models that cannot call tools: what they are told, and how what they write is read."""

import re
from contextlib import suppress
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from batonflow.llms import ChatMessage, LLMError, MessageRole
from batonflow.llms.react_text import (
    REACT_HEADER,
    REACT_HEADER_WITH_CONTEXT,
    ActionReasoningStep,
    BaseReasoningStep,
    ObservationReasoningStep,
    ReActChatFormatter,
    ReActOutputParser,
    ResponseReasoningStep,
    extract_final_response,
    extract_tool_use,
    parse_action_reasoning_step,
)

LABELS = re.compile("Thought|Action|Answer|Observation|```")
WORDS = st.text(max_size=40).map(str.strip).filter(lambda text: not LABELS.search(text) and "\r\n" not in text)
TOOL_NAMES = st.from_regex(r"[A-Za-z_][A-Za-z0-9_.-]{0,10}", fullmatch=True)
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=6,
)
PIECES = (
    "Thought:", "Action:", "Action Input:", "Answer:", "Observation:", "**Action:**", "Action\uff1a", "```", "{", "}",
    '"', "'", "\\", ":", ",", "\n", " ", "add", "#", "**", "1",
)  # fmt: skip
HOSTILE = st.lists(st.sampled_from(PIECES), max_size=25).map("".join)


def parse(text: str) -> BaseReasoningStep:
    return ReActOutputParser().parse(text)


def action(thought: str, name: str, **arguments: Any) -> ActionReasoningStep:
    return ActionReasoningStep(thought=thought, action=name, action_input=arguments)


def answer(thought: str, response: str) -> ResponseReasoningStep:
    return ResponseReasoningStep(thought=thought, response=response)


class TestSteps:
    def test_are_shown_to_the_model_as_it_should_write_them(self) -> None:
        assert action("I add.", "add", a=1).get_content() == "Thought: I add.\nAction: add\nAction Input: {'a': 1}"
        assert ObservationReasoningStep(observation="3").get_content() == "Observation: 3"
        assert answer("I know.", "42").get_content() == "Thought: I know.\nAnswer: 42"
        streaming = ResponseReasoningStep(thought="I know.", response="4", is_streaming=True)
        assert streaming.get_content() == "Thought: I know.\nAnswer (Starts With): 4 ..."

    def test_an_answer_is_the_last_step_and_so_is_the_output_of_a_direct_tool(self) -> None:
        assert not action("", "add").is_done
        assert not ObservationReasoningStep(observation="3").is_done
        assert ObservationReasoningStep(observation="3", return_direct=True).is_done
        assert answer("", "").is_done

    def test_survive_json(self) -> None:
        step = action("I add.", "add", a=[1, {"b": None}])
        assert ActionReasoningStep.model_validate_json(step.model_dump_json()) == step


class TestActions:
    @pytest.mark.parametrize(
        "text",
        [
            'Thought: I add.\nAction: add\nAction Input: {"a": 1}',
            'Thought: I add.\n\nAction: add\n\n\nAction Input: {"a": 1}\n\n',
            '\n Thought: I add.\nAction: add\nAction Input: {"a": 1}',
            'I add.\nAction: add\nAction Input: {"a": 1}',
            'Thought:I add.\nAction:add\nAction Input:{"a": 1}',
            'Thought: I add.\nAction: add(a, b)\nAction Input: {"a": 1}',
            'Thought: I add.\nAction: add (two numbers)\nAction Input: {"a": 1}',
            'Thought: I add.\nAction: `add`\nAction Input:\n```json\n{"a": 1}\n```',
            'Thought: I add.\n  Action: add\n  Action Input: the JSON {"a": 1} as you said',
            "Thought: I add.\nAction: add\nAction Input: {'a': 1,}",
            'Thought: I add.\nAction: add\nAction Input: [{"a": 1}]',
            '**Thought:** I add.\n**Action:** add\n**Action Input:** {"a": 1}',
            '**Thought**: I add.\n**Action**: add\n**Action Input**: {"a": 1}',
            '**Thought: I add.\n**Action: add**\n**Action Input: {"a": 1}**',
            '### Thought: I add.\n### Action: add\n### Action Input: {"a": 1}',
            'Thought\uff1aI add.\nAction\uff1aadd\nAction Input\uff1a{"a": 1}',
            '```\nThought: I add.\nAction: add\nAction Input: {"a": 1}\n```',
        ],
    )
    def test_are_read_in_many_spellings(self, text: str) -> None:
        assert parse(text) == action("I add.", "add", a=1)

    @pytest.mark.parametrize(
        "made_up",
        [
            'Observation: {"result": 3}\nThought: Done.\nAnswer: 3',
            'Thought: And on.\nAction: multiply\nAction Input: {"b": 2}',
        ],
    )
    @pytest.mark.parametrize("begin", ["Thought: I add.", "I add."])
    def test_only_the_first_counts_whatever_the_model_makes_up_after_it(self, begin: str, made_up: str) -> None:
        assert parse(f'{begin}\nAction: add\nAction Input: {{"a": 1}}\n{made_up}') == action("I add.", "add", a=1)

    def test_need_no_thought_but_keep_every_line_of_one(self) -> None:
        assert parse("Action: now\nAction Input: {}") == action("", "now")
        assert parse("Thought: a\nThought: b\nAction: now\nAction Input: {}") == action("a\nThought: b", "now")

    def test_an_answer_before_it_means_that_it_is_part_of_the_answer(self) -> None:
        text = 'Thought: I know.\nAnswer: do\nAction: add\nAction Input: {"a": 1}'
        assert parse(text) == answer("I know.", 'do\nAction: add\nAction Input: {"a": 1}')

    def test_a_mention_within_a_line_is_none(self) -> None:
        assert parse("Thought: No Action: is needed.\nAnswer: 42") == answer("No Action: is needed.", "42")

    @pytest.mark.parametrize(
        "text",
        [
            "Thought: I add.\nAction: add",
            "Thought: I add.\nAction: add\n{'a': 5 'b': 3}\n",
            "Thought: I add.\nAction: add\nAction Input: 5",
            'Thought: I add.\nAction: add\nAction Input: {"a": 1',
            'Thought: I add.\nAction: \nAction Input: {"a": 1}',
            'Thought: I add.\nAction: add\nAction Input:\nObservation: {"result": 3}',
            'Thought: I add. Action: add Action Input: {"a": 1}',
            'Thought: I add.\nAction: add\nAction: multiply\nAction Input: {"a": 1}',
            'Thought: I add.\nAction: add\nThought: Or not.\nAction Input: {"a": 1}',
            "Thought: I need none.\nAction: None\nAnswer: 42",
            "Action Input: {}\nAction: add",
        ],
    )
    def test_without_name_or_input_are_refused(self, text: str) -> None:
        with pytest.raises(ValueError, match=r"^Could not extract tool use from input text: ") as raised:
            parse(text)
        assert text in str(raised.value)
        assert isinstance(raised.value, LLMError)

    def test_an_input_that_can_only_be_read_in_part_is_refused_and_says_what_is_wanted(self) -> None:
        with pytest.raises(ValueError, match=r"(?s)^Could not extract tool use .*one JSON object in double quotes"):
            parse("Thought: I add.\nAction: add\nAction Input: {'a': 5 'b': 'x'}")

    def test_the_parts_can_be_had_alone(self) -> None:
        text = 'Thought: I add.\nAction: add\nAction Input: {"a": 1,\n "b": {}}\n'
        assert extract_tool_use(text) == ("I add.", "add", '{"a": 1,\n "b": {}}')
        assert parse_action_reasoning_step(text) == action("I add.", "add", a=1, b={})

    @given(WORDS, TOOL_NAMES, st.dictionaries(st.text(), VALUES, max_size=3))
    def test_what_a_step_shows_is_read_as_that_step(self, thought: str, name: str, arguments: dict[str, Any]) -> None:
        step = action(thought, name).model_copy(update={"action_input": arguments})
        assert parse(step.get_content()) == step


class TestAnswers:
    @pytest.mark.parametrize(
        ("text", "thought", "response"),
        [
            ("Thought: I know.\nAnswer: 42", "I know.", "42"),
            ("Thought: I know. Answer: 42", "I know.", "42"),
            ("Thought:I know.\n\nAnswer:42\n\nSecond line\n", "I know.", "42\n\nSecond line"),
            ("Hm. Thought: I know.\nAnswer: 42", "I know.", "42"),
            ("Thought: I know.\nFinal Answer: 42", "I know.", "42"),
            ("**Thought:** I know.\n**Final Answer:** **42**", "I know.", "**42**"),
            ("**Thought**: I know.\n## **Answer**: 42", "I know.", "42"),
            (
                "Thought\uff1a\u6211\u77e5\u9053\nAnswer\uff1a\u56db\u5341\u4e8c",
                "\u6211\u77e5\u9053",
                "\u56db\u5341\u4e8c",
            ),
            ("```\nThought: I know.\nAnswer: 42\n```", "I know.", "42"),
            ("Answer: 1\nThought: I know.\nAnswer: 2", "I know.", "2"),
            ("Thought: I know.\nAnswer: 1\nAnswer: 2", "I know.", "1\nAnswer: 2"),
            ("Thought: I know.\nAnswer:", "I know.", ""),
            ("Thought: I know.\nAnswer: ```py\nx\n```", "I know.", "```py\nx\n```"),
            ("Thought: The Answer: is near.\nAnswer: yes", "The Answer: is near.", "yes"),
        ],
    )
    def test_follow_a_thought(self, text: str, thought: str, response: str) -> None:
        assert parse(text) == answer(thought, response)
        assert extract_final_response(text) == (thought, response)

    @pytest.mark.parametrize("text", ["42", "", "  spaced\n", "```py\nprint(42)\n```", "Observation: 3", '{"a": 1}'])
    def test_a_message_without_any_form_is_one(self, text: str) -> None:
        assert parse(text) == answer("(Implicit) I can answer without any more tools!", text)

    def test_may_be_unfinished(self) -> None:
        for text in ("Thought: I know.\nAnswer: 4", "4"):
            assert ReActOutputParser().parse(text, is_streaming=True) == ResponseReasoningStep(
                thought=parse(text).model_dump()["thought"], response="4", is_streaming=True
            )

    @pytest.mark.parametrize("text", ["Answer: 42", "Answer: 42\nThought: I knew."])
    def test_without_a_thought_before_are_refused(self, text: str) -> None:
        with pytest.raises(ValueError, match=r"^Could not extract final answer from input text: Answer: 42"):
            parse(text)

    @pytest.mark.parametrize("text", ["Thought: I wonder.", "**Thought**: I wonder."])
    def test_a_thought_alone_is_none(self, text: str) -> None:
        with pytest.raises(ValueError, match=r"^Could not parse output: .*I wonder"):
            parse(text)

    def test_errors_quote_no_more_than_the_beginning(self) -> None:
        with pytest.raises(ValueError, match="x") as raised:
            parse("Thought: " + "x" * 100_000)
        assert len(str(raised.value)) < 1000

    @given(WORDS, WORDS)
    def test_what_a_step_shows_is_read_as_that_step(self, thought: str, response: str) -> None:
        step = answer(thought, response)
        assert parse(step.get_content()) == step


ADD = action("I add.", "add", a=1)


class TestFormsOfSmallModels:
    """What models write that know the form only roughly: none of it costs a correction."""

    @pytest.mark.parametrize(
        "text",
        [
            'Thought: I add.\r\nAction: add\r\nAction Input: {"a": 1}\r\n',
            "Thought: I add.\nAction: add\nAction Input: {\u201ca\u201d: 1}",
            "Thought: I add.\nAction: add\nAction Input: {\u2018a\u2019\uff1a 1}",
            'Thought\uff1aI add.\nAction\uff1aadd\nAction Input\uff1a{"a"\uff1a1}',
            '\u601d\u8003\uff1aI add.\n\u884c\u52a8\uff1aadd\n\u884c\u52a8\u8f93\u5165\uff1a{"a": 1}',
            '\u60f3\u6cd5: I add.\n**\u52a8\u4f5c**: add\n**\u52a8\u4f5c\u8f93\u5165**: {"a": 1}',
            '\uff34\uff48\uff4f\uff55\uff47\uff48\uff54\uff1aI add.\nAction: add\nAction Input: {"a": 1}',
            'Thought: I add.\n\uff21\uff43\uff54\uff49\uff4f\uff4e\uff1aadd\nAction Input: {"a": 1}',
            '1. Thought: I add.\n2. Action: add\n3. Action Input: {"a": 1}',
            '1) Thought: I add.\n2) Action: add\n3) Action Input: {"a": 1}',
            '- Thought: I add.\n- Action: add\n- Action Input: {"a": 1}',
            '* **Thought:** I add.\n* **Action:** add\n* **Action Input:** {"a": 1}',
            'Thought 1: I add.\nAction 1: add\nAction Input 1: {"a": 1}',
            'Thought: I add.\n{"action": "add", "action_input": {"a": 1}}',
            'Thought: I add.\nAction:\n```json\n{"action": "add", "action_input": {"a": 1}}\n```',
            'Thought: I add.\nAction: {"name": "add", "arguments": {"a": 1}}',
            'Thought: I add.\n```\n{"tool": "add", "tool_input": "{\\"a\\": 1}"}\n```\n',
            '{"thought": "I add.", "action": "add", "action_input": {"a": 1}}',
        ],
    )
    def test_are_actions(self, text: str) -> None:
        assert parse(text) == ADD
        assert parse_action_reasoning_step(text) == ADD

    @pytest.mark.parametrize("written", ["None", "none", "null", "N/A", "`None`", "None.", "\u65e0", "{}", "No input"])
    def test_an_input_of_nothing_is_an_empty_object(self, written: str) -> None:
        assert parse(f"Thought: Now.\nAction: now\nAction Input: {written}\n") == action("Now.", "now")
        assert parse(f"Thought: Now.\nAction: now\nAction Input: {written}\nObservation: {{}}") == action("Now.", "now")

    @pytest.mark.parametrize(
        "thought",
        [
            "I need the Answer: first I look.",
            "To give an Answer: look. Then Final Answer: later.",
            "The **Answer:** is near.",
        ],
    )
    def test_an_answer_inside_a_thought_is_a_word(self, thought: str) -> None:
        assert parse(f'Thought: {thought}\nAction: add\nAction Input: {{"a": 1}}') == action(thought, "add", a=1)

    @pytest.mark.parametrize("text", ["Thought: To give the Answer: I must look first.", "Thought: My Answer: not yet"])
    def test_and_does_not_end_the_run(self, text: str) -> None:
        with pytest.raises(ValueError, match="Could not parse output"):
            parse(text)

    @pytest.mark.parametrize(
        "text",
        [
            "Thought: I know.\r\nAnswer: 42\r\n",
            "\u601d\u8003\uff1aI know.\n\u56de\u7b54\uff1a42",
            "\u601d\u8003\uff1aI know.\n\u6700\u7ec8\u7b54\u6848\uff1a42",
            "1. Thought: I know.\n2. Answer: 42",
            "- Thought: I know.\n- Final Answer: 42",
            "Thought 3: I know.\nAnswer 3: 42",
            "Thought: I know.\n**Answer:** 42",
            'Thought: I know.\n{"action": "Final Answer", "action_input": "42"}',
        ],
    )
    def test_are_answers(self, text: str) -> None:
        assert parse(text) == answer("I know.", "42")

    @pytest.mark.parametrize(
        "text",
        [
            '{"name": "Brest"}',
            '{"name": "Brest", "arguments": {}, "height": 4}',
            '{"action": "", "action_input": {}}',
            'The form is {"action": "add", "action_input": {}} or so.',
            '[{"action": "add"}]',
        ],
    )
    def test_other_objects_are_answers(self, text: str) -> None:
        assert isinstance(parse(text), ResponseReasoningStep)

    def test_an_action_with_words_for_an_object_says_what_is_wanted(self) -> None:
        with pytest.raises(ValueError, match="must be one JSON object"):
            parse('{"action": "search", "action_input": "tides"}')

    def test_an_answer_may_quote_the_form(self) -> None:
        said = 'Write this:\n{"action": "add", "action_input": {"a": 1}}'
        assert parse(f"Thought: I know.\nAnswer: {said}") == answer("I know.", said)


class TestAnyText:
    @given(HOSTILE | st.text())
    def test_is_a_step_or_refused(self, text: str) -> None:
        with suppress(ValueError):
            assert isinstance(parse(text), ActionReasoningStep | ResponseReasoningStep)

    @given(HOSTILE)
    def test_is_no_action_without_the_word(self, text: str) -> None:
        with suppress(ValueError):
            assert isinstance(parse(text.replace("Action", "")), ResponseReasoningStep)

    @pytest.mark.parametrize(
        "piece",
        [
            "Thought: ", "\nAction: ", "\nAction: a", "\nAction Input: ", "\nAction: a\nAction Input: ",
            "Answer:", "\n", " ", "\n ", "#", "\n#", "*", "**", "Final ", "Answer", "`",
            "```\n", "{", "}", "{}", '{"a":', "'", "\\'",
        ],
    )  # fmt: skip
    @pytest.mark.parametrize("begin", ["", "Thought: ", "Thought: x\nAction: a\nAction Input: {"])
    def test_takes_no_longer_than_its_length_however_hostile_it_is(self, begin: str, piece: str) -> None:
        for end in ("", "}", "\nAnswer: x"):
            with suppress(ValueError):
                assert parse(begin + piece * (100_000 // len(piece)) + end)


def tool(name: str | None, description: str = "Does it.", **parameters: Any) -> Any:
    metadata = SimpleNamespace(name=name, description=description, get_parameters_dict=lambda: parameters)
    return SimpleNamespace(metadata=metadata)


class TestFormatter:
    TOOLS = (tool("add", "Adds {a} and {b}.", type="object"), tool("now", "Tells the time."))

    def test_the_system_message_tells_of_the_tools_and_of_the_forms(self) -> None:
        [system, question] = ReActChatFormatter().format(self.TOOLS, [ChatMessage("Hello")])
        assert (system.role, question) == (MessageRole.SYSTEM, ChatMessage("Hello"))
        text = system.content or ""
        assert 'Tool: add\nPurpose: Adds {a} and {b}.\nArguments (JSON schema): {"type": "object"}\n' in text
        assert "add, now" in text
        for label in ("Thought:", "Action:", "Action Input:", "Observation:", "Answer:"):
            assert f"\n{label} " in text
        assert '{"text": "hello", "limit": 5}' in text
        assert "{{" not in text

    @pytest.mark.parametrize("header", [REACT_HEADER, REACT_HEADER_WITH_CONTEXT])
    def test_the_headers_are_also_templates_for_str_format(self, header: str) -> None:
        formatter = ReActChatFormatter(system_header=header)
        values = {"tool_desc": "", "tool_names": "", "context": ""}
        assert formatter.format([], [])[0].content == header.format(**values)

    def test_the_examples_in_the_header_are_what_the_parser_reads(self) -> None:
        text = ReActChatFormatter().format(self.TOOLS, [])[0].content or ""
        assert extract_tool_use(text[text.index("Thought: which") :])[2].startswith('{"text": "hello", "limit": 5}')
        assert parse(text[text.rindex("Thought:") : text.rindex("\n\n")]).is_done

    @pytest.mark.parametrize(
        "formatter",
        [
            ReActChatFormatter.from_defaults(context="You work for a port."),
            ReActChatFormatter.from_context("You work for a port."),
            ReActChatFormatter.from_defaults(system_header="Tools: {tool_desc}", context="You work for a port."),
            ReActChatFormatter.from_defaults(system_header="{context} {tool_desc}", context="You work for a port."),
            ReActChatFormatter(context="You work for a port."),
        ],
    )
    def test_the_context_is_never_lost(self, formatter: ReActChatFormatter) -> None:
        text = formatter.format(self.TOOLS, [])[0].content or ""
        assert text.count("You work for a port.") == 1
        assert "Tool: add" in text
        assert "{context}" not in text

    def test_without_context_its_place_is_empty(self) -> None:
        formatter = ReActChatFormatter.from_defaults(system_header="a{context}b {unknown} {{x}} {'y': 1}")
        assert formatter.format([], [])[0].content == "ab {unknown} {x} {'y': 1}"

    def test_the_steps_follow_the_conversation(self) -> None:
        steps = [action("I add.", "add", a=1), ObservationReasoningStep(observation="3"), answer("I know.", "3")]
        shown = ReActChatFormatter().format(self.TOOLS, [ChatMessage("Hello")], steps)[2:]
        assert [message.content for message in shown] == [step.get_content() for step in steps]
        assert [message.role.value for message in shown] == ["assistant", "user", "assistant"]
        as_tool = ReActChatFormatter.from_defaults(observation_role=MessageRole.TOOL)
        assert as_tool.format([], [], steps)[2].role is MessageRole.TOOL

    def test_a_tool_without_a_name_is_refused(self) -> None:
        with pytest.raises(ValueError, match="has no name, and a model could not call it"):
            ReActChatFormatter().format([tool(None)], [])
