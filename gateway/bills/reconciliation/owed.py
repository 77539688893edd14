"""Claims against a provider for a discount that it owes, as text and as rows. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, fields

from gateway.bills.reconciliation.cells import BilledCountedDifference
from gateway.bills.reconciliation.claims import TIER_NOT_GIVEN, CauseClaim
from gateway.bills.reconciliation.sides import STANDARD, VOLUME, ComparisonCell
from gateway.bills.reconciliation.wording import day_text
from spool import money
from spool.printable import replace_unprintable

FORMATS = ("text", "csv")


@dataclass(slots=True, kw_only=True)
class OwedLine:
    """
    Tokens of one day, model, key and kind that were billed above the price that is due. Money is in money units.

    `reported` is the tier that the source reported, and `billed_as` the tier of the bill.
    """

    day: int
    model: str
    key: str
    region: str
    kind: str
    reported: str
    billed_as: str
    tokens: int = 0
    billed: int = 0
    due: int = 0

    @property
    def owed_amount(self) -> int:
        return self.billed - self.due


COLUMNS = ("provider", "accounts", *(item.name for item in fields(OwedLine)), "owed")


def lines_owed_by_provider(
    claims: Iterable[CauseClaim], bill_difference: BilledCountedDifference
) -> list[OwedLine]:
    """
    Return the lines of the bill that cost too much because the provider did not give a tier's discount. The
    sum of their `owed_amount` is the sum of the claims.

    The provider billed the tokens of a line in another tier than the reported one, or in the reported tier at
    a higher price.
    """
    lines: dict[tuple[ComparisonCell, str], OwedLine] = {}
    for claim in claims:
        for (part, cell, kind), portion in claim.parts.items() if claim.cause == TIER_NOT_GIVEN else ():
            line = lines.setdefault(
                (cell._replace(tier=STANDARD) if part == VOLUME else cell, f"{part} {kind}"),
                OwedLine(
                    day=cell.day,
                    model=cell.model,
                    key=cell.key,
                    region=cell.region,
                    kind=kind,
                    reported=cell.tier,
                    billed_as=STANDARD if part == VOLUME else cell.tier,
                ),
            )
            if part != VOLUME:
                line.tokens += bill_difference.sold.get((cell, kind), 0)
                line.billed += bill_difference.paid.get((cell, kind), 0)
                line.due += bill_difference.paid.get((cell, kind), 0) - portion.amount
            elif portion.amount > 0:
                line.tokens += portion.tokens
                line.billed += portion.amount
            else:
                line.due -= portion.amount
                line.reported = line.reported or cell.tier
    return sorted(lines.values(), key=lambda line: (line.day, line.model, line.key, line.region, line.kind))


def owed_rows(
    provider: str, accounts: Sequence[str], lines: Iterable[OwedLine]
) -> Iterator[Sequence[object]]:
    """Yield a header, and a row with exact amounts for each owed line."""
    yield COLUMNS
    for line in lines:
        yield (
            provider,
            " ".join(accounts),
            day_text(line.day),
            line.model,
            line.key,
            line.region,
            line.kind,
            line.reported or "standard",
            line.billed_as or "standard",
            line.tokens,
            money.units_to_text(line.billed),
            money.units_to_text(line.due),
            money.units_to_text(line.owed_amount),
        )


def owed_text(
    provider: str, accounts: Sequence[str], period: tuple[str, str], lines: Sequence[OwedLine]
) -> str:
    """Return a text for the provider that demands the owed discounts."""
    first, last = period
    heading = [f"Provider: {provider}", f"Account: {', '.join(accounts) or 'not stated in the bill'}"]
    heading.append(f"Period: {first} to {last} (UTC)")
    if not lines:
        return "\n".join((*map(replace_unprintable, heading), "", "No discount is owed for this period.", ""))
    billed, due = (sum(getattr(line, name) for line in lines) for name in ("billed", "due"))
    body = [
        "The calls below were sent and answered in a tier with a discount, but were billed without it.",
        "Amounts are in US dollars at list prices. Please credit the difference.",
    ]
    rows = [_owed_discount_sentence(line) for line in lines]
    total = f"Total of {len(lines):,} lines: billed {money.units_to_text(billed)}, due {money.units_to_text(due)}, "
    total += f"owed {money.units_to_text(billed - due)}"
    return "\n".join(
        (*map(replace_unprintable, heading), "", *body, "", *map(replace_unprintable, rows), "", total, "")
    )


def _owed_discount_sentence(line: OwedLine) -> str:
    place = [day_text(line.day), line.model or "all models", line.key or "all keys", line.region, line.kind]
    reported, billed_as = (tier or "standard" for tier in (line.reported, line.billed_as))
    return (
        f"{', '.join(filter(None, place))}: {line.tokens:,} tokens of the tier {reported}, billed as {billed_as}; "
        f"billed {money.units_to_text(line.billed)}, due {money.units_to_text(line.due)}, "
        f"owed {money.units_to_text(line.owed_amount)}"
    )
