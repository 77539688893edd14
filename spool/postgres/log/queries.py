"""SQL statements of the log. The tables have a column `shard`, which is always 0."""

from __future__ import annotations

from spool.log.commits.following import change_packed_spans
from spool.sql.erasing import StoredSpans

# -- the head and the commits --------------------------------------------------------------------------------

# Only the holder of this row lock, the head lock, commits records.
LOCK_HEAD = "SELECT period FROM {schema}.heads WHERE shard = 0 FOR UPDATE"

# End the sessions of suspended processes, except those that wait for the standby.
END_STOPPED = """
    SELECT pg_terminate_backend(session.pid)
      FROM pg_locks held JOIN pg_stat_activity session USING (pid)
     WHERE held.locktype = 'relation' AND held.granted AND held.relation = '{schema}.heads'::regclass
       AND held.database = (SELECT oid FROM pg_database WHERE datname = current_database())
       AND session.usename = current_user AND session.application_name LIKE 'tollhouse append%%'
       AND session.xact_start < clock_timestamp() - make_interval(secs => %(seconds)s)
       AND session.wait_event_type IS DISTINCT FROM 'Lock' AND session.wait_event IS DISTINCT FROM 'SyncRep'"""

TRY_HEAD = "SELECT period FROM {schema}.heads WHERE shard = 0 FOR UPDATE SKIP LOCKED"

MOMENT = "SELECT {now}"

_ROW = "id, period, token, at, next, closed, durable, entries, size, ids"

# The row `id` is read as well, to check that it still exists. If no row matches, the result has one row with
# only the time.
FOLLOW = f"""
    SELECT moment.now, {_ROW}
      FROM (SELECT {{now}} AS now) moment
 LEFT JOIN LATERAL (SELECT * FROM {{schema}}.commits
                     WHERE shard = 0 AND period >= %(period)s AND id >= %(id)s
                  ORDER BY id LIMIT %(limit)s) AS since ON true
  ORDER BY id"""

ROWS_AFTER = f"""
    SELECT {_ROW} FROM {{schema}}.commits WHERE shard = 0 AND id > %(id)s ORDER BY id LIMIT %(limit)s"""

# A start searches these rows for open records.
ROWS_BEFORE = f"""
    SELECT {_ROW.replace(" ids", " ''::bytea")} FROM {{schema}}.commits
     WHERE shard = 0 AND id < %(id)s
  ORDER BY id DESC LIMIT %(limit)s"""

ADD_COMMIT = """
    INSERT INTO {schema}.commits (shard, id, period, token, node, at, next, closed, durable, entries, size, checksum,
                                  terms, ids, found)
    VALUES (0, %(id)s, %(period)s, %(token)s, %(node)s, %(at)s, %(next)s::bigint[], %(closed)s::bigint[], %(durable)s,
            %(entries)s, %(size)s, %(checksum)s, %(terms)s, %(ids)s, %(found)s)"""

# other nodes load the spans at a start
SPANS_OF_COMMITS = StoredSpans(
    "SELECT id, ids, at FROM {schema}.commits WHERE shard = 0 AND id > :after ORDER BY id LIMIT :most",
    "UPDATE {schema}.commits SET ids = :packed WHERE shard = 0 AND id = :key",
    0,
    change_packed_spans,
)

STANDS = "SELECT 1 FROM {schema}.commits WHERE shard = 0 AND id = %(id)s AND token = %(token)s"

TOKENS = "SELECT id, token FROM {schema}.commits WHERE shard = 0 AND id = ANY(%(ids)s::bigint[])"

# A commit carried forward has no row.
COMMIT = """
    SELECT at, checksum, terms FROM {schema}.commits
     WHERE shard = 0 AND id = %(id)s AND id > (SELECT carried FROM {schema}.marks WHERE shard = 0)"""

NEWEST = (
    "SELECT id, next, closed, entries, size FROM {schema}.commits WHERE shard = 0 ORDER BY id DESC LIMIT 1"
)

# -- entries -------------------------------------------------------------------------------------------------

