"""
Copying of a storage into an empty one, perhaps of another engine.

The accounting of both is recounted, and if they differ, the copy is deleted. No server can use the copy
before that. After a kill, the next run starts again.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from spool.errors import NotAllowed, SpoolDamaged
from spool.record import TOPICS
from spool.storage import StorageEngine, StorageOptions
from spool.transfer.tables import OpenTables, Progress, no_progress

Terms = Mapping[str, Mapping[str, int]]


@dataclass(frozen=True, kw_only=True)
class CopiedStorage:
    """The counts that must be equal in both storages: accounting terms, and next record numbers."""

    topics: Terms
    routes: Terms
    numbers: Mapping[str, int]


async def copy_storage(
    source: StorageOptions,
    source_engine: StorageEngine,
    target: StorageOptions,
    target_engine: StorageEngine,
    progress: Progress = no_progress,
) -> CopiedStorage:
    """
    Copy a storage. No server may have either storage open.

    Raises NotAllowed with what to do, or SpoolDamaged if the accounting of the source does not balance or the
    copy differs.
    """
    if source_engine.tables is None:
        raise NotAllowed("this storage engine has no data that can be copied")
    opened = await source_engine.tables(source)
    progress("recounting the source", 0)
    before = await recount_storage(source, source_engine)
    return await fill_and_compare_storage(opened, before, target, target_engine, progress)


async def fill_and_compare_storage(
    open_tables: OpenTables,
    before: CopiedStorage,
    target: StorageOptions,
    engine: StorageEngine,
    progress: Progress,
) -> CopiedStorage:
    """Fill an empty storage from the opened tables, and recount it. `before`: the source's accounting."""
    if engine.take_over is None:
        raise NotAllowed("this storage engine cannot be filled from another storage")
    made_copy = await engine.take_over(target, open_tables, progress)
    try:
        progress("recounting the copy", 0)
        after = await recount_storage(replace(target, is_unfinished_copy=True), engine)
        _require_equal_accounting(before, after)
    except BaseException:
        await made_copy.discard()
        raise
    # if `finish` fails, the copy may be valid already
    await made_copy.finish()
    return after


async def recount_storage(options: StorageOptions, engine: StorageEngine) -> CopiedStorage:
    """
    Count the accounting of a storage again. No server may have it open. Raises SpoolDamaged if it does not
    balance.
    """
    storage = await engine.open(options)
    try:
        if storage.registry is None:
            raise NotAllowed(storage.registry_problem)
        books = await storage.log.verify()
        numbers = {topic: storage.log.next_number(topic) for topic in TOPICS}
    finally:
        await storage.close()
    if books.imbalances:
        raise SpoolDamaged(f"the accounting does not balance: {books.imbalances[0]}")
    return CopiedStorage(
        topics=_nonzero_counts(books.topics), routes=_nonzero_counts(books.routes), numbers=numbers
    )


def _require_equal_accounting(before: CopiedStorage, after: CopiedStorage) -> None:
    for name in ("topics", "routes", "numbers"):
        before_terms = getattr(before, name)
        after_terms = getattr(after, name)
        for key in sorted({*before_terms, *after_terms}):
            if before_terms.get(key) != after_terms.get(key):
                raise SpoolDamaged(
                    f"the copy differs from the source in {name}: {key}. The copy was deleted; please "
                    "report this"
                )


def _nonzero_counts(counts: Terms) -> Terms:
    """Return the accounting counts (terms) that are not 0, because a missing count means 0."""
    return {key: {term: n for term, n in of_key.items() if n} for key, of_key in counts.items()}
