"""
Replay a trace of changes up to some point and drop unsynced writes, to construct the disk after a power cut.

The model is strict. Of a file, writes since its last sync are present, absent, or torn (half of the
sectors). Of a directory, names created, renamed and removed since its last sync are present up to some
point. If the name of a synced file was not synced, the file is lost. `-shm` files are always absent,
because SQLite recreates them.
"""

from __future__ import annotations

import random
import struct
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

_HEAD = struct.Struct("<cQQI")
_SECTOR = 512
_LARGEST = 1 << 30


@dataclass(frozen=True, slots=True)
class Change:
    # One letter: (C)reate, (W)rite, (T)runcate, (A)llocate, (S)ync, sync of a (D)irectory, (R)ename,
    # (U)nlink, (M)ake a directory.
    operation: str
    inode: int
    offset: int
    data: bytes
    end: int  # position in the trace at which the record of this operation ends

    @property
    def names(self) -> list[str]:
        return self.data.decode().split("\0")


def changes(trace: Path) -> Iterator[Change]:
    """Yield the changes of a trace in order. Ignore an incomplete record at the end."""
    recorded = trace.read_bytes()
    place = 0
    while place + _HEAD.size <= len(recorded):
        operation, inode, offset, length = _HEAD.unpack_from(recorded, place)
        begin, end = place + _HEAD.size, place + _HEAD.size + length
        if end > len(recorded):
            return
        assert operation != b"X", f"the recorder met a call that it cannot record: {recorded[begin:end]!r}"
        yield Change(operation.decode(), inode, offset, recorded[begin:end], end)
        place = end


@dataclass
class _File:
    inode: int
    synced: bytearray = field(default_factory=bytearray)
    pending: list[Change] = field(default_factory=list)

    def sync(self) -> None:
        for change in self.pending:
            _apply(self.synced, change)
        self.pending = []

    def whole(self) -> bytes:
        content = bytearray(self.synced)
        for change in self.pending:
            _apply(content, change)
        return bytes(content)

    def cut(self, rng: random.Random) -> bytes:
        content = bytearray(self.synced)
        for change in self.pending:
            fate = rng.choice(("there", "torn", "gone"))
            if fate == "there" or (fate == "torn" and change.operation != "W"):
                _apply(content, change)
            elif fate == "torn":
                for begin in range(0, len(change.data), _SECTOR):
                    if rng.random() < 0.5:
                        _write(content, change.offset + begin, change.data[begin : begin + _SECTOR])
        return bytes(content)


def _apply(content: bytearray, change: Change) -> None:
    if change.operation == "W":
        _write(content, change.offset, change.data)
    elif change.operation == "T":
        assert change.offset < _LARGEST
        del content[change.offset :]
        content.extend(bytes(change.offset - len(content)))
    elif change.operation == "A":
        content.extend(bytes(max(0, change.offset - len(content))))


def _write(content: bytearray, offset: int, data: bytes) -> None:
    content.extend(bytes(max(0, offset - len(content))))
    content[offset : offset + len(data)] = data


# paths with their inode and content (None for a directory), parents first
Inventory = list[tuple[str, int, bytes | None]]
Names = dict[str, "_File | None"]  # files by their path relative to the root; None stands for a directory


class Disk:
    """A directory at the beginning of a trace, with its changes up to some point."""

    def __init__(self, before: Inventory) -> None:
        """Start from `before`, which was on the disk before the first change."""
        self._synced: Names = {
            name: None if content is None else _File(inode, bytearray(content))
            for name, inode, content in before
        }
        self._names: Names = dict(self._synced)
        self._files = {file.inode: file for file in self._names.values() if file is not None}
        # changes of names that are not yet flushed, by directory
        self._pending: defaultdict[str, list[tuple[Change, _File | None]]] = defaultdict(list)

    def change(self, change: Change) -> None:
        if change.operation in "WTA":
            self._files[change.inode].pending.append(change)
        elif change.operation == "S":
            self._files[change.inode].sync()
        elif change.operation == "D":
            for pending, made in self._pending.pop(change.names[0], []):
                _rename(self._synced, pending, made)
        else:
            made = None
            if change.operation == "C":
                made = self._files[change.inode] = _File(change.inode)
            _rename(self._names, change, made)
            self._pending[_directory(change.names[-1])].append((change, made))

    def whole(self) -> dict[str, bytes]:
        """Return every file as the process saw it."""
        return {
            name: file.whole() for name, file in self._names.items() if file is not None and is_kept(name)
        }

    def cut(self, rng: random.Random) -> Inventory:
        """Return one possible state after a power cut."""
        names = dict(self._synced)
        for pending in self._pending.values():
            for change, made in pending[: rng.randint(0, len(pending))]:
                _rename(names, change, made)
        left: Inventory = []
        for name, file in sorted(names.items()):
            if file is None:
                left.append((name, 0, None))
            elif is_kept(name) and _parents_are_in(name, names):
                left.append((name, file.inode, file.cut(rng)))
        return left


def _rename(names: Names, change: Change, made: _File | None) -> None:
    """
    Apply a change of names to a directory. Skip a move if its source was lost in the cut of another directory.
    """
    if change.operation in "CM":
        names[change.names[0]] = made
    elif change.operation == "U":
        names.pop(change.names[0], None)
    elif change.operation == "R":
        old, new = change.names
        if old in names:
            names[new] = names.pop(old)


def _directory(name: str) -> str:
    return name.rpartition("/")[0]


def _parents_are_in(name: str, names: Names) -> bool:
    directory = _directory(name)
    return not directory or directory in names


def at_most_one_change(before: dict[str, bytes], after: dict[str, bytes]) -> bool:
    """Return whether at most one change of a file or a name leads from `before` to `after`."""
    differ = {name for name in before.keys() | after.keys() if before.get(name) != after.get(name)}
    gone = differ - after.keys()
    if len(differ) != 2 or len(gone) != 1:
        return len(differ) < 2
    (old,), (new,) = gone, differ - gone
    return before[old] == after[new]


def is_kept(name: str) -> bool:
    return not name.endswith("-shm")


def inventory(root: Path) -> Inventory:
    paths = [path for path in sorted(root.rglob("*")) if path.is_dir() or path.is_file()]
    return [
        (str(path.relative_to(root)), path.stat().st_ino, None if path.is_dir() else path.read_bytes())
        for path in paths
    ]


def restore(left: Inventory, root: Path, attic: Path) -> None:
    """
    Restore a directory to the state after a cut.

    Files keep their inode, because the marks of record files name it. Files that no longer exist come from
    the attic. They are identified by name as well, because the inode of a removed file is soon reused.
    """
    attic.mkdir(exist_ok=True)
    for path in sorted(root.rglob("*"), reverse=True):
        if path.is_dir():
            path.rmdir()
        elif path.is_file():
            path.rename(attic / f"{path.stat().st_ino} {path.name}")
        else:
            path.unlink()  # the path is a socket
    for name, inode, content in left:
        path = root / name
        if content is None:
            path.mkdir(mode=0o700)
            continue
        kept = attic / f"{inode} {path.name}"
        if kept.exists():
            kept.rename(path)
        path.touch(mode=0o600)
        path.write_bytes(content)
