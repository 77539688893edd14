"""Ledger totals that are published as unit-cost streams."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from gateway.configuration.sections import Config, UnitCostPublication
from gateway.intake.attribution import RecordAttributor
from gateway.intake.deposits import NonTelemetryIntake
from gateway.intake.publisher import UnitCostPublisher
from spool.errors import TotalsIncomplete
from spool.identity import RecordIdentity
from spool.ledger.ledger import Ledger
from spool.log.values import Submission
from spool.record import AI_TELEMETRY, NS, UNIT_COST
from spool.settings import SpoolSettings
from spool.sqlite.in_memory import open_spool as open_in_memory
from spool.sqlite.ledger import open_ledger
from spool.sqlite.spool import SqliteSpool
from spool.streams import KnownStreams
from tests.exporters.spools import StoppedClock, call
from tests.spool.ledger_log import FakeLog
from tests.spool.ledger_log import call as known


@dataclass
class Publishing:
    spool: SqliteSpool
    ledger: Ledger
    clock: StoppedClock
    n: int = 0

    async def spend(self, team: str | None, **changes: Any) -> None:
        self.n += 1
        said = {
            "cost": "0.3",
            "cost_source": "reported",
            "start_time": int(self.clock.at) * NS,
            "output_tokens": 2,
        }
        record = call(self.n, **{**said, "input_tokens": 8, "team": team, **changes})
        await self.spool.log.append_submission(
            Submission(
                topic=AI_TELEMETRY, received=1, records=[record], identities=[RecordIdentity(record.id)]
            )
        )
        await self.ledger.catch_up(self.spool.log)

    async def publish(self, rule: UnitCostPublication) -> int:
        log, streams = self.spool.log, self.spool.streams
        publisher = UnitCostPublisher(
            [rule],
            ledger=self.ledger,
            intake=NonTelemetryIntake(log, RecordAttributor(Config())),
            streams=streams,
            known_streams=KnownStreams(await streams.streams()),
            clock=self.clock,
        )
        return await publisher.publish_changed_costs(rule)

    async def totals(self, stream: str) -> dict[str | None, str]:
        return {total.element_name: total.value for total in await self.spool.streams.stream_totals(stream)}


@pytest_asyncio.fixture
async def publishing(tmp_path: Path) -> AsyncIterator[Publishing]:
    clock = StoppedClock()
    spool = await open_in_memory(settings=SpoolSettings(hold=0), clock=clock)
    ledger = await open_ledger(tmp_path, clock=clock)
    yield Publishing(spool, ledger, clock)
    await ledger.close()
    await spool.close()


@pytest.mark.parametrize(
    ("rule", "search", "unknown"),
    [
        ({"measure": "cost"}, "0.6", "0.3"),
        ({"measure": "tokens"}, "20", "10"),
        ({"measure": "calls"}, "2", "1"),
        ({"measure": "cost", "per": "calls"}, "0.3", "0.3"),
        ({"measure": "cost", "per": "tokens"}, "0.03", "0.03"),
    ],
)
async def test_measures_by_team(
    publishing: Publishing, rule: dict[str, Any], search: str, unknown: str
) -> None:
    """Each team has a record, and calls without a team share one. Nothing is published twice."""
    for team in ("search", "search", None):
        await publishing.spend(team)
    published = UnitCostPublication(stream="ai", **rule)
    assert await publishing.publish(published) == 2
    assert await publishing.publish(published) == 0
    assert {"search": search, "(unknown)": unknown} == await publishing.totals("ai")


async def test_late_data_replaces_what_was_published(publishing: Publishing) -> None:
    """When late data arrive, only the published sum that changed is replaced."""
    rule = UnitCostPublication(stream="ai", granularity="HOURLY")
    await publishing.spend("search")
    await publishing.spend("ads")
    await publishing.publish(rule)
    await publishing.spend("ads", cost="1")
    assert 1 == await publishing.publish(rule)
    assert {"search": "0.3", "ads": "1.3"} == await publishing.totals("ai")
    assert {"accepted": 3} == {
        term: n
        for term, n in (await publishing.spool.log.books()).topics[UNIT_COST].items()
        if term == "accepted"
    }


async def test_hours_that_became_days_stay_as_published(publishing: Publishing) -> None:
    """
    If the clock was months ahead for a while, hours have become days. The published hourly sums then stay,
    and publishing goes on.
    """
    rule = UnitCostPublication(stream="ai", granularity="HOURLY")
    for hours in (0, 1):
        await publishing.spend("search", start_time=int(publishing.clock.at - (72 + hours) * 3600) * NS)
    await publishing.publish(rule)
    published = await publishing.totals("ai")
    publishing.clock.move(70 * 86_400)
    await publishing.ledger.sum_up_and_delete_hours()
    publishing.clock.move(-70 * 86_400)
    await publishing.spend("search")
    assert 1 == await publishing.publish(rule)
    assert {**published, "search": "0.3"} == await publishing.totals("ai")


async def test_published_sums_stay_while_the_ledger_lacks_records(
    publishing: Publishing, tmp_path: Path
) -> None:
    """
    After the loss of ledger.sqlite, published sums stay where records are already deleted. Until the totals
    are counted again, nothing is published.
    """
    rule = UnitCostPublication(stream="ai", granularity="HOURLY")
    await publishing.spend("search")
    await publishing.publish(rule)
    now, left = publishing.clock.at, FakeLog()
    left.add([None] * 10, at=now)
    left.add([known(team="search", start_time=int(now) * NS)], at=now)
    left.add([known(team="ads", start_time=int(now) * NS)], at=now)
    left.forget_below(11)
    (tmp_path / "again").mkdir()
    lost, publishing.ledger = publishing.ledger, await open_ledger(tmp_path / "again", clock=publishing.clock)
    try:
        with pytest.raises(TotalsIncomplete):
            await publishing.publish(rule)
        await publishing.ledger.catch_up(left)
        assert 1 == await publishing.publish(rule)
    finally:
        await publishing.ledger.close()
        publishing.ledger = lost
    assert {"search": "0.3", "ads": "0.00035"} == await publishing.totals("ai")


async def test_another_stream_of_the_name_is_left_alone(publishing: Publishing) -> None:
    """If a stream of the rule's name has another granularity, the rule publishes nothing."""
    await publishing.spend("search")
    await publishing.publish(UnitCostPublication(stream="ai"))
    before = await publishing.totals("ai")
    await publishing.publish(UnitCostPublication(stream="ai", granularity="HOURLY"))
    assert before == await publishing.totals("ai")
