from __future__ import annotations

import pytest

from tests.bench.growth.billed import measured
from tests.bench.growth.year import Fleet
from tests.rounds import IS_LONG

# MORE_MIB is the limit for additional memory. With 1 MiB per thousand additional calls it would be 180 or 30 MiB.
FEW, MANY, MORE_MIB = (20_000, 200_000, 48) if IS_LONG else (2_000, 32_000, 15)


@pytest.mark.proves("memory does not grow with the number of calls")
@pytest.mark.bench
def test_bills_are_divided_in_memory_that_calls_do_not_bound() -> None:
    """
    Every grouping adds up to the invoice for both kinds of money. Many times as many calls by the same
    people need no more memory.
    """
    fleet = Fleet(users=40, teams=8, models=24)
    (_, _, few), (_, sums, many) = measured(fleet, (FEW, MANY), rounds=1)
    print(f"\n{few}\n{many} of {sums} sums")
    assert few.off == []
    assert many.off == []
    assert few.days == many.days >= 31
    assert many.peak_mib <= few.peak_mib + MORE_MIB
