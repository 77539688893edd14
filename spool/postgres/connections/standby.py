"""
Proof that a standby has received a commit.

If an operator empties synchronous_standby_names, waiting commits return as if a standby had confirmed them.
If the setting is restored later, it does not show this. So a role that may see standbys (pg_monitor) reads
how far they have flushed. Other roles must rely on the configuration: it must name standbys, and must not
have been reloaded since shortly before the commit, because another server process may still have used the
earlier configuration.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import lru_cache
from typing import Any, NamedTuple

import psycopg

from spool.errors import SpoolUnavailable
from spool.postgres.connections.target import Unconfirmed

SETTLED_S = 1.0  # seconds after a reload until all server processes use the new configuration

STANDBY_NAMES = b"SELECT current_setting('synchronous_standby_names')"
# Returns one row for StandbyState. It is sent after a commit with the same Sync message, so that a pooler
# cannot switch servers in between.
STANDBY_STATE = f"""
    SELECT current_setting('synchronous_standby_names'), extract(epoch FROM pg_conf_load_time())::float8,
           pg_conf_load_time() < clock_timestamp() - interval '{SETTLED_S} seconds',
           (pg_current_wal_flush_lsn() - '0/0')::bigint,
           CASE WHEN pg_has_role(current_user, 'pg_read_all_stats', 'USAGE')
                THEN ARRAY(SELECT (flush_lsn - '0/0')::bigint FROM pg_stat_get_wal_senders()
                            WHERE sync_state IN ('sync', 'quorum') AND flush_lsn IS NOT NULL) END""".encode()
# Transaction that changes no table. Its commit waits until a standby has every earlier commit. It returns a
# position in the write-ahead log that is after all of them.
BARRIER = b"""
    SELECT set_config('synchronous_commit', 'on', true),
           (pg_logical_emit_message(true, 'tollhouse', '') - '0/0')::bigint"""
NO_STANDBY = "the standby is gone: synchronous_standby_names is empty"
NOT_CONFIRMED = "the standby did not confirm the stored data: check the standby, then repeat"
_COUNT = re.compile(r"\s*(?:(?:any|first)\s+)?(\d+)\s*\(", re.IGNORECASE)


class StandbyState(NamedTuple):
    """The configured standbys and how far each has flushed. Positions are bytes in the write-ahead log."""

    names: str
    loaded_at: float  # when the server process of this session read the configuration
    is_settled: bool
    position: int  # position up to which the server itself has flushed
    # position of each synchronous standby, or None if the role may not see them
    confirmed: Sequence[int] | None

    def has_flushed(self, position: int) -> bool:
        confirmed_by = sum(flushed >= position for flushed in self.confirmed or ())
        return bool(self.names) and confirmed_by >= _needed_standby_count(self.names)

    def has_confirmed(self, before: StandbyState, position: int | None = None) -> bool:
        """
        Return whether a commit between the states `before` and `self` survives the loss of the database
        machine.

        `position`: after the commit; by default the position up to which the server has flushed.
        """
        if self.confirmed is not None:
            return self.has_flushed(self.position if position is None else position)
        return bool(self.names) and before.is_settled and before.loaded_at == self.loaded_at

    def unconfirmed_error(self) -> Unconfirmed:
        return Unconfirmed(NOT_CONFIRMED) if self.names else unreplicated_commit_error()


@lru_cache(maxsize=8)
def _needed_standby_count(names: str) -> int:
    """
    Return how many standbys must confirm, by synchronous_standby_names. A plain list of names requires 1.
    """
    match = _COUNT.match(names)
    return int(match[1]) if match else 1


def read_standby_state(cursor: psycopg.Cursor[tuple[Any, ...]]) -> StandbyState:
    row = cursor.fetchone()
    assert row is not None
    return StandbyState._make(row)


def has_no_standby_names(names: psycopg.Cursor[tuple[Any, ...]]) -> bool:
    return names.fetchone() == ("",)


def no_standby_error() -> SpoolUnavailable:
    return SpoolUnavailable(f"{NO_STANDBY}. Restore it, or change storage.durability")


def unreplicated_commit_error() -> Unconfirmed:
    """Return the error of a commit that may have run while no standby names were set."""
    return Unconfirmed(f"{NO_STANDBY}, so the commit may be on only one machine")
