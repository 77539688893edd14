"""`tollhouse agent probe`: looks once at the coding assistants of this machine, and stores their states."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

import click
import orjson

from gateway.cli import fail
from gateway.cli.agent_settings import agent_config, config_option, directory_option
from gateway.cli.output import show_table
from gateway.devices.agent.identity import write_private
from gateway.devices.agent.link import STATES_FILE
from gateway.service.configuration.sections import Config
from spool.clock import SystemClock
from spool.printable import json_for_people
from spool.record import moment

COLUMNS = ("assistant", "state", "cause", "version", "used_at")


@click.command()
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@directory_option
@config_option
def probe(as_json: bool, data: Path | None, config: Path | None) -> None:
    """
    Look at the coding assistants of this machine once.

    The agent sends the result to the gateway. As root, the command looks at the homes of all users, and otherwise
    at the own home. It reads known settings files, and only the time of session files.
    """
    settings = agent_config(config, data, {})
    found = looked(settings)
    try:
        if settings.data_dir.is_dir():
            is_root = sys.platform != "win32" and os.geteuid() == 0
            # the agent may be another user than root; its directory keeps other users out
            write_private(
                settings.data_dir / STATES_FILE,
                json_for_people(found) + "\n",
                mode=0o644 if is_root else 0o600,
            )
        else:
            click.echo(
                f"{settings.data_dir} does not exist, so nothing was stored; start the agent", err=True
            )
    except OSError as error:
        fail(f"{settings.data_dir / STATES_FILE} cannot be written: {error.strerror}")
    if as_json:
        click.echo(json_for_people(found, option=orjson.OPT_INDENT_2))
    else:
        show_table(table_of(found), COLUMNS)


def looked(settings: Config) -> dict[str, Any]:
    from gateway.devices.agent.probe.machine import look_around  # here, so that the agent does not load it

    now = SystemClock().now()
    addresses = [
        f"http://{address}" for address in (settings.server.listen, settings.server.grpc_listen) if address
    ]
    found = look_around(
        settings.data_dir,
        ours=[*addresses, settings.agent.gateway],
        report=settings.agent.report,
        now=now,
        listen=settings.server.listen,
    )
    return {"looked_at": moment(int(now)), **found}


def table_of(found: dict[str, Any]) -> list[dict[str, Any]]:
    rows = found.get("assistants") or {}
    return [{name: row.get(name) for name in COLUMNS} | {"assistant": key} for key, row in rows.items()]
