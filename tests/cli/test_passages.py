"""``ingest`` and ``ask``: files become passages, passages become answers. A killed ingest is continued."""

import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from batonflow import ScriptedLLM
from batonflow.llms import Settings
from batonflow.retrieval import StorageContext, VectorStoreIndex
from tests.cli.conftest import Cli
from tests.cli.projects import cli, start
from tests.retrieval.files import write_docx, write_pdf


@pytest.fixture
def notes(folder: Path) -> Path:
    """A folder of notes beside the project."""
    made = folder / "docs"
    (made / "more").mkdir(parents=True)
    (made / "tides.md").write_text("Tides follow the moon.")
    (made / "more" / "bread.txt").write_text("Bread needs yeast and time.")
    write_pdf(made / "salt.pdf", "Salt keeps fish.", "Salt melts ice.")
    return made


@pytest.fixture
def model() -> Iterator[ScriptedLLM]:
    """A model that is the default of the program."""
    Settings.llm = made = ScriptedLLM(["Tides follow the moon [1]. They are green [7]."])
    yield made
    Settings.llm = None


@pytest.mark.usefixtures("notes")
def test_files_are_read_once_and_passages_found_by_words(here: Cli) -> None:
    read = (0, "3 files: 3 new, 0 changed, 0 unchanged; 4 passages written\n", "")
    assert here("ingest", "docs", "notes.db") == read
    assert here("ingest", "docs", "notes.db")[1] == "3 files: 0 new, 0 changed, 3 unchanged; 0 passages written\n"
    assert here("ask", "notes.db", "What moves tides?") == (0, "[1] docs/tides.md\nTides follow the moon.\n\n", "")
    assert here("ask", "notes.db", "melting ice", "--top-k", "1")[1] == "[1] docs/salt.pdf, page 2\nSalt melts ice.\n\n"
    code, output, _ = here("ask", "notes.db", "yeast", "--json")
    [source] = json.loads(output)["sources"]
    assert (code, source["number"], source["source"]) == (0, 1, "docs/more/bread.txt")
    assert here("ask", "notes.db", "glacier") == (1, "", "the file has no passage with words of the question\n")


@pytest.mark.usefixtures("notes")
def test_a_model_answers_with_numbered_sources_and_checked_citations(here: Cli, model: ScriptedLLM) -> None:
    here("ingest", "docs", "notes.db")
    code, output, errors = here("ask", "notes.db", "What moves the tides?")
    assert (code, output) == (0, "Tides follow the moon [1]. They are green [7].\n\n[1] docs/tides.md\n")
    assert errors == "no passage supports [7]: check it\n"
    Settings.llm = ScriptedLLM(["Salt melts ice."])
    answer = "Salt melts ice.\n\n[1] docs/salt.pdf, page 2\n[2] docs/salt.pdf, page 1\n"
    assert here("ask", "notes.db", "salt and ice")[1] == answer  # without a citation all sources are listed
    assert "Tides follow the moon." in str(model.requests[0].messages[-1].content)


def test_progress_and_failures_are_told(here: Cli, notes: Path) -> None:
    (notes / "junk.txt").write_bytes(b"\0\1")
    code, output, errors = here("ingest", "docs", "notes.db", "--batch", "2")
    assert (code, output) == (0, "4 files: 3 new, 0 changed, 0 unchanged, 1 left out; 4 passages written\n")
    assert errors.splitlines()[0] == "2 of 4 files"
    assert errors.splitlines()[1].startswith("left out: ")
    assert "junk.txt has binary data instead of text" in errors
    counts = json.loads(here("ingest", "docs", "notes.db", "--json")[1])
    assert (counts["unchanged"], counts["failed"]) == (3, 1)
    assert here("ingest", "docs", "other.db", "--exclude", "*.txt", "--exclude", "more")[1].startswith("2 files: 2 new")
    assert here("ingest", "docs/tides.md", "one.db")[1].startswith("1 file: 1 new")
    assert here("ingest", "docs/junk.txt", "junk.db")[0] == 1


