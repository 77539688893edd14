"""
Repair of record numbers, accounting and routes after data of the log was lost.

Retention deletes only the oldest entries, so the accounting shows which numbers must exist. Damaged entries are
added for missing numbers, so that readers skip and count them. All functions run inside the caller's transaction.
"""

from __future__ import annotations

import logging
import sqlite3
from collections import Counter
from collections.abc import Mapping
from itertools import pairwise

from spool.deliveries import routes
from spool.deliveries.rules import TERMS, new_idempotency_key
from spool.deliveries.values import RouteSpec
from spool.log import accounting
from spool.record import TOPICS
from spool.sqlite.damage.notes import RecoveryNote
from spool.sqlite.deliveries import delivery_rows
from spool.sqlite.deliveries import queries as delivery_queries
from spool.sqlite.deliveries.delivery_rows import accounting_counts_by_route
from spool.sqlite.log import queries
from spool.sqlite.log.entries import highest_accepted_number, lowest_stored_number

# maximum plausible excess of a counter over what is stored; with a larger excess, the counter is damaged
MOST_UNKNOWN = 1 << 24

_log = logging.getLogger(__name__)

_Terms = Counter[tuple[str, str]]


def describe_contradiction_in_log(connection: sqlite3.Connection) -> str:
    """
    Return a description of a contradiction in the log, or "": an unknown counter, a counter that disagrees
    with the entries of its topic, or an impossible size.
    """
    counters = _read_accounting_counters(connection)
    for topic, term in counters:
        if topic not in TOPICS or not accounting.is_counter_name(term):
            return f"the counter {term!r} of {topic!r} is unknown"
    for topic in TOPICS:
        deleted = counters[topic, accounting.EXPIRED] + counters[topic, accounting.RETIRED]
        accepted_count = counters[topic, accounting.ACCEPTED]
        end = connection.execute(queries.NEXT_NUMBER, (topic,)).fetchone()
        if lowest_stored_number(connection, topic) != deleted + 1 or (
            end is not None and end[0] != accepted_count + 1
        ):
            return f"the counters of {topic} contradict its entries"
    if connection.execute(queries.ODD_SIZES).fetchone() is not None:
        return "a stored number of entries is invalid"
    return ""


def count_missing_record_numbers(
    connection: sqlite3.Connection, noted_accepted_counts: Mapping[str, int]
) -> int:
    return sum(
        max(0, noted_accepted_counts.get(topic, 0) - highest_accepted_number(connection, topic))
        for topic in TOPICS
    )


def repair_counters_after_loss(connection: sqlite3.Connection, note: RecoveryNote) -> dict[str, int]:
    """
    Make the accounting and the counters of routes agree with the records that survived a damage. Return the
    number of lost record numbers by topic.

    All entries must be intact, except those marked as damaged.
    """
    explained = _sum_counts_of_commits(connection)
    highest = _highest_numbers(connection)
    lost = {}
    for topic in TOPICS:
        known = max(highest[topic], note.accepted.get(topic, 0))
        lost[topic] = _add_damaged_entries_for_gaps(connection, topic, known, note.kept.get(topic, 0))
    connection.execute(queries.RECOUNT_ENTRIES)
    _count_unexplained_as_deleted_commits(connection, explained)
    for topic in TOPICS:
        _correct_received_counter(connection, topic)
    _restore_routes(connection, note)
    repair_unbalanced_route_counters(connection)
    return {topic: n for topic, n in lost.items() if n}


def _restore_routes(connection: sqlite3.Connection, note: RecoveryNote) -> None:
    """
    Restore routes with the progress in the note, because a lost route would otherwise send everything again.

    Deliveries that were settled after the note may be sent again.
    """
    for name, noted in note.progress.items():
        topic = accounting.route_topic(name)
        if topic not in TOPICS:
            continue
        progress = min(noted, highest_accepted_number(connection, topic) + 1)
        if delivery_rows.find_route(connection, name) is None:
            delivery_rows.add_route(
                connection, routes.new_route(RouteSpec(name=name, topic=topic), accepted=0, oldest=1)
            )
            highest = "SELECT coalesce(max(last), 0) + 1 FROM deliveries WHERE route = ? AND NOT replay"
            connection.execute(f"UPDATE routes SET next = ({highest}) WHERE name = ?", (name, name))
        connection.execute(delivery_queries.REMOVE_BELOW, (name, progress))
        connection.execute("UPDATE routes SET next = max(next, ?) WHERE name = ?", (progress, name))
        settled = sum(delivery_rows.read_route(connection, name).counts[term] for term in TERMS)
        behind = max(0, progress - 1 - settled)
        connection.execute("UPDATE routes SET delivered = delivered + ? WHERE name = ?", (behind, name))


