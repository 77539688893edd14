"""
Keys that expire: the operator API sets and moves the date, and every gateway refuses the key from that moment on.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from pathlib import Path

import grpc
import pytest

from gateway.configuration.sections import Config
from spool.errors import KeyEnded
from spool.record import utc_iso
from spool.registry.scopes import INGEST
from spool.settings import SpoolSettings
from tests.gateway.http import raw
from tests.integration.conftest import ACTOR, Serve, Serving
from tests.integration.operations.server import operator_server
from tests.integration.payloads import JSON, json_span, json_traces
from tests.integration.receivers.test_otlp_grpc import SERVICES
from tests.integration.test_two_gateways import shared_config
from tests.moved_clock import MovedClock
from tests.spool.kept import audit_rows
from tests.spool.postgres_cluster import Schema


def span() -> bytes:
    return json_traces(json_span())


async def expiring(serving: Serving, in_s: float) -> str:
    keys = serving.app.services.operators.installation.require_registry().keys
    now = serving.app.services.receivers.clock.now()
    _, secret = await keys.create(name="short", scopes=[INGEST], expires_at=now + in_s, actor=ACTOR)
    return secret


@pytest.mark.proves("A key is used after its expiry date")
async def test_it_is_refused_on_open_connections(serve: Serve) -> None:
    """
    An expired key is refused at the exact moment, on a kept-alive connection and on an open gRPC channel,
    without a restart. Only its own secret reads when it expired.
    """
    clock = MovedClock()
    config = Config(spool=SpoolSettings(hold=0, counter_wait=0))
    serving = await serve(config=config, clock=clock, grpc_listen="127.0.0.1:0")
    secret = await expiring(serving, 60)
    reader, writer = await asyncio.open_connection("127.0.0.1", serving.port)

    async def kept_alive(key: str) -> tuple[int, bytes]:
        writer.write(
            raw.post("/v1/traces", span(), f"Content-Type: {JSON}", f"Authorization: {key}", close=False)
        )
        head = await reader.readuntil(b"\r\n\r\n")
        answer = raw.parsed(head)
        return answer.status, await reader.readexactly(int(answer.headers["content-length"]))

    async with grpc.aio.insecure_channel(serving.app.grpc_address) as channel:
        export: grpc.aio.UnaryUnaryMultiCallable[bytes, bytes]
        export = channel.unary_unary(f"/{SERVICES['traces']}/Export")
        clock.move(59.999)
        assert 200 == (await kept_alive(secret))[0]
        assert b"" == await export(b"", metadata=(("authorization", secret),))
        clock.move(0.001)
        words = {secret: f"expired on {utc_iso(clock.now())}", "th_unknown": "unknown or was deleted"}
        for key, reason in words.items():
            status, body = await kept_alive(key)
            assert 401 == status
            assert reason in body.decode()
            with pytest.raises(grpc.aio.AioRpcError) as refused:
                await export(b"", metadata=(("authorization", key),))
            assert grpc.StatusCode.UNAUTHENTICATED == refused.value.code()
            assert reason in str(refused.value.details())
    writer.close()
    assert 401 == (await serving.send("/v1/traces", span(), key=secret)).status


@pytest.mark.proves("A key is used after its expiry date")
async def test_it_is_refused_at_every_gateway(
    new_schema: Callable[[], Schema], serve: Serve, tmp_path: Path
) -> None:
    """
    A date that was set at one gateway applies at the other. If it is moved to later, the other gateway
    accepts the key at once.
    """
    schema, clock = new_schema(), MovedClock()
    config = shared_config(schema.dsn, schema.name, tmp_path)
    one = await serve(config=config, clock=clock)
    other = await serve(config=config, key_name="other sender", clock=clock)
    secret = await expiring(one, 3600)
    assert 200 == (await other.send("/v1/traces", span(), key=secret)).status
    clock.move(3600)
    assert [401, 401] == [(await each.send("/v1/traces", span(), key=secret)).status for each in (one, other)]
    keys = one.app.services.operators.installation.require_registry().keys
    await keys.edit("short", expires_at=clock.now() + 60, actor=ACTOR)
    assert 200 == (await other.send("/v1/traces", span(), key=secret)).status


async def test_expiry_is_set_and_shown_over_the_operator_api(tmp_path: Path) -> None:
    """
    `expires_at` is a time, or a day whose end counts. Null removes it, and a key without it has no such
    field. Each change is audited.
    """
    async with operator_server(tmp_path) as server:
        assert "expires_at" not in (await server.create("lasting"))["key"]
        made = await server.create("until", scopes=[INGEST], expires_at="2027-01-31")
        assert "2027-02-01T00:00:00.000Z" == made["key"]["expires_at"]

        async def edit(body: dict[str, object], status: int = 200) -> dict[str, object]:
            answer = await server.ask("PATCH", "/keys/until", body)
            assert status == answer.status, answer.payload
            return dict(answer.payload.get("key") or answer.payload["error"])

        assert "2027-02-01T00:00:00.000Z" == (await edit({"description": "x"}))["expires_at"]
        assert (
            "2027-03-01T12:00:00.000Z" == (await edit({"expires_at": "2027-03-01T12:00:00Z"}))["expires_at"]
        )
        for wrong in ("2001-01-01", utc_iso(server.clock.now()), "soon", "2999-01-01"):
            assert "expires_at" in str((await edit({"expires_at": wrong}, 400))["message"])
        listed = (await server.ask("GET", "/keys", sort_key="expires_at", sort_order="desc")).payload["keys"]
        assert {"lasting", "until"} == {row["name"] for row in listed}
        assert "expires_at" not in await edit({"expires_at": None})
        rows = [row for row in await audit_rows(server.registry) if row.target == "until"]
        assert 3 == sum("expires_at" in json.dumps([row.before, row.after]) for row in rows)


async def test_an_address_that_was_given_to_it_ends_with_it(serve: Serve) -> None:
    """An upload address that was given to a key ends with this key."""
    clock = MovedClock()
    serving = await serve(clock=clock)
    secret = await expiring(serving, 60)
    registry = serving.app.services.operators.installation.require_registry()
    key = registry.keys.find_by_secret(secret)
    assert key is not None
    access = serving.app.services.operators.senders.access
    assert () == await access.upload_expectations_of_key(key.id)
    clock.move(60)
    with pytest.raises(KeyEnded):
        await access.upload_expectations_of_key(key.id)