ADD_ENTRY = """
    INSERT INTO {schema}.entries (shard, topic, first, count, period, at, version, checksum, body)
    VALUES (0, %s, %s, %s, %s, %s, %s, %s, %s)"""

# The first entry may begin before the range.
ENTRIES_BETWEEN = """
    SELECT first, count, at, version, checksum,
           EXISTS (SELECT 1 FROM {schema}.damaged d WHERE d.shard = 0 AND d.topic = e.topic AND d.first = e.first)
      FROM {schema}.entries e
     WHERE shard = 0 AND topic = %(topic)s::smallint
       AND first >= coalesce((SELECT max(first) FROM {schema}.entries
                               WHERE shard = 0 AND topic = %(topic)s::smallint AND first <= %(first)s), %(first)s)
       AND first >= (SELECT kept_from[%(topic)s::integer + 1] FROM {schema}.marks WHERE shard = 0)
       AND first <= %(last)s
  ORDER BY first"""

# Entries that are not cached, with their bodies.
ENTRIES_OF = """
    SELECT DISTINCT ON (e.first) e.first, e.count, e.at, e.version, e.checksum, false,
           CASE WHEN e.first <> ALL(%(cached)s::bigint[]) THEN e.body END
      FROM unnest(%(firsts)s::bigint[], %(lasts)s::bigint[]) AS wanted (first, last)
      JOIN LATERAL (
           SELECT * FROM {schema}.entries
            WHERE shard = 0 AND topic = %(topic)s::smallint
              AND first >= coalesce((SELECT max(first) FROM {schema}.entries
                                      WHERE shard = 0 AND topic = %(topic)s::smallint AND first <= wanted.first),
                                    wanted.first)
              AND first <= wanted.last) e ON true
     WHERE e.first >= (SELECT kept_from[%(topic)s::integer + 1] FROM {schema}.marks WHERE shard = 0)
  ORDER BY e.first"""

BODIES = """
    SELECT first, body FROM {schema}.entries
     WHERE shard = 0 AND topic = %(topic)s::smallint AND first = ANY(%(firsts)s::bigint[])"""

COMMITTED_AT = """
    SELECT at FROM {schema}.entries
     WHERE shard = 0 AND topic = %(topic)s::smallint AND first <= %(number)s AND first + count > %(number)s
       AND first >= (SELECT kept_from[%(topic)s::integer + 1] FROM {schema}.marks WHERE shard = 0)
  ORDER BY first DESC LIMIT 1"""

# the oldest entries that retention may delete
OLDEST_ENTRIES = """
    SELECT first, count, at, octet_length(body) FROM {schema}.entries
     WHERE shard = 0 AND topic = %(topic)s::smallint AND first < %(below)s
       AND first >= (SELECT kept_from[%(topic)s::integer + 1] FROM {schema}.marks WHERE shard = 0)
  ORDER BY first LIMIT %(limit)s"""

NUMBER_OF_ENTRIES = """
    SELECT count(*) FROM {schema}.entries
     WHERE shard = 0 AND topic = %(topic)s::smallint AND first >= %(first)s AND first < %(below)s"""

# Mark an entry as damaged. An entry with a mark is not counted again.
MARK_DAMAGED = """
    WITH marked AS (
        INSERT INTO {schema}.damaged (shard, topic, first)
        SELECT 0, %(topic)s::smallint, found.first FROM unnest(%(firsts)s::bigint[]) AS found (first)
            ON CONFLICT DO NOTHING RETURNING first)
    INSERT INTO {schema}.books (shard, topic, term, n, carried)
    SELECT 0, %(name)s, 'damaged', sum(found.records), 0
      FROM unnest(%(firsts)s::bigint[], %(records)s::bigint[]) AS found (first, records)
      JOIN marked USING (first)
    HAVING count(*) > 0
        ON CONFLICT (shard, topic, term) DO UPDATE SET n = books.n + excluded.n"""

# -- amendments ----------------------------------------------------------------------------------------------

AMENDMENTS = """
    SELECT number, checksum, fields FROM {schema}.amendments
     WHERE shard = 0 AND topic = %(topic)s::smallint AND number BETWEEN %(first)s AND %(last)s"""

