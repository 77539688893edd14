"""The registry's rows where several processes share them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from spool.postgres.database import Connection
from spool.postgres.registry.bearers import check_bearers
from spool.postgres.transactions import PostgresConnection
from spool.registry.operators import Actor
from spool.sql.registry import SqlRegistryRows

_LOCK_KEY = "SELECT id FROM {schema}.keys WHERE id = :id FOR UPDATE"
_NEXT = "UPDATE {{schema}}.registry_head SET newest_{kind} = newest_{kind} + 1 RETURNING newest_{kind}"


class PostgresRegistryRows(SqlRegistryRows):
    """
    See `spool.registry.registry_rows.RegistryRows`. `sql` fills in the schema's name.

    `changed` is what the other nodes must hear of: (kind, id) of `spool.registry.shared.following`.
    `ends_keys`: a secret may open no more, so that a commit that began before must be waited for. `shuts_key`:
    no secret of a key opens any more. `is_audited`: somebody asked for it. `has_written`: a row was changed.
    """

    secret_names = ("digest", "key_id", "place", "ends_at")
    secret_order = "place"

    def __init__(
        self, connection: Connection, sql: Callable[[str], Any], *, now: float | None = None
    ) -> None:
        super().__init__(PostgresConnection(connection, sql))
        self._bearers_on = connection, sql
        self._now = now
        self.changed: set[tuple[str, str]] = set()
        self.ends_keys = self.shuts_key = False
        self.has_written = False

    def _tell(self, kind: str, id: str) -> None:
        self.changed.add((kind, id))

    def _lock_key(self, id: int, *, shuts: bool) -> None:
        """Let no other transaction keep anything under the key, and wait for those that do."""
        self._run(_LOCK_KEY, id=id)
        self.ends_keys = True
        self.shuts_key = self.shuts_key or shuts

    def check_actor(self, actor: Actor) -> None:
        if actor.expects:
            check_bearers(*self._bearers_on, actor.expects, now=self._now)

    def _wrote(self) -> None:
        self.has_written = True

    def _new_id(self, kind: str) -> int:
        [number] = self._change(_NEXT.format(kind=kind))
        return int(number)
