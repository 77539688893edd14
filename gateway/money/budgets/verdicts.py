"""
The table of verdicts: which budgets are over or near their amounts now, for gateways that refuse calls
themselves.

No call waits for this module. A table is computed only when a reader requests it and the stored table is too
old, so an installation without readers has no work.
"""

from __future__ import annotations

import asyncio
import logging
import math
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from functools import cached_property
from hashlib import blake2b
from typing import TYPE_CHECKING, Annotated

import msgspec

from gateway.core.errors import RECOUNT_RETRY_S, Refusal
from gateway.money.budgets.declared import COST, BudgetTable, SpendBudget, enabled_percents
from gateway.money.budgets.figures import BudgetFigures, BudgetLedger, OwnerSpend
from gateway.money.budgets.judging import planned_limit, rules_digest
from gateway.money.budgets.opa_bundle import build_bundle
from gateway.money.budgets.overshoot import highest_spend_in_span
from spool import money
from spool.clock import Clock
from spool.errors import SpoolError, TotalsIncomplete
from spool.ledger.dimensions import TAG
from spool.ledger.ledger import Ledger
from spool.log.protocols import ReadableLog
from spool.log.values import LogEntry
from spool.record import AI_TELEMETRY, NS, Inference, utc_iso
from spool.registry.field_notes import example, words
from spool.registry.registry import Registry
from spool.registry.views import SavedView
from spool.turns.fair_turns import current_work, run_in_background

if TYPE_CHECKING:
    from gateway.devices.agent.policy.signatures import SigningKey, WebTokenSigningKey

OVER, NEAR, WITHIN = "over", "near", "within"
ACTING, ALL = "acting", "all"  # contents of a table: only rows with the states OVER and NEAR, or all rows
TABLES = (ACTING, ALL)
MAX_ROWS = 20_000
VALID_S = 300.0
REFRESH_S = 10.0  # age in seconds from which a requested table is compared with the ledger again
RENEW_S = 60.0  # age in seconds from which an unchanged table gets a new end of validity
MEASURE_S = 600.0  # age in seconds from which the delays of calls are measured again
MEASURED = 4096  # number of the newest records whose delays are measured
MAX_SOURCES = 64  # maximum sources whose delays are measured
LOOK_S = 1.0  # seconds between checks for a newer stored table
# dimensions that an enforcer knows before a call, in addition to tags
KNOWN_BEFORE = frozenset({"api_key", "team", "user", "device", "source", "model", "provider"})

_log = logging.getLogger(__name__)
_ORDER = {OVER: 0, NEAR: 1, WITHIN: 2}


class VerdictMatch(msgspec.Struct, frozen=True, kw_only=True):
    include: Annotated[
        dict[str, list[str]],
        words("By dimension, the values of a call that counts. Empty text means unknown."),
        example({"team": ["search"]}),
    ]
    exclude: Annotated[
        dict[str, list[str]], words("By dimension, the values of a call that does not count."), example({})
    ]


_MATCH = {"include": {"team": ["search"]}, "exclude": {}}


class BudgetVerdict(msgspec.Struct, frozen=True, kw_only=True):
    budget: Annotated[str, words("The id of the budget."), example("bud_1")]
    name: Annotated[str, words("The name of the budget."), example("search-monthly")]
    owner: Annotated[str | None, words("The owner: a value of the dimension in `per`."), example(None)]
    match: Annotated[VerdictMatch, words("Which calls count toward the budget."), example(_MATCH)]
    state: Annotated[
        str,
        words(
            "`over`: spend of at least the limit. `near`: it passed the highest alert below 100 %. `within`: neither."
        ),
        example(OVER),
    ]
    measure: Annotated[str, words("What counts: cost, tokens, calls, or a meter."), example(COST)]
    # null if budgets.verdict_amounts is false
    spent: Annotated[str | None, words("The amount so far, as exact decimal text, or null."), example("7.61")]
    limit: Annotated[str | None, words("The amount of the running period, or null."), example("7.50")]
    left: Annotated[str | None, words("The limit less the spend, or 0, or null."), example("0")]
    currency: Annotated[
        str | None, words("The currency of the amounts, or null if they are no money."), example("USD")
    ]
    resets_at: Annotated[str, words("When the next period begins."), example("2027-01-01T00:00:00.000Z")]
    unpriced_calls: Annotated[
        int, words("The number of calls without a known cost, which `spent` does not include."), example(0)
    ]
    delay_s: Annotated[
        int,
        words(
            "The seconds from the end of a call until a reader that waits has its spend, for 99 % of the calls."
        ),
        example(27),
    ] = 0
    lets_through: Annotated[
        str | None,
        words(
            "No span of `delay_s` in the last seven days had a higher spend. So much may pass after the limit is "
            "reached. Null if amounts are left out."
        ),
        example("0.84"),
    ] = None


