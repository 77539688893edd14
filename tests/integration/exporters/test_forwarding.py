"""From the queue to the upstream over real sockets: the effect of each kind of answer on the data."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from itertools import count
from pathlib import Path
from typing import Any

import pytest
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceResponse
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceResponse

from exporters.destinations.catalogue import build_routes
from exporters.exporter import RouteConfig
from exporters.forwarder import RouteForwarder
from exporters.pace import Backoff
from exporters.redaction import LONGEST_WORDS
from exporters.settings import UpstreamKey, UpstreamSettings
from spool.clock import SystemClock
from spool.deliveries.values import PARKED, REFUSING, Delivery, RouteState
from spool.leases import SoleNode
from spool.record import Record
from spool.registry.scopes import SEND_AI_TELEMETRY
from tests.exporters.spools import ROUTE, Spooled, call, calls, counter, record_id, spooled
from tests.exporters.upstream import FakeUpstream, Received, Reply
from tests.waiting import limited, until

SECRET = "upstream-secret-1"
QUICK = Backoff(first_s=0.01, most_s=0.05)


@dataclass
class Site:
    """A queue that forwards to a fake upstream."""

    server: Spooled
    upstream: FakeUpstream
    secret_file: Path
    settings: UpstreamSettings
    backoff: Backoff = QUICK
    leases: SoleNode = field(default_factory=SoleNode)

    def configs(self, **changes: object) -> list[RouteConfig]:
        settings = replace(self.settings, **changes)  # type: ignore[arg-type]
        routes = build_routes(settings, [], clock=self.server.clock)
        return [replace(route, backoff=self.backoff) for route in routes]

    @asynccontextmanager
    async def forwarding(self, **changes: object) -> AsyncIterator[RouteForwarder]:
        routes = RouteForwarder(
            self.server.deliveries,
            self.server.log,
            self.server.clock,
            self.configs(**changes),
            leases=self.leases,
        )
        await routes.start()
        try:
            yield routes
        finally:
            await routes.stop()

    async def until(self, condition: Callable[[RouteState], bool]) -> RouteState:
        """Wait until the route's state satisfies the condition."""

        async def reached() -> RouteState | None:
            state = await self.server.state()
            return state if condition(state) else None

        state = await until(reached)
        assert state is not None
        return state

    async def until_settled(self) -> RouteState:
        return await self.until(lambda state: state.queued == 0)


@pytest.fixture
async def site(tmp_path: Path) -> AsyncIterator[Site]:
    secret_file = tmp_path / "telemetry.key"
    secret_file.write_text(SECRET)
    async with FakeUpstream() as upstream, spooled("sqlite", tmp_path / "data", SystemClock()) as server:
        settings = UpstreamSettings(
            base_url=upstream.url,
            timeout=30,
            keys=(UpstreamKey(name="telemetry", secret_file=secret_file, use_cases=(SEND_AI_TELEMETRY,)),),
        )
        yield Site(server, upstream, secret_file, settings)


def ids(records: Sequence[Record]) -> list[str]:
    return [record.id.hex() for record in records]


def refusing(*numbers: int, status: int = 400) -> Callable[[Received], Reply | None]:
    """Return a judge that refuses every request with one of these records."""
    bad = {record_id(n).hex() for n in numbers}
    body = b'{"error": {"type": "validation_error", "message": "no such model, said to upstream-secret-1"}}'

    def judge(request: Received) -> Reply | None:
        return Reply(status, body, "application/json") if bad & set(request.ids) else None

    return judge


async def test_a_delivery_that_is_too_large_is_split(site: Site) -> None:
    """A delivery over `batch_bytes`, measured before compression, is split. Every record is sent once."""
    records = calls(1, 400)
    await site.server.add(records)
    async with site.forwarding(batch_bytes=40_000, in_flight=1):
        await site.until_settled()
    assert sorted(ids(records)) == sorted(site.upstream.ids)
    assert {"gzip"} == {request.headers["content-encoding"] for request in site.upstream.requests}
    assert 4 == len(site.upstream.requests)
    assert max(len(request.body) for request in site.upstream.requests) <= 40_000