AMENDMENTS_OF = """
    SELECT number, checksum, fields FROM unnest(%(firsts)s::bigint[], %(lasts)s::bigint[]) AS wanted (first, last)
      JOIN {schema}.amendments ON shard = 0 AND topic = %(topic)s::smallint
           AND number BETWEEN wanted.first AND wanted.last"""

# The added fields are stored in the period of the record.
AMEND = """
    INSERT INTO {schema}.amendments (shard, topic, number, period, checksum, fields)
    SELECT 0, new.topic, new.number,
           (SELECT max(p.period) FROM {schema}.periods p
             WHERE p.shard = 0 AND p.firsts[new.topic + 1] <= new.number),
           new.checksum, new.fields
      FROM unnest(%(topics)s::smallint[], %(numbers)s::bigint[], %(checksums)s::bigint[], %(fields)s::bytea[])
           AS new (topic, number, checksum, fields)
        ON CONFLICT (shard, topic, number, period)
        DO UPDATE SET checksum = excluded.checksum, fields = excluded.fields"""

# -- accounting and marks ------------------------------------------------------------------------------------

MARKS = "SELECT booked, carried, kept_from, removed FROM {schema}.marks WHERE shard = 0"

# sums over the counted commits; `carried` is the part from commits whose rows were deleted
BOOKS = "SELECT topic, term, n, carried FROM {schema}.books WHERE shard = 0"

UNBOOKED = """
    SELECT id, at, checksum, terms, found FROM {schema}.commits
     WHERE shard = 0 AND id > (SELECT booked FROM {schema}.marks WHERE shard = 0)
  ORDER BY id LIMIT %(limit)s"""

# has no effect if another process has done the same
BOOKED = "UPDATE {schema}.marks SET booked = %(after)s WHERE shard = 0 AND booked = %(before)s"

COUNT = """
    INSERT INTO {schema}.books (shard, topic, term, n, carried)
    SELECT 0, new.topic, new.term, new.n, 0 FROM unnest(%(topics)s::text[], %(terms)s::text[], %(n)s::bigint[])
           AS new (topic, term, n)
        ON CONFLICT (shard, topic, term) DO UPDATE SET n = books.n + excluded.n"""

# Carry forward the counts of commit rows that will be deleted.
CARRY = """
    INSERT INTO {schema}.books (shard, topic, term, n, carried)
    SELECT 0, new.topic, new.term, 0, new.n FROM unnest(%(topics)s::text[], %(terms)s::text[], %(n)s::bigint[])
           AS new (topic, term, n)
        ON CONFLICT (shard, topic, term) DO UPDATE SET carried = books.carried + excluded.carried"""

# has no effect if another process has done the same
CARRIED = "UPDATE {schema}.marks SET carried = %(after)s WHERE shard = 0 AND carried = %(before)s"

COMMITS_BETWEEN = """
    SELECT id, at, checksum, terms FROM {schema}.commits
     WHERE shard = 0 AND id > %(after)s AND id <= %(until)s
  ORDER BY id LIMIT %(limit)s"""

# has no effect if another process has cleared the terms or carried them forward
EMPTY_TERMS = """
    UPDATE {schema}.commits c SET terms = %(terms)s, checksum = %(checksum)s
      FROM unnest(%(ids)s::bigint[], %(checksums)s::bigint[]) AS unread (id, checksum), {schema}.marks m
     WHERE c.shard = 0 AND m.shard = 0 AND c.id = unread.id AND c.checksum = unread.checksum AND c.id > m.carried"""

# -- conflicts, shapes, event types --------------------------------------------------------------------------

CONFLICTS = "SELECT topic, first_source, second_source, sums FROM {schema}.conflicts WHERE shard = 0"
DROP_CONFLICT = """
    DELETE FROM {schema}.conflicts WHERE shard = 0 AND topic = %s AND first_source = %s AND second_source = %s"""
KEEP_CONFLICT = """
    INSERT INTO {schema}.conflicts (shard, topic, first_source, second_source, sums) VALUES (0, %s, %s, %s, %s)
        ON CONFLICT (shard, topic, first_source, second_source) DO UPDATE SET sums = excluded.sums"""

