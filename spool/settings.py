"""The types of configuration values that every package shares, and the [spool] section."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

KIB, MIB, GIB = 1024, 1024**2, 1024**3

Size = Annotated[int, "size"]  # bytes, written as 64MiB, 4MiB, 10GiB or a plain number
Duration = Annotated[float, "duration"]  # seconds, written as 10s, 500ms, 5m, 1h, 7d or a plain number


MAX_DEAD_LETTERS = 10_000


@dataclass(frozen=True, slots=True, kw_only=True)
class SpoolSettings:
    """
    The [spool] section.

    `pending_items` and `pending_bytes` bound what waits in the merge window, and as much again of counters, which
    wait `counter_wait` for the calls of their reporter. `commit_wait` and `waiting_submissions` bound what waits for a
    disk that does not answer: after so long, and beyond so many, submissions are refused with 503. A move of the wall
    clock by more than `clock_step` is not believed until it has stood for `clock_hold`. `max_stream_bytes`
    bounds the totals of unit-cost streams, which are not part of `max_bytes`.
    """

    max_bytes: Size = 10 * GIB
    retention: Duration = 7 * 86400.0
    hold: Duration = 10.0
    duplicate_window: Duration = 7 * 86400.0
    duplicate_ids: int = 10_000_000
    pending_window: Duration = 600.0
    pending_items: int = 20_000
    pending_bytes: Size = 16 * MIB
    counter_wait: Duration = 90.0
    commit_wait: Duration = 10.0
    waiting_submissions: int = 10_000
    clock_step: Duration = 300.0
    clock_hold: Duration = 3600.0
    max_dead_letters: int = MAX_DEAD_LETTERS  # of one route
    max_streams: int = 1000
    max_stream_bytes: Size = GIB
    stream_retention: Duration = 400 * 86400.0
