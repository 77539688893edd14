"""
Copies all that one storage keeps into another, empty one, whatever engines keep them.

It counts only when the books of both are equal, recounted on both sides; else the copy is taken away again.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial

from spool.directories import make_directory
from spool.errors import NotAllowed, SpoolDamaged
from spool.log.values import Books
from spool.storage import Discard, Engine, StorageOptions

Terms = Mapping[str, Mapping[str, int]]


@dataclass(frozen=True, kw_only=True)
class CopiedStorage:
    """The books that both have: terms by topic and by route."""

    topics: Terms
    routes: Terms


async def copy_storage(
    source: StorageOptions, source_engine: Engine, target: StorageOptions, target_engine: Engine
) -> CopiedStorage:
    """
    Copy while no server has either open.

    NotAllowed where that is not possible, with what to do; SpoolDamaged where the books do not balance or differ after.
    """
    if source_engine is target_engine:
        before, discard = await _copy_files(source, source_engine, target)
    elif source_engine.tables is None or target_engine.take_over is None:
        raise NotAllowed("a storage is copied from SQLite alone: to PostgreSQL, or to another data directory")
    else:
        before = await _books(source, source_engine)
        discard = await target_engine.take_over(target, partial(source_engine.tables, source.directory))
    try:
        after = await _books(target, target_engine)
        _compare(before, after)
    except BaseException:
        await discard()
        raise
    return CopiedStorage(topics=after.topics, routes=after.routes)


async def _copy_files(source: StorageOptions, engine: Engine, target: StorageOptions) -> tuple[Books, Discard]:
    directory = target.directory
    if directory.exists() and any(directory.iterdir()):
        raise NotAllowed(f"{directory} is not empty: copy into a new directory")
    make_directory(directory, 0o700)
    before = await _books(source, engine)
    storage = await engine.open(source)
    try:
        await storage.copy(directory)
    finally:
        await storage.close()

    async def discard() -> None:
        for path in sorted(directory.rglob("*"), reverse=True):
            path.rmdir() if path.is_dir() else path.unlink()

    return before, discard


async def _books(options: StorageOptions, engine: Engine) -> Books:
    """Recounted. Closing the storage puts the newest ids where a copy finds them."""
    storage = await engine.open(options)
    try:
        if storage.registry is None:
            raise NotAllowed(storage.registry_problem)
        books = await storage.log.verify()
    finally:
        await storage.close()
    if books.imbalances:
        raise SpoolDamaged(f"the books do not balance: {books.imbalances[0]}")
    return books


def _compare(before: Books, after: Books) -> None:
    for name, one, other in (("topics", before.topics, after.topics), ("routes", before.routes, after.routes)):
        for key in sorted({*one, *other}):
            if _present(one.get(key, {})) != _present(other.get(key, {})):
                raise SpoolDamaged(f"the copy is not equal in its {name}: {key}. It is taken away again; report this")


def _present(terms: Mapping[str, int]) -> dict[str, int]:
    """A term that is 0 and one that is not there are the same."""
    return {term: n for term, n in terms.items() if n}
