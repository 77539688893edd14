"""Totals are complete or refused while any process counts them again."""

from __future__ import annotations

import asyncio
import inspect
import random
from collections.abc import Awaitable, Callable, Sequence

import pytest

from spool.errors import NotAllowed, TotalsIncomplete
from spool.ledger.dimensions import TOTAL
from spool.ledger.ledger import Ledger
from spool.ledger.queries import CostQuery
from spool.log.values import LogEntry
from spool.record import NS
from tests.rounds import part
from tests.spool.contract.test_ledger import ALL, Flat, everything, hourly
from tests.spool.ledger.engines import POOLED, POSTGRES, Ledgers
from tests.spool.ledger.rebuilding import are_totals_complete, rebuild_without_end
from tests.spool.ledger_log import BEGIN, HOUR, FakeClock, FakeLog, call, recount
from tests.waiting import limited, until

QUERY = CostQuery(since=ALL[0], until=ALL[1], granularity=TOTAL)
two_processes = pytest.mark.parametrize("ledgers", [POSTGRES, POOLED], indirect=True)

# Each reader of sums with arguments. All others do not read sums, or wait in `_NO_READERS`.
READERS: dict[str, Callable[[Ledger], Awaitable[object]]] = {
    "costs": lambda ledger: ledger.costs(QUERY),
    "costs_of_queries": lambda ledger: ledger.costs_of_queries([QUERY]),
    "usages_of_queries": lambda ledger: ledger.usages_of_queries([QUERY]),
    "run_lineage": lambda ledger: ledger.run_lineage("run", [], 1, includes_runs_below=False),
    "sums_of_day": lambda ledger: ledger.sums_of_day(BEGIN, max_sums=1),
    "sums_of_days": lambda ledger: ledger.sums_of_days([BEGIN], max_sums=1),
    "usage_of_day": lambda ledger: ledger.usage_of_day(BEGIN),
    "detailed_usage_of_day": lambda ledger: ledger.detailed_usage_of_day(BEGIN),
    "stored_span": lambda ledger: ledger.stored_span(),
    "first_period_with_dimension": lambda ledger: ledger.first_period_with_dimension("user"),
    "count_listed_and_unlisted_units": lambda ledger: ledger.count_listed_and_unlisted_units(ALL[0]),
    "reprice": lambda ledger: ledger.reprice(FakeLog(), Flat(), since=ALL[0]),
}
_NO_READERS = {
    # count and change sums, each safe during a rebuild
    "catch_up", "close", "count_until_cancelled", "load", "make_next_rollup", "make_rollups_until_cancelled",
    "overwrite_deleted_data", "rebuild", "rename_people", "sum_up_and_delete_hours", "track_other_processes",
    "require_complete_totals", "apply_links", "delete_billed_day", "store_billed_days", "sum_day_again_if_possible",
    # the comparison with the log ends without a result if a rebuild begins
    "compare_and_note_differences", "invalidate_differing_rollups", "is_comparison_due", "replace_period",
    "store_comparison_and_return_missed_count", "comparison_state", "count_differing_periods",
    # read dimensions, names, bills and state, which a rebuild keeps
    "billed_corrections", "billed_days", "billed_sums", "billing_row_tags", "devices_of_renamed",
    "has_values_merged_into_other", "has_units_merged_into_other", "count_of_merges_into_other",
    "is_unit_merged_into_other", "tag_values", "value_combinations", "values", "work_unit_names_containing",
    "check_hours_stored", "count_records_lost_before_counting", "data_versions_of_period",
    "earliest_moment_with_hourly_sums", "hourly_sums_start", "recalculations", "start_of_complete_hours", "state",
    # returns None while the totals are counted again
    "expiry_time_and_recent_pull_requests_and_tickets",
}  # fmt: skip


class Stopped(FakeLog):
    """A log whose reader stops, like a process that is slow or ends."""

    def __init__(self) -> None:
        super().__init__()
        self.reached = asyncio.Event()
        self.goes_on = asyncio.Event()

    async def read(self, *arguments: object, **options: object) -> Sequence[LogEntry]:
        self.reached.set()
        await self.goes_on.wait()
        return await super().read(*arguments, **options)  # type: ignore[arg-type]


def test_each_method_is_known_as_a_reader_or_not() -> None:
    """A new method of the ledger is either refused during a rebuild, or reads no sums."""
    methods = {
        name
        for name, method in vars(Ledger).items()
        if inspect.iscoroutinefunction(method) and not name.startswith("_")
    }
    assert methods == READERS.keys() | _NO_READERS


