"""A workflow that reads sources into an index in batches. A stored run continues at its batch after a crash."""

import re
import uuid
from bisect import bisect_right
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from pydantic import BaseModel, Field

from batonflow.instrumentation.logs import logger_named
from batonflow.nodes import BaseNode
from batonflow.retrieval.index import BaseIndex
from batonflow.retrieval.ingest_sources import Sources, fingerprint, renamed, sources_of
from batonflow.retrieval.readers import shown_path
from batonflow.threads import in_thread
from batonflow.workflow_core import Context, Event, StartEvent, StopEvent, Workflow, WorkflowHandler, step
from batonflow.workflow_core.errors import BatonflowError

__all__ = ["IngestProgress", "IngestResult", "IngestWorkflow", "SourceFailure", "ingest"]

logger = logger_named("batonflow.retrieval")

_STAMP = "_ingested"
"""The size and the time of a file, in the metadata of its document in the store."""
_SHOWN_FAILURES = 1000


class SourceFailure(BaseModel):
    """A source that could not be ingested.

    Attributes:
        source: The path of a file, or the id of a document.
        error: The reason.
        needs_library: Whether its reader needs a library that is not installed.
    """

    source: str
    error: str
    needs_library: bool = False


class IngestResult(BaseModel):
    """The counts of an ingest.

    Attributes:
        total: All sources: files, or documents that a program gave.
        done: The sources that have been looked at.
        added: New sources.
        changed: Sources whose former nodes were replaced.
        unchanged: Sources that the index had already.
        failed: Sources that could not be ingested.
        nodes: The nodes that were written.
        gone: The documents of files that are not in the folder any more.
        failures: The reasons of the first 1,000 failures.
    """

    total: int = 0
    done: int = 0
    added: int = 0
    changed: int = 0
    unchanged: int = 0
    failed: int = 0
    nodes: int = 0
    gone: int = 0
    failures: list[SourceFailure] = Field(default_factory=list[SourceFailure])


class IngestProgress(Event):
    """The counts after a batch."""

    counts: IngestResult


class IngestAsked(StartEvent):
    """A request to read a source into an index."""

    source: str
    index: dict[str, Any]
    batch: int


class BatchDue(Event):
    """The next batch: the sources after one, in their order."""

    after: str
    batch: int
    counts: IngestResult


class _Read(NamedTuple):
    """A source that is new or changed, with its documents, and the ids of its earlier ones."""

    source: str
    documents: list[BaseNode]
    known: frozenset[str]
    stamp: list[int] | None
    is_new: bool


def ingest(
    source: Any, index: BaseIndex, *, store: Any = None, run_id: str | None = None, batch: int = 64, prune: bool = False
) -> WorkflowHandler[IngestResult]:
    """Read a source into an index, and return the handler of the run at once.

    Sources that the index has already are left as they are; a changed one replaces its former nodes. One that fails is
    in the result, and the others continue.

    Args:
        source: A folder, a file, a reader, or documents. Folders are read with all folders in them.
        index: The index; with ``store``, one in a file.
        store: The store of the run, as for ``Workflow(store=...)``.
        run_id: The id of the run. With a store, a second call with it continues the run or returns its result.
        batch: So many sources are read, split, embedded and written together.
        prune: Whether to delete the documents of files that are not in the folder any more.

    Raises:
        ValueError: ``batch`` is less than 1, or the index is in memory and ``store`` is given.

    Example:
        >>> handler = ingest("docs", index, store="runs.db", run_id="docs-1")
        >>> async for event in handler.stream_events():
        ...     print(event)
        >>> print((await handler).added)
    """
    if batch < 1:
        raise ValueError(f"batch must be 1 or more, not {batch}")
    flow = IngestWorkflow(source, index, prune=prune)
    if store is not None:
        flow = flow.with_store(store)
    named = shown_path(Path(source).absolute()) if isinstance(source, str | Path) else type(source).__name__
    place = {} if store is None else index.to_dict()
    return flow.run(IngestAsked(source=named, index=place, batch=batch), run_id=run_id)


