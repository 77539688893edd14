"""How many tools each key or person called today: kept, so that a restart and other gateways count on."""

from __future__ import annotations

from hashlib import blake2b

from spool.registry.changes import Changes
from spool.registry.operators import Actor
from spool.registry.registry_rows import RegistryRows

KIND = "tool_calls"


class ToolCallTable:
    """One small document for each that called, as a digest of its name; those of past days are deleted."""

    def __init__(self, changes: Changes) -> None:
        self._changes = changes

    async def take(self, name: str, *, day: int, most: int, actor: Actor) -> bool:
        """Count one call of a day, unless `most` were counted: then return False. KeyEnded as of every change."""
        id = blake2b(name.encode("utf-8", "surrogatepass"), digest_size=20).hexdigest()

        def work(rows: RegistryRows) -> bool:
            rows.check_actor(actor)
            kept = rows.document(KIND, id)
            is_first = kept is None or kept["day"] != day
            calls = 0 if kept is None or is_first else int(kept["calls"])
            if calls >= most:
                return False
            if is_first:
                _forget_past(rows, day)
            rows.put_document(KIND, id, {"day": day, "calls": calls + 1})
            return True

        return await self._changes.change(work)


def _forget_past(rows: RegistryRows, day: int) -> None:
    for id, kept in rows.documents(KIND).items():
        if kept["day"] != day:
            rows.delete_document(KIND, id)
