"""The reader of the files of a folder."""

import mimetypes
import os
from collections.abc import Callable, Generator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, cast

from batonflow.instrumentation.logs import logger_named
from batonflow.nodes import Document
from batonflow.retrieval.file_readers import (
    BaseReader,
    CSVReader,
    DocxReader,
    FilePath,
    HTMLReader,
    IPYNBReader,
    JSONReader,
    PDFReader,
    PptxReader,
    ReaderError,
    TextReader,
)
from batonflow.threads import in_thread

__all__ = ["SimpleDirectoryReader", "metadata_of_file", "shown_path"]

logger = logger_named("batonflow.retrieval")

FileMetadata = Callable[[str], dict[str, Any]]

_MAX_BYTES = 256 * 2**20
_HIDDEN = [
    "file_name", "file_type", "file_size", "creation_date", "last_modified_date", "last_accessed_date",
]  # fmt: skip
"""The metadata of files that models do not see."""

_READERS: dict[str, BaseReader] = {
    ".pdf": PDFReader(),
    ".docx": DocxReader(),
    ".pptx": PptxReader(),
    ".html": HTMLReader(),
    ".htm": HTMLReader(),
    ".ipynb": IPYNBReader(),
    ".json": JSONReader(levels_back=0),
    ".jsonl": JSONReader(levels_back=0, is_jsonl=True),
}


