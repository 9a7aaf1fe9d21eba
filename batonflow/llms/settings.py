"""Models by name, and the defaults of a program: its model, and the settings of retrieval."""

from collections.abc import Callable, Sequence
from typing import Any, ClassVar, NoReturn, cast

from batonflow import llms
from batonflow.llms.base import LLM
from batonflow.llms.errors import LLMConfigurationError

__all__ = ["LLMSettings", "Settings", "llm_from"]

# The class of each prefix.
_ADAPTERS = {
    "openai": "OpenAI",
    "responses": "OpenAIResponses",
    "anthropic": "Anthropic",
    "deepseek": "DeepSeek",
    "ollama": "Ollama",
    "compatible": "OpenAILike",
}


def llm_from(name: str, **options: Any) -> LLM:
    """Return the model for a name.

    Args:
        name: ``"prefix:model"``, split at the first colon. Prefixes: openai, responses (OpenAI's other API), anthropic,
            deepseek, ollama, compatible (any server with OpenAI's chat protocol; pass ``base_url``).
        **options: Options of the adapter: ``api_key``, ``temperature`` and so on.

    Raises:
        LLMConfigurationError: An unknown prefix, no model, or no key; the message lists the prefixes or names the
            missing environment variable.

    Example:
        >>> llm = llm_from("openai:gpt-5.6")
        >>> local = llm_from("ollama:qwen3:8b")
    """
    prefix, _, model = name.partition(":")
    adapter = _ADAPTERS.get(prefix)
    if adapter is None or not model:
        known = ", ".join(f"{one}:<model>" for one in sorted(_ADAPTERS))
        raise LLMConfigurationError(f"{name!r} names no model; known are {known}")
    return cast("LLM", getattr(llms, adapter)(model, **options))


_PLAIN: dict[str, Any] = {
    "context_window": None,
    "embed_model": None,
    "num_output": None,
    "prompt_helper": None,
    "tokenizer": None,
}
"""The settings that are kept as they are, with their defaults."""

_COMPUTED = ("llm", "chunk_overlap", "chunk_size", "node_parser", "text_splitter", "transformations")
_OWN = ("_llm", "_chunk_overlap", "_chunk_size", "_node_parser", "_transformations")
_CHUNK_SIZE, _CHUNK_OVERLAP = 1024, 200


class LLMSettings:
    """The settings of a program: the default model, and the defaults of retrieval.

    They exist for LlamaIndex programs. An agent created without ``llm=`` reads them once, so that a later change
    affects new agents only; objects of retrieval do the same. New programs are clearer when they pass ``llm=``.

    Attributes:
        embed_model: An embedding model or its name; None searches by words.
        tokenizer: A function from text to tokens; None for the default.
        prompt_helper: Fits text into prompts; None for a helper that fits the model.
        context_window: The tokens of a prompt and its answer; None for the size of the model.
        num_output: The tokens that are kept for the answer; None for the size of the model.

    Example:
        >>> Settings.llm = "openai:gpt-5.6"
        >>> Settings.chunk_size = 512
        >>> agent = FunctionAgent(tools=[add])
    """

    __slots__ = (*_OWN, *_PLAIN)

    default_parser: ClassVar[Callable[[int, int], Any] | None] = None
    """Makes a parser for the size of a chunk and its overlap. ``batonflow.retrieval`` sets it."""

    _llm: LLM | None
    _chunk_overlap: int | None
    _chunk_size: int | None
    _node_parser: Any
    _transformations: list[Any] | None

    embed_model: Any
    tokenizer: Callable[[str], Sequence[Any]] | None
    prompt_helper: Any
    context_window: int | None
    num_output: int | None

    def __init__(self) -> None:
        for name, default in {**dict.fromkeys(_OWN), **_PLAIN}.items():
            object.__setattr__(self, name, default)

    @property
    def llm(self) -> LLM | None:
        """The default model, or None.

        Set it to a model, to a name (``"openai:gpt-5.6"``), which becomes a model at once, or to None.

        Raises:
            LLMConfigurationError: When set: an unknown name, no key for the model, or a value of another type.
        """
        found: LLM | None = self._llm
        return found

    @llm.setter
    def llm(self, value: LLM | str | None) -> None:
        if isinstance(value, str):
            value = llm_from(value)
        if value is not None and not isinstance(value, LLM):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise LLMConfigurationError(
                f"Settings.llm takes a model or its name, such as 'openai:gpt-5.6', got {type(value).__name__}"
            )
        self._llm = value

    @property
    def node_parser(self) -> Any:
        """The parser of documents, by default one into sentences; it is also called ``text_splitter``.

        It is None until a name of ``batonflow.retrieval`` is used.
        """
        if self._node_parser is None and LLMSettings.default_parser is not None:
            return LLMSettings.default_parser(self.chunk_size, self.chunk_overlap)
        return self._node_parser

    @node_parser.setter
    def node_parser(self, value: Any) -> None:
        self._node_parser = value

    text_splitter = node_parser

    @property
    def chunk_size(self) -> int:
        """The tokens of a chunk. Setting it changes the parser that is set, too."""
        return getattr(self._node_parser, "chunk_size", None) or self._chunk_size or _CHUNK_SIZE

    @chunk_size.setter
    def chunk_size(self, value: int | None) -> None:
        self._chunk_size = value
        if value is not None and hasattr(self._node_parser, "chunk_size"):
            self._node_parser.chunk_size = value

    @property
    def chunk_overlap(self) -> int:
        """The tokens that a chunk repeats; by default 200, and at most a fifth of the chunk."""
        found = getattr(self._node_parser, "chunk_overlap", self._chunk_overlap)
        return min(_CHUNK_OVERLAP, self.chunk_size // 5) if found is None else found

    @chunk_overlap.setter
    def chunk_overlap(self, value: int | None) -> None:
        self._chunk_overlap = value
        if value is not None and hasattr(self._node_parser, "chunk_overlap"):
            self._node_parser.chunk_overlap = value

    @property
    def transformations(self) -> list[Any] | None:
        """The transformations of documents, by default the parser alone."""
        if self._transformations is None and (parser := self.node_parser) is not None:
            return [parser]
        return self._transformations

    @transformations.setter
    def transformations(self, value: Sequence[Any] | None) -> None:
        self._transformations = None if value is None else list(value)

    def __setattr__(self, name: str, value: object) -> None:
        if name not in _PLAIN and name not in _COMPUTED and name not in _OWN:
            raise self._unknown(name)
        object.__setattr__(self, name, value)

    # Only called for unknown names.
    def __getattr__(self, name: str) -> NoReturn:
        raise self._unknown(name)

    def _unknown(self, name: str) -> AttributeError:
        known = ", ".join(sorted((*_PLAIN, *_COMPUTED)))
        return AttributeError(
            f"Settings has no {name!r}, only {known}. Pass other settings to the agent, model or memory that needs "
            "them",
            name=name,
            obj=self,
        )

    def __repr__(self) -> str:
        return f"Settings(llm={self._llm and type(self._llm).__name__})"


Settings = LLMSettings()
"""The settings of this process."""
