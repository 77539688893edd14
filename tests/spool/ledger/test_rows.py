from __future__ import annotations

from datetime import UTC, datetime

from msgspec.structs import replace

from spool.ledger.costs import combine_rows
from spool.ledger.queries import CostRow

MOMENT = datetime(2026, 11, 1, tzinfo=UTC)


def test_rows_are_combined_exactly() -> None:
    """
    Rows are combined exactly: money to the last decimal, even for refunds. Counts and latency buckets are added,
    and no rows give zeros.
    """
    nothing = combine_rows([], start=MOMENT, group=())
    assert nothing.cost == "0"
    assert nothing.calls == 0
    assert len(nothing.latency) == 12
    assert sum(nothing.latency) == 0
    one = replace(nothing, cost="0.000000000000000000000000001", calls=2, latency=(1, *nothing.latency[1:]))
    two = replace(nothing, cost="-0.5", calls=3, latency=(4, *nothing.latency[1:]))
    assert replace(one, group=("a",)) == combine_rows([one], start=MOMENT, group=("a",))
    both: CostRow = combine_rows([one, two], start=MOMENT, group=("a",))
    assert both.cost == "-0.499999999999999999999999999"
    assert both.calls == 5
    assert both.latency[0] == 5
