"""
Budgets: the amount that the calls of a view may cost in a period, and the alerts.

`name`, `view`, `planned_limits`, `alerts`, `cost_type`, `granularity` and the expansions belong to the published
interface. The other fields are Tollhouse's own and optional. The results of an evaluation (states of thresholds,
notices and insights) are stored in one transaction, so after a crash no alert is lost or sent twice.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta
from functools import cached_property, lru_cache
from typing import TYPE_CHECKING, Annotated, Any, Literal, TypeAlias
from zoneinfo import ZoneInfo

import msgspec
from msgspec import UnsetType

from gateway.core.fields import KEPT_IN_SECONDS, changes_struct, item_struct, one_item_answer_struct
from gateway.money.costs.times import parse_moment
from spool.errors import AlreadyThere, AskedTooMuch, Invalid
from spool.ledger.dimensions import BILLED_TYPES, PAID_COST, PLAN_TYPES
from spool.ledger.periods import period_beginning
from spool.meters import METERS
from spool.record import CURRENCY
from spool.registry.document_table import ManagedTable, Sees, is_name_taken
from spool.registry.documents import DocumentCollection, StoredForm, replace_fields, row_version
from spool.registry.field_notes import Option, example, example_id, words
from spool.registry.insights import Finding
from spool.registry.notices import Notice, add_notices
from spool.registry.operators import Actor
from spool.registry.registry_rows import RegistryRows
from spool.registry.tables.insights import merge_findings
from spool.registry.texts import (
    check_one_of,
    check_optional_text,
    check_optional_unsigned_amount,
    check_text,
    check_time_zone,
    check_unsigned_amount,
)
from spool.registry.views import VIEWS, SavedView

DAILY, WEEKLY, MONTHLY, QUARTERLY, YEARLY = "daily", "weekly", "monthly", "quarterly", "yearly"
GRANULARITIES = (DAILY, WEEKLY, MONTHLY, QUARTERLY, YEARLY)
COST, TOKENS, CALLS = "cost", "tokens", "calls"
MEASURES = (COST, TOKENS, CALLS)  # measures of a budget; a budget may also measure one of the METERS
REAL_COST = "real_cost"
UTC_ZONE = "UTC"
BUDGET_MONEY = (REAL_COST, *PLAN_TYPES, *BILLED_TYPES)

MAX_NAME = 200
MAX_REASON = 200
MAX_PLANNED = 400
MAX_ALERTS = 20
MAX_PERCENT = 1000
MAX_CHANNELS = 20
# days for which the offset of a time zone is checked: a year with its clock changes, and a margin
_ZONE_DAYS = 400


Granularity = Literal["daily", "weekly", "monthly", "quarterly", "yearly"]
YesNo = Literal["Y", "N"]
if TYPE_CHECKING:
    BudgetMoney: TypeAlias = str
else:
    BudgetMoney = Literal[BUDGET_MONEY]


class ViewName(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    id: Annotated[str, words("The id of the view.")]


class PlannedAmount(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """An amount as decimal text or as a whole number."""

    amount: Annotated[str | int, words("The amount of the period.")]


class Silence(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """
    A time until which crossed limits of a budget are shown but not sent. `until` is a day (UTC) or an RFC
    3339 time.
    """

    until: Annotated[str, words("Until when nothing is sent.")]
    reason: Annotated[str, words("Why nothing is sent.")] = ""


# planned amounts of a budget by granularity and first day
PlannedLimits = dict[str, dict[str, PlannedAmount]]


def planned_amounts(limits: PlannedLimits) -> Iterator[tuple[str, PlannedAmount]]:
    """Yield the first days of periods with their amounts."""
    for days in limits.values():
        yield from days.items()


def _planned_to_document(limits: Mapping[str, Mapping[str, Mapping[str, str]]]) -> Mapping[str, Any]:
    return {"planned": {day: limit["amount"] for days in limits.values() for day, limit in days.items()}}


def _planned_amounts_from_document(document: Mapping[str, Any]) -> Mapping[str, Any]:
    planned = {day: {"amount": amount} for day, amount in document["planned"].items()}
    return {document.get("granularity", MONTHLY): planned}


def _silence_to_document(silence: Mapping[str, str] | None) -> Mapping[str, Any]:
    if silence is None:
        return {"silent_until": 0.0, "silent_reason": ""}
    until = datetime.fromisoformat(silence["until"]).timestamp()
    return {"silent_until": until, "silent_reason": silence["reason"]}


def _alert_silence_from_document(document: Mapping[str, Any]) -> Mapping[str, Any] | None:
    until = document.get("silent_until", 0.0)
    if not until:
        return None
    moment = datetime.fromtimestamp(until, UTC).isoformat()
    return {"until": moment, "reason": document.get("silent_reason", "")}


class NewBudget(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The fields of a budget to create."""

    name: Annotated[
        str,
        words(f"Unique within its view, ignoring case. 1 to {MAX_NAME} printable characters."),
        example("search-monthly"),
    ]
    view: Annotated[
        ViewName,
        words("The view whose calls count."),
        example({"id": example_id("view")}),
        StoredForm(lambda view: {"view_id": view["id"]}, lambda document: {"id": document["view_id"]}),
    ]
    planned_limits: Annotated[
        PlannedLimits,
        words(f"Amounts by granularity and first day, for at most {MAX_PLANNED} periods."),
        example({"monthly": {"2026-12-01": {"amount": "7.50"}}}),
        StoredForm(_planned_to_document, _planned_amounts_from_document),
    ] = {}
    alerts: Annotated[
        dict[str, YesNo],
        words(
            f"Thresholds for actual spend: at most {MAX_ALERTS} percentages of the amount, up to "
            f"{MAX_PERCENT}."
        ),
        example({"80": "Y", "100": "Y"}),
    ] = {}
    cost_type: Annotated[
        BudgetMoney,
        words(
            "The costs that count. `metered_cost` leaves out calls that [plans](../bills/plans.md) of "
            "assistants cover. `covered_cost` counts only the calls that plans cover. `paid_cost` is "
            "`metered_cost` with the amounts of seats and contracts, by day. The "
            "other values count [billed money](../bills/billed-costs.md), on the days (UTC) that have a "
            "bill."
        ),
        example(REAL_COST),
        Option(
            help=(
                "Costs that count: real_cost for all calls, metered_cost for calls that no plan of an "
                "assistant covers, covered_cost for calls that a plan covers, paid_cost for metered_cost "
                "with the amounts of seats and contracts. The other values count "
                "provider bills."
            )
        ),
    ] = "real_cost"
    granularity: Annotated[
        Granularity | None,
        words("The length of a period. Default: the granularity of `planned_limits`, otherwise monthly."),
        example(MONTHLY),
        Option("--every", help="Length of a period; default: monthly."),
    ] = None
    default_amount: Annotated[
        str | int | None,
        words("Amount of each period that has no amount in `planned_limits`."),
        example("5", changed="6"),
        Option("--amount", help="Limit per period, in the currency (or tokens, calls with --measure)."),
    ] = None
    currency: Annotated[
        str,
        words(
            "ISO 4217 code of the amounts. Spend is converted at the [rate](../money/currencies.md) of each day; "
            "default: USD."
        ),
        example(CURRENCY),
        Option(metavar="CODE"),
    ] = "USD"
    time_zone: Annotated[
        str,
        words(
            "Periods begin at midnight in this zone. Its offset from UTC must be whole hours. Default: UTC."
        ),
        example(UTC_ZONE),
        Option("--tz"),
    ] = "UTC"
    measure: Annotated[
        str,
        words(
            "The quantity to count: cost, tokens, calls, or a [meter](../money/meters.md) such as web_searches."
        ),
        example(COST),
        Option(
            metavar="MEASURE", help="Quantity to count: cost, tokens, calls, or a meter such as web_searches."
        ),
    ] = "cost"
    per: Annotated[
        str | None,
        words("A dimension. Each of its values is an owner with the whole amount."),
        example(None),
        Option(metavar="DIMENSION"),
    ] = None
    forecast_alerts: Annotated[
        dict[str, YesNo],
        words(f"Thresholds for the forecast of the period: at most {MAX_ALERTS} percentages of the amount."),
        example({"100": "Y"}),
    ] = {}
    channels: Annotated[
        list[str],
        words(
            f"Channels for alerts, at most {MAX_CHANNELS}. Default: the channels of the view, otherwise "
            "all channels."
        ),
        example(["finops"]),
        Option("--channel", "NAME", help="Channel for alerts."),
    ] = []
    silence: Annotated[
        Silence | None,
        words("Time until which crossings are shown but not sent, and the reason."),
        example(None),
        StoredForm(_silence_to_document, _alert_silence_from_document),
    ] = None


