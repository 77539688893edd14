"""
The record file has one line per record and no duplicate, even after a crash between write and settlement.
"""

from __future__ import annotations

import asyncio
import errno
import os
import threading
from collections.abc import AsyncIterator, Callable, Sequence
from pathlib import Path
from typing import Any

import orjson
import pytest
from msgspec.structs import replace

from exporters.destinations.ndjson import encode_delivery
from exporters.errors import Misconfigured, Retryable
from exporters.record_file import FileExporter
from spool.deliveries.values import Delivery, Settlement
from spool.log.values import LogEntry
from spool.record import AI_TELEMETRY, Record, record_to_json
from tests.exporters.spools import call, calls
from tests.small_disk import small_disk


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "archive" / "deep" / "records.ndjson"


@pytest.fixture
async def exporter(path: Path) -> AsyncIterator[FileExporter]:
    exporter = FileExporter(path, write=encode_delivery)
    yield exporter
    await exporter.close()


def delivery(first: int, last: int, *, mark: str | None = None) -> Delivery:
    return Delivery(
        id=1, route="archive/ai-telemetry", first=first, last=last, attempts=0, idempotency_key="k", mark=mark
    )


async def marked(exporter: FileExporter, sent: Delivery) -> Delivery:
    """Store the mark before anything is written, as the route does."""
    mark = await exporter.prepare_delivery_mark(sent)
    return sent if mark is None else replace(sent, mark=mark)


async def attempt(
    exporter: FileExporter, sent: Delivery, records: Sequence[Record]
) -> tuple[Delivery, Settlement]:
    ready = await marked(exporter, sent)
    entry = LogEntry(topic=AI_TELEMETRY, first=sent.first, committed_at=0.0, records=records)
    return ready, await exporter.send(ready, [entry])


def lines(*paths: Path) -> list[dict[str, Any]]:
    return [orjson.loads(line) for path in paths for line in path.read_bytes().splitlines()]


def rows(first: int, last: int) -> list[dict[str, Any]]:
    return [record_to_json(record) for record in calls(first, last)]


async def test_a_record_is_a_canonical_line(exporter: FileExporter, path: Path) -> None:
    """
    Each record is one line of the file. The exporter creates missing directories. Shadows are marked as such
    and count as delivered.
    """
    records = [call(1, tags={"note": "a\nb"}), call(2, shadow=True)]
    _, settlement = await attempt(exporter, delivery(1, 2), records)
    assert [record_to_json(record) for record in records] == lines(path)
    assert [False, True] == [line["shadow"] for line in lines(path)]
    assert Settlement(delivered=2) == settlement


async def test_a_repeat_after_a_crash_leaves_no_line_twice(path: Path) -> None:
    """
    A process was killed between write and settlement. The next process finds the written lines and adds
    only missing lines.
    """
    first = FileExporter(path, write=encode_delivery)
    await attempt(first, delivery(1, 2), calls(1, 2))
    crashed, _ = await attempt(first, delivery(3, 5), calls(3, 5))
    with path.open("ab") as file:
        file.write(b'{"kind": "inf')  # a line that a crash cut off in the middle
    await first.close()
    second = FileExporter(path, write=encode_delivery)
    await attempt(second, crashed, calls(3, 5))
    await attempt(second, delivery(6, 6), calls(6, 6))
    await second.close()
    assert rows(1, 6) == lines(path)


