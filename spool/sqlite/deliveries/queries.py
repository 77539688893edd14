"""SQL statements of the deliveries."""

from __future__ import annotations

from collections.abc import Iterable
from functools import cache

from spool.deliveries.rules import STUCK_AFTER
from spool.deliveries.values import RUNNING
from spool.sql.deliveries import (
    DEAD_COLUMNS,
    REFUSAL_COLUMNS,
    ROUTE_COLUMNS,
    UNSETTLED_COLUMNS,
    qualified_columns,
)

# columns that a transition may change
CHANGED = (
    "state",
    "not_before",
    "attempts",
    "idempotency_key",
    "ambiguous",
    "server_errors",
    "passed",
    "refusals",
    "refused_at",
    "proof",
    "last_error",
    "mark",
    "sending",
    "answer",
    "same_answers",
)
# A delivery that carries its own record also sets `kept_at` and `kept`.
INSERTED = ("route", "first", "last", "replay", "fence", *CHANGED)
DELIVERY_COLUMNS = ("id", *INSERTED, "kept_at", "kept")


def _insert_statement(table: str, columns: Iterable[str]) -> str:
    names = list(columns)
    return f"INSERT INTO {table} ({', '.join(names)}) VALUES ({', '.join(f':{name}' for name in names)})"


# -- deliveries ----------------------------------------------------------------------------------------------

_DELIVERY = f"""
    SELECT {qualified_columns("d", DELIVERY_COLUMNS)}, r.topic, r.acceptances
      FROM deliveries d JOIN routes r ON r.name = d.route"""

# deliveries of a route that this process is not sending
_FREE_OF_ROUTE = f"""{_DELIVERY}
     WHERE d.route = :route AND d.state = 'open' AND d.id NOT IN (SELECT value FROM json_each(:in_hand))"""

# Select the open deliveries of a route without replays, oldest first, and whether
# `StoredDelivery.is_rejected_or_stuck` is True for each. Deliveries that are being sent are included, because it
# would be slower to exclude them by id. After a crash, a route finds the same row again. So no repair is needed,
# and the retry has the same records and key.
BACKLOG = f"""
    SELECT id, not_before, first = last AND (refusals > 0 OR server_errors >= {STUCK_AFTER}) FROM deliveries
     WHERE route = ? AND replay = 0 AND state = 'open' ORDER BY first"""

DUE_REPLAY = f"{_FREE_OF_ROUTE} AND d.not_before <= :now AND d.replay = 1 ORDER BY d.first LIMIT 1"

# A single record that was never rejected alone.
FRESH_SINGLE = f"""{_FREE_OF_ROUTE}
       AND d.first = d.last AND d.refusals = 0 AND d.kept IS NULL AND d.not_before <= :now
  ORDER BY d.first LIMIT 1"""

# One record, or an ambiguous delivery, which is never split.
SUSPECT = f"{_FREE_OF_ROUTE} AND (d.first = d.last OR d.ambiguous) AND d.not_before <= :now ORDER BY d.first LIMIT 1"

# Of the batches that can be split, the newest is farthest from the rejected records.
NEWEST_BATCH = (
    f"{_FREE_OF_ROUTE} AND d.first < d.last AND NOT d.ambiguous ORDER BY d.replay, d.first DESC LIMIT 1"
)

ONE = f"{_DELIVERY} WHERE d.id = ? AND d.state = ?"

EVERY_OPEN = f"{_DELIVERY} WHERE d.state = 'open' ORDER BY d.id"

UNKNOWNS = f"{_DELIVERY} WHERE d.state = 'unknown' ORDER BY d.id"

EVERY_UNSETTLED = f"SELECT {', '.join(UNSETTLED_COLUMNS)} FROM deliveries ORDER BY id"

# Open deliveries that read their records from the log.
BELOW = f"""{_DELIVERY}
     WHERE d.route = ? AND d.first < ? AND d.kept IS NULL AND d.state = 'open' ORDER BY d.first"""

SUSPECTS = "SELECT count(*) FROM deliveries WHERE route = ? AND state = 'open' AND refusals > 0"

NEXT_DUE_AT = """
    SELECT min(not_before) FROM deliveries
     WHERE route = :route AND state = 'open' AND id NOT IN (SELECT value FROM json_each(:in_hand))"""

# Numbers that a replay must skip, because they are not settled.
UNSETTLED = """
    SELECT first, last FROM deliveries WHERE route = :route
     UNION ALL
    SELECT number, number FROM dead WHERE route = :route"""

INSERT = f"""
    INSERT INTO deliveries ({", ".join(DELIVERY_COLUMNS[1:])})
    VALUES ({", ".join("?" for _ in DELIVERY_COLUMNS[1:])})"""
CHANGE = f"UPDATE deliveries SET {', '.join(f'{column} = ?' for column in CHANGED)} WHERE id = ?"
REMOVE = "DELETE FROM deliveries WHERE id = ?"
REMOVE_BELOW = """
    DELETE FROM deliveries WHERE route = ? AND last < ? AND state = 'open' AND NOT replay AND kept IS NULL"""
