"""Container usage as costs: bill rows are divided over the pods that ran, and prices apply without a bill."""

from __future__ import annotations

import json
import random
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gateway.bills.billed import connection_rows
from gateway.bills.billed.connection_rows import (
    IDLE,
    AmountsByDay,
    ConnectionRowRules,
    add_json_rows,
    billing_dimensions,
)
from gateway.bills.billed.containers import (
    ClusterDay,
    divide_among_workloads,
    price_cluster_day,
    price_unbilled_usage,
)
from gateway.bills.billed.details import billed_cost_details
from gateway.bills.billed.row_book import ConnectionCostUpdater
from gateway.clusters.usage.usage import DayUsage, WorkloadOnNode
from spool import money
from spool.container_files.container_rows import UsageDay
from spool.container_files.values import ClusterIdentity
from spool.ledger.dimensions import BILLED_TYPES
from spool.ledger.slices import SlicedLedger
from spool.ledger.sums import DAY_S
from spool.people import People
from spool.registry.roles import EXCEPT, LedgerSlice, RoleFilter
from spool.settings import ContainerPrice
from tests.gateway.bills.billed.test_connection_rows import OCTOBER, Rows, row
from tests.rounds import examples

PROD = ClusterIdentity("a-1", "eu-west-1", "prod")
DAY = int(OCTOBER.timestamp()) + 4 * DAY_S  # the day of the bill's row
CORE_HOUR, GIB_HOUR = 3_600_000_000, 3_600_000 * 2**30
PRICE = ContainerPrice(cluster="prod", cpu_hour=Decimal(1), memory_hour=Decimal("0.5"))
RULES = ConnectionRowRules(
    connection="c-1",
    provider="AWS",
    owner_tags={"team": "owner"},
    tags=(),
    people=People.for_installation(b"p"),
)


def place(workload: str, node: str = "n-1", **tags: str) -> str:
    return WorkloadOnNode(node, "shop", workload, tags).key


# Node n-1 costs 4 + 2 dollars: web uses 1 + 1, and api uses 2. Node n-2 costs 2 dollars, and web uses all of it.
USAGE = DayUsage(
    used={
        place("web", owner="search"): [CORE_HOUR, 2 * GIB_HOUR, 0],
        place("api"): [2 * CORE_HOUR, 0, 0],
        place("web", "n-2", owner="search"): [2 * CORE_HOUR, 0, 0],
    },
    had={"n-1": [4 * CORE_HOUR, 4 * GIB_HOUR, 0], "n-2": [2 * CORE_HOUR, 0, 0]},
    nodes={"n-1": "n-1", "i-1": "n-1", "n-2": "n-2", "i-2": "n-2"},
)


class Usage:
    """Cluster usage as agents reported it."""

    def __init__(self) -> None:
        self.prices: Sequence[ContainerPrice] = (PRICE,)
        self.known: dict[int, dict[ClusterIdentity, DayUsage]] = {DAY: {PROD: USAGE}}
        self.changed_at = 0.0

    async def read_new_files(self) -> int:
        return 0

    async def days_with_usage(self) -> Sequence[UsageDay]:
        at = self.changed_at
        return [
            UsageDay(account=each.account, region=each.region, cluster=each.name, day=day, changed_at=at)
            for day, found in self.known.items()
            for each in found
        ]

    async def usage_by_cluster(self, day: int) -> Mapping[ClusterIdentity, DayUsage]:
        return self.known.get(day, {})


async def world() -> tuple[Rows, Usage]:
    rows, usage = await Rows().open(), Usage()
    rows.book = ConnectionCostUpdater(replace(rows.book._sources, usage=usage), rows.clock)  # type: ignore[arg-type]
    return rows, usage


async def paid(rows: Rows, *by: str, cost_type: str = "billed_cost", **more: Any) -> dict[Any, str]:
    costs = await rows.paid(cost_type, *by, **more)
    return {group: f"{cost.normalize():f}" for group, cost in costs.items()}


async def test_usage_without_a_bill_has_its_price() -> None:
    """
    Usage without a bill costs its price, and idle capacity is separate. Every cost type has the same amount,
    but counted costs do not include it.
    """
    rows, _ = await world()
    assert 1 == await rows.book.recalculate_changed_months()
    assert 0 == await rows.book.recalculate_changed_months()
    expected = {("shop", "web"): "4", ("shop", "api"): "2", (None, IDLE): "2"}
    for cost_type in BILLED_TYPES:
        assert expected == await paid(rows, "namespace", "workload", cost_type=cost_type), cost_type
    told = {
        "origin": "containers", "provider": "Kubernetes", "account": "a-1", "region": "eu-west-1", "cluster": "prod",
        "charge": "usage",
    }  # fmt: skip
    for name, value in told.items():
        assert {(value,): "8"} == await paid(rows, name)
    assert {("search",): "4", (None,): "4"} == await paid(rows, "team")
    assert {("exact",): "4", ("unallocated",): "4"} == await paid(rows, "basis")
    assert {} == await paid(rows, cost_type="real_cost")
    beside = await billed_cost_details(rows.ledger, rows.asked("billed_cost"), rows.clock.now())
    assert {"idle": "2", "no_owner": "2"} == beside["by_reason"]
    assert ["container_metrics"] == [source["source"] for source in beside["sources"]]  # type: ignore[attr-defined]


