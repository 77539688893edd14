"""Rows of billing connections become billed costs by day and column, each once and exactly."""

from __future__ import annotations

import json
import random
from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.bills.billed import connection_rows
from gateway.bills.billed.connection_rows import (
    MAX_SETS,
    AmountsByDay,
    ConnectionRowRules,
    add_json_rows,
    build_day_sums,
)
from gateway.bills.billed.details import billed_cost_details
from gateway.bills.billed.row_book import ConnectionCostUpdater, RowSources
from gateway.operations.list import declared_tables
from spool import money
from spool.billing import (
    BILLING_DROPS,
    REPLACE_DROP,
    REPLACE_HOURLY,
    SUM,
    HourRows,
    MonthSize,
    rows_of_month_json,
    split_by_hour,
)
from spool.engines import MEMORY, open_storage
from spool.identity import RecordIdentity
from spool.ledger.dimensions import BILLED_TYPES, ROW_DIMENSIONS
from spool.ledger.ledger import Ledger
from spool.ledger.queries import CostQuery
from spool.ledger.slices import SlicedLedger
from spool.ledger.sums import OTHER
from spool.people import DROP, People
from spool.record import BILLING_DATA, HourlyBillingFile
from spool.registry.connections import BillingConnection
from spool.registry.roles import EXCEPT, LedgerSlice, RoleFilter
from spool.settings import SpoolSettings
from spool.sqlite.in_memory import new_in_memory_ledger
from spool.storage import StorageOptions
from tests.spool.contract.examples import add
from tests.spool.ledger_log import FakeClock

OCTOBER = datetime(2026, 10, 1, tzinfo=UTC)
RULES = ConnectionRowRules(
    connection="c-1",
    provider="MongoDB",
    owner_tags={"team": "owner"},
    tags=("tag:service",),
    people=People.for_installation(b"p"),
)


def row(at: str = "2026-10-05T03:00:00Z", cost: str = "1", **more: str) -> dict[str, str]:
    names = {name.replace("__", "/"): value for name, value in more.items()}
    return {"time/usage_start": at, "cost/cost": cost, "resource/id": "r", **names}


class Drops:
    """The rows that hourly files stored in each month of a connection."""

    def __init__(self) -> None:
        self.kept: dict[str, dict[str, list[HourRows]]] = {}
        self.at = 0.0

    def put(self, *rows: dict[str, str], connection: str = "c-1", month: str = "2026-10") -> None:
        self.kept.setdefault(connection, {})[month] = split_by_hour(json.dumps({"data": rows}).encode())
        self.at += 1

    async def last_drop_at_by_month(self, connection: str) -> Mapping[str, float]:
        return dict.fromkeys(self.kept.get(connection, {}), self.at)

    async def month_hours(self, connection: str, month: str) -> Sequence[HourRows]:
        return self.kept[connection][month]

    async def month_size(self, connection: str, month: str, without: Collection[int] = ()) -> MonthSize:
        return MonthSize(rows=sum(hour.rows for hour in self.kept[connection][month]))


class Rows:
    """A ledger with the rows of connections."""

    async def open(self) -> Rows:
        self.clock, self.drops = FakeClock(), Drops()
        self.clock.at = (OCTOBER + timedelta(days=40)).timestamp()
        self.ledger = await Ledger(new_in_memory_ledger(), clock=self.clock).load()
        self.connections = [
            BillingConnection(
                id=id, name=id, cloud_provider="MongoDB", expected_ingest_rate=None, is_enabled=True, s3_bucket=None,
                upstream_id="", created=0.0, last_updated=0.0,
            )
            for id in ("c-1", "c-2")
        ]  # fmt: skip
        sources = RowSources(
            ledger=self.ledger,
            drops=self.drops,  # type: ignore[arg-type]
            connections=lambda: self.connections,
            owner_tags=lambda: {"team": "owner"},
            people=lambda: People.for_installation(b"p"),
        )
        self.book = ConnectionCostUpdater(sources, self.clock)
        return self

    def asked(self, cost_type: str, *by: str, **more: Any) -> CostQuery:
        until = OCTOBER + timedelta(days=40)
        arranged = BILLED_TYPES.get(cost_type, 0)
        return CostQuery(
            since=OCTOBER, until=until, granularity="total", group_by=by, arranged=arranged, **more
        )

    async def paid(self, cost_type: str, *by: str, **more: Any) -> dict[tuple[str | None, ...], Decimal]:
        rows = await self.ledger.costs(self.asked(cost_type, *by, **more))
        return {cost_row.group: Decimal(cost_row.cost) for cost_row in rows}


