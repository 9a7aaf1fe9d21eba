"""Tool use as text, for models without tool calls: the prompt for it and the parser of messages.

A model writes either::

    Thought: why a tool is needed
    Action: the tool
    Action Input: {"its": "arguments"}

and then reads an ``Observation:``, or it ends with::

    Thought: why it can answer
    Answer: the answer
"""

import json
import re
from abc import abstractmethod
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any, ClassVar, Self, cast
from unicodedata import normalize

from pydantic import BaseModel, Field

from batonflow.llms.errors import StructuredOutputError
from batonflow.llms.json_text import read_object
from batonflow.llms.messages import ChatMessage, MessageRole
from batonflow.llms.prompts.base import fill, placeholders
from batonflow.llms.tool_protocol import ToolLike

__all__ = [
    "REACT_HEADER",
    "REACT_HEADER_WITH_CONTEXT",
    "ActionReasoningStep",
    "BaseReasoningStep",
    "ObservationReasoningStep",
    "ReActChatFormatter",
    "ReActOutputParser",
    "ResponseReasoningStep",
    "extract_final_response",
    "extract_tool_use",
    "parse_action_reasoning_step",
]


class BaseReasoningStep(BaseModel):
    """A reasoning step."""

    __batonflow_is_part__: ClassVar[bool] = True

    @abstractmethod
    def get_content(self) -> str:
        """Return the step as text for the model."""

    @property
    @abstractmethod
    def is_done(self) -> bool:
        """Return whether this is the last step."""


class ActionReasoningStep(BaseReasoningStep):
    """A tool call.

    Args:
        thought: The reason.
        action: The name of the tool.
        action_input: The arguments.

    Example:
        >>> print(ActionReasoningStep(thought="I add.", action="add", action_input={"a": 1}).get_content())
    """

    thought: str
    action: str
    action_input: dict[str, Any]

    def get_content(self) -> str:
        """Return thought, action and input, a line each."""
        return f"Thought: {self.thought}\nAction: {self.action}\nAction Input: {self.action_input}"

    @property
    def is_done(self) -> bool:
        """Always False, because the tool's output follows."""
        return False


class ObservationReasoningStep(BaseReasoningStep):
    """The output of a tool.

    Args:
        observation: The output.
        return_direct: Whether the output is the answer.
    """

    observation: str
    return_direct: bool = False

    def get_content(self) -> str:
        """Return the observation."""
        return f"Observation: {self.observation}"

    @property
    def is_done(self) -> bool:
        """Return whether the output is the answer."""
        return self.return_direct


class ResponseReasoningStep(BaseReasoningStep):
    """The answer of the model.

    Args:
        thought: The reason.
        response: The answer.
        is_streaming: Whether more of the answer follows.
    """

    thought: str
    response: str
    is_streaming: bool = False

    def get_content(self) -> str:
        """Return thought and answer."""
        if self.is_streaming:
            return f"Thought: {self.thought}\nAnswer (Starts With): {self.response} ..."
        return f"Thought: {self.thought}\nAnswer: {self.response}"

    @property
    def is_done(self) -> bool:
        """Always True."""
        return True


_TOOLS = """\
You solve tasks by reasoning step by step and by using tools.

## Tools

These are the tools. Decide which of them to use and in what order; split the task where that helps.

{tool_desc}
"""

_FORMS = """
## How to write

Write in the language of the user, without a code block around the whole message. Each message has one of two forms.

To use a tool:

Thought: which tool helps now, and why
Action: the name of one tool out of: {tool_names}
Action Input: its arguments as one JSON object, for example {{"text": "hello", "limit": 5}}

Begin with Thought. JSON has double quotes. The line Action Input is needed for every Action; when the tool takes no \
arguments, write Action Input: {{}}
End the message there. The tool is then called, and you are shown what it returned, which you never write yourself:

Observation: what the tool returned

Use tools in this way for as long as you need them. When you know enough, or the tools cannot help, end with:

Thought: I can answer without any more tools.
Answer: the answer, or why there is none

The conversation follows.
"""

