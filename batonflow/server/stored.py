"""The stored stream of a run in pages, with a cache for readers of the same run."""

import asyncio
from bisect import bisect_left
from collections import OrderedDict
from collections.abc import AsyncGenerator
from typing import NamedTuple
from weakref import WeakValueDictionary

from batonflow.durable.codec import Codec
from batonflow.durable.gaps import NO_GAP, gap_after, reset_in
from batonflow.durable.replay import records_of
from batonflow.durable.store_protocol import RunInfo, RunStore, StoredCommit
from batonflow.server.envelopes import Streamed, streamed_in

__all__ = ["Page", "Reading", "StoredPages", "seq_of", "streamed_by"]

COMMITS = 128
"""Commits in a page."""

BATCH = 64
"""Events in a group."""

KEPT_BYTES = 4 * 1024 * 1024
"""Bytes of records whose pages are cached."""


class Page(NamedTuple):
    """The streamed events of consecutive commits.

    Attributes:
        events: In the order of the commits.
        last: Number of the last commit.
        gap: The first place of a possibly missing event after them; None if they have no streamed events.
        size: Bytes of the commits.
    """

    events: list[Streamed]
    last: int
    gap: int | None
    size: int


_Key = tuple[int, str, float, int]


class StoredPages:
    """Reader of stored pages, which reads each page once for concurrent readers."""

    def __init__(self) -> None:
        self._kept: OrderedDict[_Key, Page] = OrderedDict()
        self._size = 0
        self._reading: WeakValueDictionary[_Key, asyncio.Lock] = WeakValueDictionary()

    def forget_loop(self) -> None:
        """Drop the pages of a closed loop."""
        self._reading.clear()

    async def page(self, store: RunStore, info: RunInfo, codec: Codec, after: int) -> Page | None:
        """Return the page after a commit, or None at the end.

        Args:
            store: The store of the run.
            info: The record of the run.
            codec: Reads its records.
            after: The commit.
        """
        # A run of the same id, created after a deletion, has other commits.
        key = (id(store), info.run_id, info.created_at, after)
        async with self._reading.setdefault(key, asyncio.Lock()):
            if (page := self._kept.get(key)) is not None:
                self._kept.move_to_end(key)
                return page
            commits = await store.read(info.run_id, after, COMMITS)
            if not commits:
                return None
            page = _page_of(commits, codec)
            if len(commits) == COMMITS or (info.is_over and page.last >= info.seq):
                self._keep(key, page)
            return page

    def _keep(self, key: _Key, page: Page) -> None:
        if page.size > KEPT_BYTES:
            return
        self._kept[key] = page
        self._size += page.size
        while self._size > KEPT_BYTES:
            self._size -= self._kept.popitem(last=False)[1].size


class Reading:
    """One reading of a stored stream, in order.

    Args:
        pages: The pages of all streams.
        store: The store of the run.
        info: The record of the run.
        codec: Reads its records.
        after: Begin after this place in the stream.
        before: End before this place.
    """

    def __init__(
        self, pages: StoredPages, store: RunStore, info: RunInfo, codec: Codec, after: int, before: int
    ) -> None:
        self._pages = pages
        self._store = store
        self._info = info
        self._codec = codec
        self._after = after
        self._before = before
        # Read events after a gap in the stored stream; the place of the gap; the last read commit.
        self.held: list[Streamed] = []
        self.gap: int = NO_GAP
        self.commit: int = 0

    async def batches(self) -> AsyncGenerator[list[Streamed]]:
        """Yield groups of events up to the first gap; later events stay in ``held``."""
        while page := await self._pages.page(self._store, self._info, self._codec, self.commit):
            self.commit = page.last
            self.gap = self.gap if page.gap is None else page.gap
            found = [one for one in page.events if self._after < one.seq < self._before]
            if not found and not self.held:
                continue
            self.held = sorted([*self.held, *found], key=seq_of)
            end = bisect_left(self.held, self.gap, key=seq_of)
            ready, self.held = self.held[:end], self.held[end:]
            for begin in range(0, len(ready), BATCH):
                yield ready[begin : begin + BATCH]


def seq_of(one: Streamed) -> int:
    """Return the place of an event in its stream."""
    return one.seq


def streamed_by(commits: list[StoredCommit], codec: Codec) -> list[Streamed]:
    """Return the streamed events of some commits."""
    found = [one for record in records_of(commits) for one in streamed_in(record, codec)]
    resets = [(reset, commit.seq) for commit in commits if (reset := reset_in(commit)) is not None]
    found += [Streamed(one.seq, one.ts, "", "", 0, commit, codec.event(one.event())) for one, commit in resets]
    return found


def _page_of(commits: list[StoredCommit], codec: Codec) -> Page:
    gap = gap_after(commits, -1)
    size = sum(len(commit.body) for commit in commits)
    return Page(streamed_by(commits, codec), commits[-1].seq, None if gap == -1 else gap, size)
