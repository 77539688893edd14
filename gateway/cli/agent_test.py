"""`tollhouse agent test`: whether a call of each coding assistant would arrive at the gateway now."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from gateway.cli import exit_with_message
from gateway.cli.agent_probe import find_assistants, read_probe_settings
from gateway.cli.agent_settings import config_option, directory_option, load_agent_config
from gateway.cli.output import show_json, show_table
from gateway.devices.fleet.assistant_states import BAD, SETTINGS
from gateway.devices.fleet.heartbeat_facts import NOT_INSTALLED, UNREACHABLE
from gateway.normalise.assistants import ASSISTANTS

if TYPE_CHECKING:
    from gateway.cli.agent_delivery import DeliveryResult
    from gateway.devices.fleet.repairs import CauseRepair

GATEWAY_REFUSES: Final = 3  # exit codes
UNREACHED: Final = 4


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
    anywhere, and nothing is sent to another address. The exit code is 0 if calls arrive, 3 if the gateway refuses
    them, 4 if it cannot be reached, and otherwise 1. Run it as the user of the agent.
    """
    # imported here, so that --help does not load the code that sends calls
    from gateway.cli.agent_delivery import try_delivery

    if (as_json, jamf, intune).count(True) > 1:
        exit_with_message("use only one of --json, --jamf and --intune", 2)
    probed = read_probe_settings(config, data)
    found = find_assistants(probed)["assistants"]
    way = asyncio.run(
        try_delivery(load_agent_config(config, data, {}), probed.data_dir, probed.listen, wait_s)
    )
    results = list(_results_by_assistant(found, [assistant] if assistant else [], way))
    if as_json:
        show_json({"test": [result._asdict() for result in results]})
    elif jamf or intune:
        line = "; ".join(map(_one_line_result, results))
        click.echo(f"<result>{line}</result>" if jamf else line)
    else:
        _show_results(results)
    sys.exit(max(map(_exit_code, results)))


def _exit_code(result: DeliveryResult) -> int:
    from gateway.cli.agent_delivery import NOT_REACHED, REFUSALS

    if result.arrived:
        return 0
    if result.cause in NOT_REACHED:
        return UNREACHED
    return GATEWAY_REFUSES if result.cause in REFUSALS else 1


def _show_results(results: Sequence[DeliveryResult]) -> None:
    repairs = {result: _cause_and_repair_of_result(result) for result in results if not result.arrived}
    rows = [
        {
            "assistant": result.assistant,
            "arrives": "no" if result in repairs else "yes",
            "reason": repairs[result].words if result in repairs else "",
        }
        for result in results
    ]
    show_table(rows, ("assistant", "arrives", "reason"))
    for advice in dict.fromkeys(repair.advice for repair in repairs.values()):
        click.echo(advice)


def _cause_and_repair_of_result(result: DeliveryResult) -> CauseRepair:
    from gateway.devices.fleet.repairs import CauseRepair, repair_of_cause

    if result.cause not in _OF_WAY:
        return repair_of_cause((result.cause, result.words))
    words, advice = _OF_WAY[result.cause]
    details = f" ({result.words})" if result.words else ""
    return CauseRepair(words + details, advice or repair_of_cause((UNREACHABLE, result.cause)).advice)


# cause -> why a call does not arrive, and the repair; "" stands for the repair that find_repair() gives for
# this cause
_OF_WAY: Mapping[str, tuple[str, str]] = {
    NOT_INSTALLED: ("is not installed on this machine", "`tollhouse agent probe` lists what is installed."),
    "agent_down": ("the agent is stopped", ""),
    "port_taken": ("another program has the agent's port", ""),
    "agent_refuses": ("the agent refuses the call", "Look at the agent's log."),
    "not_enrolled": (
        "this device is not enrolled",
        "Check the enrolment key of the agent, and whether the device waits for approval: `tollhouse agent status`.",
    ),
    "tls": ("the agent does not trust the gateway's certificate", ""),
    "dns": ("the gateway's name cannot be resolved", ""),
    "no_answer": (
        "the gateway does not answer",
        "Check the network, the proxy and the firewall of this machine, and whether the gateway runs.",
    ),
    "busy": (
        "the gateway cannot accept calls now",
        "Look at the gateway's log. The agent sends its calls later.",
    ),
    "refused": (
        "the gateway refuses the call",
        "Check the device's key and state at the gateway: `tollhouse devices show`.",
    ),
    "backlog": ("earlier calls still wait on this machine", ""),
}


def _one_line_result(result: DeliveryResult) -> str:
    return f"{result.assistant}: {'arrived' if result.arrived else result.cause}"


def _results_by_assistant(
    states_by_assistant: Mapping[str, Mapping[str, Any]], named: Sequence[str], machine_result: DeliveryResult
) -> Iterable[DeliveryResult]:
    names = named or [name for name, row in states_by_assistant.items() if row["state"] != NOT_INSTALLED]
    for name in names:
        row = states_by_assistant[name]
        if row["state"] == NOT_INSTALLED or SETTINGS[row["state"]] in BAD:
            yield machine_result._replace(
                assistant=name, arrived=False, cause=row["state"], words=row.get("cause", "")
            )
        else:
            yield machine_result._replace(assistant=name)
    if not names:
        yield machine_result
