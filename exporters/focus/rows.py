"""
FOCUS rows of a report by hour or day, of assistants' plans, and of bills that were spread over calls.

A report row with price lines becomes a charge with them, and a charge for the rest.

The fee of a seat is a purchase: it is billed and has no effective cost. The calls that the seat covers are not
billed, and each has a part of the fee as its effective cost, in proportion to its value. So the sum of each column
is the amount that was paid. If no call uses a fee, it is the effective cost of a row of its own.

The capacity of a contract is a purchase as well, and its effective cost is in a row of each team that used it, and
in one of the unused part.

Bills become one row per day, set of dimensions and kind of charge. BilledCost includes discounts in the usage to
which they apply, so the rows of an invoice add up to the invoice. EffectiveCost includes fees in the calls that
they cover. Billed amounts that belong to no call are rows without a team.
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
    HOUR,
    TAGS,
    VERSIONS,
    Charge,
    charge_row,
    focus_unit,
    is_empty,
    month_after,
    split_by_currency,
    time_text,
)
from spool import money
from spool.ledger.repricing import SumLine
from spool.meters import METERS, quantity_from_millionths, quantity_in_millionths
from spool.printable import csv_lines
from spool.record import decimal_text

_UNITS = {"usd": "USD at list prices", "credits": "Credits", "calls": "Requests"}

BILLED, EFFECTIVE, INVOICED = "discounted_cost", "discounted_amortized_cost", "invoiced_amortized_cost"
OWN = ("charge", "basis", "corrects")
NOT_OF_BILLS = ("cost_source", "source", "status")  # dimensions that rows of bills lack
BY = tuple(name for name in DIMENSIONS if name not in NOT_OF_BILLS)
_MORE = ("InvoiceId", "x_Basis", "x_Charge", "x_State")
_LEFT_OUT = ("x_CostSource", "x_Records")
# a bill may include discounts in its usage
_ON_USAGE = ("usage", "discount")
_CATEGORIES = {
    "tax": "Tax",
    "credit": "Credit",
    "refund": "Credit",
    "correction": "Adjustment",
    "rounding": "Adjustment",
    "difference": "Adjustment",
    "restated": "Adjustment",
}
_CORRECTIONS = ("correction", "restated")  # corrections of amounts invoiced earlier
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
# category, frequency and description of a contract's charges
_OF_CONTRACTS = {
    "commitment": ("Usage", "Recurring", "Used capacity of"),
    "unused": ("Usage", "Recurring", "Unused capacity of"),
    "allowance": ("Credit", "One-Time", "Free usage of"),
    "credit": ("Credit", "One-Time", "Credit of"),
    "fee": ("Purchase", "Recurring", "Fee of"),
    "minimum": ("Adjustment", "One-Time", "Minimum of"),
}
_PREPAID = ("commitment", "unused")
_RESTATED, _COMMITMENT, _OTHER = "restated", "commitment", "other"
_OF_CALLS = ("usage", _COMMITMENT)
_NOTHING: dict[str, Any] = {
    **dict.fromkeys(DIMENSIONS),
    **dict.fromkeys(COUNTED, 0),
    "cost": "0",
    "estimated": "0",
    "converted": "0",
}


def charges_from_rows(
    rows: Iterable[Mapping[str, object]], tags: Sequence[str] = (), *, length: timedelta = HOUR
) -> list[Charge]:
    """
    Convert rows of the operator API, grouped by DIMENSIONS and `tags`, to charges of periods of `length`.
    """
    charges = []
    for row in rows:
        estimated = str(row["estimated"])
        foreign = row.get("charges")
        charge = Charge(
            start=datetime.fromisoformat(str(row["period"])),
            cost=_subtract_amounts(str(row["cost"]), str(row["converted"])) if foreign else str(row["cost"]),
            list_cost=estimated if estimated != "0" else None,
            provider=_text_field(row, "provider"),
            model=_text_field(row, "model"),
            team=_text_field(row, "team"),
            tags={name: value for name in (*TAGS, *tags) if (value := _text_field(row, name))},
            cost_source=_text_field(row, "cost_source"),
            region=_text_field(row, "region"),
            length=length,
            **_counted_fields_as_integers(row),
        )
        charged = row.get("price_lines")
        if isinstance(charged, Mapping):
            lined = replace(charge, **_counted_fields_as_integers(charged), **_cost_and_line_fields(charged))
            charges.append(lined)
            charge = _subtract_charge(charge, lined)
            if is_empty(charge):
                continue
        charges += split_by_currency(charge, foreign if isinstance(foreign, Mapping) else {})
    return charges


def _cost_and_line_fields(priced_part: Mapping[str, Any]) -> dict[str, Any]:
    cost = str(priced_part["cost"])
    lines = []
    for line in priced_part["lines"]:
        quantity = quantity_in_millionths(line["quantity"])
        lines.append(SumLine(line["meter"], quantity, money.text_to_units(line["amount"])))
    return {"cost": cost, "list_cost": cost, "lines": tuple(lines)}


def _subtract_charge(charge: Charge, part: Charge) -> Charge:
    remaining_counts = {name: getattr(charge, name) - getattr(part, name) for name in COUNTED}
    listed = _subtract_amounts(charge.list_cost or "0", part.cost)
    cost = _subtract_amounts(charge.cost, part.cost)
    return replace(charge, cost=cost, list_cost=listed if Decimal(listed) else None, **remaining_counts)


def _subtract_amounts(amount: str, subtracted: str) -> str:
    with localcontext(EXACT):
        return decimal_text(Decimal(amount) - Decimal(subtracted))


def _text_field(row: Mapping[str, object], name: str) -> str | None:
    value = row.get(name)
    return value if isinstance(value, str) and value else None


def _counted_fields_as_integers(row: Mapping[str, object]) -> dict[str, Any]:
    return {name: int(str(row[name])) for name in COUNTED}


@dataclass(slots=True)
class FeeShares:
    """
    Divides each user's monthly fees over the user's calls, in proportion to the value of each call. The
    order of the calls affects the rounding.
    """

    fees: Mapping[str, int]  # fees in money units, by user in lower case
    weights: Mapping[str, int]  # value of each user's calls
    _shared_values: Counter[str] = field(default_factory=Counter)

    @classmethod
    def from_seats(cls, seats: Iterable[Mapping[str, Any]], values: Iterable[Mapping[str, Any]]) -> FeeShares:
        fees, weights = Counter[str](), Counter[str]()
        for seat in seats:
            fees[str(seat["user"]).casefold()] += money.text_to_units(str(seat["fees"]))
        for row in values:
            weights[str(row["user"] or "").casefold()] += max(0, money.text_to_units(str(row["cost"])))
        return cls(fees=fees, weights=weights)

    def allot_fee_share(self, user: str, call_value: int) -> int:
        """
        Return the part of the user's fees for calls of this value. The parts of all calls add up to the fees.
        """
        whole, before = self.weights.get(user, 0), self._shared_values[user]
        if not whole or call_value <= 0:
            return 0
        fee = self.fees.get(user, 0)
        # Some hours may have a negative value, but the total must not exceed the whole.
        total = min(whole, before + call_value)
        self._shared_values[user] = total
        return fee * total // whole - fee * before // whole

    def has_usage(self, user: str) -> bool:
        return bool(self.weights.get(user))


def fee_covered_call_rows(
    rows: Iterable[Mapping[str, Any]],
    shares: FeeShares,
    *,
    account: str,
    tags: tuple[str, ...] = (),
    length: timedelta = HOUR,
) -> Iterator[dict[str, str]]:
    """Yield rows of covered calls, which are not billed. Their part of the fees is their effective cost."""
    for row in rows:
        value = str(row["cost"])
        user = str(row.get("user") or "").casefold()
        share = money.units_to_text(shares.allot_fee_share(user, money.text_to_units(value)))
        [charge] = charges_from_rows([{**row, "charges": {}}], tags, length=length)
        worth = value if charge.list_cost is None else charge.list_cost
        shown = charge_row(replace(charge, cost=value, list_cost=worth), account=account)
        costs = {"BilledCost": "0", "EffectiveCost": share, "ContractedCost": worth, "ListCost": worth}
        yield {**shown, **costs, "ChargeCategory": "Usage", "ChargeFrequency": "Usage-Based"}


def seat_rows(
    month: datetime, seats: Iterable[Mapping[str, Any]], shares: FeeShares, *, account: str
) -> Iterator[dict[str, str]]:
    """Yield rows for the purchase of seats, for fees that no call uses, and for extra usage."""
    for seat in seats:
        base = _seat_columns(month, seat, account)
        fee, overage = str(seat["fees"]), str(seat["overage"])
        if money.text_to_units(fee):
            purchase = {
                **_cost_columns(fee, effective="0"),
                "ChargeCategory": "Purchase",
                "ChargeDescription": f"Seat of {seat['plan']}",
                "ChargeFrequency": "Recurring",
                "PricingQuantity": "1",
                "PricingUnit": "Seats",
            }
            yield {**base, **purchase}
        if money.text_to_units(fee) and not shares.has_usage(str(seat["user"]).casefold()):
            unused = {
                **_cost_columns("0", effective=fee),
                "ChargeCategory": "Usage",
                "ChargeDescription": f"Seat of {seat['plan']} that was not used",
                "ChargeFrequency": "Recurring",
            }
            yield {**base, **unused}
        if money.text_to_units(overage):
            unit = _UNITS[str(seat["unit"])]
            beyond = {
                **_cost_columns(overage, effective=overage),
                "ChargeCategory": "Usage",
                "ChargeDescription": f"Usage beyond what {seat['plan']} includes",
                "ChargeFrequency": "Usage-Based",
                "ConsumedQuantity": str(seat["beyond"]),
                "ConsumedUnit": unit,
                "PricingQuantity": str(seat["beyond"]),
                "PricingUnit": unit,
            }
            yield {**base, **beyond}


@dataclass(frozen=True, slots=True, kw_only=True)
class ContractAmount:
    """An amount of a contract, of a `kind` such as its fee. `charge` has the contract's name as a tag."""

    contract: str
    kind: str
    charge: Charge


