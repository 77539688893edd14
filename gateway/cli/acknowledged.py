"""
What a receiver has already said yes to, by content: a repeat of `tollhouse send` goes on where the last one stopped.

One small file for each address and key: digests of what was sent, and nothing of what was in it. Losing it costs time
only, because the receiver knows the calls again.
"""

from __future__ import annotations

import os
import re
from collections.abc import Container
from errno import ENOENT
from hashlib import blake2b
from pathlib import Path
from typing import Final

MOST_MARKS: Final = 250_000  # of 512 lines each; beyond it the oldest are forgotten
_DIGEST_BYTES: Final = 16
_MARK: Final = re.compile(f"[0-9a-f]{{{2 * _DIGEST_BYTES}}}")


class Acknowledged:
    """The marks of what one address has taken under one key."""

    def __init__(self, *, url: str, key: str | None) -> None:
        """Another key may belong to another house at the same address."""
        name = blake2b(f"{url}\0{key or ''}".encode(), digest_size=_DIGEST_BYTES).hexdigest()
        try:
            self._path: Path | None = _state_directory() / name
        except RuntimeError:  # a user without a home
            self._path = None
        self._marks = _load(self._path) if self._path else set()

    def __contains__(self, mark: object) -> bool:
        return mark in self._marks

    def add(self, mark: bytes) -> None:
        """Taken; written down before the next one is sent. OSError when it cannot be kept."""
        self._marks.add(mark)
        if self._path is None:
            raise FileNotFoundError(ENOENT, "there is no home directory", "~")
        self._path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        with self._path.open("a", encoding="ascii") as file:
            file.write(f"{mark.hex()}\n")


class Trail:
    """
    How far into a file one is: a digest of the items up to here, chained over the places where it was cut.

    So a mark is found again only behind the same items in the same bodies, whatever the file is called, however it is
    packed, and whatever was added behind them.
    """

    def __init__(self, taken: Container[bytes]) -> None:
        self._taken = taken
        self._since = blake2b(digest_size=_DIGEST_BYTES)
        self.mark = b""

    def passes(self, item: bytes) -> bool:
        """One item on; whether a body that was taken ended here."""
        self._since.update(len(item).to_bytes(8, "big"))
        self._since.update(item)
        self.mark = self._since.digest()
        return self.mark in self._taken

    def cut(self) -> None:
        """A body ends here."""
        self._since = blake2b(self.mark, digest_size=_DIGEST_BYTES)


def _state_directory() -> Path:
    """The user's place for such things."""
    base = os.environ.get("XDG_STATE_HOME")
    return (Path(base) if base else Path.home() / ".local/state") / "tollhouse/sent"


def _load(path: Path) -> set[bytes]:
    """What can be read: a disk that was full leaves half a line, and what followed it is remembered all the same."""
    try:
        lines = [line for line in path.read_text("ascii", "replace").split() if _MARK.fullmatch(line)]
        if len(lines) > 2 * MOST_MARKS:
            lines = lines[-MOST_MARKS:]
            draft = path.with_suffix(f".{os.getpid()}")
            draft.write_text("".join(f"{line}\n" for line in lines), "ascii")
            draft.replace(path)
        return {bytes.fromhex(line) for line in lines}
    except OSError:  # none yet
        return set()