REACT_HEADER = _TOOLS + _FORMS
"""The system prompt about tools, with ``{tool_desc}`` and ``{tool_names}``."""

REACT_HEADER_WITH_CONTEXT = f"{_TOOLS}\n{{context}}\n{_FORMS}"
"""The system prompt about tools with a ``{context}``."""

_IMPLICIT = "(Implicit) I can answer without any more tools!"
_LONGEST_QUOTE = 500


class ReActChatFormatter(BaseModel):
    """Format tools, conversation and steps as messages for a model.

    Args:
        system_header: The system message, with ``{tool_desc}``, ``{tool_names}`` and optionally ``{context}``. Braces
            around anything else are text.
        context: Further context for the model. It is appended to a header without ``{context}``.
        observation_role: The role of messages with a tool's output.
        values: Values of other placeholders in the header, by name.

    Example:
        >>> formatter = ReActChatFormatter.from_defaults(context="You work for a port.")
        >>> messages = formatter.format(tools, [ChatMessage("When is high tide?")])
    """

    system_header: str = REACT_HEADER
    context: str = ""
    observation_role: MessageRole = MessageRole.USER
    values: dict[str, Any] = Field(default_factory=dict[str, Any])

    @classmethod
    def from_defaults(
        cls,
        system_header: str | None = None,
        context: str | None = None,
        observation_role: MessageRole = MessageRole.USER,
        values: Mapping[str, Any] | None = None,
    ) -> Self:
        """Return a formatter with a header for the context.

        Args:
            system_header: Replaces the default header.
            context: Further context for the model.
            observation_role: The role of messages with a tool's output.
            values: Values of other placeholders in the header, by name.
        """
        header = system_header or (REACT_HEADER_WITH_CONTEXT if context else REACT_HEADER)
        return cls(
            system_header=header, context=context or "", observation_role=observation_role, values={**(values or {})}
        )

    @classmethod
    def from_context(cls, context: str) -> Self:
        """Return ``from_defaults(context=...)``."""
        return cls.from_defaults(system_header=REACT_HEADER_WITH_CONTEXT, context=context)

    def format(
        self,
        tools: Sequence[ToolLike],
        chat_history: Sequence[ChatMessage],
        current_reasoning: Sequence[BaseReasoningStep] | None = None,
    ) -> list[ChatMessage]:
        """Return the system message, the conversation, and the steps as messages.

        Args:
            tools: The tools.
            chat_history: The conversation.
            current_reasoning: The steps since its last message.

        Raises:
            ValueError: A tool has no name.
        """
        values = {
            **self.values,
            "tool_desc": "\n".join(_description(tool) for tool in tools),
            "tool_names": ", ".join(_name(tool) for tool in tools),
            "context": self.context,
        }
        header = fill(self.system_header, values)
        if self.context and "context" not in placeholders(self.system_header):
            header = f"{header}\n\n{self.context}"
        return [
            ChatMessage(header, role=MessageRole.SYSTEM),
            *chat_history,
            *(self._as_message(step) for step in current_reasoning or ()),
        ]

    def _as_message(self, step: BaseReasoningStep) -> ChatMessage:
        observed = isinstance(step, ObservationReasoningStep)
        return ChatMessage(step.get_content(), role=self.observation_role if observed else MessageRole.ASSISTANT)


def _name(tool: ToolLike) -> str:
    name = tool.metadata.name
    if name is None:
        raise ValueError(f"{tool!r} has no name, and a model could not call it: set the name in its metadata")
    return name


def _description(tool: ToolLike) -> str:
    arguments = json.dumps(tool.metadata.get_parameters_dict(), ensure_ascii=False)
    return f"Tool: {_name(tool)}\nPurpose: {tool.metadata.description}\nArguments (JSON schema): {arguments}\n"


def _label(name: str) -> str:
    """Return a pattern of a label: the word and a colon, which may be bold, numbered or full-width."""
    numbered = rf"{name}(?:[ \t]\d{{1,3}})?+"
    return rf"(?:\*\*{numbered}(?:[:\uff1a]\*\*|\*\*[:\uff1a])|(?:\*\*)?{numbered}[:\uff1a])"


