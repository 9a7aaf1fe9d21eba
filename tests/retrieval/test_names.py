"""The public names: loaded when they are used, with the extra that they need."""

import subprocess
import sys

import pytest

from batonflow import retrieval

WITHOUT = """
import sys
sys.modules["numpy"] = None
from batonflow.retrieval import Document, LLMRerank
from batonflow.retrieval import VectorStoreIndex
"""


@pytest.mark.parametrize("name", retrieval.__all__)
def test_each_name_is_there(name: str) -> None:
    assert name in {"Settings", *ALIASES} or getattr(retrieval, name).__name__ == name


ALIASES = {"BM25Retriever", "ExactMatchFilter", "ListIndex", "SimpleNodeParser", "StreamingAgentChatResponse"}


def test_the_package_alone_loads_neither_numpy_nor_an_index() -> None:
    program = (
        "import sys, batonflow.retrieval; print('numpy' in sys.modules, 'batonflow.retrieval.index' in sys.modules)"
    )
    assert subprocess.check_output([sys.executable, "-c", program], text=True) == "False False\n"


def test_without_the_extra_the_error_names_it() -> None:
    done = subprocess.run([sys.executable, "-c", WITHOUT], capture_output=True, text=True, check=False)
    assert "ImportError: VectorStoreIndex needs numpy, which is not installed: pip install" in done.stderr
    assert "retrieval]" in done.stderr


@pytest.mark.parametrize("name", ["KnowledgeGraphIndex", "PropertyGraphIndex", "ServiceContext", "RankGPTRerank"])
def test_a_name_that_is_not_offered_says_the_way_instead(name: str) -> None:
    with pytest.raises(ImportError, match=f"^{name} is not offered: "):
        exec(f"from batonflow.retrieval import {name}")


def test_an_unknown_name_is_missing_as_in_other_packages() -> None:
    with pytest.raises(ImportError, match="cannot import name 'nothing'"):
        exec("from batonflow.retrieval import nothing")
    assert not hasattr(retrieval, "nothing")
