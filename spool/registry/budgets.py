"""
Budgets: what the calls of a view may cost in a day, week, month, quarter or year. Values and rules; no file.

Field names are the published interface's where it has them. Amounts are decimal text.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from datetime import UTC, date, datetime, timedelta
from zoneinfo import ZoneInfo

from spool.errors import Invalid
from spool.ledger.periods import beginning
from spool.ledger.queries import BILLED_TYPES, PLAN_TYPES
from spool.meters import METERS
from spool.registry.insights import check_amount
from spool.registry.shared.documents import DocumentKind
from spool.registry.shared.edits import version_of
from spool.registry.shared.texts import check_one_of, check_text, optional_text

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
    default = _amount("default_amount", draft.default_amount) if draft.default_amount else ""
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
        yield day, _amount(f"planned_limits.{granularity}.{day}.amount", amount)


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


def _amount(field: str, amount: str) -> str:
    text = check_amount(amount, field=field)
    if text.startswith("-"):
        raise Invalid(f"{field} must not be negative")
    return text