def contract_rows(amounts: Iterable[ContractAmount], *, account: str) -> Iterator[dict[str, str]]:
    bought: dict[tuple[str, str], tuple[Charge, int]] = {}
    for each in amounts:
        charge, name = each.charge, each.contract
        category, frequency, words = _OF_CONTRACTS[each.kind]
        is_prepaid = each.kind in _PREPAID
        if is_prepaid:
            _, before = bought.get((name, charge.currency), (charge, 0))
            bought[name, charge.currency] = charge, before + money.text_to_units(charge.cost)
        yield {
            **_contract_columns(charge, name, account),
            **_cost_columns("0" if is_prepaid else charge.cost, effective=charge.cost),
            **(_ONE if category == "Purchase" else {}),
            "ChargeCategory": category,
            "ChargeDescription": f"{words} {name}",
            "ChargeFrequency": frequency,
        }
    for (name, _), (charge, units) in bought.items():
        cost = money.units_to_text(units)
        yield {
            **_contract_columns(replace(charge, cost=cost, team=None), name, account),
            **_cost_columns(cost, effective="0"),
            **_ONE,
            "ChargeCategory": "Purchase",
            "ChargeDescription": f"Capacity of {name}",
            "ChargeFrequency": "Recurring",
        }


def _contract_columns(charge: Charge, name: str, account: str) -> dict[str, str]:
    return {**_monthly_columns(charge, account), "SkuId": f"contract/{name}", "SkuMeter": "Contract"}


