"""A connection that tells other threads how long the server has not answered."""

from __future__ import annotations

import time
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

import psycopg

Connection = psycopg.Connection[tuple[Any, ...]]
READ_COMMITTED = b"BEGIN ISOLATION LEVEL READ COMMITTED"


class WatchedConnection(Connection):
    """
    `awaits_since`: since when it waits for an answer of the server, None while it does not. `commits_since`:
    since when something is under way that only the standby may end. `is_spoiled`: not to be used again.
    """

    awaits_since: float | None = None
    commits_since: float | None = None
    is_spoiled = False

    def begin(self, statement: bytes) -> None:
        """Begin a transaction; what follows is in it."""
        self.execute(statement)

    @contextmanager
    def begun(self) -> Iterator[psycopg.Pipeline]:
        """Begin a transaction together with what is sent within."""
        with self.pipeline() as pipeline:
            self.begin(READ_COMMITTED)
            yield pipeline

    @contextmanager
    def pipeline(self) -> Iterator[psycopg.Pipeline]:
        """
        Send the statements of the block together and read their answers at its end.

        After an error the server passes over the rest, also over what prepares statements, which psycopg
        believes to be prepared from then on: such a connection is of no more use.
        """
        try:
            with super().pipeline() as begun:
                begun._exit_gen = partial(_end, begun)  # type: ignore[method-assign]
                yield begun
        except BaseException:
            self.is_spoiled = self.prepare_threshold is not None
            raise

    def wait(self, gen: Any, *arguments: Any, **options: Any) -> Any:
        self.awaits_since = time.monotonic()
        try:
            return super().wait(gen, *arguments, **options)
        finally:
            self.awaits_since = None


def _end(pipeline: psycopg.Pipeline) -> Generator[Any, Any, None]:
    """
    End a pipeline as psycopg does, but without the Flush that it sends behind the Sync.

    The server takes that for the next request and has no time limit for it: a process that stands still then
    would hold what it has locked for as long as that lasts.
    """
    try:
        pipeline._enqueue_sync()
        yield from pipeline._communicate_gen()
    finally:
        yield from pipeline._fetch_gen(flush=bool(pipeline.command_queue))  # unless the Sync is sent
