"""
Files of facts that several gateways share: one row with the manifest that counts, and the files in pieces.

One transaction stores new files and replaces the manifest, if it is still that of the generation before. So of two
writers, one has to begin again from what the other wrote.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Iterator, Mapping
from functools import partial
from itertools import count
from pathlib import Path
from typing import Any, Final, TypeVar

import msgspec

from spool.errors import LedgerLost, TakenOver
from spool.ledger.files.folder import FactManifest, decode_manifest, digests_of_files
from spool.postgres.database import Connection, Database
from spool.settings import MIB

T = TypeVar("T")
# Bytes are not compressed again, so a piece is read without its neighbours.
TABLES: Final = """
    CREATE TABLE {schema}.fact_manifest (generation bigint NOT NULL, manifest bytea NOT NULL);
    CREATE UNIQUE INDEX ON {schema}.fact_manifest ((true));
    INSERT INTO {schema}.fact_manifest VALUES (0, '');
    CREATE TABLE {schema}.fact_files (
        name text, piece integer, bytes bytea NOT NULL, replaced_at double precision, PRIMARY KEY (name, piece));
    ALTER TABLE {schema}.fact_files ALTER COLUMN bytes SET STORAGE EXTERNAL"""
_PIECE: Final = MIB
_MANIFEST: Final = "SELECT manifest FROM {schema}.fact_manifest WHERE md5(manifest) <> md5(%(known)s)"
_REPLACE: Final = """
    UPDATE {schema}.fact_manifest SET generation = %(generation)s, manifest = %(manifest)s
     WHERE generation = %(generation)s - 1"""
_STORED: Final = "SELECT name FROM {schema}.fact_files WHERE replaced_at IS NULL GROUP BY name"
_ADD: Final = "INSERT INTO {schema}.fact_files VALUES (%(name)s, %(piece)s, %(bytes)s)"
_END: Final = """
    UPDATE {schema}.fact_files SET replaced_at = {now} WHERE replaced_at IS NULL AND name <> ALL(%(names)s::text[])"""
_DELETE: Final = "DELETE FROM {schema}.fact_files WHERE replaced_at <= {now} - %(kept_s)s::float8"
_BYTES: Final = "SELECT bytes FROM {schema}.fact_files WHERE name = %(name)s AND piece = %(piece)s"


class PostgresFactStore:
    """
    The manifest and the files in a schema. Its methods run on any thread but that of `loop`, which has the connections.

    A file that no manifest names any more stays for `kept_s`, so that answers of other gateways can end.
    """

    def __init__(self, database: Database, loop: asyncio.AbstractEventLoop, *, kept_s: float) -> None:
        self._database, self._loop, self._kept_s = database, loop, kept_s
        self._last = b"", FactManifest()

    def read(self) -> FactManifest:
        statement = self._database.fill_in_table_names(_MANIFEST)
        known, _ = self._last
        changed = self._read(partial(_first_row, statement=statement, values={"known": known}))
        if changed is not None:
            self._last = changed[0], decode_manifest(changed[0])
        return self._last[1]

    def commit(self, manifest: FactManifest, folder: Path) -> None:
        names = digests_of_files(manifest).keys()
        values = {"generation": manifest.generation, "manifest": msgspec.json.encode(manifest)}
        now = self._database.now_unless_database_clock()
        sql = self._database.fill_in_table_names

        def replace(on: Connection) -> None:
            if on.execute(sql(_REPLACE), values).rowcount != 1:
                raise TakenOver("another gateway has replaced the manifest of the totals")
            stored = {name for (name,) in on.execute(sql(_STORED)).fetchall()}
            for name in names - stored:
                for piece, content in enumerate(_pieces(folder / name)):
                    on.execute(sql(_ADD), {"name": name, "piece": piece, "bytes": content})
            on.execute(sql(_END), {"names": list(names), "now": now})

        self._wait(self._database.transaction(replace))
        self.delete_replaced()

    def delete_replaced(self) -> None:
        statement = self._database.fill_in_table_names(_DELETE)
        values = {"kept_s": self._kept_s, "now": self._database.now_unless_database_clock()}
        self._wait(self._database.transaction(lambda on: on.execute(statement, values)))

    def fetch(self, name: str, folder: Path) -> None:
        statement = self._database.fill_in_table_names(_BYTES)
        draft = folder / f"{name}.new"
        with draft.open("wb") as file:
            for piece in count():
                values = {"name": name, "piece": piece}
                row = self._read(partial(_first_row, statement=statement, values=values))
                if row is None:
                    break
                file.write(row[0])
        if not piece:
            raise LedgerLost(f"{name}, a file of the totals, was deleted from the database")
        draft.replace(folder / name)

    def _read(self, work: Callable[[Connection], T]) -> T:
        return self._wait(self._database.read(work))

    def _wait(self, request: Coroutine[Any, Any, T]) -> T:
        return asyncio.run_coroutine_threadsafe(request, self._loop).result()


def _first_row(on: Connection, statement: bytes, values: Mapping[str, object]) -> Any:
    return on.execute(statement, values).fetchone()


def _pieces(path: Path) -> Iterator[bytes]:
    with path.open("rb") as file:
        while piece := file.read(_PIECE):
            yield piece
