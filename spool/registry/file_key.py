"""
What is kept of the key that a deployment gives in a file: which key it is, and which of its secrets are over.

The key itself is a row like any other: it is edited, disabled and deleted as they are.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

KIND, ID = "file_key", "deployment"
MOST_ENDED = 1000  # digests that are remembered

# What became of a file's secret.
OPENS, DELETED, WAITS = "opens", "deleted", "waits"


@dataclass(frozen=True, slots=True, kw_only=True)
class FileKey:
    """`key` is the number of the row, None once it was deleted. `ended` are digests that never open again."""

    key: int | None = None
    ended: tuple[str, ...] = ()

    def without(self, digests: Iterable[bytes]) -> FileKey:
        """As it is once these secrets are over."""
        ended = [*self.ended, *(digest.hex() for digest in digests if digest.hex() not in self.ended)]
        return replace(self, ended=tuple(ended[-MOST_ENDED:]))

    def has_ended(self, digest: bytes) -> bool:
        return digest.hex() in self.ended


def stored(state: FileKey) -> dict[str, object]:
    return {"key": state.key, "ended": list(state.ended)}


def restored(body: Mapping[str, object] | None) -> FileKey | None:
    """None: no file ever gave a key."""
    if body is None:
        return None
    key, ended = body.get("key"), body.get("ended")
    return FileKey(
        key=key if isinstance(key, int) else None,
        ended=tuple(map(str, ended)) if isinstance(ended, list) else (),
    )