# No pattern matches a text in two ways, so the time is linear for any text.
_LISTED = r"(?:(?:[-*+\u2022]|\d{1,3}[.)])[ \t]++)?+"
_LINE = rf"^[ \t#]*+{_LISTED}"
_THOUGHT = re.compile(_label("Thought"))
_LEADING_THOUGHT = re.compile(rf"[\s#]*+{_LISTED}{_label('Thought')}")
_MENTIONED_ACTION = re.compile(_label("Action"))
_ACTION = re.compile(rf"{_LINE}{_label('Action')}[ \t]*+(?P<name>[^\n() ]*+)", re.MULTILINE)
_ACTION_INPUT = re.compile(rf"{_LINE}{_label('Action Input')}", re.MULTILINE)
# Inside a line an answer starts after the end of a sentence; elsewhere the word belongs to the thought.
_ANSWER = re.compile(
    rf"(?:^|[.!?:;*)\]\"'\u2026\u3002\uff01\uff1f\uff1a])[ \t]*+(?P<label>{_label('(?:Final )?Answer')})"
)
_ANSWER_LINE = re.compile(rf"{_LINE}(?P<label>{_label('(?:Final )?Answer')})", re.MULTILINE)
_NEXT = re.compile(
    rf"{_LINE}(?:{'|'.join(_label(name) for name in ('Thought', 'Action', 'Observation', 'Answer'))})", re.MULTILINE
)
_ANY_CASE = re.compile(
    rf"(?P<before>{_LINE}\*{{0,2}})(?P<name>thought|action input|action|observation|final answer|answer)"
    r"(?=(?:[ \t]\d{1,3})?+\*{0,2}[:\uff1a])",
    re.MULTILINE | re.IGNORECASE,
)
_TRANSLATED = {
    "\u601d\u8003": "Thought", "\u60f3\u6cd5": "Thought",
    "\u884c\u52a8": "Action", "\u52a8\u4f5c": "Action", "\u64cd\u4f5c": "Action",
    "\u884c\u52a8\u8f93\u5165": "Action Input", "\u52a8\u4f5c\u8f93\u5165": "Action Input",
    "\u64cd\u4f5c\u8f93\u5165": "Action Input",
    "\u89c2\u5bdf": "Observation", "\u89c2\u5bdf\u7ed3\u679c": "Observation",
    "\u7b54\u6848": "Answer", "\u56de\u7b54": "Answer", "\u6700\u7ec8\u7b54\u6848": "Final Answer",
    "\u6700\u7ec8\u56de\u7b54": "Final Answer",
}  # fmt: skip
"""Chinese labels as models write them: thought, action, its input, observation and answer."""
_CHINESE = re.compile(
    rf"(?P<before>{_LINE}\*{{0,2}})(?P<name>{'|'.join(sorted(_TRANSLATED, key=len, reverse=True))})"
    r"(?=\*{0,2}[ \t]*+[:\uff1a])",
    re.MULTILINE,
)
_WIDE_LABEL = re.compile(
    rf"(?P<before>{_LINE}\*{{0,2}})(?P<name>[\uff21-\uff5a\u3000 ]++)(?=\*{{0,2}}[:\uff1a])", re.MULTILINE
)
_FENCE = re.compile(rf"\s*+```\w*+[ \t]*+\n(?=\s*+{_label('Thought')})")
_NO_INPUT = ("none", "null", "nil", "n/a", "na", "no input", "no arguments", "\u65e0")

# An action as one JSON object, the form of other frameworks.
_BARE_NAMES = ("action", "tool", "tool_name", "name", "function")
_BARE_INPUTS = ("action_input", "tool_input", "arguments", "args", "input", "parameters")
_BARE_OTHERS = ("thought", "reasoning", "id", "type")
_BEFORE_BARE = re.compile(rf"(?:{_LINE}{_label('Action')})?+\s*+(?:```\w*+)?+\s*+\Z", re.MULTILINE)
_FINAL = ("final answer", "final_answer", "finish")


