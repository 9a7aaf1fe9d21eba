"""Ingestion as a workflow: its counts, changes of sources, failures, crashes and other writers."""

import asyncio
import os
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from batonflow import Context, StartEvent, StopEvent, Workflow, step
from batonflow.nodes import BaseNode, Document, TransformComponent
from batonflow.retrieval import (
    BaseEmbedding,
    BaseIndex,
    BaseReader,
    IngestProgress,
    IngestResult,
    SimpleDirectoryReader,
    SimpleKeywordTableIndex,
    SimpleVectorStore,
    StorageContext,
    StringIterableReader,
    SummaryIndex,
    VectorStoreIndex,
    ingest,
    load_index_from_storage,
)
from tests.retrieval.files import write_pdf


class Letters(BaseEmbedding):
    """Counts two letters, and fails at texts with a certain word."""

    fails_at: str = "never"
    seen: list[str] = []

    def _get_text_embedding(self, text: str) -> list[float]:
        self.seen.append(text)
        if self.fails_at in text:
            raise ConnectionError("no answer")
        return [float(text.count("a")), 1.0]


@pytest.fixture
def docs(tmp_path: Path) -> Path:
    made = tmp_path / "docs"
    (made / "more").mkdir(parents=True)
    for name in ("a.txt", "b.txt", "more/c.txt"):
        (made / name).write_text(f"The tide of {Path(name).stem}.")
    return made


def texts_in(index: BaseIndex) -> list[str]:
    store = index.storage_context.store
    nodes = store.nodes_at(store.members(index.index_struct.number))
    assert len(store.nodes()) == len(nodes)
    return sorted(node.get_content() for node in nodes)


def words(**options: Any) -> VectorStoreIndex:
    return VectorStoreIndex([], **options)


def counts_of(result: IngestResult) -> tuple[int, ...]:
    return result.done, result.added, result.changed, result.unchanged, result.failed


async def test_files_that_are_gone_are_counted_and_deleted_on_request(docs: Path) -> None:
    index = VectorStoreIndex([], embed_model=Letters())
    await ingest(docs, index)
    other = docs.parent / "other"
    other.mkdir()
    (other / "d.txt").write_text("The tide of d.")
    await ingest(other, index)
    (docs / "a.txt").unlink()
    assert (await ingest(docs, index)).gone == 1
    excluding = SimpleDirectoryReader(docs, exclude=["b.txt"], recursive=True)
    assert (await ingest(excluding, index)).gone == 1, "an excluded file is still there"
    assert len(texts_in(index)) == 4
    assert (await ingest(docs, index, prune=True)).gone == 1
    assert texts_in(index) == ["The tide of b.", "The tide of c.", "The tide of d."]
    assert (await ingest(docs, index, prune=True)).gone == 0


async def test_a_folder_is_read_with_its_folders_and_twice_adds_nothing(docs: Path) -> None:
    index = words()
    first = await ingest(docs, index)
    assert (counts_of(first), first.nodes, first.total) == ((3, 3, 0, 0, 0), 3, 3)
    assert texts_in(index) == ["The tide of a.", "The tide of b.", "The tide of c."]
    assert [one.node.ref_doc_id for one in index.as_retriever(similarity_top_k=1).retrieve("tide b")] == [
        str(docs / "b.txt")
    ]
    second = await ingest(str(docs), index)
    assert (counts_of(second), second.nodes) == ((3, 0, 0, 3, 0), 0)
    assert len(texts_in(index)) == 3


async def test_progress_is_streamed_after_each_batch(docs: Path) -> None:
    handler = ingest(docs, words(), batch=2)
    seen = [event.counts async for event in handler.stream_events() if isinstance(event, IngestProgress)]
    assert [(one.done, one.total, one.added) for one in seen] == [(2, 3, 2), (3, 3, 3)]
    assert seen[-1] == await handler


