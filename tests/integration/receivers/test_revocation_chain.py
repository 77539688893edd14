"""A revocation along three gateways, with a gateway that is down meanwhile."""

from __future__ import annotations

import asyncio
import json
import logging
import time
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest
from aiohttp import ClientSession

from exporters.settings import UpstreamKey, UpstreamSettings
from gateway.configuration.sections import Config
from gateway.service.app import TollhouseApp
from spool.devices.device import ENROLLED, REVOKED
from spool.registry.scopes import ENROLL, HEARTBEAT, INGEST, PING
from spool.settings import SpoolSettings
from tests.integration.conftest import ACTOR, Serve, Serving
from tests.integration.receivers.test_devices import traces
from tests.integration.receivers.test_enrolment_tokens import BEAT, enrol, make, said
from tests.rounds import IS_LONG
from tests.waiting import until

PLANE = (ENROLL, HEARTBEAT, INGEST)
PING_PATH = "/v1/ai-control-plane/ping"
LAPTOPS = 5 if IS_LONG else 2
_log = logging.getLogger(__name__)


async def chained(serve: Serve, tmp_path: Path) -> list[Serving]:
    """Return three gateways, the nearest to the devices first. Each sends to the next one."""
    gateways: list[Serving] = []
    for name in ("far", "middle", "near"):
        upstream = UpstreamSettings()
        if gateways:
            secret = tmp_path / f"{name}.key"
            secret.write_text(await gateways[0].make_key(name, scopes=PLANE))
            key = UpstreamKey(name=name, secret_file=secret, scopes=PLANE)
            upstream = UpstreamSettings(base_url=gateways[0].url, kind="tollhouse", keys=(key,))
        config = Config(spool=SpoolSettings(hold=0, counter_wait=0), upstream=upstream)
        gateways.insert(0, await serve(config=config, chain_keys=("near", "middle")))
    return gateways


def state(server: Serving, id: str) -> str | None:
    device = server.app.services.single.devices.table.find(id)
    return None if device is None else device.state


def is_revoked(server: Serving, id: str) -> bool:
    return state(server, id) == REVOKED


def is_enrolled(server: Serving, id: str) -> bool:
    return state(server, id) == ENROLLED


async def statuses(server: Serving, key: str, id: str) -> list[int]:
    """Return the status of a heartbeat, a ping and telemetry of a device."""
    body = json.dumps({"device_id": id}).encode()
    answers = [await server.send(path, body, key=key) for path in (BEAT, PING_PATH)]
    answers.append(await server.send("/v1/traces", traces(id), key=key))
    return [answer.status for answer in answers]


def is_held(server: Serving, id: str) -> bool:
    """Return whether the next gateway refused a device because it is revoked there."""
    device = server.app.services.single.devices.table.find(id)
    return device is not None and device.held is not None and "revoked" in device.held


async def test_a_revocation_reaches_all_three_gateways(serve: Serve, tmp_path: Path) -> None:
    """
    The near gateway refuses the device at once, the others as soon as they are told. The log has the time of each
    hop, which no assertion limits, because a test machine may be slow.
    """
    near, middle, far = await chained(serve, tmp_path)
    token = await make(near, 9)
    keys = {f"laptop-{n}": said(await enrol(near, token, f"laptop-{n}"))["key"] for n in range(LAPTOPS)}
    await until(lambda: all(state(far, id) == ENROLLED for id in keys))
    hops = []
    for id, key in keys.items():
        assert [200] * 3 == await statuses(near, key, id)
        began = time.monotonic()
        await near.app.services.single.devices.revoke_device(id, ACTOR)
        await until(partial(is_revoked, middle, id))
        to_middle = time.monotonic() - began
        await until(partial(is_revoked, far, id))
        hops.append((to_middle, time.monotonic() - began - to_middle))
        assert [401] * 3 == await statuses(near, key, id)
    _log.info("seconds to the middle and on to the far gateway: %s", hops)
    for server in (middle, far):
        fleet = await server.make_key("fleet", scopes=(*PLANE, PING))
        assert [410, 410, 200] == await statuses(server, fleet, "laptop-0")
        answer = await server.send("/v1/traces", traces("laptop-0"), key=fleet)
        assert "rejected=1;" in answer.headers["Tollhouse-Receipt"]


@pytest.mark.proof
async def test_a_revocation_at_each_gateway(serve: Serve, tmp_path: Path) -> None:
    """A gateway tells the gateways above it. The near gateway keeps the device, and shows that it was refused."""
    near, middle, far = await chained(serve, tmp_path)
    token = await make(near, 9)
    for id in ("at-far", "at-middle"):
        assert 200 == (await enrol(near, token, id)).status
        await until(partial(is_enrolled, far, id))
    await far.app.services.single.devices.revoke_device("at-far", ACTOR)
    await middle.app.services.single.devices.revoke_device("at-middle", ACTOR)
    await until(lambda: state(far, "at-middle") == REVOKED)
    for server, id in ((near, "at-middle"), (middle, "at-far")):
        assert ENROLLED == state(server, id)
        table = server.app.services.single.devices.table
        table.change_and_write_soon(
            id, lambda known: known.with_changes_and_next_version(changes_enrolment=True, hostname="other")
        )
        await until(partial(is_held, server, id))


async def test_a_gateway_that_was_down(serve: Serve, tmp_path: Path) -> None:
    """A revocation while the middle gateway is down reaches it and the far gateway after its start."""
    near, middle, far = await chained(serve, tmp_path)
    key = said(await enrol(near, await make(near), "laptop-1"))["key"]
    await until(lambda: state(far, "laptop-1") == ENROLLED)
    port = middle.port
    config = middle.app.config
    await middle.app.stop()
    await near.app.services.single.devices.revoke_device("laptop-1", ACTOR)
    assert [401] * 3 == await statuses(near, key, "laptop-1")
    await asyncio.sleep(0.2)
    assert ENROLLED == state(far, "laptop-1")
    again = TollhouseApp(
        replace(config, server=replace(config.server, listen=f"127.0.0.1:{port}")), version="0"
    )
    await again.start()
    restarted = Serving(app=again, key="", client=ClientSession())
    try:
        await until(lambda: state(restarted, "laptop-1") == REVOKED)
        await until(lambda: state(far, "laptop-1") == REVOKED)
    finally:
        await restarted.client.close()
        await again.stop()
