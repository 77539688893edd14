"""The bytes of container metrics without a disk."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence


class MemoryContents:
    def __init__(self) -> None:
        self.kept: dict[str, bytes] = {}

    async def begin(self, id: str, head: bytes) -> MemoryDraft:
        return MemoryDraft(self, id, head)

    async def read(self, id: str) -> AsyncIterator[bytes]:
        if id not in self.kept:
            raise FileNotFoundError(id)
        _, _, data = self.kept[id].partition(b"\n")
        yield data

    async def remove(self, ids: Sequence[str]) -> None:
        for id in ids:
            self.kept.pop(id, None)

    async def heads(self) -> Mapping[str, bytes]:
        return {id: data.partition(b"\n")[0] + b"\n" for id, data in self.kept.items()}


class MemoryDraft:
    def __init__(self, contents: MemoryContents, id: str, head: bytes) -> None:
        self._contents = contents
        self._id = id
        self._data = bytearray(head)

    async def write(self, data: bytes) -> None:
        self._data += data

    async def flush(self) -> None:
        """Do nothing: there is no disk."""

    async def keep(self) -> None:
        self._contents.kept[self._id] = bytes(self._data)

    async def drop(self) -> None:
        self._data.clear()
