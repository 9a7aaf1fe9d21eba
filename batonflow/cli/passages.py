"""The file of passages of ``ingest`` and ``ask``, and its index."""

from argparse import Namespace
from pathlib import Path
from typing import Any

from batonflow.cli.errors import USAGE, CommandError
from batonflow.cli.text import one_line
from batonflow.nodes import BaseNode
from batonflow.retrieval import StorageContext, VectorStoreIndex, load_index_from_storage, resolve_embed_model
from batonflow.retrieval.node_store import NodeStore, NodeStoreError

__all__ = ["index_id_of", "opened_index", "opened_passages", "place_of", "shown_place"]

_DEFAULT_ID = "documents"


def opened_passages(file: str) -> StorageContext:
    """Open or make a file of passages.

    Raises:
        CommandError: It cannot be opened, or another program has made it.
    """
    try:
        return StorageContext.from_defaults(path=file)
    except NodeStoreError as error:
        raise CommandError(str(error), USAGE) from error


def index_id_of(store: NodeStore, given: Namespace) -> str | None:
    """Return the id of the index of the command line, or of the only one in the file.

    It is None for a file without such an index.

    Raises:
        CommandError: The file has no such index, or several.
    """
    ids = [one.id for one in store.indexes() if one.type == VectorStoreIndex.index_type]
    if given.index is not None:
        return given.index if given.index in ids else None
    if len(ids) > 1:
        raise CommandError(f"{given.file} has several indexes: name one with --index, of {', '.join(ids)}", USAGE)
    return ids[0] if ids else None


def opened_index(storage: StorageContext, given: Namespace) -> Any:
    """Open the index of the command line, or make it.

    Raises:
        CommandError: It was made with another embedding model, or the model has an unknown name.
    """
    try:
        options: dict[str, Any] = (
            {} if given.embed_model is None else {"embed_model": resolve_embed_model(given.embed_model)}
        )
        with storage.store.writing():  # another process may make it at this moment
            known = index_id_of(storage.store, given)
            if known is not None:
                return load_index_from_storage(storage, known, **options)
            return VectorStoreIndex([], storage_context=storage, index_id=given.index or _DEFAULT_ID, **options)
    except NodeStoreError as error:
        name = "--embed-model"
        raise CommandError(
            str(error).replace("give the same embed_model", f"name the same with {name}"), USAGE
        ) from error
    except ValueError as error:
        raise CommandError(str(error), USAGE) from error


def place_of(node: BaseNode) -> tuple[str, str | None]:
    """Return the source of a passage and its page, as far as they are known."""
    source = str(node.metadata.get("file_path") or node.ref_doc_id or node.id_)
    here = Path.cwd()
    path = Path(source)
    shown = str(path.relative_to(here)) if path.is_relative_to(here) else source
    page = node.metadata.get("page_label")
    return shown, None if page is None else str(page)


def shown_place(number: int, node: BaseNode) -> str:
    """Return the number, the source and the page of a passage in one line."""
    source, page = place_of(node)
    return one_line(f"[{number}] {source}" + ("" if page is None else f", page {page}"))
