"""The stored readings of the limits that enforcers, such as AI gateways, state."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from spool.registry.changes import Changes
from spool.registry.registry_rows import RegistryRows

MAX_READINGS = 48  # stored for each enforcer
KIND = "enforcer_reading"  # one document for each reading, named ENFORCER:TIME
STATE_KIND = "enforcer_state"  # one document for each enforcer


class EnforcerLimit(msgspec.Struct, frozen=True, kw_only=True):
    """
    A limit in the common form of all enforcers. Amounts are exact decimal text, and times epoch seconds.

    `dimension` and `values` select its calls: the first value that records have counts. Both are empty if the limit
    covers all calls of the enforcer. `unmatched` says why records have no such dimension. `window` is day, week,
    month, never, a number of days such as 30d, or "" if it is unknown.
    """

    kind: str  # key, team, user, organization or project
    id: str
    name: str
    model: str = ""
    limit: str | None = None
    spent: str | None = None  # None if the enforcer does not state it
    window: str = ""
    starts_at: float | None = None
    ends_at: float | None = None  # when the enforcer says that it resets the counter
    currency: str = "USD"
    enforcing: bool = True
    dimension: str = ""
    values: tuple[str, ...] = ()
    unmatched: str = ""

    @property
    def key(self) -> tuple[str, str, str, str]:
        return self.kind, self.id, self.model, self.window


class EnforcerReading(msgspec.Struct, frozen=True, kw_only=True):
    at: float
    limits: tuple[EnforcerLimit, ...]
    truncated: bool = False


class EnforcerState(msgspec.Struct, frozen=True, kw_only=True):
    """The result of the last attempt to read an enforcer."""

    reason: str = ""  # "" if it succeeded
    last_success: float | None = None
    next_at: float = 0.0


class EnforcerTable:
    def __init__(self, changes: Changes) -> None:
        self._changes = changes

    async def readings(self, name: str) -> Sequence[EnforcerReading]:
        """Return the stored readings of an enforcer, oldest first."""
        documents = await self._changes.read(lambda rows: rows.documents(KIND))
        readings = [
            msgspec.convert(body, EnforcerReading) for id, body in documents.items() if _owner(id) == name
        ]
        return sorted(readings, key=lambda reading: reading.at)

    async def state(self, name: str) -> EnforcerState:
        body = await self._changes.read(lambda rows: rows.document(STATE_KIND, name))
        return EnforcerState() if body is None else msgspec.convert(body, EnforcerState)

    async def keep(self, name: str, state: EnforcerState, reading: EnforcerReading | None = None) -> None:
        """Store the result of an attempt, and delete the oldest readings above MAX_READINGS."""

        def work(rows: RegistryRows) -> None:
            rows.put_document(STATE_KIND, name, msgspec.to_builtins(state))
            if reading is not None:
                rows.put_document(KIND, f"{name}:{reading.at:.3f}", msgspec.to_builtins(reading))
                for id in _oldest(rows.documents(KIND), name):
                    rows.delete_document(KIND, id)

        await self._changes.change(work)

    async def forget_others(self, names: Sequence[str]) -> None:
        """Delete the readings of enforcers that are no longer configured."""

        def work(rows: RegistryRows) -> None:
            for id in rows.documents(KIND):
                if _owner(id) not in names:
                    rows.delete_document(KIND, id)
            for id in rows.documents(STATE_KIND):
                if id not in names:
                    rows.delete_document(STATE_KIND, id)

        await self._changes.change(work)


def _owner(id: str) -> str:
    return id.rpartition(":")[0]


def _oldest(documents: Mapping[str, Mapping[str, Any]], name: str) -> Sequence[str]:
    ids = sorted((id for id in documents if _owner(id) == name), key=lambda id: float(id.rpartition(":")[2]))
    return ids[:-MAX_READINGS]
