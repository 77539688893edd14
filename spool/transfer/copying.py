"""
Copies all that one storage keeps into another, empty one, whatever engines keep them.

The copy counts only when the books of both are equal, recounted on both sides; else it is taken away again.
Until then nobody can use it: what a process that was killed left of one is begun again.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from spool.errors import NotAllowed, SpoolDamaged
from spool.record import TOPICS
from spool.storage import Engine, StorageOptions
from spool.transfer.tables import OpenTables, Progress, no_progress

Terms = Mapping[str, Mapping[str, int]]


@dataclass(frozen=True, kw_only=True)
class CopiedStorage:
    """What both have: terms by topic and by route, and the next number of each topic."""

    topics: Terms
    routes: Terms
    numbers: Mapping[str, int]


async def copy_storage(
    source: StorageOptions,
    source_engine: Engine,
    target: StorageOptions,
    target_engine: Engine,
    progress: Progress = no_progress,
) -> CopiedStorage:
    """
    Copy while no server has either open.

    NotAllowed where that is not possible, with what to do; SpoolDamaged where the books do not balance
    or differ after.
    """
    if source_engine.tables is None:
        raise NotAllowed("this storage engine keeps nothing that could be copied")
    opened = await source_engine.tables(source)
    progress("counting the books of the source", 0)
    before = await count_books(source, source_engine)
    return await take(opened, before, target, target_engine, progress)


async def take(
    opened: OpenTables, before: CopiedStorage, target: StorageOptions, engine: Engine, progress: Progress
) -> CopiedStorage:
    """Have a storage take over what another one gives, whose books were counted before."""
    if engine.take_over is None:
        raise NotAllowed("this storage engine takes nothing over")
    taken = await engine.take_over(target, opened, progress)
    try:
        progress("counting the books of the copy", 0)
        after = await count_books(replace(target, is_unfinished_copy=True), engine)
        _compare(before, after)
    except BaseException:
        await taken.discard()
        raise
    await taken.finish()  # it may count from here on, whatever becomes of the answer
    return after


async def count_books(options: StorageOptions, engine: Engine) -> CopiedStorage:
    """Recounted, of a storage that no server has open; SpoolDamaged where they do not balance."""
    storage = await engine.open(options)
    try:
        if storage.registry is None:
            raise NotAllowed(storage.registry_problem)
        books = await storage.log.verify()
        numbers = {topic: storage.log.next_number(topic) for topic in TOPICS}
    finally:
        await storage.close()
    if books.imbalances:
        raise SpoolDamaged(f"the books do not balance: {books.imbalances[0]}")
    return CopiedStorage(topics=_present(books.topics), routes=_present(books.routes), numbers=numbers)


def _compare(before: CopiedStorage, after: CopiedStorage) -> None:
    for name in ("topics", "routes", "numbers"):
        one = getattr(before, name)
        other = getattr(after, name)
        for key in sorted({*one, *other}):
            if one.get(key) != other.get(key):
                raise SpoolDamaged(
                    f"the copy is not equal in its {name}: {key}. It is taken away again; report this"
                )


def _present(terms: Terms) -> Terms:
    """A term that is 0 and one that is not there are the same."""
    return {key: {term: n for term, n in of_key.items() if n} for key, of_key in terms.items()}
