"""Since when a definition has something to look at: sums are as old as the ledger, a tag as old as its setting."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

from spool.ledger.ledger import Ledger
from spool.ledger.queries import TAG


@dataclass(frozen=True, slots=True, kw_only=True)
class DefinitionBorder:
    """`kept_since` is where the first sum begins; `tags`, where each tag has its first value. None: there is none."""

    kept_since: datetime | None
    tags: Mapping[str, datetime | None]


async def border(ledger: Ledger, sources: Sequence[str]) -> DefinitionBorder:
    """Return the span that the ledger has of a definition's sources (`difference.sources_of`)."""
    span = await ledger.known_span()
    tags = {name: await ledger.known_since(name) for name in sources if name.startswith(TAG)}
    return DefinitionBorder(kept_since=span[0] if span else None, tags=tags)


def describe(found: DefinitionBorder) -> Mapping[str, object]:
    return {
        "kept_since": found.kept_since and found.kept_since.isoformat(),
        "tags": {name: since and since.isoformat() for name, since in found.tags.items()},
    }