# Fields on which alerts depend. If one of them changes, the running period is evaluated again.
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
    "currency",
)


class SpendBudget(NewBudget, frozen=True, kw_only=True, forbid_unknown_fields=False, dict=True):
    """
    A stored budget. Times are epoch seconds. `rules_since` is when a field of RULES, which decide about
    alerts, last changed.
    """

    granularity: Granularity = "monthly"
    default_amount: str = ""
    per: str = ""
    cost_type: str = REAL_COST  # cost type of the budget, which may be one of a newer release
    id: str
    created: float
    last_updated: float
    rules_since: float

    @cached_property
    def version(self) -> str:
        return row_version(self)

    @property
    def view_id(self) -> str:
        return self.view.id

    @cached_property
    def planned(self) -> Mapping[str, str]:
        """Return the amount of each planned period, by its first day."""
        return {day: str(limit.amount) for day, limit in planned_amounts(self.planned_limits)}

    @cached_property
    def notices_silenced_until(self) -> float:
        """Return until when crossings are only shown, in epoch seconds. 0 means that they are sent."""
        return datetime.fromisoformat(self.silence.until).timestamp() if self.silence else 0.0

    @property
    def zone(self) -> ZoneInfo:
        return ZoneInfo(self.time_zone)

    @property
    def cost_type_mask(self) -> int:
        """
        Return which kind of bills the budget counts, as a number of BILLED_TYPES. 0 means counted costs.
        """
        return BILLED_TYPES.get(self.cost_type, 0)

    def amount_for_period(self, first_day: str) -> str:
        """Return the amount planned for the period that begins on this day, or "" if there is none."""
        return self.planned.get(first_day, self.default_amount)


