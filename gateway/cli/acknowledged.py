"""
What a receiver has already said yes to, by content: a repeat of `tollhouse send` goes on where the last one stopped.

One small file for each file that was sent: numbers of bodies, and nothing of what was in them. Losing it costs time
only, because the receiver knows the calls again.
"""

from __future__ import annotations

import json
import os
from hashlib import blake2b
from pathlib import Path
from typing import IO, Final

_CHUNK: Final = 1024 * 1024


def state_directory() -> Path:
    """The user's place for such things."""
    base = os.environ.get("XDG_STATE_HOME")
    return (Path(base) if base else Path.home() / ".local" / "state") / "tollhouse" / "sent"


class Acknowledged:
    """The bodies of one content that one address has taken."""

    def __init__(self, path: Path | None) -> None:
        self._path = path
        self._numbers = _load(path)

    @classmethod
    def of(cls, content: IO[bytes], *, url: str, format: str | None) -> Acknowledged:
        """Reads the content to its end to know it again, and goes back to its beginning."""
        known = blake2b(f"{url}\0{format or ''}\0".encode(), digest_size=16)
        while chunk := content.read(_CHUNK):
            known.update(chunk)
        content.seek(0)
        return cls(state_directory() / f"{known.hexdigest()}.json")

    def __contains__(self, number: int) -> bool:
        return number in self._numbers

    def forget(self) -> None:
        """Send everything again."""
        self._numbers.clear()

    def add(self, number: int) -> None:
        """Taken; written down before the next one is sent."""
        self._numbers.add(number)
        if self._path is None:
            return
        self._path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        draft = self._path.with_suffix(f".{os.getpid()}")
        draft.write_text(json.dumps({"bodies": sorted(self._numbers)}))
        draft.replace(self._path)


def _load(path: Path | None) -> set[int]:
    try:
        return set(json.loads(path.read_text())["bodies"]) if path is not None else set()
    except (OSError, ValueError, KeyError, TypeError):  # none yet, or damaged: everything is sent again
        return set()
