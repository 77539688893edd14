"""
Archives: a storage as one file, to fill an empty storage of any engine.

An archive is a zip file. Its members are zstd streams of frames (length, msgpack), one member per table and
container file. `manifest.json` has the recounted accounting and the SHA-256 of each member. The archive
contains the installation's secret.
"""

from __future__ import annotations

import asyncio
import json
import struct
import sys
import zipfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from functools import partial
from hashlib import file_digest, sha256
from pathlib import Path
from typing import Any

import msgspec

from spool.disks import create_flushed_file, flush_directory
from spool.errors import AlreadyThere, NotAllowed, SpoolDamaged
from spool.storage import StorageEngine, StorageOptions
from spool.transfer.copying import CopiedStorage, fill_and_compare_storage, recount_storage
from spool.transfer.tables import (
    KeptContent,
    KeptTable,
    OfflineStorageTables,
    Progress,
    no_progress,
    split_rows,
)

if sys.version_info >= (3, 14):
    from compression import zstd
else:
    from backports import zstd

FORMAT = 1
MANIFEST, SECRET = "manifest.json", "installation.secret"
TABLES, CONTENTS = "tables/", "container-files/"
UNFINISHED = ".unfinished"
_LENGTH = struct.Struct(">I")


@dataclass(frozen=True, kw_only=True)
class ArchiveManifest:
    """The manifest of an archive. `made_at`: RFC 3339. `members`: SHA-256 by name."""

    version: str
    made_at: str
    books: CopiedStorage
    members: Mapping[str, str]
    format: int = FORMAT


async def export_archive(
    source: StorageOptions,
    engine: StorageEngine,
    target: Path,
    *,
    version: str,
    made_at: str,
    progress: Progress = no_progress,
) -> ArchiveManifest:
    """
    Write a storage's data to an archive. No server may have the storage open.

    Raises AlreadyThere if `target` exists, NotAllowed if it cannot be written, or SpoolDamaged if the
    accounting does not balance.
    """
    if engine.tables is None:
        raise NotAllowed("this storage engine has no data that can be copied")
    if await asyncio.to_thread(target.exists):
        raise AlreadyThere(f"{target} already exists")
    opened = await engine.tables(source)
    progress("recounting the source", 0)
    books = await recount_storage(source, engine)
    draft = target.with_name(f"{target.name}{UNFINISHED}")

    def write_archive() -> ArchiveManifest:
        draft.unlink(missing_ok=True)
        with (
            create_flushed_file(draft) as file,
            opened() as tables,
            zipfile.ZipFile(file, "w", zipfile.ZIP_STORED) as archive,
        ):
            members = _write_members(archive, tables, progress)
            manifest = ArchiveManifest(version=version, made_at=made_at, books=books, members=members)
            archive.writestr(MANIFEST, json.dumps(asdict(manifest), indent=2))
        draft.rename(target)
        flush_directory(target.parent)
        return manifest

    try:
        return await asyncio.to_thread(write_archive)
    except OSError as error:
        draft.unlink(missing_ok=True)
        raise NotAllowed(f"{target} cannot be written: {error.strerror}") from error
    except Exception:
        draft.unlink(missing_ok=True)
        raise


async def import_archive(
    archive: Path, target: StorageOptions, engine: StorageEngine, progress: Progress = no_progress
) -> CopiedStorage:
    """
    Fill a storage from an archive. The accounting of both is compared, and if they differ, the copy is
    deleted.

    Raises NotAllowed if the file is no archive, or SpoolDamaged, before any write, if a part has changed
    since it was written.
    """
    progress("checking the archive", 0)
    manifest = await asyncio.to_thread(check_archive, archive)
    return await fill_and_compare_storage(
        partial(_open_archive, archive), manifest.books, target, engine, progress
    )


