"""Every Python block of the README and of the guides runs, and prints what stands in a text block behind it."""

import json
import re
from pathlib import Path

import pytest

from tests.llms.loopback import Answer, loopback
from tests.promises.programs.running import ROOT, Forking, without_records

BLOCK = re.compile(r"^```python\n(.*?)^```\n(?:\n```text\n(.*?)^```\n)?", re.MULTILINE | re.DOTALL)


def blocks() -> list[object]:
    found: list[object] = []
    for page in [ROOT / "README.md", ROOT / "batonflow" / "AGENTS.md", *sorted(ROOT.glob("docs/**/*.md"))]:
        for number, match in enumerate(BLOCK.finditer(page.read_text()), start=1):
            found.append(pytest.param(match.group(1), match.group(2), id=f"{page.stem}-{number}"))
    return found


def stream(*deltas: dict[str, object], finish: str) -> list[bytes]:
    """An answer of a chat completions server."""
    parts = [{"choices": [{"index": 0, "delta": delta, "finish_reason": None}]} for delta in deltas]
    parts.append({"choices": [{"index": 0, "delta": {}, "finish_reason": finish}]})
    head = {"id": "1", "object": "chat.completion.chunk", "created": 1, "model": "m"}
    return [b"data: " + json.dumps({**head, **part}).encode() + b"\n\n" for part in parts] + [b"data: [DONE]\n\n"]


@pytest.mark.parametrize(("code", "printed"), blocks())
async def test_block(code: str, printed: str | None, tmp_path: Path, beside: Path, programs: Forking) -> None:
    program = tmp_path / "program.py"
    program.write_text(code)
    call = {"index": 0, "id": "c1", "type": "function", "function": {"name": "add", "arguments": '{"a": 2, "b": 40}'}}
    async with loopback() as server:
        # Blocks that name a vendor's model meet a server of this protocol: the adapter, its parser and the
        # wire are real.
        server.answers += [
            Answer(stream({"role": "assistant", "tool_calls": [call]}, finish="tool_calls")),
            Answer(stream({"role": "assistant", "content": "2 + 40 is 42."}, finish="stop")),
        ]
        exit_code, output, errors = await programs.run_program(
            program, tmp_path, beside, OPENAI_API_KEY="none", OPENAI_BASE_URL=f"{server.url}/v1"
        )
    assert (exit_code, without_records(errors)) == (0, "")
    if printed is not None:
        assert output == printed