class IngestWorkflow(Workflow[IngestResult]):
    """The workflow of ``ingest``.

    Args:
        source: The source, as for ``ingest``.
        index: The index.
        prune: Whether to delete the documents of files that are not in the folder any more.
        **options: The options of the workflow.
    """

    def __init__(self, source: Any, index: BaseIndex, *, prune: bool = False, **options: Any) -> None:
        defaults: dict[str, Any] = {"timeout": None, "on_abandon": "stop"}
        super().__init__(**{**defaults, **options})
        self.source, self.index, self.prune = source, index, prune
        self._found: Sources | None = None
        self._own: set[str] = set()
        self._twins: Mapping[str, Sequence[str]] = {}

    @step
    async def find(self, ev: IngestAsked) -> BatchDue:
        """List the sources."""
        found = await self._all()
        return BatchDue(after="", batch=ev.batch, counts=IngestResult(total=len(found.names)))

    @step
    async def ingest_batch(self, ctx: Context[Any], ev: BatchDue) -> BatchDue | StopEvent:
        """Read, split, embed and write a batch of sources."""
        is_resumed = self._found is None
        names = (await self._all()).names
        begin = bisect_right(names, ev.after)
        mine = names[begin : begin + ev.batch]
        lost = await in_thread(self._lost, names[:begin], ev.counts) if is_resumed else []
        again = await self._ingested(lost, IngestResult())  # they are counted already
        counts = await self._ingested(mine, ev.counts.model_copy(deep=True))
        counts.failures += again.failures
        counts.done += len(mine)
        counts.total = counts.done + len(names) - begin - len(mine)
        ctx.write_event_to_stream(IngestProgress(counts=counts))
        if begin + ev.batch >= len(names):
            gone = await in_thread(self._gone, names)
            if self.prune:
                await in_thread(self._delete, gone)
            counts.gone = len(gone)
            return StopEvent(result=counts)
        return BatchDue(after=mine[-1], batch=ev.batch, counts=counts)

    def _gone(self, names: Sequence[str]) -> list[str]:
        """Return the documents of files that were in the folder and are not there any more."""
        folder = getattr(self.source, "input_dir", self.source)
        if self._found is None or self._found.stamp is None or not isinstance(folder, str | Path):
            return []
        below, known = f"{shown_path(Path(folder).absolute())}/", set(names)
        stored = [one for one in self.index.storage_context.store.documents() if one.startswith(below)]
        missing = [one for one in stored if _file_of(one) not in known and self._has(one)]
        return [one for one in missing if not Path(_file_of(one)).exists()]  # others are excluded

    def _delete(self, docs: Sequence[str]) -> None:
        for doc in docs:
            self.index.delete_ref_doc(doc, delete_from_docstore=True)

    def _lost(self, names: Sequence[str], counts: IngestResult) -> list[str]:
        """Return the files of earlier batches that the index lacks, because its file was deleted or restored."""
        assert self._found is not None
        if self._found.stamp is None:
            return []
        store, failed = self.index.storage_context.store, {one.source for one in counts.failures}
        lost = [name for name in names if name not in failed and not self._has(*(store.documents_from(name) or [""]))]
        if lost:
            logger.warning("%d sources of earlier batches are read again: the index has lost them", len(lost))
        return lost

    # --- a batch ------------------------------------------------------------------------------------------------------

    async def _ingested(self, names: Sequence[str], counts: IngestResult) -> IngestResult:
        """Ingest sources and return the new counts."""
        ready: list[tuple[_Read, list[BaseNode]]] = []
        for name in names:
            is_read = False
            try:
                read = await in_thread(self._read, name)
                is_read = True
                if read is None:
                    counts.unchanged += 1
                else:
                    ready.append((read, [node for one in read.documents for node in await self._nodes_of(one)]))
            except BatonflowError:
                raise
            except Exception as error:  # readers and transformations may raise anything
                if is_read and isinstance(error, ImportError):
                    raise
                _note_failure(counts, await self._shown(name), error)
        left_out = await self._written(ready)
        for read, nodes in ready:
            if read.source not in left_out:
                counts.nodes += len(nodes)
                counts.changed += not read.is_new
                counts.added += read.is_new
            elif (error := left_out[read.source]) is None:
                counts.unchanged += 1
            else:
                _note_failure(counts, await self._shown(read.source), error)
        return counts

    async def _written(self, ready: list[tuple[_Read, list[BaseNode]]]) -> dict[str, Exception | None]:
        """Write the nodes of sources, all at once or else one source after the other.

        Return the sources that failed, and with None those that another run has written meanwhile.
        """
        try:
            return await self._write(ready)
        except (ImportError, BatonflowError):
            raise
        except Exception as error:
            if len(ready) == 1:
                return {ready[0][0].source: error}
            left_out: dict[str, Exception | None] = {}
            for one in ready:
                left_out |= await self._written([one])
            if all(left_out.get(read.source) for read, _ in ready):  # the index or its model, not a source
                raise
            return left_out

    async def _write(self, ready: list[tuple[_Read, list[BaseNode]]]) -> dict[str, Exception | None]:
        if not ready:
            return {}
        if self.index.writes_at_once and self.index.storage_context.foreign_vectors is None:
            await self.index.prepare([node for _, nodes in ready for node in nodes])
            due = await in_thread(self._write_at_once, ready)
        else:
            due = await in_thread(self._due, ready)
            await self.index.ainsert_nodes([node for _, nodes in due for node in nodes])
            await in_thread(self._finish, due)
        return dict.fromkeys({read.source for read, _ in ready} - {read.source for read, _ in due})

    def _write_at_once(self, ready: list[tuple[_Read, list[BaseNode]]]) -> list[tuple[_Read, list[BaseNode]]]:
        with self.index.storage_context.store.writing_durably():
            due = self._due(ready)
            self.index.insert_nodes([node for _, nodes in due for node in nodes])
            self._finish(due)
        return due

    def _due(self, ready: list[tuple[_Read, list[BaseNode]]]) -> list[tuple[_Read, list[BaseNode]]]:
        """Return the sources that no other run has written meanwhile, with all former documents."""
        store = self.index.storage_context.store
        with store.writing():
            twins = store.documents_with([fingerprint(one.documents[0]) for one, _ in ready if one.stamp is None])
            due: list[tuple[_Read, list[BaseNode]]] = []
            for read, nodes in ready:
                known = self._known(read.source, read.documents)
                if not self._is_there(read.documents, known, twins):
                    due.append((read._replace(known=read.known | known.keys()), nodes))
            if self.index.storage_context.foreign_vectors is not None:  # it deletes by documents alone
                for doc in {doc for read, _ in due for doc in read.known}:
                    if store.numbers_of_document(doc):
                        self.index.delete_ref_doc(doc, delete_from_docstore=True)
        return due

    def _finish(self, ready: list[tuple[_Read, list[BaseNode]]]) -> None:
        """Delete the former nodes of sources, and note the documents. Until then, a source is not done."""
        store = self.index.storage_context.store
        with store.writing_durably():
            for read, nodes in ready:
                kept, new = {node.id_ for node in nodes}, {one.id_ for one in read.documents}
                for doc in read.known | new:
                    former = [one for one in store.hashes(doc=doc) if one not in kept]
                    self.index.delete_nodes(former, delete_from_docstore=True)
                for doc in read.known - new:
                    store.forget_document(doc)
                self._note(read.documents, read.stamp)

    def _note(self, documents: Sequence[BaseNode], stamp: list[int] | None) -> None:
        stamped = {} if stamp is None else {_STAMP: stamp}
        for one in documents:
            self.index.storage_context.store.note_document(one.id_, fingerprint(one), {**one.metadata, **stamped})

    # --- a source -----------------------------------------------------------------------------------------------------

    def _read(self, name: str) -> _Read | None:
        """Return the documents of a source, or None if the index has them."""
        assert self._found is not None
        store, stamp = self.index.storage_context.store, None
        if self._found.stamp is not None:
            stamp, former = self._found.stamp(name), store.documents_from(name)
            if former and all(told.get(_STAMP) == stamp for _, told in former.values()) and self._has(*former):
                return None
        documents = self._found.load(name)
        known = self._known(name, documents)
        if self._is_there(documents, known, self._twins):
            if stamp is not None:
                self._note(documents, stamp)
            return None
        return _Read(name, documents, frozenset(known), stamp, not (known and self._has(*known)))

    def _known(self, name: str, documents: Sequence[BaseNode]) -> dict[str, str | None]:
        """Return the hashes of the documents of a source in the store."""
        store = self.index.storage_context.store
        if self._found is not None and self._found.stamp is not None:
            return {doc: content for doc, (content, _) in store.documents_from(name).items()}
        found = {one.id_: store.document_hash(one.id_) for one in documents}  # of the program, with ids of their own
        return {doc: content for doc, content in found.items() if content is not None}

    def _is_there(
        self, documents: Sequence[BaseNode], known: Mapping[str, str | None], twins: Mapping[str, Sequence[str]]
    ) -> bool:
        """Tell whether the index has the documents of a source. A text of a program may have another id there."""
        if known or not documents:
            return known == {one.id_: fingerprint(one) for one in documents} and self._has(*known)
        return any(self._has(doc) for doc in twins.get(fingerprint(documents[0]), ()) if doc not in self._own)

    async def _shown(self, name: str) -> str:
        """Return the path of a file, or the id of a document."""
        found = await self._all()
        return name if found.stamp is not None else found.load(name)[0].id_

    def _has(self, *docs: str) -> bool:
        number = self.index.index_struct.number
        return all(doc and self.index.storage_context.store.is_in_index(number, doc) for doc in docs)

    async def _nodes_of(self, document: BaseNode) -> list[BaseNode]:
        """Return the nodes of a document, with ids that are the same at each call."""
        store = self.index.storage_context.store
        if await in_thread(store.document_hash, document.id_) == fingerprint(document):
            return await in_thread(lambda: store.nodes(doc=document.id_))
        nodes: Sequence[BaseNode] = [document]
        for one in self.index.transformations:
            nodes = await one.acall(nodes)
        new = {node.id_: str(uuid.uuid5(uuid.NAMESPACE_URL, f"{document.id_}#{at}")) for at, node in enumerate(nodes)}
        return [renamed(node, new) for node in nodes]

    # --- all sources --------------------------------------------------------------------------------------------------

    async def _all(self) -> Sources:
        if self._found is None:
            self._found = await in_thread(self._list)
        return self._found

    def _list(self) -> Sources:
        store = self.index.storage_context.store
        found = sources_of(self.source, [store.path, getattr(self.__batonflow__.store, "path", None)])
        if found.stamp is None:
            given = [found.load(name)[0] for name in found.names]
            self._own = {one.id_ for one in given}
            self._twins = store.documents_with([fingerprint(one) for one in given])
        return found


def _file_of(doc: str) -> str:
    """Return the file of a document, which may be one of its parts."""
    return re.sub(r"_part_\d+$", "", doc)


def _note_failure(counts: IngestResult, source: str, error: Exception) -> None:
    logger.info("%s is left out: %s", source, error)
    counts.failed += 1
    if len(counts.failures) < _SHOWN_FAILURES:
        is_plain = isinstance(error, ImportError) or type(error).__module__.startswith("batonflow.")
        text = str(error) if is_plain else f"{type(error).__name__}: {error}"
        counts.failures.append(SourceFailure(source=source, error=text, needs_library=isinstance(error, ImportError)))
