"""
Entries on disk as readers see them: closed records, amended, damaged ones set aside as None.

Functions of a connection, so that they work inside a transaction as well as on the reading connection.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence

from spool.log import Entry
from spool.sqlite import queries


def read_entries(connection: sqlite3.Connection, topic: str, first: int, last: int) -> Sequence[Entry]:
    """Every kept number from first to last, cut to that range, amended, in order."""
    raise NotImplementedError


def accepted(connection: sqlite3.Connection, topic: str) -> int:
    """The highest number given in a topic; 0 before the first."""
    row = connection.execute(queries.TERM, (topic, "accepted")).fetchone()
    return row[0] if row else 0


def oldest(connection: sqlite3.Connection, topic: str) -> int:
    """The lowest number that is kept, or the next one to be given."""
    row = connection.execute(queries.OLDEST_NUMBER, (topic,)).fetchone()
    return accepted(connection, topic) + 1 if row[0] is None else row[0]