BUDGETS = DocumentCollection("budget", SpendBudget, "budget")


def enabled_percents(alerts: Mapping[str, str]) -> list[int]:
    """Return the percentages of the alerts that are switched on, ascending."""
    return sorted(int(percent) for percent, flag in alerts.items() if flag == "Y")


def check_budget(draft: NewBudget, *, now: float) -> NewBudget:
    """Return the fields in their stored form. Raises Invalid."""
    # imported here, because the import is slow and only this function needs it
    from spool.currencies import DECIMALS

    granularity: str = draft.granularity or MONTHLY
    check_one_of("granularity", granularity, GRANULARITIES)
    check_one_of("currency", draft.currency, DECIMALS)
    if draft.currency != CURRENCY and (draft.measure != COST or draft.cost_type in BILLED_TYPES):
        raise Invalid(
            f"a budget in {draft.currency} needs the measure {COST} and counted costs, because billed costs are "
            f"in {CURRENCY}"
        )
    if draft.measure not in METERS:
        check_one_of("measure", draft.measure, (*MEASURES, "a meter such as web_searches"))
    check_one_of("cost_type", draft.cost_type, BUDGET_MONEY)
    if draft.cost_type in BILLED_TYPES and (draft.measure != COST or draft.time_zone != UTC_ZONE):
        raise Invalid(
            f"a budget of {draft.cost_type} needs the measure {COST} and the time_zone {UTC_ZONE}, "
            "because bills state only money, by days in UTC"
        )
    amounts = list(planned_amounts(draft.planned_limits))
    if len(amounts) > MAX_PLANNED:
        raise Invalid(f"planned_limits accepts at most {MAX_PLANNED} periods")
    if len(draft.channels) > MAX_CHANNELS:
        raise Invalid(f"channels accepts at most {MAX_CHANNELS} names")
    default = check_optional_unsigned_amount(
        "default_amount", "" if draft.default_amount is None else str(draft.default_amount)
    )
    planned = dict(sorted(_check_planned_amounts(amounts, granularity)))
    if not planned and not default:
        raise Invalid("a budget needs an amount: set planned_limits or default_amount")
    return replace_fields(
        draft,
        name=check_text("name", draft.name, MAX_NAME),
        granularity=granularity,
        planned_limits={granularity: {day: PlannedAmount(amount=amount) for day, amount in planned.items()}},
        default_amount=default,
        per=draft.per or "",
        time_zone=_check_zone_name(draft.time_zone, granularity, now),
        alerts=_check_alert_percents("alerts", draft.alerts),
        forecast_alerts=_check_alert_percents("forecast_alerts", draft.forecast_alerts),
        channels=list(dict.fromkeys(check_text("channels", name, MAX_NAME) for name in draft.channels)),
        silence=draft.silence and _check_silence(draft.silence),
    )


