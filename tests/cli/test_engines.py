"""``run`` with a query engine or a chat engine: the question is a word of the command line."""

from pathlib import Path

import pytest

from tests.cli.conftest import Cli

ENGINE = """
from batonflow import ScriptedLLM
from batonflow.retrieval import Document, VectorStoreIndex

index = VectorStoreIndex.from_documents([Document(text="Tides follow the moon.")])
engine = index.as_query_engine(ScriptedLLM(["The moon does."]), response_mode="compact")
chat = index.as_chat_engine("context", ScriptedLLM(["The moon does, I say."]))
plain = index.as_query_engine(response_mode="context_only", similarity_top_k=1)
"""


@pytest.fixture
def engines(folder: Path) -> Path:
    (folder / "engine.py").write_text(ENGINE)
    return folder


@pytest.mark.usefixtures("engines")
@pytest.mark.parametrize(
    ("words", "answer"),
    [
        (("engine.py:engine", "What moves the tides?"), "The moon does."),
        (("engine.py:engine", "What", "moves", "the", "tides?"), "The moon does."),
        (("engine.py:engine", "query=What moves the tides?"), "The moon does."),
        (("engine.py:chat", "What moves the tides?"), "The moon does, I say."),
        (
            ("engine.py:chat", "query=Tides?", 'chat_history=[{"role": "user", "content": "Hi"}]'),
            "The moon does, I say.",
        ),
        (("engine.py:plain", "tides = moon?"), "Tides follow the moon."),
        (("engine.py:plain", "query=5 tides"), "Tides follow the moon."),
    ],
)
def test_a_question_is_answered(here: Cli, words: tuple[str, ...], answer: str) -> None:
    code, output, errors = here("run", *words)
    assert (code, errors) == (0, "")
    assert answer in output


@pytest.mark.usefixtures("engines")
def test_a_question_is_needed(here: Cli) -> None:
    code, output, errors = here("run", "engine.py:engine")
    assert (code, output, len(errors.splitlines())) == (2, "", 1)
    assert "query" in errors
    assert here("run", "engine.py:engine", "question=Why?")[0] == 2
