from __future__ import annotations

import pytest

from tests.bench.growth.billed import measured
from tests.bench.growth.year import Fleet
from tests.rounds import IS_LONG

FEW, MANY = (20_000, 200_000) if IS_LONG else (8_000, 80_000)
MORE_MIB = (
    48  # limit in MiB for additional memory; with 1 MiB per thousand additional calls it would be 72 MiB
)


@pytest.mark.proves("memory does not grow with the number of calls")
@pytest.mark.bench
def test_bills_are_divided_in_memory_that_calls_do_not_bound() -> None:
    """
    Every grouping adds up to the invoice for both kinds of money. Ten times as many calls by the same people
    need no more memory.
    """
    fleet = Fleet(users=40, teams=8, models=24)
    (_, _, few), (_, sums, many) = measured(fleet, (FEW, MANY))
    print(f"\n{few}\n{many} of {sums} sums")
    assert few.off == []
    assert many.off == []
    assert few.days == many.days >= 31
    assert many.peak_mib <= few.peak_mib + MORE_MIB
