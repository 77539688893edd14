"""New files, and names in directories: what is to be there after a power cut is flushed."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO


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
