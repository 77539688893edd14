"""Names in directories: what was made or renamed is there after a power cut only when its directory was flushed."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path


def flush_directory(directory: Path) -> None:
    """What was made, renamed or removed in it stays so."""
    descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
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
