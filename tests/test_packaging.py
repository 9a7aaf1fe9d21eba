"""The wheel holds the whole source, and works beside other people's ``agents`` and ``tools``."""

import sys
import tarfile
import zipfile
from pathlib import Path

import pytest

import batonflow
from tests.wheel import ROOT, build_wheel, environment, run, tracked_files

LINKS = ("agents", "llms", "tools", "workflow_core")


def _source_files() -> set[str]:
    """The files that the wheel must hold, as paths inside it."""
    kinds = (".py", ".pyi", "py.typed", "batonflow/AGENTS.md", "batonflow/llms.txt")
    return {name for name in tracked_files() if name.startswith("batonflow/") and name.endswith(kinds)}


PAGE = "batonflow/server/page/page.html"
"""Built into the wheel from the modules in ``src/``."""


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build_wheel(tmp_path_factory.mktemp("wheel"))


@pytest.mark.packaging
def test_the_wheel_holds_every_source_file_and_no_other(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        held = {name for name in archive.namelist() if ".dist-info/" not in name}
    assert held == _source_files() | {PAGE}


@pytest.mark.packaging
def test_the_sdist_holds_the_source_and_no_links(wheel: Path) -> None:
    (sdist,) = wheel.parent.glob("*.tar.gz")
    with tarfile.open(sdist) as archive:
        members = archive.getmembers()
    names = {member.name.split("/", 1)[1] for member in members if "/" in member.name}
    assert not [member.name for member in members if member.issym()]
    assert _source_files() <= names
    assert {"LICENSE", "README.md", "pyproject.toml"} <= names
    # Some tests alone could not run without the others, which setuptools leaves out.
    assert not [name for name in names if name.startswith("tests/")]


@pytest.mark.parametrize("name", LINKS)
def test_the_links_lead_to_the_source_folders(name: str) -> None:
    link = ROOT / name
    # A checkout without symbolic links has the target as text.
    assert link.resolve() == ROOT / "batonflow" / name if link.is_symlink() else link.read_text() == f"batonflow/{name}"


_PROBE = """
import batonflow, batonflow.workflow_core, batonflow.agents, batonflow.tools, batonflow.llms
from batonflow import Event, Workflow, step
assert "site-packages" in batonflow.workflow_core.__file__, batonflow.workflow_core.__file__
"""


@pytest.mark.packaging
def test_the_wheel_works_beside_folders_called_agents_and_tools(wheel: Path, tmp_path: Path) -> None:
    python, _ = environment(tmp_path / "env", wheel)
    program = tmp_path / "program"
    for name in ("agents", "tools", "llms", "workflow_core"):
        (program / name).mkdir(parents=True)
        (program / name / "__init__.py").write_text(f"OWNER = 'the user: {name}'\n")
    (program / "main.py").write_text(
        _PROBE + "import agents, tools, llms, workflow_core\n"
        "print(agents.OWNER, tools.OWNER, llms.OWNER, workflow_core.OWNER, sep=', ')\n"
    )
    assert run(python, "main.py", cwd=program).strip() == (
        "the user: agents, the user: tools, the user: llms, the user: workflow_core"
    )


@pytest.mark.packaging
@pytest.mark.timeout(300)
def test_the_wheel_works_beside_openai_agents(wheel: Path, tmp_path: Path) -> None:
    python, site = environment(tmp_path / "env", "openai-agents", wheel)
    # Without its own dependencies openai-agents cannot be imported; where `agents` is found shows whose it is.
    where = "import importlib.util; print(importlib.util.find_spec('agents').origin)"
    found = run(python, "-c", _PROBE + where, cwd=tmp_path)
    assert Path(found.strip()) == site / "agents" / "__init__.py"


@pytest.mark.packaging
def test_pytest_loads_the_plugin_of_the_wheel(wheel: Path, tmp_path: Path) -> None:
    python, _ = environment(tmp_path / "env", wheel)
    assert "--live" in run(python, "-m", "pytest", "--help", cwd=tmp_path)
    assert "cases(*folders)" in run(python, "-m", "pytest", "--markers", cwd=tmp_path)


@pytest.mark.parametrize("name", batonflow.__all__)
def test_every_public_name_resolves(name: str) -> None:
    assert getattr(batonflow, name) is not None


def test_the_public_face_stays_small_and_says_what_it_lacks() -> None:
    assert len(batonflow.__all__) <= 60
    assert len(set(batonflow.__all__)) == len(batonflow.__all__)
    assert set(batonflow.__all__) <= set(dir(batonflow))
    with pytest.raises(AttributeError, match="module 'batonflow' has no attribute 'Nonsense'"):
        batonflow.Nonsense  # noqa: B018


def test_importing_batonflow_loads_nothing_else() -> None:
    loaded = run(
        sys.executable,
        "-c",
        "import sys, batonflow; print(*[name for name in sys.modules if name.startswith('batonflow.')])",
        cwd=ROOT,
    )
    assert loaded.split() == ["batonflow._moved"]