async def test_rows_are_in_every_dimension_of_theirs() -> None:
    """Columns and tags of rows are dimensions next to those of calls. Counted costs have none of them."""
    world = await Rows().open()
    world.drops.put(
        row(cost="3", resource__service="Atlas", resource__account="a", lineitem__type="Usage",
            **{"resource/tag:owner": "search", "resource/tag:service": "shop", "k8s/namespace": "prod"}),
        row(cost="2", resource__service="Atlas", resource__region="eu-west-1"),
        row(cost="-1", lineitem__type="Discount"),
        row(cost="7", **{"resource/id": "tollhouse:openai:search:gpt-4o"}),
    )  # fmt: skip
    assert 1 == await world.book.recalculate_changed_months()
    assert 0 == await world.book.recalculate_changed_months()
    expected = {
        "origin": {"billing": 4}, "connection": {"c-1": 4}, "service": {"Atlas": 5, None: -1},
        "provider": {"MongoDB": 4}, "account": {"a": 3, None: 1}, "namespace": {"prod": 3, None: 1},
        "line_item": {"Usage": 3, "Discount": -1, None: 2},
        "team": {"search": 3, None: 1}, "tag:service": {"shop": 3, None: 1}, "region": {"eu-west-1": 2, None: 2},
        "charge": {"usage": 5, "discount": -1}, "basis": {"exact": 3, "unallocated": 1}, "model": {None: 4},
        "resource": {"r": 4},
    }  # fmt: skip
    for name, sums in expected.items():
        for cost_type in BILLED_TYPES:
            found = {group: int(cost) for (group,), cost in (await world.paid(cost_type, name)).items()}
            assert sums == found, (name, cost_type)
    only = {"include": {"origin": ("billing",), "service": ("Atlas",)}}
    assert {(): Decimal(5)} == await world.paid("billed_cost", **only)
    assert {} == await world.paid("billed_cost", include={"origin": ("calls",)})
    assert {} == await world.paid("real_cost", *ROW_DIMENSIONS)
    beside = await billed_cost_details(world.ledger, world.asked("billed_cost"), world.clock.now())
    assert {"no_owner": "1"} == beside["by_reason"]
    assert ["MongoDB"] == [source["provider"] for source in beside["sources"]]  # type: ignore[attr-defined]


async def test_rows_have_all_their_tags() -> None:
    """
    Rows have all tags, including tags that are no dimension of calls. Empty tags are absent, and long
    values are cut.
    """
    world = await Rows().open()
    tags = {
        "centre": "k-1",
        "empty": "",
        "none": "N/A",
        "long": "x" * 300,
        "row:service": "forged",
        "n" * 300: "v",
        "nul\0": "v",
    }
    world.drops.put(
        row(cost="3", **{f"resource/tag:{name}": value for name, value in tags.items()}), row(cost="2")
    )
    await world.book.recalculate_changed_months()
    assert ["tag:centre", "tag:long"] == await world.ledger.billing_row_tags()
    assert {("k-1",): Decimal(3), (None,): Decimal(2)} == await world.paid("billed_cost", "tag:centre")
    assert {("x" * 256,): Decimal(3), (None,): Decimal(2)} == await world.paid("billed_cost", "tag:long")
    assert {(None,): Decimal(5)} == await world.paid("billed_cost", "service")