def _check_silence(silence: Silence) -> Silence:
    until = parse_moment("silence.until", silence.until).astimezone(UTC)
    reason = check_optional_text("silence.reason", silence.reason, MAX_REASON)
    return Silence(until=until.isoformat(), reason=reason)


def _check_planned_amounts(
    amounts: Iterable[tuple[str, PlannedAmount]], granularity: str
) -> Iterator[tuple[str, str]]:
    seen = set()
    for text, planned in amounts:
        day = _parse_first_day(text, granularity)
        if day in seen:
            raise Invalid(f"planned_limits names the period {day} twice")
        seen.add(day)
        yield day, check_unsigned_amount(f"planned_limits.{granularity}.{day}.amount", str(planned.amount))


def _parse_first_day(text: str, granularity: str) -> str:
    """
    Parse the first day of a period. The text is a day, or a midnight as the published interface writes it.
    """
    try:
        when = datetime.fromisoformat(text)
        is_midnight = when.time().isoformat() == "00:00:00" and when.utcoffset() in (None, timedelta(0))
        first_day: date | None = when.date() if is_midnight else None
    except ValueError:
        first_day = None
    if first_day is None or not 2000 <= first_day.year < 2200:
        raise Invalid(f"planned_limits.{granularity} needs days such as 2026-11-01, not {text[:40]!r}")
    if (
        period_beginning(
            datetime(first_day.year, first_day.month, first_day.day, tzinfo=UTC), granularity
        ).date()
        != first_day
    ):
        raise Invalid(f"planned_limits.{granularity}: no {granularity} period begins on {first_day}")
    return first_day.isoformat()


def _check_alert_percents(field: str, alerts: Mapping[str, str]) -> dict[str, str]:
    if len(alerts) > MAX_ALERTS:
        raise Invalid(f"{field} accepts at most {MAX_ALERTS} percentages")
    for percent, flag in alerts.items():
        is_percent = percent.isascii() and percent.isdecimal() and percent[0] != "0" and len(percent) <= 4
        if not is_percent or int(percent) > MAX_PERCENT or flag not in ("Y", "N"):
            raise Invalid(
                f'{field} maps whole percentages from 1 to {MAX_PERCENT} to "Y" or "N", such as {{"80": "Y"}}'
            )
    return dict(sorted(alerts.items(), key=lambda item: int(item[0])))


def _check_zone_name(name: str, granularity: str, now: float) -> str:
    """
    Check a time zone and return its name. Its offset from UTC must be whole hours. Quarterly and yearly
    budgets must use UTC.

    The reason is that totals are stored by hours of UTC, and after 62 days only by days of UTC.
    """
    offsets = _zone_offsets(check_time_zone("time_zone", name), datetime.fromtimestamp(now, UTC).date())
    if any(offset % timedelta(hours=1) for offset in offsets):
        raise Invalid(
            "the offset of time_zone from UTC must be whole hours, because totals are stored by hours of UTC"
        )
    if granularity in (QUARTERLY, YEARLY) and offsets != {timedelta(0)}:
        raise Invalid(
            f"a {granularity} budget needs the time_zone UTC, because totals older than 62 days are "
            "stored only by days of UTC"
        )
    return name


