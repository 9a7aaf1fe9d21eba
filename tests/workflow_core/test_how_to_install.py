"""The command that brings an extra, wherever the package came from."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.promises.programs.running import ROOT


@pytest.mark.parametrize(
    ("direct_url", "told"),
    [
        (None, "pip install 'batonflow[otel]'"),
        ({"url": "https://example.org/batonflow.whl", "archive_info": {}}, "pip install 'batonflow[otel]'"),
        ({"url": "file:///src/my%20flow", "dir_info": {"editable": True}}, "pip install -e '/src/my flow[otel]'"),
        ({"url": "file:///src/flow", "dir_info": {}}, "pip install '/src/flow[otel]'"),
        ("no JSON", "pip install 'batonflow[otel]'"),
    ],
)
def test_it_names_what_the_package_was_installed_from(tmp_path: Path, direct_url: object, told: str) -> None:
    folder = tmp_path / "batonflow-0.0.1.dist-info"
    folder.mkdir()
    (folder / "METADATA").write_text("Metadata-Version: 2.1\nName: batonflow\nVersion: 0.0.1\n")
    if direct_url is not None:
        (folder / "direct_url.json").write_text(direct_url if isinstance(direct_url, str) else json.dumps(direct_url))
    code = "from batonflow.lazy import how_to_install; print(how_to_install('otel'))"
    path = f"{tmp_path}{os.pathsep}{ROOT}"
    done = subprocess.run(
        [sys.executable, "-c", code], env={"PYTHONPATH": path}, capture_output=True, text=True, check=True
    )
    assert done.stdout == f"{told}\n"
