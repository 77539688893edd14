"""Whether commits wait for a standby: whoever empties its names lets those go that wait, as if it had confirmed."""

from __future__ import annotations

from typing import Any

import psycopg

from spool.errors import SpoolUnavailable
from spool.postgres.connections.errors import Unconfirmed

STANDBY_NAMES = b"SELECT current_setting('synchronous_standby_names')"
NO_STANDBY = "the standby is gone: synchronous_standby_names is empty"


def are_empty(names: psycopg.Cursor[tuple[Any, ...]]) -> bool:
    """Of the answer to STANDBY_NAMES."""
    return names.fetchone() == ("",)


def refused() -> SpoolUnavailable:
    """Of what was not written, because its commit would wait for nobody."""
    return SpoolUnavailable(f"{NO_STANDBY}. Mend it, or set storage.durability")


def on_one_machine() -> Unconfirmed:
    """Of what was committed while the names may have been emptied."""
    return Unconfirmed(f"{NO_STANDBY}, and the commit may be on one machine alone")
