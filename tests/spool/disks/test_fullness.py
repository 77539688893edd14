"""Which errors a full disk explains."""

from __future__ import annotations

import sqlite3
from pathlib import Path

import pytest

from spool import disks
from spool.errors import SpoolUnavailable


def io_error() -> SpoolUnavailable:
    """As SQLite calls a full disk at times."""
    cause = sqlite3.OperationalError("disk I/O error")
    cause.sqlite_errorname = "SQLITE_IOERR_SHMSIZE"
    error = SpoolUnavailable("the spool cannot be opened")
    error.__cause__ = cause
    return error


@pytest.mark.parametrize(("was_full", "explained"), [(False, False), (True, True)])
def test_room_made_meanwhile_does_not_make_it_another_error(
    tmp_path: Path, was_full: bool, explained: bool
) -> None:
    """A start that began on a full disk waits, though somebody made room between the error and the look."""
    assert explained == disks.explains(io_error(), tmp_path, was_full=was_full)


def test_an_error_of_no_disk_is_not_explained(tmp_path: Path) -> None:
    """However full the disk was."""
    assert not disks.explains(SpoolUnavailable("the schema is newer"), tmp_path, was_full=True)
