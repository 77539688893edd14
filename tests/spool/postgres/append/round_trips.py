"""Counts how often a node waits for the server, by what libpq sends: independent of how fast either of them is."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from psycopg import pq

from spool.postgres.database import Lane

SENT = re.compile(r"^F\t\d+\t(\w+)", re.MULTILINE)


class RoundTrips:
    """Of a connection that is there already."""

    def __init__(self) -> None:
        self.count = 0

    def note(self, trace: str) -> None:
        self.count += sum(name in ("Query", "Sync", "Flush") for name in SENT.findall(trace))  # are answered


@contextmanager
def round_trips(lane: Lane, folder: Path) -> Iterator[RoundTrips]:
    """Of the one connection of a lane, while nothing is under way on it."""
    (session,) = lane._idle
    found, file = RoundTrips(), folder / "trace"
    connection = session.connection.pgconn
    with file.open("wb") as trace:
        connection.trace(trace.fileno())
        connection.set_trace_flags(pq.Trace.SUPPRESS_TIMESTAMPS)
        try:
            yield found
        finally:
            connection.untrace()
    found.note(file.read_text())
