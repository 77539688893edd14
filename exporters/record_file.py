"""
A file of lines, appended and flushed before their delivery is settled. All file destinations use it.

Before a delivery is written, its mark stores the file's identity and size. A repeated delivery searches for
its lines after that position, even if a rotation renamed the file within the directory, and writes only the
missing lines. So no line is written twice, and lines of other deliveries in between never change.
"""

from __future__ import annotations

import asyncio
import errno
import fcntl
import logging
import os
import threading
from collections import defaultdict
from collections.abc import Awaitable, Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import TypeVar

import orjson

from exporters.errors import Misconfigured, Retryable
from spool.deliveries.values import Delivery, Settlement
from spool.disks import flush_directory, make_directory, mount_point
from spool.log.values import LogEntry

T = TypeVar("T")
Write = Callable[[Delivery, Sequence[LogEntry]], Awaitable[tuple[list[bytes], Settlement]]]

_log = logging.getLogger(__name__)

FILE_MODE = 0o640
_STEP = 64 * 1024  # bytes per step of the backward search for the last line
# A retry may succeed after these. Other errors, such as missing permissions, must be fixed by the operator.
_FULL = {errno.ENOSPC, errno.EDQUOT}
_TEMPORARY = {*_FULL, errno.EIO, errno.EAGAIN, errno.EINTR, errno.EMFILE, errno.ENFILE}


@dataclass(frozen=True)
class FilePosition:
    """
    The position where a delivery begins: the identity of a file, and its size before the delivery.

    `device` is 0 for a file that several machines mount, because each machine has its own number for
    the file system.
    """

    device: int
    inode: int
    size: int

    @classmethod
    def parse(cls, text: str) -> FilePosition:
        device, inode, size = map(int, text.split(":"))
        return cls(device, inode, size)

    def __str__(self) -> str:
        return f"{self.device}:{self.inode}:{self.size}"

    def matches(self, status: os.stat_result) -> bool:
        return self.inode == status.st_ino and self.device in (0, status.st_dev)


class FileExporter:
    """
    An exporter that appends the lines of deliveries to a file.

    `write` returns the lines of a delivery, which all differ. `head` is the first line of a new file; a file
    with another first line is renamed. With `shared`, other machines may continue the file. `ending` returns
    a text that ends all lines of the delivery, and no other lines. If an earlier attempt wrote lines with
    this ending that are no longer wanted, for example because prices changed, they are replaced with blanks.
    """

    in_flight = 1  # one delivery at a time, because all deliveries append to the same file in order

    def __init__(
        self,
        path: Path,
        *,
        write: Write,
        max_records: int = 1000,
        head: bytes = b"",
        shared: bool = False,
        ending: Callable[[Delivery], bytes] | None = None,
    ) -> None:
        self.max_records = max_records
        self._write = write
        self._ending = ending
        self._file = _RecordFile(path, head, shared)
        # One thread, so that a cancelled delivery finishes writing before its repeat begins.
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="record file")

    async def prepare_delivery_mark(self, delivery: Delivery) -> str | None:
        before = None if delivery.mark is None else FilePosition.parse(delivery.mark)
        mark = await self._run_on_thread(lambda: self._file.begin_delivery(before))
        return None if mark == before else str(mark)

    async def send(self, delivery: Delivery, entries: Sequence[LogEntry]) -> Settlement:
        lines, settlement = await self._write(delivery, entries)
        mark = None if delivery.mark is None else FilePosition.parse(delivery.mark)
        ending = b"" if self._ending is None else self._ending(delivery)
        await self._run_on_thread(lambda: self._file.append(lines, mark, ending))
        return settlement

    async def close(self) -> None:
        await asyncio.to_thread(self._thread.shutdown)
        self._file.close()

    async def _run_on_thread(self, operation: Callable[[], T]) -> T:
        try:
            return await asyncio.get_running_loop().run_in_executor(self._thread, operation)
        except OSError as error:
            message = f"{self._file.path}: {error.strerror or error}"
            if error.errno in _TEMPORARY:
                raise Retryable(message, answered=False) from error
            raise Misconfigured(message, answered=False) from error