async def test_a_changed_file_replaces_its_former_nodes(docs: Path) -> None:
    index = words(embed_model=Letters(), transformations=None)
    await ingest(docs, index)
    (docs / "a.txt").write_text("Salt keeps fish.")
    write_pdf(docs / "d.pdf", "one", "two", "three")
    result = await ingest(docs, index)
    assert counts_of(result) == (4, 1, 1, 2, 0)
    assert texts_in(index) == ["Salt keeps fish.", "The tide of b.", "The tide of c.", "one", "three", "two"]
    write_pdf(docs / "d.pdf", "one", "2")
    assert counts_of(await ingest(docs, index)) == (4, 0, 1, 3, 0)
    write_pdf(docs / "d.pdf", "only")
    assert counts_of(await ingest(docs, index)) == (4, 0, 1, 3, 0)
    assert texts_in(index) == ["Salt keeps fish.", "The tide of b.", "The tide of c.", "only"]
    assert len(index.as_retriever(similarity_top_k=9).retrieve("x")) == 4
    store = index.storage_context.store
    assert set(store.documents()) == {f"{docs}/{name}" for name in ("a.txt", "b.txt", "d.pdf", "more/c.txt")}


async def test_a_shorter_file_leaves_no_passage_of_the_longer_one(docs: Path) -> None:
    index = words()
    (docs / "a.txt").write_text("\n\n\n".join(f"{'word ' * 700}{number}." for number in range(5)))
    assert (await ingest(docs, index)).nodes > 5
    (docs / "a.txt").write_text("short")
    await ingest(docs, index)
    assert texts_in(index) == ["The tide of b.", "The tide of c.", "short"]


async def test_a_file_with_another_date_alone_is_neither_read_into_the_index_nor_embedded(docs: Path) -> None:
    model = Letters(seen=[])
    index = words(embed_model=model)
    await ingest(docs, index)
    for name in ("a.txt", "b.txt"):
        os.utime(docs / name, (10**9, 10**9))
    before = len(model.seen)
    assert counts_of(await ingest(docs, index)) == (3, 0, 0, 3, 0)
    assert len(model.seen) == before


async def test_a_source_that_fails_is_told_and_the_others_are_there(docs: Path) -> None:
    class Refusing(TransformComponent):
        def __call__(self, nodes: Sequence[BaseNode], **_: Any) -> list[BaseNode]:
            if "refuse" in nodes[0].get_content():
                raise RuntimeError("refused")
            return list(nodes)

    (docs / "a.txt").write_bytes(b"\0" * 9)
    (docs / "e.txt").write_text("refuse this")
    (docs / "f.txt").write_text("break this")
    index = words(embed_model=Letters(fails_at="break"), transformations=[Refusing()])
    result = await ingest(docs, index)
    assert counts_of(result) == (5, 2, 0, 0, 3)
    assert {Path(one.source).name: one.error for one in result.failures} == {
        "a.txt": f"{docs}/a.txt has binary data instead of text: exclude it, or give a reader for .txt",
        "e.txt": "RuntimeError: refused",
        "f.txt": "ConnectionError: no answer",
    }
    assert texts_in(index) == ["The tide of b.", "The tide of c."]
    index.embed_model = Letters()
    (docs / "a.txt").write_text("fine now")
    assert counts_of(await ingest(docs, index)) == (5, 2, 0, 2, 1)


async def test_a_file_that_gives_no_document_is_unchanged(docs: Path) -> None:
    class Nothing(BaseReader):
        def load_data(self, *_: Any, **__: Any) -> list[Document]:
            return []

    reader = SimpleDirectoryReader(docs, file_extractor={".txt": Nothing()}, recursive=True)
    assert counts_of(await ingest(reader, words())) == (3, 0, 0, 3, 0)


async def test_a_failure_of_all_sources_ends_the_run(docs: Path) -> None:
    index = words(embed_model=Letters(fails_at="tide"))
    with pytest.raises(ConnectionError, match="no answer"):
        await ingest(docs, index)
    index.embed_model = Letters()
    assert counts_of(await ingest(docs, index)) == (3, 3, 0, 0, 0)


