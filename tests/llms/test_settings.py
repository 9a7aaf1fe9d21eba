"""Settings: the default model of a program, and the settings of retrieval."""

from collections.abc import Iterator
from types import SimpleNamespace

import pytest

from batonflow.agents import FunctionAgent
from batonflow.llms import LLMConfigurationError, MissingKeyError, ScriptedLLM, Settings
from batonflow.llms.settings import LLMSettings


@pytest.fixture(autouse=True)
def _as_before() -> Iterator[None]:
    yield
    Settings.llm = None


def test_there_is_no_default_model_until_one_is_set() -> None:
    assert Settings.llm is None
    Settings.llm = model = ScriptedLLM(["hello"])
    assert Settings.llm is model
    Settings.llm = None
    assert Settings.llm is None


def test_a_name_becomes_a_model_at_once() -> None:
    Settings.llm = "ollama:qwen3:8b"
    assert Settings.llm is not None
    assert Settings.llm.metadata.model_name == "qwen3:8b"
    assert repr(Settings) == "Settings(llm=Ollama)"


def test_what_is_wrong_with_an_agents_model_is_said_as_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    with pytest.raises(MissingKeyError, match=r"^openai gpt-5\.6: no key: set OPENAI_API_KEY"):
        FunctionAgent(llm="openai:gpt-5.6")
    with pytest.raises(LLMConfigurationError, match="names no model"):
        FunctionAgent(llm="gpt-5.6")


def test_a_model_that_cannot_be_is_refused_and_the_one_before_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    Settings.llm = model = ScriptedLLM(["hello"])
    with pytest.raises(LLMConfigurationError, match="names no model"):
        Settings.llm = "gpt-5.6"
    with pytest.raises(MissingKeyError, match="OPENAI_API_KEY"):
        Settings.llm = "openai:gpt-5.6"
    with pytest.raises(LLMConfigurationError, match=r"Settings\.llm takes a model or its name, .* got int"):
        Settings.llm = 5
    assert Settings.llm is model


@pytest.mark.parametrize("name", ["callback_manager", "service_context", "lm"])
def test_an_unknown_setting_is_named_whether_set_or_read(name: str) -> None:
    with pytest.raises(AttributeError, match=f"Settings has no '{name}'"):
        setattr(Settings, name, 1)
    with pytest.raises(AttributeError, match=f"Settings has no '{name}'"):
        getattr(Settings, name)
    assert not hasattr(Settings, name)


def test_settings_of_ones_own_are_apart() -> None:
    own = LLMSettings()
    own.llm = ScriptedLLM(["hello"])
    assert Settings.llm is None


PLAIN = ["embed_model", "tokenizer", "prompt_helper", "context_window", "num_output"]


@pytest.mark.parametrize("name", PLAIN)
def test_a_setting_of_retrieval_is_kept_as_it_is(name: str) -> None:
    own = LLMSettings()
    assert getattr(own, name) is None
    value = [object()]
    setattr(own, name, value)
    assert getattr(own, name) == value


def test_the_sizes_of_chunks_have_defaults_that_fit_each_other() -> None:
    own = LLMSettings()
    assert (own.chunk_size, own.chunk_overlap) == (1024, 200)
    own.chunk_size = 100
    assert (own.chunk_size, own.chunk_overlap) == (100, 20)
    own.chunk_overlap = 50
    assert (own.chunk_size, own.chunk_overlap) == (100, 50)


def test_a_program_without_retrieval_has_no_parser(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(LLMSettings, "default_parser", None)
    assert (LLMSettings().node_parser, LLMSettings().transformations) == (None, None)


def test_the_parser_that_is_set_has_the_sizes_and_is_the_transformation() -> None:
    own, parser = LLMSettings(), SimpleNamespace(chunk_size=300, chunk_overlap=0)
    own.text_splitter = parser
    assert own.node_parser is own.text_splitter is parser
    assert own.transformations == [parser]
    assert (own.chunk_size, own.chunk_overlap) == (300, 0)
    own.chunk_size, own.chunk_overlap = 200, 10
    assert (parser.chunk_size, parser.chunk_overlap) == (200, 10)