def test_a_file_for_which_a_library_is_missing_is_left_out_and_the_code_tells_it(
    here: Cli, notes: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_docx(notes / "contract.docx")
    monkeypatch.setitem(sys.modules, "docx", None)
    code, output, errors = here("ingest", "docs", "notes.db")
    assert (code, output) == (1, "4 files: 3 new, 0 changed, 0 unchanged, 1 left out; 4 passages written\n")
    left_out, advice = errors.splitlines()
    assert left_out.startswith("left out: ")
    assert "contract.docx: DocxReader needs docx, which is not installed: pip install" in left_out
    assert advice.startswith("1 file left out, as a library is missing: pip install")
    assert "readers]" in advice


def test_indexes_and_copies_that_sphinx_generates_are_left_aside(here: Cli, folder: Path) -> None:
    site = folder / "site"
    made = ["genindex.html", "genindex-A.html", "searchindex.js", "_sources/api/tides.rst.txt", "_static/theme.js"]
    pages = ["docs/index.html", "docs/api/search.html", "own/_sources/tides.txt", "own/search.html"]
    for name in (*pages, *(f"docs/{one}" for one in made)):
        (site / name).parent.mkdir(parents=True, exist_ok=True)
        (site / name).write_text("<p>Tides follow the moon.</p>")
    told = "5 generated files left out, such as tides.rst.txt: --generated reads them\n"
    counts = "4 files: 4 new, 0 changed, 0 unchanged; 4 passages written\n"
    assert here("ingest", "site", "notes.db") == (0, counts + told, "")
    assert here("ingest", "site", "notes.db", "--generated")[1].startswith("9 files: 5 new, 0 changed, 4 unchanged")
    assert here("ingest", "site/docs/genindex.html", "one.db")[1].startswith("1 file: 1 new")
    assert json.loads(here("ingest", "site", "other.db", "--json")[1])["total"] == 4


def test_libraries_and_names_of_files_write_nothing_of_their_own_to_the_terminal(folder: Path) -> None:
    (folder / "docs").mkdir()
    broken = write_pdf(folder / "docs" / "broken.pdf", "text").read_bytes()
    (folder / "docs" / "broken.pdf").write_bytes(broken.replace(b"endobj", b"end\x1b[31m").replace(b"startxref", b"st"))
    (folder / "docs" / "\x1b[31mred.txt").write_bytes(b"\0")
    code, output, errors = cli(folder, "ingest", "docs", "notes.db")
    assert (code, output.partition(":")[0]) == (1, "2 files")
    assert [line[:10] for line in errors.splitlines()] == ["left out: "] * 2
    assert "\x1b" not in output + errors


@pytest.mark.usefixtures("notes")
@pytest.mark.parametrize(
    ("words", "told"),
    [
        (("ingest", "nowhere", "notes.db"), "there is no folder or file nowhere"),
        (("ingest", "docs", "no/notes.db"), "there is no folder no for no/notes.db"),
        (("ingest", "docs", "flows.py"), "flows.py is not a file of nodes"),
        (("ingest", "docs", "notes.db", "--encoding", "klingon"), "unknown encoding: klingon"),
        (("ingest", "docs", "notes.db", "--exclude", "*"), "No files found in"),
        (("ingest", "docs", "notes.db", "--embed-model", "magic"), "'magic' is not an embedding model"),
        (("ask", "notes.db", "why"), "there is no file notes.db: `batonflow ingest FOLDER notes.db` makes it"),
        (("ask", "flows.py", "why"), "flows.py is not a file of nodes"),
        (("ask", "flows.py", " "), "the question is empty"),
        (("ask", "flows.py", "why", "--llm", "magic"), "'magic' names no model"),
    ],
)
def test_a_mistake_is_told_in_one_line(here: Cli, words: tuple[str, ...], told: str) -> None:
    code, output, errors = here(*words)
    assert (code, output, len(errors.splitlines())) == (2, "", 1)
    assert told in errors


@pytest.mark.usefixtures("notes")
def test_the_index_may_be_named(here: Cli, folder: Path) -> None:
    storage = StorageContext.from_defaults(path=folder / "notes.db")
    for name in ("one", "two"):
        VectorStoreIndex([], storage_context=storage, index_id=name)
    code, _, errors = here("ingest", "docs", "notes.db")
    assert (code, "has several indexes: name one with --index, of one, two" in errors) == (2, True)
    assert here("ingest", "docs", "notes.db", "--index", "two")[0] == 0
    assert here("ask", "notes.db", "moon", "--index", "two")[0] == 0
    assert here("ask", "notes.db", "moon", "--index", "one")[0] == 1
    assert "has no index three; it has one, two" in here("ask", "notes.db", "moon", "--index", "three")[2]


class Embeddings(BaseHTTPRequestHandler):
    """A server of embeddings: how often a text names the moon, and how often bread."""

    def do_POST(self) -> None:
        asked = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        vectors = [[text.lower().count("moon") + 0.1, text.lower().count("bread") + 0.1] for text in asked["input"]]
        data = [{"object": "embedding", "index": at, "embedding": one} for at, one in enumerate(vectors)]
        usage = {"prompt_tokens": 1, "total_tokens": 1}
        told = json.dumps({"object": "list", "data": data, "model": asked["model"], "usage": usage}).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(told)))
        self.end_headers()
        self.wfile.write(told)

    def log_message(self, *_: object) -> None:
        """Say nothing."""


