"""Closed months of a provider's bills: invoices, and the check before closing. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import date
from hashlib import sha256
from typing import Any

import msgspec

from gateway.bills.billed.spreading import spread
from spool import providers
from spool.errors import Invalid
from spool.ledger import money
from spool.ledger.billed import (
    DIFFERENCE,
    EVERY,
    FROZEN,
    INVOICE,
    INVOICED,
    ROUNDING,
    TAX,
    UNALLOCATED,
    USAGE,
    BilledDay,
    BilledSum,
)
from spool.ledger.queries import BILLED, BILLED_TYPES
from spool.ledger.sums import Dimensions
from spool.registry.texts import check_amount, check_text, optional_text

LARGEST = 10
MAX_LINES = 1_000_000
MAX_INVOICES = 100  # per provider and month
MAX_TEXT = 200
_AS_BILLED = BILLED_TYPES["billed_cost"]
_ACCRUED = BILLED_TYPES["discounted_amortized_cost"]
_ALONE = _AS_BILLED | BILLED_TYPES["amortized_cost"]
_HALF_CENT = money.UNIT // 200
_SHARED = "shared"
_CURRENCY = "USD"


@dataclass(frozen=True, slots=True, kw_only=True)
class Invoice:
    """
    A provider's invoice for a month. Amounts are money units. `lines` is the number of lines that the
    provider rounded to cents.
    """

    provider: str
    month: str
    number: str
    account: str = ""
    issued: str = ""
    total: int
    tax: int = 0
    lines: int = 1

    @property
    def id(self) -> str:
        return f"{self.provider}:{self.month}:{self.number}"


@dataclass(frozen=True, slots=True, kw_only=True)
class MonthFigures:
    """
    Sums of a provider's bills of a month, in money units. `tax` is on the invoices but in no bill. `largest`
    are the largest amounts without known calls.
    """

    provider: str
    month: str
    by_charge: Mapping[str, int]
    by_reason: Mapping[str, int]
    days: Mapping[str, int]
    invoices: Sequence[Invoice]
    largest: Sequence[BilledSum] = ()
    restated: Mapping[str, int] = field(default_factory=dict)  # by corrected day

    @property
    def billed(self) -> int:
        return sum(self.by_charge.values())

    @property
    def invoiced(self) -> int:
        return sum(each.total for each in self.invoices)

    @property
    def tax(self) -> int:
        return 0 if self.by_charge.get(TAX) else sum(each.tax for each in self.invoices)

    @property
    def gap(self) -> int:
        return self.invoiced - self.billed - self.tax

    @property
    def rounding(self) -> int:
        """Return the gap if half a cent per invoice line explains it, else 0."""
        most = _HALF_CENT * sum(each.lines for each in self.invoices)
        return self.gap if abs(self.gap) <= most else 0

    @property
    def difference(self) -> int:
        return self.gap - self.rounding

    def problems(self) -> list[str]:
        """Return the reasons against closing the month, for people."""
        found = []
        if self.difference:
            found.append(
                f"the invoices total {_dollars(self.invoiced)}, but the bills total "
                f"{_dollars(self.billed + self.tax)}; {_dollars(self.difference)} is unexplained"
            )
        for state, words in (("provisional", "may still change"), ("open", "have no bill")):
            if self.days.get(state):
                found.append(f"{self.days[state]} days {words}")
        return found


def closed_id(provider: str, month: str) -> str:
    return f"{provider}:{month}"


def invoice_of(fields: Mapping[str, Any]) -> Invoice:
    """Return an invoice from user input. Raises Invalid with the field and the rule."""
    currency = fields.get("currency") or _CURRENCY
    if currency != _CURRENCY:
        raise Invalid(f"currency: bills are summed in {_CURRENCY}; state the invoice in {_CURRENCY}")
    lines = fields.get("lines") or 1
    if not 1 <= lines <= MAX_LINES:
        raise Invalid(f"lines must be a number from 1 to {MAX_LINES}")
    return Invoice(
        provider=providers.canonical(check_text("provider", fields["provider"], MAX_TEXT)),
        month=month_name(fields["month"]),
        number=check_text("number", fields["number"], MAX_TEXT),
        account=optional_text("account", fields.get("account") or "", MAX_TEXT),
        issued=_day(fields.get("issued") or ""),
        total=_units("total", fields["total"]),
        tax=_units("tax", fields.get("tax") or "0"),
        lines=lines,
    )


def kept(invoice: Invoice) -> dict[str, Any]:
    """Return the stored and shown form of an invoice."""
    return {
        "provider": invoice.provider,
        "month": invoice.month,
        "number": invoice.number,
        "account": invoice.account or None,
        "issued": invoice.issued or None,
        "currency": _CURRENCY,
        "total": money.text(invoice.total),
        "tax": money.text(invoice.tax),
        "lines": invoice.lines,
    }


def month_name(text: str) -> str:
    try:
        return date.fromisoformat(f"{text}-01").strftime("%Y-%m")
    except ValueError:
        raise Invalid(f"month must be written such as 2026-10, not {text[:20]}") from None


def shown(figures: MonthFigures) -> dict[str, Any]:
    """Return the sums as shown in answers and stored with a closed month."""
    return {
        "provider": figures.provider,
        "month": figures.month,
        "billed": money.text(figures.billed),
        "invoiced": money.text(figures.invoiced),
        "tax": money.text(figures.tax),
        ROUNDING: money.text(figures.rounding),
        DIFFERENCE: money.text(figures.difference),
        "by_charge": _texts(figures.by_charge),
        "by_reason": _texts(figures.by_reason),
        "days": dict(figures.days),
        "invoices": [each.number for each in figures.invoices],
    }


def largest_of(sums: Iterable[BilledSum]) -> list[BilledSum]:
    """Return the largest amounts without known calls, with the bill's names."""
    together: Counter[tuple[Dimensions, str]] = Counter()
    for each in sums:
        if each.arranged & _AS_BILLED and each.dimensions.kind == BILLED:
            together[each.dimensions, each.charge] += each.amount
    found = [
        BilledSum(*place, UNALLOCATED, _AS_BILLED, amount) for place, amount in together.items() if amount
    ]
    return sorted(found, key=lambda each: (-abs(each.amount), each))[:LARGEST]


