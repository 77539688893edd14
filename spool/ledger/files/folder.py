"""
A folder with files of facts and the manifest that names them.

A file never changes and no name is used twice. What a manifest does not name does not exist: one rename makes new files
part of the totals and others not, so a crash at any moment loses and doubles nothing.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from pathlib import Path
from typing import Protocol

import msgspec

from spool.disks import flush_directory, flush_file, write_durably
from spool.errors import LedgerLost
from spool.record import RecalculationEntry, pack_records, unpack_records

FORMAT = 1
MANIFEST = "manifest.json"
PREPARED = "prepared.json"  # the manifest of a second generation, which does not count yet
PART, DAY, SPAN, DELTA = "part", "day", "span", "delta"  # kinds of files


class FileSums(msgspec.Struct, frozen=True):
    """The sums of a file's rows, by which a merge is checked. Money is in units of spool.money."""

    rows: int = 0
    calls: int = 0
    tokens: int = 0
    took_ms: int = 0
    cost: str = "0"
    reported: str = "0"
    estimated: str = "0"


class FactFile(msgspec.Struct, frozen=True):
    """
    A file by its times [since, until) and the record numbers of its rows, first and last. `edition` is that of the log.
    The `sums` of a delta are what its changes add to the sums of the rows that they replace.
    """

    kind: str
    since: int
    until: int
    edition: str
    numbers: tuple[int, int]
    rows: int
    bytes: int
    sha256: str
    sums: FileSums


class FactManifest(msgspec.Struct, frozen=True):
    """
    The files that count. Records below `reach` are in them, or are none of their calls: `missed` had no record,
    `damaged` could not be read, and `absurd` were too large. The columns of a tag, a meter and a currency are those of
    its place in `tags`, `meters` and `currencies`. Tags that were `listed` from the begin had a column whenever they
    came. The name of the next file has the numbers `series` and `next`, so generations share no name.

    `recalculations` are those below `reach`, by record number, with the checksum of the file with its prices. Later
    reports need them when their records are deleted. A second generation `has_copies` of rows without records.
    """

    format: int = FORMAT
    generation: int = 0
    series: int = 0
    next: int = 1
    edition: str = ""
    reach: int = 1
    missed: int = 0
    damaged: int = 0
    absurd: int = 0
    tags: tuple[str, ...] = ()
    listed: tuple[str, ...] = ()
    meters: tuple[str, ...] = ()
    currencies: tuple[str, ...] = ()
    files: dict[str, FactFile] = {}
    recalculations: dict[int, str] = {}
    has_copies: bool = False


class FileStore(Protocol):
    """
    Keeps the manifest that counts, and its files if several gateways share them. `fetch` restores a file of it.

    Several gateways may call `commit`, and only one of them replaces a manifest.
    """

    def read(self) -> FactManifest:
        """Return the manifest that counts. Raises LedgerLost for one of another build or that cannot be read."""
        ...

    def commit(self, manifest: FactManifest, folder: Path) -> None:
        """
        Replace the manifest of the generation before. New files are in the folder, and flushed. After an error, either
        manifest may count, but after TakenOver it is one of another gateway.
        """
        ...

    def fetch(self, name: str, folder: Path) -> None:
        """Copy a file of the manifest to the folder. Raises LedgerLost if there is no other copy of it."""
        ...

    def delete_replaced(self) -> None:
        """Delete copies of files that no manifest names and that no answer of another gateway needs any more."""
        ...


class LocalStore:
    """The manifest in the folder of its files, which only one process uses."""

    def __init__(self, path: Path, name: str = MANIFEST) -> None:
        self.path = path / name

    def read(self) -> FactManifest:
        try:
            return decode_manifest(self.path.read_bytes())
        except FileNotFoundError:
            return FactManifest()
        except (LedgerLost, OSError) as error:
            raise LedgerLost(f"{self.path}: {error}") from error

    def commit(self, manifest: FactManifest, folder: Path) -> None:
        flush_directory(folder)
        write_durably(self.path, msgspec.json.encode(manifest).decode())

    def fetch(self, name: str, folder: Path) -> None:
        raise LedgerLost(f"{folder / name} is missing or damaged")

    def delete_replaced(self) -> None:
        """Do nothing: `FactFolder` deletes the only copies."""


def decode_manifest(text: bytes) -> FactManifest:
    """Raises LedgerLost for a manifest of another build or that cannot be read."""
    try:
        manifest = msgspec.json.decode(text, type=FactManifest)
    except msgspec.DecodeError as error:
        raise LedgerLost(f"the manifest of the totals cannot be read: {error}") from error
    if manifest.format != FORMAT:
        raise LedgerLost(
            f"the manifest of the totals has format {manifest.format}; this build reads {FORMAT}"
        )
    return manifest


