"""Folders of LlamaIndex: its JSON files become a store of nodes, and a store becomes such files."""

import json
import os
from collections.abc import Collection, Generator, Iterable, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, cast

from batonflow.instrumentation.logs import logger_named
from batonflow.nodes import BaseNode, Document, NodeRelationship, RelatedNodeInfo
from batonflow.nodes.schema import node_of
from batonflow.retrieval.node_store import UNNAMED_MODEL, NodeStore, NodeStoreError, StoredIndex
from batonflow.retrieval.vectors import node_to_metadata_dict

__all__ = ["read_folder", "read_values", "write_folder"]

logger = logger_named("batonflow.retrieval")

_NODES, _INDEXES, _VECTORS = "docstore.json", "index_store.json", "default__vector_store.json"
_EARLIER_VECTORS = "vector_store.json"
_SUMMARIES, _BELOW = "document_summary", "summary_id_to_node_ids"
_KEYWORDS = {"simple_keyword_table", "rake_keyword_table", "keyword_table"}

Data = dict[str, Any]


def read_folder(folder: Path) -> NodeStore:
    """Return a store in memory with the nodes, vectors and indexes of a folder of LlamaIndex.

    Raises:
        NodeStoreError: A file is not as LlamaIndex writes it.
    """
    with _refusing(f"{folder} is not a folder"):
        named = _VECTORS if (folder / _VECTORS).exists() else _EARLIER_VECTORS
        parts = [_read(folder / name) for name in (_NODES, _INDEXES, named)]
        return _store_of(*parts)


def read_values(values: Data) -> NodeStore:
    """Return a store in memory with the nodes and indexes of a key-value store of LlamaIndex; see ``read_folder``."""
    with _refusing("this is not a key-value store"):
        return _store_of(values, values, {})


@contextmanager
def _refusing(problem: str) -> Generator[None]:
    try:
        yield
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise NodeStoreError(f"{problem} of LlamaIndex: {type(error).__name__}: {error}") from error


def _store_of(documents: Data, structs: Data, vectors: Data) -> NodeStore:
    store = NodeStore()
    try:
        with store.writing():
            indexes = {
                index_id: (str(one["__type__"]), _unpacked(one["__data__"]))
                for index_id, one in _part(structs, "index_store/data").items()
            }
            summaries = {id_ for kind, data in indexes.values() if kind == _SUMMARIES for id_ in data[_BELOW]}
            _read_nodes(store, documents, _part(vectors, "embedding_dict"), summaries)
            for index_id, (kind, data) in indexes.items():
                _read_index(store, index_id, kind, data)
    except BaseException:
        store.close()
        raise
    return store


def _read(file: Path) -> Data:
    if not file.exists():
        return {}
    data = json.loads(file.read_text(encoding="utf-8"))
    if not isinstance(data, dict):
        raise ValueError(f"{file.name} has no object")
    return cast("Data", data)


def _part(data: Data, name: str) -> dict[str, Any]:
    """Return a part of a file; some versions write null for an empty one."""
    return cast("dict[str, Any]", data.get(name) or {})


def _unpacked(data: Any) -> Data:
    """Return data that some versions write as JSON inside of JSON."""
    return json.loads(data) if isinstance(data, str) else data


def _read_nodes(store: NodeStore, documents: Data, vectors: Mapping[str, Any], summaries: Collection[str]) -> None:
    nodes: list[BaseNode] = [node_of(_unpacked(one["__data__"])) for one in _part(documents, "docstore/data").values()]
    for node in nodes:
        if (vector := vectors.get(node.id_)) is not None:
            node.embedding = vector
        if node.id_ in summaries:  # here a document has its parts alone
            node.relationships.pop(NodeRelationship.SOURCE, None)
    store.add_nodes(nodes, model=UNNAMED_MODEL)
    if lost := len(set(vectors) - {node.id_ for node in nodes}):
        logger.warning("%d vectors are left out: the folder lacks their nodes", lost)
    facts, sources = _part(documents, "docstore/metadata"), _part(documents, "docstore/ref_doc_info")
    parts = {node.id_ for node in nodes if not isinstance(node, Document)}
    for doc in dict.fromkeys([*sources, *(one for one in facts if one not in parts)]):
        content = _part(facts, doc).get("doc_hash")
        store.note_document(doc, content, _part(_part(sources, doc), "metadata"))