async def test_a_row_of_a_cluster_is_divided_over_what_ran_there() -> None:
    """
    Every charge of a row is divided exactly over the pods of the cluster. The row replaces the price, so the
    sum equals the bill.
    """
    rows, _ = await world()
    of_cluster = {"k8s/cluster": "prod"}
    rows.drops.put(
        row(cost="16", resource__service="EKS", **of_cluster),
        row(cost="-0.8", lineitem__type="Discount", **of_cluster),
        row(cost="3", resource__service="S3"),
    )
    await rows.book.recalculate_changed_months()
    expected = {
        ("usage", "web"): "8", ("usage", "api"): "4", ("usage", IDLE): "4", ("usage", None): "3",
        ("discount", "web"): "-0.4", ("discount", "api"): "-0.2", ("discount", IDLE): "-0.2",
    }  # fmt: skip
    assert expected == await paid(rows, "charge", "workload")
    assert {("billing",): "18.2"} == await paid(rows, "origin")
    assert {("EKS",): "16", ("S3",): "3", (None,): "-0.8"} == await paid(rows, "service")
    assert {("search",): "7.6", (None,): "10.6"} == await paid(rows, "team")
    assert {("shared",): "7.6", ("unallocated",): "10.6"} == await paid(rows, "basis")
    beside = await billed_cost_details(rows.ledger, rows.asked("billed_cost"), rows.clock.now())
    assert {"idle": "3.8", "no_owner": "6.8"} == beside["by_reason"]
    part = RoleFilter(dimension="team", values=("ads",), mode=EXCEPT)
    [seen] = await SlicedLedger(rows.ledger, LedgerSlice(parts=((part,),))).costs(
        rows.asked("billed_cost", "workload")
    )
    assert seen.group == ("web",)
    assert seen.cost == "7.6"


async def test_a_node_with_a_bill_has_no_price() -> None:
    """
    If a node has a bill, only the other nodes of its cluster keep their prices. If the bill is withdrawn, the
    price is back.
    """
    rows, _ = await world()
    rows.drops.put(row(cost="3", **{"resource/id": "arn:aws:ec2:eu-west-1:1:instance/i-1"}))
    await rows.book.recalculate_changed_months()
    expected = {
        ("billing", "web"): "1",
        ("billing", "api"): "1",
        ("billing", IDLE): "1",
        ("containers", "web"): "2",
    }
    assert expected == await paid(rows, "origin", "workload")
    rows.drops.put(row(cost="3", at="2026-10-09T00:00:00Z"))
    await rows.book.recalculate_changed_months()
    assert {("billing",): "3", ("containers",): "8"} == await paid(rows, "origin")


async def test_bill_row_of_a_namespace_replaces_the_price() -> None:
    """A bill row of a namespace replaces the price, because the bill states the cost of its cluster."""
    rows, _ = await world()
    rows.drops.put(row(cost="5", **{"k8s/cluster": "prod", "k8s/namespace": "ads"}))
    await rows.book.recalculate_changed_months()
    assert {("billing", "ads", None): "5"} == await paid(rows, "origin", "namespace", "workload")


async def test_bill_rows_are_divided_again_when_usage_arrives_late() -> None:
    """
    Bill rows are divided again when usage arrives later: a completed day at once, the current day once an
    hour. If all prices are removed, all container costs disappear.
    """
    rows, usage = await world()
    rows.drops.put(row(cost="16", **{"k8s/cluster": "prod"}))
    usage.known = {}
    await rows.book.recalculate_changed_months()
    assert {(None,): "16"} == await paid(rows, "workload")
    usage.known = {DAY: {PROD: DayUsage(used={place("web"): [CORE_HOUR, 0, 0]})}}
    await rows.book.recalculate_changed_months()
    assert {("web",): "16"} == await paid(rows, "workload")
    usage.known, usage.changed_at = {DAY: {PROD: USAGE}}, rows.clock.now()
    await rows.book.recalculate_changed_months()
    assert {("web",): "8", ("api",): "4", (IDLE,): "4"} == await paid(rows, "workload")
    rows.drops.put()
    await rows.book.recalculate_changed_months()
    assert {("containers",): "8"} == await paid(rows, "origin")
    usage.prices = ()
    await ConnectionCostUpdater(rows.book._sources, rows.clock).recalculate_changed_months()
    assert {} == await paid(rows)


