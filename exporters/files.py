"""
The `ndjson` destination: one canonical record a line, appended and flushed before its delivery is settled.

Before anything is written, the delivery keeps the file's identity and size as its mark. A repeat cuts the file that
the mark names back to that size, wherever a rotation has moved it within the directory, so no line is there twice.
"""

from __future__ import annotations

import asyncio
import errno
import logging
import os
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

import orjson

from exporters import batch as batches
from exporters.errors import Refused, Retryable
from spool.log import Delivery, Entry, Settlement
from spool.record import Record, as_json

T = TypeVar("T")

_log = logging.getLogger(__name__)

FILE_MODE = 0o640
# Full, busy or broken for now; everything else (permissions, a directory in the way) is for the operator to mend.
_PASSING = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EIO, errno.EAGAIN, errno.EINTR, errno.EMFILE, errno.ENFILE})


@dataclass(frozen=True)
class Mark:
    """Where a delivery begins: a file by its identity, and its size before."""

    device: int
    inode: int
    size: int

    @classmethod
    def parse(cls, text: str) -> Mark:
        device, inode, size = map(int, text.split(":"))
        return cls(device, inode, size)

    def __str__(self) -> str:
        return f"{self.device}:{self.inode}:{self.size}"

    def names(self, status: os.stat_result) -> bool:
        return (status.st_dev, status.st_ino) == (self.device, self.inode)


class NdjsonExporter:
    in_flight = 1  # one file, one order

    def __init__(self, path: Path, *, max_records: int = 1000) -> None:
        self.max_records = max_records
        self._file = _File(path)
        # One thread: what a cancelled delivery was still writing ends before its repeat begins.
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="ndjson")

    async def prepare(self, delivery: Delivery) -> str | None:
        before = None if delivery.mark is None else Mark.parse(delivery.mark)
        mark = await self._in_thread(lambda: self._file.begin(before))
        return None if mark == before else str(mark)

    async def send(self, delivery: Delivery, entries: Sequence[Entry]) -> Settlement:
        batch = batches.with_shadows(delivery, entries)
        await self._in_thread(lambda: self._file.append([record for record, _ in batch.records]))
        return batch.settlement()

    async def close(self) -> None:
        await asyncio.to_thread(self._thread.shutdown)
        self._file.close()

    async def _in_thread(self, work: Callable[[], T]) -> T:
        try:
            return await asyncio.get_running_loop().run_in_executor(self._thread, work)
        except OSError as error:
            words = f"{self._file.path}: {error.strerror or error}"
            if error.errno in _PASSING:
                raise Retryable(words, answered=False, keep_key=True) from error
            raise Refused(words, answered=False) from error


class _File:
    """Everything here waits for the disk: called on the exporter's thread alone."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._descriptor: int | None = None

    def begin(self, before: Mark | None) -> Mark:
        """Undo what an earlier attempt wrote, and say where the next one begins."""
        if before is not None:
            self._undo(before)
        descriptor = self._current()
        status = os.fstat(descriptor)
        return Mark(status.st_dev, status.st_ino, status.st_size)

    def append(self, records: Sequence[Record]) -> None:
        """Every line is on disk when this returns."""
        lines = memoryview(
            b"".join(orjson.dumps(as_json(record), option=orjson.OPT_APPEND_NEWLINE) for record in records)
        )
        descriptor = self._current() if self._descriptor is None else self._descriptor
        while lines:
            lines = lines[os.write(descriptor, lines) :]
        os.fsync(descriptor)

    def close(self) -> None:
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None

    def _undo(self, mark: Mark) -> None:
        descriptor = self._find(mark)
        if descriptor is None:
            # Moved away by a rotation: what it holds of this delivery cannot be taken back.
            _log.warning("%s: the file of a repeated delivery is gone", self.path, extra={"action": "mark_lost"})
            return
        try:
            if os.fstat(descriptor).st_size > mark.size:
                os.ftruncate(descriptor, mark.size)
                os.fsync(descriptor)
        finally:
            os.close(descriptor)

    def _find(self, mark: Mark) -> int | None:
        """The file that a mark names: where it was, or under another name in the same directory."""
        here = self.path.resolve()
        neighbours = list(here.parent.iterdir()) if here.parent.is_dir() else []
        for candidate in (here, *neighbours):
            try:
                if not mark.names(candidate.lstat()):
                    continue
                descriptor = os.open(candidate, os.O_WRONLY | os.O_CLOEXEC | os.O_NOFOLLOW)
            except FileNotFoundError:
                continue
            if mark.names(os.fstat(descriptor)):
                return descriptor
            os.close(descriptor)
        return None

    def _current(self) -> int:
        """The file at the path, opened anew when a rotation has taken the last one away."""
        if self._descriptor is not None and _is_at(self._descriptor, self.path):
            return self._descriptor
        self.close()
        self.path.parent.mkdir(parents=True, exist_ok=True)
        self._descriptor = os.open(self.path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, FILE_MODE)
        _flush_directory(self.path.parent)
        return self._descriptor


def _is_at(descriptor: int, path: Path) -> bool:
    mine = os.fstat(descriptor)
    try:
        there = path.stat()
    except FileNotFoundError:
        return False
    return (mine.st_dev, mine.st_ino) == (there.st_dev, there.st_ino)


def _flush_directory(directory: Path) -> None:
    """A new file is there after a power cut only when its directory was flushed."""
    descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
