"""Readers of single files: text, PDF, Word, PowerPoint, HTML, CSV, notebooks and JSON."""

import codecs
import csv
import io
import json
import re
import threading
import warnings
import zipfile
from collections.abc import Callable, Generator, Iterable, Mapping
from importlib import import_module
from os import PathLike
from pathlib import Path
from typing import Any, cast

from batonflow.instrumentation.logs import logger_named
from batonflow.lazy import how_to_install
from batonflow.nodes import Document
from batonflow.threads import in_thread

__all__ = [
    "BaseReader",
    "CSVReader",
    "DocxReader",
    "HTMLReader",
    "IPYNBReader",
    "JSONReader",
    "PDFReader",
    "PptxReader",
    "ReaderError",
    "TextReader",
]

logger = logger_named("batonflow.retrieval")

FilePath = str | PathLike[str]

_BEGIN_BYTES = 8192
_MARKS = {codecs.BOM_UTF8: "utf-8-sig", codecs.BOM_UTF16_LE: "utf-16", codecs.BOM_UTF16_BE: "utf-16"}
_MAX_UNPACKED_BYTES = 2**30
_BRACKETS = re.compile(r"[{}\[\],\s]*")
_BREAK = "\0"
_SPACES = re.compile(r"[ \t\r\n\f]+")
_SPACES_AROUND_LINES = re.compile(r"[ \t]+\n|\n (?=\S)")
_BLOCK_TAGS = [
    "address", "article", "aside", "blockquote", "br", "caption", "center", "dd", "details", "dialog", "div",
    "dl", "dt", "fieldset", "figcaption", "figure", "footer", "form", "h1", "h2", "h3", "h4", "h5", "h6",
    "header", "hr", "li", "main", "nav", "ol", "option", "p", "pre", "section", "summary", "table", "tbody",
    "tfoot", "thead", "tr", "ul",
]  # fmt: skip
_HIDDEN_TAGS = ["script", "style", "noscript", "template", "title", "nav", "footer"]
_HIDDEN_ROLES = ["navigation", "search", "contentinfo"]
_DELIMITERS = ",;\t|"
_changing_filters = threading.Lock()
"""Held while the filters of warnings are changed, which all threads share."""


class ReaderError(ValueError):
    """A file cannot be read; the message names the file and the reason."""


class BaseReader:
    """The base class of readers. Subclasses write ``load_data`` or ``lazy_load_data``.

    Example:
        >>> class Lines(BaseReader):
        ...     def lazy_load_data(self, file, extra_info=None):
        ...         yield from (Document(text=line) for line in open(file))
    """

    def lazy_load_data(self, *args: Any, **kwargs: Any) -> Iterable[Document]:
        """Return an iterator over the documents."""
        if type(self).load_data is BaseReader.load_data:
            raise NotImplementedError(f"{type(self).__name__} has no load_data")
        return iter(self.load_data(*args, **kwargs))

    def load_data(self, *args: Any, **kwargs: Any) -> list[Document]:
        """Return the documents."""
        return list(self.lazy_load_data(*args, **kwargs))

    async def aload_data(self, *args: Any, **kwargs: Any) -> list[Document]:
        """Return the documents; they are read in a thread."""
        return await in_thread(lambda: self.load_data(*args, **kwargs))


class TextReader(BaseReader):
    """Reads a file of text as one document. A byte order mark replaces the encoding.

    Args:
        encoding: The encoding of the file.
        errors: The treatment of bytes that do not fit: ``ignore`` leaves them out with a warning, ``strict`` fails.

    Example:
        >>> TextReader(encoding="latin-1").load_data("notes.txt")
    """

    def __init__(self, encoding: str = "utf-8", errors: str = "ignore") -> None:
        self.encoding, self.errors = encoding, errors

    def load_data(self, file: FilePath, extra_info: Mapping[str, Any] | None = None) -> list[Document]:
        """Return the document of a file.

        Raises:
            ReaderError: The file has binary data, or ``errors="strict"`` and another encoding.
        """
        return [_document(self.text_of(Path(file)), extra_info)]

    def text_of(self, file: Path) -> str:
        """Return the text of a file; see ``load_data``."""
        data = file.read_bytes()
        encoding = next((name for mark, name in _MARKS.items() if data.startswith(mark)), self.encoding)
        if "16" not in encoding and "32" not in encoding and b"\0" in data[:_BEGIN_BYTES]:
            raise ReaderError(f"{file} has binary data instead of text: exclude it, or give a reader for {file.suffix}")
        try:
            text = data.decode(encoding)
        except UnicodeDecodeError as error:
            if self.errors == "strict":
                raise ReaderError(f"{file} is not text in {encoding} ({error.reason}): give its encoding") from error
            logger.warning("%s has bytes that are not %s: errors=%r is applied", file, encoding, self.errors)
            text = data.decode(encoding, self.errors)
        return text.replace("\r\n", "\n")


