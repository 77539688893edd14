"""Reads the limits of the configured enforcers when they are due, and stores the readings."""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from gateway.bills.enforcers.types.list import TYPES
from gateway.bills.statements.puller import RETRY_S, PullFailed
from gateway.configuration.sections import EnforcerSettings
from spool.clock import Clock
from spool.errors import NotThere
from spool.loops import failure_reason, for_each_item, log_failure, repeat
from spool.registry.tables.enforcers import EnforcerLimit, EnforcerReading, EnforcerState, EnforcerTable

MAX_LIMITS = 5_000  # maximum stored limits per enforcer
MAX_REQUESTS = 6_000  # maximum requests for one reading of an enforcer
LOOK_EVERY_S = 30.0

_log = logging.getLogger(__name__)


class FetchLimits(Protocol):
    """Sends a GET request with an enforcer's key. Raises PullFailed, whose message has no key."""

    async def __call__(
        self, enforcer: EnforcerSettings, url: str, headers: Callable[[str], Mapping[str, str]]
    ) -> bytes: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class EnforcerStatus:
    """An enforcer as people see it. Times are epoch seconds."""

    name: str
    type: str
    every_s: float
    state: EnforcerState
    limits: int
    truncated: bool


class EnforcerReader:
    """Reads the limits of enforcers. `settings` is called before each check, so a reload takes effect."""

    def __init__(
        self,
        table: EnforcerTable,
        clock: Clock,
        settings: Callable[[], Sequence[EnforcerSettings]],
        fetch: FetchLimits,
    ) -> None:
        self._table = table
        self._clock = clock
        self._settings = settings
        self._fetch = fetch
        self._turn = asyncio.Lock()
        # names of enforcers with stored readings; None until they are read
        self._stored_names: list[str] | None = None

    @property
    def names(self) -> list[str]:
        return [enforcer.name for enforcer in self._settings()]

    async def run(self) -> None:
        """Read the enforcers that are due, until cancelled."""
        await repeat(
            self.read_due,
            every_s=LOOK_EVERY_S,
            failed="enforcers could not be read",
            action="enforcers_not_read",
        )

    async def read_due(self) -> None:
        await self._delete_readings_of_removed()
        await for_each_item(self._settings(), self._read_if_due, self._store_failure)

    async def _read_if_due(self, enforcer: EnforcerSettings) -> None:
        wait_s = (await self._table.state(enforcer.name)).next_at - self._clock.now()
        # ignore a longer wait, because a clock that was ahead stored it
        if not 0 < wait_s <= max(enforcer.every, RETRY_S):
            await self._read_and_store(enforcer)

    async def _delete_readings_of_removed(self) -> None:
        """Delete the readings of removed enforcers. The registry is written only if names have changed."""
        names = self.names
        if names != self._stored_names:
            await self._table.delete_unconfigured(names)
            self._stored_names = names

    async def read_enforcer(self, name: str) -> None:
        """Read an enforcer now. A failure is stored in its state. Raises NotThere if no enforcer has this name."""
        enforcer = self._require_enforcer(name)
        try:
            await self._read_and_store(enforcer)
        except Exception as error:  # noqa: BLE001 - a defect must be stored in the state as well
            await self._store_failure(enforcer, error)

    def check_is_configured(self, name: str) -> None:
        self._require_enforcer(name)

    async def statuses(self) -> Sequence[EnforcerStatus]:
        return [await self._enforcer_status(enforcer) for enforcer in self._settings()]

    async def _enforcer_status(self, enforcer: EnforcerSettings) -> EnforcerStatus:
        state = await self._table.state(enforcer.name)
        return EnforcerStatus(
            name=enforcer.name,
            type=enforcer.type,
            every_s=enforcer.every,
            state=state,
            limits=state.stored[-1].limits if state.stored else 0,
            truncated=state.stored[-1].truncated if state.stored else False,
        )

    def _require_enforcer(self, name: str) -> EnforcerSettings:
        for enforcer in self._settings():
            if enforcer.name == name:
                return enforcer
        raise NotThere(f"there is no [[enforcers]] named {name!r}")

    async def _read_and_store(self, enforcer: EnforcerSettings) -> None:
        async with self._turn:
            now = self._clock.now()
            reading = await self._fetch_reading(enforcer, now)
            state = EnforcerState(last_success=now, next_at=now + enforcer.every)
            await self._table.store_attempt(enforcer.name, state, reading)

    async def _store_failure(self, enforcer: EnforcerSettings, error: Exception) -> None:
        extra = {"action": "enforcer_not_read", "enforcer": enforcer.name}
        retry_s = RETRY_S
        if isinstance(error, PullFailed):
            reason = str(error)
            retry_s = max(RETRY_S, error.retry_after_s or 0.0)
            _log.warning("the limits of an enforcer could not be read: %s", error, extra=extra)
        else:
            reason = failure_reason(error)
            log_failure("the limits of an enforcer could not be read", error, **extra)
        before = await self._table.state(enforcer.name)
        next_at = self._clock.now() + retry_s
        state = EnforcerState(reason=reason, last_success=before.last_success, next_at=next_at)
        await self._table.store_attempt(enforcer.name, state)

    async def _fetch_reading(self, enforcer: EnforcerSettings, now: float) -> EnforcerReading:
        limits: list[EnforcerLimit] = []
        requests = 0
        is_truncated = False

        def add_limit_unless_full(limit: EnforcerLimit) -> bool:
            nonlocal is_truncated
            is_truncated = len(limits) >= MAX_LIMITS
            if not is_truncated:
                limits.append(limit)
            return not is_truncated

        async def fetch_enforcer_page(path: str) -> Any:
            nonlocal requests
            requests += 1
            if requests > MAX_REQUESTS:
                raise PullFailed(
                    f"reading the limits needs more than {MAX_REQUESTS:,} requests", retry_after_s=None
                )
            return await get_json(enforcer, path, self._fetch)

        await TYPES[enforcer.type].read(fetch_enforcer_page, add_limit_unless_full, now)
        return EnforcerReading(at=now, limits=tuple(limits), truncated=is_truncated)


async def get_json(enforcer: EnforcerSettings, path: str, fetch: FetchLimits) -> Any:
    """Return the JSON value at a path of an enforcer. Raises PullFailed."""
    of_type = TYPES[enforcer.type]
    base = (enforcer.base_url or of_type.base_url).rstrip("/")
    body = await fetch(enforcer, base + path, of_type.headers)
    try:
        return await asyncio.to_thread(json.loads, body)
    except (ValueError, RecursionError) as error:  # lists in lists exhaust the stack
        raise PullFailed("the answer is no JSON", retry_after_s=None) from error
