"""Operator API of units of work: how many are listed, and the cost of one unit with the tree of its agent runs."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import partial
from typing import Annotated, Any

import msgspec

from gateway.core.fields import one_field_answer
from gateway.http.requests import Result
from gateway.money.costs.continuing import work_units_with_calls_in_adjacent_days
from gateway.money.costs.listing import repeat_while_listing_changes
from gateway.money.costs.question import CostQuestion
from gateway.money.costs.work_tree import (
    EPOCH,
    RunNode,
    ancestor_runs,
    build_run_tree,
    nearest_listed_ancestors,
    parents_by_run,
)
from gateway.operations.holders.operators import MoneyServices
from gateway.operations.money.costs.questions import ONE_SPAN, read_time_range
from gateway.operations.money.work_links.declared import WorkLinkTable, stored_unit_links
from gateway.operations.requests.address import SLICED, operator_call
from gateway.operations.requests.requests import OperatorRequest
from spool.errors import NotThere
from spool.ledger.costs import combine_rows
from spool.ledger.dimensions import TAG
from spool.ledger.queries import CostQuery, CostRow
from spool.ledger.slices import SlicedLedger
from spool.ledger.sums import OTHER
from spool.ledger.work import (
    RUN,
    SESSION,
    TREES,
    UNITS,
    RunLineage,
    unit_digest_text,
    unit_number_from_name_or_digest,
)
from spool.ledger.work_links import WorkUnitLinks
from spool.record import utc_iso
from spool.registry.field_notes import example, words
from spool.registry.permission_sets import VIEW_COSTS

MOST_RUNS = 1000  # the most expensive runs of a unit are shown
_AGENT = f"{TAG}agent"
_MEASURES = ("cost", "calls", "errors", "input_tokens", "output_tokens")


class UnitCounts(msgspec.Struct, kw_only=True):
    unit: Annotated[str, words("The kind of the unit, such as `session`."), example("session")]
    listed: Annotated[int, words("The number of units of this month that costs list."), example(4112)]
    unlisted: Annotated[
        int, words("The number of units of all months whose calls are in `(other)`."), example(0)
    ]


class WorkStatus(msgspec.Struct, kw_only=True):
    since: Annotated[str, words("The start of the month."), example("2026-11-01T00:00:00.000Z")]
    units: Annotated[list[UnitCounts], words("The kinds of units.")]
    ids_per_month: Annotated[int, words("The setting `work.ids_per_month`."), example(100000)]
    links: Annotated[int, words("The number of links of units of work."), example(12)]
    max_links: Annotated[int, words("The maximum number of links."), example(10000)]
    pending_spans: Annotated[
        int, words("The spans of the last day that may link a call to its run."), example(48)
    ]
    max_pending_spans: Annotated[int, words("The maximum of `pending_spans`."), example(200000)]


class ShownUnit(msgspec.Struct, kw_only=True, rename={"from_": "from"}):
    unit: Annotated[str, words("The kind of the unit."), example("pull_request")]
    id: Annotated[str, words("The unit. A session or run is shown as its digest."), example("acme/shop#42")]
    from_: Annotated[str, words("The start of the period."), example("2026-08-30T00:00:00+00:00")]
    to: Annotated[str, words("The end of the period."), example("2026-11-27T12:00:00+00:00")]
    continues: Annotated[
        bool, words("Whether the unit also has calls in the day before `from` or after `to`."), example(False)
    ]


class UnitFigures(msgspec.Struct, kw_only=True):
    cost: Annotated[str, words("The cost of the calls."), example("0.41")]
    calls: Annotated[int, words("The number of calls."), example(6)]
    errors: Annotated[int, words("The number of failed calls."), example(0)]
    input_tokens: Annotated[int, words("The number of input tokens."), example(81200)]
    output_tokens: Annotated[int, words("The number of output tokens."), example(3100)]


class RunOfUnit(msgspec.Struct, kw_only=True):
    run: Annotated[
        str,
        words("The run of an agent, by the digest that costs show, or by its id if that is a UUID or ULID."),
        example("run:1c0f86a3be24d970"),
    ]
    session: Annotated[
        str | None, words("The session of the run, or null."), example("session:3f9c1a2b5d607e84")
    ]
    parent: Annotated[str | None, words("The run that started this one, or null."), example(None)]
    level: Annotated[int, words("The level in the tree: 1 without a run above it, at most 32."), example(1)]
    agents: Annotated[list[str], words("The agents of the run."), example(["lead"])]
    delegations: Annotated[int, words("The number of runs that the run started."), example(1)]
    own: Annotated[UnitFigures, words("The calls of the run.")]
    aggregated: Annotated[
        UnitFigures,
        words("The calls of the run and of the runs that it started."),
        example({"cost": "0.41", "calls": 6, "errors": 0, "input_tokens": 81200, "output_tokens": 3100}),
    ]


class UnitAnswer(msgspec.Struct, kw_only=True):
    work: Annotated[ShownUnit, words("The unit and its period.")]
    own: Annotated[UnitFigures, words("The calls of the unit.")]
    aggregated: Annotated[
        UnitFigures | None,
        words("The calls of the unit and of all runs that it started. Null except for sessions and runs."),
        example(None),
    ]
    without_run: Annotated[
        UnitFigures,
        words("The calls of the unit that name no run."),
        example({"cost": "0", "calls": 0, "errors": 0, "input_tokens": 0, "output_tokens": 0}),
    ]
    other_runs: Annotated[
        UnitFigures,
        words("The runs of the unit beyond the 1,000 most expensive ones."),
        example({"cost": "0", "calls": 0, "errors": 0, "input_tokens": 0, "output_tokens": 0}),
    ]
    started_by: Annotated[
        list[dict[str, str | None]],
        words("The runs above a run with the nearest first, or the sessions above a session."),
        example([]),
    ]
    started_sessions: Annotated[
        list[dict[str, Any]],
        words("The sessions that are linked to the session as started by it."),
        example([]),
    ]
    runs: Annotated[
        list[RunOfUnit],
        words("The runs of the unit and the runs that they started, in the order of their tree."),
    ]


@operator_call(
    "GET",
    "/work/status",
    VIEW_COSTS,
    "Show how many units of work are listed",
    in_turn=True,
    answers=one_field_answer(
        "WorkStatusAnswer", status=Annotated[WorkStatus, words("How many units are stored.")]
    ),
)
async def show_status(request: OperatorRequest[MoneyServices, None]) -> Result:
    """
    Show how many units of work of this month are listed, by kind. All closed records are counted first.

    `listed` are the units with calls since the first day of the month (UTC). `unlisted` are the units of any
    time whose calls are in `(other)`. `pending_spans` are the spans of the last day that may link a call to
    its agent's run.
    """
    services, most = request.services, request.shared.most
    await services.ledger.require_complete_totals(services.log)
    now = datetime.fromtimestamp(request.now(), UTC)
    month = now.replace(day=1, hour=0, minute=0, second=0, microsecond=0)
    counts = await services.ledger.count_listed_and_unlisted_units(month)
    return {
        "status": {
            "since": utc_iso(month.timestamp()),
            "units": [
                {"unit": unit, "listed": listed, "unlisted": unlisted}
                for unit, (listed, unlisted) in counts.items()
            ],
            "ids_per_month": most("work.ids_per_month"),
            "links": request.registry.declared_table(WorkLinkTable).count(),
            "max_links": most(WorkLinkTable.limit),
            "pending_spans": (await services.log.stats()).pending_spans,
            "max_pending_spans": most("spool.pending_spans"),
        }
    }


@operator_call(
    "GET",
    "/work/{unit}/{id}",
    VIEW_COSTS,
    "Show the cost of a session, run, pull request or other unit of work",
    optional=ONE_SPAN,
    shows=SLICED,
    in_turn=True,
    answers=UnitAnswer,
)
async def show_unit(request: OperatorRequest[MoneyServices, None]) -> Result:
    """
    Show one unit of work, by default of the last 90 days. All closed records are counted first.

    `runs` are the most expensive ones. `delegations` is the number of runs in the tree that another run
    started. Sessions and runs are shown as digests.
    """
    unit, name = request.path_parameter("unit"), request.path_parameter("id")
    if unit not in UNITS:
        raise NotThere(f"{unit} is no unit of work; use one of {', '.join(UNITS)}")
    if unit in TREES:
        name = request.definitions.digests.to_digest(unit, name)
    since, until, zone = read_time_range(request.http.query, request.now(), default="last_90d")
    question = CostQuestion(since=since, until=until, zone=zone, include={unit: (name,)}, measures=_MEASURES)
    question.check_span()
    reads = request.cost_reader
    await reads.ledger.require_complete_totals(request.services.log)
    make = partial(_work_unit_answer, request, question.query, unit, name)
    # whole: asks again if lists changed; the answer has visible calls
    return await repeat_while_listing_changes(reads.whole, question.query, make)


async def _work_unit_answer(
    request: OperatorRequest[MoneyServices, None], query: CostQuery, unit: str, name: str
) -> Result:
    reads, links = request.cost_reader, stored_unit_links(request.shared.registry)
    found = await _find_unit(reads.ledger, links, query, unit, name)
    around = await work_units_with_calls_in_adjacent_days(reads.ledger, query, unit, [name])
    known = _AGENT in await reads.visible_dimensions()
    agents = await _agents_by_run(reads.ledger, query, found.runs) if known else {}
    return {
        "work": {
            "unit": unit,
            "id": name,
            "from": query.since.isoformat(),
            "to": query.until.isoformat(),
            "continues": name in around,
        },
        "own": _describe_row(found.own),
        "aggregated": found.aggregated and _describe_row(found.aggregated),
        "without_run": _describe_row(found.without_run),
        "other_runs": _describe_row(found.others),
        "started_by": [] if reads.has_limited_data_access else found.started_by,
        "started_sessions": [
            {"session": row.group[0], "own": _describe_row(row), "aggregated": _describe_row(with_started)}
            for row, with_started in found.started_sessions
        ],
        "runs": await asyncio.to_thread(_describe_runs, found.runs, agents),
    }


@dataclass(frozen=True, kw_only=True)
class _UnitCosts:
    own: CostRow
    aggregated: CostRow | None  # aggregated costs, only for the units in TREES
    without_run: CostRow
    others: CostRow  # costs of the unit's runs beyond MOST_RUNS
    started_by: Sequence[Mapping[str, str | None]]
    # pairs of own and aggregated costs of the sessions that the unit started
    started_sessions: Sequence[tuple[CostRow, CostRow]]
    runs: Sequence[RunNode]


async def _find_unit(
    ledger: SlicedLedger, unit_links: WorkUnitLinks, query: CostQuery, unit: str, name: str
) -> _UnitCosts:
    is_tree = unit in TREES
    by_run = replace(query, group_by=(RUN,), top=MOST_RUNS)
    with_started = [replace(query, aggregated=True)] if is_tree else []
    sums, rows, *trees = await ledger.costs_of_queries([query, by_run, *with_started])
    own = {run: row for row in rows if (run := row.group[0]) is not None}
    others, own_runs = own.pop(OTHER, None), {*own, *((name,) if unit == RUN else ())}
    asked = (unit, [name]) if is_tree else (RUN, [*own])
    lineage, linked = await _read_run_lineages_and_linked_parents(
        ledger, unit_links, query, *asked, has_below=is_tree
    )
    parents = await asyncio.to_thread(parents_by_run, [*lineage, *linked])
    sessions = {each.run: each.session for each in lineage}
    has_above = await asyncio.to_thread(nearest_listed_ancestors, sessions, own_runs, parents)
    below = [run for run in sessions if run not in own and has_above[run] is not None]
    if is_tree and below:
        of_below = replace(by_run, include={RUN: tuple(below)})
        own |= {str(row.group[0]): row for row in await ledger.costs(of_below) if row.group != (OTHER,)}
    silent = [run for run in parents.values() if run not in sessions and ledger.is_whole]
    above = [run for run in ancestor_runs(own_runs, parents) if run not in own]
    of_tree = [*own, *(run for run in silent if unit != RUN or run not in above)]
    started_by: list[dict[str, str | None]] = [{"run": run, "session": sessions.get(run)} for run in above]
    if unit != RUN:
        others_above = dict.fromkeys(sessions[run] for run in above if run in sessions)
        if unit == SESSION:
            others_above |= dict.fromkeys(_linked_ancestors(unit_links, name))
        started_by = [{"session": session} for session in others_above] if is_tree else []
    whole = _sum_rows(sums)
    may_have_started = unit == SESSION and (ledger.has_every_call or whole.calls > 0)
    return _UnitCosts(
        own=whole,
        aggregated=_sum_rows(trees[0]) if trees else None,
        without_run=_sum_rows([row for row in rows if row.group == (None,)]),
        others=_sum_rows([others] if others else []),
        started_by=started_by,
        started_sessions=await _own_and_total_costs_of_started_sessions(ledger, unit_links, query, name)
        if may_have_started
        else (),
        runs=await asyncio.to_thread(build_run_tree, dict.fromkeys(of_tree), own, parents, sessions),
    )


async def _read_run_lineages_and_linked_parents(
    ledger: SlicedLedger,
    unit_links: WorkUnitLinks,
    query: CostQuery,
    unit: str,
    names: Sequence[str],
    *,
    has_below: bool,
) -> tuple[Sequence[RunLineage], Sequence[RunLineage]]:
    """
    Return the runs of the named units and the runs above and below them, also by links. Then return, for runs
    that state no parent, the parents by links.
    """
    most = 10 * MOST_RUNS
    new = [*(names if unit == RUN else ())]
    rows = {
        each.run: each
        for each in await ledger.run_lineage(query, unit, names, most, includes_runs_below=has_below)
    }
    new += [run for each in rows.values() for run in (each.run, each.parent) if run is not None]
    linked, reached = dict[str, RunLineage](), set(new)
    while new:
        near = set[str]()
        for run in new:
            number, row = unit_number_from_name_or_digest(RUN, run), rows.get(run)
            if row is None and not ledger.has_every_call:
                # skip links of hidden runs: reading them takes a further query, so the response time would
                # reveal them
                continue
            parent = unit_links.parent_of(RUN, number)
            if parent is not None and (row is None or row.parent is None):
                linked[run] = RunLineage(run, unit_digest_text(RUN, parent), None)
                near.add(unit_digest_text(RUN, parent))
            near |= (
                {unit_digest_text(RUN, each) for each in unit_links.find_children(RUN, number)}
                if has_below
                else set()
            )
        new = [*(near - reached)] if len(rows) < most else []
        if new:
            more = await ledger.run_lineage(query, RUN, new, most, includes_runs_below=has_below)
            rows |= {each.run: each for each in more}
            new += [run for each in more for run in (each.run, each.parent) if run and run not in reached]
            reached |= {*new}
    # leave out a link if one of its two runs has no visible calls, as aggregated costs do
    if not ledger.has_every_call:
        linked = {run: each for run, each in linked.items() if {run, each.parent} <= rows.keys()}
    return [*rows.values()], [*linked.values()]


def _linked_ancestors(unit_links: WorkUnitLinks, session: str) -> Iterator[str]:
    number = unit_number_from_name_or_digest(SESSION, session)
    while (parent := unit_links.parent_of(SESSION, number)) is not None:
        yield unit_digest_text(SESSION, number := parent)


async def _own_and_total_costs_of_started_sessions(
    ledger: SlicedLedger, unit_links: WorkUnitLinks, query: CostQuery, name: str
) -> Sequence[tuple[CostRow, CostRow]]:
    names = tuple(
        [
            unit_digest_text(SESSION, each)
            for each in unit_links.find_children(SESSION, unit_number_from_name_or_digest(SESSION, name))
        ]
    )
    if not names:
        return ()
    own = replace(query, group_by=(SESSION,), include={SESSION: names})
    rows, with_started = await ledger.costs_of_queries([own, replace(own, aggregated=True)])
    by_name = {row.group: row for row in rows}
    return [
        (by_name.get(row.group) or combine_rows([], start=EPOCH, group=row.group), row)
        for row in with_started
    ]


def _sum_rows(rows: Iterable[CostRow]) -> CostRow:
    return combine_rows(rows, start=EPOCH, group=())


async def _agents_by_run(
    ledger: SlicedLedger, query: CostQuery, runs: Sequence[RunNode]
) -> Mapping[str, Sequence[str]]:
    names = tuple(node.run for node in runs)
    rows = await ledger.costs(replace(query, group_by=(RUN, _AGENT), include={RUN: names})) if names else ()
    agents = defaultdict[str, list[str]](list)
    for row in rows:
        run, agent = row.group
        if run is not None and agent is not None:
            agents[run].append(agent)
    return agents


def _describe_runs(
    runs: Sequence[RunNode], agents: Mapping[str, Sequence[str]]
) -> Sequence[Mapping[str, Any]]:
    return [
        {
            "run": node.run,
            "session": node.session,
            "parent": node.parent,
            "level": node.level,
            "agents": agents.get(node.run, ()),
            "delegations": len(node.below),
            "own": _describe_row(node.own),
            "aggregated": _describe_row(node.aggregated),
        }
        for node in runs
    ]


def _describe_row(row: CostRow) -> Mapping[str, Any]:
    return {name: getattr(row, name) for name in _MEASURES}
