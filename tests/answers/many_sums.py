"""Write more totals into a ledger's engine than a test can send calls."""

from __future__ import annotations

from spool.ledger.ledger import Ledger
from spool.ledger.ledger_rows import LedgerRows
from spool.ledger.sums import COUNTS, HOUR_S, LATENCY, Dimensions
from spool.money import UNIT


async def fill(ledger: Ledger, *, combinations: int, hours: int, begin: int) -> None:
    """
    Add calls of `combinations` users per hour from `begin` (epoch seconds): 20 models, 10 teams, a dollar each.
    """
    measures = [*(1 for _ in COUNTS), UNIT, UNIT, *(1 for _ in LATENCY)]

    def work(ledger_rows: LedgerRows) -> None:
        numbers = ledger_rows.find_or_assign_dimension_set_numbers(
            [_dimensions(each) for each in range(combinations)]
        )
        for hour in range(hours):
            ledger_rows.add_sums(HOUR_S, [(begin + hour * HOUR_S, number, measures) for number in numbers])

    await ledger._store.change(work)


def _dimensions(number: int) -> Dimensions:
    model = f"model-{number % 20}"
    return Dimensions(
        "call", "litellm", "openai", model, model, f"team-{number % 10}", f"user-{number:05}", "", f"key-{number:05}",
        "", "ok", "reported", "", 0,
    )  # fmt: skip
