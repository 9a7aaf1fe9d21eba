"""Prompt templates: text or messages with placeholders, and the mixin for objects that have prompts."""

import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from enum import Enum
from functools import lru_cache
from typing import Any, Self, cast

from pydantic import BaseModel, ConfigDict, Field

from batonflow.llms.blocks import TextBlock
from batonflow.llms.messages import ChatMessage, MessageRole, messages_to_prompt

__all__ = [
    "BasePromptTemplate",
    "ChatPromptTemplate",
    "PromptDictType",
    "PromptMixin",
    "PromptMixinType",
    "PromptTemplate",
    "PromptType",
    "fill",
    "placeholders",
]

_BRACES = re.compile(r"\{\{|\{(?P<name>[^\W\d]\w*(?:\.[^\W\d]\w*)*)\}|\{|\}")


@lru_cache(maxsize=128)
def _parts(template: str) -> tuple[tuple[str, str | None], ...]:
    """Split the template into texts (with None) and placeholders (with their names).

    Double braces stand for single braces where two open and two close, so ``{{"a": {{}}}}`` is ``{"a": {}}``. All other
    braces are text: ``{"a": {"b": 1}}`` ends with two braces that close no double brace.
    """
    parts: list[tuple[str, str | None]] = []
    opened: list[int | None] = []  # the index of a double brace, None for a single brace
    done = 0
    for found in _BRACES.finditer(template):
        if found.start() < done:
            continue  # the second brace of a closing pair
        parts.append((template[done : found.start()], None))
        brace, done = found[0], found.end()
        if brace == "}" and opened:
            double = opened[-1]
            if double is None:
                opened.pop()
            elif template.startswith("}", done):
                opened.pop()
                parts[double] = ("{", None)
                done += 1
        elif brace in {"{", "{{"}:
            opened.append(len(parts) if brace == "{{" else None)
        parts.append((brace, found["name"]))
    parts.append((template[done:], None))
    return tuple(parts)


def placeholders(template: str) -> list[str]:
    """Return the names of the placeholders in the order of the text, without duplicates."""
    return list(dict.fromkeys(name for _, name in _parts(template) if name is not None))


def fill(template: str, values: Mapping[str, Any]) -> str:
    """Replace the placeholders that have a value; the others stay.

    A placeholder is a name in braces. ``{{...}}`` is text in single braces. Other braces, for example in JSON, are
    text. Inserted values are not searched for placeholders.

    Args:
        template: The text.
        values: The values by name; ``str()`` is applied to them.

    Example:
        >>> fill('{greeting} {name}: {"a": 1}', {"greeting": "Hello"})
        'Hello {name}: {"a": 1}'
    """
    return "".join(text if name is None or name not in values else str(values[name]) for text, name in _parts(template))


class PromptType(str, Enum):  # noqa: UP042 - like MessageRole, for the programs this must run
    """The purpose of a prompt. It is kept in its metadata and not used."""

    SUMMARY = "summary"
    TREE_INSERT = "insert"
    TREE_SELECT = "tree_select"
    TREE_SELECT_MULTIPLE = "tree_select_multiple"
    QUESTION_ANSWER = "text_qa"
    REFINE = "refine"
    KEYWORD_EXTRACT = "keyword_extract"
    QUERY_KEYWORD_EXTRACT = "query_keyword_extract"
    SIMPLE_INPUT = "simple_input"
    SINGLE_SELECT = "single_select"
    MULTI_SELECT = "multi_select"
    VECTOR_STORE_QUERY = "vector_store_query"
    SUB_QUESTION = "sub_question"
    CONVERSATION = "conversation"
    DECOMPOSE = "decompose"
    CHOICE_SELECT = "choice_select"
    CUSTOM = "custom"


