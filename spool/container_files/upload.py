"""Bytes of container metrics that arrive: bounded, summed, and kept once they are whole."""

from __future__ import annotations

import hashlib
from collections.abc import Awaitable, Callable, Collection
from typing import Protocol

from spool.container_files.container_rows import ContentDraft
from spool.container_files.sums import Place
from spool.container_files.values import ContainerFile
from spool.errors import Invalid, SpoolError
from spool.log.partial_reports import Expectation
from spool.settings import ContainerSettings


class FileTooLarge(SpoolError):
    """It is over container.max_file_bytes."""


class Room(Protocol):
    """Bytes that arrive are held until they are counted with what is kept."""

    @property
    def settings(self) -> ContainerSettings: ...

    async def make_room(self, place: Place, n: int) -> None: ...

    def give_back(self, place: Place, n: int) -> None: ...


class RepeatedUpload:
    """The bytes of a file that is here: nothing of them is kept. Like a `ContainerUpload`."""

    def __init__(self, file: ContainerFile) -> None:
        self.size = 0
        self._file = file
        self._sum = hashlib.sha256()

    async def write(self, data: bytes) -> None:
        self.size += len(data)
        self._sum.update(data)

    async def finish(self) -> bool:
        """False: it was known. Invalid if these are other bytes than those that were kept."""
        check_same(self._file, self._sum.hexdigest())
        return False

    async def drop(self) -> None:
        """Do nothing: a repeated upload stored no bytes."""


class ContainerUpload:
    """`write` until all is there, then `finish`; `drop` after anything else."""

    def __init__(
        self,
        room: Room,
        take: Callable[[ContainerUpload], Awaitable[bool]],
        file: ContainerFile,
        draft: ContentDraft,
        expects: Collection[Expectation] = (),
    ) -> None:
        self.file = file
        self.expects = expects
        self.draft = draft
        self.size = 0
        self.sha256 = ""
        self._room = room
        self._place = (file.identity, file.key)  # under which it arrives
        self._take = take
        self._sum = hashlib.sha256()

    async def write(self, data: bytes) -> None:
        """FileTooLarge, SpoolFull; then the upload must be dropped."""
        most = self._room.settings.max_file_bytes
        if self.size + len(data) > most:
            raise FileTooLarge(f"it is over {most} bytes (container.max_file_bytes)")
        await self._room.make_room(self._place, len(data))
        self.size += len(data)
        self._sum.update(data)
        await self.draft.write(data)

    async def finish(self) -> bool:
        """Keep it; False if it was known already. Invalid if it is not what was announced."""
        self.sha256 = self._sum.hexdigest()
        file = self.file
        if file.announced_size is not None and file.announced_size != self.size:
            raise Invalid(f"the file has {self.size} bytes, and {file.announced_size} were announced")
        if file.announced_sha256 is not None and file.announced_sha256.lower() != self.sha256:
            raise Invalid("the file does not have the sha_256 that was announced")
        await self.draft.flush()
        is_new = await self._take(self)
        self._room.give_back(self._place, self.size)
        return is_new

    async def drop(self) -> None:
        self._room.give_back(self._place, self.size)
        await self.draft.drop()


def check_same(file: ContainerFile, sha256: str) -> None:
    """Invalid if a file that is here is not the one with this sum."""
    if file.sha256 != sha256:
        raise Invalid(
            "another file was taken under this reference_id, and stays: announce this one under its own"
        )
