"""Errors that a full disk explains."""

from __future__ import annotations

import sqlite3
from pathlib import Path

import pytest

from spool import disks
from spool.errors import SpoolUnavailable


def io_error() -> SpoolUnavailable:
    """Return an error with which SQLite sometimes reports a full disk."""
    cause = sqlite3.OperationalError("disk I/O error")
    cause.sqlite_errorname = "SQLITE_IOERR_SHMSIZE"
    error = SpoolUnavailable("the spool cannot be opened")
    error.__cause__ = cause
    return error


@pytest.mark.parametrize(("was_full", "explained"), [(False, False), (True, True)])
def test_room_made_meanwhile_does_not_make_it_another_error(
    tmp_path: Path, was_full: bool, explained: bool
) -> None:
    """A start that failed on a full disk waits, even if space was freed between the error and the check."""
    assert explained == disks.is_disk_full_error(io_error(), tmp_path, was_full_before=was_full)


def test_an_error_of_no_disk_is_not_explained(tmp_path: Path) -> None:
    assert not disks.is_disk_full_error(
        SpoolUnavailable("the schema is newer"), tmp_path, was_full_before=True
    )
