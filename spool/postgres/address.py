"""Where the PostgreSQL of a configuration is, and the installation's secret: the deployment gives both in files."""

from __future__ import annotations

import ipaddress
import os
import secrets
from collections.abc import Iterator

from spool.clock import Clock
from spool.errors import SpoolError
from spool.installation import SIZE, make_secret
from spool.postgres.connections.target import parsed
from spool.postgres.database import Database
from spool.settings import REPLICATED, TRANSACTION, StorageSettings

LONGEST_NAME = 63  # bytes of a name in PostgreSQL; it cuts longer ones


def open_database(settings: StorageSettings, clock: Clock | None = None) -> Database:
    """The database of a configuration; SpoolError when its address cannot be read. Nothing is connected yet."""
    return Database(
        read_dsn(settings),
        schema=settings.schema,
        clock=clock,
        pooled=settings.pooler == TRANSACTION,
        commit_timeout_s=settings.commit_timeout,
        needs_standby=settings.durability == REPLICATED,
    )


def read_dsn(settings: StorageSettings) -> str:
    """The address in libpq's form."""
    if settings.dsn_file is None:
        found = os.environ.get(settings.dsn_env, "")
        name = f"storage.dsn_env: the environment variable {settings.dsn_env}"
    else:
        name = f"storage.dsn_file: {settings.dsn_file}"
        try:
            found = settings.dsn_file.read_text("utf-8")
        except OSError as error:
            raise SpoolError(f"{name} cannot be read ({error.strerror})") from error
    if not found.strip():
        raise SpoolError(
            f"{name} is empty: put the address there, such as host=db.example.com dbname=tollhouse"
        )
    return found.strip()


def read_secret(settings: StorageSettings) -> bytes:
    """Read the installation's secret from its file."""
    path = settings.secret_file
    try:
        secret = path.read_bytes() if path else b""
    except OSError as error:
        raise SpoolError(
            f"storage.secret_file: {path} cannot be read ({error.strerror}): make it with tollhouse storage "
            "init, "
            "or copy it from another node"
        ) from error
    if len(secret) != SIZE:
        raise SpoolError(f"storage.secret_file: {path} must hold {SIZE} bytes: copy it from another node")
    return secret


def make_secret_file(settings: StorageSettings) -> bool:
    """Make the secret file and return True; an existing file stays, and the answer is False."""
    path = settings.secret_file
    if path is None or path.exists():
        return False
    make_secret(path, secrets.token_bytes(SIZE))
    return True


def problems(settings: StorageSettings) -> Iterator[str]:
    """Every reason why a configuration names no PostgreSQL that can be used."""
    if not settings.schema or len(settings.schema.encode()) > LONGEST_NAME or "\0" in settings.schema:
        yield f"storage.schema must be a name of at most {LONGEST_NAME} bytes"
    if settings.secret_file is None:
        yield "storage.secret_file is required: a file with the same secret on every node (tollhouse storage init)"
    if (settings.dsn_file is None) == (not settings.dsn_env):
        yield "storage needs dsn_file or dsn_env: where the address of the PostgreSQL stands"
        return
    try:
        parameters = parsed(read_dsn(settings))
    except (SpoolError, ValueError) as error:
        yield str(error)
        return
    if not _is_this_machine(parameters) and parameters.get("sslmode") != "verify-full":
        yield "storage: the address of a PostgreSQL on another machine needs sslmode=verify-full"


def _is_this_machine(parameters: dict[str, str]) -> bool:
    named = parameters.get("hostaddr") or parameters.get("host") or ""
    return all(not host or host.startswith(("/", "@")) or _is_loopback(host) for host in named.split(","))


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
