"""The mark of a data directory that is being made as a copy of another storage: until it goes, nobody may use it."""

from __future__ import annotations

import shutil
from pathlib import Path

from spool.directories import flush_directory
from spool.errors import NOT_FINISHED, NotAllowed, SpoolUnavailable, UnfinishedCopy
from spool.settings import LOCK_FILE

MARK = "unfinished-copy"


def check_finished(directory: Path) -> None:
    """UnfinishedCopy where a copy has not come to its end, SpoolUnavailable where nobody may look."""
    try:
        is_marked = (directory / MARK).exists()
    except OSError as error:
        raise SpoolUnavailable(f"the data directory {directory} cannot be used: {error.strerror}") from error
    if is_marked:
        raise UnfinishedCopy(f"{directory} {NOT_FINISHED}, or remove the directory")


def check_free(directory: Path) -> None:
    """NotAllowed where the directory holds anything but an unfinished copy."""
    if not directory.exists() or (directory / MARK).exists():
        return
    if any(path.name != LOCK_FILE for path in directory.iterdir()):
        raise NotAllowed(f"{directory} is not empty: copy into a new directory")


def begin(directory: Path) -> None:
    """Empty the directory but for the mark of an unfinished copy. The caller holds the lock of the directory."""
    check_free(directory)
    (directory / MARK).touch(mode=0o600)
    flush_directory(directory)
    _remove(directory, but=(MARK, LOCK_FILE))


def finish(directory: Path) -> None:
    """Make the copy valid by removing the mark."""
    flush_directory(directory)
    (directory / MARK).unlink()
    flush_directory(directory)


def discard(directory: Path) -> None:
    """The mark goes last: what a kill leaves of the directory is not used either."""
    _remove(directory, but=(MARK,))
    (directory / MARK).unlink(missing_ok=True)
    directory.rmdir()


def _remove(directory: Path, *, but: tuple[str, ...]) -> None:
    for path in directory.iterdir():
        if path.name in but:
            continue
        if path.is_dir():
            shutil.rmtree(path)
        else:
            path.unlink()
