"""The files of a data directory whose gateway runs."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path


def contents_of(directory: Path) -> dict[str, bytes]:
    """Return the contents of all files by name. A file that the gateway renames or deletes meanwhile is left out."""
    contents = dict[str, bytes]()
    for path in directory.rglob("*"):
        with suppress(FileNotFoundError):
            if path.is_file():
                contents[str(path.relative_to(directory))] = path.read_bytes()
    return contents
