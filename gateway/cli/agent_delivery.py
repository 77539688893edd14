"""Test calls of `tollhouse agent test`: from the agent's port to the gateway."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from pathlib import Path
from typing import Final, NamedTuple

from exporters.check import check_streams
from exporters.http.client import Client, ClientSettings
from exporters.marked_call import try_call
from exporters.otlp.telemetry import TRACES
from exporters.probe import OK, UNAVAILABLE, UNUSED, Probe
from gateway.cli.agent_run import forwarding
from gateway.configuration.sections import Config
from gateway.devices.agent.probe.machine import agent_state
from spool.clock import SystemClock

AGAIN_S: Final = 2.0  # seconds between two attempts while something cannot be reached
TIMEOUT_S: Final = 10.0
MACHINE: Final = "this machine"


class TestResult(NamedTuple):
    """The result for one assistant. `cause` is a closed word, and `words` say more."""

    assistant: str
    arrived: bool
    cause: str = ""
    words: str = ""


async def try_delivery(config: Config, data_dir: Path, listen: str, wait_s: float) -> TestResult:
    """Return whether a call would get from the agent's port to the gateway. Try again while it cannot be reached."""
    clock = SystemClock()
    until = clock.monotonic() + wait_s
    while True:
        result, may_change = await _attempt(config, data_dir, listen, clock)
        if result.arrived or not may_change or clock.monotonic() >= until:
            return result
        await asyncio.sleep(min(AGAIN_S, max(0.0, until - clock.monotonic())))


async def _attempt(
    config: Config, data_dir: Path, listen: str, clock: SystemClock
) -> tuple[TestResult, bool]:
    """Return the result, and whether a later attempt may have another one."""
    agent = agent_state(data_dir, listen)
    if agent.problem:
        return TestResult(MACHINE, False, agent.problem), True
    async with Client(ClientSettings(timeout_s=TIMEOUT_S), clock=clock) as client:
        probe = await try_call(client, f"{agent.url}/v1/traces", clock=clock, authorization=None)
    if probe.status != OK:
        return _failed("agent_refuses", probe), True
    forwarded = forwarding(replace(config, data_dir=data_dir))
    checks = await check_streams(forwarded.upstream, clock=clock)
    gateway = next(each for each in checks if each.stream == TRACES)
    if gateway.status != OK:
        cause = "not_enrolled" if gateway.status == UNUSED else agent.forward or "refused"
        return _failed(cause, Probe(status=gateway.status, words=gateway.words)), (
            gateway.status in (UNAVAILABLE, UNUSED)
        )
    if agent.forward:
        return TestResult(MACHINE, False, agent.forward), True
    return TestResult(MACHINE, True), False


def _failed(cause: str, probe: Probe) -> TestResult:
    return TestResult(MACHINE, False, cause, probe.words or probe.status)