class SimpleDirectoryReader(BaseReader):
    """Reads the files of a folder: text, Markdown, PDF, Word, PowerPoint, HTML, CSV, notebooks and JSON.

    PDF files and presentations give a document for each page. A link that leaves the folder is not followed.

    Args:
        input_dir: The folder.
        input_files: Files, in the place of a folder.
        exclude: Patterns of files and folders to leave out, such as ``"*.log"``.
        exclude_hidden: Whether files and folders that begin with a dot are left out.
        exclude_empty: Whether files without content are left out.
        errors: The treatment of bytes that do not fit the encoding; see ``TextReader``.
        recursive: Whether folders in the folder are read.
        encoding: The encoding of text.
        filename_as_id: Whether documents get their ids from the paths of files.
        required_exts: Only files with these endings, such as ``[".md"]``.
        file_extractor: Readers by ending, in addition to the known ones or in their place.
        num_files_limit: The largest number of files.
        file_metadata: Returns the metadata of a path, in the place of its name, type, size and dates.
        raise_on_error: Whether a file that cannot be read raises; otherwise it is logged and left out.
        max_bytes: A file above this size cannot be read.

    Raises:
        ValueError: The folder or a file does not exist, or there are no files.

    Example:
        >>> documents = SimpleDirectoryReader("docs", recursive=True, required_exts=[".md"]).load_data()
    """

    def __init__(
        self,
        input_dir: FilePath | None = None,
        input_files: Sequence[FilePath] | None = None,
        exclude: Sequence[str] | None = None,
        exclude_hidden: bool = True,
        exclude_empty: bool = False,
        errors: str = "ignore",
        recursive: bool = False,
        encoding: str = "utf-8",
        filename_as_id: bool = False,
        required_exts: Sequence[str] | None = None,
        file_extractor: Mapping[str, Any] | None = None,
        num_files_limit: int | None = None,
        file_metadata: FileMetadata | None = None,
        raise_on_error: bool = False,
        max_bytes: int = _MAX_BYTES,
    ) -> None:
        if not input_dir and not input_files:
            raise ValueError("Must provide either `input_dir` or `input_files`.")
        self.errors, self.encoding = errors, encoding
        self.exclude, self.recursive = list(exclude or ()), recursive
        self.exclude_hidden, self.exclude_empty = exclude_hidden, exclude_empty
        self.required_exts = None if required_exts is None else {one.lower() for one in required_exts}
        self.num_files_limit = num_files_limit
        self.filename_as_id, self.raise_on_error, self.max_bytes = filename_as_id, raise_on_error, max_bytes
        self.file_metadata = file_metadata or metadata_of_file
        given = {name.lower(): one for name, one in (file_extractor or {}).items()}
        values = CSVReader(encoding=encoding, errors=errors)
        self.file_extractor: dict[str, Any] = {**_READERS, ".csv": values, ".tsv": values, **given}
        self.input_dir = None if input_dir is None else Path(input_dir).absolute()
        if input_files:
            self.input_files = [Path(one).absolute() for one in input_files]
            if missing := next((one for one in self.input_files if not one.is_file()), None):
                raise ValueError(f"File {missing} does not exist.")
        else:
            assert self.input_dir is not None
            if not self.input_dir.is_dir():
                raise ValueError(f"Directory {input_dir} does not exist.")
            self.input_files = self._files(self.input_dir)

    def _files(self, folder: Path) -> list[Path]:
        """Return the files of the folder that may be read."""
        find = folder.rglob if self.recursive else folder.glob
        try:
            excluded = {path for pattern in self.exclude for path in find(pattern)}
        except (NotImplementedError, ValueError) as error:
            raise ValueError(f"a pattern of exclude={self.exclude} cannot be used: {error}") from error
        real = folder.resolve()
        found = sorted(
            path for path in _walk(folder, self.recursive) if self._may_be_read(path, folder, real, excluded)
        )
        if not found:
            raise ValueError(f"No files found in {folder}.")
        return found[: self.num_files_limit]

    def _may_be_read(self, path: Path, folder: Path, real: Path, excluded: set[Path]) -> bool:
        inside = path.relative_to(folder)
        if self.exclude_hidden and any(part.startswith(".") for part in inside.parts):
            return False
        if self.required_exts is not None and path.suffix.lower() not in self.required_exts:
            return False
        if excluded and not excluded.isdisjoint((path, *path.parents)):
            return False
        try:
            if not path.is_file():  # a pipe, a device, or a link to a folder or to nothing
                return False
            if path.is_symlink() and not path.resolve().is_relative_to(real):
                logger.warning("%s is a link out of %s: it is left out", path, folder)
                return False
            return not (self.exclude_empty and path.stat().st_size == 0)
        except OSError as error:
            logger.warning("%s is left out: %s", path, error)
            return False

    # --- resources ----------------------------------------------------------------------------------------------------

    def list_resources(self) -> list[str]:
        """Return the paths of the files."""
        return [str(path) for path in self.input_files]

    def get_resource_info(self, resource_id: str) -> dict[str, Any]:
        """Return path, size and dates of a file."""
        found = Path(resource_id).stat()
        return {
            "file_path": shown_path(resource_id),
            "file_size": found.st_size,
            "creation_date": _date(found.st_ctime, "%Y-%m-%dT%H:%M:%SZ"),
            "last_modified_date": _date(found.st_mtime, "%Y-%m-%dT%H:%M:%SZ"),
        }

    def load_resource(self, resource_id: str) -> list[Document]:
        """Return the documents of a file.

        Raises:
            ReaderError: The file cannot be read, whatever ``raise_on_error`` is.
        """
        return self._read(Path(resource_id))

    # --- reading ------------------------------------------------------------------------------------------------------

    def load_data(self, show_progress: bool = False, num_workers: int | None = None) -> list[Document]:  # noqa: ARG002 - programs give it
        """Return the documents of all files.

        Args:
            show_progress: Accepted and kept; ``ingest`` reports its progress.
            num_workers: The number of threads that read.

        Raises:
            ReaderError: A file cannot be read, and ``raise_on_error`` is set.
            ImportError: A kind of file needs a library; the message names the extra.
        """
        if not num_workers or num_workers == 1:
            return [one for path in self.input_files for one in self._read_or_leave_out(path)]
        with ThreadPoolExecutor(num_workers) as threads:
            return [one for found in threads.map(self._read_or_leave_out, self.input_files) for one in found]

    async def aload_data(self, show_progress: bool = False, num_workers: int | None = None) -> list[Document]:
        """Return the documents of all files; they are read in a thread. See ``load_data``."""
        return await in_thread(self.load_data, show_progress, num_workers)

    def iter_data(self, show_progress: bool = False) -> Generator[list[Document]]:  # noqa: ARG002 - programs give it
        """Yield the documents of one file after the other; see ``load_data``."""
        for path in self.input_files:
            if found := self._read_or_leave_out(path):
                yield found

    @staticmethod
    def load_file(
        input_file: FilePath,
        file_metadata: FileMetadata | None = None,
        file_extractor: Mapping[str, Any] | None = None,
        filename_as_id: bool = False,
        encoding: str = "utf-8",
        errors: str = "ignore",
        raise_on_error: bool = False,
    ) -> list[Document]:
        """Return the documents of one file; the arguments are those of the class."""
        reader = SimpleDirectoryReader(
            input_files=[input_file],
            file_metadata=file_metadata,
            file_extractor=file_extractor,
            filename_as_id=filename_as_id,
            encoding=encoding,
            errors=errors,
            raise_on_error=raise_on_error,
        )
        return reader.load_data()

    def _read_or_leave_out(self, path: Path) -> list[Document]:
        try:
            return self._read(path)
        except ReaderError as error:
            if self.raise_on_error:
                raise
            logger.warning("a file is left out: %s", error)
            return []

    def _read(self, path: Path) -> list[Document]:
        name, suffix = shown_path(path), path.suffix.lower()
        reader: Any = self.file_extractor.get(suffix)
        try:
            if (size := path.stat().st_size) > self.max_bytes:
                raise ReaderError(f"{name} has {size} bytes, more than max_bytes={self.max_bytes}")
            metadata = self.file_metadata(str(path))
            if reader is None:
                documents = TextReader(self.encoding, self.errors).load_data(path, metadata)
            else:
                documents = cast("list[Document]", reader.load_data(path, extra_info=metadata))
        except (ReaderError, ImportError):
            raise
        except OSError as error:
            raise ReaderError(f"{name} cannot be read: {error.strerror or error}") from error
        except Exception as error:  # readers may raise anything
            raise ReaderError(f"{name} cannot be read: {type(error).__name__}: {error}") from error
        for number, one in enumerate(documents):
            if self.filename_as_id:
                one.id_ = name if reader is None else f"{name}_part_{number}"
            one.excluded_embed_metadata_keys = [*one.excluded_embed_metadata_keys, *_HIDDEN]
            one.excluded_llm_metadata_keys = [*one.excluded_llm_metadata_keys, *_HIDDEN]
        return documents


def metadata_of_file(path: str) -> dict[str, Any]:
    """Return path, name, type, size and dates of a file."""
    found = Path(path).stat()
    values = {
        "file_path": shown_path(path),
        "file_name": shown_path(Path(path).name),
        "file_type": mimetypes.guess_type(path)[0],
        "file_size": found.st_size,
        "creation_date": _date(found.st_ctime),
        "last_modified_date": _date(found.st_mtime),
    }
    return {name: value for name, value in values.items() if value is not None}


def shown_path(path: FilePath) -> str:
    """Return a path as text that can be stored, also if its name is not UTF-8."""
    return os.fsencode(path).decode("utf-8", "backslashreplace")


def _date(seconds: float, form: str = "%Y-%m-%d") -> str:
    return datetime.fromtimestamp(seconds, UTC).strftime(form)


def _walk(folder: Path, recursive: bool) -> Generator[Path]:
    def tell(error: OSError) -> None:
        logger.warning("the folder %s is left out: %s", error.filename, error.strerror)

    for here, folders, files in os.walk(folder, onerror=tell):  # it follows no links to folders
        if not recursive:
            folders.clear()
        yield from (Path(here) / name for name in files)
