"""
A connection through a pooler, which lends a session of the server for one transaction at a time.

What a server, a database or a role says otherwise cannot be set once for all: each transaction brings its settings.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import psycopg
from psycopg.abc import Params, QueryNoTemplate
from psycopg.pq import ConnStatus, PipelineStatus, TransactionStatus

from spool.postgres.connections.target import local_settings
from spool.postgres.connections.watched import READ_COMMITTED, WatchedConnection


class PooledConnection(WatchedConnection):
    """
    In autocommit. A statement outside of a transaction is sent as one that has `settings`, in one round trip.

    So is a pipeline, whose statements are then one transaction; without settings they are one as well.
    """

    settings: Mapping[str, str]

    def begin(self, statement: bytes) -> None:
        super().execute(statement + b"; " + local_settings(self.settings))

    @contextmanager
    def begun(self) -> Iterator[psycopg.Pipeline]:
        with super().pipeline() as pipeline:
            super().execute(READ_COMMITTED)
            super().execute(local_settings(self.settings))
            yield pipeline

    def execute(  # type: ignore[override]  # templates are not used here
        self,
        query: QueryNoTemplate,
        params: Params | None = None,
        *,
        prepare: bool | None = None,
        binary: bool = False,
    ) -> psycopg.Cursor[tuple[Any, ...]]:
        if not self._stands_alone():
            return super().execute(query, params, prepare=prepare, binary=binary)
        with self._one_transaction():
            return super().execute(query, params, prepare=prepare, binary=binary)

    @contextmanager
    def pipeline(self) -> Iterator[psycopg.Pipeline]:
        with self._one_transaction() if self._stands_alone() else super().pipeline() as pipeline:
            yield pipeline

    def _stands_alone(self) -> bool:
        in_pipeline = self.pgconn.pipeline_status != PipelineStatus.OFF
        return not in_pipeline and self.pgconn.transaction_status == TransactionStatus.IDLE

    @contextmanager
    def _one_transaction(self) -> Iterator[psycopg.Pipeline]:
        try:
            with self.begun() as pipeline:
                yield pipeline
                super().execute(b"COMMIT")
        finally:
            if (
                self.pgconn.status == ConnStatus.OK
                and self.pgconn.transaction_status != TransactionStatus.IDLE
            ):
                super().execute(b"ROLLBACK")
