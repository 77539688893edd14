"""Cost queries of tools: a time range in words or days, filters with existing values, and a view."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, timedelta
from typing import TYPE_CHECKING, Annotated, Any, Literal

import msgspec

from gateway.mcp.tool import ToolCallContext
from gateway.mcp.writing import did_you_mean, remove_hidden_characters
from gateway.money.costs.measures import MAX_TOP, REAL_COST
from gateway.money.costs.question import CostQuestion, check_span, check_units
from gateway.money.costs.times import parse_moment
from gateway.operations.holders.operators import MoneyServices
from spool.errors import Invalid
from spool.ledger.dimensions import BILLED_DIMENSIONS, BILLED_TYPES, PAID_COST, PAID_DIMENSIONS, TOTAL
from spool.ledger.periods import RANGES, Span, named_span
from spool.ledger.queries import CostQuery, CostRow, next_full_hour
from spool.ledger.work import UNITS
from spool.people import SECOND_NAME, USER, People
from spool.registry.roles import COUNTED_TYPES
from spool.viewed_people import collect_viewed_people

Filters = Annotated[
    dict[str, list[str | None]],
    msgspec.Meta(
        description=(
            'Values by dimension, such as {"team": ["search"], "!model": ["gpt-4o"]}. Before a name, ! '
            "excludes the values, & matches values that contain the text in any case, and !& excludes "
            "these. null is the unknown value"
        )
    ),
]

ZONE = "UTC"
# names of periods that are different for assistants; all other periods have the same name
RANGE_WORDS = {
    "last_7d": "last_7_days",
    "last_30d": "last_30_days",
    "last_90d": "last_90_days",
    "this_month": "month_to_date",
    "this_year": "year_to_date",
}
RANGES_OF_WORDS: Mapping[str, str] = {
    **{RANGE_WORDS.get(name, name): name for name in RANGES},
    **{name: name for name in ("this_month", "this_year")},
}
if TYPE_CHECKING:
    RangeWord = str
else:
    RangeWord = Literal[tuple(RANGES_OF_WORDS)]


@dataclass(frozen=True, slots=True, kw_only=True)
class _FoundValues:
    """The values of a dimension that exist: in the requested time (`in_range`) and at any time (`ever`)."""

    dimension: str
    in_range: Sequence[str | None]
    ever: Sequence[str]
    is_billed: bool = False

    @property
    def missing_value_error(self) -> str:
        beginning = "no billed costs in this time have the" if self.is_billed else "there is no"
        return f"{beginning} {self.dimension}"


async def build_question(
    call_context: ToolCallContext[MoneyServices],
    date_range: RangeWord | DayRange,
    *,
    filters: Mapping[str, Sequence[str | None]],
    view: str | None = None,
    group_by: Sequence[str] = (),
    granularity: str = TOTAL,
    cost_type: str = REAL_COST,
) -> tuple[CostQuestion, list[str]]:
    """
    Return the query, and notes for the reader of the result.

    Raises Invalid or Refusal for an unknown dimension, value or view; the message suggests the nearest. Raises
    AskedTooMuch for units of work in another query than their totals can answer.
    """
    since, until = date_range_span(date_range, call_context.shared.clock.now())
    known = await call_context.cost_reader.visible_dimensions(cost_type, includes_work_units=True)
    for name in group_by:
        _require_known_dimension(name, known)
    for name in filters:
        _require_known_dimension(_dimension_of_filter(name), known)
    everything = CostQuery(since=since, until=until, granularity=TOTAL, measures=("calls",))
    include: dict[str, tuple[str, ...]] = {}
    exclude: dict[str, tuple[str, ...]] = {}
    notes: list[str] = []
    for name, values in filters.items():
        dimension = _dimension_of_filter(name)
        look = _match_values_by_text if "&" in name[: -len(dimension)] else _match_exact_values
        call_context.shared.people.reject_dropped_names(value or "" for value in values)
        # without similar values: there are too many units to search, and no call has a charge or a plan
        if dimension in UNITS or (cost_type == PAID_COST and dimension in PAID_DIMENSIONS):
            chosen = exclude if name.startswith("!") else include
            chosen[dimension] = tuple(value or "" for value in values)
            continue
        with collect_viewed_people(None):
            known_values = await _fetch_known_values(
                call_context, replace(everything, group_by=[dimension]), cost_type
            )
        matched_values, value_notes = await look(known_values, values, call_context.shared.people)
        notes += value_notes
        if name.startswith("!"):
            exclude[dimension] = (*exclude.get(dimension, ()), *matched_values)
        else:
            included = set(include.get(dimension, matched_values))
            include[dimension] = tuple(value for value in matched_values if value in included)
            if values and not include[dimension]:
                raise Invalid(f"no value passes both filters on {dimension}; leave one of them out")
    cost_question = CostQuestion(
        since=since,
        until=until,
        per=granularity,
        by=tuple(group_by),
        include=include,
        exclude=exclude,
        view=None if view is None else await call_context.cost_reader.find_view(view),
        cost_type=cost_type,
        top=MAX_TOP if not UNITS.keys().isdisjoint(group_by) else None,
        # a result of counted costs has all counted cost types; a result of billed costs has only its own type
        tells=() if cost_type in BILLED_TYPES else COUNTED_TYPES,
    )
    check_units(cost_question.query, cost_type)
    check_span(cost_question.query)
    return cost_question, notes


def _require_known_dimension(name: str, known_names: Sequence[str]) -> None:
    if name not in known_names:
        raise Invalid(
            f"there is no dimension {remove_hidden_characters(name)}{did_you_mean(name, known_names)}: "
            f"{', '.join(known_names)}"
        )


def _dimension_of_filter(name: str) -> str:
    return name.removeprefix("!").removeprefix("&")


async def _fetch_known_values(
    call_context: ToolCallContext[MoneyServices], query: CostQuery, cost_type: str
) -> _FoundValues:
    """Return the values that a filter may name. For billed costs: those of calls and of bills."""
    [dimension] = query.group_by
    range_values: list[str | None] = []
    ever: Sequence[str] = ()
    arranged = BILLED_TYPES.get(cost_type, 0)
    if dimension not in BILLED_DIMENSIONS:
        for name in (dimension, SECOND_NAME) if dimension == USER else (dimension,):
            rows = await call_context.visible_ledger.costs(replace(query, group_by=(name,)))
            range_values += await asyncio.to_thread(_group_values, rows)
            ever = [*ever, *await call_context.visible_ledger.values(name)]
    if arranged:
        billed = replace(_extend_to_whole_days(query), arranged=arranged, measures=())
        rows = await call_context.cost_reader.ledger_for_cost_types((cost_type,)).costs(billed)
        range_values += await asyncio.to_thread(_group_values, rows)
    is_billed = dimension in BILLED_DIMENSIONS
    return _FoundValues(dimension=dimension, in_range=range_values, ever=ever, is_billed=is_billed)


def _group_values(rows: Sequence[CostRow]) -> list[str | None]:
    return [row.group[0] for row in rows]


def _extend_to_whole_days(query: CostQuery) -> CostQuery:
    since = query.since.astimezone(UTC)
    until = query.until.astimezone(UTC)
    first = since.replace(hour=0, minute=0, second=0, microsecond=0)
    last = until.replace(hour=0, minute=0, second=0, microsecond=0)
    end = last if last == until else last + timedelta(days=1)
    return replace(query, since=first, until=end)


async def _match_values_by_text(
    known_values: _FoundValues, wanted_values: Sequence[str | None], people: People
) -> tuple[tuple[str, ...], Sequence[str]]:
    """
    Return the values that contain one of the texts, and notes. Raises Invalid if no value contains a text.
    """
    dimension = known_values.dimension
    ever = known_values.ever
    range_values = [value for value in known_values.in_range if value]
    folded = await asyncio.to_thread(
        lambda: [(value, remove_hidden_characters(value).casefold()) for value in range_values]
    )
    matched: list[str] = []
    notes = []
    for wanted_value in wanted_values:
        texts = [
            remove_hidden_characters(form).casefold()
            for form in people.all_recorded_names(wanted_value or "")
        ]
        if not all(texts):
            raise Invalid(
                f"a filter with & before {dimension} needs a text to search for; use null in a filter "
                "without &"
            )
        passing = [value for value, folded_value in folded if any(text in folded_value for text in texts)]
        if not passing:
            passing = [
                value
                for value in ever
                if any(text in remove_hidden_characters(value).casefold() for text in texts)
            ]
            notes.append(
                f"no call in this time has a {dimension} that contains {remove_hidden_characters(wanted_value or '')}"
            )
        if not passing:
            nearest = await asyncio.to_thread(did_you_mean, texts[0], [*range_values, *ever])
            raise Invalid(f"no {dimension} contains {remove_hidden_characters(wanted_value or '')}{nearest}")
        matched += passing
    return tuple(dict.fromkeys(matched)), notes


def _values_by_clean_name(values: Iterable[str | None]) -> Mapping[str, list[str]]:
    values_by_name: dict[str, list[str]] = {}
    for value in values:
        values_by_name.setdefault(remove_hidden_characters(value or ""), []).append(value or "")
    return values_by_name


async def _match_exact_values(
    known_values: _FoundValues, wanted_values: Sequence[str | None], people: People
) -> tuple[tuple[str, ...], Sequence[str]]:
    """
    Return the values as the totals have them, and notes about values without a call in the time range. Raises
    Invalid for a value that never occurred.
    """
    dimension = known_values.dimension
    ever = known_values.ever
    range_values = set(known_values.in_range)
    by_name = await asyncio.to_thread(_values_by_clean_name, range_values)
    matched: list[str] = []
    notes = []
    for wanted_value in wanted_values:
        value = wanted_value or ""
        forms = people.all_recorded_names(value)
        if not value:
            matched.append(value)
        elif known := [form for form in forms if form in range_values]:
            matched += known
        elif value in by_name:
            matched += by_name[value]
        elif known := [form for form in forms if form in ever]:
            matched += known
            notes.append(f"no call in this time has the {dimension} {remove_hidden_characters(value)}")
        else:
            nearest = await asyncio.to_thread(did_you_mean, value, [*by_name, *ever])
            raise Invalid(f"{known_values.missing_value_error} {remove_hidden_characters(value)}{nearest}")
    return tuple(dict.fromkeys(matched)), notes


def billed_note(billed: Mapping[str, Any]) -> str:
    """Return a note about billed costs: how many days have final bills, and what the costs leave out."""
    day_counts = ", ".join(f"{count} {state}" for state, count in billed["days"].items())
    return (
        f"days with bills: {day_counts}; days without a final bill have no billed costs; rows without a team "
        "may include costs that belong to no call"
    )


class DayRange(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """A range of days. The last day is included; without it, the range lasts until now."""

    start: Annotated[str, msgspec.Meta(description="First day, YYYY-MM-DD (UTC)")]
    end: Annotated[str | None, msgspec.Meta(description="Last day, included; default: today")] = None


DateRange = Annotated[
    RangeWord | DayRange,
    msgspec.Meta(
        description="A named range, or {start, end} as UTC days; last_7_days and similar ranges include today"
    ),
]


def date_range_span(date_range: RangeWord | DayRange, now: float) -> Span:
    """
    Return start and end (exclusive). Raises Invalid for days that do not exist or end before they begin.
    """
    if isinstance(date_range, DayRange):
        since = parse_moment("date_range.start", date_range.start)
        until = (
            next_full_hour(now)
            if date_range.end is None
            else parse_moment("date_range.end", date_range.end, end=True)
        )
    else:
        since, until = named_span(RANGES_OF_WORDS[date_range], now)
    if since >= until:
        raise Invalid("the start of date_range must be before its end")
    return since, until
