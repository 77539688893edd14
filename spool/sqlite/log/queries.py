"""Every statement of the log, named, with a sentence about what it is for."""

from __future__ import annotations

# -- entries -------------------------------------------------------------------------------------------------

# The records of one topic and commit.
ADD_ENTRY = """
    INSERT INTO entries (topic, first, count, committed_at, version, checksum, body)
         VALUES (?, ?, ?, ?, ?, ?, ?)"""

# The entries that hold any number of a range, without their bodies: the first is the one that covers its
# beginning.
ENTRIES_BETWEEN = """
    SELECT rowid, first, count, committed_at, damaged, version, checksum
      FROM entries
     WHERE topic = :topic
       AND first >= coalesce((SELECT max(first) FROM entries WHERE topic = :topic AND first <= :first), :first)
       AND first <= :last
  ORDER BY first"""

# A body on its own: a damaged page under it spoils nothing else.
BODY = "SELECT body FROM entries WHERE rowid = ?"

# Mark an entry as damaged; changes no row when it is marked already.
MARK_DAMAGED = "UPDATE entries SET damaged = 1 WHERE topic = ? AND first = ? AND damaged = 0"

# The entries of a topic, newest first, to be read as far as they are young.
NEWEST_ENTRIES = "SELECT committed_at, first, count FROM entries WHERE topic = ? ORDER BY first DESC"

# The lowest number kept in a topic.
OLDEST_NUMBER = "SELECT min(first) FROM entries WHERE topic = ?"

# The number after the highest one kept in a topic.
NEXT_NUMBER = "SELECT first + count FROM entries WHERE topic = ? ORDER BY first DESC LIMIT 1"

# The oldest entries of a topic below a number, as candidates for removal.
OLDEST_ENTRIES = """
    SELECT first, count, committed_at, length(body)
      FROM entries
     WHERE topic = ? AND first < ?
  ORDER BY first
     LIMIT ?"""

# Entries of a topic up to a number go, with what was filled into them.
REMOVE_ENTRIES = "DELETE FROM entries WHERE topic = ? AND first <= ?"
REMOVE_AMENDMENTS = "DELETE FROM amendments WHERE topic = ? AND number <= ?"

# How many entries there are, kept beside them: counting them would read an index of millions.
ENTRIES = "SELECT coalesce(sum(entries), 0) FROM sizes"
COUNT_ENTRIES = """
    INSERT INTO sizes (topic, entries) VALUES (?1, ?2)
        ON CONFLICT (topic) DO UPDATE SET entries = entries + ?2"""
ODD_SIZES = "SELECT topic FROM sizes WHERE typeof(entries) != 'integer' OR entries < 0"
RECOUNT_ENTRIES = (
    "INSERT OR REPLACE INTO sizes (topic, entries) SELECT topic, count(*) FROM entries GROUP BY topic"
)

# When the oldest kept entry of a topic was committed.
OLDEST_COMMITTED_AT = "SELECT committed_at FROM entries WHERE topic = ? ORDER BY first LIMIT 1"

# -- amendments ----------------------------------------------------------------------------------------------

# What was filled into one record, or into the records of a range.
AMENDMENT = "SELECT checksum, fields FROM amendments WHERE topic = ? AND number = ?"
AMENDMENTS = "SELECT number, checksum, fields FROM amendments WHERE topic = ? AND number BETWEEN ? AND ?"

# An open record's amendment, whole: a further report has been merged into it.
AMEND = "INSERT OR REPLACE INTO amendments (topic, number, checksum, fields) VALUES (?, ?, ?, ?)"

# -- commits and books ---------------------------------------------------------------------------------------

# The row that a commit leaves; its id is the first half of every receipt in it.
ADD_COMMIT = "INSERT INTO commits (committed_at, checksum, terms) VALUES (?, ?, ?)"

LAST_COMMITTED_AT = "SELECT committed_at FROM commits ORDER BY id DESC LIMIT 1"

COMMIT = "SELECT committed_at, checksum, terms FROM commits WHERE id = ?"

# The highest commit there is: a recount covers what was there when it began.
LAST_COMMIT = "SELECT coalesce(max(id), 0) FROM commits"

# Commit rows in the order of their ids, a slice at a time.
COMMITS_BETWEEN = "SELECT id, checksum, terms FROM commits WHERE id > ? AND id <= ? ORDER BY id LIMIT ?"

# The oldest commit rows, to be carried forward. The newest always stays, so that no id is ever given twice.
OLDEST_COMMITS = """
    SELECT id, committed_at, checksum, terms
      FROM commits
     WHERE id < (SELECT max(id) FROM commits)
  ORDER BY id
     LIMIT ?"""

EMPTY_TERMS = "UPDATE commits SET terms = ?, checksum = ? WHERE id = ?"

REMOVE_COMMIT = "DELETE FROM commits WHERE id = ?"

# A running counter moves.
COUNT = """
    INSERT INTO books (topic, term, n) VALUES (:topic, :term, :n)
        ON CONFLICT (topic, term) DO UPDATE SET n = n + :n"""

# A part of a running counter loses its commit rows.
CARRY = """
    INSERT INTO books (topic, term, n, carried) VALUES (:topic, :term, 0, :n)
        ON CONFLICT (topic, term) DO UPDATE SET carried = carried + :n"""

# The counters, and what was carried forward of each.
BOOKS = "SELECT topic, term, n, carried FROM books"

# One running counter of a topic.
TERM = "SELECT n FROM books WHERE topic = ? AND term = ?"

# -- counters, conflicts, shapes -----------------------------------------------------------------------------

SERIES = "SELECT start_time, time, value FROM series WHERE id = ?"

KEEP_SERIES = "INSERT OR REPLACE INTO series (id, start_time, time, value, seen_at) VALUES (?, ?, ?, ?, ?)"

# Series that were not reported for a long time, and the oldest beyond a bound.
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

# Beyond the bound see spool.log.counted_names: how many are kept because they were seen often, and how many
# in all.
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

# Beyond the bound see spool.log.counted_names: how many are kept because they were seen often, and how many
# in all.
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

FACT = "SELECT value FROM facts WHERE name = ?"
KEEP_FACT = "INSERT OR REPLACE INTO facts (name, value) VALUES (?, ?)"
FORGET_FACT = "DELETE FROM facts WHERE name = ?"
FACTS_BETWEEN = "SELECT name, value FROM facts WHERE name >= ? AND name < ? ORDER BY name"
FORGET_FACTS = "DELETE FROM facts WHERE name >= ? AND name < ?"

# What the totals of unit-cost streams take up: not part of spool.max_bytes.
BOUNDED_ELSEWHERE = """
    SELECT (SELECT coalesce(sum(bytes), 0) FROM stream_sizes) + (SELECT coalesce(sum(stored), 0) FROM billing_months)"""
