"""The cost of a view equals the cost of its records, recounted one by one."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any
from zoneinfo import ZoneInfo

from hypothesis import given, settings
from hypothesis import strategies as st

from spool.ledger.ledger import Ledger
from spool.ledger.queries import CostQuery, CostRow, narrow_query
from spool.record import NS, Inference
from spool.registry.document_table import draft_fields
from spool.registry.views import NewView, SavedView, check_view
from spool.sqlite.in_memory import new_in_memory_ledger
from tests.rounds import examples
from tests.spool.ledger_log import BEGIN, HOUR, FakeClock, FakeLog, call

DAYS = 40
END = BEGIN + (DAYS + 1) * 24 * HOUR
ZONES = ("UTC", "Europe/Berlin", "America/Los_Angeles")
DIMENSIONS = ("team", "user", "tag:service")
VALUES = st.sampled_from([None, "a", "b", "c"])

filters = st.dictionaries(
    st.builds(str.__add__, st.sampled_from(["", "!"]), st.sampled_from(DIMENSIONS)),
    st.lists(VALUES.map(lambda value: value or ""), min_size=1, max_size=3).map(tuple),
)


@st.composite
def calls(draw: st.DrawFn) -> Inference:
    service = draw(VALUES)
    return call(
        team=draw(VALUES),
        user=draw(VALUES),
        tags={"service": service} if service else {},
        start_time=(BEGIN + draw(st.integers(0, DAYS * 24 * HOUR - 1))) * NS,
        cost=f"{draw(st.integers(0, 10**6))}.{draw(st.integers(0, 999)):03}",
        cost_source="reported",
        status=draw(st.sampled_from(["ok", "ok", "error", "cached"])),
    )


def passes(record: Inference, view: SavedView) -> bool:
    """Return whether the record matches each condition of the filter."""
    for name, values in view.filter.items():
        dimension = name.removeprefix("!")
        value = record.tags.get("service") if dimension == "tag:service" else getattr(record, dimension)
        if ((value or "") in values) == name.startswith("!"):
            return False
    return True


def spent(records: Sequence[Inference]) -> Decimal:
    return sum((Decimal(each.cost or 0) for each in records if each.status != "cached"), Decimal(0))


@settings(max_examples=examples(60), deadline=None)
@given(
    records=st.lists(calls(), max_size=12),
    chosen=filters,
    first=st.integers(0, DAYS - 1),
    days=st.integers(1, DAYS),
    zone=st.sampled_from(ZONES),
    granularity=st.sampled_from(["total", "daily", "weekly", "monthly", "quarterly"]),
)
def test_the_cost_of_a_view_is_that_of_its_records(
    records: list[Inference], chosen: dict[str, Any], first: int, days: int, zone: str, granularity: str
) -> None:
    """
    The cost of a view equals the cost of its records, for any filter, span and zone, in total and per owner.
    Rows of periods add up to the total.
    """
    draft = check_view(NewView(name="any", filter=chosen, principal_dimension="team"))
    view = SavedView(id="1", created=0, last_updated=0, **draft_fields(draft))
    begin = datetime.fromtimestamp(BEGIN, UTC).astimezone(ZoneInfo(zone))
    since = begin.replace(hour=0) + timedelta(days=first)
    until = since + timedelta(days=days)
    query = CostQuery(
        since=since, until=until, granularity=granularity, group_by=("team",), zone=ZoneInfo(zone)
    )
    rows = asyncio.run(answered(records, narrow_query(query, include=view.include, exclude=view.exclude)))
    inside = [
        record
        for record in records
        if passes(record, view) and since.timestamp() <= (record.start_time or 0) / NS < until.timestamp()
    ]
    owners = defaultdict(list)
    for record in inside:
        owners[record.team].append(record)
    found: dict[Any, Decimal] = defaultdict(Decimal)
    for row in rows:
        found[row.group[0]] += Decimal(row.cost)
    assert {owner: spent(its) for owner, its in owners.items()} == found
    assert spent(inside) == sum(found.values(), Decimal(0))
    assert len(inside) == sum(row.calls for row in rows)


async def answered(records: list[Inference], query: CostQuery) -> Sequence[CostRow]:
    log = FakeLog()
    log.add(records, at=END)
    clock = FakeClock(END)
    ledger = await Ledger(new_in_memory_ledger(), clock=clock).load()
    try:
        await ledger.catch_up(log)
        return await ledger.costs(query)
    finally:
        await ledger.close()