# The locks are by path, because the routes of two topics may share a file.
_locks: defaultdict[Path, threading.Lock] = defaultdict(threading.Lock)


class _RecordFile:
    """The file of an exporter. Its methods block on the disk, so call them only on the exporter's thread."""

    def __init__(self, path: Path, head: bytes, shared: bool) -> None:
        self.path = path
        self._head = head
        self._shared = shared
        self._lock = _locks[path.absolute()]
        self._descriptor: int | None = None
        self._mount: Path | None = None  # mount point of the file, known after it was first opened

    def begin_delivery(self, before: FilePosition | None) -> FilePosition:
        """
        Return where the delivery's lines begin: at the position of its first attempt (`before`), if that file
        is found.
        """
        with self._lock:
            if before is not None:
                descriptor = self._open_file_of_position(before)
                if descriptor is not None:
                    os.close(descriptor)
                    return before
                # A rotation moved the file out of the directory, so the lines written so far are unknown.
                fields = {"action": "mark_lost"}
                _log.warning(
                    (
                        "%s: the file of a repeated delivery no longer exists in its directory, so some "
                        "lines may be written twice"
                    ),
                    self.path,
                    extra=fields,
                )
            descriptor = self._open_current_file()
            _repair_last_line(descriptor)
            status = os.fstat(descriptor)
            return FilePosition(0 if self._shared else status.st_dev, status.st_ino, status.st_size)

    def append(self, lines: Sequence[bytes], position: FilePosition | None, line_suffix: bytes = b"") -> None:
        """
        Append the lines that the file lacks after the position `position`, and flush. Then each line is in the
        file exactly once.

        Lines of an interrupted attempt, which have this `line_suffix` but are not in `lines`, are replaced with
        blanks.
        """
        with self._lock:
            descriptor = self._open_current_file()
            _repair_last_line(descriptor)
            written = self._blank_foreign_lines_and_find_written(
                position, descriptor, set(lines), line_suffix
            )
            head = b"" if os.fstat(descriptor).st_size else self._head
            missing = memoryview(head + b"".join(line for line in lines if line not in written))
            while missing:
                missing = missing[os.write(descriptor, missing) :]
            os.fsync(descriptor)

    def close(self) -> None:
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None

    def _blank_foreign_lines_and_find_written(
        self, position: FilePosition | None, current: int, searched_lines: set[bytes], line_suffix: bytes
    ) -> set[bytes]:
        if position is None:
            return set()
        blank = b"\n" if self._head else b" "

        def is_foreign_or_unflushed_line(line: bytes) -> bool:
            is_other = bool(line_suffix) and line.endswith(line_suffix) and line not in searched_lines
            return is_other or b"\0" in line

        if position.matches(os.fstat(current)):
            _blank_lines_that_need_it(current, position.size, blank, is_foreign_or_unflushed_line)
            return _find_lines_after(current, position.size, searched_lines)
        rotated = self._open_file_of_position(position)
        if rotated is None:
            return set()
        try:
            _repair_last_line(rotated)
            _blank_lines_that_need_it(rotated, position.size, blank, is_foreign_or_unflushed_line)
            os.fsync(rotated)
            _blank_lines_that_need_it(current, 0, blank, is_foreign_or_unflushed_line)
            return _find_lines_after(rotated, position.size, searched_lines) | _find_lines_after(
                current, 0, searched_lines
            )
        finally:
            os.close(rotated)

    def _open_file_of_position(self, position: FilePosition) -> int | None:
        resolved = self.path.resolve()
        neighbours = list(resolved.parent.iterdir()) if resolved.parent.is_dir() else []
        for candidate in (resolved, *neighbours):
            try:
                if not position.matches(candidate.lstat()):
                    continue
                descriptor = os.open(candidate, os.O_RDWR | os.O_APPEND | os.O_CLOEXEC | os.O_NOFOLLOW)
            except FileNotFoundError:
                continue
            if position.matches(os.fstat(descriptor)):
                return descriptor
            os.close(descriptor)
        return None

    def _open_current_file(self) -> int:
        if self._descriptor is not None and _is_open_file_at(self._descriptor, self.path):
            return self._descriptor
        self.close()
        if self._mount is not None and not os.path.ismount(self._mount):
            raise OSError(errno.ENODEV, f"nothing is mounted on {self._mount} any more: mount it again")
        make_directory(self.path.parent)
        descriptor = self._open_or_create()
        if self._head and _has_other_first_line(descriptor, self._head):
            os.close(descriptor)
            resolved = self.path.resolve()
            new_path = _free_name(resolved)
            resolved.rename(new_path)
            fields = {"action": "file_moved_aside", "file": str(new_path)}
            _log.warning(
                "%s: the file has other columns, so it was renamed and a new file was created",
                resolved,
                extra=fields,
            )
            descriptor = self._open_or_create()
        self._descriptor = descriptor
        flush_directory(self.path.parent)
        self._mount = mount_point(self.path)
        return self._descriptor

    def _open_or_create(self) -> int:
        return os.open(self.path, os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, FILE_MODE)


