"""SQL statements of the log."""

from __future__ import annotations

# -- entries -------------------------------------------------------------------------------------------------

ADD_ENTRY = """
    INSERT INTO entries (topic, first, count, committed_at, version, checksum, body)
         VALUES (?, ?, ?, ?, ?, ?, ?)"""

# The first entry may begin before the range.
ENTRIES_BETWEEN = """
    SELECT rowid, first, count, committed_at, damaged, version, checksum
      FROM entries
     WHERE topic = :topic
       AND first >= coalesce((SELECT max(first) FROM entries WHERE topic = :topic AND first <= :first), :first)
       AND first <= :last
  ORDER BY first"""

# Read separately, so that a damaged page of the body affects nothing else.
BODY = "SELECT body FROM entries WHERE rowid = ?"

# This changes no row if the entry is already marked.
MARK_DAMAGED = "UPDATE entries SET damaged = 1 WHERE topic = ? AND first = ? AND damaged = 0"

# The caller stops reading when the entries are old enough.
NEWEST_ENTRIES = "SELECT committed_at, first, count FROM entries WHERE topic = ? ORDER BY first DESC"

OLDEST_NUMBER = "SELECT min(first) FROM entries WHERE topic = ?"

NEXT_NUMBER = "SELECT first + count FROM entries WHERE topic = ? ORDER BY first DESC LIMIT 1"

# the oldest entries that retention may delete
OLDEST_ENTRIES = """
    SELECT first, count, committed_at, length(body)
      FROM entries
     WHERE topic = ? AND first < ?
  ORDER BY first
     LIMIT ?"""

# deletes entries with their added reports
REMOVE_ENTRIES = "DELETE FROM entries WHERE topic = ? AND first <= ?"
REMOVE_AMENDMENTS = "DELETE FROM amendments WHERE topic = ? AND number <= ?"

# The number of entries is stored, because counting would read an index with millions of rows.
ENTRIES = "SELECT coalesce(sum(entries), 0) FROM sizes"
COUNT_ENTRIES = """
    INSERT INTO sizes (topic, entries) VALUES (?1, ?2)
        ON CONFLICT (topic) DO UPDATE SET entries = entries + ?2"""
ODD_SIZES = "SELECT topic FROM sizes WHERE typeof(entries) != 'integer' OR entries < 0"
RECOUNT_ENTRIES = (
    "INSERT OR REPLACE INTO sizes (topic, entries) SELECT topic, count(*) FROM entries GROUP BY topic"
)

OLDEST_COMMITTED_AT = "SELECT committed_at FROM entries WHERE topic = ? ORDER BY first LIMIT 1"

# -- amendments ----------------------------------------------------------------------------------------------

AMENDMENT = "SELECT checksum, fields FROM amendments WHERE topic = ? AND number = ?"
AMENDMENTS = "SELECT number, checksum, fields FROM amendments WHERE topic = ? AND number BETWEEN ? AND ?"

AMEND = "INSERT OR REPLACE INTO amendments (topic, number, checksum, fields) VALUES (?, ?, ?, ?)"

# -- commits and accounting ----------------------------------------------------------------------------------

# The id is the first half of every receipt id of the commit.
ADD_COMMIT = "INSERT INTO commits (committed_at, checksum, terms) VALUES (?, ?, ?)"

LAST_COMMITTED_AT = "SELECT committed_at FROM commits ORDER BY id DESC LIMIT 1"

COMMIT = "SELECT committed_at, checksum, terms FROM commits WHERE id = ?"

# A recount does not count later commits.
LAST_COMMIT = "SELECT coalesce(max(id), 0) FROM commits"

COMMITS_BETWEEN = "SELECT id, checksum, terms FROM commits WHERE id > ? AND id <= ? ORDER BY id LIMIT ?"

# The newest row must stay, so that no id is assigned twice.
OLDEST_COMMITS = """
    SELECT id, committed_at, checksum, terms
      FROM commits
     WHERE id < (SELECT max(id) FROM commits)
  ORDER BY id
     LIMIT ?"""

EMPTY_TERMS = "UPDATE commits SET terms = ?, checksum = ? WHERE id = ?"

REMOVE_COMMIT = "DELETE FROM commits WHERE id = ?"

COUNT = """
    INSERT INTO books (topic, term, n) VALUES (:topic, :term, :n)
        ON CONFLICT (topic, term) DO UPDATE SET n = n + :n"""

# Carry forward the counts of commit rows that will be deleted.
CARRY = """
    INSERT INTO books (topic, term, n, carried) VALUES (:topic, :term, 0, :n)
        ON CONFLICT (topic, term) DO UPDATE SET carried = carried + :n"""

BOOKS = "SELECT topic, term, n, carried FROM books"

