"""Selectors, which choose among descriptions for a question: by a model, or by vectors."""

import json
import re
from collections.abc import Sequence
from typing import Any, ClassVar, Self, cast

from pydantic import BaseModel, Field

from batonflow.llms import LLM
from batonflow.llms._bridge import run_sync
from batonflow.llms.prompts import BasePromptTemplate, PromptTemplate
from batonflow.nodes import QueryBundle
from batonflow.retrieval.embeddings import BaseEmbedding, default_embed_model
from batonflow.retrieval.prompts import SELECT_ONE, SELECT_SEVERAL
from batonflow.retrieval.requests import WithPrompt, given_llm, predict, required_llm, structured
from batonflow.tools import ToolMetadata

__all__ = [
    "BaseSelector",
    "EmbeddingSingleSelector",
    "LLMMultiSelector",
    "LLMSingleSelector",
    "PydanticMultiSelector",
    "PydanticSingleSelector",
    "SelectorResult",
    "SingleSelection",
    "selector_for",
]

Choice = str | ToolMetadata

_JSON = re.compile(r"\[.*\]|\{.*\}", re.DOTALL)


class SingleSelection(BaseModel):
    """A choice.

    Args:
        index: The place of the choice, from 0.
        reason: The reason for it.
    """

    index: int
    reason: str = ""


class SelectorResult(BaseModel):
    """The choices for a question.

    Raises:
        ValueError: One choice is asked for, and there is not just one.
    """

    selections: list[SingleSelection]

    def _only(self) -> SingleSelection:
        if len(self.selections) != 1:
            raise ValueError(f"There are {len(self.selections)} selections, please use .inds")
        return self.selections[0]

    @property
    def ind(self) -> int:
        """The place of the only choice."""
        return self._only().index

    @property
    def reason(self) -> str:
        """The reason for the only choice."""
        return self._only().reason

    @property
    def inds(self) -> list[int]:
        """The places of all choices."""
        return [one.index for one in self.selections]

    @property
    def reasons(self) -> list[str]:
        """The reasons for all choices."""
        return [one.reason for one in self.selections]


class BaseSelector(WithPrompt):
    """The base class of selectors. Subclasses write ``_aselect``.

    Example:
        >>> LLMSingleSelector.from_defaults(llm=llm).select(["about the sea", "about bread"], "What are tides?").ind
    """

    def select(self, choices: Sequence[Choice], query: str | QueryBundle) -> SelectorResult:
        """Choose for a question."""
        return run_sync(self.aselect(choices, query))

    async def aselect(self, choices: Sequence[Choice], query: str | QueryBundle) -> SelectorResult:
        """Choose for a question."""
        texts = [one if isinstance(one, str) else one.description for one in choices]
        return await self._aselect(texts, QueryBundle.of(query))

    async def _aselect(self, choices: Sequence[str], query: QueryBundle) -> SelectorResult:
        raise NotImplementedError(f"{type(self).__name__} has no _aselect")


class LLMSingleSelector(BaseSelector):
    """Lets a model choose one of some descriptions, in words.

    Args:
        llm: The model; by default that of ``Settings``.
        prompt: The prompt, with ``num_choices``, ``context_list`` and ``query_str``.
    """

    default_prompt: ClassVar[BasePromptTemplate] = SELECT_ONE
    most: ClassVar[int | None] = 1
    _prompt_name = "prompt"

    def __init__(
        self, llm: LLM | str | None = None, prompt: BasePromptTemplate | None = None, max_outputs: int | None = None
    ) -> None:
        self._llm = given_llm(llm)
        self._prompt = prompt or self.default_prompt
        self._most = self.most if max_outputs is None else max_outputs

    @classmethod
    def from_defaults(
        cls, llm: LLM | str | None = None, prompt_template_str: str | None = None, **options: Any
    ) -> Self:
        """Return a selector."""
        prompt = None if prompt_template_str is None else PromptTemplate(prompt_template_str)
        return cls(llm, prompt, **options)

    def _values(self, choices: Sequence[str], query: QueryBundle) -> dict[str, Any]:
        listed = "\n\n".join(f"({number}) {text}" for number, text in enumerate(choices, 1))
        most = len(choices) if self._most is None else self._most
        values = {"num_choices": len(choices), "context_list": listed, "query_str": query.query_str}
        return values if self.most == 1 else {**values, "max_outputs": most}

    async def _aselect(self, choices: Sequence[str], query: QueryBundle) -> SelectorResult:
        llm = required_llm(self._llm, self)
        answer = await predict(llm, self._prompt, **self._values(choices, query))
        return self._checked(_choices_in(answer), len(choices), answer)

    def _checked(self, found: Sequence[tuple[int, str]], count: int, answer: str) -> SelectorResult:
        """Return the choices of an answer, which counts from 1."""
        first = dict[int, str]()
        for number, reason in found:
            if 1 <= number <= count:
                first.setdefault(number - 1, reason)
        if not first:
            raise ValueError(f"the answer {answer!r} names no choice from 1 to {count}")
        chosen = [SingleSelection(index=at, reason=reason) for at, reason in first.items()]
        return SelectorResult(selections=chosen[: self._most])


