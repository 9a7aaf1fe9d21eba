"""JSON as models write it: with Python's quotes and constants, comments, commas too many, names without quotes."""

import json
import re
from typing import Any, cast

__all__ = ["read_object"]

_decoder = json.JSONDecoder()

# Every branch that begins also ends, at the latest with the text, and nothing is scanned twice: the time grows with the
# length, whatever the text is.
_SKIPPED = r"//[^\n]*+|\#[^\n]*+|/\*.*?(?:\*/|\Z)"
_TOKEN = re.compile(
    rf"""
      (?P<string> "(?:[^"\\]++|\\.)*+"?+ | '(?:[^'\\]++|\\.)*+'?+ )
    | (?P<quoted> [\u201c\u201d\uff02](?:[^\u201c\u201d\uff02\\]++|\\.)*+[\u201c\u201d\uff02]?+
                | [\u2018\u2019](?:[^\u2018\u2019\\]++|\\.)*+[\u2018\u2019]?+ )
    | (?P<wide> [\uff1a\uff0c] )
    | (?P<skipped> {_SKIPPED} | ,(?=(?:\s++|{_SKIPPED})*+[}}\]]) )
    | (?P<number> \d[\w.]*+ )
    | (?P<word> [^\W\d]\w*+ )
    """,
    re.VERBOSE | re.DOTALL,
)
_CONSTANTS = {
    "True": "true", "False": "false", "None": "null", "true": "true", "false": "false", "null": "null",
    "nan": "NaN", "NaN": "NaN", "inf": "Infinity", "Infinity": "Infinity",
}  # fmt: skip

# Punctuation of Chinese texts: quotes, colon and comma.
_QUOTES = "\u201c\u201d\uff02\u2018\u2019"
_WIDE = {"\uff1a": ":", "\uff0c": ","}

_ESCAPE = re.compile(
    r"\\(?:x(?P<two>[0-9a-fA-F]{2})|u(?P<four>[0-9a-fA-F]{4})|U(?P<eight>00(?:0[0-9a-fA-F]|10)[0-9a-fA-F]{4})|(?P<one>.))",
    re.DOTALL,
)
_ESCAPED = {"n": "\n", "t": "\t", "r": "\r", "b": "\b", "f": "\f", "/": "/", "\\": "\\", '"': '"', "'": "'"}

_OUTER_APOSTROPHE = re.compile(r"(?<!\w)'|'(?!\w)")
_PAIR = re.compile(r'"([^"]++)"\s*+:\s*+"([^"]*+)"')
_PAIRS = re.compile(rf"\{{(?:[\s,]*+{_PAIR.pattern})++[\s,]*+\}}")


def read_object(text: str) -> dict[str, Any]:
    """The JSON object that ``text`` begins with, after whatever stands before its first brace.

    What is not JSON is read as it was probably meant: Python's quotes and constants, quotes and colons of Chinese
    texts, comments, commas too many, names without quotes, single backslashes. Last, an object of nothing but texts is
    put together from its pairs. No part of an object is left out to make it readable. What stands behind the object is
    not looked at.

    Raises:
        ValueError: There is no object, or it cannot be read.

    Example:
        >>> read_object("the input: {'a': 1, 'ready': True,}")
        {'a': 1, 'ready': True}
    """
    start = text.find("{")
    if start < 0:
        raise ValueError("there is no JSON object")
    strict = _decoded(text, start)
    if strict is not None:
        return strict
    written = text[start:]
    loose = _decoded(_TOKEN.sub(_as_json, written))
    return _pairs(written) if loose is None else loose


def _decoded(text: str, start: int = 0) -> dict[str, Any] | None:
    try:
        value, _ = _decoder.raw_decode(text, start)
    except (ValueError, RecursionError):
        return None
    return cast("dict[str, Any]", value)


def _as_json(found: re.Match[str]) -> str:
    token = found[0]
    if found["word"]:
        return _CONSTANTS.get(token) or json.dumps(token)
    if found["skipped"]:
        return ""
    if found["wide"]:
        return _WIDE[token]
    if found["quoted"]:
        return json.dumps(_unescaped(token[1:-1])) if len(token) > 1 and token[-1] in _QUOTES else token
    closed = found["string"] and len(token) > 1 and token[-1] == token[0]
    return json.dumps(_unescaped(token[1:-1])) if closed else token


def _unescaped(text: str) -> str:
    known = all(found["one"] is None or found["one"] in _ESCAPED for found in _ESCAPE.finditer(text))

    def character(found: re.Match[str]) -> str:
        one = found["one"]
        if one is not None:
            return _ESCAPED[one] if known or one in "\"'\\" else found[0]
        # One backslash that means itself, as in C:\new\data, tells that the others do too.
        return chr(int(found["two"] or found["four"] or found["eight"], 16)) if known else found[0]

    return _ESCAPE.sub(character, text)


def _pairs(text: str) -> dict[str, Any]:
    """The object from its ``"key": "text"`` pairs, if it is made of nothing else."""
    whole = _PAIRS.match(_OUTER_APOSTROPHE.sub('"', text))
    if whole is None:
        raise ValueError("the JSON object cannot be read")
    return dict(_PAIR.findall(whole[0]))
