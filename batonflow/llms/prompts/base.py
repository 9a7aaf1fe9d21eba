"""Templates of prompts: text, or messages, with ``{names}`` to fill in."""

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
    """The template cut into texts (with None) and placeholders (with their names).

    Two braces stand for one where they open and two close them, so ``{{"a": {{}}}}`` is ``{"a": {}}``. All other braces
    are text: ``{"a": {"b": 1}}`` ends with two that close nothing that two have opened.
    """
    parts: list[tuple[str, str | None]] = []
    opened: list[int | None] = []  # the part of a double brace, None for a single one
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
    """The names a template has placeholders for, each once, in the order of the text."""
    return list(dict.fromkeys(name for _, name in _parts(template) if name is not None))


def fill(template: str, values: Mapping[str, Any]) -> str:
    """Put values in for the placeholders that have one, and leave all others as they are.

    A placeholder is a name in braces. ``{{...}}`` is text in single braces. Other braces, those of JSON for instance,
    are text. What is put in is not looked at again.

    Args:
        template: The text.
        values: By name; anything that has a ``str()``.

    Example:
        >>> fill('{greeting} {name}: {"a": 1}', {"greeting": "Hello"})
        'Hello {name}: {"a": 1}'
    """
    return "".join(text if name is None or name not in values else str(values[name]) for text, name in _parts(template))


class PromptType(str, Enum):  # noqa: UP042 - like MessageRole, for the programs this must run
    """What a prompt is for; kept in its metadata and used for nothing else."""

    SUMMARY = "summary"
    QUESTION_ANSWER = "text_qa"
    REFINE = "refine"
    SIMPLE_INPUT = "simple_input"
    CONVERSATION = "conversation"
    CUSTOM = "custom"


class BasePromptTemplate(BaseModel, ABC):
    """What every template is. Filling a template never changes it.

    Args:
        metadata: What you want to keep with it; ``prompt_type`` is there always.
        kwargs: Values already known, by name.
        output_parser: Its ``format(text)``, if there is one, adds to the prompt how to answer.
        template_var_mappings: Other names for placeholders: ``{"context_str": "facts"}`` fills ``{facts}`` with what
            is given as ``context_str``.
        function_mappings: Functions that compute values: by name, called with all values that are known.
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
        """The names of the placeholders, each once."""
        return placeholders(self.get_template())

    def partial_format(self, **kwargs: Any) -> Self:
        """A copy that knows some of the values already.

        Example:
            >>> PromptTemplate("{a} {b}").partial_format(a=1).format(b=2)
            '1 2'
        """
        return self.model_copy(update={"kwargs": {**self.kwargs, **kwargs}, "metadata": dict(self.metadata)})

    def known_values(self) -> dict[str, Any]:
        """The values that the template knows already, by the names of its placeholders.

        Example:
            >>> PromptTemplate("{a} {b}").partial_format(a=1).known_values()
            {'a': 1}
        """
        return self._values({})

    def partial_text(self) -> str:
        """The text with the values that are known already, and with its other placeholders."""
        known = self.known_values()
        return fill(self.get_template(), known) if known else self.get_template()

    @abstractmethod
    def format(self, llm: Any = None, **kwargs: Any) -> str:
        """The prompt as one text."""

    @abstractmethod
    def format_messages(self, llm: Any = None, **kwargs: Any) -> list[ChatMessage]:
        """The prompt as messages."""

    @abstractmethod
    def get_template(self, llm: Any = None) -> str:
        """The text with its placeholders."""

    def _values(self, given: Mapping[str, Any]) -> dict[str, Any]:
        known = {**self.kwargs, **given}
        computed = {name: function(**known) for name, function in self.function_mappings.items()}
        return {self.template_var_mappings.get(name, name): value for name, value in {**known, **computed}.items()}


class PromptTemplate(BasePromptTemplate):
    """A text with placeholders.

    ``{name}`` is a placeholder; one for which no value is given stays. ``{{`` and ``}}`` around something stand for
    single braces. Braces that are neither, in JSON for instance, are left alone.

    Args:
        template: The text.
        prompt_type: Kept in ``metadata``.
        output_parser: Its ``format(text)``, if there is one, adds to the prompt how to answer.
        metadata: What you want to keep with it.
        template_var_mappings: Other names for placeholders.
        function_mappings: Functions that compute values.
        **kwargs: Values already known.

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
        llm: Any = None,  # noqa: ARG002 - part of the contract
        completion_to_prompt: Callable[[str], str] | None = None,
        **kwargs: Any,
    ) -> str:
        """The text with the values filled in.

        Args:
            llm: Kept for the contract.
            completion_to_prompt: Dresses the result for a model that completes.
            **kwargs: Values by name; they win over those known before.
        """
        text = fill(self.template, self._values(kwargs))
        if self.output_parser is not None:
            text = self.output_parser.format(text)
        return text if completion_to_prompt is None else completion_to_prompt(text)

    def format_messages(self, llm: Any = None, **kwargs: Any) -> list[ChatMessage]:
        """The text as one message of the user."""
        return [ChatMessage(self.format(llm, **kwargs))]

    def get_template(self, llm: Any = None) -> str:  # noqa: ARG002 - part of the contract
        """The text with its placeholders."""
        return self.template


