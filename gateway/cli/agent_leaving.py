"""The end of a device at its gateway: it delivers the records that wait, and reports that it leaves."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from importlib.metadata import version
from typing import Final

import msgspec

from exporters.errors import SendError
from exporters.secret_source import SecretSource
from exporters.service.paths import UpstreamPaths
from exporters.service.upstream_client import build_client
from gateway.cli.agent_run import config_with_gateway_as_upstream
from gateway.configuration.sections import Config
from gateway.devices.agent.identity import KEY_FILE, load_or_create_identity
from gateway.devices.states import REMOVED, UNENROLLED
from gateway.service.app import TollhouseApp
from spool.clock import SteadyClock, SystemClock

LOOK_S: Final = 0.2  # seconds between two checks whether records still wait to be sent
ENDED: Final = (401, 404, 410)  # statuses after which the gateway no longer knows this key


async def deliver_waiting_records(config: Config, wait_s: float) -> int:
    """
    Deliver the waiting records, for at most `wait_s` seconds. Return the number of records that still wait.
    Raises SpoolError if the agent runs.
    """
    clock = SteadyClock(step_s=config.spool.clock_step, hold_s=config.spool.clock_hold)
    # nobody sends any more, so no record waits for further reports of its call
    closed = replace(config, spool=replace(config.spool, hold=0, counter_wait=0))
    quiet = replace(closed, server=replace(config.server, listen="127.0.0.1:0", grpc_listen=""))
    app = TollhouseApp(config_with_gateway_as_upstream(quiet), version=version("tollhouse"), clock=clock)
    await app.start()
    try:
        for _ in range(round(wait_s / LOOK_S)):
            if not await _count_queued_records(app):
                break
            await asyncio.sleep(LOOK_S)
        return await _count_queued_records(app)
    finally:
        await app.stop()


async def _count_queued_records(app: TollhouseApp) -> int:
    return sum(route.queued for route in await app.services.storage.deliveries.route_states())


async def report_leaving(config: Config, *, keep_key: bool) -> str:
    """Report to the gateway that this device leaves. Return why the report failed, or ""."""
    upstream, who = (
        config_with_gateway_as_upstream(config).upstream,
        load_or_create_identity(config.data_dir, device_id=config.agent.device_id),
    )
    body = {
        "device_id": who.device_id,
        "fingerprint": who.fingerprint,
        "leaving": REMOVED if keep_key else UNENROLLED,
    }
    async with build_client(upstream, clock=SystemClock()) as client:
        try:
            await client.send(
                UpstreamPaths(upstream).required_url("heartbeat"),
                msgspec.json.encode(body),
                content_type="application/json",
                authorization=SecretSource("the device's key", file=config.data_dir / KEY_FILE).value(),
            )
        except SendError as error:
            return "" if error.status in ENDED else str(error)
    return ""