COUNT_SHAPE = """
    INSERT INTO {schema}.unrecognised (shard, names, count, last_seen) VALUES (0, %s, %s, %s)
        ON CONFLICT (shard, names)
        DO UPDATE SET count = unrecognised.count + excluded.count, last_seen = excluded.last_seen"""
SHAPES = (
    "SELECT names, count, last_seen FROM {schema}.unrecognised WHERE shard = 0 ORDER BY count DESC, names"
)

# The `often` most frequent shapes stay (see spool.log.counted_names), up to the limit `most`.
BOUND_SHAPES = """
    WITH rest AS (SELECT names, last_seen FROM {schema}.unrecognised WHERE shard = 0
                   ORDER BY count DESC, last_seen DESC, names OFFSET %(often)s),
         gone AS (SELECT names FROM rest ORDER BY last_seen DESC, names OFFSET %(most)s - %(often)s)
    DELETE FROM {schema}.unrecognised WHERE shard = 0 AND names IN (SELECT names FROM gone)"""

EVENT_TYPES = "SELECT type, count, amount, last_seen FROM {schema}.event_types WHERE shard = 0 ORDER BY type"
EVENT_AMOUNTS = "SELECT type, amount FROM {schema}.event_types WHERE shard = 0 AND type = ANY(%s::bytea[])"
COUNT_EVENT_TYPE = """
    INSERT INTO {schema}.event_types (shard, type, count, amount, last_seen) VALUES (0, %s, %s, %s, %s)
        ON CONFLICT (shard, type) DO UPDATE
        SET count = event_types.count + excluded.count, amount = excluded.amount, last_seen = excluded.last_seen"""

# The `often` most frequent types stay (see spool.log.counted_names), up to the limit `most`.
BOUND_EVENT_TYPES = """
    WITH rest AS (SELECT type, last_seen FROM {schema}.event_types WHERE shard = 0
                   ORDER BY count DESC, last_seen DESC, type OFFSET %(often)s),
         gone AS (SELECT type FROM rest ORDER BY last_seen DESC, type OFFSET %(most)s - %(often)s)
    DELETE FROM {schema}.event_types WHERE shard = 0 AND type IN (SELECT type FROM gone)"""

# -- counters ------------------------------------------------------------------------------------------------

SERIES = (
    "SELECT id, start_time, time, value FROM {schema}.series WHERE shard = 0 AND id = ANY(%(ids)s::bytea[])"
)
KEEP_SERIES = """
    INSERT INTO {schema}.series (shard, id, start_time, time, value, seen_at)
    SELECT 0, new.id, new.start_time, new.time, new.value, %(at)s
      FROM unnest(%(ids)s::bytea[], %(starts)s::bigint[], %(times)s::bigint[], %(values)s::text[])
           AS new (id, start_time, time, value)
        ON CONFLICT (shard, id) DO UPDATE SET start_time = excluded.start_time, time = excluded.time,
                                              value = excluded.value, seen_at = excluded.seen_at"""

COUNT_SERIES = "SELECT count(*) FROM {schema}.series WHERE shard = 0"

# when the oldest of the `most` newest series was last reported
NEWEST_SERIES_SINCE = """
    SELECT min(seen_at) FROM (
        SELECT seen_at FROM {schema}.series WHERE shard = 0 ORDER BY seen_at DESC LIMIT %(most)s) newest"""

# -- known ids -----------------------------------------------------------------------------------------------

FOLD = "SELECT seq, commit, through, covered_since FROM {schema}.folds WHERE shard = 0"

# Note a move of ids into runs. This succeeds only on the node that last wrote or read the stored runs.
FOLDED = """
    UPDATE {schema}.folds
       SET seq = seq + 1, commit = %(commit)s, through = %(through)s::bigint[], covered_since = %(covered_since)s
     WHERE shard = 0 AND seq = %(seq)s"""

