"""The columns of a sum: measures, of which money has three limbs."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from spool.ledger import money
from spool.ledger.queries import needed_sums
from spool.ledger.sums import COUNTS, LATENCY, MONEY, Measures

COLUMNS = (*COUNTS, *(f"{name}_{limb}" for name in MONEY for limb in (1, 2, 3)), *LATENCY)
# Of a row, as MONEY.
_REPORTED, _ESTIMATED = (slice(first, first + 3) for first in (len(COUNTS), len(COUNTS) + 3))


class AskedSums:
    """The sums of a question for some measures, and the measures of what they give."""

    def __init__(self, measures: Sequence[str]) -> None:
        needed = needed_sums(measures)
        self.wanted = [name for name in COLUMNS if name in needed or name.rpartition("_")[0] in MONEY]
        read = COLUMNS if LATENCY[0] in needed else COLUMNS[: -len(LATENCY)]
        self.sums = [f"SUM(h.{name})" if name in self.wanted else "0" for name in read]
        self._rest = (0,) * (len(COLUMNS) - len(read))

    def measures(self, values: Sequence[int]) -> Measures:
        return [*joined(values), *self._rest]


def joined(values: Sequence[int]) -> Measures:
    """Return the measures that the first columns have, money joined."""
    reported, estimated = money.joined(*values[_REPORTED]), money.joined(*values[_ESTIMATED])
    return [*values[: _REPORTED.start], reported, estimated, *values[_ESTIMATED.stop :]]


def columns_of(measures: Measures) -> Iterator[int]:
    """Yield what is kept of measures, by COLUMNS."""
    counts = len(COUNTS)
    yield from measures[:counts]
    for units in measures[counts : counts + len(MONEY)]:
        yield from money.limbs(units)
    yield from measures[counts + len(MONEY) :]