def _cost_columns(cost: str, *, effective: str) -> dict[str, str]:
    return {"BilledCost": cost, "ContractedCost": cost, "ListCost": cost, "EffectiveCost": effective}


def _seat_columns(month: datetime, seat: Mapping[str, Any], account: str) -> dict[str, str]:
    tags = {"plan": str(seat["plan"]), "user": str(seat["user"])}
    charge = Charge(
        start=month, cost="0", list_cost=None, provider=None, model=None, team=seat["team"], tags=tags
    )
    names = ("HostProviderName", "InvoiceIssuerName", "ProviderName", "PublisherName", "ServiceProviderName")
    return {
        **_monthly_columns(charge, account),
        **dict.fromkeys(names, str(seat["plan"])),
        "ServiceName": str(seat["plan"]),
        "SkuId": f"plan/{seat['plan']}",
        "SkuMeter": "Seats",
    }


def _monthly_columns(charge: Charge, account: str) -> dict[str, str]:
    return {
        **charge_row(charge, account=account),
        "ChargeClass": "",
        "ChargePeriodEnd": time_text(month_after(charge.start)),
        "ConsumedQuantity": "",
        "ConsumedUnit": "",
        "PricingQuantity": "",
        "PricingUnit": "",
    }


def column_names(version: str) -> Sequence[str]:
    """Return the columns of a FOCUS version. FOCUS requires x_ columns last."""
    names = (*(name for name in VERSIONS[version] if name not in _LEFT_OUT), *_MORE)
    return sorted(names, key=lambda name: name.startswith("x_"))