def digests_of_files(manifest: FactManifest) -> dict[str, str]:
    """Return the checksums of all files that a manifest names, by name."""
    prices = {_name_of_prices(number): digest for number, digest in manifest.recalculations.items()}
    return prices | {name: file.sha256 for name, file in manifest.files.items()}


class FactFolder:
    """
    The files of a manifest in a folder, which one process uses at a time. Each file is compared with its checksum
    before it is read for the first time.

    `cache` is the limit in bytes for files of which the store has copies, without limit if it is None. An answer may
    need more: then the folder has its files until the next answer.
    """

    def __init__(self, path: Path, store: FileStore | None = None, *, cache: int | None = None) -> None:
        self.path = path
        self.store = LocalStore(path) if store is None else store
        self._cache = cache
        self._prepared = LocalStore(path, PREPARED)
        # files here, the last used one last; an unchecked one has no checksum
        self._held: dict[str, FactFile] = {}

    @classmethod
    def prepared(cls, path: Path) -> FactFolder:
        """Return the folder with the manifest of a second generation, of which nobody else has copies."""
        return cls(path, LocalStore(path, PREPARED))

    def open(self) -> FactManifest:
        """
        Return the manifest. The one that counts also deletes what no manifest names, which a crash left, and a second
        generation that another one overtook, because it is opened before any answer reads a file.

        Raises LedgerLost for a manifest of another build or that cannot be read.
        """
        self.path.mkdir(parents=True, exist_ok=True)
        manifest = self.store.read()
        if not self._is_prepared:
            prepared = self._prepared.read()
            named = {MANIFEST, *digests_of_files(manifest)}
            if prepared.series > manifest.series:
                named |= {PREPARED, *digests_of_files(prepared)}
            for path in self.path.iterdir():
                if path.is_file() and path.name not in named:
                    path.unlink()
        for name, file in manifest.files.items():
            if (self.path / name).exists():
                self._held[name] = msgspec.structs.replace(file, sha256="")
        return manifest

    @property
    def _is_prepared(self) -> bool:
        return isinstance(self.store, LocalStore) and self.store.path == self._prepared.path

    def commit(self, manifest: FactManifest, new: Mapping[str, FactFile]) -> None:
        """Replace the manifest, with new files, as `FileStore.commit` does."""
        self.store.commit(manifest, self.path)
        self._held |= new

    def count_from_now_on(self, manifest: FactManifest, earlier: FactFolder) -> None:
        """Make the prepared manifest the one that counts, instead of that of the earlier generation."""
        earlier.store.commit(manifest, self.path)
        self.store, self._cache = earlier.store, earlier._cache
        self._prepared.path.unlink()
        flush_directory(self.path)

    def fetch(self, files: Mapping[str, FactFile]) -> None:
        """
        Make sure that files are here, with the content that they had when they were written. Others may be deleted.
        Raises LedgerLost if there is no such file anywhere.
        """
        for name, file in files.items():
            if self._held.pop(name, None) != file or not self._has_size(name, file.bytes):
                self._restore(name, file.sha256)
            self._held[name] = file
        if self._cache is not None:
            needed = sum(file.bytes for file in self._held.values())
            for name in [name for name in self._held if name not in files]:
                if needed <= self._cache:
                    break
                needed -= self._held[name].bytes
                self.delete(name)

    def _has_size(self, name: str, size: int) -> bool:
        path = self.path / name
        return path.exists() and path.stat().st_size == size

    def _restore(self, name: str, sha256: str) -> None:
        path = self.path / name
        if path.exists() and digest_of_file(path) == sha256:
            return
        self.store.fetch(name, self.path)
        if digest_of_file(path) != sha256:
            raise LedgerLost(f"{path} is damaged, and so is its copy")

    def delete(self, name: str) -> None:
        self._held.pop(name, None)
        (self.path / name).unlink(missing_ok=True)

    def write_recalculation(self, number: int, record: RecalculationEntry) -> str:
        """Store a recalculation without the person who asked for it. Return the checksum of its file."""
        path = self.path / _name_of_prices(number)
        content = pack_records([msgspec.structs.replace(record, user=None)])
        if not path.is_file() or path.read_bytes() != content:  # two generations share it
            path.write_bytes(content)
            flush_file(path)
        return digest_of_file(path)

    def read_recalculation(self, number: int, sha256: str) -> RecalculationEntry:
        """Read a stored recalculation. Raises LedgerLost if its file has changed or is missing."""
        name = _name_of_prices(number)
        self._restore(name, sha256)
        [record] = unpack_records((self.path / name).read_bytes())
        assert isinstance(record, RecalculationEntry)
        return record


def _name_of_prices(number: int) -> str:
    return f"prices-{number}"


def digest_of_file(path: Path) -> str:
    try:
        with path.open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()
    except OSError as error:
        raise LedgerLost(f"{path} cannot be read: {error}") from error
