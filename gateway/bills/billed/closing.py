"""Closed months of a provider's bills: invoices, and the check before closing. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import date
from fractions import Fraction
from hashlib import sha256
from typing import Any

import msgspec

from gateway.bills.billed.spreading import divide_by_weights
from spool import money, providers
from spool.errors import Invalid
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
from spool.ledger.dimensions import BILLED, BILLED_TYPES
from spool.ledger.sums import Dimensions
from spool.record import CURRENCY
from spool.registry.texts import check_amount, check_one_of, check_optional_text, check_text

LARGEST = 10
MAX_LINES = 1_000_000
MAX_INVOICES = 100  # maximum invoices per provider and month
MAX_TEXT = 200
_AS_BILLED = BILLED_TYPES["billed_cost"]
_ACCRUED = BILLED_TYPES["discounted_amortized_cost"]
_ALONE = _AS_BILLED | BILLED_TYPES["amortized_cost"]
_HALF_CENT = money.UNIT // 200
_SHARED = "shared"


@dataclass(frozen=True, slots=True, kw_only=True)
class Invoice:
    """
    A provider's invoice for a month. Amounts are money units of `currency`. `lines` is the number of lines
    that the provider rounded to cents, and `half_cent` is the largest rounding error of a line.
    """

    provider: str
    month: str
    number: str
    account: str = ""
    issued: str = ""
    total: int
    tax: int = 0
    lines: int = 1
    currency: str = CURRENCY
    half_cent: int = _HALF_CENT

    def convert_to_dollars(self, rate: Fraction) -> Invoice:
        """Return the invoice in dollars, at the value of one unit of its currency in dollars."""
        # imported here, because only invoices in another currency than dollars need it
        from spool.currencies import DECIMALS

        half = Fraction(money.UNIT, 2 * 10 ** DECIMALS[self.currency])
        return replace(
            self,
            total=round(self.total * rate),
            tax=round(self.tax * rate),
            half_cent=round(half * rate),
            currency=CURRENCY,
        )

    @property
    def id(self) -> str:
        return f"{self.provider}:{self.month}:{self.number}"


@dataclass(frozen=True, slots=True, kw_only=True)
class MonthFigures:
    """
    Sums of a provider's bills of a month, in money units. The invoices are in dollars. `tax` is on the invoices
    but in no bill. `largest` are the largest amounts without known calls.
    """

    provider: str
    month: str
    by_charge: Mapping[str, int]
    by_reason: Mapping[str, int]
    days: Mapping[str, int]
    invoices: Sequence[Invoice]
    largest: Sequence[BilledSum] = ()
    # sums of changes to closed months, by corrected day
    restated: Mapping[str, int] = field(default_factory=dict)

    @property
    def billed_total(self) -> int:
        return sum(self.by_charge.values())

    @property
    def invoiced_total(self) -> int:
        return sum(invoice.total for invoice in self.invoices)

    @property
    def tax(self) -> int:
        return 0 if self.by_charge.get(TAX) else sum(invoice.tax for invoice in self.invoices)

    @property
    def invoice_gap(self) -> int:
        return self.invoiced_total - self.billed_total - self.tax

    @property
    def rounding_gap(self) -> int:
        """
        Return `invoice_gap` (invoices minus billed days and tax) if rounding by at most half a cent per
        invoice line explains it, else 0.
        """
        tolerance = sum(invoice.half_cent * invoice.lines for invoice in self.invoices)
        return self.invoice_gap if abs(self.invoice_gap) <= tolerance else 0

    @property
    def unexplained_gap(self) -> int:
        return self.invoice_gap - self.rounding_gap

    def problems(self) -> list[str]:
        """Return the reasons against closing the month, as texts for people."""
        problem_texts = []
        if self.unexplained_gap:
            problem_texts.append(
                f"the invoices total {_format_dollars(self.invoiced_total)}, but the bills total "
                f"{_format_dollars(self.billed_total + self.tax)}; "
                f"{_format_dollars(self.unexplained_gap)} is unexplained"
            )
        for state, problem in (("provisional", "may still change"), ("open", "have no bill")):
            if self.days.get(state):
                problem_texts.append(f"{self.days[state]} days {problem}")
        return problem_texts


def closed_month_id(provider: str, month: str) -> str:
    return f"{provider}:{month}"


def parse_invoice(fields: Mapping[str, Any]) -> Invoice:
    """Return an invoice from user input. Raises Invalid."""
    currency = fields.get("currency") or CURRENCY
    if currency != CURRENCY:
        # imported here, because only invoices in another currency than dollars need it
        from spool.currencies import DECIMALS

        check_one_of("currency", currency, DECIMALS)
    lines = fields.get("lines") or 1
    if not 1 <= lines <= MAX_LINES:
        raise Invalid(f"lines must be a number from 1 to {MAX_LINES}")
    return Invoice(
        provider=providers.canonical_provider_name(check_text("provider", fields["provider"], MAX_TEXT)),
        month=parse_month_name(fields["month"]),
        number=check_text("number", fields["number"], MAX_TEXT),
        account=check_optional_text("account", fields.get("account") or "", MAX_TEXT),
        issued=_normalize_invoice_date(fields.get("issued") or ""),
        total=_parse_units("total", fields["total"]),
        tax=_parse_units("tax", fields.get("tax") or "0"),
        lines=lines,
        currency=currency,
    )


def invoice_document(invoice: Invoice) -> dict[str, Any]:
    return {
        "provider": invoice.provider,
        "month": invoice.month,
        "number": invoice.number,
        "account": invoice.account or None,
        "issued": invoice.issued or None,
        "currency": invoice.currency,
        "total": money.units_to_text(invoice.total),
        "tax": money.units_to_text(invoice.tax),
        "lines": invoice.lines,
    }


def parse_month_name(text: str) -> str:
    try:
        return date.fromisoformat(f"{text}-01").strftime("%Y-%m")
    except ValueError:
        raise Invalid(f"month must be written such as 2026-10, not {text[:20]}") from None


def figures_document(figures: MonthFigures) -> dict[str, Any]:
    """Return the sums as shown in answers and stored with a closed month."""
    return {
        "provider": figures.provider,
        "month": figures.month,
        "billed": money.units_to_text(figures.billed_total),
        "invoiced": money.units_to_text(figures.invoiced_total),
        "tax": money.units_to_text(figures.tax),
        ROUNDING: money.units_to_text(figures.rounding_gap),
        DIFFERENCE: money.units_to_text(figures.unexplained_gap),
        "by_charge": _amount_texts(figures.by_charge),
        "by_reason": _amount_texts(figures.by_reason),
        "days": dict(figures.days),
        "invoices": [invoice.number for invoice in figures.invoices],
    }


def largest_unassigned_sums(sums: Iterable[BilledSum]) -> list[BilledSum]:
    """Return the largest amounts without known calls, with the bill's names."""
    together: Counter[tuple[Dimensions, str]] = Counter()
    for billed_sum in sums:
        if billed_sum.arranged & _AS_BILLED and billed_sum.dimensions.kind == BILLED:
            together[billed_sum.dimensions, billed_sum.charge] += billed_sum.amount
    merged_sums = [
        BilledSum(*key, UNALLOCATED, _AS_BILLED, amount) for key, amount in together.items() if amount
    ]
    return sorted(merged_sums, key=lambda billed_sum: (-abs(billed_sum.amount), billed_sum))[:LARGEST]