def test_prices_fit_by_cluster_and_node() -> None:
    """
    Of several container prices, the first that matches cluster and node applies. Usage without a matching price has
    no cost.
    """
    prices = [
        replace(PRICE, node="n-2", cpu_hour=Decimal(10)),
        replace(PRICE, cluster="pr*", memory_hour=Decimal(0)),
    ]
    day_of_cluster = price_cluster_day(PROD, USAGE, prices)
    assert day_of_cluster is not None
    totals = price_unbilled_usage([day_of_cluster], (), replace(RULES, connection="", provider="Kubernetes"))
    assert Decimal(4 + 20) == Decimal(money.units_to_text(totals.total()))
    assert price_cluster_day(replace(PROD, name="test"), USAGE, prices) is None


def test_two_clusters_of_one_name_are_distinguished_by_account() -> None:
    """
    If the bill does not name the account, the row belongs to neither of two clusters with one name, and
    neither has a price.
    """
    other_cluster = replace(PROD, account="a-2")
    known = [price_cluster_day(cluster, USAGE, [PRICE]) for cluster in (PROD, other_cluster)]
    clusters = [known_cluster for known_cluster in known if known_cluster is not None]
    for account, parts in (("a-2", 3), ("", 1)):
        tags = f'{{"row:account": "{account}", "row:cluster": "prod"}}'
        division = divide_among_workloads({(billing_dimensions(tags=tags), "usage", 1): 100}, clusters, RULES)
        assert division.amounts.total() == 100
        assert len(division.amounts) == parts
        priced_rows = price_unbilled_usage(clusters, division.covered, RULES)
        assert bool(account) == bool(priced_rows)


async def test_a_row_that_reaches_into_the_next_month_is_divided_there_too() -> None:
    """
    The row is also divided over usage in the next month that arrives later. That usage has no price of its own.
    """
    rows, usage = await world()
    usage.known = {}
    id = {"resource/id": "i/i-1", "time/usage_end": "2026-11-02T00:00:00Z"}
    rows.drops.put(row(cost="6", at="2026-10-31T00:00:00Z", **id))
    await rows.book.recalculate_changed_months()
    assert {(None,): "6"} == await paid(rows, "workload")
    usage.known = {DAY + 27 * DAY_S: {PROD: USAGE}}  # the day of this bill is 1 November
    await rows.book.recalculate_changed_months()
    expected = {
        ("billing", None): "3", ("billing", "web"): "1", ("billing", "api"): "1", ("billing", IDLE): "1",
        ("containers", "web"): "2",
    }  # fmt: skip
    assert expected == await paid(rows, "origin", "workload")
    assert 0 == await rows.book.recalculate_changed_months()


async def test_a_row_of_a_node_may_name_its_cluster() -> None:
    """
    A row that names a node and its cluster belongs to the node, and other nodes of the cluster keep their price.
    """
    rows, _ = await world()
    rows.drops.put(row(cost="3", **{"resource/id": "i/i-1", "k8s/cluster": "prod"}))
    await rows.book.recalculate_changed_months()
    assert {("billing",): "3", ("containers",): "2"} == await paid(rows, "origin")
    rows.drops.put(row(cost="3", **{"resource/id": "i/other", "k8s/cluster": "prod"}))
    await rows.book.recalculate_changed_months()
    assert {("billing",): "3"} == await paid(rows, "origin")


async def test_a_row_of_nothing_is_a_bill() -> None:
    """A bill row of 0 counts as a bill, so a free node has no price."""
    rows, _ = await world()
    rows.drops.put(row(cost="0", **{"resource/id": "i/i-1"}))
    await rows.book.recalculate_changed_months()
    assert {("containers", "web"): "2"} == await paid(rows, "origin", "workload")


