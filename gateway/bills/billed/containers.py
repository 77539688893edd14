"""
What containers used as money. Rows of bills that are about a cluster, or a node of it, are divided over what ran there
on that day; where no row is about it, usage has the price of the settings. Pure, and to the last digit.
"""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from typing import Any

from gateway.bills.billed.connection_rows import (
    IDLE,
    OWNERS,
    Place,
    RowRules,
    blank,
    columns_of,
    masks_of,
    node_id,
)
from gateway.bills.billed.spreading import spread
from gateway.clusters.usage.usage import CPU, GPU, MEMORY, Amounts, DayUsage, UsagePlace
from spool.container_files.values import ClusterIdentity
from spool.ledger import money
from spool.ledger.billed import CONTAINERS, USAGE
from spool.ledger.queries import ROW_TAG, TAG
from spool.ledger.sums import Dimensions
from spool.settings import ContainerPrice

KUBERNETES = "Kubernetes"  # the provider of usage that has a price and no bill
# Amounts are core-microseconds and byte-milliseconds, prices those of hours and GiB: both in one unit.
_MEMORY_UNITS, _OTHER_UNITS = 1000, 1 << 30
_HOUR = 3_600_000_000 * _OTHER_UNITS  # of them, in one unit of money

Node = tuple[ClusterIdentity, str]  # "" stands for all nodes of a cluster


@dataclass(
    frozen=True,
    slots=True,
    kw_only=True,
)
class ClusterDay:
    """
    A cluster on one day. `used` is what its usage is worth by node and place, `had` what its nodes are worth, and
    `nodes` are their names by the last part of the provider's.
    """

    identity: ClusterIdentity
    used: Mapping[str, Mapping[str, int]]
    had: Mapping[str, int]
    nodes: Mapping[str, str]

    def weights(self, node: str) -> Mapping[str, int]:
        """Return what usage on a node is worth, or on all of them."""
        if node:
            return self.used.get(node, {})
        return {key: worth for places in self.used.values() for key, worth in places.items()}

    def whole(self, node: str) -> int:
        """Return what a node is worth, or all of them: never less than what was used there."""
        if node:
            return max(sum(self.used.get(node, {}).values()), self.had.get(node, 0))
        known = sum(self.whole(each) for each in self.names)
        return max(known, sum(self.weights("").values()))

    @property
    def names(self) -> Sequence[str]:
        """Return the nodes that are known; usage whose node nobody told is under ""."""
        return sorted({*self.had, *self.used} - {""})

    @property
    def words(self) -> set[str]:
        """Return every name by which a row of a bill may be about the cluster or a node of it."""
        return {self.identity.name, *self.nodes}


@dataclass(slots=True)
class DividedRows:
    """`places` are those that have a part of a row, `covered` the nodes that rows are about."""

    amounts: Counter[Place] = field(default_factory=Counter)
    places: set[Dimensions] = field(default_factory=set)
    covered: set[Node] = field(default_factory=set)


def cluster_day(
    identity: ClusterIdentity, usage: DayUsage, prices: Sequence[ContainerPrice]
) -> ClusterDay | None:
    """Return what the usage of a day is worth; None without a price for it."""
    used: dict[str, dict[str, int]] = defaultdict(dict)
    for key, amounts in usage.used.items():
        node = UsagePlace.of(key).node
        if worth := _worth(
            identity,
            node,
            amounts,
            prices,
        ):
            used[node][key] = worth
    had = {
        node: _worth(
            identity,
            node,
            each,
            prices,
        )
        for node, each in usage.had.items()
    }
    if not used and not any(had.values()):
        return None
    return ClusterDay(
        identity=identity,
        used=used,
        had=had,
        nodes=usage.nodes,
    )


def divided(amounts: Mapping[Place, int], clusters: Sequence[ClusterDay], rules: RowRules) -> DividedRows:
    """
    Divide amounts that are about a cluster or a node as a whole over what ran there. What rows tell by namespace or
    workload themselves stays as it is.
    """
    found = DividedRows()
    for place, amount in amounts.items():
        cluster, node = _told(
            place[0],
            clusters,
            found.covered,
        )
        if cluster is None or not cluster.whole(node):
            found.amounts[place] += amount
        else:
            _divide(
                found,
                place,
                amount,
                (cluster, node),
                rules,
            )
    return found


