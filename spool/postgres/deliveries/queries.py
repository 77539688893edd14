"""SQL statements of the deliveries. Their tables have a column `shard`, which is always 0."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache

from spool.deliveries.rules import STUCK_AFTER
from spool.deliveries.stored import COUNTS
from spool.deliveries.values import RUNNING
from spool.postgres.database import LIVE
from spool.postgres.leases import NAMED_S
from spool.sql.deliveries import (
    DEAD_COLUMNS,
    REFUSAL_COLUMNS,
    ROUTE_COLUMNS,
    UNSETTLED_COLUMNS,
    qualified_columns,
)
from spool.sql.lake import LANDING

# columns that a change writes, with their types
CHANGED: Mapping[str, str] = {
    "owner": "uuid",
    "fence": "bigint",
    "state": "text",
    "not_before": "float8",
    "attempts": "integer",
    "idempotency_key": "text",
    "ambiguous": "boolean",
    "server_errors": "integer",
    "passed": "bigint",
    "refusals": "integer",
    "refused_at": "float8",
    "proof": "bigint",
    "last_error": "text",
    "mark": "text",
    "sending": "boolean",
    "answer": "text",
    "same_answers": "integer",
}
INSERTED: Mapping[str, str] = {
    "route": "text",
    "first": "bigint",
    "last": "bigint",
    "replay": "boolean",
    **CHANGED,
    "kept_at": "float8",
    "kept": "bytea",
}
DELIVERY_COLUMNS = ("id", *INSERTED)


# -- deliveries ----------------------------------------------------------------------------------------------

_DELIVERY = f"""
    SELECT {qualified_columns("d", DELIVERY_COLUMNS)}, r.topic, r.acceptances
      FROM {{schema}}.deliveries d JOIN {{schema}}.routes r ON r.shard = 0 AND r.name = d.route
     WHERE d.shard = 0"""

# Condition that no session is sending a delivery: it has no owner, this session owns it without sending it,
# or its owner's session has ended.
_FREE = f"""(d.owner IS NULL OR (d.owner = %(me)s AND d.id <> ALL(%(in_hand)s::bigint[]))
            OR (d.owner <> %(me)s
                AND NOT EXISTS (SELECT 1 FROM {{schema}}.nodes n WHERE n.id = d.owner AND n.{LIVE})))"""
# Condition for the holder of the route's lease. It may also take deliveries of a live session that lost the
# lease. That session no longer sends them: it has stopped its sender, or never learned that it took them.
_FREE_BY_LEASE = f"""({_FREE} OR (d.owner <> %(me)s
            AND EXISTS (SELECT 1 FROM {{schema}}.leases l WHERE l.name = %(lease)s AND l.node = %(me)s)))"""
_FREE_OF_ROUTE = f"{_DELIVERY} AND d.route = %(route)s AND d.state = 'open' AND {_FREE_BY_LEASE}"

# Deliveries of the backlog come before replays.
DUE = f"{_FREE_OF_ROUTE} AND d.not_before <= %(at)s ORDER BY d.replay, d.first LIMIT 1"

# Count the waiting deliveries of the backlog, without those for which
# `StoredDelivery.is_rejected_or_stuck` is True.
WAITING = f"""
    SELECT count(*) FROM {{schema}}.deliveries d
     WHERE d.shard = 0 AND d.route = %(route)s AND NOT d.replay AND d.state = 'open' AND {_FREE_BY_LEASE}
       AND NOT (d.first = d.last AND (d.refusals > 0 OR d.server_errors >= {STUCK_AFTER}))"""

# A single record that was never rejected alone.
FRESH_SINGLE = f"""{_FREE_OF_ROUTE}
       AND d.first = d.last AND d.refusals = 0 AND d.kept IS NULL AND d.not_before <= %(at)s
  ORDER BY d.replay, d.first LIMIT 1"""

# A single record, rejected or not. An ambiguous delivery must not be split, so it is tried again as a whole.
SUSPECT = f"""{_FREE_OF_ROUTE} AND (d.first = d.last OR d.ambiguous OR d.sending) AND d.not_before <= %(at)s
  ORDER BY d.replay, d.first LIMIT 1"""

# The last record of the newest delivery is farthest from the rejected records.
NEWEST_BATCH = f"""{_FREE_OF_ROUTE} AND d.first < d.last AND NOT d.ambiguous AND NOT d.sending
  ORDER BY d.replay, d.first DESC LIMIT 1"""

# Deliveries marked as being sent, although no session sends them any more.
INTERRUPTED = f"{_DELIVERY} AND d.sending AND {_FREE} ORDER BY d.route, d.id"

ONE = f"{_DELIVERY} AND d.id = %(id)s AND d.state = %(state)s"

EVERY_OPEN = f"{_DELIVERY} AND d.state = 'open' ORDER BY d.id FOR UPDATE OF d"

UNKNOWNS = f"{_DELIVERY} AND d.state = 'unknown' ORDER BY d.id"

GIVEN_UP = """
    SELECT d.id FROM {schema}.deliveries d JOIN {schema}.routes r ON r.shard = 0 AND r.name = d.route
      JOIN unnest(%(topics)s::text[], %(numbers)s::bigint[]) AS below (topic, number) ON r.topic = below.topic
     WHERE d.shard = 0 AND NOT r.required AND d.first < below.number AND d.kept IS NULL AND d.state = 'open'
  ORDER BY d.id FOR UPDATE OF d"""

EVERY_UNSETTLED = (
    f"SELECT {', '.join(UNSETTLED_COLUMNS)} FROM {{schema}}.deliveries WHERE shard = 0 ORDER BY id"
)

# Deliveries that still need entries of the log.
BELOW = f"""{_DELIVERY}
       AND d.route = %(route)s AND d.first < %(number)s AND d.kept IS NULL AND d.state = 'open' ORDER BY d.first"""

SUSPECTS = """
    SELECT count(*) FROM {schema}.deliveries
     WHERE shard = 0 AND route = %(route)s AND state = 'open' AND refusals > 0"""

NEXT_DUE_AT = f"""
    SELECT min(d.not_before) FROM {{schema}}.deliveries d
     WHERE d.shard = 0 AND d.route = %(route)s AND d.state = 'open' AND {_FREE_BY_LEASE}"""

# Numbers that a replay must skip, because they are not settled.
UNSETTLED = """
    SELECT first, last FROM {schema}.deliveries WHERE shard = 0 AND route = %(route)s
     UNION ALL
    SELECT number, number FROM {schema}.dead WHERE shard = 0 AND route = %(route)s"""

MARK = """
    UPDATE {schema}.deliveries SET mark = %(mark)s
     WHERE shard = 0 AND id = %(id)s AND fence = %(fence)s AND state = 'open'"""

_WAITED = f"""(d.not_before <> 0
       AND NOT EXISTS (SELECT 1 FROM {{schema}}.nodes n
                        WHERE n.id <> %(me)s AND n.{LIVE} AND d.route = ANY(n.routes)))"""

# For routes that no other gateway runs.
TRY_AT_ONCE = f"""
    UPDATE {{schema}}.deliveries d SET not_before = 0
     WHERE d.shard = 0 AND d.id = ANY(%(ids)s::bigint[]) AND {_WAITED}"""

CHANGED_AT_START = f"""
    SELECT d.id FROM {{schema}}.deliveries d
     WHERE d.shard = 0 AND ((d.sending AND {_FREE}) OR {_WAITED}) ORDER BY d.id FOR UPDATE"""

# -- routes --------------------------------------------------------------------------------------------------

ROUTE = f"SELECT {', '.join(ROUTE_COLUMNS)} FROM {{schema}}.routes WHERE shard = 0 AND name = %(route)s"
ROUTE_TO_SEND = ROUTE.replace(" FROM", ", current_setting('synchronous_standby_names') FROM", 1)
EVERY_ROUTE = f"SELECT {', '.join(ROUTE_COLUMNS)} FROM {{schema}}.routes WHERE shard = 0 ORDER BY name"
OPTIONAL = f"""
    SELECT {", ".join(ROUTE_COLUMNS)} FROM {{schema}}.routes
     WHERE shard = 0 AND topic = %(topic)s AND NOT required ORDER BY name"""

ROUTES = f"""
    SELECT {qualified_columns("r", ROUTE_COLUMNS)}, d.records, d.oldest, d.kept_at, d.stuck, d.unknown
      FROM {{schema}}.routes r,
           LATERAL (SELECT coalesce(sum(last - first + 1) FILTER (WHERE state = 'open' AND NOT replay), 0)::bigint,
                           min(first) FILTER (WHERE state = 'open' AND NOT replay AND kept IS NULL),
                           min(kept_at) FILTER (WHERE state = 'open' AND NOT replay),
                           count(*) FILTER (WHERE state = 'open' AND first = last AND server_errors >= {STUCK_AFTER}),
                           coalesce(sum(last - first + 1) FILTER (WHERE state = 'unknown'), 0)::bigint
                      FROM {{schema}}.deliveries WHERE shard = 0 AND route = r.name)
                   AS d (records, oldest, kept_at, stuck, unknown)
     WHERE r.shard = 0 ORDER BY r.name"""

# A delivery that carries its own record (a retried rejected record) needs no entry of the log.
NEEDED = """
    SELECT count(*), min(r.next) FILTER (WHERE r.required),
           (SELECT min(d.first) FROM {schema}.deliveries d JOIN {schema}.routes q ON q.shard = 0 AND q.name = d.route
             WHERE d.shard = 0 AND q.topic = %(topic)s AND q.required AND d.kept IS NULL)
      FROM {schema}.routes r WHERE r.shard = 0 AND r.topic = %(topic)s"""

# A route that exists keeps its position.
DECLARE = f"""
    INSERT INTO {{schema}}.routes (name, topic, required, named_at, {", ".join(COUNTS)})
    VALUES (%(name)s, %(topic)s, %(required)s, {{now}}, {", ".join(f"%({name})s" for name in COUNTS)})
    ON CONFLICT (shard, name)
    DO UPDATE SET required = excluded.required, orphaned = false, named_at = excluded.named_at"""

# Mark routes as orphaned that this gateway no longer names, or that no gateway has named for a minute. Routes
# that another gateway names stay.
ORPHAN = f"""
    UPDATE {{schema}}.routes r SET orphaned = true
     WHERE r.shard = 0 AND NOT r.orphaned AND r.name <> ALL(%(names)s::text[])
       AND (r.name = ANY(%(before)s::text[]) OR r.named_at < {{now}} - {NAMED_S})
       AND NOT EXISTS (SELECT 1 FROM {{schema}}.nodes n
                        WHERE n.id <> %(me)s AND n.seen_at > {{now}} - {NAMED_S} AND r.name = ANY(n.routes))"""

# A transaction that changes several routes locks its deliveries first, and then all routes.
LOCK_ROUTES = "SELECT name FROM {schema}.routes WHERE shard = 0 ORDER BY name FOR UPDATE"
SET_STATE = f"""
    UPDATE {{schema}}.routes
       SET state = %(state)s, reason = %(reason)s,
           state_since = CASE %(state)s WHEN '{RUNNING}' THEN NULL WHEN state THEN state_since ELSE %(now)s END
     WHERE shard = 0 AND name = %(route)s"""

# Delete the deliveries of a route. They are locked in the same order as elsewhere. Rejected records
# are not deleted.
FORGET_DELIVERIES = """
    WITH own AS MATERIALIZED (
        SELECT id FROM {schema}.deliveries WHERE shard = 0 AND route = %(route)s ORDER BY id FOR UPDATE)
    DELETE FROM {schema}.deliveries d USING own WHERE d.shard = 0 AND d.id = own.id"""
FORGET_REFUSALS = "DELETE FROM {schema}.refusals WHERE shard = 0 AND route = %(route)s"
FORGET_ROUTE = "DELETE FROM {schema}.routes WHERE shard = 0 AND name = %(route)s AND orphaned"

# -- rejected records ----------------------------------------------------------------------------------------

DEAD = f"""
    SELECT {", ".join(DEAD_COLUMNS)} FROM {{schema}}.dead
     WHERE shard = 0 AND route = coalesce(%(route)s, route) ORDER BY id"""

# Lock some rejected records. A transaction with several changes locks deliveries and rejected records before
# routes, in the same order as the statement of a single change.
DEAD_LETTERS = f"""
    SELECT {", ".join(DEAD_COLUMNS)} FROM {{schema}}.dead
     WHERE shard = 0 AND id = ANY(%(ids)s::bigint[]) ORDER BY id FOR UPDATE"""
REFUSALS = f"""
    SELECT {", ".join(REFUSAL_COLUMNS)} FROM {{schema}}.refusals
     WHERE shard = 0 AND route = coalesce(%(route)s, route) ORDER BY id DESC"""

PRUNE_REFUSALS = """
    WITH old AS MATERIALIZED (
        SELECT id FROM {schema}.refusals
         WHERE shard = 0 AND route = %(route)s
           AND id <= (SELECT id FROM {schema}.refusals WHERE shard = 0 AND route = %(route)s
                       ORDER BY id DESC LIMIT 1 OFFSET %(kept)s)
           FOR UPDATE SKIP LOCKED)
    DELETE FROM {schema}.refusals r USING old WHERE r.shard = 0 AND r.id = old.id"""

# -- the log -------------------------------------------------------------------------------------------------

COMMITTED = """
    SELECT first, first + count - 1 FROM {schema}.entries
     WHERE shard = 0 AND topic = %(topic)s::smallint AND at >= %(since)s AND at < %(until)s
       AND first >= (SELECT kept_from[%(topic)s::integer + 1] FROM {schema}.marks WHERE shard = 0)
  ORDER BY first"""

# -- a change of a route -------------------------------------------------------------------------------------


@cache
def change_statement(
    *,
    removed: bool,
    changed: bool,
    added: bool,
    counts: tuple[str, ...],
    is_closed: bool,
    refusal: bool,
    dead: bool,
    letter: bool,
    landing: bool = False,
) -> str:
    """
    Return one statement that writes a whole change, or nothing if a condition fails.

    The conditions: the deliveries that the change is based on have the same state and fence as when they were
    read, a rejected record to delete (`letter`) exists, and new deliveries begin at the route's next number.
    With `is_closed`, their records must also be closed.
    """
    parts = [
        """basis AS MATERIALIZED (
               SELECT d.id FROM {schema}.deliveries d,
                      unnest(%(ids)s::bigint[], %(fences)s::bigint[], %(states)s::text[]) AS b (id, fence, state)
                WHERE d.shard = 0 AND d.id = b.id AND d.fence = b.fence AND d.state = b.state
             ORDER BY d.id FOR UPDATE OF d)"""
    ]
    conditions = ["(SELECT count(*) FROM basis) = cardinality(%(ids)s::bigint[])"]
    if letter:
        parts.append(
            """undead AS (DELETE FROM {schema}.dead WHERE shard = 0 AND id = %(letter)s RETURNING id)"""
        )
        conditions.append("EXISTS (SELECT FROM undead)")
    if is_closed:
        conditions.append(
            """(SELECT closed[%(place)s::integer] FROM {schema}.commits WHERE shard = 0 ORDER BY id DESC LIMIT 1)
               >= %(next)s::bigint + %(was)s::bigint"""
        )
    parts.append(f"may AS MATERIALIZED (SELECT 1 WHERE {' AND '.join(conditions)})")
    go = "EXISTS (SELECT FROM may)"
    if counts:
        sums = ", ".join(f"{name} = {name} + %({name})s" for name in counts)
        next_condition = "AND next = %(was)s" if "next" in counts else ""
        parts.append(
            f"""counted AS (UPDATE {{schema}}.routes SET {sums}
                             WHERE shard = 0 AND name = %(route)s {next_condition} AND {go} RETURNING name)"""
        )
        if "next" in counts:
            go = "EXISTS (SELECT FROM counted)"
    if removed:
        parts.append(
            f"gone AS (DELETE FROM {{schema}}.deliveries WHERE shard = 0 AND id = ANY(%(removed)s::bigint[]) "
            f"AND {go})"
        )
    if changed:
        sets = ", ".join(f"{name} = %(set_{name})s::{type}" for name, type in CHANGED.items())
        parts.append(
            f"moved AS (UPDATE {{schema}}.deliveries SET {sets} WHERE shard = 0 AND id = %(id)s AND {go})"
        )
    if added:
        arrays = ", ".join(f"%(new_{name})s::{type}[]" for name, type in INSERTED.items())
        names = ", ".join(INSERTED)
        parts.append(
            f"""added AS (INSERT INTO {{schema}}.deliveries ({names})
                          SELECT {names} FROM unnest({arrays}) WITH ORDINALITY AS new ({names}, place)
                           WHERE {go} ORDER BY place RETURNING id, first)"""
        )
    if refusal:
        values = ", ".join(f"%(refused_{name})s" for name in REFUSAL_COLUMNS)
        parts.append(
            f"""refused AS (INSERT INTO {{schema}}.refusals ({", ".join(REFUSAL_COLUMNS)})
                            SELECT {values} WHERE {go})"""
        )
    if dead:
        values = ", ".join(f"%(dead_{name})s" for name in DEAD_COLUMNS[1:])
        parts.append(
            f"aside AS (INSERT INTO {{schema}}.dead ({', '.join(DEAD_COLUMNS[1:])}) SELECT {values} WHERE "
            f"{go})"
        )
    if landing:
        values = ", ".join(f"%(landed_{name})s" for name in LANDING.names)
        parts.append(
            f"""landed AS (INSERT INTO {{schema}}.lake_files ({", ".join(LANDING.names)})
                           SELECT {values} WHERE {go})"""
        )
    ids = "ARRAY(SELECT id FROM added ORDER BY id)" if added else "'{}'::bigint[]"
    return f"WITH {', '.join(parts)} SELECT {go}, {ids}"