async def test_a_file_whose_reader_needs_a_library_is_left_out_with_the_extra(
    docs: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_pdf(docs / "x.pdf", "text")
    monkeypatch.setitem(sys.modules, "pypdf", None)
    result = await ingest(docs, words())
    assert counts_of(result) == (4, 3, 0, 0, 1)
    [failure] = result.failures
    assert (Path(failure.source).name, failure.needs_library) == ("x.pdf", True)
    assert failure.error.startswith("PDFReader needs pypdf, which is not installed: pip install")
    assert "readers]" in failure.error


async def test_a_library_that_is_missing_for_the_index_ends_the_run(docs: Path) -> None:
    class Absent(TransformComponent):
        def __call__(self, nodes: Sequence[BaseNode], **_: Any) -> list[BaseNode]:
            raise ImportError("no such library")

    with pytest.raises(ImportError, match="no such library"):
        await ingest(docs, words(transformations=[Absent()]))


async def test_documents_and_readers_are_sources_too(docs: Path) -> None:
    index = words()
    documents = [Document(text="one", id_="d1"), Document(text="two", id_="d2")]
    assert counts_of(await ingest(documents, index)) == (2, 2, 0, 0, 0)
    documents[1] = Document(text="three", id_="d2")
    assert counts_of(await ingest(documents, index)) == (2, 0, 1, 1, 0)
    assert texts_in(index) == ["one", "three"]
    failing = await ingest(
        [*documents, Document(text="broken", id_="d3"), Document(text="five", id_="d5")],
        words(embed_model=Letters(fails_at="broken")),
    )
    assert [one.source for one in failing.failures] == ["d3"]

    class Texts(StringIterableReader):
        def load_data(self, texts: Any = ("one", "four")) -> list[Document]:
            return super().load_data(texts)

    for expected in ((2, 1, 0, 1, 0), (2, 0, 0, 2, 0)):  # its ids are new each time
        assert counts_of(await ingest(Texts(), index)) == expected
    assert counts_of(await ingest(SimpleDirectoryReader(docs), index)) == (2, 2, 0, 0, 0)
    assert counts_of(await ingest(docs / "b.txt", index)) == (1, 0, 0, 1, 0)
    assert texts_in(index) == ["The tide of a.", "The tide of b.", "four", "one", "three"]


async def test_each_index_of_a_file_gets_the_nodes_and_the_file_has_them_once(docs: Path, tmp_path: Path) -> None:
    storage = StorageContext.from_defaults(path=tmp_path / "notes.db")
    for kind in (VectorStoreIndex, SummaryIndex, SimpleKeywordTableIndex):
        index = kind([], storage_context=storage)
        assert counts_of(await ingest(docs, index)) == (3, 3, 0, 0, 0)
        assert counts_of(await ingest(docs, index)) == (3, 0, 0, 3, 0)
        assert len(texts_in(index)) == 3


async def test_the_files_of_the_index_and_of_the_run_are_not_sources(docs: Path) -> None:
    index = words(storage_context=StorageContext.from_defaults(path=docs / "notes.db"))
    assert counts_of(await ingest(docs, index, store=docs / "runs.db")) == (3, 3, 0, 0, 0)


async def test_requests_to_the_embedding_model_are_sent_at_once(docs: Path) -> None:
    class Waiting(BaseEmbedding):
        running: int = 0
        most: int = 0

        async def _aget_text_embeddings(self, texts: list[str]) -> list[list[float]]:
            self.running += 1
            self.most = max(self.most, self.running)
            await asyncio.sleep(0.01)
            self.running -= 1
            return [[1.0, float(len(text))] for text in texts]

    model = Waiting(embed_batch_size=1, num_workers=3)
    await ingest(docs, words(embed_model=model))
    assert model.most == 3


def indexes_in(path: Path, *models: BaseEmbedding) -> list[BaseIndex]:
    """One index, opened by several runs with a connection each."""
    VectorStoreIndex([], storage_context=StorageContext.from_defaults(path=path), embed_model=models[0])
    return [load_index_from_storage(StorageContext.from_defaults(path=path), embed_model=one) for one in models]


@pytest.mark.parametrize("kind", ["folder", "reader"])
async def test_two_runs_at_once_over_the_same_source_store_each_passage_once(docs: Path, kind: str) -> None:
    both_embed = asyncio.Barrier(2)

    class Meeting(BaseEmbedding):
        async def _aget_text_embeddings(self, texts: list[str]) -> list[list[float]]:
            await both_embed.wait()
            return [[1.0, float(len(text))] for text in texts]

    one, two = indexes_in(docs.parent / "notes.db", Meeting(), Meeting())
    sources = [docs, docs] if kind == "folder" else [SimpleDirectoryReader(docs, recursive=True).load_data()] * 2
    if kind == "reader":  # its documents have other ids in each run
        sources[1] = [document.model_copy(update={"id_": f"{document.id_}-2"}) for document in sources[0]]
    results = await asyncio.gather(ingest(sources[0], one), ingest(sources[1], two))
    assert sorted(map(counts_of, results)) == [(3, 0, 0, 3, 0), (3, 3, 0, 0, 0)]
    assert sorted(result.nodes for result in results) == [0, 3]
    assert texts_in(one) == ["The tide of a.", "The tide of b.", "The tide of c."]
    assert len(one.storage_context.store.documents()) == 3


async def test_a_run_that_read_an_earlier_version_leaves_no_passage_of_the_other_run(tmp_path: Path) -> None:
    has_read, may_write = asyncio.Event(), asyncio.Event()

    class Slow(BaseEmbedding):
        async def _aget_text_embeddings(self, texts: list[str]) -> list[list[float]]:
            has_read.set()
            await may_write.wait()
            return [[1.0, 2.0] for _ in texts]

    class Slower(Slow):
        async def _aget_text_embeddings(self, texts: list[str]) -> list[list[float]]:
            return [[1.0, 2.0] for _ in texts]

    Slower.__name__ = Slow.__name__
    file = write_pdf(tmp_path / "tides.pdf", "one", "two")
    slow, quick = indexes_in(tmp_path / "notes.db", Slow(), Slower())
    earlier = ingest(file, slow)
    await has_read.wait()
    write_pdf(file, "three", "four", "five")
    assert (await ingest(file, quick)).nodes == 3
    may_write.set()
    await earlier
    assert texts_in(quick) == ["one", "two"]
    assert counts_of(await ingest(file, quick)) == (1, 0, 1, 0, 0)
    assert texts_in(quick) == ["five", "four", "three"]


async def test_a_run_in_a_store_needs_an_index_in_a_file(docs: Path, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="in memory cannot be recorded"):
        ingest(docs, words(), store=tmp_path / "runs.db")
    with pytest.raises(ValueError, match="batch must be 1 or more"):
        ingest(docs, words(), batch=0)
    with pytest.raises(ValueError, match="does not exist"):
        await ingest(tmp_path / "nowhere", words())


async def test_a_run_that_is_over_gives_its_result_again(docs: Path, tmp_path: Path) -> None:
    index = words(storage_context=StorageContext.from_defaults(path=tmp_path / "notes.db"))
    first = await ingest(docs, index, store=tmp_path / "runs.db", run_id="r")
    (docs / "late.txt").write_text("later")
    assert await ingest(docs, index, store=tmp_path / "runs.db", run_id="r") == first
    assert counts_of(await ingest(docs, index, store=tmp_path / "runs.db", run_id="r2")) == (4, 1, 0, 3, 0)


async def test_vectors_of_another_maker_are_replaced_too(docs: Path) -> None:
    vectors = SimpleVectorStore()
    index = words(storage_context=StorageContext.from_defaults(vector_store=None), embed_model=Letters())
    index.storage_context.add_vector_store(vectors, "default")
    assert index.storage_context.foreign_vectors is vectors
    await ingest(docs, index)
    (docs / "a.txt").write_text("Salt keeps fish.")
    assert counts_of(await ingest(docs, index)) == (3, 0, 1, 2, 0)
    assert sorted(one.get_content() for one in vectors.client.nodes()) == texts_in(index)
    assert "Salt keeps fish." in texts_in(index)


async def test_relationships_hold_the_ids_of_the_stored_nodes(docs: Path) -> None:
    index = words()
    (docs / "a.txt").write_text("\n\n\n".join(f"{'word ' * 700}{number}." for number in range(3)))
    await ingest(docs / "a.txt", index)
    nodes = index.storage_context.store.nodes()
    assert [one.prev_node.node_id for one in nodes[1:] if one.prev_node] == [one.id_ for one in nodes[:-1]]
    assert {one.source_node.node_id for one in nodes if one.source_node} == {str(docs / "a.txt")}


class Outer(Workflow):
    """A workflow that ingests in a step."""

    @step
    async def take(self, ctx: Context, ev: StartEvent) -> StopEvent:
        return StopEvent(result=await ingest(ev.folder, words()))


async def test_a_step_may_ingest(docs: Path) -> None:
    assert counts_of(await Outer().run(folder=str(docs))) == (3, 3, 0, 0, 0)


def script(name: str, *arguments: Any) -> "subprocess.Popen[str]":
    path = str(Path(__file__).with_name(name))
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])}
    return subprocess.Popen(
        [sys.executable, path, *map(str, arguments)], env=environment, stdout=subprocess.PIPE, text=True
    )


