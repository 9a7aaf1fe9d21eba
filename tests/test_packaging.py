"""The wheel holds the whole source, and works beside other people's ``agents`` and ``tools``."""

import os
import subprocess
import sys
import tarfile
import tomllib
import venv
import zipfile
from pathlib import Path

import pydantic
import pytest

import batonflow

ROOT = Path(__file__).resolve().parent.parent
FOLDERS = ("agents", "llms", "tools", "workflow_core")


def _run(*command: str | Path, cwd: Path) -> str:
    done = subprocess.run(
        [str(part) for part in command],
        cwd=cwd,
        env={key: value for key, value in os.environ.items() if key != "PYTHONPATH"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, f"{command} failed:\n{done.stdout}\n{done.stderr}"
    return done.stdout


def _source_files() -> set[str]:
    """The files the wheel must hold, as paths inside it: what git tracks, or would track once added."""
    listed = _run("git", "ls-files", "--cached", "--others", "--exclude-standard", cwd=ROOT).splitlines()
    present = [name for name in listed if (ROOT / name).is_file() and not (ROOT / name).is_symlink()]
    source = {f"batonflow/{name}" for name in present if name.split("/")[0] in FOLDERS and name.endswith(".py")}
    return source | {name for name in present if name.startswith("batonflow/")}


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A wheel built from an unpacked sdist, as an installer would build it, from a copy of the tree."""
    to = tmp_path_factory.mktemp("dist")
    tree = to / "tree"
    for name in _run("git", "ls-files", "--cached", "--others", "--exclude-standard", cwd=ROOT).splitlines():
        origin, copy = ROOT / name, tree / name
        copy.parent.mkdir(parents=True, exist_ok=True)
        if origin.is_symlink():
            copy.symlink_to(origin.readlink())
        elif origin.is_file():
            copy.write_bytes(origin.read_bytes())
    _run(sys.executable, "-m", "build", "--no-isolation", "--outdir", to / "out", tree, cwd=to)
    (built,) = (to / "out").glob("*.whl")
    return built


@pytest.mark.packaging
def test_the_wheel_holds_every_source_file_and_no_other(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        held = {name for name in archive.namelist() if ".dist-info/" not in name}
    assert held == _source_files()


@pytest.mark.packaging
def test_the_sdist_holds_the_folders_and_no_links(wheel: Path) -> None:
    (sdist,) = wheel.parent.glob("*.tar.gz")
    with tarfile.open(sdist) as archive:
        members = archive.getmembers()
    names = {member.name.split("/", 1)[1] for member in members if "/" in member.name}
    assert not [member.name for member in members if member.issym()]
    assert {name.removeprefix("batonflow/") for name in _source_files()} - {"__init__.py", "py.typed"} <= {
        name.removeprefix("batonflow/") for name in names
    }
    assert {"LICENSE", "README.md", "pyproject.toml"} <= names


def test_every_package_of_the_tree_is_listed_for_the_build() -> None:
    listed = set(tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["setuptools"]["packages"])
    in_tree = {name.rpartition("/")[0].replace("/", ".") for name in _source_files() if name.endswith(".py")}
    assert listed == in_tree


def test_the_links_lead_to_the_source_folders() -> None:
    for folder in FOLDERS:
        link = ROOT / "batonflow" / folder
        assert link.is_symlink()
        assert link.resolve() == ROOT / folder


def _environment(at: Path, *distributions: str | Path) -> tuple[Path, Path]:
    """Make an environment, install ``distributions`` into it, and return its Python and its site-packages.

    Their dependencies are read from the running environment, so that nothing else has to be fetched. Editable
    installs over there stay unseen: they announce themselves in .pth files, which are not followed from here.
    """
    venv.create(at, with_pip=False, symlinks=True)
    python = at / "bin" / "python"
    (site,) = at.glob("lib/python*/site-packages")
    pip = (sys.executable, "-m", "pip", "--python", python, "--quiet", "--disable-pip-version-check")
    _run(*pip, "install", "--no-deps", *distributions, cwd=at)
    assert pydantic.__file__ is not None
    (site / "dependencies.pth").write_text(f"{Path(pydantic.__file__).parent.parent}\n")
    return python, site


_PROBE = """
import batonflow, batonflow.workflow_core, batonflow.agents, batonflow.tools, batonflow.llms
from batonflow import Event, Workflow, step
assert "site-packages" in batonflow.workflow_core.__file__, batonflow.workflow_core.__file__
"""


@pytest.mark.packaging
def test_the_wheel_works_beside_folders_called_agents_and_tools(wheel: Path, tmp_path: Path) -> None:
    python, _ = _environment(tmp_path / "env", wheel)
    program = tmp_path / "program"
    for name in ("agents", "tools", "llms", "workflow_core"):
        (program / name).mkdir(parents=True)
        (program / name / "__init__.py").write_text(f"OWNER = 'the user: {name}'\n")
    (program / "main.py").write_text(
        _PROBE + "import agents, tools, llms, workflow_core\n"
        "print(agents.OWNER, tools.OWNER, llms.OWNER, workflow_core.OWNER, sep=', ')\n"
    )
    assert _run(python, "main.py", cwd=program).strip() == (
        "the user: agents, the user: tools, the user: llms, the user: workflow_core"
    )


@pytest.mark.packaging
@pytest.mark.timeout(300)
def test_the_wheel_works_beside_openai_agents(wheel: Path, tmp_path: Path) -> None:
    python, site = _environment(tmp_path / "env", "openai-agents", wheel)
    # Without its own dependencies openai-agents cannot be imported; where `agents` is found shows whose it is.
    where = "import importlib.util; print(importlib.util.find_spec('agents').origin)"
    found = _run(python, "-c", _PROBE + where, cwd=tmp_path)
    assert Path(found.strip()) == site / "agents" / "__init__.py"


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
    loaded = _run(
        sys.executable,
        "-c",
        "import sys, batonflow; print(*[name for name in sys.modules if name.startswith('batonflow.')])",
        cwd=ROOT,
    )
    assert loaded.split() == []
