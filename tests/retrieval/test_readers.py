"""Readers: the documents of each kind of file, and files that cannot be read."""

import asyncio
import json
import logging
import os
import sqlite3
import subprocess
import sys
import time
import zipfile
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from batonflow.nodes import Document, MetadataMode
from batonflow.retrieval import (
    BaseReader,
    CallableReader,
    CSVReader,
    DocxReader,
    HTMLReader,
    IPYNBReader,
    JSONReader,
    PDFReader,
    PptxReader,
    ReaderError,
    SimpleDirectoryReader,
    SQLReader,
    StringIterableReader,
    TextReader,
    file_readers,
)
from tests.retrieval.files import pdf_of, write_docx, write_pdf, write_pptx


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder with two files, a hidden one, and a folder in it."""
    made = tmp_path / "docs"
    (made / "more").mkdir(parents=True)
    (made / "a.txt").write_text("Tides follow the moon.")
    (made / "b.md").write_text("# Bread\nIt needs yeast.")
    (made / ".hidden").write_text("secret")
    (made / "more" / "c.txt").write_text("Salt keeps fish.")
    return made


def names(reader: SimpleDirectoryReader) -> list[str]:
    return [Path(one).name for one in reader.list_resources()]


# --- folders ----------------------------------------------------------------------------------------------------------


def test_a_folder_gives_a_document_for_each_file_with_facts_about_it(folder: Path) -> None:
    a, b = SimpleDirectoryReader(folder).load_data()
    assert (a.text, b.text) == ("Tides follow the moon.", "# Bread\nIt needs yeast.")
    today = time.strftime("%Y-%m-%d", time.gmtime((folder / "b.md").stat().st_mtime))
    assert b.metadata == {
        "file_path": str(folder / "b.md"),
        "file_name": "b.md",
        "file_type": "text/markdown",
        "file_size": 23,
        "creation_date": today,
        "last_modified_date": today,
    }
    assert b.get_metadata_str(MetadataMode.LLM) == b.get_metadata_str(MetadataMode.EMBED) == f"file_path: {folder}/b.md"


def test_options_choose_the_files(folder: Path) -> None:
    assert names(SimpleDirectoryReader(folder, recursive=True)) == ["a.txt", "b.md", "c.txt"]
    assert names(SimpleDirectoryReader(folder, exclude_hidden=False)) == [".hidden", "a.txt", "b.md"]
    assert names(SimpleDirectoryReader(folder, required_exts=[".MD"])) == ["b.md"]
    assert names(SimpleDirectoryReader(folder, recursive=True, exclude=["*.txt"])) == ["b.md"]
    assert names(SimpleDirectoryReader(folder, recursive=True, exclude=["more"])) == ["a.txt", "b.md"]
    assert names(SimpleDirectoryReader(folder, num_files_limit=1)) == ["a.txt"]
    (folder / "empty.txt").touch()
    assert names(SimpleDirectoryReader(folder, exclude_empty=True)) == ["a.txt", "b.md"]
    assert names(SimpleDirectoryReader(input_files=[folder / "b.md", folder / ".hidden"])) == ["b.md", ".hidden"]


def test_ids_may_be_the_paths(folder: Path) -> None:
    write_pdf(folder / "c.pdf", "one", "two")
    found = SimpleDirectoryReader(folder, filename_as_id=True).load_data()
    assert [one.id_ for one in found] == [
        f"{folder}/{name}" for name in ("a.txt", "b.md", "c.pdf_part_0", "c.pdf_part_1")
    ]


def test_metadata_and_readers_may_be_those_of_the_program(folder: Path) -> None:
    class Upper(BaseReader):
        def load_data(self, file: Any, extra_info: Any = None) -> list[Document]:
            return [Document(text=Path(file).read_text().upper(), metadata=extra_info)]

    reader = SimpleDirectoryReader(
        folder, file_extractor={".txt": Upper()}, file_metadata=lambda path: {"of": Path(path).stem}
    )
    assert [(one.text[:5], one.metadata) for one in reader.load_data()] == [
        ("TIDES", {"of": "a"}),
        ("# Bre", {"of": "b"}),
    ]
    assert SimpleDirectoryReader.load_file(folder / "a.txt", file_extractor={".txt": Upper()})[0].text[:5] == "TIDES"


def test_all_ways_to_read_give_the_same(folder: Path) -> None:
    reader = SimpleDirectoryReader(folder, filename_as_id=True)
    expected = reader.load_data()
    assert reader.load_data(num_workers=3) == expected
    assert asyncio.run(reader.aload_data()) == expected
    assert [one for part in reader.iter_data() for one in part] == expected
    assert [one for path in reader.list_resources() for one in reader.load_resource(path)] == expected
    info = reader.get_resource_info(str(folder / "a.txt"))
    assert (info["file_size"], info["last_modified_date"][10]) == (22, "T")


def test_a_folder_or_file_that_is_missing_is_refused(folder: Path, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="either `input_dir` or `input_files`"):
        SimpleDirectoryReader()
    with pytest.raises(ValueError, match="Directory nowhere does not exist"):
        SimpleDirectoryReader("nowhere")
    with pytest.raises(ValueError, match=r"no\.txt does not exist"):
        SimpleDirectoryReader(input_files=[folder / "no.txt"])
    (tmp_path / "empty" / "inside").mkdir(parents=True)
    with pytest.raises(ValueError, match=r"No files found in .*empty"):
        SimpleDirectoryReader(tmp_path / "empty", recursive=True)
    with pytest.raises(ValueError, match="No files found"):
        SimpleDirectoryReader(folder, required_exts=[".rst"])
    for pattern in ("/tmp/*", ""):
        with pytest.raises(ValueError, match=r"a pattern of exclude=.* cannot be used"):
            SimpleDirectoryReader(folder, exclude=[pattern])


def test_links_are_followed_inside_the_folder_alone(
    folder: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "secret.txt").write_text("secret")
    (folder / "out.txt").symlink_to(tmp_path / "secret.txt")
    (folder / "up").symlink_to(tmp_path)
    (folder / "loop").symlink_to(folder)
    (folder / "gone.txt").symlink_to(tmp_path / "gone")
    (folder / "self.txt").symlink_to("self.txt")
    (folder / "in.txt").symlink_to(folder / "more" / "c.txt")
    os.mkfifo(folder / "pipe.txt")
    assert names(SimpleDirectoryReader(folder, recursive=True)) == ["a.txt", "b.md", "in.txt", "c.txt"]
    assert "out.txt is a link out of" in caplog.text
    (tmp_path / "link").symlink_to(folder)
    assert names(SimpleDirectoryReader(tmp_path / "link")) == ["a.txt", "b.md", "in.txt"]


def test_a_name_that_is_not_utf_8_is_shown_with_escapes(folder: Path) -> None:
    Path(os.fsdecode(os.fsencode(folder) + b"/\xff.txt")).write_text("odd")
    found = SimpleDirectoryReader(folder, filename_as_id=True).load_data()[-1]
    assert (found.text, found.metadata["file_name"], found.id_) == ("odd", "\\xff.txt", f"{folder}/\\xff.txt")


# --- files that cannot be read ----------------------------------------------------------------------------------------


def broken_zip(file: Path) -> None:
    write_docx(file)
    file.write_bytes(file.read_bytes()[:-400])


def not_word(file: Path) -> None:
    with zipfile.ZipFile(file, "w") as made:
        made.writestr("hello.txt", "no parts")


def sparse(file: Path) -> None:
    with file.open("wb") as made:
        made.truncate(2 * 2**30)


FAULTS: dict[str, tuple[str, Any, str]] = {
    "encrypted": ("x.pdf", lambda file: write_pdf(file, "text", password="secret"), "is encrypted"),
    "broken PDF": ("x.pdf", lambda file: file.write_bytes(pdf_of("text")[:150]), "is not a PDF that can be read"),
    "not a PDF": ("x.pdf", lambda file: file.write_bytes(os.urandom(999)), "is not a PDF that can be read"),
    "empty PDF": ("x.pdf", lambda file: file.touch(), "is not a PDF that can be read"),
    "pictures": ("x.pdf", lambda file: write_pdf(file, ""), "has no text"),
    "binary": ("x.txt", lambda file: file.write_bytes(b"\x00\x01" * 99), "has binary data instead of text"),
    "picture": ("x.png", lambda file: file.write_bytes(b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR"), "has binary data"),
    "large": ("x.txt", sparse, "has 2147483648 bytes, more than max_bytes=268435456"),
    "broken Word": ("x.docx", broken_zip, "is not a Word file that can be read"),
    "not Word": ("x.docx", not_word, "is not a Word file that can be read"),
    "not PowerPoint": ("x.pptx", not_word, "is not a PowerPoint file that can be read"),
    "not JSON": ("x.json", lambda file: file.write_text("{"), "is not JSON that can be read"),
    "deep JSON": ("x.json", lambda file: file.write_text("[" * 10**6), "is not JSON that can be read"),
    "no notebook": ("x.ipynb", lambda file: file.write_text("[]"), "is not a notebook"),
    "odd cells": ("x.ipynb", lambda file: file.write_text('{"cells": [1]}'), "AttributeError"),
    "long value": ("x.csv", lambda file: file.write_text('a,"' + "x" * 200_000), "is not a file of values"),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_a_file_that_cannot_be_read_is_left_out_or_raised(
    folder: Path, caplog: pytest.LogCaptureFixture, fault: str
) -> None:
    name, make, told = FAULTS[fault]
    make(folder / name)
    with caplog.at_level(logging.WARNING, "batonflow.retrieval"):
        assert len(SimpleDirectoryReader(folder).load_data()) == 2
    assert told in caplog.text
    with pytest.raises(ReaderError, match=told) as caught:
        SimpleDirectoryReader(folder, raise_on_error=True).load_data()
    assert name in str(caught.value)
    with pytest.raises(ReaderError, match=told):
        SimpleDirectoryReader(folder).load_resource(str(folder / name))


def test_a_file_that_may_not_be_read_or_is_gone_is_left_out(folder: Path, caplog: pytest.LogCaptureFixture) -> None:
    reader = SimpleDirectoryReader(folder)
    (folder / "a.txt").unlink()
    assert len(reader.load_data()) == 1
    assert "a.txt cannot be read: No such file" in caplog.text
    program = (
        "import os, sys\n"
        "from batonflow.retrieval import SimpleDirectoryReader\n"
        "reader = SimpleDirectoryReader(sys.argv[1], raise_on_error=True)\n"
        "os.chmod(sys.argv[1] + '/b.md', 0)\n"
        "os.getuid() or os.setuid(65534)\n"  # the superuser may read everything
        "reader.load_data()\n"
    )
    done = subprocess.run([sys.executable, "-c", program, str(folder)], capture_output=True, text=True, check=False)
    assert "b.md cannot be read: Permission denied" in done.stderr


def test_a_zip_that_grows_without_measure_is_refused(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(file_readers, "_MAX_UNPACKED_BYTES", 10**6)
    with zipfile.ZipFile(folder / "x.docx", "w", zipfile.ZIP_DEFLATED) as made:
        made.writestr("word/document.xml", "a" * 10**7)
    with pytest.raises(ReaderError, match="has 10000000 bytes when unpacked"):
        SimpleDirectoryReader(folder, raise_on_error=True).load_data()


def test_text_in_another_encoding_loses_signs_with_a_warning_or_is_refused(
    folder: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (folder / "a.txt").write_bytes("Die Flut für alle.".encode("latin-1"))
    assert SimpleDirectoryReader(folder).load_data()[0].text == "Die Flut fr alle."
    assert "a.txt has bytes that are not utf-8" in caplog.text
    assert SimpleDirectoryReader(folder, encoding="latin-1").load_data()[0].text == "Die Flut für alle."
    with pytest.raises(ReaderError, match=r"is not text in utf-8 .*: give its encoding"):
        SimpleDirectoryReader(folder, errors="strict", raise_on_error=True).load_data()
    for encoding in ("utf-8-sig", "utf-16"):
        (folder / "a.txt").write_bytes("Flut für alle.\r\n".encode(encoding))
        assert TextReader().load_data(folder / "a.txt")[0].text == "Flut für alle.\n"


def test_a_library_that_is_missing_is_told_and_not_passed_over(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_pdf(folder / "x.pdf", "text")
    monkeypatch.setitem(sys.modules, "pypdf", None)
    with pytest.raises(ImportError, match=r"PDFReader needs pypdf, which is not installed: pip install .*readers\]"):
        SimpleDirectoryReader(folder).load_data()


# --- kinds of files ---------------------------------------------------------------------------------------------------


def test_a_pdf_gives_its_pages(tmp_path: Path) -> None:
    file = write_pdf(tmp_path / "x.pdf", "High water", "", "Low water")
    found = PDFReader().load_data(file, {"of": "me"})
    assert [(one.text, one.metadata) for one in found] == [
        ("High water", {"page_label": "1", "of": "me"}),
        ("Low water", {"page_label": "3", "of": "me"}),
    ]
    [whole] = PDFReader(return_full_document=True).load_data(file)
    assert whole.text == "High water\n\nLow water"
    secret = write_pdf(tmp_path / "y.pdf", "High water", password="secret")
    assert PDFReader(password="secret").load_data(secret)[0].text == "High water"
    with pytest.raises(ReaderError, match="is encrypted"):
        PDFReader(password="wrong").load_data(secret)


def test_a_word_file_gives_paragraphs_and_tables_in_their_order(tmp_path: Path) -> None:
    [found] = DocxReader().load_data(write_docx(tmp_path / "x.docx"))
    assert found.text == "The tide turns.\nport | hour\nBrest | six\nIt turns again."


def test_a_presentation_gives_its_slides_with_notes(tmp_path: Path) -> None:
    found = PptxReader().load_data(write_pptx(tmp_path / "x.pptx"))
    assert [(one.text, one.metadata["page_label"]) for one in found] == [
        ("Tides\nTell of the moon.", "1"),
        ("Brest | six", "3"),
    ]


def test_html_gives_the_text_that_is_seen(tmp_path: Path) -> None:
    page = "<title>On  tides</title><style>b {}</style><h1>Tides</h1><p>High <b>water</b>.</p><script>run()</script>"
    (tmp_path / "x.html").write_text(page)
    [found] = HTMLReader().load_data(tmp_path / "x.html")
    assert (found.text, found.metadata) == ("Tides\nHigh water.", {"title": "On tides"})
    page = (
        "<nav>Home</nav><h1>Tides<a class=headerlink href=#t>¶</a></h1><p role=search>Search</p><footer>2026</footer>"
    )
    (tmp_path / "x.html").write_text(page)
    assert HTMLReader().load_data(tmp_path / "x.html")[0].text == "Tides"
    (tmp_path / "x.html").write_text("<title>T</title><p>Aside</p><div role=main><p>Tides.</p></div><p>Below</p>")
    [found] = HTMLReader().load_data(tmp_path / "x.html")
    assert (found.text, found.metadata) == ("Tides.", {"title": "T"})
    (tmp_path / "x.html").write_text("<main></main><p>Tides.</p>")
    assert HTMLReader().load_data(tmp_path / "x.html")[0].text == "Tides."
    page = "<p>One\n <i>two</i>\n</p>tail<ul><li>a<li>b</ul><table><tr><td>c</td><td>d</td></tr></table>"
    page += "<pre>if x:\n    y</pre>e<br>f<!-- g -->"
    (tmp_path / "x.html").write_text(page)
    assert HTMLReader().load_data(tmp_path / "x.html")[0].text.split("\n") == [
        "One two",
        "tail",
        "a",
        "b",
        "c d",
        "if x:",
        "    y",
        "e",
        "f",
    ]
    (tmp_path / "x.html").write_bytes('<meta charset="latin-1">für'.encode("latin-1"))
    assert HTMLReader().load_data(tmp_path / "x.html")[0].text == "für"
    for odd in ("", "http://example.org/a", "<?xml version='1.0'?><a>b</a>", "<div>" * 10_000):
        (tmp_path / "x.html").write_text(odd)
        assert len(HTMLReader().load_data(tmp_path / "x.html")) == 1


def test_values_give_rows(tmp_path: Path) -> None:
    (tmp_path / "x.csv").write_text('port;hour\nBrest;"six, at night"\n')
    assert CSVReader().load_data(tmp_path / "x.csv")[0].text == "port, hour\nBrest, six, at night"
    assert [one.text for one in CSVReader(concat_rows=False).load_data(tmp_path / "x.csv")][1] == "Brest, six, at night"
    (tmp_path / "x.csv").write_text("Brest\nDover\n")
    assert CSVReader().load_data(tmp_path / "x.csv")[0].text == "Brest\nDover"


def test_a_notebook_gives_text_and_code(tmp_path: Path) -> None:
    cells = [
        {"cell_type": "markdown", "source": ["# Tides\n", "of Brest"]},
        {"cell_type": "code", "source": "print(1)", "outputs": [{"text": "1"}]},
        {"cell_type": "code", "source": []},
    ]
    (tmp_path / "x.ipynb").write_text(json.dumps({"cells": cells}))
    assert IPYNBReader().load_data(tmp_path / "x.ipynb")[0].text == "# Tides\nof Brest\n\n```\nprint(1)\n```"


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({}, '"a": {\n"b": [\n1,\n"c": "x y"\n"d": null'),
        ({"levels_back": 0}, "a b 1\na b c x y\nd None"),
        ({"levels_back": 2}, "a b 1\nb c x y\nd None"),
        ({"levels_back": 0, "collapse_length": 100}, '{"a": {"b": [1, {"c": "x y"}]}, "d": null}'),
        ({"clean_json": False}, '{"a": {"b": [1, {"c": "x y"}]}, "d": null}'),
    ],
)
def test_json_gives_lines(tmp_path: Path, options: dict[str, Any], text: str) -> None:
    (tmp_path / "x.json").write_text('{"a": {"b": [1, {"c": "x y"}]}, "d": null}')
    assert JSONReader(**options).load_data(tmp_path / "x.json")[0].text == text


def test_each_line_of_jsonl_is_a_document(tmp_path: Path) -> None:
    (tmp_path / "x.jsonl").write_text('{"a": 1}\n\n{"b": "ü"}\n')
    assert [one.text for one in JSONReader(is_jsonl=True).load_data(tmp_path / "x.jsonl")] == ['"a": 1', '"b": "ü"']
    assert [one.text for one in SimpleDirectoryReader(tmp_path).load_data()] == ["a 1", "b ü"]


# --- other sources ----------------------------------------------------------------------------------------------------


def test_texts_and_functions_give_documents() -> None:
    assert [one.text for one in StringIterableReader().load_data(["a", "b"])] == ["a", "b"]
    foreign = SimpleNamespace(page_content="c", metadata={"n": 1})

    async def later(*texts: str) -> list[str]:
        return list(texts)

    assert [one.text for one in CallableReader(lambda: ["a", Document(text="b"), foreign]).load_data()] == [
        "a",
        "b",
        "c",
    ]
    assert CallableReader(lambda text: text).load_data("one")[0].text == "one"
    assert [one.text for one in CallableReader(later).load_data("a", "b")] == ["a", "b"]
    assert [one.text for one in asyncio.run(CallableReader(later).aload_data("a", "b"))] == ["a", "b"]
    with pytest.raises(NotImplementedError, match="BaseReader has no load_data"):
        BaseReader().load_data()


def test_a_query_gives_a_document_for_each_row(tmp_path: Path) -> None:
    file = tmp_path / "shop #1.db"
    with sqlite3.connect(file) as shop:
        shop.execute("CREATE TABLE article (id, name, text)")
        shop.executemany("INSERT INTO article VALUES (?, ?, ?)", [(1, "salt", "Keeps fish."), (2, "yeast", None)])
    shop.close()
    reader = SQLReader(file)
    found = reader.load_data(
        "SELECT id, upper(name) AS name, text FROM article WHERE id < ? ORDER BY id", [9],
        metadata_columns=["id"], id_column="id",
    )  # fmt: skip
    assert [(one.id_, one.text, one.metadata) for one in found] == [
        ("1", "name: SALT\ntext: Keeps fish.", {"id": 1}),
        ("2", "name: YEAST\ntext: None", {"id": 2}),
    ]
    for harmful in (
        "DELETE FROM article",
        f"ATTACH '{tmp_path}/other.db' AS other",
        "PRAGMA user_version = 3",
        "SELECT 1; DROP TABLE article",
        "CREATE TEMP TABLE t (a)",
    ):
        with pytest.raises(ReaderError, match="cannot be read with this query"):
            reader.load_data(harmful)
    with pytest.raises(ReaderError, match="the query has no column price; it has id"):
        reader.load_data("SELECT id FROM article", metadata_columns=["price"])
    with pytest.raises(ReaderError, match="unable to open"):
        SQLReader(tmp_path / "none.db").load_data("SELECT 1")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["shop #1.db"]
