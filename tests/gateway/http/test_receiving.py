"""Slots for receiving gRPC messages: limited in total and per key, and always released."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack

import pytest

from gateway.core.errors import Refusal
from gateway.http.pending_requests import ReceivingSlots
from tests.waiting import awaited


async def test_a_key_has_no_more_slots_than_it_leaves_free() -> None:
    """
    A key's third request and another key's second request get no slot, because a key may use only as many
    slots as it leaves free. So a third key still finds a slot.
    """
    slots = ReceivingSlots(4, wait_s=0.01)
    async with AsyncExitStack() as held:
        for key in ("a", "a", "b"):
            await held.enter_async_context(slots.hold_slot(key))
        for key in ("a", "b"):
            with pytest.raises(Refusal) as refused:
                await held.enter_async_context(slots.hold_slot(key))
            assert refused.value.status == 503
            assert refused.value.retry_after_s == 1
        await held.enter_async_context(slots.hold_slot("c"))
        with pytest.raises(Refusal):
            await held.enter_async_context(slots.hold_slot("d"))
        assert 4 == slots.count
    assert 0 == slots.count


async def test_released_slot_is_given_to_a_waiting_request() -> None:
    """A slot goes to a waiting request when its holder gives it back or is cancelled."""
    slots = ReceivingSlots(2, wait_s=30)
    began = asyncio.Event()

    async def hold() -> None:
        async with slots.hold_slot("a"):
            began.set()
            await asyncio.Event().wait()

    holder = asyncio.create_task(hold())
    await began.wait()
    slot = slots.hold_slot("a")
    waiting = asyncio.create_task(slot.__aenter__())
    await asyncio.sleep(0)
    assert not waiting.done()
    holder.cancel()
    await awaited(waiting)
    assert 1 == slots.count