@lru_cache(maxsize=16)  # cached, because applying settings checks many budgets with few time zones
def _zone_offsets(zone: ZoneInfo, today: date) -> frozenset[timedelta]:
    start = datetime.combine(today, time(), UTC)
    times = (start + timedelta(days=day) for day in range(_ZONE_DAYS))
    return frozenset(at.astimezone(zone).utcoffset() or timedelta(0) for at in times)


ACTUAL, FORECAST = "actual", "forecast"
KINDS = (ACTUAL, FORECAST)
PENDING, FIRED, CORRECTED, CLEARED = "pending", "fired", "corrected", "cleared"
STATES = (PENDING, FIRED, CORRECTED, CLEARED)


@dataclass(frozen=True, slots=True, kw_only=True)
class Alert:
    """
    A threshold that was reached, by actual spend or by the forecast.

    `since` is when the state began. `fired_at` is None while the alert is pending. `value` and `limit` are
    decimal text, as of the time when the alert fired or became pending. `told` means that a notice was
    stored. `corrected_at` is when a correction was recorded. A correction is sent only once. `below_since` is
    when a fired forecast fell below the threshold.
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
    The alerts of one budget in the period from `first_day` to `end` (epoch seconds).

    `rules` is a digest of the rules that were used. `owners` lists the owners that have an alert. The owner
    of a budget without owners is "".
    """

    budget_id: str
    first_day: str
    end: float
    rules: str
    owners: Mapping[str, tuple[Alert, ...]]

    @property
    def id(self) -> str:
        return f"{self.budget_id}.{self.first_day}"


BUDGET_ALERTS = DocumentCollection("budget_alerts", PeriodAlerts, "budget's alerts")


KEPT_S = 92 * 86400.0  # seconds for which alerts of a period stay stored after its end
NO_VIEW = "view.id: there is no view with this id"
FINDER = "budget"  # prefix of the keys of findings about budgets


@dataclass(frozen=True, slots=True, kw_only=True)
class BudgetDocuments:
    """The stored rows that an evaluation uses, read in the transaction that stores its results."""

    budgets: Sequence[SpendBudget]
    views: Mapping[str, SavedView]
    alerts: Mapping[str, PeriodAlerts]


@dataclass(frozen=True, slots=True, kw_only=True)
class JudgedBudgets:
    """
    The results of an evaluation: changed alerts, notices with their channels, and findings about all budgets.

    If `findings` is None, the insights stay unchanged.
    """

    alerts: Sequence[PeriodAlerts]
    notices: Sequence[tuple[Notice, Sequence[str]]]
    findings: Sequence[Finding] | None


def problem_with_units(budget: SpendBudget, view: SavedView) -> str | None:
    """
    Return why a budget cannot use its view's filter by a unit of work, such as a session, or None if it can.
    """
    unit = view.unit_of_work
    if unit is None:
        return None
    if budget.granularity == YEARLY:
        return (
            f"its view filters by {unit}, so a budget covers at most a quarter. For a year, add the tag {unit} to "
            f"[ledger] tags, and filter by tag:{unit}"
        )
    if budget.measure in METERS:
        return f"its view filters by {unit}, by which quantities of meters are not summed; use cost, calls or tokens"
    if budget.cost_type == PAID_COST or budget.cost_type_mask:
        return f"its view filters by {unit}, which {budget.cost_type} does not reach; use real_cost or metered_cost"
    return None