def repair_unbalanced_route_counters(connection: sqlite3.Connection) -> bool:
    """
    Make the counters of each route add up to the assigned numbers. Return whether any had to change. Records
    of lost deliveries are sent again.

    Deliveries are made in the order of numbers. So the records that no counter has are the highest ones below
    `next`.
    """
    mended = False
    for name, terms in accounting_counts_by_route(connection).items():
        topic = accounting.route_topic(name)
        last_number = highest_accepted_number(connection, topic)
        if sum(terms.values()) == last_number and terms["queued"] >= 0:
            continue
        mended = True
        upto: int = connection.execute("SELECT next FROM routes WHERE name = ?", (name,)).fetchone()[0]
        upto = min(max(upto, 1), last_number + 1)
        connection.execute("UPDATE routes SET next = ? WHERE name = ?", (upto, name))
        connection.execute("DELETE FROM deliveries WHERE route = ? AND last >= ?", (name, upto))
        missing = last_number - sum(accounting_counts_by_route(connection)[name].values())
        _log.error(
            "%s: the state of some records is unknown, so they may be sent again",
            name,
            extra={"action": "route_mended", "route": name, "records": missing},
        )
        if missing > 0:
            missing -= _requeue_missing_records(connection, name, upto, missing)
        for term in ("damaged", *TERMS):
            (n,) = connection.execute(f"SELECT {term} FROM routes WHERE name = ?", (name,)).fetchone()
            change = max(missing, -n)
            connection.execute(f"UPDATE routes SET {term} = {term} + ? WHERE name = ?", (change, name))
            missing -= change
    return mended


def _requeue_missing_records(
    connection: sqlite3.Connection, route: str, end_number: int, missing_count: int
) -> int:
    spans = "SELECT first, last FROM deliveries WHERE route = ? AND NOT replay ORDER BY last DESC"
    spans_held: list[tuple[int, int]] = [
        (end_number, end_number),
        *connection.execute(spans, (route,)),
        (0, lowest_stored_number(connection, accounting.route_topic(route)) - 1),
    ]
    resent_count = 0
    for (above, _), (_, below) in pairwise(spans_held):
        first = max(below + 1, above - (missing_count - resent_count))
        if first < above:
            row = (route, first, above - 1, new_idempotency_key())
            connection.execute(
                "INSERT INTO deliveries (route, first, last, idempotency_key, passed) VALUES (?, ?, ?, ?, 0)",
                row,
            )
            resent_count += int(above) - int(first)
    return resent_count


def _add_damaged_entries_for_gaps(
    connection: sqlite3.Connection, topic: str, highest_known_number: int, noted_record_count: int
) -> int:
    """Add damaged entries for missing numbers of a topic. Return how many numbers are newly lost."""
    statement = "SELECT first, count, committed_at, damaged FROM entries WHERE topic = ? ORDER BY first"
    rows = connection.execute(statement, (topic,)).fetchall()
    entries = [(first, count, at) for first, count, at, damaged in rows if not damaged]
    counters = _read_accounting_counters(connection)
    deleted, last_number = _highest_deleted_and_assigned_numbers(
        counters,
        topic,
        highest_known_number,
        noted_record_count,
        lowest_stored_number=entries[0][0] if entries else 0,
    )
    for term, n in (
        (accounting.ACCEPTED, last_number),
        (accounting.RETIRED, deleted - counters[topic, accounting.EXPIRED]),
    ):
        if n != counters[topic, term]:
            _add_to_counter(connection, topic, term, n - counters[topic, term])
    connection.execute("DELETE FROM entries WHERE topic = ? AND damaged", (topic,))
    holes = []
    expected = deleted + 1
    committed_at = entries[0][2] if entries else 0.0
    for first, count, at in [*entries, (last_number + 1, 0, 0.0)]:
        if first > expected:
            holes.append((expected, first - 1))
            row = (topic, expected, first - expected, committed_at, 0, 0, b"")
            connection.execute(queries.ADD_ENTRY, row)
            connection.execute(queries.MARK_DAMAGED, (topic, expected))
        expected, committed_at = max(expected, first + count), at or committed_at
    before = [(first, first + count - 1) for first, count, _, damaged in rows if damaged]
    lost: int = sum(last - first + 1 for first, last in holes) - _count_overlap(holes, before)
    if lost:
        _add_to_counter(connection, topic, accounting.DAMAGED, lost)
    return lost


