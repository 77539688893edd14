"""Which MCP tools for assistants are enabled, and how often each key or person called tools today."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from hashlib import blake2b

from spool.registry.changes import RegistryChangeWriter
from spool.registry.file_owners import check_unmanaged
from spool.registry.following import DOCUMENTS
from spool.registry.operators import Actor
from spool.registry.registry_rows import RegistryRows

TOOL_KIND = "assistant_tool"


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolDecision:
    enabled: bool
    last_updated: float
    updated_by: str


class AssistantToolTable:
    """The decisions by tool name, all in memory. Tools without a decision are not listed."""

    announced_subjects = ((DOCUMENTS, TOOL_KIND),)

    def __init__(self, change_writer: RegistryChangeWriter) -> None:
        self._changes = change_writer
        self._decided: Mapping[str, ToolDecision] = {}

    async def load(self) -> None:
        self._decided = await self._changes.read(_read_decisions)

    def all(self) -> Mapping[str, ToolDecision]:
        return self._decided

    def find(self, name: str) -> ToolDecision | None:
        return self._decided.get(name)

    async def set_enabled(self, name: str, *, enabled: bool, actor: Actor) -> None:
        """Store a decision and its audit row. Does nothing if the decision is already stored."""
        now = self._changes.now()

        def store_decision(registry_rows: RegistryRows) -> Mapping[str, ToolDecision]:
            decisions = dict(_read_decisions(registry_rows))
            before = decisions.get(name)
            if before is not None and before.enabled == enabled:
                return decisions
            check_unmanaged(self._changes, registry_rows, TOOL_KIND, name)
            decisions[name] = ToolDecision(enabled=enabled, last_updated=now, updated_by=actor.name)
            body = {"enabled": enabled, "last_updated": now, "updated_by": actor.name}
            registry_rows.put_document(TOOL_KIND, name, body)
            old = None if before is None else {"enabled": before.enabled}
            registry_rows.add_audit(
                now, actor, "assistant_tool.change", name, before=old, after={"enabled": enabled}
            )
            return decisions

        await self._changes.change_rows(store_decision, self._set_decisions)

    async def delete_decision(self, name: str, *, actor: Actor) -> None:
        now = self._changes.now()

        def delete_decision(registry_rows: RegistryRows) -> Mapping[str, ToolDecision]:
            decisions = dict(_read_decisions(registry_rows))
            before = decisions.pop(name)
            registry_rows.delete_document(TOOL_KIND, name)
            registry_rows.add_audit(
                now, actor, "assistant_tool.change", name, before={"enabled": before.enabled}
            )
            return decisions

        await self._changes.change_rows(delete_decision, self._set_decisions)

    def _set_decisions(self, decided: Mapping[str, ToolDecision]) -> None:
        self._decided = decided


def _read_decisions(registry_rows: RegistryRows) -> Mapping[str, ToolDecision]:
    return {
        name: ToolDecision(
            enabled=bool(body.get("enabled")),
            last_updated=float(body.get("last_updated") or 0.0),
            updated_by=str(body.get("updated_by") or ""),
        )
        for name, body in registry_rows.documents(TOOL_KIND).items()
    }


CALLS_KIND = "tool_calls"


class ToolCallTable:
    """
    The number of tool calls: one document per caller and day, under a hash of the caller's name. Past days
    are deleted.
    """

    def __init__(self, change_writer: RegistryChangeWriter) -> None:
        self._changes = change_writer

    async def count_call_if_allowed(self, name: str, *, day: int, max_calls: int, actor: Actor) -> bool:
        """
        Count the caller's call of a tool. Return False, without counting, if the caller already has `max_calls`
        calls today. Raises KeyEnded.
        """
        id = blake2b(name.encode("utf-8", "surrogatepass"), digest_size=20).hexdigest()

        def count_if_below_limit(registry_rows: RegistryRows) -> bool:
            registry_rows.require_valid_actor_key(actor)
            counter = registry_rows.document(CALLS_KIND, id)
            is_first = counter is None or counter["day"] != day
            calls = 0 if counter is None or is_first else int(counter["calls"])
            if calls >= max_calls:
                return False
            if is_first:
                _delete_other_days(registry_rows, day)
            registry_rows.put_document(CALLS_KIND, id, {"day": day, "calls": calls + 1})
            return True

        return await self._changes.change_rows(count_if_below_limit)


def _delete_other_days(registry_rows: RegistryRows, day: int) -> None:
    for id, counter in registry_rows.documents(CALLS_KIND).items():
        if counter["day"] != day:
            registry_rows.delete_document(CALLS_KIND, id)
