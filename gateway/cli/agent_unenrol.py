"""`tollhouse agent unenrol`: the end of this device at its gateway."""

from __future__ import annotations

import asyncio
from pathlib import Path

import click

from gateway.cli import exit_with_message
from gateway.cli.agent_settings import config_option, directory_option, load_agent_config
from gateway.cli.serve import describe_stop
from gateway.devices.agent.identity import KEY_FILE
from spool.errors import SpoolError


@click.command()
@click.option(
    "--wait",
    "wait_s",
    type=click.IntRange(0, 3600),
    default=30,
    show_default=True,
    help="Seconds in which waiting records are delivered.",
)
@click.option(
    "--force", is_flag=True, help="End the key although records wait. They can then not be delivered."
)
@click.option(
    "--keep-key",
    is_flag=True,
    help="Only say that the agent is removed. The key stays valid for 7 days, for an agent that is installed again.",
)
@directory_option
@config_option
def unenrol(wait_s: int, force: bool, keep_key: bool, data: Path | None, config: Path | None) -> None:
    """
    Deliver waiting records, end the key of this device at the gateway, and delete it.

    Stop the agent first. The gateway then shows the device as `left`. Its records stay, at the gateway and on this
    machine. With an enrolment key or token, the device can enrol again.
    """
    # imported here, so that --help does not load the server
    from gateway.cli.agent_leaving import deliver_waiting_records, report_leaving

    settings = load_agent_config(config, data, {})
    key_file = settings.data_dir / KEY_FILE
    if not key_file.exists():
        click.echo("this device has no key, so there is nothing to end")
        return
    if not settings.agent.gateway:
        exit_with_message("agent.gateway is required: gateway under [agent] in the configuration file", 2)
    try:
        waiting = asyncio.run(deliver_waiting_records(settings, wait_s)) if wait_s else 0
    except (SpoolError, OSError) as error:
        exit_with_message(f"waiting records cannot be delivered: {describe_stop(error)}")
    if waiting and not (force or keep_key):
        exit_with_message(
            f"{waiting} records still wait, so the key was not ended; try again, or use --force"
        )
    problem = asyncio.run(report_leaving(settings, keep_key=keep_key))
    if problem:
        exit_with_message(f"the gateway does not know that this device leaves: {problem}")
    if not keep_key:
        key_file.unlink()
    click.echo(
        "the device left its gateway" if keep_key else "the device left its gateway; its key was deleted"
    )
