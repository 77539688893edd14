"""
Small files beside the database that outlive its damage: the marker and the note. Both are on disk when written.

The marker says that the next opening must salvage, and under which name the damaged file is moved aside. The
note holds how many records of each topic are kept, and the highest number that was acknowledged.
"""

from __future__ import annotations

import json
import logging
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import chain, count
from pathlib import Path

from spool.disks import flush_directory

NOTE = "spool.note.json"
MARKER = "spool.damaged"
ASIDE = "spool.sqlite.damaged-"  # and when

_log = logging.getLogger(__name__)


@dataclass(frozen=True, kw_only=True)
class Note:
    """
    When it was written: by topic the records that were kept and the highest number given, by route its progress.

    The progress of a route is the lowest number that was not settled.
    """

    kept: Mapping[str, int] = field(default_factory=dict)
    accepted: Mapping[str, int] = field(default_factory=dict)
    progress: Mapping[str, int] = field(default_factory=dict)


def is_marked(directory: Path) -> bool:
    return (directory / MARKER).exists()


def mark(directory: Path, error: BaseException) -> None:
    """Remember over the restart that the file must be salvaged."""
    if not is_marked(directory):
        write_durably(directory / MARKER, "")
        message = "spool.sqlite is damaged (%s): restart to salvage what can be read"
        _log.error(message, error, extra={"action": "spool_damaged"})


def unmark(directory: Path) -> None:
    (directory / MARKER).unlink(missing_ok=True)
    flush_directory(directory)


def name_aside(directory: Path) -> str:
    """The name under which the damaged file is moved aside; "" while none is chosen."""
    try:
        name = (directory / MARKER).read_text()
    except (FileNotFoundError, UnicodeDecodeError):
        return ""
    return name if name.startswith(ASIDE) and "/" not in name and "\0" not in name else ""


def choose_name_aside(directory: Path, at: float) -> str:
    """The same for every attempt; on disk before a file moves."""
    name = name_aside(directory)
    if not name:
        taken = {path.name for path in directory.iterdir()}
        first = f"{ASIDE}{int(at)}"
        further = (f"{first}-{number}" for number in count(2))
        name = next(one for one in chain([first], further) if one not in taken)
        write_durably(directory / MARKER, name)
    return name


def write_note(directory: Path, note: Note) -> None:
    write_durably(
        directory / NOTE,
        json.dumps({**note.kept, "accepted": dict(note.accepted), "progress": dict(note.progress)}),
    )


def read_note(directory: Path) -> Note:
    """Read the last note about this directory; an empty one if there is none that can be read."""
    try:
        found = json.loads((directory / NOTE).read_text())
    except (FileNotFoundError, ValueError):
        return Note()
    if not isinstance(found, dict):
        return Note()
    return Note(
        kept=_counts(found), accepted=_counts(found.get("accepted")), progress=_counts(found.get("progress"))
    )


def _counts(found: object) -> dict[str, int]:
    if not isinstance(found, dict):
        return {}
    return {name: n for name, n in found.items() if type(n) is int and n > 0}


def write_durably(path: Path, text: str) -> None:
    """Write a draft, flush it and rename it, so that a crash or a power cut leaves the old content or the new one."""
    draft = path.with_name(f"{path.name}.new")
    descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with os.fdopen(descriptor, "w") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    draft.rename(path)
    flush_directory(path.parent)
