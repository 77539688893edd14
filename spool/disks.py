"""File systems: what survives a power cut, detection of full disks, and flushing."""

from __future__ import annotations

import errno
import os
import re
import shutil
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

FSYNC, MEMORY = "fsync", "memory"
REPLACE_S = 2.0
MOUNTS = Path("/proc/self/mountinfo")  # list of mounts, only on Linux

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
class DiskMount:
    """A mounted file system. `kind`: the kernel's name for it, such as `ext4` or `tmpfs`."""

    kind: str
    point: Path
    read_only: bool

    @property
    def flush_durability(self) -> str:
        """
        Return FSYNC if a flushed record survives a power cut, MEMORY if it survives only the end of the
        process.
        """
        return MEMORY if self.kind in _MEMORY else FSYNC

    @property
    def warning(self) -> str:
        """Return why this file system is unsuitable for data, or ""."""
        if self.kind in _MEMORY:
            return (
                f"{self.point} is in memory ({self.kind}), so a restart of the machine deletes everything "
                "stored there"
            )
        if self.kind in _CONTAINER:
            return (
                f"{self.point} is a container layer ({self.kind}), which is deleted with the container. "
                "Mount a volume"
            )
        if self.kind in _NETWORK:
            return (
                f"{self.point} is a network file system ({self.kind}), but SQLite relies on the locks and "
                "flushes of a local disk"
            )
        return ""


def find_mount(path: Path) -> DiskMount | None:
    resolved = nearest_existing_path(path).resolve()
    try:
        lines = MOUNTS.read_text("utf-8", "replace").splitlines()
    except OSError:
        return None
    innermost = None
    for line in lines:
        mount = _parse_mount(line)
        # the last of several mounts at one point hides the others
        if (
            mount
            and resolved.is_relative_to(mount.point)
            and (innermost is None or innermost.point <= mount.point)
        ):
            innermost = mount
    return innermost


def mount_point(path: Path) -> Path:
    point = nearest_existing_path(path).resolve()
    while not os.path.ismount(point):
        point = point.parent
    return point


def nearest_existing_path(path: Path) -> Path:
    candidate = path.absolute()
    while not candidate.exists() and candidate != candidate.parent:
        candidate = candidate.parent
    return candidate


def _parse_mount(line: str) -> DiskMount | None:
    before, _, after = line.partition(" - ")
    fields = before.split()
    kinds = after.split()
    if len(fields) < 6 or not kinds:
        return None
    point = _OCTAL.sub(lambda match: chr(int(match[1], 8)), fields[4])
    return DiskMount(kind=kinds[0], point=Path(point), read_only="ro" in fields[5].split(","))


# -- full disks: by the file system's figures and by errors --------------------------------------------------


ALMOST_NOTHING = 1 << 20
FULL = (errno.ENOSPC, errno.EDQUOT)


def is_disk_full(directory: Path) -> bool:
    """
    Return whether almost no space is free. A full disk may be reported as an input or output error, so errors
    do not suffice. Return False if the free space is unknown.
    """
    try:
        return shutil.disk_usage(directory).free < ALMOST_NOTHING
    except OSError:
        return False


def is_caused_by_full_disk(error: BaseException) -> bool:
    return any(
        (isinstance(cause, OSError) and cause.errno in FULL)
        or getattr(cause, "sqlite_errorname", "") == "SQLITE_FULL"
        for cause in _error_chain(error)
    )


def is_disk_full_error(error: BaseException, directory: Path, *, was_full_before: bool = False) -> bool:
    """
    Return whether a full disk caused the error, even if SQLite reports it as an input or output error.

    `was_full_before`: the disk was full before the operation, though it may have space now.
    """
    is_disk_error = any(
        isinstance(cause, OSError) or hasattr(cause, "sqlite_errorname") for cause in _error_chain(error)
    )
    return is_caused_by_full_disk(error) or (is_disk_error and (was_full_before or is_disk_full(directory)))


def _error_chain(error: BaseException | None) -> Iterator[BaseException]:
    while error is not None:
        yield error
        error = error.__cause__


@contextmanager
def create_flushed_file(path: Path) -> Iterator[BinaryIO]:
    """
    Create a file that only its owner can read. It is flushed at the end of the block.

    The directory is not flushed: see `flush_directory`.
    """
    with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
        yield file
        file.flush()
        os.fsync(file.fileno())


def flush_file(path: Path) -> None:
    """Flush a file that another program wrote."""
    _flush_path(path, os.O_RDWR if sys.platform == "win32" else os.O_RDONLY)


def flush_directory(directory: Path) -> None:
    """
    Make created, renamed and deleted files of a directory survive a power cut. On Windows this does nothing,
    because Windows cannot open directories, and logs such changes itself.
    """
    if sys.platform != "win32":
        _flush_path(directory, os.O_RDONLY | os.O_DIRECTORY)


def replace_file(draft: Path, path: Path) -> None:
    """
    Rename `draft` to `path`. On Windows, retry for REPLACE_S while a virus scanner or another reader has the
    file open.
    """
    if sys.platform != "win32":
        draft.replace(path)
    else:
        deadline = time.monotonic() + REPLACE_S
        while True:
            try:
                draft.replace(path)
                return
            except PermissionError:
                if time.monotonic() > deadline:
                    raise
            time.sleep(0.02)


def write_durably(path: Path, text: str) -> None:
    """
    Write a temporary file, flush it and rename it. After a crash or a power cut, the file has either the old
    or the new content.
    """
    draft = path.with_name(f"{path.name}.new")
    descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with os.fdopen(descriptor, "w") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    replace_file(draft, path)
    flush_directory(path.parent)


def _flush_path(path: Path, flags: int) -> None:
    descriptor = os.open(path, flags)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def make_directory(directory: Path, mode: int = 0o777) -> None:
    missing = [ancestor for ancestor in (directory, *directory.parents) if not ancestor.exists()]
    directory.mkdir(mode=mode, parents=True, exist_ok=True)
    for created in missing:
        with suppress(PermissionError):  # a file that can be written but not read cannot be flushed
            flush_directory(created.parent)
