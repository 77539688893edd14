"""Contents of container files, as files named by id in a directory next to the databases."""

from __future__ import annotations

import asyncio
import os
import shutil
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import BinaryIO

from spool.container_files.values import MAX_HEAD_BYTES
from spool.disks import create_flushed_file, flush_directory, make_directory, replace_file

DIRECTORY = "container-files"
DRAFT = ".part"
PIECE = 256 * 1024


class DiskContainerFileContents:
    """The contents of container files on disk. The first file creates their directory."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory / DIRECTORY
        self._drafts = 0

    async def begin_draft(self, id: str, header_line: bytes) -> DiskContainerFileDraft:
        self._drafts += 1
        path = self._directory / f"{id}.{self._drafts}{DRAFT}"

        def make_draft_file() -> BinaryIO:
            make_directory(self._directory, 0o700)
            file = os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "wb")
            file.write(header_line)
            return file

        return DiskContainerFileDraft(await asyncio.to_thread(make_draft_file), path, self._directory / id)

    async def read(self, id: str) -> AsyncIterator[bytes]:
        file = await asyncio.to_thread((self._directory / id).open, "rb")
        try:
            await asyncio.to_thread(file.readline, MAX_HEAD_BYTES)
            while piece := await asyncio.to_thread(file.read, PIECE):
                yield piece
        finally:
            file.close()

    async def remove(self, ids: Sequence[str]) -> None:
        def delete_content_files() -> None:
            for id in ids:
                (self._directory / id).unlink(missing_ok=True)

        if ids:
            await asyncio.to_thread(delete_content_files)

    async def header_lines_by_file_id(self) -> Mapping[str, bytes]:
        """Read the first line of each file, and delete drafts that a killed process left."""

        def read_header_lines() -> dict[str, bytes]:
            heads = {}
            for path in self._directory.glob("*"):
                if path.suffix == DRAFT:
                    path.unlink()
                else:
                    with path.open("rb") as file:
                        heads[path.name] = file.readline(MAX_HEAD_BYTES)
            return heads

        return await asyncio.to_thread(read_header_lines)


def copy_contents(directory: Path, into: Path) -> None:
    """
    Copy the contents of all container files. A file that is deleted meanwhile is left out, because it was
    already delivered.
    """
    source = directory / DIRECTORY
    target = into / DIRECTORY
    if not source.exists():
        return
    target.mkdir(mode=0o700)
    for path in source.iterdir():
        if path.suffix == DRAFT:
            continue
        with suppress(FileNotFoundError):
            _copy_file(path, target / path.name)
    flush_directory(target)


def _copy_file(path: Path, target: Path) -> None:
    with path.open("rb") as file, create_flushed_file(target) as copy:
        shutil.copyfileobj(file, copy)


class DiskContainerFileDraft:
    def __init__(self, file: BinaryIO, path: Path, final: Path) -> None:
        self._file = file
        self._path = path
        self._final = final

    async def write(self, data: bytes) -> None:
        await asyncio.to_thread(self._file.write, data)

    async def flush(self) -> None:
        def flush_and_close_draft() -> None:
            self._file.flush()
            os.fsync(self._file.fileno())
            self._file.close()

        await asyncio.to_thread(flush_and_close_draft)

    async def store_draft(self) -> None:
        def rename_and_flush_draft() -> None:
            replace_file(self._path, self._final)
            flush_directory(self._final.parent)

        await asyncio.to_thread(rename_and_flush_draft)

    async def delete_draft(self) -> None:
        def delete_draft_file() -> None:
            self._file.close()
            self._path.unlink(missing_ok=True)

        await asyncio.to_thread(delete_draft_file)