async def test_a_repeat_after_a_power_cut_leaves_no_torn_line(path: Path) -> None:
    """
    Unflushed sectors hold zeros after a power cut. Every line is a whole record again, and other deliveries'
    lines are unchanged.
    """
    before, killed, after = [FileExporter(path, write=encode_delivery) for _ in range(3)]
    await attempt(before, delivery(1, 5), calls(1, 5))
    sent, _ = await attempt(killed, delivery(6, 25), calls(6, 25))
    await attempt(before, delivery(26, 30), calls(26, 30))
    content = bytearray(path.read_bytes())
    begin = len(b"".join(content.splitlines(keepends=True)[:5]))
    for sector in range(begin // 512 + 1, begin // 512 + 6, 2):
        content[sector * 512 : sector * 512 + 512] = bytes(512)
    path.write_bytes(content)
    await attempt(after, sent, calls(6, 25))
    assert sorted(map(str, rows(1, 30))) == sorted(map(str, lines(path)))
    for exporter in (before, killed, after):
        await exporter.close()


async def test_delivery_after_a_rotation_creates_a_new_file(exporter: FileExporter, path: Path) -> None:
    """After a rename, the next delivery creates a new file at the path."""
    await attempt(exporter, delivery(1, 2), calls(1, 2))
    old = path.rename(path.with_suffix(".1"))
    await attempt(exporter, delivery(3, 4), calls(3, 4))
    assert rows(1, 2) == lines(old)
    assert rows(3, 4) == lines(path)


async def test_a_repeat_finds_its_file_after_a_rotation(path: Path) -> None:
    """
    If the file was rotated between crash and repeat, whole lines stay in the old file, and the rest goes to
    the new file.
    """
    first = FileExporter(path, write=encode_delivery)
    await attempt(first, delivery(1, 2), calls(1, 2))
    crashed, _ = await attempt(first, delivery(3, 4), calls(3, 4))
    await first.close()
    old = path.rename(path.with_suffix(".1"))
    old.write_bytes(old.read_bytes()[:-20])
    second = FileExporter(path, write=encode_delivery)
    again, _ = await attempt(second, crashed, calls(3, 4))
    assert rows(4, 4) == lines(path)
    await second.close()
    # The second process was killed as well, so both files have lines.
    third = FileExporter(path, write=encode_delivery)
    await attempt(third, again, calls(3, 4))
    await third.close()
    assert rows(1, 4) == lines(old, path)


async def test_another_machine_continues_a_shared_file(path: Path) -> None:
    """
    A file on shared storage is continued by another machine. Its mark names no device, because each machine
    numbers its mounts differently.
    """
    one = FileExporter(path, write=encode_delivery, shared=True)
    sent, _ = await attempt(one, delivery(1, 2), calls(1, 2))
    await one.close()
    assert sent.mark == f"0:{path.stat().st_ino}:0"
    other = FileExporter(path, write=encode_delivery, shared=True)
    assert await other.prepare_delivery_mark(sent) is None
    await attempt(other, sent, calls(1, 2))
    await other.close()
    assert lines(path) == rows(1, 2)


async def test_deleted_file_does_not_stop_the_route(path: Path) -> None:
    """If the file was deleted or moved between crash and repeat, the delivery is written to a new file."""
    first = FileExporter(path, write=encode_delivery)
    crashed, _ = await attempt(first, delivery(1, 2), calls(1, 2))
    await first.close()
    path.unlink()
    second = FileExporter(path, write=encode_delivery)
    await attempt(second, crashed, calls(1, 2))
    await second.close()
    assert rows(1, 2) == lines(path)


async def test_a_link_to_the_file_is_followed(tmp_path: Path) -> None:
    """
    The path of the record file may be a symbolic link. A repeated delivery finds the file to which the link leads.
    """
    (tmp_path / "disk").mkdir()
    link = tmp_path / "records.ndjson"
    link.symlink_to(tmp_path / "disk" / "real.ndjson")
    first = FileExporter(link, write=encode_delivery)
    crashed, _ = await attempt(first, delivery(1, 2), calls(1, 2))
    await first.close()
    second = FileExporter(link, write=encode_delivery)
    await attempt(second, crashed, calls(1, 2))
    await second.close()
    assert link.is_symlink()
    assert rows(1, 2) == lines(tmp_path / "disk" / "real.ndjson")


async def test_lines_are_flushed_before_the_delivery_settles(
    exporter: FileExporter, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """When send returns, the last operation on the file was a flush of its whole content."""
    sizes: list[int] = []
    flush = os.fsync

    def noted(descriptor: int) -> None:
        flush(descriptor)
        if path.exists() and os.fstat(descriptor).st_ino == path.stat().st_ino:
            sizes.append(os.fstat(descriptor).st_size)

    monkeypatch.setattr(os, "fsync", noted)
    await attempt(exporter, delivery(1, 3), calls(1, 3))
    assert path.stat().st_size == sizes[-1]


async def test_a_cancelled_delivery_ends_before_its_repeat_begins(
    exporter: FileExporter, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """
    The disk may still write for a cancelled delivery. The repeat waits for that write and finds its lines.
    """
    ready = await marked(exporter, delivery(1, 3))
    entry = LogEntry(topic=AI_TELEMETRY, first=1, committed_at=0.0, records=calls(1, 3))
    loop, writing, go_on = asyncio.get_running_loop(), asyncio.Event(), threading.Event()
    flush = os.fsync

    def slow(descriptor: int) -> None:
        loop.call_soon_threadsafe(writing.set)
        go_on.wait(60)
        flush(descriptor)

    monkeypatch.setattr(os, "fsync", slow)
    sending = asyncio.create_task(exporter.send(ready, [entry]))
    await writing.wait()
    sending.cancel()
    with pytest.raises(asyncio.CancelledError):
        await sending
    repeat = asyncio.create_task(attempt(exporter, ready, calls(1, 3)))
    go_on.set()
    await repeat
    assert rows(1, 3) == lines(path)


def failing(code: int, *, after: int) -> Callable[[int, Any], int]:
    """Return an os.write that writes a part at the first call and then fails."""
    write = os.write

    def broken(descriptor: int, data: Any) -> int:
        if after and not getattr(broken, "done", False):
            broken.done = True  # type: ignore[attr-defined]
            return write(descriptor, bytes(data)[:after])
        raise OSError(code, os.strerror(code))

    return broken


async def test_a_full_disk_is_waited_for(
    exporter: FileExporter, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """If the disk fills up within a line, the delivery is retried, and the partial line is cut off first."""
    await attempt(exporter, delivery(1, 1), calls(1, 1))
    with monkeypatch.context() as patch:
        patch.setattr(os, "write", failing(errno.ENOSPC, after=20))
        ready = await marked(exporter, delivery(2, 3))
        with pytest.raises(Retryable, match="No space left"):
            await attempt(exporter, ready, calls(2, 3))
    await attempt(exporter, ready, calls(2, 3))
    assert rows(1, 3) == lines(path)


async def test_a_repeat_leaves_the_lines_of_others_alone(path: Path) -> None:
    """After a crash, other deliveries may be written first. The repeat changes none of their lines."""
    first = FileExporter(path, write=encode_delivery)
    crashed, _ = await attempt(first, delivery(1, 3), calls(1, 3))
    await first.close()
    whole = path.read_bytes()
    path.write_bytes(whole[:-20])  # the file breaks off within its last line
    second = FileExporter(path, write=encode_delivery)
    await attempt(second, delivery(4, 6), calls(4, 6))
    await attempt(second, crashed, calls(1, 3))
    await attempt(second, crashed, calls(1, 3))
    await second.close()
    assert [*rows(1, 2), *rows(4, 6), *rows(3, 3)] == lines(path)


async def test_a_delivery_passes_one_that_met_a_full_disk(
    exporter: FileExporter, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """
    A delivery is half written when the disk fills up, and the next one finds space while it waits. Both end
    up in the file once.
    """
    ready = await marked(exporter, delivery(1, 3))
    with monkeypatch.context() as patch:
        patch.setattr(os, "write", failing(errno.ENOSPC, after=400))
        with pytest.raises(Retryable):
            await attempt(exporter, ready, calls(1, 3))
    await attempt(exporter, delivery(4, 5), calls(4, 5))
    await attempt(exporter, ready, calls(1, 3))
    assert sorted(map(str, rows(1, 5))) == sorted(map(str, lines(path)))


async def test_two_topics_share_a_file(path: Path) -> None:
    """
    A destination with two topics has two routes and one file. A repeat of one route removes no line of the other.
    """
    one, other = FileExporter(path, write=encode_delivery), FileExporter(path, write=encode_delivery)
    mine = await marked(one, delivery(1, 3))
    theirs = await marked(other, delivery(4, 6))
    await attempt(other, theirs, calls(4, 6))
    await attempt(one, mine, calls(1, 3))
    await attempt(other, theirs, calls(4, 6))
    await attempt(one, mine, calls(1, 3))
    await one.close()
    await other.close()
    assert [*rows(4, 6), *rows(1, 3)] == lines(path)


async def test_complete_last_line_without_newline_gets_one(exporter: FileExporter, path: Path) -> None:
    """
    An existing file may end without a newline. If its last line is complete, the exporter adds the newline.
    """
    path.parent.mkdir(parents=True)
    path.write_bytes(b'{"kind": "note"}')
    await attempt(exporter, delivery(1, 1), calls(1, 1))
    assert [{"kind": "note"}, *rows(1, 1)] == lines(path)


async def test_a_path_that_cannot_be_written_parks(tmp_path: Path) -> None:
    """If the path is a directory, the message names it, because the operator must change it."""
    exporter = FileExporter(tmp_path, write=encode_delivery)
    with pytest.raises(Misconfigured, match="Is a directory"):
        await exporter.prepare_delivery_mark(delivery(1, 1))
    await exporter.close()


async def test_the_file_is_not_for_everybody(exporter: FileExporter, path: Path) -> None:
    """Other users of the machine cannot read the file, because it names people and teams."""
    await attempt(exporter, delivery(1, 1), calls(1, 1))
    assert 0 == path.stat().st_mode & 0o007


async def test_missing_mount_pauses_the_archive(tmp_path: Path) -> None:
    """
    If the mount of an archive is missing, nothing is written below it. The route continues once
    it is mounted again.
    """
    disk = tmp_path / "disk"
    path = disk / "archive" / "records.ndjson"
    exporter = FileExporter(path, write=encode_delivery)
    with small_disk(disk, mib=8):
        await attempt(exporter, delivery(1, 1), calls(1, 1))
        assert rows(1, 1) == lines(path)
    with pytest.raises(Misconfigured, match=f"nothing is mounted on {disk} any more"):
        await attempt(exporter, delivery(2, 2), calls(2, 2))
    assert [] == list(disk.iterdir())
    disk.rmdir()
    with small_disk(disk, mib=8):
        await attempt(exporter, delivery(2, 2), calls(2, 2))
        assert rows(2, 2) == lines(path)
    await exporter.close()
