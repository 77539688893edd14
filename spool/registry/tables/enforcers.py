"""
Readings of the limits that enforcers report. An enforcer is a program that blocks calls, such as an AI
gateway.
"""

from __future__ import annotations

import asyncio
from base64 import b64decode, b64encode
from collections.abc import Callable, Mapping, Sequence
from typing import Any
from zlib import compress, decompress

import msgspec

from spool.registry.changes import RegistryChangeWriter
from spool.registry.documents import replace_fields
from spool.registry.registry_rows import RegistryRows
from spool.turns.threads import prepare_types_for_msgspec

MAX_READINGS = 48  # maximum readings stored per enforcer
MAX_STORED_LIMITS = 100_000  # limits in all readings of an enforcer
KIND = "enforcer_reading"  # one document per reading, named ENFORCER:TIME
STATE_KIND = "enforcer_state"  # one document per enforcer, with the times of readings


class EnforcerLimit(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, gc=False):
    """
    A limit, in one form for all enforcers. Amounts are exact decimal text, times epoch seconds.

    `dimension` with the first of `values` that occurs in records selects the calls it limits. Both are empty
    for all calls of the enforcer. `unmatched`: why no dimension of records can select them. `window`: day,
    week, month, never, a number of days such as 30d, or "" if unknown.
    """

    kind: str  # key, team, user, organization or project
    id: str
    name: str
    model: str = ""
    limit: str | None = None
    spent: str | None = None  # amount spent, None if the enforcer does not state it
    window: str = ""
    starts_at: float | None = None
    ends_at: float | None = None  # when the enforcer resets the counter
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


class StoredReading(msgspec.Struct, frozen=True, kw_only=True):
    at: float
    limits: int
    truncated: bool


class EnforcerState(msgspec.Struct, frozen=True, kw_only=True):
    """The result of the last attempt to read an enforcer's limits. `stored`: filled in by the table."""

    reason: str = ""  # why the last reading failed, "" after success
    last_success: float | None = None
    next_at: float = 0.0
    stored: tuple[StoredReading, ...] = ()  # oldest first


prepare_types_for_msgspec(EnforcerReading, EnforcerState)


class EnforcerTable:
    """
    The readings of enforcers' limits. They are compressed, because an enforcer may have thousands of limits.
    """

    def __init__(self, change_writer: RegistryChangeWriter) -> None:
        self._changes = change_writer

    async def readings(self, name: str) -> Sequence[EnforcerReading]:
        bodies = await self._changes.read(lambda rows: _read_bodies(rows, name))
        return await asyncio.to_thread(_unpack_readings, bodies)

    async def state(self, name: str) -> EnforcerState:
        return await self._changes.read(lambda rows: _read_state(rows, name))

    async def store_attempt(
        self, name: str, state: EnforcerState, reading: EnforcerReading | None = None
    ) -> None:
        """
        Store an attempt's result. The oldest readings beyond MAX_READINGS and MAX_STORED_LIMITS are deleted.
        """
        body = {} if reading is None else await asyncio.to_thread(_pack_reading, reading)

        def store_reading(registry_rows: RegistryRows) -> None:
            stored = _read_state(registry_rows, name).stored
            if reading is not None:
                registry_rows.put_document(KIND, _reading_id(name, reading.at), body)
                stored = _with_reading(stored, reading)
            kept = _newest_readings(stored)
            for expired in stored[: len(stored) - len(kept)]:
                registry_rows.delete_document(KIND, _reading_id(name, expired.at))
            registry_rows.put_document(
                STATE_KIND, name, msgspec.to_builtins(replace_fields(state, stored=kept))
            )

        await self._changes.change_rows(store_reading)

    async def delete_unconfigured(self, names: Sequence[str]) -> None:

        def delete_others(registry_rows: RegistryRows) -> None:
            for name in registry_rows.documents(STATE_KIND):
                if name not in names:
                    for stored in _read_state(registry_rows, name).stored:
                        registry_rows.delete_document(KIND, _reading_id(name, stored.at))
                    registry_rows.delete_document(STATE_KIND, name)

        await self._changes.change_rows(delete_others)


def _reading_id(name: str, read_at: float) -> str:
    return f"{name}:{read_at:.3f}"


def _read_state(registry_rows: RegistryRows, name: str) -> EnforcerState:
    body = registry_rows.document(STATE_KIND, name)
    return EnforcerState() if body is None else msgspec.convert(body, EnforcerState)


def _with_reading(stored: Sequence[StoredReading], reading: EnforcerReading) -> tuple[StoredReading, ...]:
    others = [each for each in stored if _reading_id("", each.at) != _reading_id("", reading.at)]
    new = StoredReading(at=reading.at, limits=len(reading.limits), truncated=reading.truncated)
    return tuple(sorted([*others, new], key=lambda each: each.at))


def _newest_readings(stored: Sequence[StoredReading]) -> tuple[StoredReading, ...]:
    kept = tuple(stored[-MAX_READINGS:])
    while len(kept) > 1 and sum(each.limits for each in kept) > MAX_STORED_LIMITS:
        kept = kept[1:]
    return kept


def _read_bodies(registry_rows: RegistryRows, name: str) -> Sequence[Mapping[str, Any]]:
    found = [
        registry_rows.document(KIND, _reading_id(name, stored.at))
        for stored in _read_state(registry_rows, name).stored
    ]
    return [body for body in found if body is not None]


def _pack_reading(reading: EnforcerReading) -> Mapping[str, Any]:
    """Compress a reading. Level 1 makes it ten times smaller."""
    return {"packed": b64encode(compress(msgspec.json.encode(reading), 1)).decode()}


def rename_in_reading(body: Mapping[str, Any], name: Callable[[str], str]) -> Mapping[str, Any]:
    [reading] = _unpack_readings([body])
    limits = tuple(
        replace_fields(each, id=name(each.id), name=name(each.name), values=tuple(map(name, each.values)))
        for each in reading.limits
    )
    return body if limits == reading.limits else _pack_reading(replace_fields(reading, limits=limits))


def _unpack_readings(bodies: Sequence[Mapping[str, Any]]) -> Sequence[EnforcerReading]:
    known: dict[tuple[str, ...], EnforcerLimit] = {}
    readings = []
    for body in bodies:
        reading = msgspec.json.decode(decompress(b64decode(body["packed"])), type=EnforcerReading)
        limits = tuple(_reuse_known_limit(limit, known) for limit in reading.limits)
        readings.append(replace_fields(reading, limits=limits))
    return readings


def _reuse_known_limit(limit: EnforcerLimit, known: dict[tuple[str, ...], EnforcerLimit]) -> EnforcerLimit:
    before = known.get(limit.key, limit)
    if before != limit:
        counter = replace_fields(before, spent=limit.spent)
        before = counter if counter == limit else limit
    known[limit.key] = before
    return before
