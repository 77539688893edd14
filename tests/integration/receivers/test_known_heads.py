"""
Further requests with the same head on a connection skip the checks of the head. They are still answered as the first
request would be at that moment.
"""

from __future__ import annotations

import asyncio
import gzip
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import replace
from typing import Any

import pytest

from gateway.configuration.server import ServerSettings
from gateway.people.authentication.access import KeyAccess
from spool.log.values import Receipt
from spool.registry.scopes import PING
from tests.gateway.http import raw
from tests.integration.conftest import ACTOR, Serve, Serving
from tests.integration.payloads import JSON, PROTOBUF, json_span, json_traces, proto_span, proto_traces
from tests.rounds import part
from tests.waiting import limited


class Sender:
    """One connection. It sends the same head with each body."""

    def __init__(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, lines: Sequence[str]
    ) -> None:
        self._reader = reader
        self.writer = writer
        self._path, *self._headers = lines

    def write(self, *bodies: bytes) -> None:
        self.writer.write(
            b"".join(raw.post(self._path, body, *self._headers, close=False) for body in bodies)
        )

    async def answer(self) -> raw.RawAnswer:
        head = await self._reader.readuntil(b"\r\n\r\n")
        length = int(raw.parsed(head).headers["content-length"])
        return raw.parsed(head + await self._reader.readexactly(length))

    async def send(self, body: bytes) -> raw.RawAnswer:
        self.write(body)
        return await self.answer()


@asynccontextmanager
async def connected(
    serving: Serving, path: str = "/v1/traces", media: str = PROTOBUF, *headers: str, key: str = ""
) -> AsyncIterator[Sender]:
    reader, writer = await asyncio.open_connection("127.0.0.1", serving.port)
    lines = (path, f"Content-Type: {media}", f"Authorization: {key or serving.key}", *headers)
    try:
        async with limited():
            yield Sender(reader, writer, lines)
    finally:
        writer.close()


@pytest.fixture
def known(monkeypatch: pytest.MonkeyPatch) -> list[bool]:
    """Return a list with, for each check of a known key, whether the key was still admitted."""
    verdicts: list[bool] = []
    find = KeyAccess.find_validity_check

    def find_noted_check(self: KeyAccess, credential: str | None) -> Callable[[], bool] | None:
        is_valid = find(self, credential)

        def check() -> bool:
            assert is_valid is not None
            verdicts.append(is_valid())
            return verdicts[-1]

        return None if is_valid is None else check

    monkeypatch.setattr(KeyAccess, "find_validity_check", find_noted_check)
    return verdicts


def call() -> bytes:
    return proto_traces(proto_span())


async def test_further_requests_skip_the_checks_of_the_head(serve: Serve, known: list[bool]) -> None:
    """
    From the third request on, a known head skips the checks of the head. A request with another head is checked in
    full.
    """
    serving = await serve()
    async with connected(serving) as sender:
        assert [200] * 4 == [(await sender.send(call())).status for _ in range(4)]
        assert [True] * 3 == known
        sender._headers.append("X-Other: 1")
        assert 200 == (await sender.send(call())).status
        assert [True] * 3 == known


BODIES = {
    "a call": call(),
    "nothing": b"",
    "no protobuf": b"\xff\xff",
    "only malformed items": json_traces(json_span(traceId="short")),
    "a malformed item": json_traces(json_span(), json_span(traceId="short")),
    "too large": bytes(6_000),
}


@pytest.mark.parametrize("media", [PROTOBUF, JSON])
@pytest.mark.parametrize("body", part([*BODIES.values()], every=2), ids=BODIES)
@pytest.mark.parametrize("coding", part(["", "gzip"], every=2))
async def test_answers_are_those_of_a_first_request(
    serve: Serve, known: list[bool], media: str, body: bytes, coding: str
) -> None:
    """
    The answers to further requests equal those to a first request: status, headers and body, for each kind of body.
    """
    serving = await serve(max_body_bytes=5_000)
    good = call() if media == PROTOBUF else json_traces(json_span())
    headers = [f"Content-Encoding: {coding}"] if coding else []
    pack: Callable[[bytes], bytes] = gzip.compress if coding else bytes
    async with connected(serving, "/v1/traces", media, *headers) as sender:
        first = await sender.send(pack(body))
    async with connected(serving, "/v1/traces", media, *headers) as sender:
        assert 200 == (await sender.send(pack(good))).status
        later = await sender.send(pack(body))
    assert [True] == known
    assert (first.status, first.body) == (later.status, later.body)
    assert list(first.headers) == list(later.headers)


async def test_the_parts_of_a_path_are_known(serve: Serve, known: list[bool]) -> None:
    """An address with a parameter gets the parameter's value of each request, even if the head is known."""
    serving = await serve()
    log = b'{"id": "%d", "call_type": "completion", "model": "m", "prompt_tokens": 1, "completion_tokens": 2}'
    async with connected(serving, "/v1/ai-telemetry/litellm", JSON) as sender:
        found = [await sender.send(log % number) for number in range(3)]
    assert [200] * 3 == [answer.status for answer in found]
    assert all(b'"litellm"' in answer.body for answer in found)
    assert [True, True] == known


async def disable(serving: Serving) -> None:
    await _keys(serving).disable("sender", actor=ACTOR)


async def delete(serving: Serving) -> None:
    await _keys(serving).delete("sender", confirm="sender", actor=ACTOR)


async def rotate(serving: Serving) -> None:
    await _keys(serving).rotate("sender", overlap_s=0, actor=ACTOR)


async def take_the_scope(serving: Serving) -> None:
    await _keys(serving).edit("sender", scopes=[PING], actor=ACTOR)