class ChatPromptTemplate(BasePromptTemplate):
    """Messages with placeholders in their text.

    Args:
        message_templates: The messages; blocks that are not text stay as they are.
        prompt_type: Kept in ``metadata``.
        output_parser: Its ``format(text)`` is applied to the system message if that comes first, else to the last.
        metadata: What you want to keep with it.
        template_var_mappings: Other names for placeholders.
        function_mappings: Functions that compute values.
        **kwargs: Values already known.

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
        """A template from messages, or from pairs of role and text.

        Args:
            message_templates: ``("system", "Be {tone}.")`` and the like.
            **kwargs: As of the class.

        Raises:
            ValueError: There is no such role.
        """
        messages = [one if isinstance(one, ChatMessage) else _message(*one) for one in message_templates]
        return cls(messages, **kwargs)

    def format(
        self,
        llm: Any = None,
        messages_to_prompt: Callable[[Sequence[ChatMessage]], str] | None = None,
        **kwargs: Any,
    ) -> str:
        """The messages as one text.

        Args:
            llm: Kept for the contract.
            messages_to_prompt: How the conversation becomes a text; a line per message unless given.
            **kwargs: Values by name.
        """
        messages = self.format_messages(llm, **kwargs)
        return _as_text(messages) if messages_to_prompt is None else messages_to_prompt(messages)

    def format_messages(self, llm: Any = None, **kwargs: Any) -> list[ChatMessage]:  # noqa: ARG002 - the contract's
        """The messages with the values filled in."""
        values = self._values(kwargs)
        messages = [_over_texts(message, lambda text: fill(text, values)) for message in self.message_templates]
        if self.output_parser is not None and messages:
            place = 0 if messages[0].role is MessageRole.SYSTEM else -1
            texts = [block for block in messages[place].blocks if isinstance(block, TextBlock)]
            if texts:
                texts[-1].text = self.output_parser.format(texts[-1].text)
        return messages

    def get_template(self, llm: Any = None) -> str:  # noqa: ARG002 - part of the contract
        """The messages as one text with its placeholders."""
        return _as_text(self.message_templates)


def as_template(value: Any) -> Any:
    """A template from a text, or from the data that ``model_dump()`` made of one; any other value as it is."""
    if isinstance(value, dict):
        data = cast("dict[str, Any]", value)
        return ChatPromptTemplate(**data) if "message_templates" in data else PromptTemplate(**data)
    return PromptTemplate(value) if isinstance(value, str) else value


def _known(kwargs: dict[str, Any]) -> dict[str, Any]:
    """The values among a constructor's other arguments; a dump has them as one dict."""
    return {**kwargs.pop("kwargs", {}), **kwargs}


def _as_text(messages: Sequence[ChatMessage]) -> str:
    return messages_to_prompt(list(messages))


def _message(role: str, text: str) -> ChatMessage:
    try:
        return ChatMessage(text, role=MessageRole(role))
    except ValueError:
        known = ", ".join(one.value for one in MessageRole)
        raise ValueError(f"{role!r} is no role of a message; the roles are {known}") from None


def _over_texts(message: ChatMessage, change: Callable[[str], str]) -> ChatMessage:
    """A copy of the message with other texts."""
    blocks = [
        block.model_copy(update={"text": change(block.text)}) if isinstance(block, TextBlock) else block
        for block in message.blocks
    ]
    return message.model_copy(update={"blocks": blocks, "additional_kwargs": message.additional_kwargs.copy()})


PromptDictType = dict[str, BasePromptTemplate]
PromptMixinType = dict[str, "PromptMixin"]


class PromptMixin(ABC):
    """Has prompts that can be read and exchanged by name, its own and those of its parts.

    Subclasses write ``_get_prompts`` and ``_update_prompts``, and ``_get_prompt_modules`` if they have parts that are
    PromptMixins too. A part's prompt is called ``part:prompt``.

    Example:
        >>> team.get_prompts()
        >>> team.update_prompts({"writer:react_header": PromptTemplate("...")})
    """

    @abstractmethod
    def _get_prompts(self) -> PromptDictType:
        """The own prompts by name."""

    @abstractmethod
    def _update_prompts(self, prompts_dict: PromptDictType) -> None:
        """Use these of the own prompts from now on; the others stay."""

    def _get_prompt_modules(self) -> PromptMixinType:
        """The parts by name."""
        return {}

    def get_prompts(self) -> PromptDictType:
        """Copies of all prompts by name.

        Raises:
            ValueError: The name of a prompt or of a part has a colon in it.
        """
        own, parts = self._get_prompts(), self._get_prompt_modules()
        for name in (*own, *parts):
            if ":" in name:
                raise ValueError(
                    f"Prompt key {name} cannot contain ':', which stands between a part and its prompt: rename it in "
                    f"{type(self).__name__}"
                )
        prompts = {name: prompt.partial_format() for name, prompt in own.items()}
        for part, module in parts.items():
            prompts.update({f"{part}:{name}": prompt for name, prompt in module.get_prompts().items()})
        return prompts

    def update_prompts(self, prompts_dict: Mapping[str, BasePromptTemplate | str]) -> None:
        """Exchange prompts; those that are not named stay.

        Args:
            prompts_dict: By name as in :meth:`get_prompts`; a text becomes a PromptTemplate.

        Raises:
            ValueError: There is no such prompt or part. Nothing is exchanged then.
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
                f"Module {part} not found in {type(prompts).__name__}; its parts are {', '.join(parts) or 'none'}"
            )
        if key not in known:
            raise ValueError(
                f"Prompt {key} not found in {type(prompts).__name__}; its prompts are {', '.join(known) or 'none'}"
            )