class PDFReader(BaseReader):
    """Reads a PDF, with a document for each page that has text.

    Args:
        password: The password of an encrypted file.
        return_full_document: Whether all pages make one document.

    Example:
        >>> for page in PDFReader().load_data("tides.pdf"):
        ...     print(page.metadata["page_label"], page.text)
    """

    def __init__(self, password: str | None = None, return_full_document: bool = False) -> None:
        self.password, self.return_full_document = password, return_full_document

    def load_data(self, file: FilePath, extra_info: Mapping[str, Any] | None = None) -> list[Document]:
        """Return the documents of a file.

        Raises:
            ReaderError: The file is broken, encrypted with another password, or has pictures of pages alone.
        """
        library = _library("pypdf", self)
        try:
            reader = library.PdfReader(file, password=self.password)
            texts = [(str(label), page.extract_text()) for label, page in zip(reader.page_labels, reader.pages)]  # noqa: B905 - labels may be missing
        except (library.errors.FileNotDecryptedError, library.errors.WrongPasswordError) as error:
            raise ReaderError(f"{file} is encrypted: read it with PDFReader(password=...)") from error
        except OSError:
            raise
        except Exception as error:
            raise ReaderError(f"{file} is not a PDF that can be read: {error}") from error
        if not any(text.strip() for _, text in texts):
            raise ReaderError(f"{file} has no text: its {len(texts)} pages may be pictures, which are not read")
        if self.return_full_document:
            return [_document("\n".join(text for _, text in texts), extra_info)]
        return [_document(text, extra_info, page_label=label) for label, text in texts if text.strip()]


class DocxReader(BaseReader):
    """Reads a Word file: its paragraphs and tables in their order.

    Example:
        >>> DocxReader().load_data("contract.docx")
    """

    def load_data(self, file: FilePath, extra_info: Mapping[str, Any] | None = None) -> list[Document]:
        """Return the document of a file.

        Raises:
            ReaderError: The file is broken.
        """
        opened = _office_file(_library("docx", self).Document, file, "Word file")
        parts = [_table(one) if hasattr(one, "rows") else one.text for one in opened.iter_inner_content()]
        return [_document("\n".join(part for part in parts if part.strip()), extra_info)]


class PptxReader(BaseReader):
    """Reads a PowerPoint file, with a document for each slide: its texts, tables and notes.

    Example:
        >>> for slide in PptxReader().load_data("talk.pptx"):
        ...     print(slide.metadata["page_label"], slide.text)
    """

    def load_data(self, file: FilePath, extra_info: Mapping[str, Any] | None = None) -> list[Document]:
        """Return the documents of a file.

        Raises:
            ReaderError: The file is broken.
        """
        opened = _office_file(_library("pptx", self).Presentation, file, "PowerPoint file")
        found: list[Document] = []
        for number, slide in enumerate(opened.slides, 1):
            texts = list(_texts_of_shapes(slide.shapes))
            if slide.has_notes_slide and slide.notes_slide.notes_text_frame is not None:
                texts.append(slide.notes_slide.notes_text_frame.text)
            if text := "\n".join(one for one in texts if one.strip()):
                found.append(_document(text, extra_info, page_label=str(number)))
        return found