class VerdictProblem(msgspec.Struct, frozen=True, kw_only=True):
    budget: Annotated[str, words("The id of the budget."), example("bud_2")]
    name: Annotated[str, words("The name of the budget."), example("failed calls")]
    problem: Annotated[str, words("Why the budget has no verdict."), example("its view filters by status")]


_PROBLEM = {"budget": "bud_2", "name": "failed calls", "problem": "its view filters by status"}
_ROW = {
    "budget": "bud_1", "name": "search-monthly", "owner": None, "match": _MATCH, "state": OVER, "measure": COST,
    "spent": "7.6114", "limit": "7.50", "left": "0", "currency": "USD", "resets_at": "2027-01-01T00:00:00.000Z",
    "unpriced_calls": 0, "delay_s": 27, "lets_through": "0.84",
}  # fmt: skip


class SourceDelay(msgspec.Struct, frozen=True, kw_only=True):
    calls: Annotated[int, words("The number of measured calls."), example(4096)]
    median_s: Annotated[
        float, words("The median of the seconds from the end of a call until it is stored."), example(2.1)
    ]
    most_s: Annotated[
        float,
        words("The seconds from the end of a call until it is stored that 99 % of the calls do not exceed."),
        example(5.3),
    ]


_DELAYS = {"litellm": {"calls": 4096, "median_s": 2.1, "most_s": 5.3}}


class BudgetVerdicts(msgspec.Struct, frozen=True, kw_only=True):
    """
    The verdicts on all budgets. Until `valid_until`, a budget or owner without a row is `within`, unless
    `truncated`.
    """

    as_of: Annotated[str, words("When the sums were read."), example("2026-12-09T12:00:00.000Z")]
    valid_until: Annotated[
        str,
        words("When the table expires. Then the enforcer decides by itself."),
        example("2026-12-09T12:05:00.000Z"),
    ]
    version: Annotated[
        int, words("The number of this table of verdicts. A later table has a higher one."), example(41)
    ]
    truncated: Annotated[
        bool, words(f"Whether rows are missing, because a table has at most {MAX_ROWS:,}."), example(False)
    ]
    budgets: Annotated[list[str], words("The ids of the evaluated budgets."), example(["bud_1"])]
    problems: Annotated[list[VerdictProblem], words("The budgets without a verdict."), example([_PROBLEM])]
    delays: Annotated[
        dict[str, SourceDelay],
        words("By source, how long its calls take to arrive. The spend of a call counts only afterwards."),
        example(_DELAYS),
    ] = {}
    rows: Annotated[list[BudgetVerdict], words("The verdicts, `over` first."), example([_ROW])]


@dataclass(frozen=True, slots=True, kw_only=True)
class SignedTable:
    body: bytes
    signature: bytes  # Ed25519 signature of the body
    tag: str


@dataclass(slots=True)
class _TableInMemory:
    """A table in the memory of this process, with its signed form. Times are monotonic seconds."""

    table: BudgetVerdicts
    signed: SignedTable
    read_at: float
    compared_at: float = float("-inf")
    bundle: bytes = b""  # the table as an OPA bundle, which is made when it is first requested


