"""
Versions of the files of a data directory. Each migration is one transaction that also sets `user_version`.

If a process is killed during a migration, the file keeps its version and the migration runs again. A new file
gets all versions in one transaction.
"""

from __future__ import annotations

import sqlite3
import struct
from collections.abc import Mapping, Sequence
from functools import cache
from importlib.resources import files
from pathlib import Path

from spool.errors import OtherSchema
from spool.sql.schemas import FIRST, schema_digests
from spool.sqlite.damage.write_ahead_log import read_newest_version_of_page
from spool.sqlite.database import PAGE, damage_error
from spool.sqlite.directory import LEDGER, REGISTRY, SPOOL

# For each file, the files in schema/ of each version. Do not change released versions, because no build opens a file
# whose digest differs. Add a new version at the end.
VERSIONS: Mapping[str, Sequence[Sequence[str]]] = {
    SPOOL: (
        (
            "log.sql",
            "deliveries.sql",
            "partial_reports.sql",
            "devices.sql",
            "streams.sql",
            "billing.sql",
            "container_files.sql",
            "colours.sql",
        ),
    ),
    REGISTRY: (("registry.sql",),),
    LEDGER: (("ledger.sql",),),
}
MARK = 0x546F6C00  # the bytes "Tol", to which the version is added
# offsets in the header of a database file
VERSION_AT, MARK_AT, HEADER_BYTES = 60, 68, 100


def read_script(name: str) -> str:
    return files(__package__).joinpath("schema", name).read_text("utf-8")


@cache
def read_migration_statements(file: str) -> Sequence[str]:
    return tuple("\n".join(map(read_script, names)) for names in VERSIONS[file])


def migrate(connection: sqlite3.Connection, versions: Sequence[str]) -> None:
    """
    Migrate the file to the newest version. Raises OtherSchema if the file has the tables of another build.

    The header stores the version twice, so that a flipped bit is recognized as damage instead of another
    version.
    """
    current = schema_version(connection)
    (mark,) = connection.execute("PRAGMA application_id").fetchone()
    (tables,) = connection.execute("SELECT count(*) FROM sqlite_schema").fetchone()
    if mark != (application_id(current) if current else 0) or (tables and not current):
        raise damage_error("the header of the file has an inconsistent version")
    _require_known_version(current, versions)
    for number, statements in _missing_versions(current, versions):
        # not executescript, which would first commit an open transaction
        try:
            numbered = f"PRAGMA user_version = {number}; PRAGMA application_id = {application_id(number)};"
            connection.executescript(f"BEGIN IMMEDIATE;\n{statements}\n;{numbered}\nCOMMIT;")
        except sqlite3.OperationalError as error:
            _roll_back(connection)
            if str(error).endswith("already exists"):
                raise damage_error(f"the file is newer than its header states: {error}") from error
            raise
        except BaseException:
            _roll_back(connection)
            raise


def version_numbers(versions: Sequence[str]) -> list[int]:
    """Return the number of each version: its position in the highest byte, and 24 bits of its digest."""
    found = schema_digests(versions)
    return [number << 24 | int(digest[:6], 16) for number, digest in enumerate(found, start=FIRST)]


def application_id(version_number: int) -> int:
    """Return the application id for a version number, as PRAGMA stores it: a positive signed integer."""
    return (MARK + version_number) & 0x7FFFFFFF


def check_schema(path: Path, versions: Sequence[str]) -> None:
    """
    Raise OtherSchema if a build with other versions wrote the file.

    The file is read without SQLite, because SQLite would write to it and create files next to it.
    """
    try:
        header = read_newest_version_of_page(path.with_name(f"{path.name}-wal"), PAGE, 1)
        if not header:
            with path.open("rb") as file:
                header = file.read(HEADER_BYTES)
    except OSError:  # the later attempt to open the file reports the error
        return
    if len(header) >= HEADER_BYTES:
        (current,), (mark,) = (struct.unpack_from(">I", header, at) for at in (VERSION_AT, MARK_AT))
        if mark == application_id(current):
            _require_known_version(current, versions)


def _require_known_version(current: int, versions: Sequence[str]) -> None:
    known = version_numbers(versions)
    if current in (0, *known):
        return
    number, own = current >> 24, known[-1] >> 24
    if number > own:
        raise OtherSchema(
            f"the data was written by a newer Tollhouse (version {number}; this one supports "
            f"{own}): upgrade, or restore a backup from before the upgrade"
        )
    raise OtherSchema(
        f"another build of Tollhouse with other tables wrote the data ({current:08x}; this build has "
        f"{known[-1]:08x}): use that build, or start with an empty data directory"
    )


def _missing_versions(current: int, versions: Sequence[str]) -> list[tuple[int, str]]:
    known = version_numbers(versions)
    if not current:
        return [(known[-1], ";\n".join(versions))]
    begin = known.index(current) + 1
    return list(zip(known[begin:], versions[begin:], strict=True))


def _roll_back(connection: sqlite3.Connection) -> None:
    if connection.in_transaction:
        connection.execute("ROLLBACK")


def schema_version(connection: sqlite3.Connection) -> int:
    number: int = connection.execute("PRAGMA user_version").fetchone()[0]
    return number