class HTMLReader(BaseReader):
    """Reads the text of a page of HTML. The title is in the metadata.

    Scripts, styles, marks of links beside headings, navigation and footers are left out. Of a page that marks its main
    part, only that is read.

    Example:
        >>> HTMLReader().load_data("index.html")
    """

    def load_data(self, file: FilePath, extra_info: Mapping[str, Any] | None = None) -> list[Document]:
        """Return the document of a file."""
        library = _library("bs4", self)
        with _changing_filters, warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of texts that look like a path or like XML
            page = library.BeautifulSoup(Path(file).read_bytes(), "html.parser")
        title = {} if page.title is None else {"title": " ".join(page.title.get_text().split())}
        marked = (page.find("main"), page.find(role="main"))
        main = next((one for one in marked if one is not None and one.get_text(strip=True)), page)
        for one in [*main(_HIDDEN_TAGS), *main(role=_HIDDEN_ROLES), *main("a", class_="headerlink")]:
            one.decompose()
        return [_document(_text_of_page(main), extra_info, **title)]


def _text_of_page(page: Any) -> str:
    """Return the text of a page, with a line for each paragraph, heading, item and row."""
    for one in page(_BLOCK_TAGS):
        one.insert_before(_BREAK)
        one.insert_after(_BREAK)
    for one in page(["td", "th"]):
        one.insert_after(" ")
    texts = [one for one in page.find_all(string=True) if type(one).__name__ == "NavigableString"]  # and not comments
    as_written = {id(one) for pre in page("pre") for one in pre.find_all(string=True)}
    pieces = [str(one) if id(one) in as_written else _SPACES.sub(" ", one) for one in texts]
    text = "".join(pieces).replace(_BREAK, "\n")
    return re.sub(r"\n{2,}", "\n", _SPACES_AROUND_LINES.sub("\n", text)).strip()


class CSVReader(BaseReader):
    """Reads a file of values; the sign between them is found out.

    Args:
        concat_rows: Whether all rows make one document; otherwise each row makes one.
        encoding: The encoding of the file.
        errors: As in ``TextReader``.

    Example:
        >>> CSVReader(concat_rows=False).load_data("stock.csv")
    """

    def __init__(self, concat_rows: bool = True, encoding: str = "utf-8", errors: str = "ignore") -> None:
        self.concat_rows = concat_rows
        self._text = TextReader(encoding, errors)

    def load_data(self, file: FilePath, extra_info: Mapping[str, Any] | None = None) -> list[Document]:
        """Return the documents of a file.

        Raises:
            ReaderError: The file has binary data or a value that is too long.
        """
        text = self._text.text_of(Path(file))
        try:
            dialect: Any = csv.Sniffer().sniff(text[:_BEGIN_BYTES], _DELIMITERS)
        except csv.Error:  # one column
            dialect = csv.excel
        try:
            rows = [", ".join(row) for row in csv.reader(io.StringIO(text, newline=""), dialect) if row]
        except csv.Error as error:
            raise ReaderError(f"{file} is not a file of values: {error}") from error
        if self.concat_rows:
            return [_document("\n".join(rows), extra_info)]
        return [_document(row, extra_info) for row in rows]


class IPYNBReader(BaseReader):
    """Reads a notebook: its texts, and its code between fences. Outputs are left out.

    Example:
        >>> IPYNBReader().load_data("analysis.ipynb")
    """

    def load_data(self, file: FilePath, extra_info: Mapping[str, Any] | None = None) -> list[Document]:
        """Return the document of a file.

        Raises:
            ReaderError: The file is not a notebook.
        """
        data = _json_of(TextReader().text_of(Path(file)), file)
        cells: Any = cast("dict[str, Any]", data).get("cells") if isinstance(data, dict) else None
        if not isinstance(cells, list):
            raise ReaderError(f"{file} is not a notebook: it has no cells")
        parts: list[str] = []
        for cell in cast("list[dict[str, Any]]", cells):
            source: Any = cell.get("source", "")
            text = "".join(cast("list[str]", source)) if isinstance(source, list) else str(source)
            if text.strip():
                parts.append(f"```\n{text}\n```" if cell.get("cell_type") == "code" else text)
        return [_document("\n\n".join(parts), extra_info)]