def sum_by_charge(sums: Iterable[BilledSum]) -> Counter[str]:
    amount_by_charge: Counter[str] = Counter()
    for billed_sum in sums:
        if billed_sum.arranged & _AS_BILLED:
            amount_by_charge[billed_sum.charge] += billed_sum.amount
    return amount_by_charge


def usage_by_dimensions(sums: Iterable[BilledSum]) -> Counter[Dimensions]:
    """Return usage money by dimensions. The tax of an invoice is divided in proportion to it."""
    amount_by_dimensions: Counter[Dimensions] = Counter()
    for billed_sum in sums:
        if billed_sum.arranged & _AS_BILLED and billed_sum.charge == USAGE:
            amount_by_dimensions[billed_sum.dimensions] += billed_sum.amount
    return amount_by_dimensions


def freeze_day(day: BilledDay, sums: Sequence[BilledSum]) -> tuple[BilledDay, list[BilledSum]]:
    """
    Return a day as part of a closed month. All of its amounts count as invoiced, whatever its state was.
    """
    frozen_sums = []
    for billed_sum in sums:
        mask = billed_sum.arranged | INVOICED if billed_sum.arranged & _ACCRUED else billed_sum.arranged
        frozen_sums.append(billed_sum._replace(arranged=mask))
    return replace(day, state=FROZEN, mark=f"{FROZEN} {day.mark}"), frozen_sums


