"""
Disks and what is to be on them after a power cut: what kind of file system a directory lies on, what a flush to it is
worth, whether the disk is full; new files and names in directories, flushed.
"""

from __future__ import annotations

import errno
import os
import re
import shutil
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

FSYNC, MEMORY = "fsync", "memory"
MOUNTS = Path("/proc/self/mountinfo")  # of Linux alone; elsewhere nothing is known

_MEMORY = {"tmpfs", "ramfs"}
_CONTAINER = {"overlay", "aufs", "fuse.fuse-overlayfs"}
_NETWORK = {
    "nfs",
    "nfs4",
    "cifs",
    "smb3",
    "smbfs",
    "ceph",
    "9p",
    "glusterfs",
    "fuse.glusterfs",
    "lustre",
    "afs",
    "fuse.sshfs",
    "fuse.s3fs",
    "fuse.gcsfuse",
    "fuse.blobfuse",
    "fuse.rclone",
}
_OCTAL = re.compile(r"\\([0-7]{3})")


@dataclass(frozen=True, kw_only=True)
class Mount:
    """A mounted file system: `kind` as the kernel names it (`ext4`, `tmpfs`), and where it is mounted."""

    kind: str
    point: Path
    read_only: bool

    @property
    def durability(self) -> str:
        """
        Return what an acknowledged record survives: FSYNC for a flush to a device, MEMORY for nothing but the
        end of the process.
        """
        return MEMORY if self.kind in _MEMORY else FSYNC

    @property
    def warning(self) -> str:
        """Why it is no good place for data; empty if it is one."""
        if self.kind in _MEMORY:
            return f"{self.point} is memory ({self.kind}): everything kept there is gone after a restart of the machine"
        if self.kind in _CONTAINER:
            return f"{self.point} is a layer of a container ({self.kind}): it goes with the container; mount a volume"
        if self.kind in _NETWORK:
            return f"{self.point} is a network file system ({self.kind}): SQLite relies on locks and flushes of a disk"
        return ""


def mount_of(path: Path) -> Mount | None:
    """The file system of a path, or of the nearest directory above it that exists; None where it cannot be known."""
    place = nearest(path).resolve()
    try:
        lines = MOUNTS.read_text("utf-8", "replace").splitlines()
    except OSError:
        return None
    found = None
    for line in lines:
        mount = _parsed(line)
        # The last of several mounts on one point hides the others.
        if mount and place.is_relative_to(mount.point) and (found is None or found.point <= mount.point):
            found = mount
    return found


def mount_point(path: Path) -> Path:
    """Return the directory on which the file system of a path is mounted."""
    place = nearest(path).resolve()
    while not os.path.ismount(place):
        place = place.parent
    return place


def nearest(path: Path) -> Path:
    """The path, or the nearest directory above it that exists."""
    place = path.absolute()
    while not place.exists() and place != place.parent:
        place = place.parent
    return place


def _parsed(line: str) -> Mount | None:
    """`36 35 98:0 /root /mnt/point rw,noatime master:1 - ext3 /dev/root rw`; None if it is not such a line."""
    before, _, after = line.partition(" - ")
    fields = before.split()
    kinds = after.split()
    if len(fields) < 6 or not kinds:
        return None
    point = _OCTAL.sub(lambda found: chr(int(found[1], 8)), fields[4])
    return Mount(kind=kinds[0], point=Path(point), read_only="ro" in fields[5].split(","))


# -- whether a disk is full: what the file system says, and what an error says -------------------------------


ALMOST_NOTHING = 1 << 20
FULL = (errno.ENOSPC, errno.EDQUOT)


def is_full(directory: Path) -> bool:
    """True if an input or output error may really be a full disk; False where nothing can be said."""
    try:
        return shutil.disk_usage(directory).free < ALMOST_NOTHING
    except OSError:
        return False


def says_full(error: BaseException) -> bool:
    """True if an error, or what caused it, is that of a full disk or quota."""
    return any(
        (isinstance(cause, OSError) and cause.errno in FULL)
        or getattr(cause, "sqlite_errorname", "") == "SQLITE_FULL"
        for cause in _causes(error)
    )


def explains(error: BaseException, directory: Path, *, was_full: bool = False) -> bool:
    """
    True if an error comes from a full disk, also where SQLite calls it one of input or output.

    `was_full`: before what failed began; room that somebody made since does not make it another error.
    """
    of_the_disk = any(
        isinstance(cause, OSError) or hasattr(cause, "sqlite_errorname") for cause in _causes(error)
    )
    return says_full(error) or (of_the_disk and (was_full or is_full(directory)))


def _causes(error: BaseException | None) -> Iterator[BaseException]:
    while error is not None:
        yield error
        error = error.__cause__


@contextmanager
def new_file(path: Path) -> Iterator[BinaryIO]:
    """
    A file that is not there yet, for its owner alone; flushed at the end. Its name is not: see `flush_directory`.
    """
    with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
        yield file
        file.flush()
        os.fsync(file.fileno())


def flush_file(path: Path) -> None:
    """Flush a file, so that what other programs wrote into it survives a power cut."""
    _flush(path, os.O_RDONLY)


def flush_directory(directory: Path) -> None:
    """Flush a directory, so that files made, renamed or removed in it stay so after a power cut."""
    _flush(directory, os.O_RDONLY | os.O_DIRECTORY)


def _flush(path: Path, flags: int) -> None:
    descriptor = os.open(path, flags)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def make_directory(directory: Path, mode: int = 0o777) -> None:
    """Make it and its parents where they are missing; they stay."""
    missing = [one for one in (directory, *directory.parents) if not one.exists()]
    directory.mkdir(mode=mode, parents=True, exist_ok=True)
    for made in missing:
        with suppress(PermissionError):  # a directory that may be written and not read cannot be flushed
            flush_directory(made.parent)
