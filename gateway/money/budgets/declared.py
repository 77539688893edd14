"""
A budget: what the calls of a view may cost in a period, and its alerts.

`name`, `view`, `planned_limits`, `alerts`, `cost_type`, `granularity` and the expansions are the published
interface's; the other fields are Tollhouse's own, and may be left out. What an evaluation found is kept in one
transaction: the states of thresholds, their notices and their insights. A process that is killed has kept all of it or
nothing, so no alert is lost and none is told twice.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, date, datetime, timedelta
from typing import TYPE_CHECKING, Annotated, Any, Literal, TypeAlias
from zoneinfo import ZoneInfo

import msgspec
from msgspec import UnsetType

from gateway.http.resources.declaration import KEPT, Option, changes_of, item_of, one_of, words
from spool.errors import AlreadyThere, Invalid
from spool.ledger.periods import beginning
from spool.ledger.queries import BILLED_TYPES, PLAN_TYPES
from spool.meters import METERS
from spool.registry.document_table import ManagedTable, Sees, is_taken
from spool.registry.documents import DocumentKind, version_of
from spool.registry.insights import Finding
from spool.registry.notices import Notice, add_notices
from spool.registry.operators import Actor
from spool.registry.registry_rows import RegistryRows
from spool.registry.tables.insights import merge_findings
from spool.registry.texts import check_one_of, check_text, check_unsigned, optional_text, optional_unsigned
from spool.registry.views import VIEWS, View

DAILY, WEEKLY, MONTHLY, QUARTERLY, YEARLY = "daily", "weekly", "monthly", "quarterly", "yearly"
GRANULARITIES = (DAILY, WEEKLY, MONTHLY, QUARTERLY, YEARLY)
COST, TOKENS, CALLS = "cost", "tokens", "calls"
MEASURES = (COST, TOKENS, CALLS)  # and each of METERS
REAL_COST = "real_cost"
UTC_ZONE = "UTC"
BUDGET_MONEY = (REAL_COST, *PLAN_TYPES, *BILLED_TYPES)

MAX_NAME = 200
MAX_REASON = 200
MAX_PLANNED = 400
MAX_ALERTS = 20
MAX_PERCENT = 1000
MAX_CHANNELS = 20
_ZONE_DAYS = 400  # for which offsets of a zone are looked at: a year, and its clock changes


@dataclass(frozen=True, slots=True, kw_only=True)
class BudgetDraft:
    """
    What a person or a key states of a budget.

    `planned` are amounts by the first day of a period; a period without one has `default_amount`, or with ""
    no limit. `alerts` and `forecast_alerts` are "Y" or "N" by percent of the amount. `per` is a dimension:
    each of its values is an owner with the whole amount of its own. `channels` are where alerts go, empty: to
    every channel that takes them. Until `silent_until` (epoch seconds) what is crossed is shown and not sent.
    `cost_type` is of BUDGET_MONEY: with METERED_COST calls that plans of assistants cover do not count, with
    COVERED_COST they alone do. `measure` is of MEASURES, or a meter. With one
    of BILLED_TYPES it is about what providers billed, by days that have a bill.
    """

    name: str
    view_id: str
    granularity: str = MONTHLY
    planned: Mapping[str, str]
    default_amount: str = ""
    time_zone: str = UTC_ZONE
    measure: str = COST
    per: str = ""
    alerts: Mapping[str, str]
    forecast_alerts: Mapping[str, str]
    channels: tuple[str, ...] = ()
    silent_until: float = 0.0
    silent_reason: str = ""
    cost_type: str = REAL_COST


# What an alert depends on: a change of any of them re-evaluates the running period.
RULES = (
    "view_id",
    "granularity",
    "planned",
    "default_amount",
    "time_zone",
    "measure",
    "per",
    "alerts",
    "forecast_alerts",
    "cost_type",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class SpendBudget(BudgetDraft):
    """As it is kept. Times are epoch seconds; `rules_since` is when one of RULES was changed last."""

    id: str
    created: float
    last_updated: float
    rules_since: float

    @property
    def version(self) -> str:
        return version_of(self)

    @property
    def zone(self) -> ZoneInfo:
        return ZoneInfo(self.time_zone)

    @property
    def arranged(self) -> int:
        """The arrangement of bills that it is about; 0: what was counted."""
        return BILLED_TYPES.get(self.cost_type, 0)

    def amount(self, first_day: str) -> str:
        """Return the amount planned for the period that begins on this day; "" if there is none."""
        return self.planned.get(first_day, self.default_amount)


BUDGETS = DocumentKind("budget", SpendBudget, "budget")


def percents(alerts: Mapping[str, str]) -> list[int]:
    """The percents that are on, ascending."""
    return sorted(int(percent) for percent, wanted in alerts.items() if wanted == "Y")


def check_budget(draft: BudgetDraft, *, now: float) -> BudgetDraft:
    """The draft in its stored form; Invalid names the field and the rule."""
    check_one_of("granularity", draft.granularity, GRANULARITIES)
    if draft.measure not in METERS:
        check_one_of("measure", draft.measure, (*MEASURES, "a meter such as web_searches"))
    check_one_of("cost_type", draft.cost_type, BUDGET_MONEY)
    if draft.cost_type in BILLED_TYPES and (draft.measure != COST or draft.time_zone != UTC_ZONE):
        raise Invalid(
            f"a budget of {draft.cost_type} has the measure {COST} and the time_zone {UTC_ZONE}: a bill tells money"
            " alone, by days of UTC"
        )
    if len(draft.planned) > MAX_PLANNED:
        raise Invalid(f"planned_limits has at most {MAX_PLANNED} periods")
    if len(draft.channels) > MAX_CHANNELS:
        raise Invalid(f"channels has at most {MAX_CHANNELS} names")
    default = optional_unsigned("default_amount", draft.default_amount)
    planned = dict(sorted(_planned(draft.planned, draft.granularity)))
    if not planned and not default:
        raise Invalid("a budget needs an amount: planned_limits, or default_amount")
    return replace(
        draft,
        name=check_text("name", draft.name, MAX_NAME),
        planned=planned,
        default_amount=default,
        time_zone=_zone(draft.time_zone, draft.granularity, now),
        alerts=_alerts("alerts", draft.alerts),
        forecast_alerts=_alerts("forecast_alerts", draft.forecast_alerts),
        channels=tuple(dict.fromkeys(check_text("channels", name, MAX_NAME) for name in draft.channels)),
        silent_reason=optional_text("silence.reason", draft.silent_reason, MAX_REASON),
    )


def _planned(planned: Mapping[str, str], granularity: str) -> Iterator[tuple[str, str]]:
    seen = set()
    for text, amount in planned.items():
        day = _first_day(text, granularity)
        if day in seen:
            raise Invalid(f"planned_limits names the period {day} twice")
        seen.add(day)
        yield day, check_unsigned(f"planned_limits.{granularity}.{day}.amount", amount)


def _first_day(text: str, granularity: str) -> str:
    """The first day of a period: a day, or its midnight as the published interface writes it."""
    try:
        when = datetime.fromisoformat(text)
        is_midnight = when.time().isoformat() == "00:00:00" and when.utcoffset() in (None, timedelta(0))
        found: date | None = when.date() if is_midnight else None
    except ValueError:
        found = None
    if found is None or not 2000 <= found.year < 2200:
        raise Invalid(f"planned_limits.{granularity} has days such as 2026-11-01, not {text[:40]!r}")
    if beginning(datetime(found.year, found.month, found.day, tzinfo=UTC), granularity).date() != found:
        raise Invalid(f"planned_limits.{granularity}: no {granularity} period begins on {found}")
    return found.isoformat()


def _alerts(field: str, alerts: Mapping[str, str]) -> dict[str, str]:
    if len(alerts) > MAX_ALERTS:
        raise Invalid(f"{field} has at most {MAX_ALERTS} percents")
    for percent, wanted in alerts.items():
        is_percent = percent.isascii() and percent.isdecimal() and percent[0] != "0" and len(percent) <= 4
        if not is_percent or int(percent) > MAX_PERCENT or wanted not in ("Y", "N"):
            raise Invalid(
                f'{field} is "Y" or "N" by whole percents from 1 to {MAX_PERCENT}, such as {{"80": "Y"}}'
            )
    return dict(sorted(alerts.items(), key=lambda item: int(item[0])))


def _zone(name: str, granularity: str, now: float) -> str:
    """A zone by whose midnights the ledger can add up: it keeps hours of UTC, and after 62 days whole days alone."""
    try:
        zone = ZoneInfo(name)
    except (ValueError, OSError, LookupError):  # a bad name, a directory, an unknown zone
        raise Invalid("time_zone must be the name of a time zone, such as Europe/Berlin") from None
    today = datetime.fromtimestamp(now, UTC)
    offsets = {(today + timedelta(days=day)).astimezone(zone).utcoffset() for day in range(_ZONE_DAYS)}
    if any((offset or timedelta(0)) % timedelta(hours=1) for offset in offsets):
        raise Invalid(
            "time_zone must be a zone whose offset from UTC is whole hours: costs are kept by hours of UTC"
        )
    if granularity in (QUARTERLY, YEARLY) and offsets != {timedelta(0)}:
        raise Invalid(
            f"a {granularity} budget has the time_zone UTC: after 62 days costs are kept by days of UTC alone"
        )
    return name


ACTUAL, FORECAST = "actual", "forecast"
KINDS = (ACTUAL, FORECAST)
PENDING, FIRED, CORRECTED, CLEARED = "pending", "fired", "corrected", "cleared"
STATES = (PENDING, FIRED, CORRECTED, CLEARED)


@dataclass(frozen=True, slots=True, kw_only=True)
class Alert:
    """
    A threshold that was met: a percent of the amount, by what was spent or by its forecast.

    `since` is when the state began, `fired_at` None while it is pending. `value` and `limit` are decimal text
    of the moment that it fired or began to wait. `told`: a notice was stored. `corrected_at`: the notice that
    it is not met any more, which is sent once. `below_since`: of a forecast that fired.
    """

    kind: str
    percent: int
    state: str
    since: float
    value: str
    limit: str
    fired_at: float | None = None
    told: bool = False
    corrected_at: float | None = None
    below_since: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class PeriodAlerts:
    """
    Of one budget and the period that begins on `first_day` and ends at `end` (epoch seconds).

    `rules` is a digest of the rules that they were judged by. `owners` has those with an alert; a budget
    without owners has "".
    """

    budget_id: str
    first_day: str
    end: float
    rules: str
    owners: Mapping[str, tuple[Alert, ...]]

    @property
    def id(self) -> str:
        return f"{self.budget_id}.{self.first_day}"


BUDGET_ALERTS = DocumentKind("budget_alerts", PeriodAlerts, "budget's alerts")


KEPT_S = 92 * 86400.0  # the alerts of a period are shown for so long after its end
NO_VIEW = "view.id: there is no view with this id"
FINDER = "budget"  # before the keys of findings about budgets


@dataclass(frozen=True, slots=True, kw_only=True)
class Kept:
    """The rows that an evaluation is judged by, read in the transaction that keeps what it finds."""

    budgets: Sequence[SpendBudget]
    views: Mapping[str, View]
    alerts: Mapping[str, PeriodAlerts]


@dataclass(frozen=True, slots=True, kw_only=True)
class Judged:
    """
    What an evaluation found: alerts that changed, notices each with its channels, and what holds now of all
    budgets. `findings` None leaves the insights as they are.
    """

    alerts: Sequence[PeriodAlerts]
    notices: Sequence[tuple[Notice, Sequence[str]]]
    findings: Sequence[Finding] | None


class BudgetTable(ManagedTable[SpendBudget]):
    """Create, change and delete budgets. A method that raises (Invalid, NotAllowed, NotThere) changes nothing."""

    kind = BUDGETS
    draft = BudgetDraft
    limit = "budgets.max"
    action = "budget"

    async def alerts(self, id: str) -> list[PeriodAlerts]:
        """The alerts of a budget, by period."""
        found = await self._changes.read(BUDGET_ALERTS.all)
        return [alerts for alerts in found.values() if alerts.budget_id == id]

    def checked(self, draft: BudgetDraft) -> BudgetDraft:
        return check_budget(draft, now=self._changes.now())

    def check_known(self, draft: BudgetDraft, given: Collection[str], known: Collection[str]) -> None:
        if "per" in given and draft.per and draft.per not in known:
            raise Invalid(f"unknown dimension in per. Use one of: {', '.join(known)}")

    def made(self, actor: Actor, now: float) -> Mapping[str, Any]:
        return {"rules_since": now}

    def changed(self, before: SpendBudget, after: SpendBudget, actor: Actor, now: float) -> SpendBudget:
        """A change of the rules re-evaluates the running period."""
        is_judged_anew = any(getattr(before, name) != getattr(after, name) for name in RULES)
        return replace(after, rules_since=now) if is_judged_anew else after

    def check_place(
        self,
        rows: RegistryRows,
        stored: Mapping[str, SpendBudget],
        row: SpendBudget,
        sees: Sees[SpendBudget],
    ) -> None:
        """A budget hangs on a view that exists, under a name that no other budget of the view has."""
        if VIEWS.find(rows, row.view_id) is None:
            raise Invalid(NO_VIEW)
        of_view = [each for each in stored.values() if each.view_id == row.view_id]
        if is_taken(of_view, row, sees):
            raise AlreadyThere(f"this view has a budget named {row.name!r}")

    def check_deletion(self, rows: RegistryRows, row: SpendBudget) -> None:
        """Its alerts go with it. Its insight is closed by the next evaluation."""
        for alerts in BUDGET_ALERTS.all(rows).values():
            if alerts.budget_id == row.id:
                BUDGET_ALERTS.delete(rows, alerts.id)

    async def keep(self, judge: Callable[[Kept], Judged]) -> Judged:
        """Keep what `judge` finds from the rows of this moment, all of it or nothing."""
        now = self._changes.now()

        def work(rows: RegistryRows) -> Judged:
            alerts = BUDGET_ALERTS.all(rows)
            for old in alerts.values():
                if old.end < now - KEPT_S:
                    BUDGET_ALERTS.delete(rows, old.id)
            judged = judge(
                Kept(budgets=list(BUDGETS.all(rows).values()), views=VIEWS.all(rows), alerts=alerts)
            )
            for changed in judged.alerts:
                BUDGET_ALERTS.put(rows, changed)
            for notice, channels in judged.notices:
                add_notices(rows, [notice], channels)
            if judged.findings is not None:
                merge_findings(rows, judged.findings, looked_for=[FINDER], now=now)
            return judged

        return await self._changes.change(work)


CURRENT, HISTORY, BURNUP = "current", "history", "burnup"
EXPANSIONS = (CURRENT, HISTORY, BURNUP, FORECAST)

Granularity = Literal["daily", "weekly", "monthly", "quarterly", "yearly"]
YesNo = Literal["Y", "N"]
if TYPE_CHECKING:
    BudgetMoney: TypeAlias = str
else:
    BudgetMoney = Literal[BUDGET_MONEY]


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
