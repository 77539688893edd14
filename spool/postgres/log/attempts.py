"""One attempt to commit a group: planned and written under the head, in one transaction."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from math import inf
from uuid import UUID

from spool.errors import SpoolUnavailable
from spool.log.commits.following import CommitRow, by_topic
from spool.log.expectations import expected_keys
from spool.log.planning.plan import Answer, Plan
from spool.log.receipts import Sealer
from spool.log.values import Submission
from spool.postgres.database import Connection, Database, JoinedTransaction
from spool.postgres.log import queries, store
from spool.postgres.log.clock import DatabaseClock
from spool.postgres.log.memory import NodeMemory, catch_up
from spool.postgres.log.room import LogRoom

# That wait for the standby at once: then nothing more is committed until it has confirmed.
UNCONFIRMED_S, UNCONFIRMED_BYTES = 5.0, 64 << 20

# What else changes with a commit: asks for what it needs, then writes once the commit is planned.
Move = Callable[[Connection, Sequence[Submission]], Callable[[Plan], None]]
# Asks for the versions of some keys; what it returns has them once the pipeline is over in which it asked.
Versions = Callable[[Connection, Sequence[bytes]], Callable[[], Mapping[bytes, int]]]


def nothing_moves(connection: Connection, submissions: Sequence[Submission]) -> Callable[[Plan], None]:
    """Move nothing: a log without other tables."""
    return lambda plan: None


class TooMuchUnconfirmed(SpoolUnavailable):
    """The standby has not confirmed a lot of what was committed, up to `commit`: nothing is committed behind it."""

    def __init__(self, commit: int) -> None:
        super().__init__("the standby does not confirm what is kept: look at the standby, then repeat")
        self.commit = commit


class FarBehind(Exception):
    """Others have committed so much that it is followed without the head, which they wait for."""


@dataclass
class CommitAttempt:
    """One commit of a group, until it is known whether it stands."""

    row: CommitRow
    plan: Plan
    answers: Sequence[Answer]
    ended: float  # when the server had only to write and to commit


@dataclass
class GroupAttempts:
    """A group that is being committed, with what was tried so far."""

    submissions: Sequence[Submission] = ()
    wait: bool = True  # for the head
    attempts: list[CommitAttempt] = field(default_factory=list)
    stands: CommitAttempt | None = None  # an earlier attempt of which the outcome was unknown


class AttemptWriter:
    """
    Writes on the connection's thread. What can fail is done before COMMIT.

    `versions` are those of waiting reports, and `move` is what else changes with a commit, in its
    transaction. `proof` is what a receipt says that the records have survived; `hold_s` 0 means that
    everything is closed at once. `in_two_steps`: while other nodes commit too, the head is free again before
    the standby has confirmed the commit. `needs_standby`: nothing is kept while the server waits for none.
    """

    def __init__(
        self,
        database: Database,
        *,
        memory: NodeMemory,
        clock: DatabaseClock,
        room: LogRoom,
        sealer: Sealer,
        versions: Versions,
        move: Move,
        hold_s: float,
        proof: str,
        node: UUID,
        in_two_steps: bool,
        needs_standby: bool,
    ) -> None:
        self._database = database
        self._memory = memory
        self._clock = clock
        self._room = room
        self._sealer = sealer
        self._versions = versions
        self._move = move
        self._hold_s = hold_s
        self._proof = proof
        self.needs_standby = needs_standby
        self._node = node
        self._in_two_steps = in_two_steps

    def write(self, transaction: JoinedTransaction, group: GroupAttempts) -> CommitAttempt | None:
        """None when the head is not waited for and somebody has it."""
        connection = transaction.connection
        following = self._memory.following
        points = sorted({point.series for one in group.submissions for point in one.points})
        keys = expected_keys(group.submissions)
        with transaction.begun(needs_standby=self.needs_standby):
            ask = partial(store.ask_head, self._database, connection, following.last)
            asked = ask(series=points, wait=group.wait)
            versions = self._versions(connection, keys) if keys else dict
            move = self._move(connection, group.submissions)
        head = asked()
        if head is None:
            return None
        transaction.check_standby()
        known = following.last.id
        catch_up(following, head.rows)
        if not head.is_all:
            raise FarBehind
        others = following.last.id != known  # commit at this moment: they wait for the head
        self._clock.note(head.now)
        self._check_unconfirmed()
        group.stands = self._standing(connection, group)
        submissions = () if group.stands else group.submissions
        if submissions:
            self._room.check(connection, following.last.size)
        now = following.time_of_next(head.now)
        closed = following.closed_at(now, durable=following.durable if self._hold_s else inf)
        reader = store.PostgresPlanReader(
            self._database,
            connection,
            self._memory.write_cache,
            places=partial(following.planner.known_places, submissions, now),
            series=head.series,
            series_known_since=head.series_known_since,
            versions=versions(),
        )
        plan = following.planner.plan(submissions, reader, by_topic(closed), now)
        in_two_steps = self._in_two_steps and others
        with transaction.committed(in_two_steps=in_two_steps, needs_standby=self.needs_standby):
            row = store.write(
                self._database,
                connection,
                plan,
                reader,
                following,
                period=head.period,
                closed=closed if self._hold_s else None,
                node=self._node,
            )
            move(plan)
            receipts = [
                terms.receipt(self._sealer.seal(row.id, place), self._proof)
                for place, terms in enumerate(plan.submissions)
            ]
            attempt = CommitAttempt(row, plan, plan.answers(receipts), time.perf_counter())
            group.attempts.append(attempt)
        return attempt

    def _check_unconfirmed(self) -> None:
        following = self._memory.following
        seconds, size = following.unconfirmed()
        if seconds > UNCONFIRMED_S or size > UNCONFIRMED_BYTES:
            raise TooMuchUnconfirmed(following.last.id)

    def _standing(self, connection: Connection, group: GroupAttempts) -> CommitAttempt | None:
        """The earlier attempt that stands, though its COMMIT was not answered."""
        for attempt in group.attempts:
            where = {"id": attempt.row.id, "token": attempt.row.token}
            if connection.execute(self._database.sql(queries.STANDS), where).fetchone():
                return attempt
        return None
