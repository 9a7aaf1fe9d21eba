"""PromptHelper: the passages that fit into a prompt beside its text and the answer."""

from collections.abc import Callable, Sequence
from typing import Any, Self

from batonflow.llms import LLM, Settings
from batonflow.llms.messages import LLMMetadata
from batonflow.llms.prompts import BasePromptTemplate
from batonflow.retrieval.splitters import TokenTextSplitter
from batonflow.retrieval.words import get_tokenizer

__all__ = ["PromptHelper", "helper_for"]

_BETWEEN = "\n\n"


class PromptHelper:
    r"""Fits text into prompts.

    Args:
        context_window: The tokens of a prompt and its answer.
        num_output: The tokens that are kept for the answer.
        chunk_overlap_ratio: The share of a piece that the next piece of the same text repeats.
        chunk_size_limit: The most tokens of a piece.
        tokenizer: Splits text into tokens; the tokenizer of ``Settings`` by default.
        separator: The character at which text is split first.

    Raises:
        ValueError: ``chunk_overlap_ratio`` is not between 0 and 1.

    Example:
        >>> helper = PromptHelper(context_window=8000, num_output=500)
        >>> helper.repack(PromptTemplate("{context_str}\n{query_str}"), ["one text", "another"])
        ['one text\n\nanother']
    """

    def __init__(
        self,
        context_window: int = 3900,
        num_output: int = 256,
        chunk_overlap_ratio: float = 0.1,
        chunk_size_limit: int | None = None,
        tokenizer: Callable[[str], Sequence[Any]] | None = None,
        separator: str = " ",
    ) -> None:
        if not 0.0 <= chunk_overlap_ratio <= 1.0:
            raise ValueError(f"chunk_overlap_ratio is a number between 0 and 1, got {chunk_overlap_ratio}")
        self.context_window = context_window
        self.num_output = num_output
        self.chunk_overlap_ratio = chunk_overlap_ratio
        self.chunk_size_limit = chunk_size_limit
        self.separator = separator
        self._tokenizer = tokenizer

    @classmethod
    def from_llm_metadata(
        cls,
        llm_metadata: LLMMetadata,
        chunk_overlap_ratio: float = 0.1,
        chunk_size_limit: int | None = None,
        tokenizer: Callable[[str], Sequence[Any]] | None = None,
        separator: str = " ",
    ) -> Self:
        """Return the helper for a model; an unknown length of its answer counts as 256 tokens."""
        num_output = llm_metadata.num_output if llm_metadata.num_output > 0 else 256
        window = llm_metadata.context_window
        return cls(window, num_output, chunk_overlap_ratio, chunk_size_limit, tokenizer, separator)

    def count(self, text: str) -> int:
        """Return the number of tokens of a text."""
        return len((self._tokenizer or get_tokenizer())(text))

    def get_text_splitter_given_prompt(
        self, prompt: BasePromptTemplate, num_chunks: int = 1, padding: int = 5
    ) -> TokenTextSplitter:
        """Return a splitter whose pieces fit into a prompt, ``num_chunks`` at a time.

        Args:
            prompt: The prompt; the values it knows are counted.
            num_chunks: The number of pieces in one prompt.
            padding: The tokens to spare for each piece.

        Raises:
            ValueError: The prompt leaves no room.
        """
        size = self._size(prompt, num_chunks, padding)
        return TokenTextSplitter(
            separator=self.separator,
            chunk_size=size,
            chunk_overlap=int(size * self.chunk_overlap_ratio) if size > 1 else 0,
            tokenizer=self._tokenizer or get_tokenizer(),
        )

    def truncate(self, prompt: BasePromptTemplate, text_chunks: Sequence[str]) -> list[str]:
        """Cut each text so that all of them fit into one prompt."""
        if not text_chunks:
            return []
        splitter = self.get_text_splitter_given_prompt(prompt, len(text_chunks))
        size = splitter.chunk_size
        return [text if self.count(text) <= size else "".join(splitter.split_text(text)[:1]) for text in text_chunks]

    def repack(self, prompt: BasePromptTemplate, text_chunks: Sequence[str], padding: int = 5) -> list[str]:
        """Join texts with blank lines to pieces that fit into a prompt. Only a text that is too long is cut."""
        size = self._size(prompt, 1, padding)
        gap, packed, room = self.count(_BETWEEN), list[str](), 0
        for text in map(str.strip, text_chunks):
            tokens = self.count(text)
            if not text:
                continue
            if packed and tokens + gap <= room:
                packed[-1] += _BETWEEN + text
                room -= tokens + gap
            elif tokens <= size:
                packed.append(text)
                room = size - tokens
            else:
                packed += self.get_text_splitter_given_prompt(prompt, 1, padding).split_text(text)
                room = size - self.count(packed[-1])
        return packed

    def _size(self, prompt: BasePromptTemplate, num_chunks: int, padding: int) -> int:
        other_names = prompt.template_var_mappings
        known = {*prompt.kwargs, *(other_names.get(name, name) for name in prompt.kwargs)}
        used = self.count(
            prompt.format(**{name: "" for name in (*prompt.template_vars, *other_names) if name not in known})
        )
        left = (self.context_window - used - self.num_output) // num_chunks - padding
        if left < 1:
            short = (1 + padding) * num_chunks - (self.context_window - used - self.num_output)
            raise ValueError(
                f"No text fits beside the prompt: it has {used} tokens, {self.num_output} are kept for the answer, and "
                f"the window has {self.context_window}. That is {short} too few for {num_chunks} pieces of text"
            )
        return left if self.chunk_size_limit is None else min(left, self.chunk_size_limit)


def helper_for(llm: LLM | None, given: PromptHelper | None = None) -> PromptHelper:
    """Return the given helper, the helper of ``Settings``, or one that fits a model."""
    found: PromptHelper | None = given or getattr(Settings, "prompt_helper", None)
    if found is not None:
        return found
    metadata = LLMMetadata() if llm is None else llm.metadata
    sizes = {name: getattr(Settings, name, None) for name in ("context_window", "num_output")}
    known = {name: size for name, size in sizes.items() if size is not None}
    return PromptHelper.from_llm_metadata(metadata.model_copy(update=known))