class LLMMultiSelector(LLMSingleSelector):
    """Lets a model choose several of some descriptions, in words.

    Args:
        llm: The model; by default that of ``Settings``.
        prompt: The prompt, with ``num_choices``, ``context_list``, ``max_outputs`` and ``query_str``.
        max_outputs: The largest number of choices.
    """

    default_prompt: ClassVar[BasePromptTemplate] = SELECT_SEVERAL
    most: ClassVar[int | None] = None


class _Chosen(BaseModel):
    """A choice by its number, counted from 1."""

    number: int = Field(description="the number of the choice")
    reason: str = ""


class _ChosenOnes(BaseModel):
    """Choices by their numbers, the best one first."""

    choices: list[_Chosen]


class PydanticSingleSelector(LLMSingleSelector):
    """Lets a model choose one of some descriptions, as an object."""

    async def _aselect(self, choices: Sequence[str], query: QueryBundle) -> SelectorResult:
        llm = required_llm(self._llm, self)
        if self.most == 1:
            found = [await structured(llm, _Chosen, self._prompt, **self._values(choices, query))]
        else:
            found = (await structured(llm, _ChosenOnes, self._prompt, **self._values(choices, query))).choices
        return self._checked([(one.number, one.reason) for one in found], len(choices), repr(found))


class PydanticMultiSelector(PydanticSingleSelector):
    """Lets a model choose several of some descriptions, as objects."""

    default_prompt: ClassVar[BasePromptTemplate] = SELECT_SEVERAL
    most: ClassVar[int | None] = None


class EmbeddingSingleSelector(BaseSelector):
    """Chooses the description whose vector is nearest to that of the question.

    Args:
        embed_model: The embedding model; by default that of ``Settings``.
    """

    def __init__(self, embed_model: BaseEmbedding | None = None) -> None:
        self._embed_model = embed_model or default_embed_model()

    @classmethod
    def from_defaults(cls, embed_model: BaseEmbedding | None = None) -> Self:
        """Return a selector."""
        return cls(embed_model)

    async def _aselect(self, choices: Sequence[str], query: QueryBundle) -> SelectorResult:
        model = self._embed_model
        asked = query.embedding or await model.aget_agg_embedding_from_queries(query.embedding_strs)
        vectors = await model.aget_text_embedding_batch(list(choices))
        scores = [model.similarity(asked, vector) for vector in vectors]
        best = max(range(len(scores)), key=scores.__getitem__)
        reason = f"similarity {scores[best]:.2f}"
        return SelectorResult(selections=[SingleSelection(index=best, reason=reason)])


def selector_for(llm: LLM | str | None, select_multi: bool) -> BaseSelector:
    """Return the selector that fits a model, of one choice or of several."""
    model = given_llm(llm)
    has_calls = model is not None and model.metadata.is_function_calling_model
    single, several = (
        (PydanticSingleSelector, PydanticMultiSelector) if has_calls else (LLMSingleSelector, LLMMultiSelector)
    )
    return (several if select_multi else single)(model)


def _choices_in(answer: str) -> list[tuple[int, str]]:
    """Return the numbers and reasons of an answer: JSON with ``choice``, or a number in words."""
    if (found := _JSON.search(answer)) is not None:
        try:
            data: Any = json.loads(found.group())
        except ValueError:
            data = None
        rows = cast("list[Any]", data if isinstance(data, list) else [data])
        chosen: list[dict[str, Any]] = [one for one in rows if isinstance(one, dict)]
        chosen = [one for one in chosen if str(one.get("choice", "")).isdigit()]
        if chosen:
            return [(int(one["choice"]), str(one.get("reason", ""))) for one in chosen]
    return [(int(number), answer.strip()) for number in re.findall(r"\d+", answer)]