class BudgetTable(ManagedTable[SpendBudget]):
    """The table of budgets. A method that raises changes nothing."""

    kind = BUDGETS
    draft = NewBudget
    limit = "budgets.max"
    action = "budget"

    async def alerts_of_budget(self, id: str) -> list[PeriodAlerts]:
        all_alerts = await self._changes.read(BUDGET_ALERTS.all)
        return [alerts for alerts in all_alerts.values() if alerts.budget_id == id]

    def check_draft(self, draft: NewBudget) -> NewBudget:
        return check_budget(draft, now=self._changes.now())

    def require_known_dimensions(
        self, draft: NewBudget, stated_names: Collection[str], known_dimensions: Collection[str]
    ) -> None:
        if "per" in stated_names and draft.per and draft.per not in known_dimensions:
            raise Invalid(f"unknown dimension in per. Use one of: {', '.join(known_dimensions)}")

    def creation_fields(self, actor: Actor, now: float) -> Mapping[str, Any]:
        return {"rules_since": now}

    def with_reset_progress(
        self, before: SpendBudget, after: SpendBudget, actor: Actor, now: float
    ) -> SpendBudget:
        """
        Return the budget after a change. If the change affects a rule, the running period is evaluated from
        the start.
        """
        is_judged_anew = any(getattr(before, name) != getattr(after, name) for name in RULES)
        return replace_fields(after, rules_since=now) if is_judged_anew else after

    def check_conflicts(
        self,
        registry_rows: RegistryRows,
        stored: Mapping[str, SpendBudget],
        row: SpendBudget,
        can_see_row: Sees[SpendBudget],
    ) -> None:
        """Check that the view exists, suits the budget and has no other budget of this name."""
        view = VIEWS.find(registry_rows, row.view_id)
        if view is None:
            raise Invalid(NO_VIEW)
        if (problem := problem_with_units(row, view)) is not None:
            raise AskedTooMuch(problem)
        of_view = [budget for budget in stored.values() if budget.view_id == row.view_id]
        if is_name_taken(of_view, row, can_see_row):
            raise AlreadyThere(f"this view has a budget named {row.name!r}")

    def check_deletion(self, registry_rows: RegistryRows, row: SpendBudget) -> None:
        """Delete the alerts of the budget. The next evaluation closes its insight."""
        for alerts in BUDGET_ALERTS.all(registry_rows).values():
            if alerts.budget_id == row.id:
                BUDGET_ALERTS.delete(registry_rows, alerts.id)

    async def judge_and_store_alerts(
        self, judge: Callable[[BudgetDocuments], JudgedBudgets]
    ) -> JudgedBudgets:
        """
        Store the result of `judge` for the current rows, and delete old alerts, in one transaction. If it
        fails, nothing is stored.
        """
        now = self._changes.now()

        def judge_budgets_and_store_rows(registry_rows: RegistryRows) -> JudgedBudgets:
            alerts = BUDGET_ALERTS.all(registry_rows)
            for old in alerts.values():
                if old.end < now - KEPT_S:
                    BUDGET_ALERTS.delete(registry_rows, old.id)
            judged = judge(
                BudgetDocuments(
                    budgets=list(BUDGETS.all(registry_rows).values()),
                    views=VIEWS.all(registry_rows),
                    alerts=alerts,
                )
            )
            for changed in judged.alerts:
                BUDGET_ALERTS.store_row(registry_rows, changed)
            for notice, channels in judged.notices:
                add_notices(registry_rows, [notice], channels)
            if judged.findings is not None:
                merge_findings(registry_rows, judged.findings, looked_for=[FINDER], now=now)
            return judged

        return await self._changes.change_rows(judge_budgets_and_store_rows)


CURRENT, HISTORY, BURNUP = "current", "history", "burnup"
EXPANSIONS = (CURRENT, HISTORY, BURNUP, FORECAST)