def csv_header(version: str) -> bytes:
    return csv_lines([column_names(version)]).encode()


def encode_csv_rows(rows: Iterable[Mapping[str, str]], *, version: str) -> bytes:
    names = column_names(version)
    return csv_lines([row[name] for name in names] for row in rows).encode()


class _RowKey(NamedTuple):
    group: tuple[str, ...]
    charge: str
    corrects: str


@dataclass(slots=True)
class _RowAmounts:
    billed: int = 0
    effective: int = 0
    bases: set[str] = field(default_factory=set)


@dataclass(frozen=True, slots=True, kw_only=True)
class ExportedDay:
    """
    The charges of a day by provider and further dimensions.

    `metered`: calls by hour with price lines. `invoice_of`: number of a provider's invoice. `state_of`: state
    of its bill, "" if not exported.
    """

    start: datetime
    by: Sequence[str]
    billed: Iterable[Mapping[str, Any]]
    effective: Iterable[Mapping[str, Any]]
    counted: Iterable[Mapping[str, Any]]
    invoice_of: Callable[[str], str]
    state_of: Callable[[str], str]
    metered: Iterable[Mapping[str, Any]] = ()


def day_rows(day: ExportedDay, *, account: str) -> Iterator[dict[str, str]]:
    sums: dict[_RowKey, _RowAmounts] = defaultdict(_RowAmounts)
    for amounts, cost in _add_cost_bases_and_yield_cost_units(day, day.billed, sums):
        amounts.billed += cost
    for amounts, cost in _add_cost_bases_and_yield_cost_units(day, day.effective, sums):
        amounts.effective += cost
    counted = {_group_values(day, row): row for row in day.counted}
    beside = _meter_quantities_by_group(day)
    for key, amounts in sorted(sums.items(), key=lambda item: item[0]):
        group_values = dict(zip(day.by, key.group, strict=True))
        state = _RESTATED if key.charge == _RESTATED else day.state_of(group_values["provider"])
        if state and (amounts.billed or amounts.effective):
            calls = counted.get(key.group) if key.charge in _OF_CALLS else None
            charge = _charge_of_calls(day, group_values, calls)
            row = _billed_row(key, amounts, charge, day, state, account)
            used = beside.get(key.group, {})
            yield {**row, **_meter_columns(key, used)}


def _add_cost_bases_and_yield_cost_units(
    day: ExportedDay, rows: Iterable[Mapping[str, Any]], sums: Mapping[_RowKey, _RowAmounts]
) -> Iterator[tuple[_RowAmounts, int]]:
    for row in rows:
        amounts = sums[_row_key(day, row)]
        amounts.bases.add(str(row["basis"]))
        yield amounts, money.text_to_units(str(row["cost"]))


