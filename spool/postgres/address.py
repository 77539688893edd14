"""
The address of a PostgreSQL storage, and the installation's secret. The deployment provides both in files or
environment variables.
"""

from __future__ import annotations

import ipaddress
import json
import logging
import os
import secrets
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from spool.clock import Clock
from spool.errors import SpoolError
from spool.installation import SIZE, derive_secret, store_secret
from spool.postgres.connections.target import parse_address
from spool.postgres.database import Connection, Database, PostgresConnection
from spool.settings import (
    DATABASE_AUTHORITIES,
    REPLICATED,
    SHARED,
    TRANSACTION,
    SpoolSettings,
    StorageSettings,
)
from spool.sql import facts

SYSTEM = "system"  # value of `sslrootcert` that means the authorities of the operating system
LONGEST_NAME = 63  # maximum length of a PostgreSQL name in bytes; PostgreSQL cuts longer names


def open_database(settings: StorageSettings, clock: Clock | None = None) -> Database:
    """
    Return the database of these settings, not yet connected. Raises SpoolError if its address cannot be read.
    """
    return Database(
        read_dsn(settings),
        schema=settings.schema,
        clock=clock,
        pooled=settings.pooler == TRANSACTION,
        commit_timeout_s=settings.commit_timeout,
        needs_standby=settings.durability == REPLICATED,
    )


def read_dsn(settings: StorageSettings) -> str:
    if settings.dsn_file is None:
        dsn = os.environ.get(settings.dsn_env, "")
        name = f"storage.dsn_env: the environment variable {settings.dsn_env}"
    else:
        name = f"storage.dsn_file: {settings.dsn_file}"
        try:
            dsn = settings.dsn_file.read_text("utf-8")
        except OSError as error:
            raise SpoolError(f"{name} cannot be read ({error.strerror})") from error
    if not dsn.strip():
        raise SpoolError(f"{name} is empty: enter the address, such as host=db.example.com dbname=tollhouse")
    return dsn.strip()


def read_secret(settings: StorageSettings) -> bytes:
    path = settings.secret_file
    try:
        secret = path.read_bytes() if path else b""
    except OSError as error:
        raise SpoolError(
            f"storage.secret_file: {path} cannot be read ({error.strerror}): create it with tollhouse "
            "storage init, or copy it from another node"
        ) from error
    if len(secret) != SIZE:
        raise SpoolError(f"storage.secret_file: {path} must have {SIZE} bytes: copy it from another node")
    return secret


def create_secret_file_if_missing(settings: StorageSettings) -> bool:
    path = settings.secret_file
    if path is None or path.exists():
        return False
    store_secret(path, secrets.token_bytes(SIZE))
    return True


def address_problems(settings: StorageSettings) -> Iterator[str]:
    if not settings.schema or len(settings.schema.encode()) > LONGEST_NAME or "\0" in settings.schema:
        yield f"storage.schema must be a name of at most {LONGEST_NAME} bytes"
    if settings.secret_file is None:
        yield (
            "storage.secret_file is required: a file with the same secret on every node (create it with "
            "tollhouse storage init)"
        )
    if (settings.dsn_file is None) == (not settings.dsn_env):
        yield "storage needs either dsn_file or dsn_env, with the address of the PostgreSQL"
        return
    try:
        parameters = parse_address(read_dsn(settings))
    except (SpoolError, ValueError) as error:
        yield str(error)
        return
    if not _is_database_local(parameters) and _value_used_by_libpq(parameters, "sslmode") != "verify-full":
        yield "storage: the address of a PostgreSQL on another machine needs sslmode=verify-full"


def certificate_files(settings: StorageSettings) -> Iterator[tuple[str, Path]]:
    """
    Yield the certificate files that the address or libpq's environment variables name, none if the address
    cannot be read.
    """
    try:
        parameters = parse_address(read_dsn(settings))
    except (SpoolError, ValueError):
        return
    setting = "storage.dsn_env" if settings.dsn_file is None else "storage.dsn_file"
    for name in ("sslcert", DATABASE_AUTHORITIES):
        path = _value_used_by_libpq(parameters, name)
        if path and path != SYSTEM:
            yield (
                f"{name} in {setting if name in parameters else _libpq_environment_variable(name)}",
                Path(path),
            )