class BasePromptTemplate(BaseModel, ABC):
    """The base class of templates. Formatting a template never changes it.

    Args:
        metadata: Data of the program; ``prompt_type`` is always present.
        kwargs: Known values by name.
        output_parser: Its ``format(text)`` adds instructions about the answer to the prompt.
        template_var_mappings: Other names for placeholders: ``{"context_str": "facts"}`` fills ``{facts}`` with the
            value of ``context_str``.
        function_mappings: Functions that compute values: by name, called with all known values.
    """

    model_config = ConfigDict(arbitrary_types_allowed=True)

    metadata: dict[str, Any] = Field(default_factory=dict[str, Any])
    kwargs: dict[str, Any] = Field(default_factory=dict[str, Any])
    output_parser: Any = None
    template_var_mappings: dict[str, str] = Field(default_factory=dict[str, str])
    function_mappings: dict[str, Callable[..., Any]] = Field(default_factory=dict[str, Callable[..., Any]])

    def __init__(
        self,
        *,
        prompt_type: str = PromptType.CUSTOM,
        output_parser: Any = None,
        metadata: Mapping[str, Any] | None = None,
        template_var_mappings: Mapping[str, str] | None = None,
        function_mappings: Mapping[str, Callable[..., Any]] | None = None,
        **fields: Any,
    ) -> None:
        super().__init__(
            output_parser=output_parser,
            metadata={"prompt_type": prompt_type, **(metadata or {})},
            template_var_mappings=dict(template_var_mappings or {}),
            function_mappings=dict(function_mappings or {}),
            **fields,
        )

    @property
    def template_vars(self) -> list[str]:
        """The names of the placeholders, without duplicates."""
        return placeholders(self.get_template())

    def partial_format(self, **kwargs: Any) -> Self:
        """Return a copy with more known values.

        Example:
            >>> PromptTemplate("{a} {b}").partial_format(a=1).format(b=2)
            '1 2'
        """
        return self.model_copy(update={"kwargs": {**self.kwargs, **kwargs}, "metadata": dict(self.metadata)})

    def known_values(self) -> dict[str, Any]:
        """Return the known values by the names of the placeholders.

        Example:
            >>> PromptTemplate("{a} {b}").partial_format(a=1).known_values()
            {'a': 1}
        """
        return self._values({})

    def partial_text(self) -> str:
        """Return the text with the known values, and with its other placeholders."""
        if not self.kwargs and not self.function_mappings:
            return self.get_template()
        return fill(self.get_template(), self.known_values())

    @abstractmethod
    def format(self, llm: Any = None, **kwargs: Any) -> str:
        """Return the prompt as one text."""

    @abstractmethod
    def format_messages(self, llm: Any = None, **kwargs: Any) -> list[ChatMessage]:
        """Return the prompt as messages."""

    @abstractmethod
    def get_template(self, llm: Any = None) -> str:
        """Return the text with its placeholders."""

    def _values(self, given: Mapping[str, Any]) -> dict[str, Any]:
        known = {**self.kwargs, **given}
        computed = {name: function(**known) for name, function in self.function_mappings.items()}
        return {self.template_var_mappings.get(name, name): value for name, value in {**known, **computed}.items()}