def test_nodes_of_one_name_are_distinguished_by_account_and_region() -> None:
    """
    If the bill names neither account nor region, the row belongs to none of the nodes with this name, and
    none of them has a price.
    """
    other_cluster = replace(PROD, account="a-2", name="test")
    third = replace(PROD, region="us-east-1", name="third")
    prices = [replace(PRICE, cluster="*")]
    known = [price_cluster_day(cluster, USAGE, prices) for cluster in (PROD, other_cluster, third)]
    clusters = [each for each in known if each is not None]
    node = '"row:resource": "n-2"'
    for account, region, name, uncovered in (
        ("a-2", "", "test", 2), ("a-1", "us-east-1", "third", 2), ("a-1", "", "", 1), ("", "", "", 0),
    ):  # fmt: skip
        tags = f'{{"row:account": "{account}", {node}}}'
        division = divide_among_workloads(
            {(billing_dimensions(tags=tags, region=region), "usage", 1): 100}, clusters, RULES
        )
        assert 100 == division.amounts.total()
        assert uncovered == len(clusters) - len(division.covered)
        assert all(("row:cluster" in key[0].tags) == bool(name) for key in division.amounts)
        assert all(name in key[0].tags for key in division.amounts)


def test_many_rows_of_a_node_are_added_up_as_what_they_are_about(monkeypatch: pytest.MonkeyPatch) -> None:
    """Bill rows of a namespace stay undivided, and they replace the price of their cluster."""
    monkeypatch.setattr(connection_rows, "MAX_SETS", 10)
    monkeypatch.setattr(connection_rows, "FOLD_AT", 80)
    names = frozenset(["prod", "n-1"])
    rules = replace(RULES, nodes=names)
    sums_by_day: AmountsByDay = {}
    for number in range(connection_rows.FOLD_AT):
        about = {"k8s/cluster": "prod", "k8s/namespace": f"ns-{number}"}
        about = about if number % 2 else {"resource/id": "i/n-1", "resource/usage_family": f"f-{number}"}
        add_json_rows(sums_by_day, json.dumps(row(cost="1", **about)).encode(), rules)
    [amounts] = sums_by_day.values()
    assert len(amounts) <= 2 * connection_rows.MAX_SETS + 2
    assert connection_rows.FOLD_AT * money.UNIT == sum(amounts.values())
    cluster = price_cluster_day(PROD, USAGE, [PRICE])
    assert cluster is not None
    whole = divide_among_workloads(amounts, [cluster], rules)
    assert {(PROD, ""), (PROD, "n-1")} == whole.covered
    parts = Counter[bool]()
    for (dimensions, _, _), amount in whole.amounts.items():
        parts['"row:workload"' in dimensions.tags] += amount
    half = connection_rows.FOLD_AT // 2 * money.UNIT
    assert {True: half, False: half} == parts


@given(st.integers(0, 2**32))
@settings(max_examples=examples(40), deadline=None)
def test_parts_come_to_the_rows(seed: int) -> None:
    """
    The parts add up to the rows by charge, arrangement and column. If nodes had free capacity, additional
    pods do not change a pod's share.
    """
    chance = random.Random(seed)
    clusters = [_cluster(chance, name) for name in "xy"]
    amounts: Counter[Any] = Counter()
    for _ in range(8):
        tags = [f'"row:service": "{chance.choice("st")}"', f'"row:cluster": "{chance.choice("xyz")}"']
        tags[1:] = chance.choice(
            [tags[1:], [f'"row:resource": "id/{chance.choice("xy")}{chance.randrange(4)}"']]
        )
        amount = chance.randrange(-(10 ** chance.randrange(1, 45)), 10 ** chance.randrange(1, 45))
        place = (
            billing_dimensions(tags="{" + ", ".join(tags) + "}"),
            chance.choice(["usage", "tax"]),
            chance.choice([1, 14]),
        )
        amounts[place] += amount
    division = divide_among_workloads(amounts, clusters, RULES)
    for by in (1, 2):
        before, after = Counter[Any](), Counter[Any]()
        for sums, total in ((amounts, before), (division.amounts, after)):
            for key, amount in sums.items():
                total[key[by], '"s"' in key[0].tags] += amount
        assert +before == +after and -before == -after
    more = replace(
        clusters[0], used={**clusters[0].used, "x0": {**clusters[0].used["x0"], place_of("late"): 5}}
    )
    again = divide_among_workloads(amounts, [more, clusters[1]], RULES)
    for key, amount in division.amounts.items():
        if not any(word in key[0].tags for word in (IDLE, "late")):
            assert amount == again.amounts[key]


def place_of(workload: str) -> str:
    return WorkloadOnNode("x0", "shop", workload, {}).key


def _cluster(chance: random.Random, name: str) -> ClusterDay:
    nodes = [f"{name}{n}" for n in range(3)]
    used = {
        node: {WorkloadOnNode(node, "ns", f"w{n}", {}).key: chance.randrange(1, 10**9) for n in range(3)}
        for node in nodes
    }
    had = dict.fromkeys(nodes, 10**10)
    return ClusterDay(
        identity=ClusterIdentity("a", "r", name), used=used, had=had, nodes={node: node for node in nodes}
    )
