"""
A simulated month of clusters: nodes that a provider bills, nodes that have a price, and nodes with both.

The expected cost of each team and workload is computed from the plan with fractions, independently of the
product. Only ten minutes of each day have samples, in which counters rise and levels stay constant.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from decimal import Decimal
from fractions import Fraction
from random import Random

from gateway.bills.billed.row_book import ConnectionCostUpdater, RowSources
from gateway.bills.months import CalendarMonth
from gateway.clusters.usage.series import NAME, MetricSeries
from gateway.clusters.usage.usage import DAY_MS, DayUsage, MeterRules, OpenUsage, UsageMeter
from spool import money
from spool.clock import Clock
from spool.container_files.container_rows import UsageDay
from spool.container_files.values import ClusterIdentity
from spool.ledger.ledger import Ledger
from spool.people import People
from spool.registry.connections import BillingConnection
from spool.settings import ContainerPrice
from tests.gateway.bills.billed.test_connection_rows import Drops, row

MARCH = CalendarMonth.of("2026-03")
DAY_S = 86_400
MEASURED_S = 600
CPU_HOUR, GIB_HOUR = Decimal("0.0316"), Decimal("0.0042")
PRICE = ContainerPrice(cpu_hour=CPU_HOUR, memory_hour=GIB_HOUR)
PRICED, CLOUD, IDLE = "Kubernetes", "AWS", "(idle)"
ACCRUED = ("amortized_cost", "discounted_amortized_cost", "invoiced_amortized_cost")
Place = tuple[str, str, str, str]  # keys of a cost: provider, charge, team and workload
Sums = dict[Place, Fraction]


@dataclass
class Pod:
    """A pod in the plan. If `is_placed` is False, the pod's metrics do not name its node."""

    name: str
    team: str
    node: str
    cpu_s: int
    bytes: int
    is_placed: bool = True

    @property
    def workload(self) -> str:
        return self.name.rpartition("-")[0]

    @property
    def worth(self) -> Fraction:
        return _worth(self.cpu_s, self.bytes)


@dataclass
class Node:
    name: str
    id: str
    cores: int
    bytes: int

    @property
    def worth(self) -> Fraction:
        return _worth(self.cores * MEASURED_S, self.bytes)


def _worth(cpu_s: int, size: int) -> Fraction:
    of_memory = Fraction(size, 2**30) * MEASURED_S * Fraction(GIB_HOUR)
    return (cpu_s * Fraction(CPU_HOUR) + of_memory) / 3600


@dataclass
class Cluster:
    identity: ClusterIdentity
    nodes: list[Node]
    pods: list[Pod]

    def on(self, node: Node) -> list[Pod]:
        return [pod for pod in self.pods if pod.node == node.name and pod.is_placed]

    def whole(self, node: Node) -> Fraction:
        return max(node.worth, sum((pod.worth for pod in self.on(node)), Fraction(0)))


@dataclass(frozen=True)
class Line:
    """
    A bill row about a node, about a whole cluster, or about neither. `own` is the workload that the row itself
    names.
    """

    day: int
    amount: Decimal
    cluster: Cluster | None = None
    node: Node | None = None
    amortized: Decimal | None = None
    kind: str = "Usage"
    own: str = ""
    days: int = 1
    hour: int = 0
    connection: str = "c-1"
    resource: str = ""

    @property
    def charge(self) -> str:
        return {"Usage": "usage", "CommittedUsePurchase": "commitment"}.get(self.kind, self.kind.lower())

    def amount_of(self, cost_type: str) -> Decimal:
        is_apart = cost_type in ACCRUED and self.amortized is not None
        return self.amortized if is_apart and self.amortized is not None else self.amount

    def as_row(self) -> dict[str, str]:
        start = datetime.fromtimestamp(self.day + self.hour * 3600, UTC)
        columns = {
            "resource/service": "EC2",
            "lineitem/type": self.kind,
            "resource/id": self.resource or "bucket",
        }
        if self.days > 1:
            end = datetime.fromtimestamp(self.day + self.days * DAY_S, UTC)
            columns["time/usage_end"] = end.isoformat()
        if self.amortized is not None:
            columns["cost/amortized_cost"] = f"{self.amortized:f}"
        if self.cluster is not None:
            columns["resource/account"] = self.cluster.identity.account
            columns["resource/region"] = self.cluster.identity.region
            if self.node is None:
                columns["k8s/cluster"] = self.cluster.identity.name
        if self.node is not None:
            columns["resource/id"] = f"arn:aws:ec2:::instance/{self.node.id}"
        if self.own:
            columns["k8s/deployment"] = self.own
        return row(at=start.isoformat(), cost=f"{self.amount:f}", **columns)


