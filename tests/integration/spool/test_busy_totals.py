"""The totals may be busy for long, for example with units of work that are no longer listed. Senders do not wait."""

from __future__ import annotations

import asyncio
import threading

from tests.integration.conftest import Serving
from tests.integration.payloads import json_span, json_traces


async def test_records_are_acknowledged_while_the_totals_are_written(serving: Serving) -> None:
    ledger = serving.app.services.operators.money.ledger
    begun, is_over = threading.Event(), threading.Event()

    def work(rows: object) -> None:
        begun.set()
        assert is_over.wait(120)

    async def hold() -> None:
        async with ledger._turn:
            await ledger._change_rows(work)

    held = asyncio.create_task(hold())
    try:
        assert await asyncio.to_thread(begun.wait, 60)
        for number in range(20):
            answer = await serving.send("/v1/traces", json_traces(json_span(f"gpt-{number}")))
            assert 200 == answer.status
        assert not held.done()
    finally:
        is_over.set()
        await held
