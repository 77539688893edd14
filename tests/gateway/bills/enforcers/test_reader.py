"""Reading enforcers: when they are due, failures, limits of their number, and keys that stay secret."""

from __future__ import annotations

import json
import operator
from collections.abc import Callable, Mapping
from dataclasses import replace

import msgspec
import pytest

from gateway.bills.enforcers import reader
from gateway.bills.enforcers.reader import MAX_LIMITS, EnforcerReader
from gateway.bills.statements.puller import RETRY_S, PullFailed
from gateway.configuration.sections import EnforcerSettings
from spool.errors import NotThere
from spool.registry.tables import enforcers
from spool.registry.tables.enforcers import MAX_READINGS, EnforcerLimit, EnforcerReading, EnforcerState
from tests.gateway.bills.enforcers.world import ENFORCER, NOVEMBER
from tests.gateway.money.budgets.house import House


class Site:
    """A reader of one simulated OpenRouter."""

    def __init__(self, house: House) -> None:
        self.house = house
        self.settings = [replace(ENFORCER, type="openrouter", base_url="", every=900.0)]
        self.keys = 2
        self.failure: PullFailed | None = None
        self.asked: list[str] = []
        self.reader = EnforcerReader(
            house.registry.enforcers, house.clock, lambda: self.settings, self._fetch
        )

    async def _fetch(
        self, enforcer: EnforcerSettings, url: str, headers: Callable[[str], Mapping[str, str]]
    ) -> bytes:
        self.asked.append(url)
        if self.failure is not None:
            raise self.failure
        rows = [{"hash": str(number), "usage": 1} for number in range(self.keys)]
        return json.dumps({"data": rows if url.endswith("offset=0") else []}).encode()


@pytest.fixture
async def site() -> Site:
    return Site(await House(at=NOVEMBER).start())


async def test_it_reads_when_due(site: Site) -> None:
    """Readings are stored when they are due, up to a maximum number. A clock that was ahead does not stop them."""
    table = site.house.registry.enforcers
    for _ in range(MAX_READINGS + 3):
        await site.reader.read_due()
        await site.reader.read_due()
        site.house.clock.at += 900
    readings = await table.readings("litellm-eu")
    assert MAX_READINGS == len(readings)
    assert site.house.clock.at - 900 == readings[-1].at
    assert 2 * (MAX_READINGS + 3) == len(site.asked)
    assert all(url.startswith("https://openrouter.ai/api/v1/keys") for url in site.asked)
    site.house.clock.at -= 86400
    await site.reader.read_due()
    assert 2 * (MAX_READINGS + 4) == len(site.asked)


async def test_a_check_without_a_reading_changes_nothing(site: Site) -> None:
    """Storing a reading does not change the version of the registry, so no open page reloads."""
    await site.reader.read_due()
    version = site.house.registry.version
    await site.reader.read_due()
    assert version == site.house.registry.version


async def test_a_failure_keeps_the_last_reading(site: Site) -> None:
    await site.reader.read_enforcer("litellm-eu")
    site.failure = PullFailed("the key was refused", retry_after_s=None)
    site.house.clock.at += 900
    await site.reader.read_due()
    [status] = await site.reader.statuses()
    assert ("the key was refused", NOVEMBER, 2) == (
        status.state.reason,
        status.state.last_success,
        status.limits,
    )
    assert site.house.clock.at + RETRY_S == status.state.next_at
    with pytest.raises(NotThere):
        await site.reader.read_enforcer("other")


async def test_limits_are_limited(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reader, "MAX_LIMITS", 2)
    for keys, is_truncated in ((2, False), (3, True)):
        site.keys = keys
        await site.reader.read_enforcer("litellm-eu")
        [status] = await site.reader.statuses()
        assert (2, is_truncated) == (status.limits, status.truncated)
        site.house.clock.at += 900


async def test_an_enforcer_that_is_removed_is_forgotten(site: Site) -> None:
    await site.reader.read_enforcer("litellm-eu")
    site.settings = []
    await site.reader.read_due()
    table = site.house.registry.enforcers
    assert [] == list(await table.readings("litellm-eu"))
    assert "" == (await table.state("litellm-eu")).reason


async def test_stored_limits_are_limited(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    """Above MAX_STORED_LIMITS, the oldest readings are deleted. The last reading stays, however large it is."""
    monkeypatch.setattr(enforcers, "MAX_STORED_LIMITS", 7)
    table = site.house.registry.enforcers
    for keys, stored in ((2, [2]), (2, [2, 2]), (3, [2, 2, 3]), (1, [2, 3, 1]), (8, [8])):
        site.keys = keys
        await site.reader.read_enforcer("litellm-eu")
        assert stored == [len(reading.limits) for reading in await table.readings("litellm-eu")]
        assert stored == [each.limits for each in (await table.state("litellm-eu")).stored]
        site.house.clock.at += 900


async def test_the_largest_reading_is_stored_compactly(site: Site) -> None:
    """
    A stored reading takes less than a fifth of its JSON, and unchanged limits of several readings are in memory
    once.
    """
    limits = tuple(
        EnforcerLimit(kind="key", id=f"{number:064x}", name=f"key-{number}", limit="10", spent=f"{number}.01")
        for number in range(MAX_LIMITS)
    )
    table = site.house.registry.enforcers
    changed = (msgspec.structs.replace(limits[0], spent="7"), *limits[1:])
    for at, each in ((NOVEMBER, limits), (NOVEMBER + 900, changed)):
        await table.store_attempt("litellm-eu", EnforcerState(), EnforcerReading(at=at, limits=each))
    first, second = await table.readings("litellm-eu")
    assert (limits, changed) == (first.limits, second.limits)
    assert all(map(operator.is_, first.limits[1:], second.limits[1:]))
    documents = await site.house.store.read(lambda rows: rows.documents(enforcers.KIND))
    assert 2 == len(documents)
    assert sum(map(len, map(json.dumps, documents.values()))) < 2 * len(msgspec.json.encode(limits)) / 5
