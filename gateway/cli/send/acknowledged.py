"""
What a gateway has acknowledged already, so that a repeat of `tollhouse send` continues where the last run stopped.

One small file for each address and key holds digests of what was sent, and none of its content. Losing the
file costs time only: the gateway recognises calls that it has.
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
    """The digests of the bodies that one address has acknowledged under one key."""

    def __init__(self, *, url: str, key: str | None) -> None:
        """Another key may belong to another installation at the same address."""
        name = blake2b(f"{url}\0{key or ''}".encode(), digest_size=_DIGEST_BYTES).hexdigest()
        try:
            self._path: Path | None = _state_directory() / name
        except RuntimeError:  # a user without a home
            self._path = None
        self._marks = _load(self._path) if self._path else set()

    def __contains__(self, mark: object) -> bool:
        return mark in self._marks

    def add(self, mark: bytes) -> None:
        """Keeps the digest of an acknowledged body, before the next one is sent. OSError if it cannot."""
        self._marks.add(mark)
        if self._path is None:
            raise FileNotFoundError(ENOENT, "there is no home directory", "~")
        self._path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        with self._path.open("a", encoding="ascii") as file:
            file.write(f"{mark.hex()}\n")


class RunningDigest:
    """
    The digest of a file's items so far, chained over its request bodies.

    So a body is recognised only after the same items in the same bodies, whatever the file is called, however
    it is compressed, and whatever was appended.
    """

    def __init__(self, taken: Container[bytes]) -> None:
        self._taken = taken
        self._since = blake2b(digest_size=_DIGEST_BYTES)
        self.mark = b""

    def add(self, item: bytes) -> bool:
        """Adds an item; returns whether an acknowledged body ended with it."""
        self._since.update(len(item).to_bytes(8, "big"))
        self._since.update(item)
        self.mark = self._since.digest()
        return self.mark in self._taken

    def end_body(self) -> None:
        """Ends the current body."""
        self._since = blake2b(self.mark, digest_size=_DIGEST_BYTES)


def _state_directory() -> Path:
    """Returns the user's directory for state (XDG)."""
    base = os.environ.get("XDG_STATE_HOME")
    return (Path(base) if base else Path.home() / ".local/state") / "tollhouse/sent"


def _load(path: Path) -> set[bytes]:
    """Returns the digests in the file; skips malformed lines, which a full disk may leave."""
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
