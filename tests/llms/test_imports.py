"""What importing costs, and where names are found."""

import importlib
import json
import re
import subprocess
import sys
from typing import Any

import pytest

import batonflow.llms
from batonflow.lazy import how_to_install
from batonflow.llms import MissingDependencyError
from batonflow.llms._vendor import aload, load

HEAVY = {"openai", "anthropic", "httpx", "httpx2", "tiktoken", "docstring_parser", "urllib.request", "genai_prices"}
USE = """
import asyncio, json, sys
import batonflow.llms, batonflow.tools
from batonflow.llms import ChatMessage, OpenAI, Anthropic, ScriptedLLM, tool_call
from batonflow.tools import run_tool, tool

@tool
def add(a: int, b: int) -> int:
    "Add two numbers."
    return a + b

async def main() -> None:
    llm = ScriptedLLM([tool_call("add", a=2, b=40), "It is 42."])
    response = await llm.achat_with_tools([add], "What is 2 + 40?")
    call, = llm.get_tool_calls_from_response(response)
    await run_tool(add, call.tool_kwargs)
    OpenAI("gpt-test", api_key="k"), Anthropic("claude-test", api_key="k")

asyncio.run(main())
print(json.dumps(sorted(sys.modules)))
"""


def test_no_vendor_and_nothing_heavy_is_imported_before_it_is_needed() -> None:
    done = subprocess.run([sys.executable, "-c", USE], capture_output=True, text=True, check=True)
    loaded = set(json.loads(done.stdout))
    assert not HEAVY & loaded
    assert {"batonflow.llms.openai", "batonflow.tools.function"} <= loaded


@pytest.mark.parametrize("name", batonflow.llms.__all__)
def test_every_public_name_is_there(name: str) -> None:
    assert getattr(batonflow.llms, name) is not None
    assert name in dir(batonflow.llms)


def test_a_name_that_is_not_there_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="no attribute 'Nonsense'"):
        _ = batonflow.llms.Nonsense  # pyright: ignore[reportAttributeAccessIssue, reportUnknownVariableType, reportUnknownMemberType]


@pytest.mark.parametrize(
    ("path", "name"),
    [
        ("llms.llm", "LLM"),
        ("llms.llm", "ToolSelection"),
        ("llms.mock", "MockLLM"),
        ("llms.mock", "MockFunctionCallingLLM"),
        ("llms.function_calling", "FunctionCallingLLM"),
        ("llms.structured_llm", "StructuredLLM"),
        ("llms.openai", "OpenAI"),
        ("llms.prompts", "ChatMessage"),
    ],
)
def test_submodules_of_llamaindex_have_a_home(path: str, name: str) -> None:
    assert getattr(importlib.import_module(f"batonflow.{path}"), name) is getattr(batonflow.llms, name)


class TestVendors:
    async def test_a_missing_sdk_says_what_to_install(self) -> None:
        with pytest.raises(MissingDependencyError, match=re.escape(how_to_install("nosuch"))) as raised:
            await aload("nosuchsdk", "nosuch")
        assert isinstance(raised.value, ImportError)
        with pytest.raises(MissingDependencyError, match="pip install nosuchsdk"):
            load("nosuchsdk")

    def test_an_sdk_with_a_broken_dependency_is_not_called_missing(
        self, tmp_path: Any, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        (tmp_path / "brokensdk.py").write_text("import nosuchdependency\n")
        monkeypatch.syspath_prepend(tmp_path)
        with pytest.raises(ModuleNotFoundError, match="nosuchdependency") as raised:
            load("brokensdk")
        assert not isinstance(raised.value, MissingDependencyError)
