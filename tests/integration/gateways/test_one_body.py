"""Two gateways receive two bodies under one idempotency key at the same moment, and store only one."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.integration.conftest import Serve
from tests.integration.gateways.test_idempotency import DOORS, KEY, counts, everything, sender
from tests.integration.test_two_gateways import shared_config
from tests.rounds import part
from tests.spool.postgres_cluster import Schema


@pytest.mark.proves("one idempotency key, two bodies")
@pytest.mark.parametrize("door", part(["billing drop", "unit cost", "usage event"], every=3))
async def test_one_of_two_bodies_under_one_key_is_stored(
    new_schema: Callable[[], Schema], serve: Serve, tmp_path: Path, door: str
) -> None:
    """
    If two gateways receive two bodies under one key, one body is stored. Both gateways refuse the other body,
    and answer a repeat of the first alike.
    """
    path, first, [other, *_] = DOORS[door]
    schema = new_schema()
    config = shared_config(schema.dsn, schema.name, tmp_path)
    one = await serve(config=config)
    key = await sender(one)
    # The second gateway knows the key, because it reads all keys at its start.
    gateways = [one, await serve(config=config, key_name="other sender")]
    sent = [
        gateways[n % 2].send(path, body, key=key, headers=KEY) for n, body in enumerate([first, other] * 3)
    ]
    answers = await asyncio.gather(*sent)
    assert {200, 422} == {answer.status for answer in answers}
    taken = next(answer for answer in answers if answer.status == 200)
    kept, lost = (first, other) if answers[0].status == 200 else (other, first)
    there = await everything(gateways[0])
    for gateway in gateways:
        assert counts(taken) == counts(await gateway.send(path, kept, key=key, headers=KEY))
        assert 422 == (await gateway.send(path, lost, key=key, headers=KEY)).status
        assert there == await everything(gateway)
