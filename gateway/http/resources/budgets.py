"""
A budget: what the calls of a view may cost.

`name`, `view`, `planned_limits`, `alerts`, `cost_type`, `granularity` and the expansions are the published
interface's; the other fields are Tollhouse's own, and may be left out.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

import msgspec
from msgspec import UnsetType

from gateway.http.resources.declaration import KEPT, Option, changes_of, item_of, one_of, words
from spool.registry.budgets import MAX_ALERTS, MAX_CHANNELS, MAX_NAME, MAX_PERCENT, MAX_PLANNED

CURRENT, HISTORY, BURNUP, FORECAST = "current", "history", "burnup", "forecast"
EXPANSIONS = (CURRENT, HISTORY, BURNUP, FORECAST)

Granularity = Literal["daily", "weekly", "monthly", "quarterly", "yearly"]
YesNo = Literal["Y", "N"]
BudgetMoney = Literal[
    "real_cost",
    "metered_cost",
    "covered_cost",
    "billed_cost",
    "discounted_cost",
    "amortized_cost",
    "discounted_amortized_cost",
    "invoiced_amortized_cost",
]


class ViewName(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    id: str


class PlannedAmount(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """Decimal text, or a whole number."""

    amount: str | int


class Silence(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """`until` is a day (UTC) or an RFC 3339 time: until then what is crossed is shown and not sent."""

    until: str
    reason: str = ""


PlannedLimits = dict[str, dict[str, PlannedAmount]]  # by granularity and first day


class NewBudget(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """
    `planned_limits` has the periods of the granularity; `default_amount` is for those that it does not
    name. `per` is a dimension: each of its values has the amount of its own. No `channels`: those of the
    view, else all.
    """

    name: Annotated[
        str, words(f"Unique within its view, whatever the case: 1 to {MAX_NAME} printable characters.")
    ]
    view: Annotated[ViewName, words("The view whose calls count.")]
    planned_limits: Annotated[
        PlannedLimits, words(f"Amounts by granularity and first day, of at most {MAX_PLANNED} periods.")
    ] = {}
    alerts: Annotated[
        dict[str, YesNo],
        words(
            f"Thresholds by what was spent: at most {MAX_ALERTS} percents of the amount, up to {MAX_PERCENT}."
        ),
    ] = {}
    cost_type: Annotated[
        BudgetMoney,
        words(
            "What the calls cost; metered_cost is without those that [plans](../plans.md) of assistants cover, "
            "covered_cost is of those alone: nobody pays it by the call; of the others see [billed "
            "money](../billed-costs.md): by days of UTC that have a bill."
        ),
        Option(
            help="real_cost counts all calls, metered_cost those that no plan of an assistant covers, "
            "covered_cost the others; what is left is what providers billed."
        ),
    ] = "real_cost"
    granularity: Annotated[
        Granularity | None,
        words("How long a period is; monthly, unless the plan says it."),
        Option("--every", help="How long a period is; default: monthly."),
    ] = None
    default_amount: Annotated[
        str | int | None,
        words("Of every period that the plan does not name."),
        Option("--amount", help="Limit per period, in dollars (or tokens, calls with --measure)."),
    ] = None
    time_zone: Annotated[
        str, words("Whose midnights begin a period, UTC by default; whole hours from UTC."), Option("--tz")
    ] = "UTC"
    measure: Annotated[
        str,
        words("What counts: cost, tokens, calls, or a [meter](../meters.md) such as web_searches."),
        Option(metavar="MEASURE", help="What counts: cost, tokens, calls, or a meter such as web_searches."),
    ] = "cost"
    per: Annotated[
        str | None,
        words("A dimension: each of its values has the whole amount."),
        Option(metavar="DIMENSION"),
    ] = None
    forecast_alerts: Annotated[
        dict[str, YesNo], words(f"Thresholds by what the period will come to; at most {MAX_ALERTS} percents.")
    ] = {}
    channels: Annotated[
        list[str],
        words(f"Where alerts go, at most {MAX_CHANNELS}; none: where the view says, else everywhere."),
        Option("--channel", "NAME", help="Where alerts go."),
    ] = []
    silence: Annotated[Silence | None, words("Until when crossings are shown and not sent, and why.")] = None


BudgetChanges = changes_of(
    NewBudget,
    types={"granularity": Annotated[Granularity, words("How long a period is.")]},
)
Expansion = dict[str, Any] | UnsetType | None
BudgetItem = item_of(
    NewBudget,
    """
    A budget as it is answered; times of the published interface are epoch seconds as text. `problem` says why it is not
    evaluated. `current`, `history`, `burnup` and `forecast` are there when they are asked for.
    """,
    types={"cost_type": str, "granularity": Granularity, "default_amount": str | None},
    answered={
        "per_label": Annotated[str | None, words("How people read `per`.")],
        "problem": Annotated[str | None, words("Why it is not evaluated.")],
        "billed_through": Annotated[
            str | None, words("Of billed money: the last day that a bill is about, by the last evaluation.")
        ],
        "percent": Annotated[
            int | None,
            words("Of the amount, of the owner that is furthest, by the last evaluation of these rules."),
        ],
        **KEPT,
        CURRENT: Annotated[Expansion, words("What was spent and planned in the running period.")],
        HISTORY: Annotated[Expansion, words("What was spent and planned in periods before.")],
        BURNUP: Annotated[Expansion, words("What was spent by each day of the running period.")],
        FORECAST: Annotated[Expansion, words("What the running period will come to.")],
    },
)
OneBudget = one_of(
    NewBudget,
    BudgetItem,
    "`already_past`, of one that was made or changed: percents that it is past already, which fire no alert.",
    already_past=list[int] | UnsetType | None,
)


class OwnerItem(msgspec.Struct, kw_only=True):
    owner: str | None
    actual: str
    planned: str | None
    percent: int | None
    forecast: str | None
    calls: int
    unpriced_calls: int
    unconverted: dict[str, str]
    fired: list[int]


class AlertItem(msgspec.Struct, kw_only=True):
    period: str
    owner: str | None
    kind: str
    percent: int
    state: str
    since: str
    fired_at: str | None
    value: str
    planned: str
    told: bool
    corrected_at: str | None
