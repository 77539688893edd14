"""
What is in use of the limits of container metrics, and the running books: in memory, and changed with every write.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

from spool.container_files import books
from spool.container_files.container_rows import ContainerRows
from spool.container_files.values import (
    OPEN_STATES,
    BookChange,
    ClusterIdentity,
    ContainerBooks,
    ContainerFile,
)
from spool.settings import ContainerSettings
from spool.shares import may_add

MAX_BYTES, MAX_CLUSTER_BYTES = "container.max_bytes", "container.max_cluster_bytes"

Place = tuple[ClusterIdentity, str]  # a cluster, and the key that brings files of it


class ContainerSums:
    def __init__(self, settings: ContainerSettings) -> None:
        self._settings = settings
        self._books: dict[tuple[str, str], tuple[int, int]] = {}
        self._bytes: Counter[Place] = Counter()  # of rows whose bytes are here
        self._waiting: Counter[str] = Counter()  # bytes by key that wait for the upstream
        self.open: Counter[str] = Counter()  # by key, of rows that wait
        self.arriving: Counter[Place] = Counter()

    @classmethod
    async def read(cls, rows: ContainerRows, settings: ContainerSettings) -> ContainerSums:
        sums = cls(settings)
        await sums._read(rows)
        return sums

    async def _read(self, rows: ContainerRows) -> None:
        self._books = dict(await rows.books())
        self.open, self._bytes, self._waiting = Counter(), Counter(), Counter()
        for one in await rows.held():
            self.open[one.key] += one.open
            self._bytes[one.identity, one.key] += one.bytes
            self._waiting[one.key] += one.waiting_bytes

    async def read_again(self, rows: ContainerRows) -> bool:
        """Returns False, and reads nothing else, if the books are what they were."""
        if self._books == await rows.books():
            return False
        await self._read(rows)
        return True

    @property
    def size(self) -> int:
        """Bytes of everything that is on disk or arrives."""
        return self._bytes.total() + self.arriving.total()

    @property
    def known(self) -> int:
        """Return how many rows there are."""
        return sum(n - carried for (_, term), (n, carried) in self._books.items() if term in books.ROW_TERMS)

    def number(self, term: str, *kinds: str) -> int:
        """A term of the books as it stands, of some kinds."""
        return sum(self._books.get((kind, term), (0, 0))[0] for kind in kinds)

    def books(self) -> ContainerBooks:
        return ContainerBooks(terms=books.terms_of(self._books))

    @property
    def waiting(self) -> Mapping[str, int]:
        """Return for each key the bytes that wait for the upstream or are arriving."""
        found = Counter(self._waiting)
        for (_, key), n in self.arriving.items():
            found[key] += n
        return found

    def over(self, place: Place) -> str:
        """The setting whose limit is passed, "" if none is."""
        if self._bytes[place] + self.arriving[place] > self._settings.max_cluster_bytes:
            return MAX_CLUSTER_BYTES
        return MAX_BYTES if self.size > self._settings.max_bytes else ""

    def may_arrive(self, key: str, n: int) -> bool:
        """True if a key with `n` more bytes arriving has no more waiting than it leaves free for others."""
        waiting = self.waiting
        return may_add(waiting[key] - n, sum(waiting.values()) - n, n, self._settings.max_bytes)

    def fullest_spent(self) -> str:
        """
        Return the key with the most bytes among the keys that have bytes which no longer wait; "" if
        there is none.
        """
        held: Counter[str] = Counter()
        for (_, key), n in self._bytes.items():
            held[key] += n
        spent = [key for key, n in held.items() if n > self._waiting[key]]
        return max(spent, key=lambda key: held[key], default="")

    def may_wait(self, key: str, n: int) -> bool:
        """True if `n` more rows of a key may wait: a key never has more waiting than it leaves free."""
        return may_add(self.open[key], self.open.total() + n, n, self._settings.max_files)

    def follow(
        self,
        pairs: Sequence[tuple[ContainerFile | None, ContainerFile]],
        gone: Sequence[ContainerFile],
        changes: Sequence[BookChange],
    ) -> None:
        """Follow a write that has succeeded: add its changes to the sums."""
        for change in changes:
            n, carried = self._books.get((change.kind, change.term), (0, 0))
            self._books[change.kind, change.term] = (n + change.n, carried + change.carried)
        for before, after in [*pairs, *((file, None) for file in gone)]:
            for file, sign in ((before, -1), (after, 1)):
                if file is not None:
                    size = sign * file.size * file.kept
                    self._bytes[file.identity, file.key] += size
                    self._waiting[file.key] += size * file.is_due
                    self.open[file.key] += sign * (file.state in OPEN_STATES)
        # Without those at zero.
        self._bytes, self._waiting, self.open = +self._bytes, +self._waiting, +self.open
