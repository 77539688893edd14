"""`tollhouse agent test`: whether a call of each coding assistant would arrive at the gateway now."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Final, NamedTuple

import click

from exporters.check import check
from exporters.http.client import Client, ClientSettings
from exporters.marked_call import try_call
from exporters.otlp.telemetry import TRACES
from exporters.probe import OK, UNAVAILABLE, UNUSED, Probe
from gateway.cli import fail
from gateway.cli.agent_probe import looked_at, settings_of
from gateway.cli.agent_run import forwarding
from gateway.cli.agent_settings import agent_config, config_option, directory_option
from gateway.cli.output import show_json, show_table
from gateway.configuration.sections import Config
from gateway.devices.agent.probe.machine import agent_state
from gateway.devices.fleet.assistant_states import BAD, SETTINGS
from gateway.devices.fleet.facts import ASSISTANTS, NOT_INSTALLED
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


@click.command()
@click.argument("assistant", required=False, type=click.Choice(ASSISTANTS))
@click.option(
    "--wait",
    "wait_s",
    type=click.IntRange(0, 3600),
    default=60,
    show_default=True,
    help="Seconds to wait for the agent and the gateway.",
)
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@click.option("--jamf", is_flag=True, help="Print one line for a Jamf extension attribute.")
@click.option("--intune", is_flag=True, help="Print one line.")
@directory_option
@config_option
def test(
    assistant: str | None,
    wait_s: int,
    as_json: bool,
    jamf: bool,
    intune: bool,
    data: Path | None,
    config: Path | None,
) -> None:
    """
    Test whether calls of the coding assistants of this machine arrive at the gateway.

    The settings of each assistant must send to the agent, as `tollhouse agent probe` sees them. Then a test call of
    zero tokens is sent to the agent, and another one to the gateway with the key of this device. Neither counts
    anywhere, and nothing is sent to another address. The exit code is 0 if calls arrive, and otherwise 1. Run it as
    the user of the agent.
    """
    if (as_json, jamf, intune).count(True) > 1:
        fail("use only one of --json, --jamf and --intune", 2)
    probed = settings_of(config, data)
    found = looked_at(probed)["assistants"]
    way = asyncio.run(_way(agent_config(config, data, {}), probed.data_dir, probed.listen, wait_s))
    results = list(_results(found, [assistant] if assistant else [], way))
    if as_json:
        show_json({"test": [result._asdict() for result in results]})
    elif jamf or intune:
        line = "; ".join(map(_line, results))
        click.echo(f"<result>{line}</result>" if jamf else line)
    else:
        show_table([result._asdict() for result in results], TestResult._fields)
    sys.exit(0 if all(result.arrived for result in results) else 1)


def _line(result: TestResult) -> str:
    return f"{result.assistant}: {'arrived' if result.arrived else result.cause}"


def _results(
    found: Mapping[str, Mapping[str, Any]], named: Sequence[str], way: TestResult
) -> Iterable[TestResult]:
    """Yield the results of the named assistants, or of all that are installed. Without any, yield that of the way."""
    names = named or [name for name, row in found.items() if row["state"] != NOT_INSTALLED]
    for name in names:
        row = found[name]
        if row["state"] == NOT_INSTALLED or SETTINGS[row["state"]] in BAD:
            yield TestResult(name, False, row["state"], row.get("cause", ""))
        else:
            yield way._replace(assistant=name)
    if not names:
        yield way


async def _way(config: Config, data_dir: Path, listen: str, wait_s: float) -> TestResult:
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
    checks = await check(forwarded.upstream, clock=clock)
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