def extract_tool_use(input_text: str) -> tuple[str, str, str]:
    r"""Return the thought, the tool and the text of the arguments of an action.

    Only the first action counts; the text after it is ignored.

    Raises:
        StructuredOutputError: There is no action, or other lines than its input in braces follow. It is a ValueError.

    Example:
        >>> extract_tool_use('Thought: I add.\nAction: add\nAction Input: {"a": 1}')
        ('I add.', 'add', '{"a": 1}')
    """
    text = _tidied(input_text)
    bare = _bare_action(text)
    if bare is not None and isinstance(bare[2], dict):
        return bare[0], bare[1], json.dumps(bare[2], ensure_ascii=False)
    action = _ACTION.search(text)
    name = action["name"].strip("*`\"'") if action else ""
    label = _ACTION_INPUT.search(text, action.end()) if action else None
    if action is None or label is None or not name:
        raise _no_tool_use(input_text)
    first, last = text.find("{", label.end()), text.rfind("}")
    following = _NEXT.search(text, action.end())
    thought = _thought_before(text, action.start())
    written = text[label.end() : len(text) if following is None else following.start()]
    if written.strip(" \t\n`*.\"'").lower() in _NO_INPUT:
        return thought, name, "{}"
    if not 0 <= first < last or (following is not None and following.start() < first):
        raise _no_tool_use(input_text)
    return thought, name, text[first : last + 1]


def _thought_before(text: str, end: int) -> str:
    leading = _LEADING_THOUGHT.match(text, 0, end)
    return text[leading.end() if leading else 0 : end].strip()


def _bare_action(text: str) -> tuple[str, str, Any] | None:
    """Return thought, tool and input of an action in one JSON object; None for every other message."""
    first, last = text.find("{"), text.rfind("}")
    if not 0 <= first < last or text[last + 1 :].strip(" \t\n`"):
        return None
    before = _BEFORE_BARE.search(text, 0, first)
    end = first if before is None else before.start()
    if _ACTION_INPUT.search(text, 0, end) or _ACTION.search(text, 0, end) or _ANSWER_LINE.search(text, 0, end):
        return None
    try:
        given = read_object(text[first : last + 1])
    except ValueError:
        return None
    names = [name for name in _BARE_NAMES if name in given]
    inputs = [name for name in _BARE_INPUTS if name in given]
    if len(names) != 1 or len(inputs) != 1 or given.keys() - {*names, *inputs, *_BARE_OTHERS}:
        return None
    tool, arguments = given[names[0]], given[inputs[0]]
    if not isinstance(tool, str) or not tool.strip():
        return None
    thought = _thought_before(text, end) or str(given.get("thought") or given.get("reasoning") or "")
    return thought, tool.strip(), _as_arguments(arguments)


def _as_arguments(given: Any) -> Any:
    """Return the arguments as an object; other text is returned unchanged."""
    if given is None or (isinstance(given, str) and given.strip().lower() in _NO_INPUT):
        return {}
    if isinstance(given, str) and given.lstrip().startswith("{"):
        with suppress(ValueError):
            return read_object(given)
    return given


def extract_final_response(input_text: str) -> tuple[str, str]:
    r"""Return the thought and the answer of a message.

    Raises:
        StructuredOutputError: There is no answer after a thought. It is a ValueError.

    Example:
        >>> extract_final_response("Thought: I know.\nAnswer: 42")
        ('I know.', '42')
    """
    text = _tidied(input_text)
    thought = _THOUGHT.search(text)
    answer = _answer_in(text, thought.end()) if thought else None
    if thought is None or answer is None:
        raise StructuredOutputError(f"Could not extract final answer from input text: {_quoted(input_text)}")
    begin = answer.start() if _ANSWER_LINE.match(text, answer.start()) else answer.start("label")
    return text[thought.end() : begin].strip(), text[answer.end() :].strip()


def _answer_in(text: str, begin: int = 0) -> re.Match[str] | None:
    """Return the label of the answer. A label inside a line counts only if no line starts with one."""
    return _ANSWER_LINE.search(text, begin) or _ANSWER.search(text, begin)