# Granularity of an existing budget; unlike that of a new budget, it has no default.
_Granularity = Annotated[Granularity, words("The length of a period."), example(MONTHLY)]
BudgetChanges = changes_struct(NewBudget, types_by_field={"granularity": _Granularity})
Expansion = dict[str, Any] | UnsetType | None
_RUNNING_PERIOD = {
    "actual": "4.3096606", "planned": "5", "percent": 86,
    "start": "2026-11-01T00:00:00Z", "end": "2026-12-01T00:00:00Z",
    "calls": 4547, "unpriced_calls": 79, "unconverted": {}, "is_whole": True,
}  # fmt: skip
BudgetItem = item_struct(
    NewBudget,
    """
    A budget in a response. Times of the published interface are epoch seconds as text. `problem` is the reason why
    it is not evaluated. `current`, `history`, `burnup` and `forecast` are included if they were requested.
    """,
    types_by_field={"cost_type": str, "granularity": _Granularity, "default_amount": str | None},
    answer_only_fields={
        "per_label": Annotated[str | None, words("Label of the dimension `per`."), example(None)],
        "problem": Annotated[str | None, words("Why the budget is not evaluated."), example(None)],
        "state": Annotated[
            str,
            words(
                "State of the spend as of the last evaluation: `over` the amount, `over_threshold`, `within`, "
                "`no_amount`, `not_evaluated` or `not_evaluated_yet`. With owners, the highest spend decides."
            ),
            example("over_threshold", changed="within"),
        ],
        "billed_through": Annotated[
            str | None,
            words("For billed money: the last day with a bill, as of the last evaluation."),
            example(None),
        ],
        "percent": Annotated[
            int | None,
            words(
                "Percentage of the amount, as of the last evaluation with these rules. For a budget with "
                "owners, the highest percentage of an owner."
            ),
            example(86, changed=72),
        ],
        **KEPT_IN_SECONDS,
        CURRENT: Annotated[
            Expansion, words("Spend and planned amount of the running period."), example(_RUNNING_PERIOD)
        ],
        HISTORY: Annotated[Expansion, words("Spend and planned amounts of earlier periods.")],
        BURNUP: Annotated[Expansion, words("Accumulated spend by day of the running period.")],
        FORECAST: Annotated[Expansion, words("Forecast for the running period.")],
    },
)
OneBudget = one_item_answer_struct(
    NewBudget,
    BudgetItem,
    "`already_past` appears after a creation or a change. It lists the percentages that are already "
    "crossed, which fire no alert.",
    already_past=Annotated[
        list[int] | UnsetType | None,
        words("The thresholds that the spend already passed. No alert is sent for these."),
        example([80]),
    ],
)


class OwnerItem(msgspec.Struct, kw_only=True):
    owner: Annotated[str | None, words("The owner: a value of the dimension in `per`."), example("search")]
    actual: Annotated[str, words("The amount so far."), example("4.3096606")]
    planned: Annotated[str | None, words("The amount that the budget plans."), example("5")]
    percent: Annotated[int | None, words("The percentage of the planned amount that is spent."), example(86)]
    forecast: Annotated[str | None, words("The expected amount of the whole period."), example("5.12")]
    calls: Annotated[int, words("The number of calls."), example(4547)]
    unpriced_calls: Annotated[int, words("Calls that used something without a known price."), example(79)]
    unconverted: Annotated[
        dict[str, str], words("Amounts in currencies without a rate, by currency."), example({})
    ]
    fired: Annotated[list[int], words("The thresholds that are passed."), example([80])]


class AlertItem(msgspec.Struct, kw_only=True):
    period: Annotated[str, words("The first day of the period."), example("2026-11-01")]
    owner: Annotated[str | None, words("The owner: a value of the dimension in `per`."), example("search")]
    kind: Annotated[
        str, words("What passed the threshold: `actual` spend or the `forecast`."), example(ACTUAL)
    ]
    percent: Annotated[int, words("The threshold, as a percentage of the planned amount."), example(80)]
    state: Annotated[str, words("The state of the alert."), example(FIRED)]
    since: Annotated[str, words("When the threshold was passed."), example("1795743905.7")]
    fired_at: Annotated[str | None, words("When the alert was raised."), example("1795743905.7")]
    value: Annotated[str, words("The spend or forecast that passed the threshold."), example("4.3096606")]
    planned: Annotated[str, words("The amount that the budget plans."), example("5")]
    told: Annotated[bool, words("Whether a notification was sent."), example(True)]
    corrected_at: Annotated[
        str | None, words("When a later report took the alert back, or null."), example(None)
    ]
