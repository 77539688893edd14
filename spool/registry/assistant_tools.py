"""Tools of assistants: which of them may be called, and how many each key or person called today."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from hashlib import blake2b

from spool.registry.changes import Changes
from spool.registry.following import DOCUMENTS
from spool.registry.operators import Actor
from spool.registry.registry_rows import RegistryRows

TOOL_KIND = "assistant_tool"


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolDecision:
    """What was decided of a tool, when and by whom."""

    enabled: bool
    last_updated: float
    updated_by: str


class AssistantToolTable:
    """Decisions by the name of the tool, all in memory; a tool of which nobody decided is in none."""

    about = ((DOCUMENTS, TOOL_KIND),)

    def __init__(self, changes: Changes) -> None:
        self._changes = changes
        self._decided: Mapping[str, ToolDecision] = {}

    async def load(self) -> None:
        self._decided = await self._changes.read(_read)

    def find(self, name: str) -> ToolDecision | None:
        return self._decided.get(name)

    async def decide(self, name: str, *, enabled: bool, actor: Actor) -> None:
        """Enable or disable a tool, with an audit row; what was decided before changes nothing."""
        now = self._changes.now()

        def work(rows: RegistryRows) -> Mapping[str, ToolDecision]:
            there = dict(_read(rows))
            before = there.get(name)
            if before is not None and before.enabled == enabled:
                return there
            there[name] = ToolDecision(enabled=enabled, last_updated=now, updated_by=actor.name)
            body = {"enabled": enabled, "last_updated": now, "updated_by": actor.name}
            rows.put_document(TOOL_KIND, name, body)
            was = None if before is None else {"enabled": before.enabled}
            rows.add_audit(now, actor, "assistant_tool.change", name, before=was, after={"enabled": enabled})
            return there

        await self._changes.change(work, self._set)

    def _set(self, decided: Mapping[str, ToolDecision]) -> None:
        self._decided = decided


def _read(rows: RegistryRows) -> Mapping[str, ToolDecision]:
    return {
        name: ToolDecision(
            enabled=bool(body.get("enabled")),
            last_updated=float(body.get("last_updated") or 0.0),
            updated_by=str(body.get("updated_by") or ""),
        )
        for name, body in rows.documents(TOOL_KIND).items()
    }


CALLS_KIND = "tool_calls"


class ToolCallTable:
    """One small document for each that called, as a digest of its name; those of past days are deleted."""

    def __init__(self, changes: Changes) -> None:
        self._changes = changes

    async def take(self, name: str, *, day: int, most: int, actor: Actor) -> bool:
        """Count one call of a day, unless `most` were counted: then return False. KeyEnded as of every change."""
        id = blake2b(name.encode("utf-8", "surrogatepass"), digest_size=20).hexdigest()

        def work(rows: RegistryRows) -> bool:
            rows.check_actor(actor)
            kept = rows.document(CALLS_KIND, id)
            is_first = kept is None or kept["day"] != day
            calls = 0 if kept is None or is_first else int(kept["calls"])
            if calls >= most:
                return False
            if is_first:
                _forget_past(rows, day)
            rows.put_document(CALLS_KIND, id, {"day": day, "calls": calls + 1})
            return True

        return await self._changes.change(work)


def _forget_past(rows: RegistryRows, day: int) -> None:
    for id, kept in rows.documents(CALLS_KIND).items():
        if kept["day"] != day:
            rows.delete_document(CALLS_KIND, id)
