"""The language of the source: docstrings, comments and errors in plain English, by rules that a program can check."""

import ast
import re
from collections.abc import Callable, Iterable, Iterator

import pytest

from tests.house import ROOT, comments, docstrings, first_lines, sources, tracked, vague

RULES = {
    "write `is not a ...`": re.compile(r"(?<!here )\b(?:is|are|was) no (?!longer)[A-Za-z`]"),
    "name the thing, or write None": re.compile(r"(?<![`\"'])\bnone\b(?![`\"'])"),
}


def _speaks(node: ast.AST) -> bool:
    """True for a raised error, a warning, and a line to a log or a terminal."""
    if isinstance(node, ast.Raise):
        return True
    match node:
        case ast.Call(func=ast.Name(id="warn_user" | "complain" | "say")):
            return True
        case ast.Call(func=ast.Attribute(value=ast.Name(id="logger" | "_logger" | "_log"))):
            return True
    return False


def errors() -> Iterator[tuple[str, str]]:
    """The texts of errors, warnings and lines of logs, with their places."""
    for module in sources().values():
        for node in ast.walk(module.tree):
            for part in ast.walk(node) if _speaks(node) else ():
                if isinstance(part, ast.Constant) and isinstance(part.value, str):
                    yield f"{module.name}:{part.lineno}", part.value


def page_texts() -> list[tuple[str, str]]:
    """The comments and texts of the page, with their places."""
    found = re.compile(r"//[^\n]*|/\*.*?\*/|\"[^\"\n]*\"|`[^`]*`", re.DOTALL)
    files = [ROOT / name for name in tracked("batonflow/server/page/src/*.js")]
    return [(file.name, text) for file in files for text in found.findall(file.read_text())]


def test_first_lines_of_docstrings_are_imperatives_or_noun_phrases() -> None:
    asks = re.compile(r"(?:What|Whether|Who|How|Where|Why)\b")
    assert [f"{place}: {line}" for place, line in first_lines() if asks.match(line)] == []


def test_first_sentences_of_docstrings_are_short() -> None:
    """The first line up to the end of its first sentence has at most 18 words."""
    sentences = [(place, re.split(r"(?<=[.!?])\s", line)[0]) for place, line in first_lines()]
    assert [f"{place}: {sentence}" for place, sentence in sentences if len(sentence.split()) > 18] == []


@pytest.mark.parametrize("texts", [docstrings, comments, errors, page_texts])
def test_the_rules_hold(texts: Callable[[], Iterable[tuple[str, str]]]) -> None:
    found = [
        f"{place}: {advice}: {text[max(0, match.start() - 40) : match.end() + 40]}"
        for place, text in texts()
        for advice, rule in RULES.items()
        if (match := rule.search(text))
    ]
    assert found == []


def test_words_that_stand_for_nothing_in_particular_are_rare() -> None:
    assert vague(first_lines())[0] <= 2
    assert vague(comments())[0] <= 3
    assert vague(page_texts())[1] == []
    assert vague(list(errors()))[0] <= 1
