"""
Rows of an hourly report of the operator API, plans of assistants, and bills that were divided over calls, as
FOCUS rows. Pure.

A row of a report with lines of its estimates is a charge with these lines, and another one of what they do not tell.

The fee of a seat is a purchase, which is billed and has no effective cost; the calls that it covers are not billed,
and have the fee as their effective cost, each by what it is worth. So both columns add up to what was paid. A fee
that no call has is effective in a row of its own.

Of bills there is a row for a day and a set of dimensions, by what an amount is for. BilledCost is the bill with
discounts on the usage that they are for, so that the rows of an invoice add up to it; EffectiveCost has fees on what
they cover. What a bill has of nobody's calls is in rows without a team.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from decimal import Decimal, localcontext
from typing import Any, NamedTuple

from exporters.focus.charges import (
    COUNTED,
    DIMENSIONS,
    EXACT,
    TAGS,
    VERSIONS,
    Charge,
    by_currency,
    is_nothing,
    month_after,
    row_of,
    time_text,
    unit_of,
)
from spool.ledger import money
from spool.ledger.repricing import SumLine
from spool.meters import METERS, millionths, quantity_of
from spool.printable import csv_lines

_UNITS = {"usd": "USD at list prices", "credits": "Credits", "calls": "Requests"}

BILLED, EFFECTIVE, INVOICED = "discounted_cost", "discounted_amortized_cost", "invoiced_amortized_cost"
OWN = ("charge", "basis", "corrects")
NOT_OF_BILLS = ("cost_source", "source", "status")  # dimensions of calls that no bill tells
BY = tuple(name for name in DIMENSIONS if name not in NOT_OF_BILLS)
_MORE = ("InvoiceId", "x_Basis", "x_Charge", "x_State")
_LEFT_OUT = ("x_CostSource", "x_Records")
_ON_USAGE = ("usage", "discount")  # are one row: the bill may have discounts on its usage
_CATEGORIES = {
    "tax": "Tax",
    "credit": "Credit",
    "refund": "Credit",
    "correction": "Adjustment",
    "rounding": "Adjustment",
    "difference": "Adjustment",
    "restated": "Adjustment",
}
_CORRECTIONS = ("correction", "restated")  # of what was invoiced before
_PRICED = ("Usage", "Purchase")
_FREQUENCIES = {"Usage": "Usage-Based", "Purchase": "Recurring"}
_NO_USAGE = (
    "ConsumedQuantity",
    "ConsumedUnit",
    "PricingQuantity",
    "PricingUnit",
    "PricingCategory",
    "SkuId",
    "SkuMeter",
)
_ONE = {"ConsumedQuantity": "", "ConsumedUnit": "", "PricingQuantity": "1", "PricingUnit": "Charges"}
_RESTATED, _COMMITMENT, _OTHER = "restated", "commitment", "other"
_OF_CALLS = ("usage", _COMMITMENT)
_NOTHING: dict[str, Any] = {
    **dict.fromkeys(DIMENSIONS),
    **dict.fromkeys(COUNTED, 0),
    "cost": "0",
    "estimated": "0",
    "converted": "0",
}


def of_report(rows: Iterable[Mapping[str, object]], tags: Sequence[str] = ()) -> list[Charge]:
    """Rows of an hourly report of the operator API, by DIMENSIONS and by `tags`, which are tags of the charges."""
    charges = []
    for row in rows:
        estimated = str(row["estimated"])
        foreign = row.get("charges")
        charge = Charge(
            start=datetime.fromisoformat(str(row["period"])),
            cost=_less(str(row["cost"]), str(row["converted"])) if foreign else str(row["cost"]),
            list_cost=estimated if estimated != "0" else None,
            provider=_text(row, "provider"),
            model=_text(row, "model"),
            team=_text(row, "team"),
            tags={name: value for name in (*TAGS, *tags) if (value := _text(row, name))},
            cost_source=_text(row, "cost_source"),
            region=_text(row, "region"),
            **_counts(row),
        )
        charged = row.get("price_lines")
        if isinstance(charged, Mapping):
            lined = replace(charge, **_counts(charged), **_of_lines(charged))
            charges.append(lined)
            charge = _without(charge, lined)
            if is_nothing(charge):
                continue
        charges += by_currency(charge, foreign if isinstance(foreign, Mapping) else {})
    return charges


def _of_lines(charged: Mapping[str, Any]) -> dict[str, Any]:
    """Return the cost of the calls of a row whose lines are known, and the lines."""
    cost = str(charged["cost"])
    lines = []
    for line in charged["lines"]:
        quantity = millionths(line["quantity"])
        lines.append(SumLine(line["meter"], quantity, money.units(line["amount"])))
    return {"cost": cost, "list_cost": cost, "lines": tuple(lines)}


def _without(charge: Charge, part: Charge) -> Charge:
    """Return what a part leaves of a charge."""
    left = {name: getattr(charge, name) - getattr(part, name) for name in COUNTED}
    listed = _less(charge.list_cost or "0", part.cost)
    cost = _less(charge.cost, part.cost)
    return replace(charge, cost=cost, list_cost=listed if Decimal(listed) else None, **left)


def _less(one: str, other: str) -> str:
    with localcontext(EXACT):
        return format(Decimal(one) - Decimal(other), "f")


def _text(row: Mapping[str, object], name: str) -> str | None:
    value = row.get(name)
    return value if isinstance(value, str) and value else None


def _counts(row: Mapping[str, object]) -> dict[str, Any]:
    return {name: int(str(row[name])) for name in COUNTED}


@dataclass(slots=True)
class FeeShares:
    """Gives the calls of each user their part of the fees of a month, in the order in which they come."""

    fees: Mapping[str, int]  # by user in small letters, in units
    weights: Mapping[str, int]  # what all calls of a user are worth
    _known: Counter[str] = field(default_factory=Counter)

    @classmethod
    def of(cls, seats: Iterable[Mapping[str, Any]], values: Iterable[Mapping[str, Any]]) -> FeeShares:
        """`seats` are the rows of a month of plans, `values` those of a report of covered calls by user."""
        fees, weights = Counter[str](), Counter[str]()
        for seat in seats:
            fees[str(seat["user"]).casefold()] += money.units(str(seat["fees"]))
        for row in values:
            weights[str(row["user"] or "").casefold()] += max(0, money.units(str(row["cost"])))
        return cls(fees=fees, weights=weights)

    def take(self, user: str, value: int) -> int:
        """Return the part of calls of so much value; of all calls of a user the parts are the fees."""
        whole, before = self.weights.get(user, 0), self._known[user]
        if not whole or value <= 0:
            return 0
        fee = self.fees.get(user, 0)
        known = min(whole, before + value)  # some hours may have less than nothing
        self._known[user] = known
        return fee * known // whole - fee * before // whole

    def is_used(self, user: str) -> bool:
        """True if calls of a user have the fees."""
        return bool(self.weights.get(user))


def of_covered(
    rows: Iterable[Mapping[str, Any]], shares: FeeShares, *, account: str, tags: tuple[str, ...] = ()
) -> Iterator[dict[str, str]]:
    """Yield a row for each of an hourly report of covered calls: not billed, at its part of the fees."""
    for row in rows:
        value = str(row["cost"])
        user = str(row.get("user") or "").casefold()
        share = money.text(shares.take(user, money.units(value)))
        [charge] = of_report([{**row, "charges": {}}], tags)
        worth = value if charge.list_cost is None else charge.list_cost
        shown = row_of(replace(charge, cost=value, list_cost=worth), account=account)
        costs = {"BilledCost": "0", "EffectiveCost": share, "ContractedCost": worth, "ListCost": worth}
        yield {**shown, **costs, "ChargeCategory": "Usage", "ChargeFrequency": "Usage-Based"}


def of_seats(
    month: datetime, seats: Iterable[Mapping[str, Any]], shares: FeeShares, *, account: str
) -> Iterator[dict[str, str]]:
    """Yield the rows of seats: what was purchased, what is beyond, and fees that no call has."""
    for seat in seats:
        base = _base(month, seat, account)
        fee, overage = str(seat["fees"]), str(seat["overage"])
        if money.units(fee):
            purchase = {
                **_costs(fee, effective="0"),
                "ChargeCategory": "Purchase",
                "ChargeDescription": f"Seat of {seat['plan']}",
                "ChargeFrequency": "Recurring",
                "PricingQuantity": "1",
                "PricingUnit": "Seats",
            }
            yield {**base, **purchase}
        if money.units(fee) and not shares.is_used(str(seat["user"]).casefold()):
            unused = {
                **_costs("0", effective=fee),
                "ChargeCategory": "Usage",
                "ChargeDescription": f"Seat of {seat['plan']} that was not used",
                "ChargeFrequency": "Recurring",
            }
            yield {**base, **unused}
        if money.units(overage):
            unit = _UNITS[str(seat["unit"])]
            beyond = {
                **_costs(overage, effective=overage),
                "ChargeCategory": "Usage",
                "ChargeDescription": f"Usage beyond what {seat['plan']} includes",
                "ChargeFrequency": "Usage-Based",
                "ConsumedQuantity": str(seat["beyond"]),
                "ConsumedUnit": unit,
                "PricingQuantity": str(seat["beyond"]),
                "PricingUnit": unit,
            }
            yield {**base, **beyond}


def _costs(cost: str, *, effective: str) -> dict[str, str]:
    return {"BilledCost": cost, "ContractedCost": cost, "ListCost": cost, "EffectiveCost": effective}


def _base(month: datetime, seat: Mapping[str, Any], account: str) -> dict[str, str]:
    """Return the columns that all rows of a seat have alike."""
    tags = {"plan": str(seat["plan"]), "user": str(seat["user"])}
    charge = Charge(
        start=month, cost="0", list_cost=None, provider=None, model=None, team=seat["team"], tags=tags
    )
    names = ("HostProviderName", "InvoiceIssuerName", "ProviderName", "PublisherName", "ServiceProviderName")
    return {
        **row_of(charge, account=account),
        **dict.fromkeys(names, str(seat["plan"])),
        "ChargeClass": "",
        "ChargePeriodEnd": time_text(month_after(month)),
        "ConsumedQuantity": "",
        "ConsumedUnit": "",
        "PricingQuantity": "",
        "PricingUnit": "",
        "ServiceName": str(seat["plan"]),
        "SkuId": f"plan/{seat['plan']}",
        "SkuMeter": "Seats",
    }


def columns(version: str) -> Sequence[str]:
    """Return the columns of a version; own ones stand last, as the specification wants."""
    found = (*(name for name in VERSIONS[version] if name not in _LEFT_OUT), *_MORE)
    return sorted(found, key=lambda name: name.startswith("x_"))


def header(version: str) -> bytes:
    return csv_lines([columns(version)]).encode()


def lines(rows: Iterable[Mapping[str, str]], *, version: str) -> bytes:
    """A line for each row, with the columns of a version."""
    names = columns(version)
    return csv_lines([row[name] for name in names] for row in rows).encode()


class _Place(NamedTuple):
    """A row: its dimensions, what it is for, and the day that it restates."""

    group: tuple[str, ...]
    charge: str
    corrects: str


@dataclass(slots=True)
class _Amounts:
    billed: int = 0
    effective: int = 0
    bases: set[str] = field(default_factory=set)


@dataclass(frozen=True, slots=True, kw_only=True)
class ExportedDay:
    """
    A day as reports have it, each by provider and further dimensions: what is billed, what is effective, and what was
    counted; `metered` by the hour with price lines. `invoice_of` gives the number of a provider's invoice, `state_of`
    the state of its bill; "" if it is not exported.
    """

    start: datetime
    by: Sequence[str]
    billed: Iterable[Mapping[str, Any]]
    effective: Iterable[Mapping[str, Any]]
    counted: Iterable[Mapping[str, Any]]
    invoice_of: Callable[[str], str]
    state_of: Callable[[str], str]
    metered: Iterable[Mapping[str, Any]] = ()


def rows_of(day: ExportedDay, *, account: str) -> Iterator[dict[str, str]]:
    """Yield the rows of a day."""
    sums: dict[_Place, _Amounts] = defaultdict(_Amounts)
    for amounts, cost in _costs_of_bill(day, day.billed, sums):
        amounts.billed += cost
    for amounts, cost in _costs_of_bill(day, day.effective, sums):
        amounts.effective += cost
    counted = {_group(day, row): row for row in day.counted}
    beside = _beside(day)
    for place, amounts in sorted(sums.items(), key=lambda item: item[0]):
        named = dict(zip(day.by, place.group, strict=True))
        state = _RESTATED if place.charge == _RESTATED else day.state_of(named["provider"])
        if state and (amounts.billed or amounts.effective):
            calls = counted.get(place.group) if place.charge in _OF_CALLS else None
            charge = _charge(day, named, calls)
            row = _row(place, amounts, charge, day, state, account)
            used = beside.get(place.group, {})
            yield {**row, **_metered(place, used)}


def _costs_of_bill(
    day: ExportedDay, rows: Iterable[Mapping[str, Any]], sums: Mapping[_Place, _Amounts]
) -> Iterator[tuple[_Amounts, int]]:
    """Yield what each row costs, with the amounts that it is a part of; they get its basis."""
    for row in rows:
        amounts = sums[_place(day, row)]
        amounts.bases.add(str(row["basis"]))
        yield amounts, money.units(str(row["cost"]))


def _place(day: ExportedDay, row: Mapping[str, Any]) -> _Place:
    charge = str(row["charge"])
    shown = "usage" if charge in _ON_USAGE else charge
    return _Place(_group(day, row), shown, str(row["corrects"] or ""))


def _group(day: ExportedDay, row: Mapping[str, Any]) -> tuple[str, ...]:
    return tuple(str(row[name] or "") for name in day.by)


def _beside(day: ExportedDay) -> Mapping[tuple[str, ...], Mapping[str, int]]:
    """Return what was used beside the tokens, in millionths, by group and meter."""
    found: dict[tuple[str, ...], Counter[str]] = defaultdict(Counter)
    for row in day.metered:
        lines = (row["price_lines"] or {}).get("lines", ())
        for line in lines:
            meter = line["meter"]
            if meter in METERS and not METERS[meter].is_part:
                found[_group(day, row)][meter] += millionths(line["quantity"])
    return found


def _metered(place: _Place, used: Mapping[str, int]) -> Mapping[str, str]:
    """Return the quantity of what is billed beside the tokens, where its calls used one meter alone."""
    if place.charge != _OTHER or len(used) != 1:
        return {}
    [(meter, units)] = used.items()
    quantity, unit = str(quantity_of(units)), unit_of(meter)
    of_row = dict(zip(_ONE, (quantity, unit) * 2, strict=True))
    return {**of_row, "SkuMeter": meter}


def _charge(day: ExportedDay, named: Mapping[str, str], counted: Mapping[str, Any] | None) -> Charge:
    """Return the charge of calls that were counted, or one of none."""
    tags = [name for name in day.by if name not in DIMENSIONS]
    told = {**_NOTHING, **(counted or {}), **named}
    [charge] = of_report([{**told, "charges": {}, "period": day.start.isoformat()}], tags)
    return charge


def _row(
    place: _Place, amounts: _Amounts, charge: Charge, day: ExportedDay, state: str, account: str
) -> dict[str, str]:
    billed, effective = money.text(amounts.billed), money.text(amounts.effective)
    category = _category(place, amounts)
    shown = row_of(replace(charge, cost=billed), account=account)
    of_usage = effective if place.charge == _COMMITMENT and category == "Usage" else billed
    month = day.start.replace(day=1)
    values = {
        "BilledCost": billed,
        "EffectiveCost": effective,
        "ContractedCost": of_usage,
        "ListCost": of_usage if charge.list_cost is None else charge.list_cost,
        "BillingPeriodStart": time_text(month),
        "BillingPeriodEnd": time_text(month_after(month)),
        "ChargePeriodEnd": time_text(day.start + timedelta(days=1)),
        "ChargeCategory": category,
        "ChargeClass": "Correction" if place.charge in _CORRECTIONS else "",
        "ChargeDescription": _description(place, charge),
        "ChargeFrequency": _FREQUENCIES.get(category, "One-Time"),
        "InvoiceId": "" if state == _RESTATED else day.invoice_of(charge.provider or ""),
        "x_Basis": ",".join(sorted(amounts.bases)),
        "x_Charge": place.charge,
        "x_Corrects": place.corrects,
        "x_State": state,
    }
    if category in _PRICED and not charge.calls:  # nobody counted its quantity: it is one charge
        values |= _ONE
    elif category not in _PRICED:
        values |= dict.fromkeys(_NO_USAGE, "")
    return {**shown, **values}


def _category(place: _Place, amounts: _Amounts) -> str:
    if place.charge == _COMMITMENT:
        return "Purchase" if amounts.billed else "Usage"
    return _CATEGORIES.get(place.charge, "Usage")


def _description(place: _Place, charge: Charge) -> str:
    of_model = f" of {charge.model}" if charge.model else ""
    return f"Billed AI {place.charge}{of_model}"
