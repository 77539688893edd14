"""Test calls of `tollhouse agent test`: from the agent's port to the gateway."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from pathlib import Path
from typing import Final, NamedTuple

from exporters.errors import SendError
from exporters.http.client import DNS, NO_ANSWER, REFUSED, TLS, ClientSettings, HttpClient
from exporters.marked_call import probe_with_test_call
from exporters.otlp.telemetry import TRACES
from exporters.probe import OK, UNAVAILABLE, Probe, error_probe
from exporters.service.paths import STREAMS, UpstreamPaths
from exporters.service.upstream_client import Keyring, build_client
from exporters.settings import UpstreamSettings
from gateway.cli.agent_run import config_with_gateway_as_upstream
from gateway.configuration.sections import Config
from gateway.devices.agent.identity import KEY_FILE
from gateway.devices.agent.probe.machine import probe_agent
from spool.clock import SystemClock

AGAIN_S: Final = 2.0  # seconds between two attempts to reach the gateway
TIMEOUT_S: Final = 10.0
MACHINE: Final = "this machine"
NOT_ENROLLED: Final = "not_enrolled"
BUSY: Final = "busy"
REFUSALS: Final = frozenset({REFUSED, NOT_ENROLLED})
# outcomes of a delivery that the gateway itself did not decide
NOT_REACHED: Final = frozenset({DNS, TLS, NO_ANSWER, BUSY})


class DeliveryResult(NamedTuple):
    """
    The result of a test call for one assistant. `cause` is one of a fixed list of words, and `words` explain
    it.
    """

    assistant: str
    arrived: bool
    cause: str = ""
    words: str = ""


async def try_delivery(config: Config, data_dir: Path, listen: str, wait_s: float) -> DeliveryResult:
    """
    Test whether a call would arrive at the gateway through the agent's port. If the gateway cannot be
    reached, try again for `wait_s` seconds.
    """
    clock = SystemClock()
    until = clock.monotonic() + wait_s
    while True:
        result, may_change = await _try_delivery_once(config, data_dir, listen, clock)
        if result.arrived or not may_change or clock.monotonic() >= until:
            return result
        await asyncio.sleep(min(AGAIN_S, max(0.0, until - clock.monotonic())))


async def _try_delivery_once(
    config: Config, data_dir: Path, listen: str, clock: SystemClock
) -> tuple[DeliveryResult, bool]:
    agent = await asyncio.to_thread(probe_agent, data_dir, listen)
    if agent.problem:
        return DeliveryResult(MACHINE, False, agent.problem), True
    async with HttpClient(ClientSettings(timeout_s=TIMEOUT_S), clock=clock) as client:
        probe = await probe_with_test_call(client, f"{agent.url}/v1/traces", clock=clock, authorization=None)
    if probe.status != OK:
        return _failed_result("agent_refuses", probe), True
    if not (data_dir / KEY_FILE).exists():
        return DeliveryResult(
            MACHINE, False, agent.forward if agent.forward in NOT_REACHED else NOT_ENROLLED
        ), True
    gateway = await _probe_gateway(
        config_with_gateway_as_upstream(replace(config, data_dir=data_dir)).upstream, clock
    )
    if gateway.status != OK:
        is_busy = gateway.status == UNAVAILABLE
        cause = gateway.problem if gateway.problem in NOT_REACHED else BUSY if is_busy else REFUSED
        return _failed_result(cause, gateway), is_busy
    if agent.forward:
        return DeliveryResult(MACHINE, False, agent.forward), True
    return DeliveryResult(MACHINE, True), False


async def _probe_gateway(settings: UpstreamSettings, clock: SystemClock) -> Probe:
    try:
        key = Keyring(settings.keys).secret_for(STREAMS[TRACES].scope)
        async with build_client(settings, clock=clock) as client:
            url = UpstreamPaths(settings).required_url(TRACES)
            return await probe_with_test_call(client, url, clock=clock, authorization=key)
    except SendError as error:
        return error_probe(error)


def _failed_result(cause: str, probe: Probe) -> DeliveryResult:
    return DeliveryResult(MACHINE, False, cause, probe.words or probe.status)
