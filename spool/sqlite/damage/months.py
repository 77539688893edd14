"""The sizes of months of billing drops, after a salvage."""

from __future__ import annotations

import sqlite3

_RESIZE = """
    INSERT INTO billing_months (connection, month, rows, bytes, stored, newest)
    SELECT r.connection, r.month, sum(r.rows), sum(r.bytes), sum(r.stored),
           coalesce((SELECT max(at) FROM billing_drops d WHERE d.connection = r.connection AND d.month = r.month), 0)
      FROM billing_rows r GROUP BY r.connection, r.month"""


def resize(connection: sqlite3.Connection) -> None:
    """Count months again from the rows that are left; a drop without any is listed no more."""
    connection.execute("DELETE FROM billing_drops WHERE number NOT IN (SELECT number FROM billing_rows)")
    connection.execute("DELETE FROM billing_months")
    connection.execute(_RESIZE)
