"""Interface of a data lake's store, where each name is written only once, and a folder as such a store."""

from __future__ import annotations

import asyncio
import errno
import os
import shutil
import tempfile
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from typing import Final, NamedTuple, Protocol, TypeVar

from exporters.errors import Misconfigured, Retryable
from spool.disks import flush_directory, make_directory

T = TypeVar("T")
_DRAFT: Final = ".tollhouse-"
_LATER: Final = (errno.ENOSPC, errno.EDQUOT, errno.EIO)


class StoredObject(NamedTuple):
    name: str
    size: int


class LakeStore(Protocol):
    """
    A place for the files of a data lake. Names are relative to the destination's prefix.

    Raises exporters.errors: Retryable if the request may succeed later, and Misconfigured if the operator
    must fix the key, the address or the store.
    """

    async def create_object(self, name: str, content: Path | bytes) -> bool:
        """Write an object as a whole or not at all. Return False if the name exists already."""
        ...

    async def probe_overwrite_refusal(self, name: str, content: bytes) -> bool:
        """
        Write an existing object again with its own bytes, on the condition that it does not exist. Return
        False if the store accepts this, because it then ignores such conditions.
        """
        ...

    async def object_size(self, name: str) -> int | None: ...

    async def read_end(self, name: str, size: int, count: int) -> bytes: ...

    async def fetch(self, name: str, path: Path) -> None:
        """Copy an object into a local file. Raises FileNotFoundError if the object does not exist."""
        ...

    # in the order of their names
    def list_objects(self, prefix: str, *, after: str = "") -> AsyncIterator[StoredObject]: ...


class FolderStore:
    """
    A folder as a store. A file is written under a temporary name, flushed, and then linked to its name.
    Linking fails if the name exists.
    """

    def __init__(self, root: Path) -> None:
        self._root = root

    async def create_object(self, name: str, content: Path | bytes) -> bool:
        return await self._run_on_thread(lambda: self._create_file(self._root / name, content))

    def _create_file(self, path: Path, content: Path | bytes) -> bool:
        make_directory(path.parent)
        if path.exists():
            return False
        descriptor, draft = tempfile.mkstemp(prefix=_DRAFT, dir=path.parent)
        try:
            with os.fdopen(descriptor, "wb") as target:
                if isinstance(content, bytes):
                    target.write(content)
                else:
                    with content.open("rb") as source:
                        shutil.copyfileobj(source, target, 1 << 20)
                target.flush()
                os.fsync(target.fileno())
            Path(draft).chmod(0o640)
            try:
                path.hardlink_to(draft)
            except FileExistsError:
                return False
        finally:
            Path(draft).unlink(missing_ok=True)
        flush_directory(path.parent)
        return True

    async def probe_overwrite_refusal(self, name: str, content: bytes) -> bool:
        return not await self.create_object(name, content)

    async def object_size(self, name: str) -> int | None:
        def stat_object_size() -> int | None:
            try:
                return (self._root / name).stat().st_size
            except FileNotFoundError:
                return None

        return await self._run_on_thread(stat_object_size)

    async def read_end(self, name: str, size: int, count: int) -> bytes:
        def read_object_tail() -> bytes:
            with (self._root / name).open("rb") as file:
                file.seek(max(0, size - count))
                return file.read(count)

        return await self._run_on_thread(read_object_tail)

    async def fetch(self, name: str, path: Path) -> None:
        await asyncio.to_thread(shutil.copyfile, self._root / name, path)

    async def list_objects(self, prefix: str, *, after: str = "") -> AsyncIterator[StoredObject]:
        for stored_object in await self._run_on_thread(lambda: sorted(self._walk_objects(prefix))):
            if stored_object.name > after:
                yield stored_object

    def _walk_objects(self, prefix: str) -> Iterator[StoredObject]:
        for path in (self._root / prefix).rglob("*"):
            if path.is_file() and not path.name.startswith(_DRAFT):
                yield StoredObject(str(path.relative_to(self._root)), path.stat().st_size)

    async def _run_on_thread(self, operation: Callable[[], T]) -> T:
        try:
            return await asyncio.to_thread(operation)
        except OSError as error:
            message = f"{self._root}: {error.strerror or error}"
            if error.errno in _LATER:
                raise Retryable(message, answered=False) from error
            raise Misconfigured(message, answered=False) from error
