"""What is true of the whole installation: its incarnation, its secret, and the settings of all its nodes."""

from __future__ import annotations

import json
import logging
import secrets
from collections.abc import Mapping
from dataclasses import dataclass, replace

from spool.errors import SpoolError
from spool.installation import derived
from spool.postgres.database import Connection, Database
from spool.settings import SHARED, SpoolSettings

ADD = "INSERT INTO {schema}.facts (name, value) VALUES (%s, %s) ON CONFLICT (name) DO NOTHING"
READ = "SELECT name, value FROM {schema}.facts WHERE name IN ('incarnation', 'secret', 'settings')"
CHANGE = "UPDATE {schema}.facts SET value = %s WHERE name = 'settings' AND value = %s"

_log = logging.getLogger(__name__)


@dataclass(frozen=True, kw_only=True)
class InstallationFacts:
    """`settings` are those of this node with the installation's in place of its own."""

    incarnation: str
    settings: SpoolSettings


async def agree(database: Database, secret: bytes, settings: SpoolSettings) -> InstallationFacts:
    """
    The installation's facts; the first node's become them.

    SpoolError when another secret is the installation's. A setting that differs from the installation's is told.
    """
    check = derived(secret, "storage")
    own = {
        "incarnation": secrets.token_hex(8).encode(),
        "secret": check,
        "settings": _written({name: getattr(settings, name) for name in SHARED}),
    }

    def add(connection: Connection) -> dict[str, bytes]:
        facts = _found(database, connection)
        if len(facts) < len(own):
            connection.cursor().executemany(database.sql(ADD), sorted(own.items()))
            facts = _found(database, connection)
        return facts

    facts = await database.transaction(add)
    if facts["secret"] != check:
        raise SpoolError(
            "storage.secret_file is not the secret of this installation: copy the file that the other nodes "
            "have"
        )
    shared = json.loads(facts["settings"])
    for name, value in shared.items():
        if value != getattr(settings, name):
            _log.warning(
                "spool.%s is %s here and %s in the storage, which counts: change it with tollhouse storage "
                "set",
                name,
                getattr(settings, name),
                value,
                extra={"action": "setting_differs", "setting": name},
            )
    return InstallationFacts(incarnation=facts["incarnation"].decode(), settings=replace(settings, **shared))


async def read_settings(database: Database) -> dict[str, float]:
    """The settings of all nodes; none before the first start."""

    def read(connection: Connection) -> bytes:
        return _found(database, connection).get("settings", b"{}")

    settings: dict[str, float] = json.loads(await database.read(read))
    return settings


async def read_incarnation(database: Database) -> str:
    """Empty before the first start."""
    found = await database.read(lambda connection: _found(database, connection))
    return found.get("incarnation", b"").decode()


async def change_settings(database: Database, changes: Mapping[str, float]) -> dict[str, float]:
    """Change settings of all nodes, each of which takes them at its next start."""

    def change(connection: Connection) -> dict[str, float]:
        database.check_standby(connection)
        connection.execute(database.sql("LOCK TABLE {schema}.facts IN EXCLUSIVE MODE"))
        before = _found(database, connection)["settings"]
        after = {**json.loads(before), **changes}
        connection.execute(database.sql(CHANGE), (_written(after), before))
        return after

    return await database.transaction(change, needs_standby=lambda _: database.needs_standby)


def _found(database: Database, connection: Connection) -> dict[str, bytes]:
    rows: list[tuple[str, bytes]] = connection.execute(database.sql(READ)).fetchall()
    return dict(rows)


def _written(settings: Mapping[str, float]) -> bytes:
    return json.dumps(settings, sort_keys=True).encode()