def charges_of(sums: Iterable[BilledSum]) -> Counter[str]:
    """Return the sums of bills by charge."""
    found: Counter[str] = Counter()
    for each in sums:
        if each.arranged & _AS_BILLED:
            found[each.charge] += each.amount
    return found


def usage_of(sums: Iterable[BilledSum]) -> Counter[Dimensions]:
    """Return usage money by dimensions. The tax of an invoice is divided in proportion to it."""
    found: Counter[Dimensions] = Counter()
    for each in sums:
        if each.arranged & _AS_BILLED and each.charge == USAGE:
            found[each.dimensions] += each.amount
    return found


def frozen(day: BilledDay, sums: Sequence[BilledSum]) -> tuple[BilledDay, list[BilledSum]]:
    """
    Return a day as part of a closed month. All of its amounts count as invoiced, whatever its state was.
    """
    found = []
    for each in sums:
        mask = each.arranged | INVOICED if each.arranged & _ACCRUED else each.arranged
        found.append(each._replace(arranged=mask))
    return replace(day, state=FROZEN, mark=f"{FROZEN} {day.mark}"), found


def invoice_day_of(
    closed: Mapping[str, Any],
    provider: str,
    usage: Mapping[Dimensions, int],
    billed: int,
    template: BilledDay,
) -> tuple[BilledDay, list[BilledSum]]:
    """
    Return the amounts that a closed month's invoices have in addition to its days: tax, rounding and a difference.

    `billed` is the current sum of the days. If it differs from the sum at closing, the change is added
    to the difference.
    """
    nobody = nobodys(provider)
    changed = billed - money.units(closed["billed"])
    amounts = {name: money.units(closed[name]) for name in (ROUNDING, DIFFERENCE)}
    amounts[DIFFERENCE] -= changed
    sums = [BilledSum(nobody, name, UNALLOCATED, EVERY, amount) for name, amount in amounts.items() if amount]
    if tax := money.units(closed[TAX]):
        sums.append(BilledSum(nobody, TAX, UNALLOCATED, _ALONE, tax))
        is_divided = closed.get("layers", {}).get(TAX, True)
        parts = spread(tax, usage if is_divided else {})
        within = EVERY & ~_ALONE
        for dimensions, share in parts.shares.items():
            basis = UNALLOCATED if dimensions.kind == BILLED else _SHARED
            sums.append(BilledSum(dimensions, TAX, basis, within, share))
        sums.append(BilledSum(nobody, TAX, UNALLOCATED, within, parts.unreported))
        sums.append(BilledSum(nobody, ROUNDING, UNALLOCATED, within, parts.rest))
    mark = f"{INVOICE} {closed[ROUNDING]} {money.text(amounts[DIFFERENCE])} {closed[TAX]}"
    reasons = {DIFFERENCE: amounts[DIFFERENCE]} if amounts[DIFFERENCE] else {}
    day = replace(template, provider=provider + INVOICE, mark=mark, reasons=reasons, accrued={}, foreign={})
    return day, sorted(each for each in sums if each.amount)


def nobodys(provider: str) -> Dimensions:
    """Return the dimensions of billed amounts without known calls."""
    values: dict[str, Any] = dict.fromkeys(Dimensions._fields, "")
    return Dimensions(**{**values, "size": 0, "kind": BILLED, "provider": provider})


def mark_of(sums: Sequence[BilledSum], *more: object) -> str:
    """Return a digest of a day's content."""
    digest = sha256(repr(more).encode())
    for each in sums:
        digest.update(msgspec.json.encode([*each.dimensions, *each[1:-1], money.text(each.amount)]))
    return digest.hexdigest()


def _texts(amounts: Mapping[str, int]) -> dict[str, str]:
    return {name: money.text(amount) for name, amount in sorted(amounts.items()) if amount}


def _dollars(units: int) -> str:
    return f"${money.text(units)}"


def _units(field: str, amount: str | int) -> int:
    return money.units(check_amount(field, str(amount)))


def _day(text: str) -> str:
    if not text:
        return ""
    try:
        return date.fromisoformat(text).isoformat()
    except ValueError:
        raise Invalid("issued must be a day such as 2026-11-03") from None