def check_archive(archive: Path) -> ArchiveManifest:
    try:
        with zipfile.ZipFile(archive) as opened:
            manifest = msgspec.convert(json.loads(opened.read(MANIFEST)), ArchiveManifest)
            names = {member.filename for member in opened.infolist()} - {MANIFEST}
            if manifest.format != FORMAT:
                raise NotAllowed(
                    f"{archive} has format {manifest.format}, but this Tollhouse reads format "
                    f"{FORMAT}: upgrade Tollhouse"
                )
            if names != manifest.members.keys():
                raise SpoolDamaged(f"{archive} is damaged: its members differ from its manifest")
            for name, digest in manifest.members.items():
                with opened.open(name) as member:
                    if file_digest(member, sha256).hexdigest() != digest:  # type: ignore[arg-type]
                        raise SpoolDamaged(f"{archive} is damaged: {name} has changed since it was written")
    except OSError as error:
        raise NotAllowed(f"{archive} cannot be read: {error.strerror}") from error
    except (zipfile.BadZipFile, KeyError, ValueError, msgspec.ValidationError) as error:
        raise NotAllowed(f"{archive} is not a storage archive, or it is incomplete") from error
    return manifest


# -- writing -------------------------------------------------------------------------------------------------


def _write_members(
    archive: zipfile.ZipFile, tables: OfflineStorageTables, progress: Progress
) -> dict[str, str]:
    members = {SECRET: sha256(tables.secret).hexdigest()}
    archive.writestr(SECRET, tables.secret)
    for name in tables.names:
        table = tables.table(name)
        frames = table_parts_with_progress(name, table, progress)
        members[f"{TABLES}{name}"] = _write_member(archive, f"{TABLES}{name}", frames)
    for number, content in enumerate(tables.contents(), start=1):
        name = f"{CONTENTS}{number}"
        members[name] = _write_member(archive, name, [(content.id, content.head)], content.pieces)
        progress("container files", number)
    return members


def table_parts_with_progress(name: str, table: KeptTable, progress: Progress) -> Iterator[Any]:
    yield list(table.columns)
    row_count = 0
    for part in split_rows(table.rows):
        yield part
        row_count += len(part)
        progress(name, row_count)


def _write_member(archive: zipfile.ZipFile, name: str, *frames: Iterable[Any]) -> str:
    compressor = zstd.ZstdCompressor()
    sum = sha256()
    with archive.open(name, "w", force_zip64=True) as member:

        def write_packed_member(packed: bytes) -> None:
            sum.update(packed)
            member.write(packed)

        for of_kind in frames:
            for frame in of_kind:
                data = msgspec.msgpack.encode(frame)
                write_packed_member(compressor.compress(_LENGTH.pack(len(data)) + data))
        write_packed_member(compressor.flush())
    return sum.hexdigest()


# -- reading -------------------------------------------------------------------------------------------------


class ArchiveTables:
    def __init__(self, archive: zipfile.ZipFile) -> None:
        self.secret = archive.read(SECRET)
        self._archive = archive
        members = [name for name in archive.namelist() if name.startswith(TABLES)]
        self.names: Sequence[str] = [name.removeprefix(TABLES) for name in members]

    def table(self, name: str) -> KeptTable:
        frames = self._decode_member(f"{TABLES}{name}")
        columns = next(frames)
        return KeptTable(columns=columns, rows=(tuple(row) for part in frames for row in part))

    def contents(self) -> Iterator[KeptContent]:
        names = [name for name in self._archive.namelist() if name.startswith(CONTENTS)]
        for name in names:
            frames = self._decode_member(name)
            id, head = next(frames)
            yield KeptContent(id=id, head=head, pieces=frames)

    def _decode_member(self, name: str) -> Iterator[Any]:
        with self._archive.open(name) as member, zstd.ZstdFile(member) as packed:
            while length := packed.read(_LENGTH.size):
                (size,) = _LENGTH.unpack(length)
                yield msgspec.msgpack.decode(packed.read(size))


@contextmanager
def _open_archive(archive: Path) -> Iterator[ArchiveTables]:
    with zipfile.ZipFile(archive) as opened:
        yield ArchiveTables(opened)
