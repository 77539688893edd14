"""Pulls against a provider that pages, makes one wait, and breaks off: each bucket counts once."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from decimal import Decimal
from pathlib import Path

import pytest
import pytest_asyncio
from aiohttp import web
from aiohttp.test_utils import TestServer

from gateway.assembly.statements import statement_puller
from gateway.configuration.sections import PULLED_SOURCES, Config, ReconciliationSettings, StatementPullSettings
from gateway.statements.pull_requests import PULL_REQUESTS
from gateway.statements.puller import StatementPuller
from gateway.statements.sources.list import SOURCES
from spool.engines import MEMORY, open_storage
from spool.errors import NotThere
from spool.settings import SpoolSettings
from spool.statements.rules import billed, day_of
from spool.statements.values import DAY_S
from spool.storage import Storage, StorageOptions
from tests.moved_clock import MovedClock

pytestmark = pytest.mark.asyncio

KEY = "sk-admin-0123456789abcdef"
DAYS, PAGE_DAYS = 10, 4


class Provider:
    """OpenAI's costs, four days a page, a dollar a day. `faults` are answered in place of pages, in their order."""

    def __init__(self, clock: MovedClock) -> None:
        self.clock = clock
        self.asked: list[str] = []
        self.faults: dict[int, web.Response] = {}  # by the number of the request
        self.hang_at = 0
        self.hung = asyncio.Event()
        self.amount = "1"

    async def answer(self, request: web.Request) -> web.Response:
        assert request.headers["Authorization"] == f"Bearer {KEY}"
        self.asked.append(request.query.get("page", ""))
        if len(self.asked) == self.hang_at:
            self.hung.set()
            await asyncio.Event().wait()
        if (fault := self.faults.get(len(self.asked))) is not None:
            return fault
        start, end = int(request.query["start_time"]), int(request.query["end_time"])
        first = start + int(request.query.get("page", 0)) * DAY_S
        last = min(end, first + PAGE_DAYS * DAY_S)
        buckets = [self.bucket(day) for day in range(first, last, DAY_S)]
        following = f'"{(last - start) // DAY_S}"' if last < end else "null"
        more = "true" if last < end else "false"
        body = f'{{"object":"page","data":[{",".join(buckets)}],"has_more":{more},"next_page":{following}}}'
        return web.Response(text=body, content_type="application/json")

    def bucket(self, day: int) -> str:
        result = f'{{"object":"organization.costs.result","amount":{{"value":{self.amount},"currency":"usd"}}}}'
        return f'{{"object":"bucket","start_time":{day},"end_time":{day + DAY_S},"results":[{result}]}}'


class House:
    """One storage, and a provider; a puller can be made anew as after a restart."""

    def __init__(
        self, provider: Provider, storage: Storage, clock: MovedClock, config: Config, stack: AsyncExitStack
    ) -> None:
        self.provider, self.storage, self.clock, self.config, self.stack = provider, storage, clock, config, stack
        self.slept: list[float] = []

    def puller(self) -> StatementPuller:
        async def sleep(seconds: float) -> None:
            self.slept.append(seconds)

        found = statement_puller(self.storage, self.clock, lambda: self.config, self.stack, sleep=sleep)
        assert found is not None
        return found

    async def billed(self) -> Decimal:
        assert self.storage.registry is not None
        return billed(await self.storage.registry.statements.rows(provider="openai", start=0, end=2**40))


@pytest_asyncio.fixture
async def house(tmp_path: Path) -> AsyncIterator[House]:
    clock = MovedClock()
    provider = Provider(clock)
    app = web.Application()
    app.router.add_get("/v1/organization/costs", provider.answer)
    key = tmp_path / "key"
    key.write_text(KEY)
    async with AsyncExitStack() as stack:
        server = TestServer(app)
        await server.start_server()
        stack.push_async_callback(server.close)
        options = StorageOptions(settings=SpoolSettings(hold=0), clock=clock, directory=tmp_path)
        storage = await open_storage(options, engine=MEMORY)
        stack.push_async_callback(storage.close)
        pull = StatementPullSettings(
            name="costs", source="openai_costs", key_file=key, base_url=f"{server.make_url('/v1')}", days=DAYS
        )
        config = Config(reconciliation=ReconciliationSettings(pull=(pull,)))
        yield House(provider, storage, clock, config, stack)


