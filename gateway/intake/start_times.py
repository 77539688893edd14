"""Start times that show a wrong clock or a wrong unit of the sender. Such items are stored under their date."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from datetime import UTC, datetime

from gateway.normalise.outcome import ReadOutcome
from spool.record import UsageEvent

# A laptop may be offline for weeks, and imported logs are older. Nobody sends calls of the future.
MAX_AGE_S = 31 * 86_400
MAX_AHEAD_S = 3_600
FIRST_YEAR_OF_CALLS = 2020  # an earlier year shows a wrong unit
_LAST_SECOND = int(datetime(9999, 12, 31, tzinfo=UTC).timestamp())


# source, year, and whether it is ahead of the server's clock -> number of items
MisdatedItems = dict[tuple[str, int, bool], int]


def count_misdated_items(outcome: ReadOutcome, now: float) -> None:
    """Count records and points that begin too early or too late, by source and year."""
    _count_starts(outcome.misdated, ((record.source, record.start_time) for record in outcome.records), now)
    _count_starts(outcome.misdated, ((point.template.source, point.time) for point in outcome.points), now)


def misdated_events(events: Iterable[UsageEvent], now: float) -> MisdatedItems:
    misdated: MisdatedItems = {}
    _count_starts(misdated, ((event.source, event.start_time) for event in events), now)
    return misdated


def _count_starts(misdated: MisdatedItems, starts: Iterable[tuple[str, int | None]], now: float) -> None:
    earliest, latest = int((now - MAX_AGE_S) * 1e9), int((now + MAX_AHEAD_S) * 1e9)
    for source, start_ns in starts:
        if start_ns is None or earliest <= start_ns <= latest:
            continue
        start_s = min(max(start_ns // 1_000_000_000, 0), _LAST_SECOND)
        key = (source, datetime.fromtimestamp(start_s, UTC).year, start_ns > latest)
        misdated[key] = misdated.get(key, 0) + 1


def describe_misdated_items(misdated: Mapping[tuple[str, int, bool], int]) -> Iterator[str]:
    """Yield a sentence for each year that needs the attention of the sender."""
    by_year: dict[tuple[int, bool], int] = {}
    for (_, year, is_ahead), count in misdated.items():
        by_year[year, is_ahead] = by_year.get((year, is_ahead), 0) + count
    for (year, is_ahead), count in sorted(by_year.items()):
        subject = f"{count} {'item begins' if count == 1 else 'items begin'} in {year}"
        yield f"{subject}{remedy_for_start_times(year, is_ahead=is_ahead)}"


def remedy_for_start_times(year: int, *, is_ahead: bool) -> str:
    if year < FIRST_YEAR_OF_CALLS:
        return ": check the unit of the time. OpenTelemetry's times are nanoseconds since 1970."
    if is_ahead:
        return ", ahead of the clock of this server: set the clock of the sender."
    return (
        ", more than 31 days ago. Reports show them under their date. If they are not imported, set the clock of the "
        "sender."
    )


def misdated_by_source(misdated: Mapping[tuple[str, int, bool], int]) -> Mapping[str, Mapping[str, int]]:
    """Return for each source the counts by year. A year ahead of the server's clock has a plus sign."""
    sources: dict[str, dict[str, int]] = {}
    for (source, year, is_ahead), count in misdated.items():
        sources.setdefault(source, {})[f"{'+' if is_ahead else ''}{year}"] = count
    return sources
