"""A transaction in as few round trips as its caller makes of it."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager

import psycopg
from psycopg.pq import TransactionStatus

from spool.errors import SpoolUnavailable
from spool.postgres.connections.errors import CommitUnknown, Unconfirmed, said
from spool.postgres.connections.standby import STANDBY_NAMES, are_empty, on_one_machine
from spool.postgres.connections.target import local_settings
from spool.postgres.connections.watched import WatchedConnection

# A transaction that changes no table: its commit waits until the standby has everything that was committed before.
BARRIER = b"SELECT set_config('synchronous_commit', 'on', true), pg_logical_emit_message(true, 'tollhouse', '')"
WAITS_FOR_NOBODY = local_settings({"synchronous_commit": "off"})


class JoinedTransaction:
    """
    A transaction in two round trips: all that is sent within `begun` is answered at its end, and so with `committed`.

    A statement between the two takes a round trip of its own.
    """

    def __init__(self, connection: WatchedConnection) -> None:
        self.connection = connection

    @property
    def is_over(self) -> bool:
        return self.connection.pgconn.transaction_status == TransactionStatus.IDLE

    def begun(self) -> AbstractContextManager[object]:
        """Once, at first."""
        return self.connection.begun()

    @contextmanager
    def committed(self, *, in_two_steps: bool = False, needs_standby: bool = False) -> Iterator[None]:
        """
        Once, at last; without it nothing is kept. Its errors are those of `Lane.transaction`. `needs_standby`:
        Unconfirmed also if the server was told meanwhile to wait for no standby any more.

        In two steps all locks are free, and others see what was written, before the standby has confirmed it. Then a
        transaction that changes nothing waits for that: the standby takes everything in the order in which it happened.
        """
        done = self.connection.cursor()
        is_committing = False
        self.connection.commits_since = time.monotonic()
        try:
            with self.connection.pipeline() as pipeline:
                yield
                if in_two_steps:
                    self.connection.execute(WAITS_FOR_NOBODY)
                is_committing = True
                done.execute(b"COMMIT")
                if in_two_steps:
                    self.connection.execute(BARRIER)
                if in_two_steps and needs_standby:
                    pipeline.sync()  # the barrier's wait ends here, and the names are to be those of behind it
                names = self.connection.execute(STANDBY_NAMES) if needs_standby else None
        except psycopg.OperationalError as error:
            # In a transaction that has failed nothing was committed: a statement before COMMIT did.
            status = self.connection.pgconn.transaction_status
            if not is_committing or status == TransactionStatus.INERROR:
                raise
            if status == TransactionStatus.IDLE and done.statusmessage == "COMMIT":
                raise Unconfirmed(f"what was kept may not be with the standby: {said(error)}") from error
            raise CommitUnknown(f"the connection was lost while committing: {said(error)}") from error
        if done.statusmessage != "COMMIT":
            raise SpoolUnavailable("nothing was committed: a statement of the transaction had failed")
        if names is not None and are_empty(names):
            raise on_one_machine()