TERM = "SELECT n FROM books WHERE topic = ? AND term = ?"

# -- counters, conflicts, shapes -----------------------------------------------------------------------------

SERIES = "SELECT start_time, time, value FROM series WHERE id = ?"

KEEP_SERIES = "INSERT OR REPLACE INTO series (id, start_time, time, value, seen_at) VALUES (?, ?, ?, ?, ?)"

REMOVE_OLD_SERIES = """
    DELETE FROM series WHERE id IN (SELECT id FROM series WHERE seen_at < ? ORDER BY seen_at LIMIT ?)"""
COUNT_SERIES = "SELECT count(*) FROM series"
NEWEST_OF_OLDEST_SERIES = "SELECT max(seen_at) FROM (SELECT seen_at FROM series ORDER BY seen_at LIMIT ?)"
REMOVE_OLDEST_SERIES = "DELETE FROM series WHERE id IN (SELECT id FROM series ORDER BY seen_at LIMIT ?)"

CONFLICT = "SELECT sums FROM conflicts WHERE topic = ? AND first_source = ? AND second_source = ?"
CONFLICT_PAIRS = "SELECT count(*) FROM conflicts WHERE NOT (first_source = ?1 AND second_source = ?1)"
RAREST_CONFLICT = """
    SELECT topic, first_source, second_source, sums FROM conflicts
     WHERE NOT (first_source = ?1 AND second_source = ?1)
     ORDER BY count, topic, first_source, second_source LIMIT 1"""
DROP_CONFLICT = "DELETE FROM conflicts WHERE topic = ? AND first_source = ? AND second_source = ?"
CONFLICTS = "SELECT topic, first_source, second_source, sums FROM conflicts"
KEEP_CONFLICT = """
    INSERT OR REPLACE INTO conflicts (topic, first_source, second_source, count, sums)
         VALUES (?, ?, ?, ?, ?)"""

COUNT_SHAPE = """
    INSERT INTO unrecognised (names, count, last_seen) VALUES (:names, :n, :now)
        ON CONFLICT (names) DO UPDATE SET count = count + :n, last_seen = :now"""
SHAPES = "SELECT names, count, last_seen FROM unrecognised ORDER BY count DESC, names"

# The ?1 most frequent shapes stay (see spool.log.counted_names), up to the limit ?2.
BOUND_SHAPES = """
    WITH often AS (SELECT names FROM unrecognised ORDER BY count DESC, last_seen DESC, names LIMIT ?1)
    DELETE FROM unrecognised
     WHERE (SELECT count(*) FROM unrecognised) > ?2 AND names NOT IN often
       AND names NOT IN (SELECT names FROM unrecognised WHERE names NOT IN often
                          ORDER BY last_seen DESC, names LIMIT ?2 - ?1)"""

COUNT_EVENT_TYPE = """
    INSERT INTO event_types (type, count, amount, last_seen) VALUES (:type, :n, :amount, :now)
        ON CONFLICT (type) DO UPDATE SET count = count + :n, amount = :amount, last_seen = :now"""
EVENT_AMOUNT = "SELECT amount FROM event_types WHERE type = ?"
EVENT_TYPES = "SELECT type, count, amount, last_seen FROM event_types ORDER BY type"

# The ?1 most frequent types stay (see spool.log.counted_names), up to the limit ?2.
BOUND_EVENT_TYPES = """
    WITH often AS (SELECT type FROM event_types ORDER BY count DESC, last_seen DESC, type LIMIT ?1)
    DELETE FROM event_types
     WHERE (SELECT count(*) FROM event_types) > ?2 AND type NOT IN often
       AND type NOT IN (SELECT type FROM event_types WHERE type NOT IN often
                          ORDER BY last_seen DESC, type LIMIT ?2 - ?1)"""

# -- known ids -----------------------------------------------------------------------------------------------

RUNS = "SELECT id, hour, arrived_at, checksum, ids FROM id_runs"
ADD_RUN = "INSERT INTO id_runs (id, hour, count, arrived_at, checksum, ids) VALUES (?, ?, ?, ?, ?, ?)"
REMOVE_RUN = "DELETE FROM id_runs WHERE id = ?"

# -- facts ---------------------------------------------------------------------------------------------------

FACTS_BETWEEN = "SELECT name, value FROM facts WHERE name >= ? AND name < ? ORDER BY name"
FORGET_FACTS_BETWEEN = "DELETE FROM facts WHERE name >= ? AND name < ?"

# Bytes of billing data, which has a limit of its own and does not count towards spool.max_bytes.
BOUNDED_ELSEWHERE = """
    SELECT (SELECT coalesce(sum(bytes), 0) FROM stream_sizes) + (SELECT coalesce(sum(stored), 0) FROM billing_months)"""
