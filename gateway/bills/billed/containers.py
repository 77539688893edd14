"""
Costs of containers. Billed rows about a cluster or a node are divided among the workloads that ran there on
that day. Usage without a billed row gets the price from the settings. Pure; no remainder is lost.
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
    ChargeKey,
    ConnectionRowRules,
    billing_columns_in_tags,
    billing_dimensions,
    mask_of_all_cost_types,
    node_id,
)
from gateway.bills.billed.spreading import divide_by_weights
from gateway.clusters.usage.usage import CPU, GPU, MEMORY, DayUsage, UsageAmounts, WorkloadOnNode
from spool import money
from spool.container_files.values import ClusterIdentity
from spool.ledger.billed import CONTAINERS, USAGE
from spool.ledger.dimensions import ROW_TAG, TAG
from spool.ledger.sums import Dimensions
from spool.settings import ContainerPrice

KUBERNETES = "Kubernetes"  # provider name for container usage that has a configured price but no bill
# Usage is in core-microseconds and byte-milliseconds, and prices are per hour and GiB. These factors convert
# both to one unit.
_MEMORY_UNITS, _OTHER_UNITS = 1000, 1 << 30
# divisor that converts usage times price, in the units above, to units of money
_HOUR = 3_600_000_000 * _OTHER_UNITS

Node = tuple[ClusterIdentity, str]  # cluster and node name; "" means all nodes of the cluster


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterDay:
    """
    The priced usage of a cluster on one day. `used` is the value of usage by node and workload, and `had` the
    value of each node's capacity. `nodes` maps the last part of the provider's node id to the node's name.
    """

    identity: ClusterIdentity
    used: Mapping[str, Mapping[str, int]]
    had: Mapping[str, int]
    nodes: Mapping[str, str]

    def usage_value_by_workload(self, node: str) -> Mapping[str, int]:
        """Return the value of usage by workload on a node. If `node` is "", return it for all nodes."""
        if node:
            return self.used.get(node, {})
        return {key: worth for places in self.used.values() for key, worth in places.items()}

    def capacity_value(self, node: str) -> int:
        """
        Return the value of a node's capacity, or of all nodes if `node` is empty. It is never less than the
        value of the usage.
        """
        if node:
            return max(sum(self.used.get(node, {}).values()), self.had.get(node, 0))
        known = sum(self.capacity_value(name) for name in self.known_nodes)
        return max(known, sum(self.usage_value_by_workload("").values()))

    @property
    def known_nodes(self) -> Sequence[str]:
        """Return the known nodes. Usage on an unknown node is stored under ""."""
        return sorted({*self.had, *self.used} - {""})

    @property
    def names_in_bills(self) -> set[str]:
        """Return all names by which a billed row may refer to the cluster or its nodes."""
        return {self.identity.name, *self.nodes}


@dataclass(slots=True)
class DividedRows:
    """
    Rows after their division among workloads. `places` are the dimensions that got a part of a row. `covered`
    are the nodes that rows are about.
    """

    amounts: Counter[ChargeKey] = field(default_factory=Counter)
    places: set[Dimensions] = field(default_factory=set)
    covered: set[Node] = field(default_factory=set)


def price_cluster_day(
    identity: ClusterIdentity, usage: DayUsage, prices: Sequence[ContainerPrice]
) -> ClusterDay | None:
    used: dict[str, dict[str, int]] = defaultdict(dict)
    for key, amounts in usage.used.items():
        node = WorkloadOnNode.from_key(key).node
        if worth := _usage_value(identity, node, amounts, prices):
            used[node][key] = worth
    had = {node: _usage_value(identity, node, amounts, prices) for node, amounts in usage.had.items()}
    if not used and not any(had.values()):
        return None
    return ClusterDay(identity=identity, used=used, had=had, nodes=usage.nodes)


def divide_among_workloads(
    amounts: Mapping[ChargeKey, int], clusters: Sequence[ClusterDay], rules: ConnectionRowRules
) -> DividedRows:
    """
    Divide amounts about a whole cluster or node among the workloads that ran there. Rows that name a
    namespace or a workload stay unchanged.
    """
    divided_rows = DividedRows()
    for row_key, amount in amounts.items():
        cluster, node = _find_and_cover_node(row_key[0], clusters, divided_rows.covered)
        if cluster is None or not cluster.capacity_value(node):
            divided_rows.amounts[row_key] += amount
        else:
            _divide_row_among_workloads(divided_rows, row_key, amount, (cluster, node), rules)
    return divided_rows


def price_unbilled_usage(
    clusters: Sequence[ClusterDay], billed_nodes: Collection[Node], rules: ConnectionRowRules
) -> Counter[ChargeKey]:
    """Return the cost of usage on nodes that no billed row is about, at the prices from the settings."""
    totals: Counter[ChargeKey] = Counter()
    masks = mask_of_all_cost_types(is_month_closed=rules.is_closed)
    for cluster in clusters:
        identity = cluster.identity
        if (identity, "") in billed_nodes:
            continue
        row_tags = {"origin": CONTAINERS, "account": identity.account}
        of_rows = json.dumps({ROW_TAG + name: value for name, value in row_tags.items() if value})
        row = billing_dimensions(provider=KUBERNETES, region=identity.region, tags=of_rows)
        for key, worth in _unbilled_usage_values(cluster, billed_nodes):
            if amount := worth // _HOUR:
                dimensions = _workload_dimensions(row, identity, key, rules)
                totals[dimensions, USAGE, masks] += amount
    return totals


def _unbilled_usage_values(cluster: ClusterDay, billed_nodes: Collection[Node]) -> Iterator[tuple[str, int]]:
    """
    Yield the value of usage on nodes without a bill, and the value of their unused capacity.

    Usage on an unknown node is taken from the unused capacity of these nodes, because it must have run on one
    of the nodes. If other nodes have a bill, any excess may be in that bill and is not counted.
    """
    nodes = [node for node in cluster.known_nodes if (cluster.identity, node) not in billed_nodes]
    for node in nodes:
        yield from cluster.usage_value_by_workload(node).items()
    idle = sum(
        cluster.capacity_value(node) - sum(cluster.usage_value_by_workload(node).values()) for node in nodes
    )
    nowhere = cluster.used.get("", {})
    whole = sum(nowhere.values())
    paid = min(whole, idle) if len(nodes) < len(cluster.known_nodes) else whole
    for key, worth in nowhere.items():
        yield key, worth * paid // whole
    yield _idle_capacity_key(""), max(0, idle - whole)


def _usage_value(
    identity: ClusterIdentity, node: str, amounts: UsageAmounts, prices: Sequence[ContainerPrice]
) -> int:
    price = next((price for price in prices if _is_price_for_node(price, identity.name, node)), None)
    if price is None:
        return 0
    cpu, memory, gpu = (
        money.text_to_units(f"{hourly_price:f}")
        for hourly_price in (price.cpu_hour, price.memory_hour, price.gpu_hour)
    )
    processors = amounts[CPU] * cpu + amounts[GPU] * gpu
    return processors * _OTHER_UNITS + amounts[MEMORY] * memory * _MEMORY_UNITS


def _is_price_for_node(price: ContainerPrice, cluster: str, node: str) -> bool:
    return fnmatchcase(cluster, price.cluster) and fnmatchcase(node, price.node)


def _find_and_cover_node(
    dimensions: Dimensions, clusters: Sequence[ClusterDay], billed_nodes: set[Node]
) -> tuple[ClusterDay | None, str]:
    """
    Return the cluster and node ("" for a whole cluster) that a billing row is for. Add all matching nodes to
    `billed_nodes`, because the bill has them. Return (None, "") if several match, or if the row is for a namespace
    or workload.
    """
    columns = billing_columns_in_tags(dimensions)
    if name := columns.get("cluster"):
        clusters = [cluster for cluster in clusters if cluster.identity.name == name]
    id = node_id(columns.get("resource", ""))
    matches = [(cluster, cluster.nodes[id]) for cluster in clusters if id and id in cluster.nodes]
    if not matches and name:
        matches = [(cluster, "") for cluster in clusters]
    for value, field_name in ((columns.get("account"), "account"), (dimensions.region, "region")):
        matches = [
            candidate for candidate in matches if getattr(candidate[0].identity, field_name) == value
        ] or matches
    billed_nodes |= {(cluster.identity, node) for cluster, node in matches}
    is_assigned = columns.get("namespace") or columns.get("workload")
    return (None, "") if is_assigned or len(matches) != 1 else matches[0]


def _divide_row_among_workloads(
    divided_rows: DividedRows,
    row_key: ChargeKey,
    amount: int,
    cluster_and_node: tuple[ClusterDay, str],
    rules: ConnectionRowRules,
) -> None:
    cluster, node = cluster_and_node
    dimensions, charge, mask = row_key
    parts = divide_by_weights(
        amount, cluster.usage_value_by_workload(node), quantity=cluster.capacity_value(node)
    )
    idle_amount = parts.unreported + parts.rest
    for key, part in [*parts.shares.items(), (_idle_capacity_key(node), idle_amount)]:
        if part:
            of_part = _workload_dimensions(dimensions, cluster.identity, key, rules)
            divided_rows.amounts[of_part, charge, mask] += part
            divided_rows.places.add(of_part)


def _idle_capacity_key(node: str) -> str:
    return WorkloadOnNode(node, "", IDLE, {}).key


def _workload_dimensions(
    row: Dimensions, cluster: ClusterIdentity, key: str, rules: ConnectionRowRules
) -> Dimensions:
    """Return the dimensions of the part of a row that one workload gets. Idle capacity has no owner."""
    where = WorkloadOnNode.from_key(key)
    row_tags = {"cluster": cluster.name, "namespace": where.namespace, "workload": where.workload}
    tags: dict[str, Any] = json.loads(row.tags or "{}")
    tags |= {ROW_TAG + name: value for name, value in row_tags.items() if value}
    tags |= {name: value for name, value in where.tags.items() if TAG + name in rules.tags}
    known: dict[str, Any] = dict.fromkeys(OWNERS, "") if where.workload == IDLE else {}
    known |= {name: value for name, value in rules.owner_by_dimension(where.tags).items() if value}
    return row._replace(tags=json.dumps(tags, sort_keys=True), **known)