def test_too_many_tag_sets_lose_tags_before_account_and_team(monkeypatch: pytest.MonkeyPatch) -> None:
    """
    If a day has too many distinct sets of tags, the smallest sets lose their tags first. They keep
    account and team.
    """
    monkeypatch.setattr(connection_rows, "MAX_SETS", 10)
    sums_by_day: AmountsByDay = {}
    for number in range(200):
        fields = {"resource/account": "a", "resource/tag:owner": "t", "resource/tag:line": str(number)}
        add_json_rows(sums_by_day, json.dumps(row(cost=str(number + 1), **fields)).encode(), RULES)
    [amounts] = sums_by_day.values()
    sums = build_day_sums(amounts)
    assert len(sums) == 11
    assert {billed_sum.dimensions.team for billed_sum in sums} == {"t"}
    assert all('"row:account": "a"' in billed_sum.dimensions.tags for billed_sum in sums)
    assert sum(range(1, 201)) * money.UNIT == sum(billed_sum.amount for billed_sum in sums)


async def test_a_slice_has_rows_with_an_owner_in_it() -> None:
    """Rows without an owner do not pass a filter that only excludes, because they belong to everyone."""
    world = await Rows().open()
    tag = "resource/tag:owner"
    world.drops.put(row(cost="3", **{tag: "search"}), row(cost="5", **{tag: "ads"}), row(cost="9"))
    await world.book.recalculate_changed_months()
    for mode, value in ((EXCEPT, "ads"), ("is", "search")):
        part = RoleFilter(dimension="team", values=(value,), mode=mode)
        sliced = SlicedLedger(world.ledger, LedgerSlice(parts=((part,),)))
        [cost_row] = await sliced.costs(world.asked("billed_cost", "team"))
        assert cost_row.group == ("search",)
        assert cost_row.cost == "3"


async def test_replaced_or_removed_costs_of_a_connection_disappear() -> None:
    """
    Old costs disappear if a month is computed again, a day has no more rows, or a connection no longer
    counts in costs.
    """
    world = await Rows().open()
    world.drops.put(row(cost="3"), row(at="2026-10-06T00:00:00Z", cost="4"))
    world.drops.put(row(cost="10"), connection="c-2")
    assert 3 == await world.book.recalculate_changed_months()
    assert {("c-1",): Decimal(7), ("c-2",): Decimal(10)} == await world.paid("billed_cost", "connection")
    world.drops.put(row(cost="2"))
    assert 2 == await world.book.recalculate_changed_months()
    assert {("c-1",): Decimal(2), ("c-2",): Decimal(10)} == await world.paid("billed_cost", "connection")
    world.connections = world.connections[1:]
    assert 1 == await world.book.recalculate_changed_months()
    assert {("c-2",): Decimal(10)} == await world.paid("billed_cost", "connection")
    again = ConnectionCostUpdater(replace(world.book._sources, connections=list), world.clock)
    assert 1 == await again.recalculate_changed_months()
    assert {} == await world.paid("billed_cost")


