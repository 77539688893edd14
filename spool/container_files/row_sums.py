"""Sums over the rows of container metrics: engines ask for them in their own words and answer in the same rows."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from spool.container_files.values import ClusterFiles, ClusterIdentity, HeldFiles, WaitingFiles


@dataclass(frozen=True, slots=True, kw_only=True)
class SumQueries:
    """
    What an engine asks for each sum, and what a row of the answer holds.

    `books`: kind, term, number, carried. `count`: kind, state, rows. `clusters`: account, region, cluster, files that
    wait, bytes kept, newest upload. `waiting`: one row of files, bytes, oldest upload. `held`: account, region,
    cluster, key, rows that wait for something, bytes kept, and those of them that wait for the upstream.
    """

    books: str
    count: str
    clusters: str
    waiting: str
    held: str


class SummedContainerRows(ABC):
    """The part of `spool.container_files.rows.ContainerRows` that only sums."""

    sums: SumQueries

    @abstractmethod
    async def _all(self, statement: str) -> Iterable[Any]: ...

    async def books(self) -> Mapping[tuple[str, str], tuple[int, int]]:
        return {(kind, term): (n, carried) for kind, term, n, carried in await self._all(self.sums.books)}

    async def count(self) -> Mapping[tuple[str, str], int]:
        return {(kind, state): n for kind, state, n in await self._all(self.sums.count)}

    async def clusters(self) -> Sequence[ClusterFiles]:
        return [
            ClusterFiles(identity=ClusterIdentity(account, region, name), waiting=waiting, bytes=size, newest=newest)
            for account, region, name, waiting, size, newest in await self._all(self.sums.clusters)
        ]

    async def waiting(self) -> WaitingFiles:
        [(files, size, oldest)] = await self._all(self.sums.waiting)
        return WaitingFiles(files=files, bytes=size, oldest=oldest)

    async def held(self) -> Sequence[HeldFiles]:
        return [
            HeldFiles(
                identity=ClusterIdentity(account, region, name), key=key, open=n, bytes=size, waiting_bytes=waiting
            )
            for account, region, name, key, n, size, waiting in await self._all(self.sums.held)
        ]
