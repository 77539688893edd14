"""
Whether a standby has what was committed: evidence about that commit, not what a setting says at another moment.

Whoever empties synchronous_standby_names lets those commits go that wait, as if a standby had confirmed them;
whoever sets it again makes the setting look right. So a role that may see standbys (pg_monitor) asks how far
they have flushed. Any other one has to go by the configuration: it must name standbys, and not have been read
anew since before the commit, nor so shortly before that another process of the server may still have had the
one before it.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import lru_cache
from typing import Any, NamedTuple

import psycopg

from spool.errors import SpoolUnavailable
from spool.postgres.connections.target import Unconfirmed

SETTLED_S = 1.0  # after the configuration was read: all processes of the server have it

STANDBY_NAMES = b"SELECT current_setting('synchronous_standby_names')"
# The question: one row, as StandbyState has it. Behind a commit in the same Sync, so that no pooler comes
# between.
STANDBY_STATE = f"""
    SELECT current_setting('synchronous_standby_names'), extract(epoch FROM pg_conf_load_time())::float8,
           pg_conf_load_time() < clock_timestamp() - interval '{SETTLED_S} seconds',
           (pg_current_wal_flush_lsn() - '0/0')::bigint,
           CASE WHEN pg_has_role(current_user, 'pg_read_all_stats', 'USAGE')
                THEN ARRAY(SELECT (flush_lsn - '0/0')::bigint FROM pg_stat_get_wal_senders()
                            WHERE sync_state IN ('sync', 'quorum') AND flush_lsn IS NOT NULL) END""".encode()
# A transaction that changes no table: its commit waits until the standby has everything that was committed
# before. What it returns is a position behind all of that.
BARRIER = b"""
    SELECT set_config('synchronous_commit', 'on', true),
           (pg_logical_emit_message(true, 'tollhouse', '') - '0/0')::bigint"""
NO_STANDBY = "the standby is gone: synchronous_standby_names is empty"
NOT_CONFIRMED = "the standby did not confirm what was kept: look at the standby, then repeat"
_COUNT = re.compile(r"\s*(?:(?:any|first)\s+)?(\d+)\s*\(", re.IGNORECASE)


class StandbyState(NamedTuple):
    """What the server says at one moment. Positions are those of the write-ahead log, in bytes."""

    names: str
    loaded_at: float  # when this session's process read the configuration
    is_settled: bool
    position: int  # up to which the server itself has flushed
    confirmed: Sequence[int] | None  # by each synchronous standby; None where the role may not see it

    def has(self, position: int) -> bool:
        """True if as many standbys as the server is to wait for have flushed up to there."""
        found = sum(flushed >= position for flushed in self.confirmed or ())
        return bool(self.names) and found >= _wanted(self.names)

    def confirms(self, before: StandbyState, position: int | None = None) -> bool:
        """
        True if a commit between `before` and this has outlived the loss of the machine.

        `position` is one behind the commit; without it, what the server has flushed meanwhile.
        """
        if self.confirmed is not None:
            return self.has(self.position if position is None else position)
        return bool(self.names) and before.is_settled and before.loaded_at == self.loaded_at

    def problem(self) -> Unconfirmed:
        """Return the error for a commit that the standby did not confirm."""
        return Unconfirmed(NOT_CONFIRMED) if self.names else on_one_machine()


@lru_cache(maxsize=8)
def _wanted(names: str) -> int:
    """Return how many standbys the server waits for; 1 for a plain list of names."""
    found = _COUNT.match(names)
    return int(found[1]) if found else 1


def standby_state(answer: psycopg.Cursor[tuple[Any, ...]]) -> StandbyState:
    """Read the server's answer to STANDBY_STATE."""
    row = answer.fetchone()
    assert row is not None
    return StandbyState._make(row)


def are_empty(names: psycopg.Cursor[tuple[Any, ...]]) -> bool:
    """True if the answer to STANDBY_NAMES names no standby."""
    return names.fetchone() == ("",)


def refused() -> SpoolUnavailable:
    """Return the error for a write that was refused because its commit would wait for no standby."""
    return SpoolUnavailable(f"{NO_STANDBY}. Mend it, or set storage.durability")


def on_one_machine() -> Unconfirmed:
    """Return the error for a commit during which the names of the standbys may have been emptied."""
    return Unconfirmed(f"{NO_STANDBY}, and the commit may be on one machine alone")
