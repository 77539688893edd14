"""A connection that tells other threads how long the server has not answered."""

from __future__ import annotations

import time
from typing import Any

import psycopg


class WatchedConnection(psycopg.Connection[tuple[Any, ...]]):
    """`awaits_since`: since when it waits for an answer of the server, None while it does not."""

    awaits_since: float | None = None

    def wait(self, gen: Any, *arguments: Any, **options: Any) -> Any:
        self.awaits_since = time.monotonic()
        try:
            return super().wait(gen, *arguments, **options)
        finally:
            self.awaits_since = None
