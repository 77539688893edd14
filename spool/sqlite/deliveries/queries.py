"""Every statement of the deliveries, named, with a sentence about what it is for."""

from __future__ import annotations

from spool.deliveries.rules import STUCK_AFTER, TERMS

# A delivery as the protocol shows it; `proven` compares the route's acceptances with those at the first refusal.
_DELIVERY = """
    SELECT d.id, d.route, d.first, d.last, d.attempts, d.idempotency_key, d.server_errors, d.refusals, d.refused_at,
           d.proof IS NOT NULL AND r.acceptances > d.proof AS proven, d.doubted, d.last_error, d.mark, d.replay,
           d.kept_at, d.kept, r.topic
      FROM deliveries d JOIN routes r ON r.name = d.route
     WHERE d.route = :route AND d.state = 'open' AND d.id NOT IN (SELECT value FROM json_each(:in_hand))"""

# The oldest delivery of a route that may be sent now. A route stopped half way finds the same row again, so a crash
# needs no repair step, and the repeat carries the same records under the same key.
DUE = f"{_DELIVERY} AND d.not_before <= :now AND d.replay = :replay ORDER BY d.first LIMIT 1"

# A single record that was never refused alone.
FRESH_SINGLE = f"""{_DELIVERY}
       AND d.first = d.last AND d.refusals = 0 AND d.kept IS NULL AND d.not_before <= :now
  ORDER BY d.first LIMIT 1"""

# The oldest single record that was refused and may be tried again.
SUSPECT = f"{_DELIVERY} AND d.first = d.last AND d.not_before <= :now ORDER BY d.first LIMIT 1"

# The newest delivery of several records: its last one is as far from the refused ones as can be had.
NEWEST_BATCH = f"{_DELIVERY} AND d.first < d.last ORDER BY d.replay, d.first DESC LIMIT 1"

SUSPECTS = "SELECT count(*) FROM deliveries WHERE route = ? AND state = 'open' AND refusals > 0"

ONE = f"{_DELIVERY} AND d.id = :id"

# Deliveries that wait and stand for backlog: refused and stuck single records are waited for beside the others.
WAITING_BATCHES = f"""
    SELECT count(*) FROM deliveries
     WHERE route = :route AND state = 'open' AND NOT replay AND id NOT IN (SELECT value FROM json_each(:in_hand))
       AND NOT (first = last AND (refusals > 0 OR server_errors >= {STUCK_AFTER}))"""

INSERT = """
    INSERT INTO deliveries (route, first, last, idempotency_key, passed, proof, last_error, replay, kept_at, kept)
    VALUES (:route, :first, :last, :key, :passed, :proof, :last_error, :replay, :kept_at, :kept)"""

NEXT = "SELECT next, acceptances FROM routes WHERE name = ?"
MOVE_NEXT = "UPDATE routes SET next = ? WHERE name = ?"

# The end of a delivery. No row: it was skipped or dropped while it was being sent, and is counted there.
REMOVE = """
    DELETE FROM deliveries WHERE id = ? AND state = 'open'
    RETURNING route, first, last, replay, proof"""

# A sent delivery goes back: whether others passed since its last 5xx is known from the route's acceptances.
RETRY = """
    UPDATE deliveries
       SET attempts = attempts + 1,
           not_before = :not_before,
           last_error = :reason,
           idempotency_key = coalesce(:new_key, idempotency_key),
           doubted = :new_key IS NULL AND (doubted OR :server_error),
           server_errors = server_errors + (:server_error AND r.acceptances > passed),
           passed = iif(:server_error, r.acceptances, passed),
           refusals = refusals + (:refused_at IS NOT NULL),
           refused_at = coalesce(refused_at, :refused_at),
           proof = iif(:refused_at IS NULL, proof, coalesce(proof, r.acceptances))
      FROM (SELECT name, acceptances FROM routes) r
     WHERE id = :id AND state = 'open' AND r.name = route"""

MARK = "UPDATE deliveries SET mark = ? WHERE id = ?"
UNKNOWN = "UPDATE deliveries SET state = 'unknown', last_error = ? WHERE id = ? AND state = 'open'"
UNKNOWNS = """
    SELECT d.id, d.route, r.topic, d.first, d.last, d.last_error, d.kept_at, d.kept, d.replay
      FROM deliveries d JOIN routes r ON r.name = d.route
     WHERE d.state = 'unknown' AND d.id = coalesce(?, d.id) ORDER BY d.id"""
REMOVE_UNKNOWN = "DELETE FROM deliveries WHERE id = ?"
# Open once more, and with no trace of the attempt that was cut off.
REOPEN = """
    UPDATE deliveries SET state = 'open', not_before = 0, mark = NULL, idempotency_key = ?
     WHERE id = ? AND state = 'unknown'"""

