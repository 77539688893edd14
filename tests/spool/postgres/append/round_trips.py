"""Counter of the waits for the server, from the messages of libpq, so that it does not depend on speed."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from psycopg import pq

from spool.postgres.database import DatabaseConnectionPool

SENT = re.compile(r"^F\t\d+\t(\w+)", re.MULTILINE)


class RoundTrips:
    """The number of round trips on an existing connection."""

    def __init__(self) -> None:
        self.count = 0

    def note(self, trace: str) -> None:
        # The server answers only these messages.
        self.count += sum(name in ("Query", "Sync", "Flush") for name in SENT.findall(trace))


@contextmanager
def round_trips(lane: DatabaseConnectionPool, folder: Path) -> Iterator[RoundTrips]:
    """Count round trips on the only connection of a lane while it is idle at the start."""
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
