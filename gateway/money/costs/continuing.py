"""Sessions, runs and other units of work that have calls just before or after the period of a report."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import replace
from datetime import UTC, timedelta

from spool.ledger.dimensions import TOTAL
from spool.ledger.queries import CostQuery, CostsLedger
from spool.ledger.sums import OTHER

_MARGIN = timedelta(days=1)


async def work_units_with_calls_in_adjacent_days(
    ledger: CostsLedger, query: CostQuery, unit_kind: str, unit_names: Iterable[str | None]
) -> Collection[str]:
    """
    Return the units that also have calls in the day before the query's time or in the day after it.

    Only these days are read, because stored sums are ordered by time and a search of all past times would
    read every sum.
    """
    wanted = tuple({name for name in unit_names if name not in (None, OTHER)})
    if not wanted:
        return ()
    around = replace(
        query,
        granularity=TOTAL,
        group_by=(unit_kind,),
        include={**query.include, unit_kind: wanted},
        measures=("calls",),
        only=None,
        kept=None,
        top=None,
        aggregated=False,
    )
    # read whole days, because old hours are stored only as days
    before = (query.since - _MARGIN).astimezone(UTC).replace(hour=0, minute=0, second=0, microsecond=0)
    spans = ((before, query.since), (query.until, query.until + _MARGIN))
    found = set[str]()
    for since, until in spans:
        rows = await ledger.costs(replace(around, since=since, until=until))
        found.update(name for row in rows if row.calls and (name := row.group[0]) is not None)
    return found
