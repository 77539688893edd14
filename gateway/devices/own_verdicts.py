"""
The verdicts on budgets that a gateway states to a device in the answer to a heartbeat. The agent keeps them
only in memory, and they end at `valid_until`.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from typing import Annotated

import msgspec

from spool.registry.field_notes import example, words

MOST = 100  # maximum rows for one device, with exceeded budgets first
OFF, STATE, AMOUNTS = "off", "state", "amounts"  # values of the setting devices.verdicts
OVER = "over"


class OwnVerdict(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    name: Annotated[str, words("The name of the budget."), example("Search team")]
    state: Annotated[
        str, words("`over`, `near` or `within`, as in the verdicts on budgets."), example("over")
    ]
    resets_at: Annotated[
        str, words("When the next period of the budget begins."), example("2026-12-01T00:00:00Z")
    ]
    spent: Annotated[
        str | None, words("What was spent of the budget in the running period."), example("102.5")
    ] = None
    limit: Annotated[str | None, words("The amount of the running period."), example("100")] = None
    currency: Annotated[str | None, words("The currency of the amounts."), example("USD")] = None


class OwnVerdicts(msgspec.Struct, frozen=True, kw_only=True):
    """
    The verdicts on the budgets of a device and its person, as rows. A budget without a row is within its
    limit.
    """

    valid_until: Annotated[
        str, words("When the verdicts end, unless newer ones arrive."), example("2026-11-29T14:02:55Z")
    ]
    rows: Annotated[list[OwnVerdict], words("A row for each budget with a state other than `within`.")]


class NewestBudgetVerdicts:
    """The newest verdicts that the gateway stated for this device, in memory."""

    def __init__(self, now: Callable[[], float]) -> None:
        self._now = now
        self._kept: OwnVerdicts | None = None
        self._until = 0.0

    def replace_with_json_text(self, text: bytes) -> None:
        """Replace the verdicts. A text without valid verdicts means that there are none."""
        self._kept = None
        try:
            kept = msgspec.json.decode(text, type=OwnVerdicts | None)
            if kept is not None:
                self._until = datetime.fromisoformat(kept.valid_until).timestamp()
        except (ValueError, RecursionError):
            return
        self._kept = kept

    def reason_to_refuse_calls(self) -> str:
        if self._kept is None or self._now() >= self._until:
            return ""
        return next((_refusal_sentence(row) for row in self._kept.rows if row.state == OVER), "")


def _refusal_sentence(row: OwnVerdict) -> str:
    amounts = (
        "" if row.spent is None else f" ({row.spent} of {row.limit} {row.currency or ''})".replace(" )", ")")
    )
    return f"Tollhouse: the budget {row.name} is spent{amounts} until {row.resets_at}."
