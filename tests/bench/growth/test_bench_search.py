"""A search over the names of a million calls, compared in the same run with reading these names."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from pathlib import Path
from statistics import median
from time import process_time

import pytest

from spool.ledger.slices import SlicedLedger
from spool.registry.roles import EVERYTHING
from spool.sqlite.ledger import open_ledger
from tests.bench.growth.units import AGENTS, END, MODELS, USERS, dimensions
from tests.rounds import IS_LONG
from tests.spool.ledger_log import FakeClock

# sets of names; a million calls of 5,000 users with 8 models each have as many
SETS = 40_000 if IS_LONG else 4_000
ROUNDS = 7
# Reading takes 3.5 us per set, and a search up to 6. When each set was searched by itself, it took up to 60.
MOST = 3.0 if IS_LONG else 6.0
TEXTS = {"nothing": "no-such-name", "one user": "user-1999", "everything": "e"}


@pytest.mark.bench
async def test_search_takes_at_most_a_few_times_reading_all_names(tmp_path: Path) -> None:
    """
    A search takes at most a few times as long as reading all names, whether nothing, one name or every name
    contains the text.
    """
    ledger = await open_ledger(tmp_path, clock=FakeClock(END), tags=("agent",))
    try:
        sets = [
            dimensions(n % USERS, AGENTS[n // USERS % len(AGENTS)], MODELS[n // USERS // len(AGENTS)])
            for n in range(SETS)
        ]
        await ledger._store.change(lambda rows: rows.find_or_assign_dimension_set_numbers(sets))
        everything = SlicedLedger(ledger, EVERYTHING.slice)
        names = ledger.dimensions()
        read = await taken(lambda: ledger.value_combinations(names, lambda parts: sum(map(len, parts))))
        for words, text in TEXTS.items():
            found = await everything.values_containing(names, text)
            assert (f"user-{USERS - 1}" in found["user"]) == (words != "nothing")
            assert (len(found["user"]) == USERS) == (words == "everything")
            search = await taken(lambda text=text: everything.values_containing(names, text))  # type: ignore[misc]
            print(f"\n{SETS:,} sets of names, search of {words}: {search:.3f} s, reading {read:.3f} s")
            assert search <= MOST * read + 0.05
    finally:
        await ledger.close()


async def taken(work: Callable[[], Awaitable[object]]) -> float:
    """Return the processor time of some work, the median of several rounds."""
    times = []
    for _ in range(ROUNDS):
        began = process_time()
        await work()
        times.append(process_time() - began)
    return median(times)