def _value_used_by_libpq(parameters: dict[str, str], name: str) -> str:
    return parameters.get(name, os.environ.get(_libpq_environment_variable(name), ""))


def _libpq_environment_variable(parameter: str) -> str:
    return f"PG{parameter.upper()}"


def _is_database_local(parameters: dict[str, str]) -> bool:
    hosts = _value_used_by_libpq(parameters, "hostaddr") or _value_used_by_libpq(parameters, "host")
    return all(not host or host.startswith(("/", "@")) or _is_loopback(host) for host in hosts.split(","))


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


# -- facts that all nodes share ------------------------------------------------------------------------------


READ = "SELECT name, value FROM {schema}.facts WHERE name IN ('incarnation', 'secret', 'settings')"
CHANGE = "UPDATE {schema}.facts SET value = %s WHERE name = 'settings' AND value = %s"

_log = logging.getLogger(__name__)


@dataclass(frozen=True, kw_only=True)
class InstallationFacts:
    """
    The installation's id (`incarnation`), and this node's settings after values that all nodes share were
    applied.
    """

    incarnation: str
    settings: SpoolSettings


async def read_or_store_facts(
    database: Database, secret: bytes, settings: SpoolSettings
) -> InstallationFacts:
    """
    Return the shared facts. The first node stores its own settings.

    Raises SpoolError if the installation has another secret. Logs each setting that differs from the shared
    value.
    """
    check = derive_secret(secret, "storage")
    own = {
        "incarnation": secrets.token_hex(8).encode(),
        "secret": check,
        "settings": _settings_json({name: getattr(settings, name) for name in SHARED}),
    }

    def store_missing_installation_facts(connection: Connection) -> dict[str, bytes]:
        stored = _read_installation_facts(database, connection)
        if len(stored) < len(own):
            for name, value in sorted(own.items()):
                facts.add_fact(PostgresConnection(connection, database.fill_in_table_names), name, value)
            stored = _read_installation_facts(database, connection)
        return stored

    found = await database.transaction(store_missing_installation_facts)
    if found["secret"] != check:
        raise SpoolError(
            "storage.secret_file is not the secret of this installation: copy the file from another node"
        )
    shared = json.loads(found["settings"])
    for name, value in shared.items():
        if value != getattr(settings, name):
            _log.warning(
                "spool.%s is %s here, but %s in the storage, which applies: change it with tollhouse "
                "storage set",
                name,
                getattr(settings, name),
                value,
                extra={"action": "setting_differs", "setting": name},
            )
    return InstallationFacts(incarnation=found["incarnation"].decode(), settings=replace(settings, **shared))


async def read_settings(database: Database) -> dict[str, float]:
    """Return the shared settings, empty before the first start."""

    def read_settings_text(connection: Connection) -> bytes:
        return _read_installation_facts(database, connection).get("settings", b"{}")

    settings: dict[str, float] = json.loads(await database.read(read_settings_text))
    return settings


async def read_log_id(database: Database) -> str:
    found = await database.read(lambda connection: _read_installation_facts(database, connection))
    return found.get("incarnation", b"").decode()


async def change_stored_settings(database: Database, changes: Mapping[str, float]) -> dict[str, float]:
    """
    Change settings that all nodes share, and return all settings. Each node applies the changes at its next start.
    """

    def merge_changes_into_stored_settings(connection: Connection) -> dict[str, float]:
        database.require_standby(connection)
        connection.execute(database.fill_in_table_names("LOCK TABLE {schema}.facts IN EXCLUSIVE MODE"))
        before = _read_installation_facts(database, connection)["settings"]
        after = {**json.loads(before), **changes}
        connection.execute(database.fill_in_table_names(CHANGE), (_settings_json(after), before))
        return after

    return await database.transaction(
        merge_changes_into_stored_settings, needs_standby=lambda _: database.needs_standby
    )


def _read_installation_facts(database: Database, connection: Connection) -> dict[str, bytes]:
    rows: list[tuple[str, bytes]] = connection.execute(database.fill_in_table_names(READ)).fetchall()
    return dict(rows)


def _settings_json(settings: Mapping[str, float]) -> bytes:
    return json.dumps(settings, sort_keys=True).encode()
