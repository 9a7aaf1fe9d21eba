"""Marks of citations such as ``[1]`` in answers, and their check by words."""

import re

from pydantic import BaseModel

from batonflow.retrieval.splitters import split_sentences
from batonflow.retrieval.words import query_words, words_of

__all__ = ["Citation", "marks_in", "support_by_words"]

_MARK = re.compile(r"[\[【](\d+(?:\s*,\s*\d+)*)[\]】]")
_ENOUGH = 0.5
"""The share of a sentence's words that a passage must have to support it."""


class Citation(BaseModel):
    """A citation in an answer.

    Attributes:
        number: The number of the source.
        node_id: The id of the cited passage; None if there is no source of this number.
        begin: The place of its mark in the answer.
        end: The place behind its mark.
        is_supported: Whether the passage supports the sentence of the mark.
    """

    number: int
    node_id: str | None
    begin: int
    end: int
    is_supported: bool


def support_by_words(passage: str, statement: str) -> bool:
    """Tell whether a passage has enough of the words of a statement."""
    said, known = query_words(statement), set(words_of(passage))
    return bool(said) and sum(word in known for word in said) >= _ENOUGH * len(said)


def marks_in(answer: str) -> list[tuple[int, int, int, str]]:
    """Return the cited numbers of an answer, with the places of the marks and the sentences."""
    found: list[tuple[int, int, int, str]] = []
    begin = 0
    for sentence in _sentences(answer):
        for mark in _MARK.finditer(sentence):
            place = begin + mark.start(), begin + mark.end(), _MARK.sub("", sentence)
            found += [(int(number), *place) for number in re.findall(r"\d+", mark[1])]
        begin += len(sentence)
    return found


def _sentences(answer: str) -> list[str]:
    """Split an answer into sentences; marks behind the end of a sentence belong to it."""
    found: list[str] = []
    for one in split_sentences(answer):
        lead = re.match(r"(?:\[[\d\s,]+\]\s*)+", one)
        if lead is not None and found:
            found[-1] += lead.group()
            one = one[lead.end() :]  # noqa: PLW2901 - the rest
        if one:
            found.append(one)
    return found