ACCEPTED = "UPDATE routes SET acceptances = acceptances + 1 WHERE name = ?"
REPLAYED = "UPDATE routes SET replayed = replayed + ? WHERE name = ?"

DECLARED = "SELECT name FROM routes"
DECLARE = "INSERT INTO routes (name, topic, required, next, before_start) VALUES (?, ?, ?, ?, ?)"
REDECLARE = "UPDATE routes SET required = ?, orphaned = 0 WHERE name = ?"
TRY_AT_ONCE = "UPDATE deliveries SET not_before = 0"
ORPHAN = "UPDATE routes SET orphaned = 1 WHERE name = ?"
SET_STATE = "UPDATE routes SET state = ?, reason = ? WHERE name = ?"

NEXT_DUE_AT = """
    SELECT min(not_before) FROM deliveries
     WHERE route = :route AND state = 'open' AND id NOT IN (SELECT value FROM json_each(:in_hand))"""

# A route with what its open deliveries hold. Replays stand apart from its progress and its terms.
ROUTES = f"""
    SELECT r.name, r.topic, r.required, iif(r.orphaned, 'orphaned', r.state) AS state, r.reason, r.next,
           {", ".join(f"r.{term}" for term in TERMS)},
           coalesce(sum(iif(d.replay, 0, d.last - d.first + 1)), 0) AS waiting,
           min(iif(d.replay OR d.kept IS NOT NULL, NULL, d.first)) AS oldest,
           min(iif(d.replay, NULL, d.kept_at)) AS kept_at,
           coalesce(sum(d.first = d.last AND d.server_errors >= {STUCK_AFTER}), 0) AS stuck
      FROM routes r LEFT JOIN deliveries d ON d.route = r.name AND d.state = 'open'
  GROUP BY r.name ORDER BY r.name"""

# When the entry that holds a number was committed.
COMMITTED_AT = "SELECT committed_at FROM entries WHERE topic = ? AND first <= ? ORDER BY first DESC LIMIT 1"

ORPHANED = "SELECT orphaned FROM routes WHERE name = ?"
FORGET_DELIVERIES = "DELETE FROM deliveries WHERE route = ?"
FORGET_REFUSALS = "DELETE FROM refusals WHERE route = ?"
FORGET = "DELETE FROM routes WHERE name = ?"

BURY = """
    INSERT INTO dead (route, topic, number, committed_at, record, error, status, at, replay)
    VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)"""
DEAD = (
    "SELECT id, route, topic, number, record, error, status, at FROM dead WHERE route = coalesce(?, route) ORDER BY id"
)
UNBURY = "DELETE FROM dead WHERE id = ? RETURNING route, number, committed_at, record, replay"

REFUSED = "INSERT INTO refusals (route, first, last, count, words, at) VALUES (?, ?, ?, ?, ?, ?)"
REFUSALS = """
    SELECT route, first, last, count, words, at FROM refusals WHERE route = coalesce(?, route) ORDER BY id DESC"""
PRUNE_REFUSALS = """
    DELETE FROM refusals
     WHERE route = :route
       AND id <= (SELECT id FROM refusals WHERE route = :route ORDER BY id DESC LIMIT 1 OFFSET :kept)"""

# Numbers committed in a span of time.
COMMITTED = """
    SELECT first, first + count - 1 FROM entries
     WHERE topic = ? AND committed_at >= ? AND committed_at < ? ORDER BY first"""
UNSETTLED = """
    SELECT first, last FROM deliveries WHERE route = :route
     UNION ALL
    SELECT number, number FROM dead WHERE route = :route"""
BEGINS = "SELECT topic, before_start + 1, next - 1, acceptances FROM routes WHERE name = ?"

# The lowest number that routes on a topic still have to read; what a retried dead letter needs it has with it.
NEEDED = """
    SELECT count(*), min(iif(r.required, r.next, NULL)),
           (SELECT min(d.first) FROM deliveries d JOIN routes q ON q.name = d.route
             WHERE q.topic = :topic AND q.required AND d.kept IS NULL)
      FROM routes r WHERE r.topic = :topic"""

OPTIONAL = "SELECT name, next, acceptances FROM routes WHERE topic = ? AND NOT required"
BELOW = """
    DELETE FROM deliveries
     WHERE route = ? AND first < ? AND kept IS NULL AND state = 'open' RETURNING first, last, replay"""
SKIP = "UPDATE routes SET skipped = skipped + ?, next = max(next, ?) WHERE name = ?"


def add(terms: list[str]) -> str:
    """Add to terms of a route; the values come in the order of the names, then the route."""
    return f"UPDATE routes SET {', '.join(f'{term} = {term} + ?' for term in terms)} WHERE name = ?"
