"""2,000 documents, killed in the middle: each is counted once, but for those under way; the progress goes on."""

import asyncio
import os
import re
import signal
import sqlite3
import subprocess
import sys
import time
from pathlib import Path

import etl
import pytest

DOCUMENTS = 2000
count = etl.count_words


def slow(path: str) -> int:
    """Write the document down, and take some time."""
    with Path("counted.txt").open("a") as counted:
        counted.write(f"{path}\n")
    time.sleep(0.005)
    return count(path)


def run_in(folder: Path) -> subprocess.Popen[str]:
    return subprocess.Popen([sys.executable, __file__, "documents"], cwd=folder, stdout=subprocess.PIPE, text=True)


def done_in(line: str) -> int:
    found = re.fullmatch(rf"transform: (\d+) of {DOCUMENTS}\n", line)
    assert found, line
    return int(found.group(1))


def test_killed_in_the_middle_it_counts_only_the_rest(tmp_path: Path) -> None:
    documents = tmp_path / "documents"
    documents.mkdir()
    for number in range(DOCUMENTS):
        (documents / f"{number:04}.txt").write_text("word " * (number % 10))
    with run_in(tmp_path) as first:
        assert first.stdout
        done = 0
        while done < DOCUMENTS // 10:
            done = done_in(first.stdout.readline())
        os.kill(first.pid, signal.SIGKILL)
    assert done < DOCUMENTS
    counted = tmp_path / "counted.txt"
    before = len(counted.read_text().splitlines())
    with run_in(tmp_path) as second:
        assert second.stdout
        lines = second.stdout.readlines()
    assert second.returncode == 0
    assert done_in(lines[0]) > done - 16
    assert done_in(lines[-2]) == DOCUMENTS
    assert lines[-1] == f"{DOCUMENTS} documents, 9000 words, 0 failed\n"
    assert len(counted.read_text().splitlines()) <= DOCUMENTS + 16
    assert before >= done
    table = sqlite3.connect(tmp_path / "words.db")
    assert table.execute("SELECT COUNT(*), SUM(count) FROM words").fetchone() == (DOCUMENTS, 9000)
    table.close()


def test_a_document_that_cannot_be_read_is_listed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "good.txt").write_text("two words")
    (tmp_path / "bad.txt").write_bytes(b"\xff")
    monkeypatch.chdir(tmp_path)
    loaded = etl.Etl().run_sync(start_event=etl.Folder(path=str(tmp_path)))
    assert (loaded.documents, loaded.words, loaded.failed) == (1, 2, [str(tmp_path / "bad.txt")])


if __name__ == "__main__":
    etl.count_words = slow
    asyncio.run(etl.main(sys.argv[1]))
