"""The words of a text in the form in which an index keeps them."""

import re
import unicodedata
from collections.abc import Iterator
from itertools import pairwise

__all__ = ["words_of"]

LONGEST = 64
"""Characters of a word; the rest is left out."""

_RUNS = re.compile(r"[^\W_]+")
# Scripts that do not put spaces between words.
_UNSPACED = "\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff"
_STRETCHES = re.compile(rf"([{_UNSPACED}]+)|[^{_UNSPACED}]+")


def words_of(text: str) -> Iterator[str]:
    """Yield the words of a text in lower case and without accents.

    A stretch of a script without spaces gives its pairs of neighbouring characters, so that a word is found in it.

    Example:
        >>> list(words_of("Café 東京都"))
        ['cafe', '東京', '京都']
    """
    plain = text.casefold() if text.isascii() else _without_accents(text)
    for run in _RUNS.finditer(plain):
        word: str = run[0]
        if word.isascii():
            yield word[:LONGEST]
            continue
        for stretch in _STRETCHES.finditer(word):
            unspaced: str | None = stretch[1]
            if unspaced is not None and len(unspaced) > 1:
                yield from map("".join, pairwise(unspaced))
            else:
                yield stretch[0][:LONGEST]


def _without_accents(text: str) -> str:
    apart = unicodedata.normalize("NFKD", text.casefold())
    return unicodedata.normalize("NFC", "".join(one for one in apart if not unicodedata.combining(one)))
