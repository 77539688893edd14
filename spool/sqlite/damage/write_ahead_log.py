"""
A reader of SQLite's write-ahead log, by its file format, without SQLite.

SQLite treats the first frame with a wrong checksum as the end of the log, and drops all later commits. After
a power cut, that is correct, because only the last transaction was not flushed. But if complete commits
follow such a frame, the log is damaged, and their pages can still be read.
"""

from __future__ import annotations

import struct
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

KEPT_LOG = "spool.sqlite-wal.kept"

# magic number, version, page size, checkpoint, two salts, two checksums
HEADER = struct.Struct(">8I")
# page number, number of pages if the frame ends a commit or else 0, two salts, two checksums
FRAME = struct.Struct(">6I")
SHARED = struct.Struct("=16xI")  # last frame of a complete transaction, in the shared index file
LITTLE, BIG = 0x377F0682, 0x377F0683  # magic numbers, by the byte order of the checksums
WORD = 0xFFFFFFFF

_Sums = tuple[int, int]


class WalFrame(NamedTuple):
    """
    A frame of the log: one version of a page. If not `is_sound`, its content or its header may be damaged.
    """

    page: int
    pages_after: int  # pages of the database after it if the frame ends a commit, else 0
    at: int  # offset of the page in the log file
    is_sound: bool


def read_frames(path: Path, page_size: int) -> Sequence[WalFrame]:
    """Return the frames of the newest generation (those with the header's salts)."""
    try:
        data = path.read_bytes()
    except FileNotFoundError:
        return []
    step = FRAME.size + page_size
    places = range(HEADER.size, len(data) - step + 1, step)
    if not places:
        return []
    order, salts, sums = _read_write_ahead_log_header(data)
    read: list[WalFrame] = []
    last = 0
    for at in places:
        page, pages_after, *marks, first, second = FRAME.unpack_from(data, at)
        content = memoryview(data)[at + FRAME.size : at + step]
        computed = {
            _next_checksum(_next_checksum(checksum, data[at : at + 8], order), content, order)
            for checksum in sums
        }
        is_own = tuple(marks) == salts
        is_sound = is_own and (first, second) in computed
        sums = {(first, second)} if is_sound else {(first, second), *computed}
        read.append(WalFrame(page, pages_after, at + FRAME.size, is_sound))
        if is_own:
            last = len(read)
    return read[:last]


def is_undamaged(path: Path, page_size: int) -> bool:
    if not path.exists() or path.stat().st_size < HEADER.size:
        return True
    with path.open("rb") as log:
        head = log.read(HEADER.size)
    order = {LITTLE: "<", BIG: ">"}.get(HEADER.unpack(head)[0])
    if order is None or _next_checksum((0, 0), head[:24], order) != HEADER.unpack(head)[6:]:
        return False
    return all(frame.is_sound for frame in read_frames(path, page_size))


def count_frames(path: Path, page_size: int) -> int:
    step = FRAME.size + page_size
    count = 0
    with path.open("rb") as log:
        head = log.read(HEADER.size + FRAME.size)
        if len(head) < HEADER.size + FRAME.size:
            return 0
        _, salts, _ = _read_write_ahead_log_header(head)
        size = log.seek(0, 2)
        for number, at in enumerate(range(HEADER.size, size - step + 1, step), start=1):
            log.seek(at)
            if FRAME.unpack(log.read(FRAME.size))[2:4] == salts:
                count = number
    return count


def read_newest_version_of_page(path: Path, page_size: int, page_number: int) -> bytes:
    """Return the newest version of a page, or b"" if the log does not have it. Checksums are not verified."""
    step = FRAME.size + page_size
    if not path.exists():
        return b""
    with path.open("rb") as log:
        head = log.read(HEADER.size + FRAME.size)
        if len(head) < HEADER.size + FRAME.size:
            return b""
        _, salts, _ = _read_write_ahead_log_header(head)
        size = log.seek(0, 2)
        written = committed = 0
        for at in range(HEADER.size, size - step + 1, step):
            log.seek(at)
            page, pages_after, *marks, _, _ = FRAME.unpack(log.read(FRAME.size))
            if tuple(marks) != salts:
                break
            written = at if page == page_number else written
            committed = written if pages_after else committed
        log.seek(committed + FRAME.size)
        return log.read(page_size) if committed else b""


def frame_count_in_shared_index(shared_index_path: Path) -> int:
    """Return the number of frames that SQLite has read, from its shared index, or 0 without one."""
    try:
        head = shared_index_path.read_bytes()[: SHARED.size]
    except FileNotFoundError:
        return 0
    return SHARED.unpack(head)[0] if len(head) == SHARED.size else 0


def has_hidden_commits(frames: Sequence[WalFrame], seen: int) -> bool:
    """
    Return whether SQLite dropped commits that were on disk, after the `seen` frames that it read. A single
    commit does not count if a frame is damaged, because it may be an incomplete write.
    """
    behind = frames[seen:]
    commits = sum(frame.is_sound and frame.pages_after > 0 for frame in behind)
    return commits > 1 or (commits == 1 and all(frame.is_sound for frame in behind))


def write_log_pages_into(log_path: Path, database: Path, page_size: int) -> None:
    """
    Write the log's pages into the database, even those with a wrong checksum, because rows have checksums of
    their own.
    """
    log_frames = list(read_frames(log_path, page_size))
    # a transaction without an end was never committed
    while log_frames and not log_frames[-1].pages_after:
        log_frames.pop()
    if not log_frames:
        return
    sizes = [frame.pages_after for frame in log_frames if frame.is_sound and frame.pages_after]
    max_pages = max(sizes, default=database.stat().st_size // page_size + len(log_frames))
    with log_path.open("rb") as source, database.open("r+b") as target:
        for frame in log_frames:
            if 1 <= frame.page <= max_pages:
                source.seek(frame.at)
                target.seek((frame.page - 1) * page_size)
                target.write(source.read(page_size))


def _read_write_ahead_log_header(header_and_first_frame: bytes) -> tuple[str, tuple[int, ...], set[_Sums]]:
    """
    Return byte order, salts and possible checksums. If the header is damaged, the salts are those of the
    first frame.
    """
    magic, *_, first_salt, second_salt, first, second = HEADER.unpack_from(header_and_first_frame)
    order = {LITTLE: "<", BIG: ">"}.get(magic, "<" if sys.byteorder == "little" else ">")
    computed = _next_checksum((0, 0), header_and_first_frame[:24], order)
    if computed == (first, second):
        return order, (first_salt, second_salt), {computed}
    _, _, *salts, _, _ = FRAME.unpack_from(header_and_first_frame, HEADER.size)
    return order, tuple(salts), {(first, second), computed}


def _next_checksum(sums: _Sums, data: bytes | memoryview, order: str) -> _Sums:
    first, second = sums
    words = struct.unpack(f"{order}{len(data) // 4}I", data)
    for even, odd in zip(words[::2], words[1::2], strict=True):
        first = (first + even + second) & WORD
        second = (second + odd + first) & WORD
    return first, second
