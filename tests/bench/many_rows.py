"""Writes ledger rows directly into the file, because tests cannot send that many calls."""

from __future__ import annotations

import sqlite3

from spool.ledger.sums import Dimensions
from spool.sqlite.ledger import COLUMNS
from tests.spool.ledger_log import HOUR

FIRST = 1_000_000  # number of the first added set of dimensions, above the numbers for counted calls


def add_rows(connection: sqlite3.Connection, keys: int, hours: int, begin: int) -> None:
    """Add one row per user and hour for `keys` users, with 20 models and 10 teams."""
    with connection:
        for number in range(keys):
            model = f"model-{number % 20}"
            key = Dimensions(
                "call", "litellm", "openai", model, model, f"team-{number % 10}", f"user-{number}", "", "key", "", "ok",
                "reported", "", 0,
            )  # fmt: skip
            connection.execute(
                f"INSERT INTO keys VALUES ({FIRST + number}, {', '.join('?' * len(key))})", key
            )
        marks = ", ".join("?" * (2 + len(COLUMNS)))
        for hour in range(hours):
            rows = (
                (begin + hour * HOUR, FIRST + number, *range(1, len(COLUMNS) + 1)) for number in range(keys)
            )
            connection.executemany(f"INSERT INTO hours VALUES ({marks})", rows)
