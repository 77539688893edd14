"""The final cost of a call, learnt by its id after the fact: in time it is that of the record, else it is counted."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio
from aiohttp import web
from aiohttp.test_utils import TestServer

from gateway.assembly.final_costs import final_cost_puller
from gateway.assembly.storage import open_storage
from gateway.configuration.sections import Config, FinalCostSettings, SellerSettings
from gateway.final_costs import puller as module
from gateway.final_costs import waiting
from gateway.final_costs.puller import FinalCostPuller, SellerState
from gateway.intake.prices import PriceBook
from spool.engines import POSTGRES, SQLITE
from spool.identity import of_call
from spool.record import AI_TELEMETRY, NS, Inference, as_json
from spool.settings import SpoolSettings
from spool.storage import Storage
from tests.gateway.normalise.otlp.payloads import in_json, span, traces
from tests.integration.conftest import Serve
from tests.integration.final_costs.seller import KEY, MadeUpSeller, generation
from tests.moved_clock import MovedClock
from tests.spool.contract.examples import assert_books_balance, submission
from tests.spool.postgres_cluster import Schema

pytestmark = pytest.mark.asyncio

OPENROUTER, VERCEL = "openrouter", "vercel_ai_gateway"
ID = "gen-1790000000-AbCdEfGhIjKlMnOpQrSt"
VERCEL_ID = "gen_01K5ZNDEKTSV4RRFFQ69G5FAV0"


def call(id: str, clock: MovedClock, **fields: Any) -> Inference:
    start = int(clock.now() * NS)
    told = {"source": "openrouter", "input_tokens": 100, "output_tokens": 10, **fields}
    return Inference(id=b"", request_id=id, start_time=start, request_model="openai/gpt-6-sol", **told)


class Installation:
    """A storage, the two sellers, and who asks them; looks are taken by hand."""

    def __init__(self, storage: Storage, clock: MovedClock, config: Config, stack: AsyncExitStack) -> None:
        self.storage, self.clock, self.config, self._stack = storage, clock, config, stack
        self.sellers = {name: MadeUpSeller() for name in (OPENROUTER, VERCEL)}
        self.puller = self.another()

    @property
    def openrouter(self) -> MadeUpSeller:
        return self.sellers[OPENROUTER]

    def another(self) -> FinalCostPuller:
        """As after a restart."""
        assert self.storage.registry is not None
        table = self.storage.registry.statements
        return final_cost_puller(
            self.storage.log,
            table,
            self.clock,
            lambda: self.config,
            self._stack,
            PriceBook.load,
            sleep=self._sleep,
        )

    async def _sleep(self, seconds: float) -> None:
        assert 0 < seconds <= 1

    def set(self, **changes: Any) -> None:
        self.config = replace(self.config, final_costs=replace(self.config.final_costs, **changes))

    async def tell(self, *records: Inference) -> None:
        found = []
        for record in records:
            known_as = of_call(record, response_id=record.request_id)
            record.id = known_as.id
            found.append((record, known_as))
        await self.storage.log.append(submission(found))

    async def look(self, *after_s: float) -> None:
        """Let time pass, then look; again for each."""
        for seconds in after_s or (0.0,):
            self.clock.move(seconds)
            await self.puller.look()

    async def records(self) -> list[Inference]:
        entries = await self.storage.log.read(AI_TELEMETRY, 1, 1000, with_open=True)
        return [record for entry in entries for record in entry.records if isinstance(record, Inference)]

    async def state(self, name: str = OPENROUTER) -> SellerState:
        return next(state for state in await self.puller.states() if state.name == name)

    async def terms(self) -> tuple[int, int]:
        """How many reports amended a record, and how many came too late for that."""
        await assert_books_balance(self.storage.log)
        books = (await self.storage.log.books()).topics[AI_TELEMETRY]
        return books.get("amended", 0), books.get("amended_late", 0)


on_every_engine = pytest.mark.parametrize("installation", [SQLITE, POSTGRES], indirect=True)


@pytest_asyncio.fixture
async def installation(
    request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[Installation]:
    monkeypatch.setattr(module, "KEEP_EVERY_S", 0.0)
    clock, key = MovedClock(), tmp_path / "key"
    key.write_text(KEY)
    config = Config(data_dir=tmp_path / "data", spool=SpoolSettings(hold=10))
    if getattr(request, "param", SQLITE) == POSTGRES:
        schema: Schema = request.getfixturevalue("new_schema")()
        config = replace(config, storage=schema.settings(tmp_path))
    async with AsyncExitStack() as stack:
        storage = await stack.enter_async_context(open_storage(config, clock=clock))
        found = Installation(storage, clock, config, stack)
        sellers = []
        for name, seller in found.sellers.items():
            server = TestServer(seller.application())
            await server.start_server()
            stack.push_async_callback(server.close)
            sellers.append(SellerSettings(name=name, key_file=key, base_url=str(server.make_url("/v1"))))
        found.set(seller=tuple(sellers))
        await found.look()
        yield found


@on_every_engine
async def test_a_cost_that_is_known_in_time_is_that_of_the_record(installation: Installation) -> None:
    """It is asked for once, and neither the owner nor the counts that the record has are changed."""
    await installation.tell(call(ID, installation.clock, user="ada"))
    installation.openrouter.known[ID] = generation(ID)
    await installation.look(0, 3.9)
    assert [] == installation.openrouter.asked
    await installation.look(0.1, 0, 60, 300)
    assert [ID] == installation.openrouter.asked
    (record,) = await installation.records()
    assert ("0.0015", "reported", "ada", None, {}, 100) == (
        record.cost, record.cost_source, record.user, record.team, record.tags, record.input_tokens,
    )  # fmt: skip
    assert (1, 0) == await installation.terms()
    state = await installation.state()
    assert (1, 0, 0, "running") == (state.in_time, state.late, state.waiting, state.state)


async def test_a_call_that_told_nothing_learns_what_it_used(installation: Installation) -> None:
    """Its client went away: what was made is billed all the same, and priced."""
    await installation.tell(
        call(
            ID,
            installation.clock,
            input_tokens=None,
            output_tokens=None,
            status="error",
            error_type="cancelled",
        )
    )
    installation.openrouter.known[ID] = generation(
        ID, cancelled=True, is_byok=True, upstream_inference_cost=0.002
    )
    await installation.look(0, 4)
    (record,) = await installation.records()
    assert ("0.002", 100, 10, "error", {"byok": "true"}) == (
        record.cost, record.input_tokens, record.output_tokens, record.status, record.tags,
    )  # fmt: skip


@on_every_engine
async def test_a_cost_that_comes_late_is_a_correction(installation: Installation) -> None:
    """What is closed stays; the correction has the difference to the estimate."""
    await installation.tell(call(ID, installation.clock, estimated_cost="0.001", cost_source="estimated"))
    await installation.look(0, 4, 4)
    assert [ID, ID] == installation.openrouter.asked
    installation.openrouter.known[ID] = generation(ID)
    await installation.look(21.9, 0.1, 300, 3600)
    assert [ID] * 3 == installation.openrouter.asked
    (record,) = await installation.records()
    assert (None, "0.001") == (record.cost, record.estimated_cost)
    entries = await installation.storage.log.read(AI_TELEMETRY, 2, 2, with_open=True)
    [correction] = [as_json(each) for entry in entries for each in entry.records if each is not None]
    assert ("final_cost", "0.0005", record.id.hex()) == tuple(
        correction[name] for name in ("reason", "cost", "corrects")
    )
    assert (0, 0) == await installation.terms()
    state = await installation.state()
    assert (0, 1, "0.0015", "0.001", 0) == (
        state.in_time, state.late, state.late_cost, state.late_estimate, state.waiting,
    )  # fmt: skip


async def test_a_call_that_is_not_known_there_is_given_up(installation: Installation) -> None:
    """After a day."""
    await installation.tell(call(ID, installation.clock))
    await installation.look(0, 4, 4, 22, 270, 3300, 82_800, 90_000)
    assert [ID] * 6 == installation.openrouter.asked
    state = await installation.state()
    assert (1, 0) == (state.unanswered, state.waiting)


async def test_nobody_is_asked_for_calls_of_others(installation: Installation) -> None:
    """Neither by the form of the id nor by who told it; nor for what is known or costs nothing."""
    clock, others = installation.clock, {"source": "otel", "provider": "anthropic"}
    await installation.tell(
        call("chatcmpl-0123456789abcdef0123", clock),
        call("msg_01AbCdEfGhIjKlMnOpQrStUv", clock, **others),
        call("gen-1790000000-OfSomebodyElse000", clock, **others),
        call("gen-1790000000-WithOpenAIsClient0", clock, source="otel", provider="openai"),
        call("gen_01K5ZNDEKTSV4RRFFQ69G5FAV9", clock, **others),
        call("gen-1790000000-WithItsCost000000", clock, cost="0.1"),
        call("gen-1790000000-FromACache0000000", clock, status="cached"),
        call("gen-1790000000-OfNoAccount00000", clock, shadow=True),
        call(VERCEL_ID, clock, source="vercel_ai", provider="openai"),
    )
    await installation.look(0, 4)
    assert {OPENROUTER: [], VERCEL: [VERCEL_ID]} == {
        name: one.asked for name, one in installation.sellers.items()
    }


async def test_clients_of_another_provider_may_call_through_a_seller(installation: Installation) -> None:
    """OpenAI's client states OpenAI, whatever address it is given: who set it up can say so."""
    openrouter, vercel = installation.config.final_costs.seller
    installation.set(seller=(replace(openrouter, providers=("openai",)), vercel))
    told = {"source": "otel", "provider": "openai"}
    await installation.tell(
        call(ID, installation.clock, **told),
        call("chatcmpl-0123456789abcdef0123", installation.clock, **told),
    )
    await installation.look(0, 4)
    assert [ID] == installation.openrouter.asked