@dataclass
class Plan:
    chance: Random
    clusters: list[Cluster]
    days: Sequence[int]
    lines: list[Line] = field(default_factory=list)

    def money(self) -> Decimal:
        return Decimal(self.chance.randrange(1, 10**9)).scaleb(-7)

    def bill_nodes(self, nodes: Sequence[int] = (0, 1, 2), days: slice = slice(None), **more: object) -> None:
        """Add two bill rows for each of the nodes on each of the days."""
        for cluster in self.clusters:
            for node in (cluster.nodes[place] for place in nodes):
                for day in self.days[days]:
                    for hour in (1, 14):
                        fields = {"amount": self.money(), "hour": hour, **more}
                        self.lines.append(Line(day=day, cluster=cluster, node=node, **fields))  # type: ignore[arg-type]

    def bill_clusters(self, **more: object) -> None:
        for cluster in self.clusters:
            for day in self.days:
                fields = {"amount": self.money(), **more}
                self.lines.append(Line(day=day, cluster=cluster, **fields))  # type: ignore[arg-type]


def plan_of(seed: str, days: int) -> Plan:
    """Plan two clusters with three nodes and eight pods each."""
    chance = Random(seed)
    clusters = []
    for number, name in enumerate(("prod", "test")):
        nodes = [
            Node(
                f"{name}-{place}",
                f"i-{name}{place}",
                chance.choice([2, 4, 8]),
                chance.choice([4, 16]) * 2**30,
            )
            for place in range(3)
        ]
        pods = [
            Pod(
                name=f"w{place}-0",
                team=f"team-{place:02}" if place % 3 else "",
                node=nodes[place % 3].name,
                cpu_s=chance.randrange(1, 400),
                bytes=chance.randrange(2**20, 2**30),
            )
            for place in range(8)
        ]
        clusters.append(Cluster(ClusterIdentity(f"a-{number}", "eu-west-1", name), nodes, pods))
    return Plan(chance, clusters, [MARCH.start + place * DAY_S for place in range(days)])


# Variations of a month. Each function changes the plan of the month.


def _discounted(plan: Plan) -> None:
    plan.bill_nodes()
    for kind, sign in (("Discount", -1), ("Tax", 1)):
        for cluster in plan.clusters:
            plan.lines += [
                Line(day=day, cluster=cluster, node=node, amount=sign * plan.money() / 10, kind=kind)
                for day in plan.days
                for node in cluster.nodes
            ]


def _committed(plan: Plan) -> None:
    plan.bill_nodes(amount=Decimal(0), amortized=Decimal("0.7300001"))
    plan.lines.append(
        Line(day=plan.days[0], amount=Decimal(900), amortized=Decimal(0), kind="CommittedUsePurchase")
    )


def _of_several_days(plan: Plan) -> None:
    for cluster in plan.clusters:
        for node in cluster.nodes[:2]:
            plan.lines.append(Line(day=plan.days[1], cluster=cluster, node=node, amount=plan.money(), days=3))


def _nowhere(plan: Plan) -> None:
    for cluster in plan.clusters:
        cluster.pods[0].is_placed = cluster.pods[4].is_placed = False


def _idle(plan: Plan) -> None:
    for cluster in plan.clusters:
        cluster.pods = [pod for pod in cluster.pods if pod.node != cluster.nodes[2].name]


def _crowded(plan: Plan) -> None:
    for cluster in plan.clusters:
        for pod in cluster.pods:
            pod.cpu_s *= 30


def _same_names(plan: Plan) -> None:
    one, second_cluster = plan.clusters
    for first_node, theirs in zip(one.nodes, second_cluster.nodes, strict=True):
        for pod in second_cluster.pods:
            pod.node = first_node.name if pod.node == theirs.name else pod.node
        theirs.name, theirs.id = first_node.name, first_node.name
        first_node.id = first_node.name


def _told_by_workload(plan: Plan) -> None:
    for cluster in plan.clusters[:1]:
        plan.lines += [
            Line(day=day, cluster=cluster, amount=plan.money(), own=f"w{place}")
            for day in plan.days
            for place in range(3)
        ]