class JSONReader(BaseReader):
    """Reads a file of JSON as lines.

    Args:
        levels_back: So many names before a value are in its line; 0 for all. None keeps the form of JSON.
        collapse_length: A part whose JSON is not longer makes one line.
        ensure_ascii: Whether other characters are escaped.
        is_jsonl: Whether each line of the file is a document.
        clean_json: Whether lines with brackets alone are left out, without ``levels_back``.

    Example:
        >>> JSONReader(levels_back=0).load_data("config.json")
    """

    def __init__(
        self,
        levels_back: int | None = None,
        collapse_length: int | None = None,
        ensure_ascii: bool = False,
        is_jsonl: bool | None = False,
        clean_json: bool | None = True,
    ) -> None:
        self.levels_back, self.collapse_length = levels_back, collapse_length
        self.ensure_ascii, self.is_jsonl, self.clean_json = ensure_ascii, is_jsonl, clean_json

    def load_data(self, input_file: FilePath, extra_info: Mapping[str, Any] | None = None) -> list[Document]:
        """Return the documents of a file.

        Raises:
            ReaderError: The file is not JSON.
        """
        text = TextReader().text_of(Path(input_file))
        texts = [line for line in text.splitlines() if line.strip()] if self.is_jsonl else [text]
        return [_document(self._lines(_json_of(one, input_file)), extra_info) for one in texts]

    def _lines(self, data: Any) -> str:
        if self.levels_back is not None:
            return "\n".join(self._flat(data, []))
        if not self.clean_json:
            return json.dumps(data, ensure_ascii=self.ensure_ascii)
        lines = json.dumps(data, indent=0, ensure_ascii=self.ensure_ascii).split("\n")
        return "\n".join(line for line in lines if not _BRACKETS.fullmatch(line))

    def _flat(self, data: Any, names: list[str]) -> Generator[str]:
        if isinstance(data, dict | list):
            if self.collapse_length is not None:
                text = json.dumps(data, ensure_ascii=self.ensure_ascii)
                if len(text) <= self.collapse_length:
                    yield " ".join([*self._last(names), text])
                    return
            values = cast("dict[str, Any] | list[Any]", data)
            inside = values.items() if isinstance(values, dict) else ((None, one) for one in values)
            for name, one in inside:
                yield from self._flat(one, names if name is None else [*names, name])
            return
        text = json.dumps(data)[1:-1] if isinstance(data, str) and self.ensure_ascii else str(data)
        yield " ".join([*self._last(names), text])

    def _last(self, names: list[str]) -> list[str]:
        return names[-self.levels_back :] if self.levels_back else names


def _document(text: str, extra_info: Mapping[str, Any] | None, **more: Any) -> Document:
    return Document(text=text, metadata={**more, **(extra_info or {})})


def _library(module: str, reader: BaseReader) -> Any:
    """Import a library at its first use."""
    try:
        return import_module(module)
    except ModuleNotFoundError as error:
        if error.name != module:
            raise
        remedy = how_to_install("readers")
        raise ImportError(f"{type(reader).__name__} needs {module}, which is not installed: {remedy}") from error


def _json_of(text: str, file: FilePath) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        raise ReaderError(f"{file} is not JSON that can be read: {error}") from error


def _office_file(open_file: Callable[[str], Any], file: FilePath, kind: str) -> Any:
    try:
        with zipfile.ZipFile(file) as packed:
            size = sum(one.file_size for one in packed.infolist())
        if size > _MAX_UNPACKED_BYTES:
            raise ReaderError(f"{file} has {size} bytes when unpacked, more than {_MAX_UNPACKED_BYTES}")
        return open_file(str(file))
    except (ReaderError, OSError):
        raise
    except Exception as error:
        raise ReaderError(f"{file} is not a {kind} that can be read: {error}") from error


def _table(table: Any) -> str:
    return "\n".join(" | ".join(cell.text.replace("\n", " ") for cell in row.cells) for row in table.rows)


def _texts_of_shapes(shapes: Iterable[Any]) -> Generator[str]:
    for shape in shapes:
        if hasattr(shape, "shapes"):  # a group
            yield from _texts_of_shapes(shape.shapes)
        elif getattr(shape, "has_table", False):
            yield _table(shape.table)
        elif shape.has_text_frame:
            yield shape.text_frame.text
