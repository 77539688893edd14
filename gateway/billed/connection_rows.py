"""
Rows of billing connections as billed money: a month's rows by day and by their columns, to the last digit. Pure.

A row is money of its own, of no call. It has a team or a user where one of its tags says so.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

import msgspec

from gateway.billed.spreading import in_turn
from spool.ledger import money
from spool.ledger.billed import BILLING, EXACT, INVOICED, UNALLOCATED, USAGE, BilledSum
from spool.ledger.queries import BILLED, BILLED_TYPES, ROW_TAG, TAG
from spool.ledger.sums import DAY_S, OTHER, Dimensions

OWN_ROWS = (
    "tollhouse:"  # before the resources of rows that a Tollhouse publishes of its calls: these are in costs
)
MAX_SETS = 5000  # of one day; of further ones only service and provider are kept
FOLD_AT = 8 * MAX_SETS  # sums of one day: then the smallest are added up while rows are read
MAX_DAYS = 400  # that a row is divided over
OWNERS = ("team", "user", "device", "api_key")
_RESOURCE_TAG = "resource/tag:"
_NO_VALUE = ("", "N/A")
_CHARGES = {
    "Usage": USAGE, "Tax": "tax", "Support": "support", "Purchase": "commitment",
    "CommittedUsePurchase": "commitment", "Discount": "discount",
}  # fmt: skip
_COLUMNS = {
    "service": "resource/service", "account": "resource/account", "resource": "resource/id",
    "usage_family": "resource/usage_family", "line_item": "lineitem/type", "cluster": "k8s/cluster",
    "namespace": "k8s/namespace", "workload": "k8s/deployment",
}  # fmt: skip
_COST, _DISCOUNTED, _AMORTIZED = "cost/cost", "cost/discounted_cost", "cost/amortized_cost"
# Where a column is missing, the next one stands for it.
_CHAINS: Mapping[int, Sequence[str]] = {
    BILLED_TYPES["billed_cost"]: (_COST,),
    BILLED_TYPES["discounted_cost"]: (_DISCOUNTED, _COST),
    BILLED_TYPES["amortized_cost"]: (_AMORTIZED, _DISCOUNTED, _COST),
    BILLED_TYPES["discounted_amortized_cost"]: (
        "cost/discounted_amortized_cost", _AMORTIZED, _DISCOUNTED, _COST,
    ),
}  # fmt: skip
_LAST = BILLED_TYPES["discounted_amortized_cost"]
_rows = msgspec.json.Decoder(list[dict[str, Any]])

Place = tuple[Dimensions, str, int]  # dimensions, charge and arrangement
Sums = dict[int, Counter[Place]]  # by day


@dataclass(frozen=True, slots=True, kw_only=True)
class RowRules:
    """
    How rows of a connection are read. `owner_tags` are the tags that name a team or a user, `tags` those that costs
    are grouped by. In a month that is over rows are as good as closed.
    """

    connection: str
    provider: str
    owner_tags: Mapping[str, str]
    tags: Sequence[str]
    is_closed: bool = False


def add_rows(found: Sums, text: bytes, rules: RowRules) -> None:
    """Add the rows of one hour of a drop, JSON with commas between them."""
    for row in _rows.decode(b"[" + text + b"]"):
        if str(row.get("resource/id", "")).startswith(OWN_ROWS):
            continue
        dimensions, charge = _dimensions(row, rules), _CHARGES.get(row.get("lineitem/type", ""), USAGE)
        days, seconds = _days(row)
        for mask, amount in _amounts(row).items():
            kept = mask | INVOICED if rules.is_closed and mask & _LAST else mask
            place = dimensions, charge, kept
            for day, part in zip(days, in_turn(amount, seconds), strict=True):
                if part:
                    _add(found, day, place, part)


def sums_of_day(found: Mapping[Place, int]) -> list[BilledSum]:
    """
    Return the sums of a day. Beyond MAX_SETS the smallest are added up by provider, region and service; where these
    are as many, by provider.
    """
    return sorted(
        BilledSum(place, charge, EXACT if _has_owner(place) else UNALLOCATED, mask, amount)
        for (place, charge, mask), amount in _together(found, MAX_SETS).items()
        if amount
    )


def _add(found: Sums, day: int, place: Place, part: int) -> None:
    """Add to a day, whose smallest sets are added up when there are very many: a month may have a million rows."""
    sums = found.setdefault(day, Counter())
    is_new = place not in sums
    sums[place] += part
    if is_new and len(sums) % FOLD_AT == 0:
        found[day] = _together(sums, 2 * MAX_SETS)


def _together(sums: Mapping[Place, int], most: int) -> Counter[Place]:
    """Return the sums of the largest sets as they are, and those of all others added up."""
    sizes: Counter[Dimensions] = Counter()
    for (dimensions, _, _), amount in sums.items():
        sizes[dimensions] += abs(amount)
    largest = sorted(sizes, key=lambda each: (-sizes[each], each))
    joint = {dimensions: _joint(dimensions) for dimensions in largest[most:]}
    if len(set(joint.values())) > most:
        joint = {dimensions: _joint(dimensions, is_last=True) for dimensions in joint}
    together: Counter[Place] = Counter()
    for (dimensions, charge, mask), amount in sums.items():
        shown = joint.get(dimensions, dimensions)
        together[shown, charge, mask] += amount
    return together


def reasons_of(sums: Iterable[BilledSum]) -> tuple[dict[str, int], dict[str, int]]:
    """Return what of rows nobody owns, and what comes to that where fees are on what they cover."""
    as_billed = accrued = 0
    for each in sums:
        if each.basis == UNALLOCATED:
            as_billed += each.amount if each.arranged & BILLED_TYPES["billed_cost"] else 0
            accrued += each.amount if each.arranged & _LAST else 0
    return {"no_owner": as_billed}, {"no_owner": accrued - as_billed}


def _amounts(row: Mapping[str, Any]) -> dict[int, int]:
    """Return amounts by arrangements: those of one amount are together."""
    found: dict[int, int] = {}
    by_amount: dict[int, int] = {}
    for mask, chain in _CHAINS.items():
        text = next((row[name] for name in chain if row.get(name)), "0")
        amount = money.units(text)
        by_amount[amount] = by_amount.get(amount, 0) | mask
    for amount, mask in by_amount.items():
        if amount:
            found[mask] = amount
    return found


def _days(row: Mapping[str, Any]) -> tuple[Sequence[int], Sequence[int]]:
    """Return the days (UTC) that a row is about, with its seconds in each."""
    start = _seconds(row["time/usage_start"])
    end = _seconds(row["time/usage_end"]) if row.get("time/usage_end") else start
    first = start // DAY_S * DAY_S
    if end <= first + DAY_S or end - start > MAX_DAYS * DAY_S:
        return [first], [1]
    days = range(first, end, DAY_S)
    return days, [min(end, day + DAY_S) - max(start, day) for day in days]


def _seconds(text: str) -> int:
    moment = datetime.fromisoformat(text.strip())
    return int((moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp())


def _dimensions(row: Mapping[str, Any], rules: RowRules) -> Dimensions:
    tags = {name: value for name, value in _tags(row) if TAG + name in rules.tags}
    own = {name: row[column] for name, column in _COLUMNS.items() if row.get(column)}
    own |= {"origin": BILLING, "connection": rules.connection}
    text = json.dumps({**tags, **{ROW_TAG + name: value for name, value in own.items()}}, sort_keys=True)
    of_row = dict(_tags(row))
    owners = {name: of_row.get(tag, "") for name, tag in rules.owner_tags.items() if name in OWNERS}
    return _blank(provider=rules.provider, region=row.get("resource/region", ""), tags=text, **owners)


def _joint(dimensions: Dimensions, *, is_last: bool = False) -> Dimensions:
    """Return the set to which small ones are added; the last of them has no region and no service."""
    tags = json.loads(dimensions.tags)
    names = ["origin", "connection", *([] if is_last else ["service"])]
    kept = {ROW_TAG + name: tags[ROW_TAG + name] for name in names if ROW_TAG + name in tags}
    region = "" if is_last else dimensions.region
    text = json.dumps(kept, sort_keys=True)
    joint = _blank(provider=dimensions.provider, region=region, tags=text)
    team, user = (OTHER if name else "" for name in (dimensions.team, dimensions.user))
    return joint._replace(team=team, user=user)


def _has_owner(dimensions: Dimensions) -> bool:
    owners = [getattr(dimensions, name) for name in OWNERS]
    return any(owners) and OTHER not in owners


def _tags(row: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    for name, value in row.items():
        if name.startswith(_RESOURCE_TAG) and value not in _NO_VALUE:
            yield name.removeprefix(_RESOURCE_TAG), value


def _blank(**values: Any) -> Dimensions:
    known: dict[str, Any] = dict.fromkeys(Dimensions._fields, "")
    return Dimensions(**{**known, "size": 0, "kind": BILLED, **values})