def test_columns_that_are_missing_have_the_next_one() -> None:
    """
    If a column of an amount is missing, the next one is used: discounted amortized, amortized, discounted,
    billed. An amount that several cost types share is stored once.
    """
    fields = {"cost/discounted_cost": "8", "cost/amortized_cost": "6"}
    sums_by_day: AmountsByDay = {}
    add_json_rows(sums_by_day, json.dumps(row(cost="10", **fields)).encode(), RULES)
    [amounts] = sums_by_day.values()
    by_type = {
        name: sum(units for (_, _, mask), units in amounts.items() if mask & bit)
        for name, bit in BILLED_TYPES.items()
    }
    assert {
        "billed_cost": 10, "discounted_cost": 8, "amortized_cost": 6, "discounted_amortized_cost": 6,
        "invoiced_amortized_cost": 0,
    } == {name: units // money.UNIT for name, units in by_type.items()}  # fmt: skip
    closed: AmountsByDay = {}
    add_json_rows(closed, json.dumps(row(cost="1")).encode(), replace(RULES, is_closed=True))
    assert {31} == {mask for amounts in closed.values() for _, _, mask in amounts}


def test_a_row_of_several_days_is_cut_by_time() -> None:
    """
    A row of several days is divided by time. The last day gets the remainder, so the parts add up to the row.
    """
    sums_by_day: AmountsByDay = {}
    fields = {"time/usage_end": "2026-10-07T06:00:00Z"}
    add_json_rows(sums_by_day, json.dumps(row(at="2026-10-05T12:00:00Z", cost="1", **fields)).encode(), RULES)
    parts = [sum(amounts.values()) for _, amounts in sorted(sums_by_day.items())]
    hours = (12, 24, 6)
    assert [money.UNIT * 12 // 42, money.UNIT * 36 // 42 - money.UNIT * 12 // 42] == parts[:2]
    assert sum(parts) == money.UNIT
    assert len(hours) == len(parts)


def test_many_sets_are_added_up_while_rows_are_read(monkeypatch: pytest.MonkeyPatch) -> None:
    """Memory per day is limited for any number of rows, services and owners, and the sum is exact."""
    monkeypatch.setattr(connection_rows, "MAX_SETS", 10)
    monkeypatch.setattr(connection_rows, "FOLD_AT", 80)
    sums_by_day: AmountsByDay = {}
    for number in range(500):
        fields = {"resource/id": f"r-{number}", "resource/service": f"s-{number}", "resource/tag:owner": "t"}
        dropped_row = row(cost=str(number + 1), time__usage_end="2026-10-07T03:00:00Z", **fields)
        add_json_rows(sums_by_day, json.dumps(dropped_row).encode(), RULES)
        assert all(len(amounts) < 80 for amounts in sums_by_day.values())
    sums = [billed_sum for amounts in sums_by_day.values() for billed_sum in build_day_sums(amounts)]
    assert sum(range(1, 501)) * money.UNIT == sum(billed_sum.amount for billed_sum in sums)
    assert len(sums) <= 3 * (10 + 1)
    largest = max(sums, key=lambda each: each.amount * (each.dimensions.team != OTHER))
    assert '"row:resource": "r-499"' in largest.dimensions.tags


texts = st.sampled_from(["", "a", "b", "N/A"])
a_row = st.builds(
    lambda day, hours, cost, service, team: row(
        at=f"2026-10-{day:02}T05:00:00Z", cost=cost, resource__service=service,
        **{"time/usage_end": f"2026-10-{day:02}T{5 + hours:02}:00:00Z", "resource/tag:owner": team},
    ),
    st.integers(1, 28), st.integers(0, 18), st.decimals(-1000, 1000, places=20).map(lambda each: f"{each:f}"), texts,
    texts,
)  # fmt: skip


@given(st.lists(a_row, max_size=12))
def test_no_digit_is_lost(rows: list[dict[str, str]]) -> None:
    """For any rows, the sum over days, owners and services equals the sum of the rows."""
    sums_by_day: AmountsByDay = {}
    add_json_rows(sums_by_day, json.dumps(rows).encode()[1:-1], RULES)
    sums = [billed_sum for amounts in sums_by_day.values() for billed_sum in build_day_sums(amounts)]
    assert sum(money.text_to_units(each["cost/cost"]) for each in rows) == sum(
        billed_sum.amount for billed_sum in sums
    )
    assert not any(billed_sum.basis == "exact" and not billed_sum.dimensions.team for billed_sum in sums)


def test_many_sets_of_a_day_are_added_up() -> None:
    """
    If a day has very many sets, the largest stay. The others keep only provider and service, and the
    sum is unchanged.
    """
    sums_by_day: AmountsByDay = {}
    tag = {"resource/tag:owner": "t"}
    rows = [
        row(cost=str(number + 1), **tag, **{"resource/id": str(number)}) for number in range(MAX_SETS + 3)
    ]
    add_json_rows(sums_by_day, json.dumps(rows).encode()[1:-1], RULES)
    [amounts] = sums_by_day.values()
    sums = build_day_sums(amounts)
    assert MAX_SETS + 1 == len(sums)
    joint = [billed_sum for billed_sum in sums if billed_sum.dimensions.team == OTHER]
    assert [billed_sum.amount for billed_sum in joint] == [6 * money.UNIT]
    assert [billed_sum.basis for billed_sum in joint] == ["unallocated"]
    assert sum(range(1, MAX_SETS + 4)) * money.UNIT == sum(billed_sum.amount for billed_sum in sums)


async def test_random_drops_come_to_a_recount_of_their_month(tmp_path: Path) -> None:
    """
    Files with random operations and repeats are added, and the costs are read at random times. Each dimension
    equals a recount of the current rows.
    """
    chance, clock = random.Random(5), FakeClock()
    clock.at = (OCTOBER + timedelta(days=40)).timestamp()
    options = StorageOptions(
        declared=declared_tables(), settings=SpoolSettings(hold=0), directory=tmp_path, clock=clock
    )
    storage = await open_storage(options, engine=MEMORY)
    world = await Rows().open()
    drops = storage.small.open_table(BILLING_DROPS)
    book = ConnectionCostUpdater(replace(world.book._sources, drops=drops), clock)
    sent: list[HourlyBillingFile] = []
    for number in range(60):
        clock.at += 1
        rows = [random_row(chance) for _ in range(chance.randint(1, 6))]
        operation = chance.choice([SUM, SUM, REPLACE_HOURLY, REPLACE_DROP])
        body = json.dumps({"month": "2026-10", "operation": operation, "data": rows}).encode()
        drop = HourlyBillingFile(
            id=number.to_bytes(16, "big"), connection_id="c-1", month="2026-10", operation=operation,
            rows=len(rows), body=body,
        )  # fmt: skip
        sent.append(drop)
        for sent_drop in (drop, *chance.choices(sent, k=1)):
            await add(storage.log, (sent_drop, RecordIdentity(sent_drop.id)), topic=BILLING_DATA)
        if number % 12 == 11:
            await book.recalculate_changed_months()
            stored_rows = json.loads(b"".join(rows_of_month_json(await drops.month_hours("c-1", "2026-10"))))
            for by, column in (
                ("service", "resource/service"),
                ("team", "resource/tag:owner"),
                ("account", "resource/account"),
            ):
                recount: dict[tuple[str | None, ...], Decimal] = defaultdict(Decimal)
                for stored_row in stored_rows:
                    recount[stored_row[column],] += Decimal(stored_row["cost/cost"])
                assert recount == await world.paid("billed_cost", by)
    await storage.close()


def random_row(chance: random.Random) -> dict[str, str]:
    fields = {
        "resource/service": chance.choice("xyz"), "resource/account": chance.choice("12"),
        "resource/tag:owner": chance.choice(["search", "chat"]),
    }  # fmt: skip
    at = f"2026-10-{chance.randint(1, 28):02}T{chance.randrange(24):02}:00:00Z"
    return row(at=at, cost=f"{chance.randint(1, 10**6)}.{chance.randint(1, 10**6)}", **fields)


def test_a_row_names_a_user_as_records_do() -> None:
    """An e-mail address in a tag of a billing row gives the same user as in calls."""
    rules = replace(RULES, owner_tags={"user": "user"})
    hashed = rules.people.hash_address("ann@example.com")
    assert {"user": hashed} == rules.owner_by_dimension({"user": "Ann@example.com"})
    assert {"user": ""} == replace(rules, people=People.for_installation(b"p", DROP)).owner_by_dimension(
        {"user": "ann@example.com"}
    )
    assert {"user": "ann"} == rules.owner_by_dimension({"user": "ann"})
