"""
Rows of billing connections as billed costs: sums by day and by the rows' columns, without any remainder lost. Pure.

A row is money without calls. It has a team or a user if one of its tags names them.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

import msgspec

from gateway.bills.billed.spreading import divide_in_sequence
from spool import money
from spool.ledger.billed import BILLING, EXACT, INVOICED, SHARED, UNALLOCATED, USAGE, BilledSum
from spool.ledger.dimensions import BILLED, BILLED_TYPES, ROW_TAG
from spool.ledger.sums import DAY_S, MAX_TAG, OTHER, Dimensions
from spool.people import People

OWN_ROWS = (
    # Resource prefix of the rows that Tollhouse publishes about its own calls. Imports skip these rows,
    # because costs already include the calls.
    "tollhouse:"
)
# maximum distinct sets of dimensions per day; the smallest sets are merged by provider, region and service
MAX_SETS = 5000
# number of sets per day at which the smallest sets are merged, even while rows are still being read
FOLD_AT = 8 * MAX_SETS
# if the smallest sets merge to at most 1/FEW_OF of their number without tags, they lose only their tags
FEW_OF = 10
MAX_DAYS = 400  # maximum days over which the cost of a row is divided
OWNERS = ("team", "user", "device", "api_key")
_RESOURCE_TAG = "resource/tag:"
MAX_NAME = 256  # maximum characters of a tag name; tags with longer names are ignored
_NO_VALUE = ("", "N/A")
_CHARGES = {
    "Usage": USAGE,
    "Tax": "tax",
    "Support": "support",
    "Purchase": "commitment",
    "CommittedUsePurchase": "commitment",
    "Discount": "discount",
}
_COLUMNS = {
    "service": "resource/service",
    "account": "resource/account",
    "resource": "resource/id",
    "usage_family": "resource/usage_family",
    "line_item": "lineitem/type",
    "cluster": "k8s/cluster",
    "namespace": "k8s/namespace",
    "workload": "k8s/deployment",
}
_COST, _DISCOUNTED, _AMORTIZED = "cost/cost", "cost/discounted_cost", "cost/amortized_cost"
# Columns of each cost type. If a row lacks a column, the next column replaces it.
_CHAINS: Mapping[int, Sequence[str]] = {
    BILLED_TYPES["billed_cost"]: (_COST,),
    BILLED_TYPES["discounted_cost"]: (_DISCOUNTED, _COST),
    BILLED_TYPES["amortized_cost"]: (_AMORTIZED, _DISCOUNTED, _COST),
    BILLED_TYPES["discounted_amortized_cost"]: (
        "cost/discounted_amortized_cost",
        _AMORTIZED,
        _DISCOUNTED,
        _COST,
    ),
}
IDLE = "(idle)"  # workload name of the unused part of a node
_IDLE = json.dumps({ROW_TAG + "workload": IDLE})[1:-1]
_LAST = BILLED_TYPES["discounted_amortized_cost"]
_rows = msgspec.json.Decoder(list[dict[str, Any]])

ChargeKey = tuple[Dimensions, str, int]  # place of an amount: dimensions, charge, and bit mask of cost types
AmountsByDay = dict[int, Counter[ChargeKey]]


@dataclass(frozen=True, slots=True, kw_only=True)
class ConnectionRowRules:
    """
    Rules for reading a connection's rows.

    `owner_tags` are the tags that name a team or a user. `tags` are the tags that container usage keeps; rows
    keep all of their tags. `people` turns user names into the form of records. Rows of a finished month count
    as final.

    `nodes` names the nodes and clusters with known usage. Rows about them are merged only with rows about the
    same node, even if their amount is 0.
    """

    connection: str
    provider: str
    owner_tags: Mapping[str, str]
    tags: Sequence[str]
    people: People
    is_closed: bool = False
    nodes: Collection[str] = frozenset()

    def owner_by_dimension(self, tags: Mapping[str, str]) -> dict[str, str]:
        """Return the team, user, device and key that the tags name. If a tag is missing, the value is ""."""
        owner_tags = self.owner_tags.items()
        return {
            name: self.people.text_for_record(tags.get(tag, "")) or ""
            for name, tag in owner_tags
            if name in OWNERS
        }


def add_json_rows(sums_by_day: AmountsByDay, text: bytes, rules: ConnectionRowRules) -> None:
    """
    Add the rows of one hour, given as JSON objects separated by commas. Rows that Tollhouse generated are
    skipped.
    """
    for row in _rows.decode(b"[" + text + b"]"):
        if str(row.get("resource/id", "")).startswith(OWN_ROWS):
            continue
        dimensions, charge = _row_dimensions(row, rules), _CHARGES.get(row.get("lineitem/type", ""), USAGE)
        days, seconds = _usage_days_and_seconds_per_day(row)
        is_of_node = bool(rules.nodes) and _has_known_node(billing_columns_in_tags(dimensions), rules.nodes)
        amounts = _amounts_by_cost_type_mask(row) or ({sum(_CHAINS): 0} if is_of_node else {})
        for mask, amount in amounts.items():
            row_key = (
                dimensions,
                charge,
                _with_invoiced_cost_type_if_closed(mask, is_month_closed=rules.is_closed),
            )
            for day, part in zip(days, divide_in_sequence(amount, seconds), strict=True):
                if part or is_of_node:
                    _add_amount_to_day(sums_by_day, day, row_key, part, rules.nodes)


def mask_of_all_cost_types(*, is_month_closed: bool) -> int:
    """Return the bit mask of an amount that counts in every billed cost type."""
    return _with_invoiced_cost_type_if_closed(sum(_CHAINS), is_month_closed=is_month_closed)


def _with_invoiced_cost_type_if_closed(cost_type_mask: int, *, is_month_closed: bool) -> int:
    return cost_type_mask | INVOICED if is_month_closed and cost_type_mask & _LAST else cost_type_mask


def build_day_sums(totals: Mapping[ChargeKey, int], divided: Collection[Dimensions] = ()) -> list[BilledSum]:
    """
    Return the sums of a day. If there are more than MAX_SETS sets of dimensions, those with the smallest
    amounts are merged by provider, region and service, or only by provider. `divided` are sets whose amount
    is a proportional part of a row.
    """
    sums = []
    for (dimensions, charge, mask), amount in _merge_small_dimension_sets(totals, MAX_SETS).items():
        owned = SHARED if dimensions in divided else EXACT
        basis = owned if _has_known_owner(dimensions) else UNALLOCATED
        if amount:
            sums.append(BilledSum(dimensions, charge, basis, mask, amount))
    return sorted(sums)


def _add_amount_to_day(
    sums_by_day: AmountsByDay, day: int, row_key: ChargeKey, amount: int, node_names: Collection[str]
) -> None:
    """
    Add an amount to a day. If the day has many sets of dimensions, merge those with the smallest amounts,
    because a month may have a million rows.
    """
    sums = sums_by_day.setdefault(day, Counter())
    is_new = row_key not in sums
    sums[row_key] += amount
    if is_new and len(sums) % FOLD_AT == 0:
        sums_by_day[day] = _merge_small_dimension_sets(sums, 2 * MAX_SETS, node_names)


def _merge_small_dimension_sets(
    sums: Mapping[ChargeKey, int], limit: int, node_names: Collection[str] = ()
) -> Counter[ChargeKey]:
    """
    Keep the sets of dimensions with the largest amounts and merge the others.

    The others lose only their tags if that is enough, because a tag may distinguish every row. Otherwise they
    are merged by their main columns. Rows about a node are merged by that node, because they are divided
    later and because they show that the node is billed.
    """
    sizes: Counter[Dimensions] = Counter()
    for (dimensions, _, _), amount in sums.items():
        sizes[dimensions] += abs(amount)
    largest = sorted(sizes, key=lambda group: (-sizes[group], group))
    joint = {dimensions: _without_resource_tags(dimensions) for dimensions in largest[limit:]}
    if len(set(joint.values())) * FEW_OF > len(joint):
        joint = {dimensions: _coarser_dimensions(dimensions, node_names) for dimensions in joint}
    if len(set(joint.values())) > limit:
        joint = {
            dimensions: _coarser_dimensions(dimensions, node_names, omits_service_and_region=True)
            for dimensions in joint
        }
    together: Counter[ChargeKey] = Counter()
    for (dimensions, charge, mask), amount in sums.items():
        shown = joint.get(dimensions, dimensions)
        together[shown, charge, mask] += amount
    return together


def unowned_and_accrued_amounts_by_reason(sums: Iterable[BilledSum]) -> tuple[dict[str, int], dict[str, int]]:
    """
    Return, by reason, the amounts without an owner, and the amounts that the amortized cost types add to
    them. The unused part of a node has the reason `idle`.
    """
    as_billed, accrued = Counter(no_owner=0), Counter(no_owner=0)
    for billed_sum in sums:
        if billed_sum.basis == UNALLOCATED:
            is_idle = _IDLE in billed_sum.dimensions.tags
            reason = "idle" if is_idle else "no_owner"
            billed = billed_sum.amount if billed_sum.arranged & BILLED_TYPES["billed_cost"] else 0
            as_billed[reason] += billed
            accrued[reason] += (billed_sum.amount if billed_sum.arranged & _LAST else 0) - billed
    return dict(as_billed), dict(accrued)


def _amounts_by_cost_type_mask(row: Mapping[str, Any]) -> dict[int, int]:
    amounts: dict[int, int] = {}
    by_amount: dict[int, int] = {}
    for mask, chain in _CHAINS.items():
        text = next((row[name] for name in chain if row.get(name)), "0")
        amount = money.text_to_units(text)
        by_amount[amount] = by_amount.get(amount, 0) | mask
    for amount, mask in by_amount.items():
        if amount:
            amounts[mask] = amount
    return amounts


def _usage_days_and_seconds_per_day(row: Mapping[str, Any]) -> tuple[Sequence[int], Sequence[int]]:
    start = _parse_seconds(row["time/usage_start"])
    end = _parse_seconds(row["time/usage_end"]) if row.get("time/usage_end") else start
    first = start // DAY_S * DAY_S
    if end <= first + DAY_S or end - start > MAX_DAYS * DAY_S:
        return [first], [1]
    days = range(first, end, DAY_S)
    return days, [min(end, day + DAY_S) - max(start, day) for day in days]


def _parse_seconds(text: str) -> int:
    moment = datetime.fromisoformat(text.strip())
    return int((moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp())


def _row_dimensions(row: Mapping[str, Any], rules: ConnectionRowRules) -> Dimensions:
    tags = {name: value[:MAX_TAG] for name, value in _resource_tags(row) if not name.startswith(ROW_TAG)}
    row_tags = {name: row[column] for name, column in _COLUMNS.items() if row.get(column)}
    row_tags |= {"origin": BILLING, "connection": rules.connection}
    text = json.dumps({**tags, **{ROW_TAG + name: value for name, value in row_tags.items()}}, sort_keys=True)
    of_row = dict(_resource_tags(row))
    return billing_dimensions(
        provider=rules.provider,
        region=row.get("resource/region", ""),
        tags=text,
        **rules.owner_by_dimension(of_row),
    )


def _without_resource_tags(dimensions: Dimensions) -> Dimensions:
    row_tags = {
        name: value for name, value in json.loads(dimensions.tags).items() if name.startswith(ROW_TAG)
    }
    return dimensions._replace(tags=json.dumps(row_tags, sort_keys=True))


def _coarser_dimensions(
    dimensions: Dimensions, node_names: Collection[str], *, omits_service_and_region: bool = False
) -> Dimensions:
    """
    Return the coarser dimensions into which rows are merged if there are too many.
    `omits_service_and_region`: return the coarsest ones, without service and region.
    """
    columns = billing_columns_in_tags(dimensions)
    is_of_node = _has_known_node(columns, node_names)
    names = ["origin", "connection", *([] if omits_service_and_region else ["service"])]
    names += ["cluster", "account", "resource"] if is_of_node else []
    tags = {ROW_TAG + name: columns[name] for name in names if name in columns}
    if is_of_node and ("namespace" in columns or "workload" in columns):
        # this tag marks the row as already assigned, so that it is not divided again
        tags[ROW_TAG + "namespace"] = OTHER
    region = "" if omits_service_and_region and not is_of_node else dimensions.region
    text = json.dumps(tags, sort_keys=True)
    joint = billing_dimensions(provider=dimensions.provider, region=region, tags=text)
    team, user = (OTHER if name else "" for name in (dimensions.team, dimensions.user))
    return joint._replace(team=team, user=user)


def billing_columns_in_tags(dimensions: Dimensions) -> Mapping[str, str]:
    """Return the columns of a billing row, which its dimensions store as tags with a prefix."""
    tags = json.loads(dimensions.tags or "{}")
    return {name.removeprefix(ROW_TAG): value for name, value in tags.items() if name.startswith(ROW_TAG)}


def _has_known_node(columns: Mapping[str, str], node_names: Collection[str]) -> bool:
    return columns.get("cluster") in node_names or node_id(columns.get("resource", "")) in node_names


def node_id(resource: str) -> str:
    """Return the last part of a resource id, which may be the node's name or the provider's id of it."""
    return resource.rpartition("/")[2]


def _has_known_owner(dimensions: Dimensions) -> bool:
    owners = [getattr(dimensions, name) for name in OWNERS]
    return any(owners) and OTHER not in owners


def _resource_tags(row: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    for name, value in row.items():
        if name.startswith(_RESOURCE_TAG) and value not in _NO_VALUE:
            tag = name.removeprefix(_RESOURCE_TAG)
            if 0 < len(tag) <= MAX_NAME and tag.isprintable():
                yield tag, value


def billing_dimensions(**values: Any) -> Dimensions:
    known: dict[str, Any] = dict.fromkeys(Dimensions._fields, "")
    return Dimensions(**{**known, "size": 0, "kind": BILLED, **values})
