"""Words for the search by words, and the default tokenizer."""

import re
import threading
import unicodedata
from collections.abc import Callable, Sequence
from itertools import chain
from typing import Any

from batonflow.llms import Settings
from batonflow.llms._vendor import load

__all__ = [
    "STOP_WORDS",
    "WORDS_VERSION",
    "Tokenizer",
    "get_tokenizer",
    "query_words",
    "set_global_tokenizer",
    "words_of",
]

WORDS_VERSION = 1
"""The version of ``words_of``. A store whose words have another version makes them again."""

Tokenizer = Callable[[str], Sequence[Any]]

# Kana, Han and Hangul. Their texts have few blanks or long words, so their words are pairs of characters.
_CJK = (
    "\u3041-\u3096\u309d-\u309f\u30a1-\u30fa\u30fc-\u30ff\u3105-\u312f"
    "\u3400-\u4dbf\u4e00-\u9fff\uac00-\ud7a3\uf900-\ufaff\U00020000-\U0003ffff"
)
_WORDS = re.compile(rf"[^\W{_CJK}]+(?:[\u0300-\u036f]+[^\W{_CJK}]*)*|[{_CJK}]+")
_ACCENTS = re.compile(r"[\u0300-\u036f]")
_PARTS = re.compile(r"[A-Z]+(?![a-z])[0-9]*|[A-Z]?[a-z]+[0-9]*|[0-9]+")
_TOKENS = re.compile(rf"[{_CJK}]|[^\W\d_{_CJK}]{{1,9}}|\d{{1,3}}|[^\w\s]{{1,2}}|_|\s*\n|[^\S\n]{{2,}}")

STOP_WORDS = frozenset(
    re.findall(
        r"\w+",
        """a about am an and are as at be been but by can could did do does for from had has have how i if in is it its
        me my of on one or our should so some than that the their them then there these they this those to us was we
        were what when where which who whom whose why will with would you your""",
    )
)
_MOST_REMEMBERED = 200_000


class _Known(dict[str, tuple[str, ...]]):
    """The words of each written word, remembered."""

    def __init__(self) -> None:
        super().__init__()
        self._stem: Callable[[str], str] | None = None
        self._lock = threading.Lock()  # the stemmer works on itself

    def __missing__(self, written: str) -> tuple[str, ...]:
        if len(self) >= _MOST_REMEMBERED:
            self.clear()
        words = self[written] = tuple(dict.fromkeys(self._words(written)))
        return words

    def _words(self, written: str) -> list[str]:
        if not written.isascii():
            written = unicodedata.normalize("NFKC", _ACCENTS.sub("", unicodedata.normalize("NFKD", written)))
        if re.match(rf"[{_CJK}]", written):
            written = "".join(filter(str.isalnum, written))
            return [written[at : at + 2] for at in range(max(1, len(written) - 1))] if written else []
        parts: list[str] = _PARTS.findall(written) if written.isascii() else re.split(r"[\W_]+", written)
        # The whole has no signs: an index by SQLite would split it there.
        whole = "".join(parts)
        return list(map(self._stemmed, dict.fromkeys(part.casefold() for part in (whole, *parts) if part)))

    def _stemmed(self, word: str) -> str:
        if not word.isascii() or not word.isalpha() or len(word) < 3:
            return word
        with self._lock:
            stem = self._stem = self._stem or load("snowballstemmer", "retrieval").stemmer("english").stemWord
            return stem(word)


_known = _Known()


def words_of(text: str) -> list[str]:
    """Return the words of a text in the form in which they are searched.

    Words are stems without case and accents. An identifier gives the whole without signs, and its parts. Chinese,
    Japanese and Korean texts give overlapping pairs of characters.

    Raises:
        MissingDependencyError: ``snowballstemmer`` is not installed; the message names the extra.

    Example:
        >>> words_of("max_tokens limits answers")
        ['maxtoken', 'max', 'token', 'limit', 'answer']
    """
    return list(chain.from_iterable(map(_known.__getitem__, _WORDS.findall(text))))


def query_words(text: str) -> list[str]:
    """Return the distinct words of a question, without stop words if other words remain.

    Example:
        >>> query_words("What are the tides?")
        ['tide']
    """
    written = _WORDS.findall(text)
    telling = [one for one in written if one.lower() not in STOP_WORDS]
    return list(dict.fromkeys(chain.from_iterable(map(_known.__getitem__, telling or written))))


def _default_tokenizer(text: str) -> list[str]:
    """Split a text into about as many tokens as large models do, without a vocabulary."""
    return _TOKENS.findall(text)


def get_tokenizer() -> Tokenizer:
    """Return the tokenizer of ``Settings``, or a default that needs no vocabulary.

    Example:
        >>> len(get_tokenizer()("Tides follow the moon."))
        5
    """
    return Settings.tokenizer or _default_tokenizer


def set_global_tokenizer(tokenizer: Any) -> None:
    """Set the tokenizer of ``Settings``.

    Args:
        tokenizer: A function from text to a list of tokens, an object with such a method ``encode``, or None for the
            default.
    """
    Settings.tokenizer = getattr(tokenizer, "encode", tokenizer)