@pytest.mark.parametrize("hang_at", [3, 11, 19])
def test_a_killed_run_continues_at_its_batch(tmp_path: Path, hang_at: int) -> None:
    (tmp_path / "docs").mkdir()
    for number in range(20):
        (tmp_path / "docs" / f"{number:02}.txt").write_text(f"The tide number {number}.")
    first = script("killed_ingest.py", tmp_path, hang_at)
    log = tmp_path / "log"
    try:
        while not (log.exists() and f"{hang_at}." in log.read_text().split()):
            assert first.poll() is None
            time.sleep(0.02)
        time.sleep(0.2)  # records are written in batches
    finally:
        first.kill()
        first.communicate()
    before = len(log.read_text().split())
    second = script("killed_ingest.py", tmp_path, 99)
    assert second.communicate(timeout=50)[0] == "20 20 0 20\n"
    again = log.read_text().split()[before:]
    batch = hang_at // 4 * 4
    assert again == [f"{number}." for number in range(batch, 20)]
    index = VectorStoreIndex([], storage_context=StorageContext.from_defaults(path=tmp_path / "notes.db"))
    assert sorted(one.get_content() for one in index.storage_context.store.nodes()) == sorted(
        f"The tide number {number}." for number in range(20)
    )


def test_a_resumed_run_reads_again_when_the_index_has_lost_its_passages(tmp_path: Path) -> None:
    (tmp_path / "docs").mkdir()
    for number in range(10):
        (tmp_path / "docs" / f"{number:02}.txt").write_text(f"The tide number {number}.")
    first = script("killed_ingest.py", tmp_path, 9)
    log = tmp_path / "log"
    try:
        while not (log.exists() and "9." in log.read_text().split()):
            assert first.poll() is None
            time.sleep(0.02)
        time.sleep(0.2)  # records are written in batches
    finally:
        first.kill()
        first.communicate()
    for path in tmp_path.glob("notes.db*"):
        path.unlink()
    assert script("killed_ingest.py", tmp_path, 99).communicate(timeout=50)[0] == "10 10 0 10\n"
    assert len(StorageContext.from_defaults(path=tmp_path / "notes.db").store.nodes()) == 10