def _of_others(plan: Plan) -> None:
    for place in range(60):
        day = plan.days[place % len(plan.days)]
        plan.lines.append(Line(day=day, amount=plan.money() * 50, resource=f"bucket/{place}"))


CAUSES: Mapping[str, Callable[[Plan], None]] = {
    "nodes": Plan.bill_nodes,
    "clusters": Plan.bill_clusters,
    "some nodes": lambda plan: plan.bill_nodes(nodes=(0, 2)),
    "some days": lambda plan: plan.bill_nodes(days=slice(0, 2)),
    "two bills": lambda plan: plan.bill_nodes(nodes=(1,), connection="c-2"),
    "given back": lambda plan: plan.bill_nodes(nodes=(1,), days=slice(1, 2), amount=Decimal("-0.31")),
    "free": lambda plan: plan.bill_nodes(nodes=(1,), amount=Decimal(0)),
    "discounts": _discounted,
    "commitment": _committed,
    "several days": _of_several_days,
    "nowhere": _nowhere,
    "idle": _idle,
    "crowded": _crowded,
    "same names": _same_names,
    "workloads": _told_by_workload,
    "others": _of_others,
}


def planned(causes: Sequence[str], *, seed: int = 1, days: int = 4) -> Plan:
    plan = plan_of(f"{seed} {causes}", days)
    for name in causes:
        CAUSES[name](plan)
    return plan


# Functions that make the reports of the agents.


class PlannedUsage:
    """The usage that agents would report for the plan's clusters."""

    def __init__(self, plan: Plan) -> None:
        self.prices: Sequence[ContainerPrice] = (PRICE,)
        self._known: dict[int, dict[ClusterIdentity, DayUsage]] = defaultdict(dict)
        rules = MeterRules(tags=("owner",), most=10_000, now_ms=MARCH.end * 1000)
        for cluster in plan.clusters:
            meter = UsageMeter(OpenUsage(), rules)
            meter.add_series(_metrics(cluster, plan.days))
            meter.add_nodes_and_forget_ended()
            for day, usage in meter.usage.days.items():
                self._known[day][cluster.identity] = usage

    async def read_new_files(self) -> int:
        return 0

    async def days_with_usage(self) -> Sequence[UsageDay]:
        return [
            UsageDay(account=of.account, region=of.region, cluster=of.name, day=day, changed_at=0.0)
            for day, found in self._known.items()
            for of in found
        ]

    async def usage_by_cluster(self, day: int) -> Mapping[ClusterIdentity, DayUsage]:
        return self._known.get(day, {})


def _metrics(cluster: Cluster, days: Sequence[int]) -> list[MetricSeries]:
    all_series = []
    first = days[0] * 1000
    for node in cluster.nodes:
        labels = {"node": node.name, "provider_id": f"aws:///eu-west-1a/{node.id}"}
        all_series.append(MetricSeries({NAME: "kube_node_info", **labels}, [(first, 1.0)]))
        for resource, amount in (("cpu", node.cores), ("memory", node.bytes)):
            of = {NAME: "kube_node_status_capacity", "node": node.name, "resource": resource}
            all_series.append(MetricSeries(of, _levels(amount, days)))
    for pod in cluster.pods:
        of = {"namespace": "shop", "pod": pod.name}
        if pod.team:
            all_series.append(
                MetricSeries({NAME: "kube_pod_labels", **of, "label_owner": pod.team}, [(first, 1.0)])
            )
        of |= {"container": "app"} | ({"node": pod.node} if pod.is_placed else {})
        rises = []
        for day_index, day in enumerate(days):
            at = day * 1000
            rises += [
                (at, float(day_index * pod.cpu_s)),
                (at + MEASURED_S * 1000, float((day_index + 1) * pod.cpu_s)),
            ]
        all_series.append(MetricSeries({NAME: "container_cpu_usage_seconds_total", **of}, rises))
        all_series.append(
            MetricSeries({NAME: "container_memory_working_set_bytes", **of}, _levels(pod.bytes, days))
        )
    return all_series


def _levels(amount: int, days: Sequence[int]) -> list[tuple[int, float]]:
    """Return a level for the measured time, then 0 until the next day."""
    points = []
    for day in days:
        points += [(day * 1000, float(amount)), (day * 1000 + MEASURED_S * 1000, 0.0)]
    assert MEASURED_S * 1000 < DAY_MS
    return points


# Functions that make the ledger with bills and usage.


