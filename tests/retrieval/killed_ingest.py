"""A process that ingests a folder and hangs in a batch: ``killed_ingest.py FOLDER HANG_AT``."""

import asyncio
import sys
from pathlib import Path

from batonflow.retrieval import BaseEmbedding, SentenceSplitter, StorageContext, VectorStoreIndex, ingest

FOLDER, HANG_AT = Path(sys.argv[1]), int(sys.argv[2])


class Counting(BaseEmbedding):
    """Notes each text that it embeds, and hangs at one of them."""

    async def _aget_text_embeddings(self, texts: list[str]) -> list[list[float]]:
        for text in texts:
            with (FOLDER / "log").open("a") as log:
                log.write(f"{text.split()[-1]}\n")
            if text.split()[-1] == f"{HANG_AT}.":
                await asyncio.sleep(60)
        return [[float(len(text)), 1.0] for text in texts]


async def main() -> None:
    storage = StorageContext.from_defaults(path=FOLDER / "notes.db")
    model = Counting(embed_batch_size=2)
    options = {"embed_model": model, "storage_context": storage, "transformations": [SentenceSplitter()]}
    index = VectorStoreIndex([], index_id="notes", **options)
    result = await ingest(FOLDER / "docs", index, store=FOLDER / "runs.db", run_id="docs-1", batch=4)
    print(result.done, result.added + result.unchanged, result.failed, result.nodes)


asyncio.run(main())
