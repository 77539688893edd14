from __future__ import annotations

import pytest

from tests.bench.growth.clusters import measured

NODES, FEW, MANY = 25, 2, 12
MORE_MIB = 32  # limit in MiB for additional memory; holding the series of all waiting files would need 75 MiB


@pytest.mark.bench
def test_metrics_are_read_in_memory_that_what_waits_does_not_bound() -> None:
    """Six times as many waiting files need no more memory, and every counted second appears in the usage."""
    (_, few), (_, many) = measured([(NODES, FEW), (NODES, MANY)], at_once=True)
    print(f"\n{few}\n{many}")
    assert few.missing == 0
    assert many.missing == 0
    assert few.samples * MANY == many.samples * FEW
    assert many.peak_mib <= few.peak_mib + MORE_MIB