@dataclass
class PlannedClusters:
    plan: Plan
    book: ConnectionCostUpdater
    drops: Drops

    def put(self, lines: Sequence[Line] | None = None) -> None:
        """Send the bill rows as complete months for each connection."""
        put_lines = self.plan.lines if lines is None else lines
        for connection in ("c-1", "c-2"):
            if rows := [line.as_row() for line in put_lines if line.connection == connection]:
                self.drops.put(*rows, connection=connection, month=MARCH.name)


async def with_clusters(ledger: Ledger, clock: Clock, plan: Plan) -> PlannedClusters:
    """Put the bill rows and the container usage of a plan into a ledger."""
    connections = [
        BillingConnection(
            id=id, name=id, cloud_provider=CLOUD, expected_ingest_rate=None, is_enabled=True, s3_bucket=None,
            upstream_id="", created=0.0, last_updated=0.0,
        )
        for id in ("c-1", "c-2")
    ]  # fmt: skip
    drops = Drops()
    sources = RowSources(
        ledger=ledger,
        drops=drops,  # type: ignore[arg-type]
        connections=lambda: connections,
        owner_tags=lambda: {"team": "owner"},
        people=lambda: People.for_installation(b"p"),
        usage=PlannedUsage(plan),  # type: ignore[arg-type]
    )
    planned_clusters = PlannedClusters(plan, ConnectionCostUpdater(sources, clock), drops)
    planned_clusters.put()
    await planned_clusters.book.recalculate_changed_months()
    return planned_clusters


def billed(plan: Plan, cost_type: str) -> int:
    """Sum the bill rows, in units of the ledger."""
    return sum(money.text_to_units(f"{line.amount_of(cost_type):f}") for line in plan.lines)


# Functions that compute the expected costs per place from the plan.


def owed(plan: Plan, cost_type: str) -> Sums:
    owed_by_place: dict[Place, Fraction] = defaultdict(Fraction)
    for day in plan.days:
        # clusters and nodes with a bill; the node "" means the whole cluster
        covered: set[tuple[int, str]] = set()
        for line in plan.lines:
            if line.day <= day < line.day + line.days * DAY_S:
                amount = Fraction(line.amount_of(cost_type)) / line.days
                _bill(owed_by_place, line, amount)
                if line.cluster is not None:
                    covered.add((id(line.cluster), line.node.name if line.node else ""))
        for cluster in plan.clusters:
            if (id(cluster), "") not in covered:
                _price(owed_by_place, cluster, {name for of, name in covered if of == id(cluster)})
    return {row_place: amount for row_place, amount in owed_by_place.items() if amount}


def _bill(found: Sums, line: Line, amount: Fraction) -> None:
    """Divide a bill row over the pods that ran on its node or cluster. The part that no pod used is idle."""
    cluster, node = line.cluster, line.node
    if cluster is None or line.own:
        found[CLOUD, line.charge, "", line.own] += amount
        return
    pods = cluster.on(node) if node else cluster.pods
    used = sum((pod.worth for pod in pods), Fraction(0))
    whole = cluster.whole(node) if node else max(used, sum(map(cluster.whole, cluster.nodes)))
    for pod in pods:
        found[CLOUD, line.charge, pod.team, pod.workload] += amount * pod.worth / whole
    found[CLOUD, line.charge, "", IDLE] += amount * (whole - used) / whole


def _price(found: Sums, cluster: Cluster, covered: set[str]) -> None:
    """
    Price the nodes that have no bill. The cost of a pod on an unknown node is taken from the idle cost, until that
    is used up.
    """
    nodes = [node for node in cluster.nodes if node.name not in covered]
    idle = Fraction(0)
    for node in nodes:
        for pod in cluster.on(node):
            found[PRICED, "usage", pod.team, pod.workload] += pod.worth
            idle -= pod.worth
        idle += cluster.whole(node)
    lost = [pod for pod in cluster.pods if not pod.is_placed]
    whole = sum((pod.worth for pod in lost), Fraction(0))
    paid = min(whole, idle) if covered else whole
    for pod in lost:
        found[PRICED, "usage", pod.team, pod.workload] += pod.worth * paid / whole
    found[PRICED, "usage", "", IDLE] += max(Fraction(0), idle - whole)


def by(sums: Sums, *places: int) -> Counter[tuple[str, ...]]:
    sums_by_key: Counter[tuple[str, ...]] = Counter()
    for row_place, amount in sums.items():
        sums_by_key[tuple(row_place[index] for index in places)] += amount  # type: ignore[assignment]
    return sums_by_key