def _has_other_first_line(descriptor: int, expected_first_line: bytes) -> bool:
    """Return whether the file's first line differs from `expected_first_line`, so that its lines have other columns."""
    first, newline, _ = os.pread(descriptor, _STEP, 0).partition(b"\n")
    return bool(newline) and first + newline != expected_first_line


def _free_name(path: Path) -> Path:
    names = (path.with_name(f"{path.name}.{number}") for number in count(1))
    return next(name for name in names if not name.exists())


def _is_open_file_at(descriptor: int, path: Path) -> bool:
    opened = os.fstat(descriptor)
    try:
        current = path.stat()
    except FileNotFoundError:
        return False
    return (opened.st_dev, opened.st_ino) == (current.st_dev, current.st_ino)


def _repair_last_line(descriptor: int) -> None:
    """
    Cut off the incomplete last line that a crash or a full disk left. The delivery of that line writes it again.

    If the line lacks only its newline, append it.
    """
    size = os.fstat(descriptor).st_size
    if not size or os.pread(descriptor, 1, size - 1) == b"\n":
        return
    torn = b""
    begin = size
    while begin and b"\n" not in torn:
        begin = max(0, begin - _STEP)
        torn = os.pread(descriptor, size - begin, begin)
    torn = torn.rpartition(b"\n")[2]
    try:
        orjson.loads(torn)
    except orjson.JSONDecodeError:
        os.ftruncate(descriptor, size - len(torn))
    else:
        os.write(descriptor, b"\n")


def _blank_lines_that_need_it(
    descriptor: int, position: int, blank: bytes, needs_blanking: Callable[[bytes], bool]
) -> None:
    """
    Replace the wrong lines after a position with blanks, so that all other lines keep their position.

    A power cut leaves zeros in place of lines written but not flushed. In JSON, blanks become part
    of the next line. In CSV, they become empty lines.
    """
    with os.fdopen(os.dup(descriptor), "rb") as file:
        file.seek(position)
        sizes = [(needs_blanking(line), len(line)) for line in file]
    if not any(is_blank for is_blank, _ in sizes):
        return
    flags = fcntl.fcntl(descriptor, fcntl.F_GETFL)
    # In append mode, pwrite ignores its position.
    fcntl.fcntl(descriptor, fcntl.F_SETFL, flags & ~os.O_APPEND)
    try:
        for is_blank, size in sizes:
            if is_blank:
                os.pwrite(descriptor, blank * size, position)
            position += size
    finally:
        fcntl.fcntl(descriptor, fcntl.F_SETFL, flags)
    message = (
        "lines were blanked, because a power cut tore them or an earlier attempt wrote them with other prices"
    )
    _log.warning(message, extra={"action": "torn_lines"})


def _find_lines_after(descriptor: int, position: int, searched_lines: set[bytes]) -> set[bytes]:
    with os.fdopen(os.dup(descriptor), "rb") as file:
        file.seek(position)
        return {text for line in file for text in (line, line.lstrip(b" ")) if text in searched_lines}