async def test_records_arrive_once_under_the_key(site: Site) -> None:
    """
    Every record is sent once, gzipped, with the bare key, and each delivery has its own idempotency key.
    The accounting balances.
    """
    records = calls(1, 2500)
    await site.server.add(records)
    async with site.forwarding():
        await site.until_settled()
    assert ids(records) == sorted(site.upstream.ids, key=ids(records).index)
    assert {("POST", "/v1/traces", SECRET, "gzip")} == {
        (request.method, request.path, request.headers["authorization"], request.headers["content-encoding"])
        for request in site.upstream.requests
    }
    assert len(site.upstream.requests) == len({request.key for request in site.upstream.requests})
    assert {"delivered": 2500} == await site.server.terms()
    assert [] == list((await site.server.log.books()).imbalances)


@pytest.mark.parametrize("poison", [1, 777, 1000])
async def test_one_poison_record_is_found_and_set_aside(site: Site, poison: int) -> None:
    """
    If one of 1,000 records is always refused, 999 arrive and this one is set aside, in at most 25 requests. The
    stored error quotes the upstream without the key.
    """
    await site.server.add(calls(1, 1000))
    site.upstream.judge = refusing(poison)
    async with site.forwarding():
        await site.until_settled()
        await site.until(lambda state: state.state == "running")
    assert len(site.upstream.requests) <= 25
    assert {record_id(n).hex() for n in range(1, 1001) if n != poison} == set(site.upstream.ids)
    assert 999 == len(site.upstream.ids)
    (letter,) = await site.server.deliveries.dead_letters()
    assert letter.number == poison
    assert letter.error == "400 no such model, said to [key]"
    assert letter.status == "400"
    assert {"delivered": 999, "dead": 1} == await site.server.terms()


async def test_single_refused_record_does_not_block_later_records(site: Site) -> None:
    """
    A single refused record may mean that the route is broken. When another record is accepted, the first one
    is set aside.
    """
    await site.server.add(calls(1, 1))
    site.upstream.judge = refusing(1)
    async with site.forwarding():
        await site.until(lambda state: state.state == "refusing")
        await site.upstream.until(lambda: len(site.upstream.requests) >= 4)
        assert [] == list(await site.server.deliveries.dead_letters())
        await site.server.add(calls(2, 3))
        await site.until_settled()
    assert ids(calls(2, 3)) == sorted(site.upstream.ids, key=ids(calls(2, 3)).index)
    assert {"delivered": 2, "dead": 1} == await site.server.terms()


async def test_nothing_is_set_aside_while_everything_is_refused(site: Site) -> None:
    """
    While everything is refused, the route reports that, stores everything, sends single records, and does not
    split its backlog.
    """
    await site.server.add(calls(1, 8000))
    site.upstream.judge = lambda request: Reply(400, b"no", "text/plain")
    async with site.forwarding():
        state = await site.until(lambda state: state.state == "refusing")
        assert "400 no" == state.reason
        before = len(site.upstream.requests)
        await site.upstream.until(lambda: len(site.upstream.requests) >= before + 60)
        assert [1] * 50 == [len(request.ids) for request in site.upstream.requests[-50:]]
        assert {"queued": 8000} == await site.server.terms()
        assert len(await open_deliveries(site)) <= 50
        site.upstream.judge = lambda request: None
        await site.until_settled()
    assert {"delivered": 8000} == await site.server.terms()
    assert 8000 == len(set(site.upstream.ids)) == len(site.upstream.ids)


async def open_deliveries(site: Site) -> list[tuple[int, int]]:
    """Return the record ranges of open deliveries, read directly from the file."""
    database = site.server.deliveries._database  # type: ignore[attr-defined]
    rows = await database.read(
        lambda connection: connection.execute("SELECT first, last FROM deliveries").fetchall()
    )
    return list(rows)


async def test_a_disabled_key_parks_and_a_new_secret_resumes(site: Site) -> None:
    """
    If the upstream answers 403 because the key is disabled, no record is lost. The route tries again as soon as the
    secret file changes, without a restart.
    """
    await site.server.add(calls(1, 100))

    def judge(request: Received) -> Reply | None:
        if request.headers["authorization"] == "upstream-secret-2":
            return None
        return Reply(403, b'{"message": "User is not authorized"}', "application/json")

    site.upstream.judge = judge
    async with site.forwarding():
        state = await site.until(lambda state: state.state == "parked")
        assert state.reason == "403 User is not authorized (key telemetry)"
        assert state.queued == 100
        asked = len(site.upstream.requests)
        site.secret_file.write_text("upstream-secret-2\n")
        state = await site.until(lambda state: state.state == "running")
    assert state.reason is None
    assert state.queued == 0
    assert asked + 1 == len(site.upstream.requests)
    assert ids(calls(1, 100)) == site.upstream.ids