MARK = "UPDATE deliveries SET mark = ? WHERE id = ? AND fence = ?"
TRY_AT_ONCE = "UPDATE deliveries SET not_before = 0"
TAKE = "UPDATE deliveries SET sending = 1, fence = fence + 1 WHERE id = ?"
INTERRUPTED = f"{_DELIVERY} WHERE d.sending ORDER BY d.id"

# -- routes --------------------------------------------------------------------------------------------------

ROUTE = f"SELECT {', '.join(ROUTE_COLUMNS)} FROM routes WHERE name = ?"
NAMES = "SELECT name FROM routes"
EVERY_ROUTE = f"SELECT {', '.join(ROUTE_COLUMNS)} FROM routes"

PROGRESS = """
    SELECT name, min(next, coalesce((SELECT min(d.first) FROM deliveries d
                                      WHERE d.route = name AND NOT d.replay AND d.state = 'open' AND d.kept IS NULL),
                                    next))
      FROM routes"""
OPTIONAL = f"SELECT {', '.join(ROUTE_COLUMNS)} FROM routes WHERE topic = ? AND NOT required"

# Replays do not count in progress and terms.
ROUTES = f"""
    SELECT {qualified_columns("r", ROUTE_COLUMNS)},
           coalesce(sum(iif(d.replay, 0, d.last - d.first + 1)), 0),
           min(iif(d.replay OR d.kept IS NOT NULL, NULL, d.first)),
           min(iif(d.replay, NULL, d.kept_at)),
           coalesce(sum(d.first = d.last AND d.server_errors >= {STUCK_AFTER}), 0),
           (SELECT coalesce(sum(u.last - u.first + 1), 0) FROM deliveries u
             WHERE u.route = r.name AND u.state = 'unknown')
      FROM routes r LEFT JOIN deliveries d ON d.route = r.name AND d.state = 'open'
  GROUP BY r.name ORDER BY r.name"""

# A retried rejected record is stored in its delivery, so it needs no entry.
NEEDED = """
    SELECT count(*), min(iif(r.required, r.next, NULL)),
           (SELECT min(d.first) FROM deliveries d JOIN routes q ON q.name = d.route
             WHERE q.topic = :topic AND q.required AND d.kept IS NULL)
      FROM routes r WHERE r.topic = :topic"""

CUT_BELOW = "SELECT coalesce(max(next), 1) FROM routes WHERE topic = ?"

DECLARE = _insert_statement("routes", ROUTE_COLUMNS)
REDECLARE = "UPDATE routes SET required = ?, orphaned = 0 WHERE name = ?"
ORPHAN = "UPDATE routes SET orphaned = 1 WHERE name = ?"
SET_STATE = f"""
    UPDATE routes
       SET state = :state, reason = :reason,
           state_since = CASE :state WHEN '{RUNNING}' THEN NULL WHEN state THEN state_since ELSE :now END
     WHERE name = :route"""

# Rejected records are not deleted.
FORGET_DELIVERIES = "DELETE FROM deliveries WHERE route = ?"
FORGET_REFUSALS = "DELETE FROM refusals WHERE route = ?"
FORGET_ROUTE = "DELETE FROM routes WHERE name = ?"


@cache
def count_statement(counts: tuple[str, ...]) -> str:
    """
    Return a statement that adds to a route's counters. Its parameters: the amounts in the order of `counts`,
    then the route.
    """
    return f"UPDATE routes SET {', '.join(f'{name} = {name} + ?' for name in counts)} WHERE name = ?"


# -- rejected records ----------------------------------------------------------------------------------------

SET_ASIDE = _insert_statement("dead", DEAD_COLUMNS[1:])
DEAD = f"SELECT {', '.join(DEAD_COLUMNS)} FROM dead WHERE route = coalesce(?, route) ORDER BY id"
DEAD_LETTER = f"SELECT {', '.join(DEAD_COLUMNS)} FROM dead WHERE id = ?"
NO_LONGER_DEAD = "DELETE FROM dead WHERE id = ?"

REFUSED = _insert_statement("refusals", REFUSAL_COLUMNS)
REFUSALS = f"""
    SELECT {", ".join(REFUSAL_COLUMNS)} FROM refusals WHERE route = coalesce(?, route) ORDER BY id DESC"""

PRUNE_REFUSALS = """
    DELETE FROM refusals
     WHERE route = :route
       AND id <= (SELECT id FROM refusals WHERE route = :route ORDER BY id DESC LIMIT 1 OFFSET :kept)"""

# -- the log -------------------------------------------------------------------------------------------------

COMMITTED_AT = "SELECT committed_at FROM entries WHERE topic = ? AND first <= ? ORDER BY first DESC LIMIT 1"

COMMITTED = """
    SELECT first, first + count - 1 FROM entries
     WHERE topic = ? AND committed_at >= ? AND committed_at < ? ORDER BY first"""