class BudgetVerdictBoard:
    """Computes, stores and signs the tables of verdicts. `budget_ledger` returns a view of the totals as of now."""

    def __init__(
        self,
        registry: Registry,
        ledger: Ledger,
        record_log: ReadableLog,
        clock: Clock,
        budget_ledger: Callable[[], BudgetLedger],
        has_amounts: Callable[[], bool] = lambda: True,
        hold_s: Callable[[], float] = lambda: 0.0,
        report: Callable[[BudgetVerdicts, float], Awaitable[None]] | None = None,
    ) -> None:
        self._registry = registry
        self._ledger = ledger
        self._log = record_log
        self._clock = clock
        self._books = budget_ledger
        self._has_amounts = has_amounts  # setting budgets.verdict_amounts
        self._hold_s = hold_s  # spool.hold: seconds for which late reports may change a record
        self._report = report  # called with changed states, to report them to webhooks
        self._turns = {name: asyncio.Lock() for name in TABLES}
        self._kept: dict[str, _TableInMemory] = {}
        self._owners: Mapping[str, int] = {}  # budget id -> number of owners in its last verdicts
        self._delays: dict[str, SourceDelay] = {}
        self._measured_at = float("-inf")
        # budget id -> inputs of the last bounds, time of reading, and bound by owner
        self._bounds: dict[str, tuple[object, float, Mapping[str, int]]] = {}

    @cached_property
    def signing_key(self) -> SigningKey:
        """Return the key that signs tables. It is the same in every gateway of an installation."""
        from gateway.devices.agent.policy.signatures import SigningKey, private_pem_from_seed

        return SigningKey(private_pem_from_seed(self._registry.verdicts.seed))

    @cached_property
    def bundle_signing_key(self) -> WebTokenSigningKey:
        """Return the key that signs OPA bundles. It is the same in every gateway of an installation."""
        from gateway.devices.agent.policy.signatures import WebTokenSigningKey

        return WebTokenSigningKey(self._registry.verdicts.bundle_seed)

    async def current_signed_table(self, name: str) -> SignedTable:
        """
        Return the signed table, whose rows are at most REFRESH_S behind the ledger.

        If the database fails, or while the totals are being counted again, return the last table. Raises
        Refusal 503 if there is none.
        """
        async with self._turns[name]:
            kept = self._kept.get(name)
            if kept is None or self._clock.monotonic() - kept.read_at >= LOOK_S:
                try:
                    kept = await self._refresh_table_in_memory(name, kept)
                except SpoolError as error:
                    _log.warning(
                        "the verdicts on budgets could not be renewed: %s",
                        error,
                        extra={"action": "verdicts_not_renewed"},
                    )
            if kept is None:
                message = "the totals are being counted again; try again in a minute"
                raise Refusal(503, "no_verdicts", message, retry_after_s=RECOUNT_RETRY_S)
            self._kept[name] = kept
            return kept.signed

    async def current_table(self, name: str) -> BudgetVerdicts:
        await self.current_signed_table(name)
        return self._kept[name].table

    async def wait_for_newer_table(
        self, name: str, tag: str, wait_s: float, stopping: asyncio.Event
    ) -> SignedTable:
        """
        Wait until the table's tag differs from `tag`, and return the signed table. Return the current table
        after `wait_s` seconds or when the server stops.
        """
        due = self._clock.monotonic() + wait_s
        while True:
            signed = await self.current_signed_table(name)
            left_s = due - self._clock.monotonic()
            if signed.tag != tag or left_s <= 0:
                return signed
            with suppress(TimeoutError):
                async with asyncio.timeout(min(LOOK_S, left_s)):
                    await stopping.wait()
                    return signed

    async def signed_bundle(self, name: str, signed: SignedTable) -> bytes:
        async with self._turns[name]:
            kept = self._kept[name]
            if kept.signed != signed:
                return await asyncio.to_thread(
                    self._build_bundle, msgspec.json.decode(signed.body, type=BudgetVerdicts)
                )
            if not kept.bundle:
                kept.bundle = await asyncio.to_thread(self._build_bundle, kept.table)
            return kept.bundle

    def _build_bundle(self, table: BudgetVerdicts) -> bytes:
        return build_bundle(
            msgspec.json.encode(table, order="sorted"), table.version, self.bundle_signing_key
        )

    async def _refresh_table_in_memory(self, name: str, kept: _TableInMemory | None) -> _TableInMemory | None:
        """Read the stored table. Compute it again if it was last compared with the ledger REFRESH_S ago."""
        now = self._clock.monotonic()
        compared_at = kept.compared_at if kept else float("-inf")
        table = await self._read_stored_table(name, kept)
        if now - compared_at >= REFRESH_S:
            try:
                new = await self._compute_in_background(name)
            except TotalsIncomplete:
                pass  # the stored table stays in force
            else:
                compared_at = now
                table = await self._store_if_changed(name, new, table)
        if table is None:
            return None
        if kept is not None and kept.table is table:
            kept.read_at, kept.compared_at = now, compared_at
            return kept
        return _TableInMemory(table, await asyncio.to_thread(self._sign_table, table), now, compared_at)

    async def _read_stored_table(self, name: str, kept: _TableInMemory | None) -> BudgetVerdicts | None:
        """Return the stored table. Its rows are not read if the table in memory has the same version."""
        version = await self._registry.verdicts.version(name)
        if kept is not None and kept.table.version == version:
            return kept.table
        stored = await self._registry.verdicts.get(name)
        return None if stored is None else await asyncio.to_thread(msgspec.convert, stored, BudgetVerdicts)

    async def _store_if_changed(
        self, name: str, new: BudgetVerdicts, old: BudgetVerdicts | None
    ) -> BudgetVerdicts:
        """
        Store `new` if its rows differ from `old`, or if `old` is RENEW_S old. Return the table that is stored
        afterwards.

        If `name` is ACTING, changed states are reported to webhooks before the table is stored.
        """
        if old is not None:
            age_s = parse_time_s(new.as_of) - parse_time_s(old.as_of)
            if 0 <= age_s < RENEW_S and await asyncio.to_thread(_has_same_verdicts, new, old):
                return old
        after = 0 if old is None else old.version
        if name == ACTING and self._report is not None:
            await self._report(new, parse_time_s(new.as_of))
        body = await asyncio.to_thread(msgspec.to_builtins, new)
        stored = await self._registry.verdicts.store_unless_newer(name, body, previous_version=after)
        return await asyncio.to_thread(msgspec.convert, stored, BudgetVerdicts)

    def _sign_table(self, table: BudgetVerdicts) -> SignedTable:
        body = msgspec.json.encode(table, order="deterministic")
        tag = blake2b(body, digest_size=16).hexdigest()
        return SignedTable(body=body, signature=self.signing_key.sign(body), tag=f'"{tag}"')

    async def _compute_in_background(self, name: str) -> BudgetVerdicts:
        """Compute a table as background work, behind requests, because all readers share the result."""
        work = current_work()
        making = self._compute_table(name)
        return await (making if work is None else run_in_background(work.turns, making))

    async def _compute_table(self, name: str) -> BudgetVerdicts:
        """
        Compute a table of budget verdicts from the current totals. Raises TotalsIncomplete while the totals are
        counted again.
        """
        await self._ledger.require_complete_totals(self._log)
        books = self._books()
        of_views = [
            (budget, self._registry.views.find(budget.view_id))
            for budget in self._registry.declared_table(BudgetTable).all()
        ]
        await books.read_sums_of_similar_budgets(
            [(budget, view) for budget, view in of_views if view is not None], self._owners
        )
        figures = [await books.read_running_figures(budget, view) for budget, view in of_views]
        self._owners = {each.budget.id: each.periods[0].owner_count for each in figures if each.periods}
        table = await asyncio.to_thread(build_verdict_table, figures, name, books.now)
        delays = await self.remeasure_source_delays_if_due()
        listed = {row.budget for row in table.rows}
        bounds = {
            of_budget.budget.id: await self._read_overshoot_bounds(books, of_budget, delays)
            for of_budget in figures
            if of_budget.budget.id in listed
        }
        rows = await asyncio.to_thread(_with_delay_and_overshoot, table.rows, bounds, self._has_amounts())
        return msgspec.structs.replace(table, rows=rows, delays=delays)

    async def _read_overshoot_bounds(
        self, budget_ledger: BudgetLedger, figures: BudgetFigures, delays: Mapping[str, SourceDelay]
    ) -> tuple[int, Mapping[str, int]]:
        """
        Return the longest delay in seconds with which a budget's calls arrive, and by owner the most that is
        spent in this time. The bounds are computed again after MEASURE_S or a change of the rules.
        """
        budget, view = figures.budget, figures.view
        assert view is not None, "a budget without a view has no rows"
        delay_s = self._longest_delay_s(view, delays)
        of = (rules_digest(budget, view), delay_s)
        read_for, read_at, bounds = self._bounds.get(budget.id, (None, 0.0, {}))
        now = self._clock.monotonic()
        if read_for != of or now - read_at >= MEASURE_S:
            bounds = await highest_spend_in_span(budget_ledger, budget, view, delay_s)
            self._bounds[budget.id] = of, now, bounds
        return delay_s, bounds

    def _longest_delay_s(self, view: SavedView, delays: Mapping[str, SourceDelay]) -> int:
        named = view.include.get("source")
        longest_s = max(
            (delay.most_s for source, delay in delays.items() if named is None or source in named),
            default=0.0,
        )
        return math.ceil(longest_s + self._hold_s() + REFRESH_S + LOOK_S)

    async def remeasure_source_delays_if_due(self) -> dict[str, SourceDelay]:
        """
        Return, by source, how late the newest calls arrived. The delays are measured again after MEASURE_S.
        """
        now = self._clock.monotonic()
        if now - self._measured_at >= MEASURE_S:
            last = self._log.lowest_open_number(AI_TELEMETRY) - 1
            entries = (
                await self._log.read(AI_TELEMETRY, max(1, last - MEASURED + 1), last) if last > 0 else ()
            )
            self._delays = await asyncio.to_thread(delays_by_source, entries)
            self._measured_at = now
        return self._delays