async def end(serving: Serving) -> None:
    """Let the key expire."""
    now = serving.app.services.receivers.clock.now()
    await _keys(serving).edit("sender", expires_at=now + 1.0, actor=ACTOR)
    await asyncio.sleep(1.5)


def _keys(serving: Serving) -> Any:
    registry = serving.app.services.storage.registry
    assert registry is not None
    return registry.keys


CHANGES = {disable: 401, delete: 401, rotate: 401, end: 401, take_the_scope: 403}


@pytest.mark.parametrize(("change", "status"), CHANGES.items(), ids=lambda one: getattr(one, "__name__", ""))
async def test_a_change_of_the_key_applies_to_the_next_request(
    serve: Serve, change: Callable[[Serving], Awaitable[None]], status: int
) -> None:
    """If the key changes, no request after the change is accepted, and no record of it is stored."""
    serving = await serve()
    async with connected(serving) as sender:
        assert [200] * 3 == [(await sender.send(call())).status for _ in range(3)]
        await change(serving)
        assert status == (await sender.send(call())).status
        assert status == (await sender.send(call())).status
    assert 3 == len(await serving.records())


async def test_a_key_that_ends_between_two_pipelined_requests(
    serve: Serve, monkeypatch: pytest.MonkeyPatch
) -> None:
    """
    If the key ends between two pipelined requests, the first is stored and the second is refused, although it
    arrived before the key ended.
    """
    serving = await serve()
    intake = serving.app.services.receivers.intake
    take = intake.store_outcome
    async with connected(serving) as sender:
        assert [200] * 2 == [(await sender.send(call())).status for _ in range(2)]

        def end_key_and_take(*args: Any) -> Any:
            async def work() -> Receipt:
                await delete(serving)
                receipt: Receipt = await take(*args)
                return receipt

            return work()

        monkeypatch.setattr(intake, "store_outcome", end_key_and_take)
        sender.write(call(), call())
        assert [200, 401] == [(await sender.answer()).status for _ in range(2)]
    assert 3 == len(await serving.records())


async def test_changed_labels_apply_to_the_next_request(serve: Serve) -> None:
    """A record gets the labels that the key has when its request arrives."""
    serving = await serve()
    async with connected(serving) as sender:
        for team in ("red", "red", "blue"):
            await _keys(serving).edit("sender", labels={"team": team}, actor=ACTOR)
            assert 200 == (await sender.send(call())).status
    assert ["red", "red", "blue"] == [record.team for record in await serving.records()]


async def test_changed_settings_apply_to_the_next_request(serve: Serve) -> None:
    """A Bearer prefix is refused as soon as the settings no longer accept it."""
    serving = await serve(accept_bearer=True)
    async with connected(serving, key=f"Bearer {serving.key}") as sender:
        assert [200] * 3 == [(await sender.send(call())).status for _ in range(3)]
        serving.app.services.operators.senders.access.configure(ServerSettings(accept_bearer=False), None)
        assert 401 == (await sender.send(call())).status


async def test_a_limit_applies_within_one_pass_of_the_event_loop(serve: Serve) -> None:
    """Of requests that arrive together on known heads, only those within the limit of the key are accepted."""
    serving = await serve()
    async with AsyncExitStack() as stack:
        senders = [await stack.enter_async_context(connected(serving)) for _ in range(20)]
        for sender in senders:
            assert 200 == (await sender.send(call())).status
        access = serving.app.services.operators.senders.access
        access.configure(replace(serving.app.config.server, max_key_requests_per_s=5), None)
        for sender in senders:  # the change is noticed by a full check, which costs one request
            sender.write(call())
        statuses = [(await sender.answer()).status for sender in senders]
        assert {200, 429} == set(statuses)
        accepted = statuses.count(200)
        assert 5 <= accepted < 20
    assert 20 + accepted == len(await serving.records())


async def test_a_bad_request_fails_alone(serve: Serve) -> None:
    """Requests that are decoded together get their own answers."""
    serving = await serve()
    async with AsyncExitStack() as stack:
        senders = [await stack.enter_async_context(connected(serving)) for _ in range(20)]
        for _ in range(3):
            for number, sender in enumerate(senders):
                sender.write(b"\xff\xff" if number == 7 else call())
            statuses = [(await sender.answer()).status for sender in senders]
            assert [400 if number == 7 else 200 for number in range(20)] == statuses
    assert 57 == len(await serving.records())


async def test_a_sender_that_went_does_not_disturb_others(
    serve: Serve, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A connection that ends while its request is stored fails no other request, and its record is stored."""
    serving = await serve()
    intake = serving.app.services.receivers.intake
    take = intake.store_outcome
    async with AsyncExitStack() as stack:
        senders = [await stack.enter_async_context(connected(serving)) for _ in range(8)]
        for sender in senders:
            assert 200 == (await sender.send(call())).status
        begun: list[object] = []

        def take_and_end_connection(*args: Any) -> Any:
            begun.append(args)
            if len(begun) == len(senders):  # all requests of the senders have arrived
                senders[3].writer.transport.abort()
            return take(*args)

        monkeypatch.setattr(intake, "store_outcome", take_and_end_connection)
        for sender in senders:
            sender.write(call())
        others = [sender for sender in senders if sender is not senders[3]]
        assert [200] * 7 == [(await sender.answer()).status for sender in others]
    assert 16 == len(await serving.records())


async def test_a_head_is_remembered_only_for_its_own_requests(serve: Serve, known: list[bool]) -> None:
    """If another head arrived while a request was handled, that head is not known yet."""
    serving = await serve()
    async with connected(serving) as sender:
        sender.write(call())
        sender._headers.append("X-Other: 1")
        sender.write(call())
        assert [200, 200] == [(await sender.answer()).status for _ in range(2)]
        assert [] == known