def build_invoice_day(
    closed_month: Mapping[str, Any],
    provider: str,
    usage: Mapping[Dimensions, int],
    billed_total: int,
    template: BilledDay,
) -> tuple[BilledDay, list[BilledSum]]:
    """
    Return the amounts that a closed month's invoices have in addition to its billed days: tax, rounding and
    the unexplained difference.

    `billed_total` is the current sum of the days. If it has changed since closing, the difference changes by the
    opposite amount.
    """
    nobody = unassigned_dimensions(provider)
    changed = billed_total - money.text_to_units(closed_month["billed"])
    amounts = {name: money.text_to_units(closed_month[name]) for name in (ROUNDING, DIFFERENCE)}
    amounts[DIFFERENCE] -= changed
    sums = [BilledSum(nobody, name, UNALLOCATED, EVERY, amount) for name, amount in amounts.items() if amount]
    if tax := money.text_to_units(closed_month[TAX]):
        sums.append(BilledSum(nobody, TAX, UNALLOCATED, _ALONE, tax))
        is_divided = closed_month.get("layers", {}).get(TAX, True)
        parts = divide_by_weights(tax, usage if is_divided else {})
        within = EVERY & ~_ALONE
        for dimensions, share in parts.shares.items():
            basis = UNALLOCATED if dimensions.kind == BILLED else _SHARED
            sums.append(BilledSum(dimensions, TAX, basis, within, share))
        sums.append(BilledSum(nobody, TAX, UNALLOCATED, within, parts.unreported))
        sums.append(BilledSum(nobody, ROUNDING, UNALLOCATED, within, parts.rest))
    mark = (
        f"{INVOICE} {closed_month[ROUNDING]} {money.units_to_text(amounts[DIFFERENCE])} {closed_month[TAX]}"
    )
    reasons = {DIFFERENCE: amounts[DIFFERENCE]} if amounts[DIFFERENCE] else {}
    day = replace(template, provider=provider + INVOICE, mark=mark, reasons=reasons, accrued={}, foreign={})
    return day, sorted(billed_sum for billed_sum in sums if billed_sum.amount)


def unassigned_dimensions(provider: str) -> Dimensions:
    """Return the dimensions of billed amounts without known calls."""
    values: dict[str, Any] = dict.fromkeys(Dimensions._fields, "")
    return Dimensions(**{**values, "size": 0, "kind": BILLED, "provider": provider})


def day_digest(sums: Sequence[BilledSum], *more: object) -> str:
    digest = sha256(repr(more).encode())
    for billed_sum in sums:
        digest.update(
            msgspec.json.encode(
                [*billed_sum.dimensions, *billed_sum[1:-1], money.units_to_text(billed_sum.amount)]
            )
        )
    return digest.hexdigest()


def _amount_texts(amounts: Mapping[str, int]) -> dict[str, str]:
    return {name: money.units_to_text(amount) for name, amount in sorted(amounts.items()) if amount}


def _format_dollars(units: int) -> str:
    return f"${money.units_to_text(units)}"


def _parse_units(field: str, amount: str | int) -> int:
    return money.text_to_units(check_amount(field, str(amount)))


def _normalize_invoice_date(text: str) -> str:
    if not text:
        return ""
    try:
        return date.fromisoformat(text).isoformat()
    except ValueError:
        raise Invalid("issued must be a day such as 2026-11-03") from None