def _highest_deleted_and_assigned_numbers(
    counters: _Terms,
    topic: str,
    highest_known_number: int,
    noted_record_count: int,
    *,
    lowest_stored_number: int,
) -> tuple[int, int]:
    """
    Return two record numbers: the highest that retention has deleted, and the highest that is assigned.
    `lowest_stored_number`: the lowest stored number, or 0.

    If the counters are lost, the first is computed from the number of stored records in the note.
    """
    deleted = counters[topic, accounting.EXPIRED] + counters[topic, accounting.RETIRED]
    accepted_count = counters[topic, accounting.ACCEPTED]
    if not highest_known_number <= accepted_count <= highest_known_number + MOST_UNKNOWN:
        accepted_count = highest_known_number
    if (
        (topic, accounting.ACCEPTED) not in counters
        or not 0 <= deleted <= accepted_count
        or (lowest_stored_number and deleted >= lowest_stored_number)
    ):
        deleted = (
            max(0, accepted_count - noted_record_count)
            if noted_record_count or not lowest_stored_number
            else lowest_stored_number - 1
        )
        deleted = min(deleted, lowest_stored_number - 1) if lowest_stored_number else deleted
    return deleted, accepted_count


def _count_overlap(gaps: list[tuple[int, int]], earlier_gaps: list[tuple[int, int]]) -> int:
    return sum(
        max(0, min(last, end) - max(first, begin) + 1) for first, last in gaps for begin, end in earlier_gaps
    )


def _highest_numbers(connection: sqlite3.Connection) -> Counter[str]:
    """Return the highest record number of each topic, from intact entries and commit rows."""
    highest: Counter[str] = Counter()
    ends = "SELECT topic, max(first + count - 1) FROM entries WHERE NOT damaged GROUP BY topic"
    for topic, last in connection.execute(ends):
        highest[topic] = last
    for _, checksum, packed in connection.execute(queries.COMMITS_BETWEEN, (0, 1 << 62, -1)):
        for terms in accounting.unpack_submission_counts_if_intact(packed, checksum) or ():
            if terms.accepted:
                highest[terms.topic] = max(highest[terms.topic], terms.last_number)
    return highest


def _sum_counts_of_commits(connection: sqlite3.Connection) -> _Terms:
    explained: _Terms = Counter()
    for _, checksum, packed in connection.execute(queries.COMMITS_BETWEEN, (0, 1 << 62, -1)):
        explained.update(
            accounting.sum_submission_counts(
                accounting.unpack_submission_counts_if_intact(packed, checksum) or ()
            )
        )
    return explained


def _count_unexplained_as_deleted_commits(connection: sqlite3.Connection, counts_of_commits: _Terms) -> None:
    """
    Make the accounting balance: add the part of each counter that no commit row explains to the counts of
    deleted rows.

    A counter that is lost, or lower than the sum of its commit rows, is set to that sum.
    """
    counters = {(topic, term): (n, carried) for topic, term, n, carried in connection.execute(queries.BOOKS)}
    for topic, term in {**counters, **counts_of_commits}:
        if term in accounting.BY_KEEPING:
            continue
        n, carried = counters.get((topic, term), (0, 0))
        missing = n - carried - counts_of_commits[topic, term]
        if not 0 <= missing <= MOST_UNKNOWN and term not in (accounting.ACCEPTED, accounting.PENDING):
            _add_to_counter(connection, topic, term, -missing)
        elif missing:
            _log.warning(
                "commit rows are lost; their counts are carried forward",
                extra={"action": "commits_lost", "topic": topic, "term": term, "count": missing},
            )
            connection.execute(queries.CARRY, {"topic": topic, "term": term, "n": missing})


def _correct_received_counter(connection: sqlite3.Connection, topic: str) -> None:
    """Set a topic's counter of received records to the sum of their outcomes, because it may be lost."""
    terms = {
        term: n
        for (counter_topic, term), n in _read_accounting_counters(connection).items()
        if counter_topic == topic
    }
    went = sum(
        terms.get(term, 0) for term in (accounting.ACCEPTED, accounting.DUPLICATES, accounting.PENDING)
    )
    went += sum(n for term, n in terms.items() if term.startswith(("ignored.", "rejected.")))
    missing = went - terms.get(accounting.RECEIVED, 0) - terms.get(accounting.SPLIT, 0)
    if missing:
        _add_to_counter(connection, topic, accounting.RECEIVED, missing)
        connection.execute(queries.CARRY, {"topic": topic, "term": accounting.RECEIVED, "n": missing})


def _read_accounting_counters(connection: sqlite3.Connection) -> _Terms:
    return Counter({(topic, term): n for topic, term, n, _ in connection.execute(queries.BOOKS)})


def _add_to_counter(connection: sqlite3.Connection, topic: str, term: str, n: int) -> None:
    connection.execute(queries.COUNT, {"topic": topic, "term": term, "n": n})
