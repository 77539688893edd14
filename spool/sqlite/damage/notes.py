"""
Two small files next to the database, which survive its damage: the marker and the note. Writes are flushed to
disk.

If the marker exists, the next opening salvages. The marker also has the name that the damaged file gets when
it is moved aside. The note has the number of stored records per topic, and the highest acknowledged number.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import chain, count
from pathlib import Path

from spool.disks import flush_directory, write_durably

NOTE = "spool.note.json"
MARKER = "spool.damaged"
ASIDE = "spool.sqlite.damaged-"  # prefix of a damaged file's new name; a timestamp follows

_log = logging.getLogger(__name__)


@dataclass(frozen=True, kw_only=True)
class RecoveryNote:
    """
    The content of the note from which a start learns what a damaged log lost. `kept`: number of stored
    records by topic. `accepted`: highest assigned number by topic. `progress`: lowest unsettled number by
    route.
    """

    kept: Mapping[str, int] = field(default_factory=dict)
    accepted: Mapping[str, int] = field(default_factory=dict)
    progress: Mapping[str, int] = field(default_factory=dict)


def is_marked_damaged(directory: Path) -> bool:
    return (directory / MARKER).exists()


def mark_damaged(directory: Path, error: BaseException) -> None:
    """Mark the database as damaged, so that the next start salvages it."""
    if not is_marked_damaged(directory):
        write_durably(directory / MARKER, "")
        message = "spool.sqlite is damaged (%s): restart to salvage what can be read"
        _log.error(message, error, extra={"action": "spool_damaged"})


def unmark_damaged(directory: Path) -> None:
    (directory / MARKER).unlink(missing_ok=True)
    flush_directory(directory)


def read_new_name_of_damaged_file(directory: Path) -> str:
    """Return the name that the damaged file gets when it is moved aside, or "" if none has been chosen."""
    try:
        name = (directory / MARKER).read_text()
    except (FileNotFoundError, UnicodeDecodeError):
        return ""
    return name if name.startswith(ASIDE) and "/" not in name and "\0" not in name else ""


def read_or_choose_new_name_of_damaged_file(directory: Path, at: float) -> str:
    """
    Return the name to which the damaged database file is moved. If none is stored, choose and store one
    before any file is moved, so that every attempt uses the same name.
    """
    name = read_new_name_of_damaged_file(directory)
    if not name:
        existing = {path.name for path in directory.iterdir()}
        first = f"{ASIDE}{int(at)}"
        further = (f"{first}-{number}" for number in count(2))
        name = next(candidate for candidate in chain([first], further) if candidate not in existing)
        write_durably(directory / MARKER, name)
    return name


def write_note(directory: Path, note: RecoveryNote) -> None:
    write_durably(
        directory / NOTE,
        json.dumps({**note.kept, "accepted": dict(note.accepted), "progress": dict(note.progress)}),
    )


def read_note(directory: Path) -> RecoveryNote:
    try:
        contents = json.loads((directory / NOTE).read_text())
    except (FileNotFoundError, ValueError):
        return RecoveryNote()
    if not isinstance(contents, dict):
        return RecoveryNote()
    return RecoveryNote(
        kept=_valid_counts(contents),
        accepted=_valid_counts(contents.get("accepted")),
        progress=_valid_counts(contents.get("progress")),
    )


def _valid_counts(counts: object) -> dict[str, int]:
    if not isinstance(counts, dict):
        return {}
    return {name: n for name, n in counts.items() if type(n) is int and n > 0}