def _has_same_verdicts(new: BudgetVerdicts, old: BudgetVerdicts) -> bool:
    as_before = {name: getattr(old, name) for name in ("as_of", "valid_until", "version", "delays", "rows")}
    return (
        msgspec.structs.replace(new, **as_before) == old
        and len(new.rows) == len(old.rows)
        and all(map(_is_same_verdict, new.rows, old.rows))
    )


def _is_same_verdict(new: BudgetVerdict, old: BudgetVerdict) -> bool:
    return msgspec.structs.replace(new, delay_s=old.delay_s, lets_through=old.lets_through) == old


def _with_delay_and_overshoot(
    rows: Iterable[BudgetVerdict],
    delay_and_overshoot_by_budget: Mapping[str, tuple[int, Mapping[str, int]]],
    has_amounts: bool,
) -> list[BudgetVerdict]:
    bounded = []
    for row in rows:
        delay_s, by_owner = delay_and_overshoot_by_budget[row.budget]
        if has_amounts:
            most = money.units_to_text(by_owner.get(row.owner or "", 0))
            row = msgspec.structs.replace(row, delay_s=delay_s, lets_through=most)
        else:
            row = msgspec.structs.replace(row, delay_s=delay_s, spent=None, limit=None, left=None)
        bounded.append(row)
    return bounded


