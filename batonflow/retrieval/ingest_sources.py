"""The sources of an ingest: files and documents by name, and the hashes that show a change."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from batonflow.nodes import BaseNode, NodeRelationship, RelatedNodeInfo
from batonflow.nodes.schema import document_of
from batonflow.retrieval.readers import SimpleDirectoryReader, shown_path

__all__ = ["Sources", "fingerprint", "renamed", "sources_of"]

_DATES = ("creation_date", "last_modified_date", "last_accessed_date")


class Sources(NamedTuple):
    """All sources: their names in order, and functions that read one and tell its size and time."""

    names: list[str]
    load: Callable[[str], list[BaseNode]]
    stamp: Callable[[str], list[int]] | None


def sources_of(source: Any, own: Sequence[str | Path | None]) -> Sources:
    """Return the sources of a folder, a file, a reader or documents.

    Args:
        source: The source, as for ``ingest``.
        own: Files of the index and of the run, which are not read.
    """
    if isinstance(source, str | Path):
        files = [source] if Path(source).is_file() else None
        source = SimpleDirectoryReader(source, files, recursive=True)
    if hasattr(source, "list_resources"):
        return _of_resources(source, [Path(one).absolute() for one in own if one is not None])
    reader: Any = source
    return _of_documents(reader.load_data() if hasattr(reader, "load_data") else reader)


def _of_resources(reader: Any, own: Sequence[Path]) -> Sources:
    """Return the resources of a reader, without the files of the index and of the run."""
    real = [(path.name, str(path.parent.resolve() / path.name)) for path in own]

    def is_own(path: str) -> bool:
        """Tell whether it is such a file, or beside it with a longer name, such as ``notes.db-wal``."""
        if not any(name in path for name, _ in real):
            return False
        found = str(Path(path).parent.resolve() / Path(path).name)
        return any(found == one or found.startswith(f"{one}-") for _, one in real)

    paths = {shown_path(one): str(one) for one in reader.list_resources() if not is_own(str(one))}

    def load(name: str) -> list[BaseNode]:
        documents: list[BaseNode] = list(reader.load_resource(paths[name]))
        for number, one in enumerate(documents):
            one.id_ = name if len(documents) == 1 else f"{name}_part_{number}"
        return documents

    def stamp(name: str) -> list[int]:
        try:
            found = Path(paths[name]).stat()
        except OSError:  # not a file, or gone: reading it tells
            return []
        return [found.st_size, found.st_mtime_ns]

    return Sources(sorted(paths), load, stamp)


def _of_documents(given: Iterable[Any]) -> Sources:
    documents = {f"{at:09}": document_of(one) for at, one in enumerate(given)}

    def load(name: str) -> list[BaseNode]:
        return [documents[name]]

    return Sources(list(documents), load, None)


def fingerprint(document: BaseNode) -> str:
    """Return the hash of a document without its dates, which a copy of a file changes."""
    dates = {name: value for name, value in document.metadata.items() if name not in _DATES}
    return document.model_copy(update={"metadata": dates}).hash


def renamed(node: BaseNode, new: Mapping[str, str]) -> BaseNode:
    """Return a node with new ids of itself and of related nodes."""

    def one(info: RelatedNodeInfo) -> RelatedNodeInfo:
        return info.model_copy(update={"node_id": new.get(info.node_id, info.node_id)})

    related: dict[NodeRelationship, Any] = {
        kind: [one(info) for info in other] if isinstance(other, list) else one(other)
        for kind, other in node.relationships.items()
    }
    return node.model_copy(update={"id_": new[node.id_], "relationships": related})
