"""A whole storage on every engine: its parts work together and are closed together."""

from __future__ import annotations

from dataclasses import fields, replace
from pathlib import Path

import pytest

from spool.billing import BILLING_HOURS, SentHour
from spool.engines import ENGINES, load_engine
from spool.errors import SpoolUnavailable
from spool.identity import RecordIdentity
from spool.listing import ASCENDING, ListQuery, Position, SortField, small_letter_by_capital, text_sort_key
from spool.log.values import Submission
from spool.record import AI_TELEMETRY, UNIT_COST, UnitCostOperation
from spool.storage import Storage
from spool.streams import ALLOCATION, SUM
from tests.moved_clock import MovedClock
from tests.spool.contract.conftest import EVERY_ENGINE, WITHOUT_FILE
from tests.spool.contract.test_devices import device
from tests.spool.ledger_log import call


@pytest.mark.one_engine
async def test_it_is_all_there(storage: Storage) -> None:
    """No part of the storage is missing, and the registry is undamaged."""
    assert [] == [each.name for each in fields(storage) if getattr(storage, each.name) is None]
    assert storage.registry_problem == ""
    assert len(storage.secret) == 32


@pytest.mark.parametrize("engine", ENGINES)
def test_a_directory_without_data_is_new(engine: str, tmp_path: Path) -> None:
    """A directory without data counts as new. Every engine states its name and version for bug reports."""
    assert load_engine(engine).is_new(tmp_path)
    assert load_engine(engine).version().startswith(engine)


@pytest.mark.one_engine
@pytest.mark.parametrize("options", [*EVERY_ENGINE, WITHOUT_FILE], indirect=True)
async def test_retention_waits_for_the_ledger(storage: Storage, clock: MovedClock) -> None:
    """Records that the ledger has not counted are never deleted, however old."""
    identity = RecordIdentity(b"r" * 16)
    await storage.log.append_submission(
        Submission(topic=AI_TELEMETRY, received=1, records=[call(id=identity.id)], identities=[identity])
    )
    clock.move(30 * 86400)
    await storage.log.run_retention()
    assert 1 == len(await storage.log.read(AI_TELEMETRY, 1, 1))
    await storage.ledger.catch_up(storage.log)
    await storage.log.run_retention()
    assert [] == list(await storage.log.read(AI_TELEMETRY, 1, 1))
    assert 1 == (await storage.ledger.state()).rows


@pytest.mark.one_engine
async def test_closed_storage_refuses_calls(storage: Storage) -> None:
    """Calls after the close are refused, not lost."""
    await storage.close()
    with pytest.raises(SpoolUnavailable):
        await storage.log.append_submission(
            Submission(topic=AI_TELEMETRY, received=0, records=[], identities=[])
        )
    with pytest.raises(SpoolUnavailable):
        await storage.devices.replace_row(device())


async def test_billing_hours_are_found_by_connection_and_time(storage: Storage) -> None:
    """A newer state of a billing hour replaces the older state. Each connection has its own hours."""
    hours = [SentHour(start=start, hash=b"h", rows=1, bytes=2, sent_at=3.0) for start in (0, 3600, 7200)]
    changed = SentHour(start=3600, hash=b"i", rows=4, bytes=5, sent_at=6.0)
    await storage.small.open_table(BILLING_HOURS).store_hours("one", hours)
    await storage.small.open_table(BILLING_HOURS).store_hours("one", [changed])
    await storage.small.open_table(BILLING_HOURS).store_hours("two", hours[:1])
    assert {0: hours[0], 3600: changed} == await storage.small.open_table(BILLING_HOURS).sent_hours(
        "one", 0, 7200
    )
    assert {} == await storage.small.open_table(BILLING_HOURS).sent_hours("two", 3600, 7200)


async def test_totals_of_a_stream_are_listed_in_pages(storage: Storage) -> None:
    """
    Totals of a stream are listed in pages: nulls come first and equal values are sorted by key, in both directions,
    only within that stream.
    """
    names = [None, "b", "a", "b"]
    records = [_operation("s", name, hour) for hour, name in enumerate(names)]
    records.append(_operation("other", "a", 0))
    identities = [RecordIdentity(record.id) for record in records]
    await storage.log.append_submission(
        Submission(topic=UNIT_COST, received=len(records), records=list(records), identities=identities)
    )
    query = ListQuery(sort=SortField("element_name"), order=ASCENDING, identity="key", limit=3)
    page = await storage.streams.totals_page("s", query)
    assert [total.element_name for total in page.rows] == [None, "a", "b"]
    assert page.before is False
    assert page.after is True
    assert page.total == 4
    value, identity = page.keys[-1]
    rest = await storage.streams.totals_page(
        "s", replace(query, position=Position(value=value, identity=identity))
    )
    assert [total.element_name for total in rest.rows] == ["b"]
    assert rest.before is True
    assert rest.after is False
    value, identity = rest.keys[0]
    back = await storage.streams.totals_page(
        "s", replace(query, position=Position(value=value, identity=identity, backward=True))
    )
    assert list(page.rows) == list(back.rows)
    assert list(page.keys) == list(back.keys)
    filtered = await storage.streams.totals_page("s", replace(query, filters={"element_name": ("a", "c")}))
    assert [total.element_name for total in filtered.rows] == ["a"]
    assert filtered.total == 1


async def test_texts_have_one_order_in_every_engine(storage: Storage) -> None:
    """
    Texts are sorted without case, then by code point. The test pages through a third of all Unicode letters
    with two cases.
    """
    pairs = [*small_letter_by_capital().items()][::3]
    names = [f"{letter}b" for pair in pairs for letter in pair]
    names += [
        "apple",
        "Apple",
        "Äpfel",
        "äpfel",
        "Zebra",
        "zebra",
        "Straße",
        "STRASSE",
        "10",
        "9",
        "a b",
        "日本",
        "",
    ]
    records = [_operation("s", name, 0, number) for number, name in enumerate(names)]
    identities = [RecordIdentity(record.id) for record in records]
    await storage.log.append_submission(
        Submission(topic=UNIT_COST, received=len(records), records=records, identities=identities)
    )
    seen: list[str | None] = []
    sort = SortField("element_name", is_text=True)
    query = ListQuery(sort=sort, order=ASCENDING, identity="key", limit=100)
    while True:
        page = await storage.streams.totals_page("s", query)
        seen += [total.element_name for total in page.rows]
        if not page.after:
            break
        value, identity = page.keys[-1]
        query = replace(query, position=Position(value=value, identity=identity))
    assert sorted(set(names), key=text_sort_key) == seen
    value, identity = page.keys[0]
    before = Position(value=value, identity=identity, backward=True)
    back = await storage.streams.totals_page("s", replace(query, position=before, limit=5000))
    assert seen[: -len(page.rows)] == [total.element_name for total in back.rows]


def _operation(stream: str, element_name: str | None, hour: int, number: int = 0) -> UnitCostOperation:
    return UnitCostOperation(
        id=bytes([hour]) * 13 + number.to_bytes(2) + stream[:1].encode(),
        source="unit-cost",
        stream=stream,
        stream_type=ALLOCATION,
        operation=SUM,
        granularity="HOURLY",
        start_time=(1_790_000_000 + hour * 3600) * 10**9,
        element_name=element_name,
        dimensions={},
        value="1",
    )
