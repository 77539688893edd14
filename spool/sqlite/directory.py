"""The data directory. Only its owner can read it, and only one process at a time may use it."""

from __future__ import annotations

import logging
import os
import shutil
import sys
from contextlib import suppress
from pathlib import Path

from spool.disks import flush_directory, make_directory
from spool.errors import NOT_FINISHED, NotAllowed, SpoolLocked, SpoolUnavailable, UnfinishedCopy
from spool.file_locks import lock_without_waiting
from spool.settings import LOCK_FILE

SPOOL, REGISTRY, LEDGER = "spool.sqlite", "registry.sqlite", "ledger.sqlite"

_log = logging.getLogger(__name__)


class DirectoryLock:
    """The lock of a data directory. The kernel releases it if the process ends for any reason."""

    def __init__(self, descriptor: int | None) -> None:
        self._descriptor = descriptor

    @property
    def is_held(self) -> bool:
        return self._descriptor is not None

    def release(self) -> None:
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None


def lock_directory(directory: Path) -> DirectoryLock:
    """
    Lock the data directory, and create it (mode 0700) if it is missing. Raises SpoolLocked if another process
    has locked it.
    """
    try:
        _make_private(directory)
        descriptor = os.open(directory / LOCK_FILE, os.O_RDWR | os.O_CREAT, 0o600)
    except OSError as error:
        raise SpoolUnavailable(f"the data directory {directory} cannot be used: {error.strerror}") from error
    try:
        lock_without_waiting(descriptor)
    except OSError as error:
        os.lseek(descriptor, 0, os.SEEK_SET)
        holder = os.read(descriptor, 32).decode("ascii", "replace").strip()
        os.close(descriptor)
        owner = f"process {holder}" if holder else "another process"
        message = f"{directory} is in use by {owner}: stop it, or use another data directory"
        raise SpoolLocked(message) from error
    # the process id in the file is only information, and the disk may be full
    with suppress(OSError):
        os.ftruncate(descriptor, 0)
        os.lseek(descriptor, 0, os.SEEK_SET)
        os.write(descriptor, str(os.getpid()).encode())
    return DirectoryLock(descriptor)


def _make_private(directory: Path) -> None:
    """
    Set the mode of a directory that is new, empty, or has a lock file from an earlier start. Otherwise warn
    if others can read it.
    """
    make_directory(directory, 0o700)
    if sys.platform == "win32":
        return  # modes mean nothing on Windows; the directory inherits the rights of its parent
    mode = directory.stat().st_mode & 0o777
    if not mode & 0o077:
        return
    if (directory / LOCK_FILE).exists() or not any(directory.iterdir()):
        directory.chmod(0o700)
    else:
        _log.warning(
            "other users can read the data directory: run chmod 700 on it",
            extra={"action": "directory_not_private", "directory": str(directory), "mode": f"{mode:o}"},
        )


# -- mark of an unfinished copy of another storage: while it exists, no process may use the directory -----------


MARK = "unfinished-copy"


def require_finished_copy(directory: Path) -> None:
    """
    Raise UnfinishedCopy if the directory is marked as a copy in progress, or SpoolUnavailable if it cannot be
    accessed.
    """
    try:
        is_marked = (directory / MARK).exists()
    except OSError as error:
        raise SpoolUnavailable(f"the data directory {directory} cannot be used: {error.strerror}") from error
    if is_marked:
        raise UnfinishedCopy(f"{directory} {NOT_FINISHED}, or remove the directory")


def require_free_for_copy(directory: Path) -> None:
    """Raise NotAllowed if the directory has files that do not belong to an unfinished copy."""
    if not directory.exists() or (directory / MARK).exists():
        return
    if any(path.name != LOCK_FILE for path in directory.iterdir()):
        raise NotAllowed(f"{directory} is not empty: copy into a new directory")


def begin_storage_copy(directory: Path) -> None:
    """Empty the directory and mark it as a copy in progress. The caller must hold its lock."""
    require_free_for_copy(directory)
    (directory / MARK).touch(mode=0o600)
    flush_directory(directory)
    _remove_files(directory, but=(MARK, LOCK_FILE))


def finish_storage_copy(directory: Path) -> None:
    flush_directory(directory)
    (directory / MARK).unlink()
    flush_directory(directory)


def discard_copy(directory: Path) -> None:
    """Delete the copy. The mark is deleted last, so that the rest stays marked if the process is killed."""
    _remove_files(directory, but=(MARK,))
    (directory / MARK).unlink(missing_ok=True)
    directory.rmdir()


def _remove_files(directory: Path, *, but: tuple[str, ...]) -> None:
    for path in directory.iterdir():
        if path.name in but:
            continue
        if path.is_dir():
            shutil.rmtree(path)
        else:
            path.unlink()
