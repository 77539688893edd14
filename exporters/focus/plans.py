"""
Plans of assistants as FOCUS rows. Pure.

The fee of a seat is a purchase, which is billed and has no effective cost; the calls that it covers are not billed, and
have the fee as their effective cost, each by what it is worth. So both columns add up to what was paid. A fee that no
call has is effective in a row of its own.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any

from exporters.focus.charges import Charge, month_after, row_of, time_text
from exporters.focus.report_rows import of_report
from spool.ledger import money

_UNITS = {"usd": "USD at list prices", "credits": "Credits", "calls": "Requests"}


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
