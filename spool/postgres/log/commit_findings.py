"""
What commits find besides the accounting: conflicts, unrecognized attribute names and event types.

A commit row stores what its commit found. Later this is added to the totals of each kind, with the
accounting.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from decimal import Decimal
from functools import partial
from typing import NamedTuple

import msgspec

from spool.log import accounting, counted_names
from spool.log.accounting import SubmissionCounts
from spool.log.conflicts import Conflict, Conflicts, Pair
from spool.log.counted_names import EventSum, EventType, max_rows_of_most_frequent_names
from spool.log.planning.plan import CommitPlan
from spool.postgres.database import Connection, Database
from spool.postgres.log import queries

AT_ONCE = 2048  # commits searched per transaction

_log = logging.getLogger(__name__)


class _CommitFindings(msgspec.Struct, array_like=True, omit_defaults=True):
    """The findings of one commit. They are stored, so add fields only at the end."""

    conflicts: list[tuple[Pair, Conflict]] = []
    unrecognised: list[tuple[tuple[str, ...], int]] = []
    event_types: list[tuple[str, int, str | None]] = []


_encoder = msgspec.msgpack.Encoder()
_finds = msgspec.msgpack.Decoder(_CommitFindings)
_conflict = msgspec.msgpack.Decoder(Conflict)


def pack_commit_findings(plan: CommitPlan) -> bytes | None:
    if not (plan.conflicts or plan.unrecognised or plan.event_types):
        return None
    types = [(type, new.count, _encode_amount(new.amount)) for type, new in plan.event_types.items()]
    return _encoder.encode(_CommitFindings([*plan.conflicts.items()], [*plan.unrecognised.items()], types))


class CommitCountsAndFindings(NamedTuple):
    """
    What a commit adds to the accounting. `terms`: its counts, None if its row is damaged. `found`:
    encoded conflicts, unrecognized names and event types.
    """

    id: int
    at: float
    terms: list[SubmissionCounts] | None
    found: bytes | None


def read_commits_not_yet_in_accounting(
    database: Database, connection: Connection, max_commits: int = AT_ONCE
) -> list[CommitCountsAndFindings]:
    rows = connection.execute(
        database.fill_in_table_names(queries.UNBOOKED), {"limit": max_commits}, binary=True
    )
    return [
        CommitCountsAndFindings(id, at, accounting.unpack_submission_counts_if_intact(terms, sum), finds)
        for id, at, sum, terms, finds in rows
    ]


async def add_all_commits_to_accounting(database: Database) -> None:
    with suppress(AccountedMeanwhile):
        while await database.transaction(partial(add_oldest_commits_to_accounting, database)):
            pass


def add_oldest_commits_to_accounting(database: Database, connection: Connection) -> bool:
    """
    Count the oldest commits that are not counted. Return whether there may be more.

    Of several processes that do this at the same time, only one succeeds.
    """
    row = connection.execute(database.fill_in_table_names(queries.MARKS)).fetchone()
    commits = read_commits_not_yet_in_accounting(database, connection)
    if not commits or row is None:
        return False
    bounds = {"before": row[0], "after": commits[-1].id}
    if (
        connection.execute(database.fill_in_table_names(queries.BOOKED), bounds).rowcount != 1
        or commits[0].id != row[0] + 1
    ):
        raise AccountedMeanwhile
    for commit in commits:
        if commit.terms is None:
            _log.error(
                "the terms of a commit are damaged: the accounting lacks its counts",
                extra={"action": "terms_damaged", "commit": commit.id},
            )
    sums = sum_counts_of_commits(commits)
    if sums:
        add_accounting_counts(database, connection, queries.COUNT, sums)
    _store_conflicts_names_and_event_types(database, connection, commits)
    return len(commits) == AT_ONCE


class AccountedMeanwhile(Exception):
    """Raised if another process has counted the same commits, so that nothing remains to be done."""


def sum_counts_of_commits(commits: Iterable[CommitCountsAndFindings]) -> Counter[tuple[str, str]]:
    sums: Counter[tuple[str, str]] = Counter()
    for commit in commits:
        if commit.terms:
            sums.update(accounting.sum_submission_counts(commit.terms))
    return sums


def add_accounting_counts(
    database: Database, connection: Connection, update_statement: str, counts: Counter[tuple[str, str]]
) -> None:
    """
    Add sums to the stored accounting counts: to the running counts or to those of deleted commit rows,
    depending on `update_statement`.
    """
    rows = sorted(counts.items())
    parameters = {
        "topics": [topic for (topic, _), _ in rows],
        "terms": [term for (_, term), _ in rows],
        "n": [n for _, n in rows],
    }
    connection.execute(database.fill_in_table_names(update_statement), parameters)


def read_report_conflicts(database: Database, connection: Connection) -> Conflicts:
    rows = connection.execute(database.fill_in_table_names(queries.CONFLICTS), binary=True)
    return Conflicts(
        {
            (topic, _decode_name(first), _decode_name(second)): _conflict.decode(sums)
            for topic, first, second, sums in rows
        }
    )


def read_unrecognised_attribute_names(
    database: Database, connection: Connection
) -> list[Mapping[str, object]]:
    rows = connection.execute(database.fill_in_table_names(queries.SHAPES), binary=True)
    return [
        counted_names.unrecognised_names_json_row(_decode_name(names), count, last_seen)
        for names, count, last_seen in rows
    ]


def read_event_types(database: Database, connection: Connection) -> list[EventType]:
    return [
        EventType(type=_decode_name(type), count=count, amount=_decode_amount(text), last_seen=last_seen)
        for type, count, text, last_seen in connection.execute(
            database.fill_in_table_names(queries.EVENT_TYPES), binary=True
        )
    ]


def _store_conflicts_names_and_event_types(
    database: Database, connection: Connection, commits: Sequence[CommitCountsAndFindings]
) -> None:
    finds = [(commit.at, _finds.decode(commit.found)) for commit in commits if commit.found]
    if any(commit_finds.conflicts for _, commit_finds in finds):
        _store_conflicts(database, connection, [commit_finds.conflicts for _, commit_finds in finds])
    if any(commit_finds.unrecognised for _, commit_finds in finds):
        _store_unrecognised_attribute_names(
            database, connection, [(at, commit_finds.unrecognised) for at, commit_finds in finds]
        )
    if any(commit_finds.event_types for _, commit_finds in finds):
        _store_event_types(
            database, connection, [(at, commit_finds.event_types) for at, commit_finds in finds]
        )


def _store_conflicts(
    database: Database, connection: Connection, finds_by_commit: Sequence[Sequence[tuple[Pair, Conflict]]]
) -> None:
    conflicts = read_report_conflicts(database, connection)
    before = dict(conflicts)
    for of_commit in finds_by_commit:
        conflicts.merge(dict(of_commit))
    for pair, conflict in sorted(conflicts.items()):
        if conflict is not before.get(pair):
            topic, first, second = pair
            row = (topic, first.encode(), second.encode(), _encoder.encode(conflict))
            connection.execute(database.fill_in_table_names(queries.KEEP_CONFLICT), row)
    for topic, first, second in sorted(before.keys() - conflicts.keys()):
        connection.execute(
            database.fill_in_table_names(queries.DROP_CONFLICT), (topic, first.encode(), second.encode())
        )


def _store_unrecognised_attribute_names(
    database: Database,
    connection: Connection,
    finds_by_commit: Sequence[tuple[float, Sequence[tuple[tuple[str, ...], int]]]],
) -> None:
    counted: dict[str, tuple[int, float]] = {}
    for at, of_commit in finds_by_commit:
        for names, n in of_commit:
            shape = counted_names.unrecognised_names_key(names)
            counted[shape] = counted.get(shape, (0, 0.0))[0] + n, at
    with connection.pipeline():
        for shape, (n, at) in sorted(counted.items()):
            connection.execute(database.fill_in_table_names(queries.COUNT_SHAPE), (shape.encode(), n, at))
        connection.execute(
            database.fill_in_table_names(queries.BOUND_SHAPES),
            _row_limit_parameters(counted_names.MAX_SHAPES),
        )


def _store_event_types(
    database: Database,
    connection: Connection,
    finds_by_commit: Sequence[tuple[float, Sequence[tuple[str, int, str | None]]]],
) -> None:
    counted: dict[str, tuple[EventSum, float]] = {}
    for at, of_commit in finds_by_commit:
        for type, n, text in of_commit:
            before = counted[type][0] if type in counted else EventSum()
            counted[type] = before.plus(EventSum(count=n, amount=_decode_amount(text))), at
    rows = connection.execute(
        database.fill_in_table_names(queries.EVENT_AMOUNTS),
        ([type.encode() for type in counted],),
        binary=True,
    )
    amounts = {_decode_name(type): _decode_amount(text) for type, text in rows}
    with connection.pipeline():
        for type, (new, at) in sorted(counted.items()):
            sum = counted_names.add_amounts(amounts.get(type), new.amount)
            connection.execute(
                database.fill_in_table_names(queries.COUNT_EVENT_TYPE),
                (type.encode(), new.count, _encode_amount(sum), at),
            )
        connection.execute(
            database.fill_in_table_names(queries.BOUND_EVENT_TYPES),
            _row_limit_parameters(counted_names.MAX_TYPES),
        )


def _row_limit_parameters(max_rows: int) -> Mapping[str, int]:
    return {"often": max_rows_of_most_frequent_names(max_rows), "most": max_rows}


def _decode_name(data: bytes) -> str:
    return data.decode()


def _decode_amount(text: str | None) -> Decimal | None:
    return None if text is None else Decimal(text)


def _encode_amount(amount: Decimal | None) -> str | None:
    return None if amount is None else str(amount)
