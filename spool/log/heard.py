"""
Who told calls in the last hour, where several processes share a log: each must know what the others heard.

One process keeps it in its memory alone. What is kept is a digest: it leads back to nobody.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from hashlib import blake2b
from typing import Protocol

KEPT_S = 2 * 3600.0  # then nobody asks for it any more


class Heard(Protocol):
    """What submissions say of it (`Submission.heard`), each in the commit of its calls."""

    async def find(self, reporters: Collection[bytes]) -> Mapping[bytes, float]:
        """Return when each of the reporters was last heard, epoch seconds; unknown ones are left out."""
        ...

    async def forget(self, before: float) -> int:
        """Forget those that were last heard before a time, in short transactions; how many."""
        ...


def digest_of(*names: str | None) -> bytes:
    """The 16 bytes under which a reporter is kept."""
    return blake2b(repr(names).encode("utf-8", "surrogatepass"), digest_size=16, person=b"heard").digest()