async def test_all_pages_are_pulled(house: House) -> None:
    """The days that have passed, each once; the next pull asks again and adds nothing."""
    puller = house.puller()
    await puller.pull("costs")
    assert (["", "4", "8"], Decimal(DAYS)) == (house.provider.asked, await house.billed())
    [state] = await puller.states()
    assert ("done", "", house.clock.now()) == (state.state, state.reason, state.last_success)
    house.provider.amount = "1.25"
    await puller.pull("costs")
    assert Decimal("12.5") == await house.billed()


async def test_a_pull_that_was_killed_goes_on(house: House) -> None:
    """It asks from the page on that it had not kept, and every bucket counts once."""
    house.provider.hang_at = 2
    pulling = asyncio.create_task(house.puller().pull("costs"))
    await house.provider.hung.wait()
    pulling.cancel()
    await asyncio.gather(pulling, return_exceptions=True)
    assert Decimal(PAGE_DAYS) == await house.billed()
    await house.puller().pull("costs")
    assert (["", "4", "4", "8"], Decimal(DAYS)) == (house.provider.asked, await house.billed())


async def test_a_rate_limit_is_kept_to(house: House) -> None:
    """A short wait within the pull; a long one ends it, and it goes on where it was."""
    house.provider.faults = {
        2: web.Response(status=429, headers={"Retry-After": "7"}),
        4: web.Response(status=429, headers={"Retry-After": "3600"}),
    }
    puller = house.puller()
    await puller.pull("costs")
    [state] = await puller.states()
    assert ([7.0], "failed", house.clock.now() + 3600) == (house.slept, state.state, state.next_at)
    assert Decimal(8) == await house.billed()
    await puller.pull_due()
    assert 4 == len(house.provider.asked)
    house.clock.move(3600)
    await puller.pull_due()
    assert (["", "4", "4", "8", "8"], Decimal(DAYS)) == (house.provider.asked, await house.billed())


async def test_a_cursor_that_has_ended_is_given_up(house: House) -> None:
    """The next pull begins at the first page, and every bucket counts once."""
    house.provider.faults = {2: web.Response(status=400, text="the cursor belongs to another query")}
    puller = house.puller()
    await puller.pull("costs")
    await puller.pull("costs")
    assert (["", "4", "", "4", "8"], Decimal(DAYS)) == (house.provider.asked, await house.billed())


@pytest.mark.parametrize(
    ("status", "text", "words"),
    [
        (401, json.dumps({"error": {"message": f"wrong key {KEY}"}}), "401 wrong key [key]; is it an admin key?"),
        (200, "[]", "no page"),
        (200, "nothing", "no JSON"),
        (200, '{"data": 5}', "no report"),
    ],
)
async def test_a_failure_is_told(house: House, status: int, text: str, words: str) -> None:
    """With the provider's words, without the key; what was kept stays, and the pull is tried again later."""
    puller = house.puller()
    await puller.pull("costs")
    house.provider.faults = {4: web.Response(status=status, text=text, content_type="application/json")}
    await puller.pull("costs")
    [state] = await puller.states()
    assert state.state == "failed"
    assert words in state.reason
    assert KEY not in state.reason
    assert state.next_at is not None
    assert state.next_at > house.clock.now()
    assert Decimal(DAYS) == await house.billed()


async def test_a_day_settles_when_it_is_pulled_later(house: House) -> None:
    """The newest days are open, because the provider may restate them."""
    assert house.storage.registry is not None
    statements = house.storage.registry.statements
    await house.puller().pull("costs")
    end = day_of(int(house.clock.now()))
    found = await statements.statements()
    assert [(end - DAYS * DAY_S, True), (end - 2 * DAY_S, False)] == [(each.start, each.settled) for each in found]
    house.clock.move(2 * DAY_S)
    await house.puller().pull("costs")
    assert (end, False) in [(each.start, each.settled) for each in await statements.statements()]


async def test_every_pull_that_can_be_configured_is_known(house: House) -> None:
    """The settings and the requests name the same sources."""
    assert set(PULLED_SOURCES) == set(PULL_REQUESTS) <= set(SOURCES)


async def test_an_unknown_pull_is_refused(house: House) -> None:
    """And one whose key cannot be read says so."""
    with pytest.raises(NotThere):
        await house.puller().pull("other")
    pull = house.config.reconciliation.pull[0]
    assert pull.key_file is not None
    pull.key_file.unlink()
    puller = house.puller()
    await puller.pull("costs")
    [state] = await puller.states()
    assert "key_file" in state.reason
