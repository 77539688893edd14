"""
Late reports have brought an erased name back, so the second pass of an erasure renames records and has the totals
counted again, whatever else happens to the totals meanwhile.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import replace
from typing import Any

import pytest

from gateway.devices.states import device_revoker
from spool.engines import open_storage
from spool.erasing import AGAIN_AFTER_S, continue_due_erasures
from spool.people import ERASED
from spool.storage import Storage, StorageOptions
from tests.moved_clock import MovedClock
from tests.spool.contract.test_erasing import store, use_people
from tests.spool.contract.test_erasure_clocks import HOUR_S, NAME, calls_by_user, erase, made, send
from tests.spool.ledger.engines import POSTGRES

Gateways = tuple[Storage, Storage]


@pytest.fixture
async def gateways(options: StorageOptions, clock: MovedClock) -> AsyncIterator[Gateways]:
    """
    Return two gateways on one storage, or one gateway twice on an engine that only one process opens. A late report
    has brought the name of an erased person back, and the second pass of the erasure is due.
    """
    first = await open_storage(options, engine=options.storage.engine)
    is_shared = options.storage.engine == POSTGRES
    second = await open_storage(options, engine=options.storage.engine) if is_shared else first
    try:
        for storage in {first, second}:
            use_people(storage)
        await send(first, made(1, clock.now() - HOUR_S))
        await erase(first, clock)
        await store(first, [made(2, clock.now() - HOUR_S)])
        clock.move(AGAIN_AFTER_S + 1)
        await send(first, made(3, clock.now()))
        assert {ERASED: 1, NAME: 2} == await calls_by_user(first)
        yield first, second
    finally:
        for storage in {first, second}:
            await storage.close()


async def continue_erasure(storage: Storage, clock: MovedClock) -> list[str]:
    """Continue the erasure, and return the reasons why it failed."""
    assert 1 == await continue_due_erasures(storage, clock, device_revoker(""))
    return [each.reason for each in storage.failed_items.all()]


async def assert_finished(storage: Storage, clock: MovedClock) -> None:
    """The call of the new person alone has the name, and no erasure is due."""
    assert {ERASED: 2, NAME: 1} == await calls_by_user(storage)
    assert 0 == await continue_due_erasures(storage, clock, device_revoker(""))


@pytest.mark.parametrize("options", [POSTGRES], indirect=True)
async def test_records_that_another_gateway_counts_before_the_renaming(
    gateways: Gateways, clock: MovedClock
) -> None:
    """Another gateway counts all records with their old names, just before they are renamed. No name comes back."""
    first, second = gateways
    rename = first.rename_records

    async def rename_after_a_count(*arguments: Any, **options: Any) -> Any:
        await second.ledger.catch_up(second.log)
        return await rename(*arguments, **options)

    assert [] == await continue_erasure(replace(first, rename_records=rename_after_a_count), clock)
    await assert_finished(first, clock)


@pytest.mark.one_engine
async def test_a_refused_rebuild_is_repeated(
    gateways: Gateways, clock: MovedClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """
    An operator has begun another rebuild, so that the one of the erasure is refused. Its records are renamed already.
    The erasure stays due until the totals were counted again.
    """
    first, second = gateways
    rebuild = first.ledger.rebuild

    async def rebuild_after_another(log: Any, *arguments: Any) -> Any:
        monkeypatch.setattr(first.ledger, "rebuild", rebuild)
        await second.ledger.rebuild(second.log)
        return await rebuild(log, *arguments)

    monkeypatch.setattr(first.ledger, "rebuild", rebuild_after_another)
    assert ["a rebuild of the totals is still running"] == await continue_erasure(first, clock)
    assert [] == await continue_erasure(first, clock)
    await assert_finished(first, clock)


@pytest.mark.one_engine
async def test_an_interruption_between_records_and_totals(gateways: Gateways, clock: MovedClock) -> None:
    """
    The second pass fails after the records were renamed, and before the totals were counted again. It is repeated,
    although no record has the name anymore.
    """
    first, _ = gateways
    rename = first.rename_records

    async def rename_and_fail(*arguments: Any, **options: Any) -> Any:
        renamed = await rename(*arguments, **options)
        if not options.get("is_trial"):
            raise OSError("the disk is full")
        return renamed

    failing = replace(first, rename_records=rename_and_fail)
    assert ["the disk is full"] == await continue_erasure(failing, clock)
    assert [] == await continue_erasure(first, clock)
    await assert_finished(first, clock)