RUNS = "SELECT id, hour, arrived_at, checksum, ids FROM {schema}.id_runs WHERE shard = 0"
ADD_RUN = """
    INSERT INTO {schema}.id_runs (shard, id, hour, count, arrived_at, checksum, ids)
    VALUES (0, %s, %s, %s, %s, %s, %s)"""
REMOVE_RUNS = "DELETE FROM {schema}.id_runs WHERE shard = 0 AND id = ANY(%s::bigint[])"

# -- facts ---------------------------------------------------------------------------------------------------

FACTS_BETWEEN = """
    SELECT name, value FROM {schema}.facts
     WHERE name >= %s COLLATE "C" AND name < %s COLLATE "C" ORDER BY name"""

# replaces the stored time unless that is later
KEEP_LATER = """
    INSERT INTO {schema}.facts AS kept (name, value) VALUES (%(name)s, %(text)s)
        ON CONFLICT (name) DO UPDATE SET value = excluded.value
     WHERE convert_from(kept.value, 'UTF8')::float8 < %(since)s"""

# -- senders that reported calls -----------------------------------------------------------------------------

# The server's estimate, because the size of the table's file would not shrink when rows are deleted.
HEARD_ROWS = "SELECT pg_stat_get_live_tuples('{schema}.heard'::regclass)"

# -- periods -------------------------------------------------------------------------------------------------

PERIODS = "SELECT period, at, firsts, commit, size FROM {schema}.periods WHERE shard = 0 ORDER BY period"
# One process at a time creates partitions. Appends only read this table.
LOCK_PERIODS = "LOCK TABLE {schema}.periods IN SHARE ROW EXCLUSIVE MODE"

# Select the newest period if it must end: it has a commit, and has reached its limit of bytes or time.
FULL_PERIOD = """
    SELECT current.period FROM (SELECT * FROM {schema}.periods WHERE shard = 0 ORDER BY period DESC LIMIT 1) current,
           (SELECT id, size FROM {schema}.commits WHERE shard = 0 ORDER BY id DESC LIMIT 1) newest
     WHERE newest.id >= current.commit
       AND (newest.size - current.size >= %(bytes)s OR %(at)s >= current.at + %(seconds)s)"""

# Begin a period. A deleted period must not reappear, because nodes that follow would miss its commits.
BEGIN_PERIOD = """
    WITH begun AS (
        INSERT INTO {schema}.periods (shard, period, at, firsts, commit, size)
        SELECT 0, %(period)s, %(at)s, newest.next, newest.id + 1, newest.size
          FROM (SELECT id, next, size FROM {schema}.commits WHERE shard = 0 ORDER BY id DESC LIMIT 1) newest
         WHERE %(period)s > (SELECT period FROM {schema}.heads WHERE shard = 0)
            ON CONFLICT DO NOTHING RETURNING period)
    UPDATE {schema}.heads SET period = begun.period FROM begun WHERE shard = 0"""
REMOVE_PERIOD = "DELETE FROM {schema}.periods WHERE shard = 0 AND period = %s"
PARTITIONED = ("entries", "amendments", "commits")

# A partition is attached later, so that readers of the parent table do not wait.
HAS_PARTITION = "SELECT to_regclass('{schema}.%(table)s_%(period)d') IS NOT NULL"
MAKE_PARTITION = "CREATE TABLE {schema}.%(table)s_%(period)d (LIKE {schema}.%(table)s INCLUDING ALL)"
ATTACH_PARTITION = """
    ALTER TABLE {schema}.%(table)s ATTACH PARTITION {schema}.%(table)s_%(period)d
        FOR VALUES FROM (%(period)d) TO (%(after)d)"""
DROP_PARTITION = "DROP TABLE IF EXISTS {schema}.%(table)s_%(period)d"

REMOVED = """
    UPDATE {schema}.marks SET kept_from[%(topic)s::integer + 1] = %(number)s, removed = removed + %(entries)s
     WHERE shard = 0 AND kept_from[%(topic)s::integer + 1] = %(before)s"""

REMOVE_DAMAGED = """
    DELETE FROM {schema}.damaged
     WHERE shard = 0 AND first < (SELECT kept_from[topic + 1] FROM {schema}.marks WHERE shard = 0)"""