def _read_index(store: NodeStore, index_id: str, kind: str, data: Data) -> None:
    summary = {} if data.get("summary") is None else {"summary": data["summary"]}
    if kind == "vector_store":
        number = store.put_index(index_id, kind, {**summary, "embed_model": UNNAMED_MODEL})
        store.add_members(number, _numbers(store, data["nodes_dict"].values()))
    elif kind == "list":
        store.add_members(store.put_index(index_id, kind, summary), _numbers(store, data["nodes"]))
    elif kind == "keyword_table":
        table: dict[str, list[str]] = data["table"]
        ids = list(dict.fromkeys(one for found in table.values() for one in sorted(found)))
        numbers = dict(zip(ids, _numbers(store, ids), strict=True))
        number = store.put_index(index_id, kind, summary)
        store.add_members(number, sorted(numbers.values()))
        store.add_keywords(number, ((word, numbers[one]) for word, found in table.items() for one in found))
    elif kind == "tree":
        number = store.put_index(index_id, kind, summary)
        placed: dict[str, str] = data["all_nodes"]
        store.add_members(number, _numbers(store, [placed[at] for at in sorted(placed, key=int)]))
        for parent, below in data["node_id_to_children_ids"].items():
            if below:
                store.set_parent(number, _numbers(store, below), _numbers(store, [parent])[0])
    elif kind == _SUMMARIES:
        below: dict[str, list[str]] = data[_BELOW]
        parents = _numbers(store, below)
        embeds = len(store.without_vectors(UNNAMED_MODEL, parents)) < len(parents)
        number = store.put_index(index_id, kind, {**summary, "embed_model": UNNAMED_MODEL, "embeds": embeds})
        store.add_members(number, parents)
        for parent, ids in zip(parents, below.values(), strict=True):
            store.add_members(number, _numbers(store, ids), parent)
    elif kind == "empty":
        store.put_index(index_id, kind, summary)
    else:
        logger.warning("index %s is left out: there are no indexes of the kind %s", index_id, kind)


def _numbers(store: NodeStore, ids: Iterable[str]) -> list[int]:
    """Return the numbers of nodes, which must exist."""
    found: list[int] = []
    for one in ids:
        numbers = store.numbers_of([one])
        if not numbers:
            raise KeyError(f"there is no node {one}")
        found += numbers
    return found


# --- writing ----------------------------------------------------------------------------------------------------------


def write_folder(store: NodeStore, folder: Path) -> None:
    """Write a store as a folder that LlamaIndex opens.

    Raises:
        ValueError: The vectors are those of several models.
    """
    with store.reading():
        models = {str(one.struct.get("embed_model") or "") for one in store.indexes()} - {""}
        if len(models) > 1:
            raise ValueError(f"a folder of LlamaIndex has vectors of one model, not of {', '.join(sorted(models))}")
        sources = {
            id_: {NodeRelationship.SOURCE: RelatedNodeInfo(node_id=doc)}
            for one in store.indexes()
            if one.type == _SUMMARIES
            for doc, id_ in _summaries_data(store, one.number)["doc_id_to_summary_id"].items()
        }
        nodes = [
            node.model_copy(update={"relationships": sources[node.id_]}) if node.id_ in sources else node
            for node in store.nodes()
        ]
        files: dict[str, Data] = {
            _NODES: _nodes_data(store, nodes),
            _INDEXES: {"index_store/data": {one.id: _index_data(store, one) for one in store.indexes()}},
            _VECTORS: _vectors_data(store, nodes, next(iter(models), UNNAMED_MODEL)),
            "image__vector_store.json": {"embedding_dict": {}, "text_id_to_ref_doc_id": {}, "metadata_dict": {}},
            "graph_store.json": {"graph_dict": {}},
        }
    folder.mkdir(parents=True, exist_ok=True)
    for name, data in files.items():
        partial = folder / f"{name}.partial"
        partial.write_text(json.dumps(data), encoding="utf-8")
        os.replace(partial, folder / name)  # noqa: PTH105 - a reader sees a whole file