def _row_key(day: ExportedDay, row: Mapping[str, Any]) -> _RowKey:
    charge = str(row["charge"])
    shown = "usage" if charge in _ON_USAGE else charge
    return _RowKey(_group_values(day, row), shown, str(row["corrects"] or ""))


def _group_values(day: ExportedDay, row: Mapping[str, Any]) -> tuple[str, ...]:
    return tuple(str(row[name] or "") for name in day.by)


def _meter_quantities_by_group(day: ExportedDay) -> Mapping[tuple[str, ...], Mapping[str, int]]:
    usage: dict[tuple[str, ...], Counter[str]] = defaultdict(Counter)
    for row in day.metered:
        lines = (row["price_lines"] or {}).get("lines", ())
        for line in lines:
            meter = line["meter"]
            if meter in METERS and not METERS[meter].is_part_of_token_count:
                usage[_group_values(day, row)][meter] += quantity_in_millionths(line["quantity"])
    return usage


def _meter_columns(key: _RowKey, used: Mapping[str, int]) -> Mapping[str, str]:
    if key.charge != _OTHER or len(used) != 1:
        return {}
    [(meter, units)] = used.items()
    quantity, unit = str(quantity_from_millionths(units)), focus_unit(meter)
    of_row = dict(zip(_ONE, (quantity, unit) * 2, strict=True))
    return {**of_row, "SkuMeter": meter}


def _charge_of_calls(
    day: ExportedDay, group_values: Mapping[str, str], counted_row: Mapping[str, Any] | None
) -> Charge:
    tags = [name for name in day.by if name not in DIMENSIONS]
    row = {**_NOTHING, **(counted_row or {}), **group_values}
    [charge] = charges_from_rows([{**row, "charges": {}, "period": day.start.isoformat()}], tags)
    return charge


def _billed_row(
    key: _RowKey, amounts: _RowAmounts, charge: Charge, day: ExportedDay, state: str, account: str
) -> dict[str, str]:
    billed, effective = money.units_to_text(amounts.billed), money.units_to_text(amounts.effective)
    category = _charge_category(key, amounts)
    shown = charge_row(replace(charge, cost=billed), account=account)
    of_usage = effective if key.charge == _COMMITMENT and category == "Usage" else billed
    month = day.start.replace(day=1)
    charged = datetime.fromisoformat(f"{key.corrects}T00:00:00+00:00") if key.corrects else day.start
    values = {
        "BilledCost": billed,
        "EffectiveCost": effective,
        "ContractedCost": of_usage,
        "ListCost": of_usage if charge.list_cost is None else charge.list_cost,
        "BillingPeriodStart": time_text(month),
        "BillingPeriodEnd": time_text(month_after(month)),
        "ChargePeriodStart": time_text(charged),
        "ChargePeriodEnd": time_text(charged + timedelta(days=1)),
        "ChargeCategory": category,
        "ChargeClass": "Correction" if key.charge in _CORRECTIONS else "",
        "ChargeDescription": _charge_description(key, charge),
        "ChargeFrequency": _FREQUENCIES.get(category, "One-Time"),
        "InvoiceId": "" if state == _RESTATED else day.invoice_of(charge.provider or ""),
        "x_Basis": ",".join(sorted(amounts.bases)),
        "x_Charge": key.charge,
        "x_Corrects": key.corrects,
        "x_State": state,
    }
    # the quantity of this charge was not counted, so its row counts as one
    if category in _PRICED and not charge.calls:
        values |= _ONE
    elif category not in _PRICED:
        values |= dict.fromkeys(_NO_USAGE, "")
    return {**shown, **values}


def _charge_category(key: _RowKey, amounts: _RowAmounts) -> str:
    if key.charge == _COMMITMENT:
        return "Purchase" if amounts.billed else "Usage"
    return _CATEGORIES.get(key.charge, "Usage")


def _charge_description(key: _RowKey, charge: Charge) -> str:
    of_model = f" of {charge.model}" if charge.model else ""
    return f"Billed AI {key.charge}{of_model}"