async def test_each_reader_is_refused_during_a_rebuild(ledgers: Ledgers) -> None:
    ledger, log = await ledgers.open(), FakeLog()
    log.add([call()])
    await ledger.catch_up(log)
    async with rebuild_without_end(ledger):
        for read in READERS.values():
            with pytest.raises(TotalsIncomplete, match="0 % is done"):
                await read(ledger)


@two_processes
async def test_another_process_tells_the_share_that_is_counted(ledgers: Ledgers) -> None:
    """A process that does not rebuild itself refuses queries from the first moment until all is counted."""
    log = FakeLog()
    log.add([call(start_time=(BEGIN - number * HOUR) * NS) for number in range(10)])
    one, other = await ledgers.open(chunk=5), await ledgers.open(chunk=5)
    await one.catch_up(log)
    await other.catch_up(log)
    before = await hourly(other)
    await one.rebuild(log)
    for share in (0, 50):
        for query in (other.costs(everything()), other.require_complete_totals(log)):
            with pytest.raises(TotalsIncomplete, match=f" {share} % is done"):
                await query
        await one._count_next_records(log, 6)
    with pytest.raises(NotAllowed):
        await other.rebuild(log)
    await one.catch_up(log)
    await other.require_complete_totals(log)
    assert before == await hourly(other) == await hourly(one)


@two_processes
async def test_a_rebuild_without_its_process_is_continued(
    ledgers: Ledgers, monkeypatch: pytest.MonkeyPatch
) -> None:
    """If the process that rebuilds is killed, another one continues, although the log is idle."""
    monkeypatch.setattr("spool.ledger.ledger.PAUSE_S", 0.0)
    monkeypatch.setattr("spool.ledger.ledger.ABANDONED_S", 0.0)
    log = FakeLog()
    log.add([call(start_time=(BEGIN - number * HOUR) * NS) for number in range(10)])
    one, other = await ledgers.open(chunk=3), await ledgers.open(chunk=3)
    await one.catch_up(log)
    watching = asyncio.create_task(other.track_other_processes(log))
    await until(lambda: are_totals_complete(other))
    await one.rebuild(log)  # and no word from it afterwards
    await until(lambda: are_totals_complete(other))
    watching.cancel()
    await asyncio.gather(watching, return_exceptions=True)
    assert recount(log) == await hourly(other)


async def test_a_query_does_not_wait_for_a_rebuild(ledgers: Ledgers) -> None:
    """A query is refused at once while this process counts the totals again, however long one step takes."""
    log = Stopped()
    log.add([call()])
    ledger = await ledgers.open()
    log.goes_on.set()
    await ledger.catch_up(log)
    await ledger.rebuild(log)
    log.reached.clear()
    log.goes_on.clear()
    counting = asyncio.create_task(ledger.catch_up(log))
    async with limited():
        await log.reached.wait()
        for query in (ledger.costs(everything()), ledger.require_complete_totals(log)):
            with pytest.raises(TotalsIncomplete):
                await query
        log.goes_on.set()
        await counting
    assert recount(log) == await hourly(ledger)


@two_processes
@pytest.mark.parametrize("seed", part(range(40), every=20))
async def test_orders_of_two_processes(ledgers: Ledgers, seed: int) -> None:
    """
    Whatever order calls, rebuilds, steps, ends of processes and queries have in two processes: a query gets the sums
    of all calls counted by hand, or is refused.
    """
    chance, log, clock = random.Random(seed), FakeLog(), FakeClock(BEGIN + 8 * HOUR)
    processes = [await ledgers.open(clock=clock, chunk=3) for _ in range(2)]
    refused = answered = 0
    for _ in range(30):
        number = chance.randrange(2)
        ledger = processes[number]
        match chance.choice(["call", "query", "query", "rebuild", "step", "finish", "kill"]):
            case "call":
                starts = [(BEGIN - chance.randrange(8) * HOUR) * NS for _ in range(chance.randrange(1, 5))]
                log.add([call(user=chance.choice("ab"), start_time=start) for start in starts])
            case "rebuild":
                try:
                    await ledger.rebuild(log)
                except NotAllowed:
                    assert not await are_totals_complete(ledger)
            case "step":
                state = await ledger.state()
                if state.rebuilding:
                    ledger._reach = state.reach
                    await ledger._count_next_records(log, state.rebuilding)
            case "finish":
                await ledger.catch_up(log)
            case "kill":
                processes[number] = await ledgers.open(clock=clock, chunk=3)
            case "query":
                try:
                    await ledger.require_complete_totals(log)
                    found = await hourly(ledger, "user")
                except TotalsIncomplete:
                    refused += 1
                else:
                    answered += 1
                    assert recount(log, "user") == found
    assert answered + refused