def parse_action_reasoning_step(output: str) -> ActionReasoningStep:
    r"""Return the step of an action.

    Raises:
        StructuredOutputError: There is no action, or its input cannot be parsed. It is a ValueError.

    Example:
        >>> parse_action_reasoning_step("Thought: I add.\nAction: add\nAction Input: {'a': 1}").action_input
        {'a': 1}
    """
    thought, action, written = extract_tool_use(output)
    try:
        arguments = read_object(written)
    except ValueError as err:
        raise _no_tool_use(output, f"\nIts Action Input must be one JSON object in double quotes, but {err}.") from err
    return ActionReasoningStep(thought=thought, action=action, action_input=arguments)


class ReActOutputParser:
    r"""Parse the messages of a model.

    Example:
        >>> ReActOutputParser().parse("Thought: I know.\nAnswer: 42").is_done
        True
    """

    def parse(self, output: str, is_streaming: bool = False) -> BaseReasoningStep:
        """Return the step of a message. An action before the answer counts; a message without labels is an answer.

        Args:
            output: The message.
            is_streaming: Whether more of the message follows.

        Raises:
            StructuredOutputError: The message starts with a label but is incomplete. It is a ValueError.
        """
        output = _in_usual_form(output)
        bare = _bare_action(_tidied(output))
        if bare is not None:
            return _step_of(bare, output, is_streaming)
        action = _ACTION.search(output)
        # When a line starts with an action, an answer label inside a line belongs to the thought before it.
        answer = _ANSWER_LINE.search(output) or (_answer_in(output) if action is None else None)
        if action is None and answer is None:
            action = _MENTIONED_ACTION.search(output)
        if action is not None and (answer is None or action.start() < answer.start()):
            return parse_action_reasoning_step(output)
        if answer is not None:
            thought, response = extract_final_response(output)
            return ResponseReasoningStep(thought=thought, response=response, is_streaming=is_streaming)
        if _THOUGHT.search(output) is not None:
            raise StructuredOutputError(f"Could not parse output: {_quoted(output)}")
        return ResponseReasoningStep(thought=_IMPLICIT, response=output, is_streaming=is_streaming)


def _step_of(bare: tuple[str, str, Any], output: str, is_streaming: bool) -> BaseReasoningStep:
    """Return the step of an action in one JSON object."""
    thought, name, given = bare
    if name.lower() in _FINAL:
        text = given if isinstance(given, str) else json.dumps(given, ensure_ascii=False)
        return ResponseReasoningStep(thought=thought or _IMPLICIT, response=text, is_streaming=is_streaming)
    if not isinstance(given, dict):
        raise _no_tool_use(output, "\nIts input must be one JSON object with the tool's arguments.")
    return ActionReasoningStep(thought=thought, action=name, action_input=cast("dict[str, Any]", given))


def _in_usual_form(text: str) -> str:
    """Return the text with newlines as line ends, and with English labels."""
    text = text.replace("\r\n", "\n")
    if not text.isascii():
        text = _WIDE_LABEL.sub(lambda found: found["before"] + normalize("NFKC", found["name"]), text)
        text = _CHINESE.sub(lambda found: found["before"] + _TRANSLATED[found["name"]], text)
    first = _ANY_CASE.match(text, len(text) - len(text.lstrip()))
    if first is None or first["name"] == first["name"].title():
        return text
    return _ANY_CASE.sub(lambda found: found["before"] + found["name"].title(), text)


def _tidied(text: str) -> str:
    """Return the text without a code block around all of it, and with the usual labels."""
    text = _in_usual_form(text)
    fence = _FENCE.match(text)
    return text[fence.end() :].rstrip().removesuffix("```") if fence else text


def _no_tool_use(text: str, reason: str = "") -> StructuredOutputError:
    return StructuredOutputError(f"Could not extract tool use from input text: {_quoted(text)}{reason}")


def _quoted(text: str) -> str:
    return text if len(text) <= _LONGEST_QUOTE else f"{text[:_LONGEST_QUOTE]}..."