def _nodes_data(store: NodeStore, nodes: list[BaseNode]) -> Data:
    facts: Data = {}
    sources: dict[str, Data] = {}
    noted = store.documents()
    for node in nodes:
        facts[node.id_] = {"doc_hash": node.hash}
        if (doc := node.ref_doc_id) is not None:
            facts[node.id_]["ref_doc_id"] = doc
            metadata = noted[doc][1] if doc in noted else node.metadata
            sources.setdefault(doc, {"node_ids": [], "metadata": metadata})["node_ids"].append(node.id_)
    for doc, (content, _) in noted.items():
        facts.setdefault(doc, {"doc_hash": content})
    data = {node.id_: {"__data__": node.to_dict(mode="json"), "__type__": str(node.get_type())} for node in nodes}
    return {"docstore/data": data, "docstore/metadata": facts, "docstore/ref_doc_info": sources}


def _index_data(store: NodeStore, index: StoredIndex) -> Data:
    members = store.members(index.number)
    ids = {n: node.id_ for n, node in zip(members, store.nodes_at(members), strict=True)}
    data: Data = {"index_id": index.id, "summary": index.struct.get("summary")}
    kind = "keyword_table" if index.type in _KEYWORDS else index.type
    if kind == "vector_store":
        data |= {"nodes_dict": {one: one for one in ids.values()}, "doc_id_dict": {}, "embeddings_dict": {}}
    elif kind == "list":
        data["nodes"] = list(ids.values())
    elif kind == "keyword_table":
        table: dict[str, list[str]] = {}
        for word, n in store.keywords(index.number):
            table.setdefault(word, []).append(ids[n])
        data["table"] = table
    elif kind == _SUMMARIES:
        data |= _summaries_data(store, index.number)
    elif kind == "tree":
        places = {one: at for at, one in enumerate(ids.values())}
        below = {one: [ids[n] for n in store.children(index.number, parent)] for parent, one in ids.items()}
        roots = [ids[n] for n in store.children(index.number, None)]
        data |= {
            "all_nodes": {str(at): one for one, at in places.items()},
            "root_nodes": {str(places[one]): one for one in roots} if any(below.values()) else {},
            "node_id_to_children_ids": below,
        }
    return {"__type__": kind, "__data__": json.dumps(data)}


def _summaries_data(store: NodeStore, number: int) -> Data:
    found: dict[str, Data] = {_BELOW: {}, "node_id_to_summary_id": {}, "doc_id_to_summary_id": {}}
    parents = store.children(number, None)
    for parent, summary in zip(parents, store.nodes_at(parents), strict=True):
        nodes = store.nodes_at(store.children(number, parent))
        found[_BELOW][summary.id_] = [node.id_ for node in nodes]
        found["node_id_to_summary_id"] |= {node.id_: summary.id_ for node in nodes}
        found["doc_id_to_summary_id"] |= {str(node.ref_doc_id): summary.id_ for node in nodes}
    return found


def _vectors_data(store: NodeStore, nodes: list[BaseNode], model: str) -> Data:
    numbers = sorted(store.numbers_of([node.id_ for node in nodes]))  # nodes come in this order
    without = store.without_vectors(model, numbers)
    found = [(node, n) for node, n in zip(nodes, numbers, strict=True) if n not in without]
    rows: list[list[float]] = store.vectors(model, [n for _, n in found]).tolist() if found else []
    metadata = {node.id_: node_to_metadata_dict(node) for node, _ in found}
    for one in metadata.values():
        del one["_node_content"]
    return {
        "embedding_dict": {node.id_: row for (node, _), row in zip(found, rows, strict=True)},
        "text_id_to_ref_doc_id": {node.id_: node.ref_doc_id or "None" for node, _ in found},
        "metadata_dict": metadata,
    }