def delays_by_source(entries: Iterable[LogEntry]) -> dict[str, SourceDelay]:
    delays: dict[str, list[float]] = {}
    for entry in entries:
        for record in entry.records:
            if isinstance(record, Inference) and record.end_time is not None:
                delay_s = max(0.0, entry.committed_at - record.end_time / NS)
                delays.setdefault(record.source, []).append(delay_s)
    most_first = sorted(delays, key=lambda source: (-len(delays[source]), source))
    return {source: _delay_statistics(sorted(delays[source])) for source in most_first[:MAX_SOURCES]}


def _delay_statistics(delays: Sequence[float]) -> SourceDelay:
    count = len(delays)
    return SourceDelay(
        calls=count,
        median_s=round(delays[(count - 1) // 2], 1),
        most_s=round(delays[(count * 99 + 99) // 100 - 1], 1),
    )


def parse_time_s(text: str) -> float:
    return datetime.fromisoformat(text).timestamp()


def build_verdict_table(figures: Sequence[BudgetFigures], table_name: str, now: float) -> BudgetVerdicts:
    """
    Build the table from the figures of budgets. Its version is 0 until it is stored. The table ALL also lists
    budgets `within` their limit.
    """
    rows: list[tuple[int, int, BudgetVerdict]] = []
    problems = []
    budgets = []
    is_truncated = False
    for of_budget in figures:
        problem = verdict_problem(of_budget)
        if problem is not None:
            budget = of_budget.budget
            problems.append(VerdictProblem(budget=budget.id, name=budget.name, problem=problem))
            continue
        budgets.append(of_budget.budget.id)
        verdicts = [*_verdicts_with_sort_keys(of_budget, includes_within=table_name == ALL)]
        # The figures leave out the owners that spent least. If an owner in the figures needs no verdict in this
        # table, the omitted owners need none either.
        running = of_budget.periods[0]
        is_truncated |= bool(running.owners_left_out) and len(verdicts) == len(running.spent)
        rows += verdicts
    rows.sort(key=lambda row: (row[0], row[1], row[2].budget, row[2].owner or ""))
    return BudgetVerdicts(
        as_of=utc_iso(now),
        valid_until=utc_iso(now + VALID_S),
        version=0,
        truncated=is_truncated or len(rows) > MAX_ROWS,
        budgets=sorted(budgets),
        problems=sorted(problems, key=lambda problem: problem.budget),
        rows=[verdict for _, _, verdict in rows[:MAX_ROWS]],
    )


def verdict_problem(figures: BudgetFigures) -> str | None:
    budget, view = figures.budget, figures.view
    if figures.problem is not None or view is None:
        return figures.problem
    if budget.cost_type_mask:
        return "the budget counts billed costs, which are known days after a call"
    names = {*view.include, *view.exclude, *([budget.per] if budget.per else [])}
    unknown = sorted(name for name in names if name not in KNOWN_BEFORE and not name.startswith(TAG))
    if unknown:
        return f"an enforcer does not know {', '.join(unknown)} before a call"
    if not figures.periods[0].is_whole:
        return "the totals of the running period lack records that were deleted before they were counted"
    return None


def _verdicts_with_sort_keys(
    figures: BudgetFigures, *, includes_within: bool
) -> Iterator[tuple[int, int, BudgetVerdict]]:
    """
    Yield the verdict of each owner of a budget, after two sort keys: one for its state and one for its spend.
    Verdicts `within` are yielded only if `includes_within`.
    """
    running = figures.periods[0]
    limit = planned_limit(figures.budget, running)
    if limit is None:
        return
    nothing = OwnerSpend(actual=0, calls=0, unpriced=0)
    owners = running.spent if figures.budget.per else {"": running.spent.get("", nothing)}
    verdict = _owner_verdict_builder(figures, limit)
    for owner, spent in owners.items():
        state = _verdict_state(figures.budget, spent.actual, limit)
        if includes_within or state != WITHIN:
            yield _ORDER[state], -spent.actual, verdict(owner, spent, state)


def _verdict_state(budget: SpendBudget, actual: int, limit: int) -> str:
    if actual >= limit:
        return OVER
    below = [percent for percent in enabled_percents(budget.alerts) if percent < 100]
    return NEAR if below and actual * 100 >= below[-1] * limit else WITHIN


def _owner_verdict_builder(
    figures: BudgetFigures, limit: int
) -> Callable[[str, OwnerSpend, str], BudgetVerdict]:
    """
    Return a function that builds the verdict of an owner. Fields that all owners share are computed once.
    """
    budget, view = figures.budget, figures.view
    assert view is not None, "a budget without a view has no periods"
    include = {name: sorted(values) for name, values in view.include.items()}
    exclude = {name: sorted(values) for name, values in view.exclude.items()}
    limit_text, resets_at = money.units_to_text(limit), utc_iso(figures.periods[0].period.end.timestamp())
    currency = budget.currency if budget.measure == COST else None

    def build_verdict(owner: str, spent: OwnerSpend, state: str) -> BudgetVerdict:
        of_owner = {**include, budget.per: [owner]} if budget.per else include
        return BudgetVerdict(
            budget=budget.id,
            name=budget.name,
            owner=owner or None,
            match=VerdictMatch(include=of_owner, exclude=exclude),
            state=state,
            measure=budget.measure,
            spent=money.units_to_text(spent.actual),
            limit=limit_text,
            left=money.units_to_text(max(0, limit - spent.actual)),
            currency=currency,
            resets_at=resets_at,
            unpriced_calls=spent.unpriced,
        )

    return build_verdict