WRITER = """
import asyncio, sys
from batonflow.retrieval import StorageContext, VectorStoreIndex, ingest, load_index_from_storage
async def main():
    storage = StorageContext.from_defaults(path=sys.argv[1])
    print(await ingest(sys.argv[2], load_index_from_storage(storage), batch=3))
print("ready", flush=True)
sys.stdin.readline()
asyncio.run(main())
"""


def test_two_writers_at_a_time_lose_nothing(tmp_path: Path) -> None:
    folders = [tmp_path / "one", tmp_path / "two"]
    for folder in folders:
        folder.mkdir()
        for number in range(30):
            (folder / f"{number}.txt").write_text(f"The tide number {number} of {folder.name}.")
    path = tmp_path / "notes.db"
    VectorStoreIndex([], storage_context=StorageContext.from_defaults(path=path))
    writers = [
        subprocess.Popen(
            [sys.executable, "-c", WRITER, str(path), str(folder)],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
        )
        for folder in (*folders, tmp_path)
    ]  # fmt: skip
    for one in writers:
        assert one.stdout is not None
        assert one.stdout.readline() == "ready\n"
    for one in writers:
        assert one.stdin is not None
        one.stdin.write("\n")
        one.stdin.flush()
    for one in writers:
        assert "failed=0" in one.communicate(timeout=60)[0]
    store = StorageContext.from_defaults(path=path).store
    [index] = store.indexes()
    assert len(store.members(index.number)) == len(store.nodes()) == 60
    assert len({node.get_content() for node in store.nodes()}) == 60
