"""Capacity and needs of several gateways on one PostgreSQL, computed from measured constants."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from math import ceil

from spool.settings import SpoolSettings
from tests.bench.sizing.computing import (
    BUSY,
    DAY_S,
    GIB,
    PLACE_BYTES,
    SizingFigures,
    count,
    days,
    hours,
    rounded,
    rounded_up,
    size,
)

LEAST_GATEWAYS = 3  # with three gateways, one may fail while another is restarted
RATES = (1_000, 10_000, 100_000, 1_000_000)
HEAD_BUSY = 0.8  # share of time in which the head may be in use; the rest is for peaks
MEMORY = 8e9  # bytes of memory for ids per gateway; a machine of 2 cores rarely has more memory


@dataclass(frozen=True, kw_only=True)
class SharedFigures:
    """Measured constants, in microseconds per record unless noted. Mappings are by records per commit."""

    machine: str
    append_us: Mapping[str, float]  # processor time per record in the gateway that commits it
    follow_us: float  # gateway processor time per record that another gateway committed
    primary_us: Mapping[str, float]
    standby_us: Mapping[str, float]
    head_own_us: (
        float  # gateway processor time per own record while the gateway holds the head, the lock for commits
    )
    head_foreign_us: float
    trip_ms: float  # round trip from a gateway to the primary, in milliseconds
    flush_ms: float  # flush to both disks in milliseconds, including the way to the standby
    record_bytes: float  # bytes of database disk per record, including its share of the commit row
    wal_factor: float  # write-ahead log bytes per record byte
    id_bytes: float  # bytes of database disk per id
    id_memory_bytes: float  # bytes of memory per id in every gateway

    def hold_s(self, records: int, gateways: int) -> float:
        """Return how long a commit of `records` holds the head if every gateway commits as many in turn."""
        foreign = records * (gateways - 1)
        records_us = self.head_own_us * records + self.head_foreign_us * foreign
        return (self.trip_ms + self.flush_ms) / 1e3 + records_us / 1e6

    def head(self, records: int, gateways: int) -> float:
        """Return the records per second that one head can commit."""
        return records / self.hold_s(records, gateways)

    def head_at_most(self, gateways: int) -> float:
        """
        Return the rate with the largest measured commits, because commits grow while they wait for the head.
        """
        return self.head(max(map(int, self.append_us)), gateways)


def shared_figures_of(document: Mapping[str, object]) -> SharedFigures:
    names = {one.name for one in fields(SharedFigures)}
    found: Mapping[str, object] = document["postgres"]  # type: ignore[assignment]
    return SharedFigures(**{name: value for name, value in found.items() if name in names})  # type: ignore[arg-type]


def gateways_for(calls: float, figures: SizingFigures, shared: SharedFigures) -> int:
    """
    Return the number of gateways whose processors carry the rate at 100 spans per request, plus one
    that may fail.
    """
    own_us = figures.cpu_us["100"] + shared.append_us["100"] - shared.follow_us
    # subtract the work of reading the other gateways' commits, which every gateway does
    left = BUSY - calls * shared.follow_us / 1e6
    if left <= 0:
        raise ValueError(f"no number of gateways follows {calls:,.0f} calls a second")
    return max(LEAST_GATEWAYS, ceil(calls * own_us / 1e6 / left) + 1)


def one_database(figures: SizingFigures, shared: SharedFigures) -> int:
    """Return thousands of calls per second that gateways on one database sustain."""
    calls = 0
    while calls + 1_000 <= HEAD_BUSY * shared.head_at_most(gateways_for(calls + 1_000, figures, shared)):
        calls += 1_000
    return calls


def shared_limits(figures: SizingFigures, shared: SharedFigures) -> str:
    """Format the limits of one database, the lowest first."""
    spool = SpoolSettings()
    carried = one_database(figures, shared)
    rows = [
        (
            spool.duplicate_ids / spool.duplicate_window,
            f"repeats recognized for all of `duplicate_window` ({days(spool.duplicate_window)})",
            f"the window gets shorter: at 1,000 calls a second it is {hours(spool.duplicate_ids / 1000)}",
            f"`duplicate_ids` ({spool.duplicate_ids:,}); {shared.id_memory_bytes:.0f} bytes of memory in "
            f"every gateway, {shared.id_memory_bytes + PLACE_BYTES:.0f} of the newest eighth",
        ),
        (
            500 * GIB / shared.record_bytes / (7 * DAY_S),
            "a week stored in 500 GiB of the database's disk",
            "senders get 503 with Retry-After and retry; nothing is lost",
            "a larger disk and `spool.max_bytes`, or a shorter `retention`",
        ),
        (
            HEAD_BUSY * shared.head(4_096, LEAST_GATEWAYS),
            f"the head, {LEAST_GATEWAYS} gateways, 4,096 records a commit, {HEAD_BUSY * 100:.0f} % busy",
            "answers take longer, then 503",
            "a second installation",
        ),
        (
            carried,
            f"the head, {gateways_for(carried, figures, shared)} gateways kept busy by 100 spans a request",
            "answers take longer, then 503",
            "fewer and faster gateways; a second installation with a database of its own",
        ),
    ]
    lines = ["| calls a second, up to | limit | above it | to raise it |", "|---|---|---|---|"]
    for calls, limit, beyond, change in sorted(rows):
        lines.append(f"| {rounded(calls)} | {limit} | {beyond} | {change} |")
    return "\n".join(lines)


def shared_needs(figures: SizingFigures, shared: SharedFigures) -> str:
    """Format the needs per rate, and the first limit there."""
    lines = [
        "| calls a second | databases | gateways, one may fail | head busy | cores: primary / standby | WAL, "
        "all "
        "| log a day, all | ids of 7 days: disk / memory of a gateway | breaks first |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    most = one_database(figures, shared)
    for calls in RATES:
        databases = ceil(calls / most)
        each = calls / databases
        gateways = gateways_for(each, figures, shared)
        busy = each / shared.head_at_most(gateways)
        ids = each * 7 * DAY_S
        cores = f"{_cores(each, shared.primary_us)} / {_cores(each, shared.standby_us)}"
        wal = size(calls * shared.record_bytes * shared.wal_factor)
        lines.append(
            f"| {calls:,} | {databases} | {'' if databases == 1 else f'{databases} × '}{gateways} | "
            f"{busy * 100:.0f} % "
            f"| {cores} | {wal}/s | {size(calls * DAY_S * shared.record_bytes)} "
            f"| {size(ids * shared.id_bytes)} / {size(ids * shared.id_memory_bytes)} "
            f"| {_breaks_first(databases, ids * shared.id_memory_bytes, each, shared)} |"
        )
    return "\n".join(lines)


def _breaks_first(databases: int, memory: float, each: float, shared: SharedFigures) -> str:
    if databases > 1:
        return (
            f"one head: split the senders by organization over {databases} installations; both reports of a "
            "call must "
            "reach the same one"
        )
    if memory > MEMORY:
        window_s = MEMORY / shared.id_memory_bytes / each
        return f"memory for ids: {size(MEMORY)} of it hold the ids of {hours(window_s)} ({count(window_s * each)} ids)"
    return f"the window of repeats, while `duplicate_ids` is {SpoolSettings().duplicate_ids:,}"


def _cores(calls: float, by_records: Mapping[str, float]) -> str:
    """Format the cores for the largest and the smallest measured commits."""
    least, most = (calls * us / 1e6 for us in sorted(by_records.values()))
    if most < 1:
        return f"{rounded_up(least * 100)}-{rounded_up(most * 100)} %"
    return f"{least:.1f}-{most:.1f}"