class PromptTemplate(BasePromptTemplate):
    """A text with placeholders.

    ``{name}`` is a placeholder; it stays when there is no value. ``{{`` and ``}}`` stand for single braces. Other
    braces, for example in JSON, are text.

    Args:
        template: The text.
        prompt_type: Kept in ``metadata``.
        output_parser: Its ``format(text)`` adds instructions about the answer to the prompt.
        metadata: Data of the program.
        template_var_mappings: Other names for placeholders.
        function_mappings: Functions that compute values.
        **kwargs: Known values.

    Example:
        >>> PromptTemplate("Answer in {language}: {question}").format(language="French", question="Who?")
        'Answer in French: Who?'
    """

    template: str

    def __init__(
        self,
        template: str,
        prompt_type: str = PromptType.CUSTOM,
        output_parser: Any = None,
        metadata: Mapping[str, Any] | None = None,
        template_var_mappings: Mapping[str, str] | None = None,
        function_mappings: Mapping[str, Callable[..., Any]] | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(
            template=template,
            prompt_type=prompt_type,
            output_parser=output_parser,
            metadata=metadata,
            template_var_mappings=template_var_mappings,
            function_mappings=function_mappings,
            kwargs=_known(kwargs),
        )

    def format(
        self,
        llm: Any = None,  # noqa: ARG002 - for compatibility
        completion_to_prompt: Callable[[str], str] | None = None,
        **kwargs: Any,
    ) -> str:
        """Return the text with the values filled in.

        Args:
            llm: Ignored.
            completion_to_prompt: Formats the result for a model that completes.
            **kwargs: Values by name, which replace known values.
        """
        text = fill(self.template, self._values(kwargs))
        if self.output_parser is not None:
            text = self.output_parser.format(text)
        return text if completion_to_prompt is None else completion_to_prompt(text)

    def format_messages(self, llm: Any = None, **kwargs: Any) -> list[ChatMessage]:
        """Return the text as one user message."""
        return [ChatMessage(self.format(llm, **kwargs))]

    def get_template(self, llm: Any = None) -> str:  # noqa: ARG002 - for compatibility
        """Return the text with its placeholders."""
        return self.template


class ChatPromptTemplate(BasePromptTemplate):
    """Messages with placeholders in their text.

    Args:
        message_templates: The messages; blocks that are not text stay unchanged.
        prompt_type: Kept in ``metadata``.
        output_parser: Its ``format(text)`` is applied to a system message at the start, otherwise to the last message.
        metadata: Data of the program.
        template_var_mappings: Other names for placeholders.
        function_mappings: Functions that compute values.
        **kwargs: Known values.

    Example:
        >>> template = ChatPromptTemplate.from_messages([("system", "Be {tone}."), ("user", "{question}")])
        >>> template.format_messages(tone="kind", question="Who?")
    """

    message_templates: list[ChatMessage]

    def __init__(
        self,
        message_templates: Sequence[ChatMessage],
        prompt_type: str = PromptType.CUSTOM,
        output_parser: Any = None,
        metadata: Mapping[str, Any] | None = None,
        template_var_mappings: Mapping[str, str] | None = None,
        function_mappings: Mapping[str, Callable[..., Any]] | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(
            message_templates=list(message_templates),
            prompt_type=prompt_type,
            output_parser=output_parser,
            metadata=metadata,
            template_var_mappings=template_var_mappings,
            function_mappings=function_mappings,
            kwargs=_known(kwargs),
        )

    @classmethod
    def from_messages(cls, message_templates: Sequence[ChatMessage | tuple[str, str]], **kwargs: Any) -> Self:
        """Return a template of messages, or of pairs of role and text.

        Args:
            message_templates: Messages, or pairs such as ``("system", "Be {tone}.")``.
            **kwargs: Arguments of the class.

        Raises:
            ValueError: A role is unknown.
        """
        messages = [one if isinstance(one, ChatMessage) else _message(*one) for one in message_templates]
        return cls(messages, **kwargs)

    def format(
        self, llm: Any = None, messages_to_prompt: Callable[[Sequence[ChatMessage]], str] | None = None, **kwargs: Any
    ) -> str:
        """Return the messages as one text.

        Args:
            llm: Ignored.
            messages_to_prompt: Turns the conversation into text; the default is a line for each message.
            **kwargs: Values by name.
        """
        messages = self.format_messages(llm, **kwargs)
        return _as_text(messages) if messages_to_prompt is None else messages_to_prompt(messages)

    def format_messages(self, llm: Any = None, **kwargs: Any) -> list[ChatMessage]:  # noqa: ARG002 - for compatibility
        """Return the messages with the values filled in."""
        values = self._values(kwargs)
        messages = [_over_texts(message, lambda text: fill(text, values)) for message in self.message_templates]
        if self.output_parser is not None and messages:
            place = 0 if messages[0].role is MessageRole.SYSTEM else -1
            texts = [block for block in messages[place].blocks if isinstance(block, TextBlock)]
            if texts:
                texts[-1].text = self.output_parser.format(texts[-1].text)
        return messages

    def get_template(self, llm: Any = None) -> str:  # noqa: ARG002 - for compatibility
        """Return the messages as one text with placeholders."""
        return _as_text(self.message_templates)


def as_template(value: Any) -> Any:
    """Return a template for a text or for the data of ``model_dump()``; other values are returned unchanged."""
    if isinstance(value, dict):
        data = cast("dict[str, Any]", value)
        return ChatPromptTemplate(**data) if "message_templates" in data else PromptTemplate(**data)
    return PromptTemplate(value) if isinstance(value, str) else value


def _known(kwargs: dict[str, Any]) -> dict[str, Any]:
    """Return the values among a constructor's other arguments; a dump has them as one dict."""
    return {**kwargs.pop("kwargs", {}), **kwargs}


def _as_text(messages: Sequence[ChatMessage]) -> str:
    return messages_to_prompt(list(messages))


def _message(role: str, text: str) -> ChatMessage:
    try:
        return ChatMessage(text, role=MessageRole(role))
    except ValueError:
        known = ", ".join(one.value for one in MessageRole)
        raise ValueError(f"{role!r} is not a role of a message; the roles are {known}") from None


def _over_texts(message: ChatMessage, change: Callable[[str], str]) -> ChatMessage:
    """Return a copy of the message with other texts."""
    blocks = [
        block.model_copy(update={"text": change(block.text)}) if isinstance(block, TextBlock) else block
        for block in message.blocks
    ]
    return message.model_copy(update={"blocks": blocks, "additional_kwargs": message.additional_kwargs.copy()})


PromptDictType = dict[str, BasePromptTemplate]
PromptMixinType = dict[str, "PromptMixin"]


class PromptMixin(ABC):
    """A mixin to read and replace the prompts of an object and of its parts by name.

    Subclasses implement ``_get_prompts`` and ``_update_prompts``, and ``_get_prompt_modules`` if they have parts that
    are PromptMixins too. A prompt of a part is called ``part:prompt``.

    Example:
        >>> team.get_prompts()
        >>> team.update_prompts({"writer:react_header": PromptTemplate("...")})
    """

    @abstractmethod
    def _get_prompts(self) -> PromptDictType:
        """Return the prompts of the object itself by name."""

    @abstractmethod
    def _update_prompts(self, prompts_dict: PromptDictType) -> None:
        """Replace prompts of the object itself; the others stay."""

    def _get_prompt_modules(self) -> PromptMixinType:
        """Return the parts by name."""
        return {}

    def get_prompts(self) -> PromptDictType:
        """Return copies of all prompts by name.

        Raises:
            ValueError: The name of a prompt or of a part contains a colon.
        """
        own_prompts, parts = self._get_prompts(), self._get_prompt_modules()
        for name in (*own_prompts, *parts):
            if ":" in name:
                raise ValueError(
                    f"Prompt key {name} cannot contain ':', which stands between a part and its prompt: rename it in "
                    f"{type(self).__name__}"
                )
        prompts = {name: prompt.partial_format() for name, prompt in own_prompts.items()}
        for part, module in parts.items():
            prompts.update({f"{part}:{name}": prompt for name, prompt in module.get_prompts().items()})
        return prompts

    def update_prompts(self, prompts_dict: Mapping[str, BasePromptTemplate | str]) -> None:
        """Replace prompts; prompts without an entry stay.

        Args:
            prompts_dict: Prompts by name as in :meth:`get_prompts`; a text becomes a PromptTemplate.

        Raises:
            ValueError: A prompt or part does not exist. Then no prompt is replaced.
        """
        _check_known(self, prompts_dict)
        own: PromptDictType = {}
        of_parts: dict[str, PromptDictType] = {}
        for key, prompt in prompts_dict.items():
            template = PromptTemplate(prompt) if isinstance(prompt, str) else prompt
            part, colon, name = key.partition(":")
            if colon:
                of_parts.setdefault(part, {})[name] = template
            else:
                own[key] = template
        self._update_prompts(own)
        parts = self._get_prompt_modules()
        for part, prompts in of_parts.items():
            parts[part].update_prompts(prompts)


def _check_known(prompts: PromptMixin, given: Mapping[str, object]) -> None:
    known = prompts.get_prompts()
    parts = prompts._get_prompt_modules()  # pyright: ignore[reportPrivateUsage]
    for key in given:
        part, colon, _ = key.partition(":")
        if colon and part not in parts:
            raise ValueError(
                f"Module {part} not found in {type(prompts).__name__}; its parts: {', '.join(parts) or '-'}"
            )
        if key not in known:
            raise ValueError(
                f"Prompt {key} not found in {type(prompts).__name__}; its prompts: {', '.join(known) or '-'}"
            )