@pytest.mark.usefixtures("notes")
def test_an_embedding_model_searches_by_vectors_too(here: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    with ThreadingHTTPServer(("127.0.0.1", 0), Embeddings) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        monkeypatch.setenv("OPENAI_BASE_URL", f"http://127.0.0.1:{server.server_port}/v1")
        monkeypatch.setenv("OPENAI_API_KEY", "none")
        model = ("--embed-model", "openai:small")
        assert here("ingest", "docs", "notes.db", *model)[0] == 0
        _, output, _ = here("ask", "notes.db", "bread?", "--top-k", "1", *model)
        assert output.startswith("[1] docs/more/bread.txt")
        assert here("ask", "notes.db", "moon")[1].startswith("[1] docs/tides.md")  # by words
        code, _, errors = here("ingest", "docs", "notes.db")
        assert (code, "made with OpenAIEmbedding small, not words alone: name the same with --embed" in errors) == (
            2,
            True,
        )
        server.shutdown()


def many(folder: Path, count: int) -> None:
    (folder / "many").mkdir()
    for number in range(count):
        (folder / "many" / f"{number:04}.txt").write_text(f"The tide number {number}.")


def until(process: "subprocess.Popen[str]", done: int) -> None:
    """Read the progress up to a number of files."""
    assert process.stderr is not None
    while int((line := process.stderr.readline()).split()[0]) < done:
        assert line


def texts_in(path: Path) -> list[str]:
    store = StorageContext.from_defaults(path=path).store
    [index] = store.indexes()
    assert len(store.members(index.number)) == len(store.nodes())
    return sorted(node.get_content() for node in store.nodes())


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGINT])
def test_an_ingest_that_is_killed_or_interrupted_is_continued(folder: Path, number: signal.Signals) -> None:
    many(folder, 600)
    process = start(folder, "ingest", "many", "notes.db", "--batch", "3")
    until(process, 90)
    os.kill(process.pid, number)
    _, errors = process.communicate(timeout=30)
    if number == signal.SIGINT:
        assert process.returncode == 130
        *progress, last = errors.splitlines()
        assert last == "interrupted; the same command continues"
        assert all(line.endswith(" of 600 files") for line in progress)
    before = len(texts_in(folder / "notes.db"))
    assert 90 <= before < 600
    code, output, _ = cli(folder, "ingest", "many", "notes.db", "--json")
    counts = json.loads(output)
    assert (code, counts["added"] + counts["unchanged"], counts["failed"]) == (0, 600, 0)
    assert counts["unchanged"] >= 90
    assert texts_in(folder / "notes.db") == sorted(f"The tide number {number}." for number in range(600))


def test_two_commands_at_a_time_make_one_index(folder: Path) -> None:
    many(folder, 60)
    (folder / "docs").mkdir()
    (folder / "docs" / "one.txt").write_text("Salt keeps fish.")
    writers = [start(folder, "ingest", source, "notes.db", "--batch", "5") for source in ("many", "many", "docs")]
    for one in writers:
        _, errors = one.communicate(timeout=60)
        assert (one.returncode, "left out" in errors) == (0, False), errors
    expected = sorted([*(f"The tide number {number}." for number in range(60)), "Salt keeps fish."])
    assert texts_in(folder / "notes.db") == expected