@pytest.mark.proves("The upstream redirects the key to another server")
@pytest.mark.parametrize("status", [307, 401])
async def test_answers_that_blame_key_or_address_park(site: Site, status: int) -> None:
    """
    If an answer blames the key or the address, the route is parked: records wait, the reason names the answer, no
    redirect is followed, and the route tries again when woken.
    """
    await site.server.add(calls(1, 10))
    site.upstream.answers.append(
        Reply(status, b"moved", "text/plain", {"Location": f"{site.upstream.url}/elsewhere"})
    )
    async with site.forwarding():
        state = await site.until(lambda state: state.state == "parked")
        assert state.reason is not None
        assert state.reason.startswith(f"{status} moved")
        assert (status == 401) == state.reason.endswith("(key telemetry)")
        assert 1 == len(site.upstream.requests)
        await site.leases.wake_tasks(ROUTE)
        await site.until_settled()
    assert {"/v1/traces"} == {request.path for request in site.upstream.requests}


async def test_who_looks_while_a_route_parks_sends_nothing(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    """
    When a refused key pauses the route, other workers may already be looking for work. They find the delivery
    back in the queue, and do not send it.
    """
    await site.server.add(calls(1, 10))
    site.upstream.answers.append(Reply(401, b"who?", "text/plain"))
    deliveries, given_back, looks = site.server.deliveries, asyncio.Event(), count(1)
    due, retry = deliveries.take_due_delivery, deliveries.schedule_retry

    async def due_late(*args: Any, **named: Any) -> Delivery | None:
        look = next(looks)
        if look > 2:
            await given_back.wait()
        found = await due(*args, **named)
        if look == 2:  # hold this second look; other workers must wait until it ends
            await given_back.wait()
        return found

    async def retry_with_others(*args: Any, **named: Any) -> None:
        await retry(*args, **named)
        given_back.set()
        for _ in range(50):
            await site.server.state()

    monkeypatch.setattr(deliveries, "take_due_delivery", due_late)
    monkeypatch.setattr(deliveries, "schedule_retry", retry_with_others)
    async with site.forwarding():
        state = await site.until(lambda state: state.state == "parked")
    assert state.queued == 10
    assert len(site.upstream.requests) == 1


async def test_no_key_for_the_scope_parks_and_names_it(site: Site) -> None:
    """Without a key for the scope, nothing is sent, and the reason names the scope."""
    await site.server.add(calls(1, 10))
    billing = UpstreamKey(name="billing", secret_env="BILLING", use_cases=("Send Billing Data",))
    async with site.forwarding(keys=(billing,)):
        state = await site.until(lambda state: state.state == "parked")
    assert state.reason is not None
    assert "ai-telemetry-ingest:ingest-ai-telemetry" in state.reason
    assert [] == site.upstream.requests


async def test_too_large_is_halved_until_it_fits(site: Site) -> None:
    """
    A 413 splits the delivery without suspecting any record. Everything arrives and nothing is set aside.
    """
    await site.server.add(calls(1, 100))
    site.upstream.judge = lambda request: Reply(413) if len(request.ids) > 30 else None
    async with site.forwarding():
        await site.until_settled()
    assert set(ids(calls(1, 100))) == set(site.upstream.ids)
    assert 7 == len(site.upstream.requests)
    assert {"delivered": 100} == await site.server.terms()


async def test_request_is_repeated_under_a_new_key_after_503(site: Site) -> None:
    """
    After a 503, the same bytes are sent under a new key, because the service would replay its error under
    the old one.
    """
    await site.server.add(calls(1, 10))
    site.upstream.answers.append(Reply(503))
    async with site.forwarding():
        await site.until_settled()
    first, second = site.upstream.requests
    assert first.raw == second.raw
    assert first.key != second.key


async def test_a_gateway_error_is_repeated_under_its_key(site: Site) -> None:
    """
    After a 502 it is unknown whether the service received the request, so the key stays. If repeats show that
    the service remembers this answer, the next request has a new key.
    """
    await site.server.add(calls(1, 10))
    site.upstream.answers += [Reply(502)] * 3
    async with site.forwarding():
        await site.until_settled()
    first, second, third, fourth = [request.key for request in site.upstream.requests]
    assert first == second == third != fourth


@pytest.mark.parametrize("status", [401, 503])
async def test_an_answer_after_none_keeps_the_key(site: Site, status: int) -> None:
    """
    A request was accepted, but its answer was lost. A proxy refuses the first repeat. The second repeat has
    the same key and body, because it is still the same request.
    """
    await site.server.add(calls(1, 10))
    site.upstream.answers += [Reply(drop=True), Reply(status)]
    async with site.forwarding() as routes:
        if status == 401:
            await site.until(lambda state: state.state == PARKED)
            routes.retry_now()
        await site.until_settled()
    assert 1 == len({(request.key, request.raw) for request in site.upstream.requests})
    assert 3 == len(site.upstream.requests)


async def test_too_large_splits_also_what_is_ambiguous(site: Site) -> None:
    """
    A request that got no answer is sent again. If the repeat gets a 413, the first one was not accepted, because a
    service that had accepted it would repeat its first answer. So the delivery is split.
    """
    await site.server.add(calls(1, 10))
    site.upstream.answers += [Reply(drop=True), Reply(413)]
    async with site.forwarding():
        await site.until_settled()
    assert sorted(ids(calls(1, 10))) == sorted(site.upstream.ids)
    assert [10, 10, 5, 5] == [len(request.ids) for request in site.upstream.requests]


async def test_request_without_an_answer_is_repeated_after_the_timeout(site: Site) -> None:
    """
    If the upstream never answers, `upstream.timeout` ends the wait. The next attempt repeats the same request under
    the same key.
    """
    await site.server.add(calls(1, 10))
    site.upstream.answers.append(Reply(delay_s=30))
    async with site.forwarding(timeout=0.2):
        await site.until_settled()
    assert 1 == len({(request.key, request.raw) for request in site.upstream.requests})


async def test_retry_after_holds_the_whole_route(site: Site) -> None:
    """After a Retry-After, nothing is sent to the upstream until that time, not even another delivery."""
    await site.server.add(calls(1, 10))
    site.upstream.answers.append(Reply(429, headers={"Retry-After": "1"}))
    loop = asyncio.get_running_loop()
    async with site.forwarding():
        began = loop.time()
        async with limited():
            while len(site.upstream.requests) < 2:
                if await site.server.deliveries.next_due_at(
                    ROUTE
                ):  # the route has stored the time of its next retry
                    break
                await asyncio.sleep(0.01)
        await site.server.add(calls(11, 20))
        await site.upstream.until(lambda: len(site.upstream.requests) >= 2)
        assert loop.time() - began > 0.9
        await site.until_settled()


async def test_words_for_each_rejected_record_hide_none_of_them(site: Site) -> None:
    """
    If a long answer lists rejected records, it is read as a whole. When answers were cut at 64 KiB, they could not
    be decoded, so all records counted as accepted.
    """
    await site.server.add(calls(1, 10))
    answer = ExportTraceServiceResponse()
    answer.partial_success.rejected_spans = 3
    answer.partial_success.error_message = "too old; " * 20_000
    site.upstream.answers.append(Reply(200, answer.SerializeToString()))
    async with site.forwarding():
        await site.until_settled()
    assert {"delivered": 7, "refused_upstream": 3} == await site.server.terms()
    (refusal,) = await site.server.deliveries.partial_refusals()
    assert len(refusal.words or "") <= LONGEST_WORDS + 3
    assert 1 == len(site.upstream.requests)


async def test_a_stop_in_mid_air_settles_nothing(site: Site) -> None:
    """A delivery that a stop interrupts is sent again after the start, with the same bytes and key."""
    await site.server.add(calls(1, 10))
    site.upstream.answers.append(Reply(delay_s=30))
    async with site.forwarding():
        await site.upstream.until(lambda: len(site.upstream.requests) == 1)
    assert {"queued": 10} == await site.server.terms()
    async with site.forwarding():
        await site.until_settled()
    first, second = site.upstream.requests
    assert first.key == second.key
    assert first.raw == second.raw


async def test_spans_and_counters_leave_apart(site: Site) -> None:
    """
    A delivery with spans and counters becomes one request for each kind. An error of one request never
    repeats the other.
    """
    await site.server.add([*calls(1, 5), counter(1), counter(2, unit="USD", value="0.10"), *calls(6, 9)])
    site.upstream.judge = lambda request: (
        Reply(500) if request.path == "/v1/metrics" and len(site.upstream.accepted) < 2 else None
    )
    async with site.forwarding():
        await site.until_settled()
    accepted = {
        path: [r for r in site.upstream.accepted if r.path == path] for path in ("/v1/traces", "/v1/metrics")
    }
    assert set(ids(calls(1, 9))) == {one for request in accepted["/v1/traces"] for one in request.ids}
    assert [2] == [len(request.points) for request in accepted["/v1/metrics"]]
    assert len(site.upstream.ids) == len(set(site.upstream.ids)) == 11
    assert {"delivered": 11} == await site.server.terms()


async def test_shadows_stay_at_home(site: Site) -> None:
    """
    A record kept for reference is never sent. A delivery of only such records is settled without a request.
    """
    await site.server.add(calls(1, 3, shadow=True))
    async with site.forwarding():
        await site.until_settled()
        await site.server.add([call(4, shadow=True), call(5), call(6, shadow=True)])
        await site.until_settled()
    assert ids([call(5)]) == site.upstream.ids
    assert {"delivered": 1, "shadow": 5} == await site.server.terms()


@pytest.mark.parametrize("fields", [{"start_time": -1}, {"input_tokens": -1}, {"output_tokens": 2**63}])
async def test_a_record_that_otlp_has_no_room_for_is_set_aside(site: Site, fields: dict[str, int]) -> None:
    """A record that OTLP cannot represent is found like a refused one. The records next to it arrive."""
    await site.server.add([*calls(1, 4), call(5, **fields), *calls(6, 9)])
    async with site.forwarding():
        await site.until_settled()
    assert {"delivered": 8, "dead": 1} == await site.server.terms()
    (letter,) = await site.server.deliveries.dead_letters()
    assert letter.number == 5
    assert letter.status == "unsendable"
    assert "cannot be encoded as OTLP" in letter.error


async def test_rejected_record_can_be_sent_after_its_entry_was_deleted(site: Site) -> None:
    """
    A rejected record is stored by itself, so an operator can send it even after retention has deleted its entry.
    """
    await site.server.add(calls(1, 3))
    site.upstream.judge = refusing(2)
    async with site.forwarding() as routes:
        await site.until_settled()
        await site.server.deliveries._database.transaction(  # type: ignore[attr-defined]
            lambda connection: connection.execute("DELETE FROM entries")
        )
        site.upstream.judge = lambda request: None
        (letter,) = await site.server.deliveries.dead_letters()
        assert 1 == await site.server.deliveries.retry_dead_letters([letter.id])
        routes.retry_now()
        await site.until_settled()
    assert [record_id(2).hex()] == site.upstream.accepted[-1].ids
    assert {"delivered": 3} == await site.server.terms()


async def test_an_upstream_that_was_down_gets_everything_in_the_end(site: Site) -> None:
    """
    While the upstream is down, few requests are sent and the backlog is not split. Afterwards nothing is missing or
    duplicated.
    """
    await site.server.add(calls(1, 5000))
    site.upstream.judge = lambda request: Reply(503)
    async with site.forwarding(batch_records=100):
        await site.upstream.until(lambda: len(site.upstream.requests) >= 40)
        assert len(await open_deliveries(site)) <= 20
        state = await site.server.state()
        assert state.state == "running"
        assert state.reason == "503"
        assert state.queued == 5000
        site.upstream.judge = lambda request: None
        await site.until_settled()
        await site.until(lambda state: state.reason is None)
    assert sorted(ids(calls(1, 5000))) == sorted(site.upstream.ids)


def rejecting(*numbers: int, words: str = "not taken") -> Callable[[Received], Reply | None]:
    """Return a judge that answers 200 and rejects these records, or all of them if none is given."""
    bad = {record_id(n).hex() for n in numbers}

    def judge(request: Received) -> Reply | None:
        count = len(bad & set(request.ids)) if bad else len(request.ids)
        answer = ExportTraceServiceResponse()
        answer.partial_success.rejected_spans = count
        answer.partial_success.error_message = words
        return Reply(200, answer.SerializeToString()) if count else None

    return judge


async def test_an_upstream_that_answers_200_and_rejects_everything_is_refusing(site: Site) -> None:
    """
    If the upstream answers 200 and rejects everything, nothing is settled or set aside. The reason quotes the
    upstream without the key. When the upstream accepts again, everything arrives once.
    """
    await site.server.add(calls(1, 1000))
    site.upstream.judge = rejecting(words=f"no chain for {SECRET} \x1b[31m")
    async with site.forwarding():
        state = await site.until(lambda state: state.state == REFUSING)
        assert "200, but 1 of 1 items are rejected: no chain for [key] [31m" == state.reason
        before = len(site.upstream.requests)
        await site.upstream.until(lambda: len(site.upstream.requests) >= before + 40)
        assert [1] * 40 == [len(request.ids) for request in site.upstream.requests[-40:]]
        assert {"queued": 1000} == await site.server.terms()
        site.upstream.accepted.clear()
        site.upstream.judge = lambda request: None
        await site.until_settled()
        await site.until(lambda state: state.state == "running")
    assert ids(calls(1, 1000)) == sorted(site.upstream.ids, key=ids(calls(1, 1000)).index)
    assert {"delivered": 1000} == await site.server.terms()
    assert [] == list((await site.server.log.books()).imbalances)


async def test_one_record_that_is_rejected_alone_is_set_aside_once_others_pass(site: Site) -> None:
    """
    If a 200 rejects some records of a request, the delivery is settled. If it rejects the only record, that
    record is held until another one is accepted, because the route may be at fault.
    """
    site.upstream.judge = rejecting(2, 11)
    await site.server.add(calls(1, 10))
    async with site.forwarding():
        await site.until_settled()
        await site.server.add(calls(11, 11))
        await site.until(lambda state: state.state == REFUSING)
        assert [] == list(await site.server.deliveries.dead_letters())
        await site.server.add(calls(12, 13))
        await site.until_settled()
        await site.until(lambda state: state.state == "running")
    (letter,) = await site.server.deliveries.dead_letters()
    assert letter.number == 11
    assert letter.error == "200, but 1 of 1 items are rejected: not taken"
    assert letter.status == "200"
    assert {"delivered": 11, "refused_upstream": 1, "dead": 1} == await site.server.terms()
    assert [] == list((await site.server.log.books()).imbalances)


async def test_a_rejection_of_everything_after_no_answer_is_definite(site: Site) -> None:
    """
    If a request without an answer is repeated and every record is rejected, the rejection is real, because a
    service that honours keys would repeat its first answer. The batch is then split instead of repeated.
    """
    await site.server.add(calls(1, 4))
    answer = ExportTraceServiceResponse()
    answer.partial_success.rejected_spans = 4
    site.upstream.answers += [Reply(drop=True), Reply(200, answer.SerializeToString())]
    async with site.forwarding():
        await site.until_settled()
    assert [4, 4, 2, 2] == [len(request.ids) for request in site.upstream.requests]
    assert 3 == len({request.key for request in site.upstream.requests})
    assert {"delivered": 4} == await site.server.terms()


async def test_a_rejected_share_of_points_is_not_all_of_the_records(site: Site) -> None:
    """
    An upstream states how many points it rejected. A record may be sent as several points, so the number is
    compared with the number of points, not of records.
    """
    await site.server.add([counter(1), counter(2)])
    answer = ExportMetricsServiceResponse()
    answer.partial_success.rejected_data_points = 2
    site.upstream.answers.append(Reply(200, answer.SerializeToString()))
    async with site.forwarding():
        await site.until_settled()
    assert [2, 1, 1] == [len(request.ids) for request in site.upstream.requests]
    assert {"delivered": 2} == await site.server.terms()


async def test_a_stream_without_a_path_is_not_a_refusal(site: Site) -> None:
    """If the operator sends no counters, they are counted as unmapped, not as refused."""
    await site.server.add([*calls(1, 2), counter(3)])
    async with site.forwarding(paths={"metrics": ""}):
        await site.until_settled()
    assert {"delivered": 2, "unmapped": 1} == await site.server.terms()
    assert [] == list(await site.server.deliveries.partial_refusals())