@on_every_engine
async def test_a_restart_goes_on_where_it_was(installation: Installation) -> None:
    """Calls that came meanwhile are asked for, and no call from the beginning again."""
    clock, second = installation.clock, "gen-1790000001-AbCdEfGhIjKlMnOpQrSt"
    await installation.tell(call(ID, clock))
    await installation.look(0, 4, 4)
    installation.puller = installation.another()
    assert 1 == (await installation.state()).waiting
    await installation.tell(call(second, clock))
    await installation.look(0)
    assert [ID] * 2 == installation.openrouter.asked
    installation.openrouter.known = {ID: generation(ID), second: generation(second)}
    await installation.look(4)
    assert [ID, ID, second] == installation.openrouter.asked
    await installation.look(18)
    assert [ID, ID, second, ID] == installation.openrouter.asked
    state = await installation.state()
    assert (1, 1, 0) == (state.in_time, state.late, state.waiting)


@on_every_engine
async def test_an_orderly_stop_keeps_what_was_asked(
    installation: Installation, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever was asked since it was last kept: no call is asked for once more, and each answer is counted."""
    await installation.tell(call(ID, installation.clock))
    installation.openrouter.known = {ID: generation(ID)}
    await installation.look(0)
    monkeypatch.setattr(module, "KEEP_EVERY_S", 10.0)
    installation.clock.move(4)
    running = asyncio.create_task(installation.puller.run())
    while not (await installation.state()).in_time:  # noqa: ASYNC110 - as an operator looks
        await asyncio.sleep(0.01)
    running.cancel()
    await asyncio.wait([running])
    assert running.cancelled()
    installation.puller = installation.another()
    state = await installation.state()
    assert (1, 0) == (state.in_time, state.waiting)
    await installation.look(8)
    assert [ID] == installation.openrouter.asked


async def test_a_seller_that_refuses_is_left_alone_for_a_time(
    installation: Installation, caplog: pytest.LogCaptureFixture
) -> None:
    """The other one is asked meanwhile; nobody is shown the key, though the answer holds it."""
    caplog.set_level(logging.DEBUG)
    path = installation.config.final_costs.seller[0].key_file
    assert path is not None
    path.write_text(f"{KEY}-of-nobody")
    await installation.tell(call(ID, installation.clock))
    await installation.look(0, 4)
    state = await installation.state()
    assert ("paused", 1) == (state.state, state.waiting)
    assert "401" in state.reason
    path.write_text(KEY)
    await installation.tell(call(VERCEL_ID, installation.clock, source="vercel_ai"))
    await installation.look(0, 4)
    assert ([], [VERCEL_ID]) == (installation.openrouter.asked, installation.sellers[VERCEL].asked)
    await installation.look(module.RETRY_S)
    assert [ID] == installation.openrouter.asked
    assert "running" == (await installation.state()).state
    assert KEY not in caplog.text + str(state)


async def test_a_seller_says_when_to_ask_again(installation: Installation) -> None:
    """At most a day later; the call is not lost."""
    await installation.tell(call(ID, installation.clock))
    installation.openrouter.fault = web.Response(status=429, headers={"Retry-After": "120"})
    await installation.look(0, 4, 4, 115)
    assert [ID] == installation.openrouter.asked
    await installation.look(1.1)
    assert [ID] * 2 == installation.openrouter.asked


@pytest.mark.parametrize(
    "answer",
    [
        generation("gen-1790000000-AnotherCall0000000"),
        generation(ID, total_cost=None),
        generation(ID, total_cost=-1),
        {"data": []},
    ],
    ids=["another call", "no cost yet", "no cost that can be", "no answer"],
)
async def test_an_answer_that_tells_nothing_of_the_call_is_left_out(
    installation: Installation, answer: dict[str, Any]
) -> None:
    """The call is asked for again."""
    await installation.tell(call(ID, installation.clock))
    installation.openrouter.known[ID] = answer
    await installation.look(0, 4)
    assert None is (await installation.records())[0].cost
    installation.openrouter.known[ID] = generation(ID)
    await installation.look(4)
    assert "0.0015" == (await installation.records())[0].cost


async def test_the_limits_at_their_edge(installation: Installation) -> None:
    """One more than may wait is left out; of those that wait, so many are asked for in a look, the newest first."""
    installation.set(max_waiting=3, per_second=2)
    ids = [f"gen-179000000{number}-AbCdEfGhIjKlMnOpQrSt" for number in range(4)]
    for id in ids:
        await installation.tell(call(id, installation.clock))
        await installation.look(0)
    assert (3, 1) == ((await installation.state()).waiting, (await installation.state()).left_out)
    await installation.look(4)
    assert [ids[2], ids[1]] == installation.openrouter.asked
    await installation.look(0)
    assert [ids[2], ids[1], ids[0]] == installation.openrouter.asked


@pytest.mark.parametrize(("bytes", "is_taken"), [(2048, True), (2049, False)])
async def test_an_answer_that_is_too_large(installation: Installation, bytes: int, is_taken: bool) -> None:
    """What to set is said."""
    installation.set(max_answer_bytes=2048)
    await installation.tell(call(ID, installation.clock))
    installation.openrouter.known[ID], installation.openrouter.padding = generation(ID), bytes
    await installation.look(0, 4)
    state = await installation.state()
    assert is_taken == ((await installation.records())[0].cost == "0.0015") == (state.state == "running")
    assert is_taken or "final_costs.max_answer_bytes" in state.reason


async def test_a_seller_that_does_not_answer(installation: Installation) -> None:
    """It is asked again some seconds later, in time."""
    installation.set(timeout=0.05)
    await installation.tell(call(ID, installation.clock))
    installation.openrouter.known[ID], installation.openrouter.is_silent = generation(ID), True
    await installation.look(0, 4)
    state = await installation.state()
    assert ("paused", "no answer within 0.05 s (final_costs.timeout)") == (state.state, state.reason)
    installation.openrouter.is_silent = False
    installation.set(timeout=10.0)
    await installation.look(5)
    assert "0.0015" == (await installation.records())[0].cost


async def test_what_is_older_than_a_day_is_not_asked_for(installation: Installation) -> None:
    """Whoever was away for longer has missed it."""
    await installation.tell(call(ID, installation.clock))
    installation.clock.move(86_401)
    await installation.look(0, 4)
    assert [] == installation.openrouter.asked


async def test_what_came_before_the_first_start_is_not_asked_for(installation: Installation) -> None:
    """Its record is closed."""
    registry = installation.storage.registry
    assert registry is not None
    await registry.statements.keep_pull_state(module.KEPT_AS, {})
    await installation.tell(call(ID, installation.clock))
    installation.puller = installation.another()
    await installation.look(0, 4)
    assert [] == installation.openrouter.asked


async def test_what_came_between_ready_and_the_first_look_is_asked_for(installation: Installation) -> None:
    """At the very first start, too: the first look goes back to what was there when the server was ready."""
    registry = installation.storage.registry
    assert registry is not None
    await registry.statements.keep_pull_state(module.KEPT_AS, {})
    await installation.tell(call(ID, installation.clock))
    installation.puller = installation.another()
    installation.puller.ready_at = await installation.storage.log.newest_number(AI_TELEMETRY)
    installation.clock.move(5)
    later = ID[:-1] + "u"
    await installation.tell(call(later, installation.clock))
    await installation.look(20, 4)
    assert [later] == installation.openrouter.asked


async def test_a_server_asks_by_itself(
    serve: Serve, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """From the telemetry of a client to the cost on record; the operator sees whom it asked."""
    caplog.set_level(logging.DEBUG)
    monkeypatch.setattr(waiting, "DELAYS_S", (0.0, *waiting.DELAYS_S[1:]))
    monkeypatch.setattr(module, "LOOK_EVERY_S", 0.02)
    key = tmp_path / "key"
    key.write_text(KEY)
    seller = MadeUpSeller()
    seller.known[ID] = generation(ID)
    async with TestServer(seller.application()) as server:
        settings = SellerSettings(name=OPENROUTER, key_file=key, base_url=str(server.make_url("/v1/")))
        spool, final_costs = SpoolSettings(hold=600, counter_wait=0), FinalCostSettings(seller=(settings,))
        serving = await serve(config=Config(spool=spool, final_costs=final_costs))
        puller = serving.app.services.operators.money.final_costs
        assert puller is not None
        told = span(1, {
            "gen_ai.operation.name": "chat", "gen_ai.provider.name": "openrouter", "gen_ai.response.id": ID,
            "gen_ai.request.model": "openai/gpt-6-sol", "gen_ai.usage.input_tokens": 100,
        }, start=int(time.time()) * NS)  # fmt: skip
        assert 200 == (await serving.send("/v1/traces", in_json(traces(told)))).status
        log = serving.app.services.storage.log
        async with asyncio.timeout(600):
            while not (await puller().states())[0].in_time:  # noqa: ASYNC110 - as an operator looks
                await asyncio.sleep(0.02)
        ((entry),) = await log.read(AI_TELEMETRY, 1, 1, with_open=True)
        assert ["0.0015"] == [record.cost for record in entry.records if isinstance(record, Inference)]
    assert [ID] == seller.asked
    assert KEY not in caplog.text
