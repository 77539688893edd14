"""`tollhouse agent probe` and `status`: the states of the coding assistants of this machine."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import click
import orjson

from gateway.cli import fail
from gateway.cli.agent_settings import (
    agent_config,
    config_option,
    directory_option,
    endpoint_of,
    endpoint_option,
)
from gateway.cli.output import show_table
from gateway.devices.agent.link import STATES_FILE
from gateway.devices.fleet.assistant_states import FINE
from gateway.devices.fleet.facts import ASSISTANT_OF_SOURCE, ASSISTANTS, NOT_INSTALLED
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
    from gateway.devices.agent.probe.folders import store  # here, so that the agent does not load it

    settings = agent_config(config, data, {})
    found = looked(settings)
    try:
        store(settings.data_dir, STATES_FILE, json_for_people(found) + "\n")
    except FileNotFoundError:
        click.echo(f"{settings.data_dir} does not exist, so nothing was stored; start the agent", err=True)
    except OSError as error:
        fail(f"{settings.data_dir / STATES_FILE} cannot be written: {error.strerror}")
    if as_json:
        click.echo(json_for_people(found, option=orjson.OPT_INDENT_2))
    else:
        show_table(table_of(found), COLUMNS)


@click.command()
@endpoint_option
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@click.option(
    "--jamf",
    metavar="ASSISTANT",
    type=click.Choice(ASSISTANTS),
    help="Print the state for a Jamf extension attribute.",
)
@click.option(
    "--intune",
    is_flag=True,
    help="Print one line. The exit code is 1 if an assistant needs a repair, and else 0.",
)
@directory_option
@config_option
def status(
    endpoint: str | None,
    as_json: bool,
    jamf: str | None,
    intune: bool,
    data: Path | None,
    config: Path | None,
) -> None:
    """
    Show the state of each assistant, and when it last reported to this agent.

    The state is that of `tollhouse agent probe`: of all users if you are root, and otherwise of your home. The
    column "configured" of --json is of your own settings.
    """
    if (as_json, bool(jamf), intune).count(True) > 1:
        fail("use only one of --json, --jamf and --intune", 2)
    settings = agent_config(config, data, {})
    found = looked(settings, endpoint)["assistants"]
    if jamf:
        click.echo(f"<result>{_words(found[jamf])}</result>")
    elif intune:
        installed = {name: row for name, row in found.items() if row["state"] != NOT_INSTALLED}
        click.echo(
            "; ".join(f"{name}: {_words(row)}" for name, row in installed.items())
            or "no assistant is installed"
        )
        sys.exit(0 if all(row["state"] in FINE for row in installed.values()) else 1)
    else:
        rows = _status_rows(found, settings.data_dir, endpoint or endpoint_of(settings))
        if as_json:
            click.echo(json_for_people({"assistants": rows}, option=orjson.OPT_INDENT_2))
        else:
            show_table(rows, ("assistant", "state", "cause", "version", "last_seen", "records_today"))


def _words(row: Mapping[str, Any]) -> str:
    return f"{row['state']} ({row['cause']})" if row.get("cause") else str(row["state"])


def _status_rows(
    found: Mapping[str, Mapping[str, Any]], directory: Path, endpoint: str
) -> list[dict[str, Any]]:
    from gateway.devices.agent import activity

    seen, today = activity.read(directory), activity.day_of(SystemClock().now())
    rows = []
    for name, row in found.items():
        activities = [seen[source] for source in seen if ASSISTANT_OF_SOURCE.get(source) == name]
        newest = max(activities, key=lambda sender: sender.last_seen, default=None)
        rows.append(
            {
                "assistant": name,
                "state": row["state"],
                "cause": row.get("cause"),
                "version": row.get("version"),
                "configured": _configured(name, endpoint) or ("yes" if row["configured"] else "no"),
                "last_seen": activity.describe(newest, today)["last_seen"] if newest else None,
                "records_today": sum(sender.records for sender in activities if sender.day == today),
            }
        )
    return rows


def _configured(name: str, endpoint: str) -> str:
    """Return whether the user's own settings are those of `agent setup`, or "" if it does not know the assistant."""
    from gateway.devices.agent.assistants import ASSISTANTS as SETTINGS
    from gateway.devices.agent.settings import NotEditable, configured_for

    assistant = SETTINGS.get(name)
    if assistant is None:
        return ""
    try:
        return "no" if configured_for(assistant, assistant.file(), endpoint).changed else "yes"
    except (NotEditable, OSError):
        return "unreadable"


def looked(settings: Config, endpoint: str | None = None) -> dict[str, Any]:
    from gateway.devices.agent.probe.machine import look_around  # here, so that the agent does not load it

    now = SystemClock().now()
    addresses = [
        f"http://{address}" for address in (settings.server.listen, settings.server.grpc_listen) if address
    ]
    found = look_around(
        settings.data_dir,
        ours=[*addresses, settings.agent.gateway, *([endpoint] if endpoint else [])],
        report=settings.agent.report,
        now=now,
        listen=settings.server.listen,
    )
    return {"looked_at": moment(int(now)), **found}


def table_of(found: dict[str, Any]) -> list[dict[str, Any]]:
    rows = found.get("assistants") or {}
    return [{name: row.get(name) for name in COLUMNS} | {"assistant": key} for key, row in rows.items()]