def priced(clusters: Sequence[ClusterDay], covered: Collection[Node], rules: RowRules) -> Counter[Place]:
    """Return usage on nodes that no row of a bill is about, by the prices of the settings."""
    found: Counter[Place] = Counter()
    masks = masks_of(is_closed=rules.is_closed)
    for cluster in clusters:
        identity = cluster.identity
        if (identity, "") in covered:
            continue
        own = {"origin": CONTAINERS, "account": identity.account}
        of_rows = json.dumps({ROW_TAG + name: value for name, value in own.items() if value})
        row = blank(
            provider=KUBERNETES,
            region=identity.region,
            tags=of_rows,
        )
        for key, worth in _unbilled(cluster, covered):
            if amount := worth // _HOUR:
                dimensions = _part(
                    row,
                    identity,
                    key,
                    rules,
                )
                found[dimensions, USAGE, masks] += amount
    return found


def _unbilled(cluster: ClusterDay, covered: Collection[Node]) -> Iterator[tuple[str, int]]:
    """
    Yield what places of nodes without a bill are worth, and what nobody used of these nodes. Usage whose node is not
    known ran on one of the nodes: it is a part of what nobody is known to have used of them, and where others of the
    nodes have a bill it may be in that.
    """
    nodes = [node for node in cluster.names if (cluster.identity, node) not in covered]
    for node in nodes:
        yield from cluster.weights(node).items()
    idle = sum(cluster.whole(node) - sum(cluster.weights(node).values()) for node in nodes)
    nowhere = cluster.used.get("", {})
    whole = sum(nowhere.values())
    paid = min(whole, idle) if len(nodes) < len(cluster.names) else whole
    for key, worth in nowhere.items():
        yield key, worth * paid // whole
    yield _idle(""), max(0, idle - whole)


def _worth(
    identity: ClusterIdentity,
    node: str,
    amounts: Amounts,
    prices: Sequence[ContainerPrice],
) -> int:
    price = next(
        (
            each
            for each in prices
            if _fits(
                each,
                identity.name,
                node,
            )
        ),
        None,
    )
    if price is None:
        return 0
    cpu, memory, gpu = (
        money.units(f"{each:f}") for each in (price.cpu_hour, price.memory_hour, price.gpu_hour)
    )
    processors = amounts[CPU] * cpu + amounts[GPU] * gpu
    return processors * _OTHER_UNITS + amounts[MEMORY] * memory * _MEMORY_UNITS


def _fits(price: ContainerPrice, cluster: str, node: str) -> bool:
    return fnmatchcase(cluster, price.cluster) and fnmatchcase(node, price.node)


def _told(
    place: Dimensions, clusters: Sequence[ClusterDay], covered: set[Node]
) -> tuple[ClusterDay | None, str]:
    """
    Return the cluster and the node that a row is about as a whole, and note what it covers. One that names several
    of one name is about none of them, and covers all.
    """
    columns = columns_of(place)
    if name := columns.get("cluster"):
        clusters = [each for each in clusters if each.identity.name == name]
    id = node_id(columns.get("resource", ""))
    found = [(each, each.nodes[id]) for each in clusters if id and id in each.nodes]
    if not found and name:
        found = [(each, "") for each in clusters]
    for told, of in ((columns.get("account"), "account"), (place.region, "region")):
        found = [each for each in found if getattr(each[0].identity, of) == told] or found
    covered |= {(cluster.identity, node) for cluster, node in found}
    is_told = columns.get("namespace") or columns.get("workload")
    return (None, "") if is_told or len(found) != 1 else found[0]


def _divide(
    found: DividedRows,
    place: Place,
    amount: int,
    whose: tuple[ClusterDay, str],
    rules: RowRules,
) -> None:
    cluster, node = whose
    dimensions, charge, mask = place
    parts = spread(
        amount,
        cluster.weights(node),
        quantity=cluster.whole(node),
    )
    left = parts.unreported + parts.rest
    for key, part in [*parts.shares.items(), (_idle(node), left)]:
        if part:
            of_part = _part(
                dimensions,
                cluster.identity,
                key,
                rules,
            )
            found.amounts[of_part, charge, mask] += part
            found.places.add(of_part)


def _idle(node: str) -> str:
    return UsagePlace(
        node,
        "",
        IDLE,
        {},
    ).key


def _part(
    row: Dimensions,
    cluster: ClusterIdentity,
    key: str,
    rules: RowRules,
) -> Dimensions:
    """Return the dimensions of a row for what a place has of it; nobody owns what nobody used."""
    where = UsagePlace.of(key)
    own = {"cluster": cluster.name, "namespace": where.namespace, "workload": where.workload}
    tags: dict[str, Any] = json.loads(row.tags or "{}")
    tags |= {ROW_TAG + name: value for name, value in own.items() if value}
    tags |= {name: value for name, value in where.tags.items() if TAG + name in rules.tags}
    known: dict[str, Any] = dict.fromkeys(OWNERS, "") if where.workload == IDLE else {}
    known |= {name: value for name, value in rules.owners(where.tags).items() if value}
    return row._replace(tags=json.dumps(tags, sort_keys=True), **known)
