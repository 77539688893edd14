"""`tollhouse agent probe` and `status`: the states of the coding assistants of this machine."""

from __future__ import annotations

import os
import sys
import tomllib
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import click
import msgspec
import orjson

from gateway.cli import exit_with_message
from gateway.cli.agent_settings import config_option, directory_option, endpoint_option, load_agent_config
from gateway.cli.output import show_table
from gateway.devices.agent.link import ENDPOINT, SERIAL, STATES_FILE, USE, USER, USES_FILE
from gateway.devices.fleet.heartbeat_facts import NOT_INSTALLED
from gateway.normalise.assistants import ASSISTANTS, assistant_of_source
from spool.clock import SystemClock
from spool.printable import printable_json
from spool.record import utc_iso

if TYPE_CHECKING:
    from gateway.devices.agent.probe.machine import ProbeResult

VARIABLES = "TOLLHOUSE_"
COLUMNS = ("assistant", "state", "cause", "version", "used_at")


@click.command()
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@directory_option
@config_option
def probe(as_json: bool, data: Path | None, config: Path | None) -> None:
    """
    Inspect the coding assistants of this machine once.

    The agent sends the result to the gateway. As root, the command inspects the homes of all users, and
    otherwise your own home. It reads known settings files, and only the time of session files.
    """
    from gateway.devices.agent.probe.folders import (
        replace_file,  # imported here, so that the agent does not load it
    )

    settings = read_probe_settings(config, data)
    found, memories = _probe_assistants(settings)
    try:
        replace_file(settings.data_dir, STATES_FILE, printable_json(found) + "\n")
        replace_file(settings.data_dir, USES_FILE, msgspec.json.encode(memories).decode())
    except FileNotFoundError:
        click.echo(f"{settings.data_dir} does not exist, so nothing was stored; start the agent", err=True)
    except OSError as error:
        exit_with_message(f"{settings.data_dir / STATES_FILE} cannot be written: {error.strerror}")
    if as_json:
        click.echo(printable_json(found, option=orjson.OPT_INDENT_2))
    else:
        show_table(assistant_rows(found), COLUMNS)


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

    The state is that of `tollhouse agent probe`: of all users if you are root, and otherwise of your home.
    With --json, "configured" is always about your own settings.
    """
    if (as_json, bool(jamf), intune).count(True) > 1:
        exit_with_message("use only one of --json, --jamf and --intune", 2)
    settings = read_probe_settings(config, data)
    found = _probe_assistants(settings, endpoint).found["assistants"]
    if jamf:
        click.echo(f"<result>{_describe_assistant_state(found[jamf])}</result>")
    elif intune:
        from gateway.devices.fleet.assistant_states import FINE

        installed = {name: row for name, row in found.items() if row["state"] != NOT_INSTALLED}
        click.echo(
            "; ".join(f"{name}: {_describe_assistant_state(row)}" for name, row in installed.items())
            or "no assistant is installed"
        )
        sys.exit(0 if all(row["state"] in FINE for row in installed.values()) else 1)
    else:
        rows = _assistant_status_rows(found, settings.data_dir, endpoint or f"http://{settings.listen}")
        if as_json:
            click.echo(printable_json({"assistants": rows}, option=orjson.OPT_INDENT_2))
        else:
            show_table(rows, ("assistant", "state", "cause", "version", "last_seen", "records_today"))


def _describe_assistant_state(row: Mapping[str, Any]) -> str:
    return f"{row['state']} ({row['cause']})" if row.get("cause") else str(row["state"])


def _assistant_status_rows(
    found: Mapping[str, Mapping[str, Any]], directory: Path, endpoint: str
) -> list[dict[str, Any]]:
    from gateway.devices.agent import activity
    from gateway.devices.agent.heard_calls import read_heard_calls
    from gateway.devices.agent.probe.look import AgentLink

    seen, today = activity.read_activity(directory), activity.day_in_local_time(SystemClock().now())
    link = AgentLink(calls=read_heard_calls(directory))
    rows = []
    for name, row in found.items():
        activities = [seen[source] for source in seen if assistant_of_source(source) == name]
        times = [sender.last_seen for sender in activities]
        times += [ended] if (ended := link.newest_call(name)) is not None else []
        rows.append(
            {
                "assistant": name,
                "state": row["state"],
                "cause": row.get("cause"),
                "version": row.get("version"),
                "configured": _telemetry_setup_state(name, endpoint)
                or ("yes" if row["configured"] else "no"),
                "last_seen": utc_iso(max(times, default=None)),
                "records_today": sum(sender.records for sender in activities if sender.day == today),
            }
        )
    return rows


def _telemetry_setup_state(name: str, endpoint: str) -> str:
    from gateway.devices.agent.assistants import ASSISTANTS as SETTINGS
    from gateway.devices.agent.settings import NotEditable, edit_settings

    assistant = SETTINGS.get(name)
    if assistant is None:
        return ""
    try:
        return "no" if edit_settings(assistant, assistant.file(), endpoint).has_changes else "yes"
    except (NotEditable, OSError):
        return "unreadable"


class ProbeSettings(NamedTuple):
    """The settings that one run of the agent's probe needs."""

    data_dir: Path
    listen: str
    grpc_listen: str
    gateway: str
    report: Sequence[str]


def read_probe_settings(
    config: Path | None, data: Path | None, *, env: Mapping[str, str] = os.environ
) -> ProbeSettings:
    """
    Read the settings of the probe, which runs every five minutes on every laptop. A usual file is read without the
    rules for all other settings, which would take half of the probe's time.
    """
    if config is not None and not any(name.startswith(VARIABLES) for name in env):
        with suppress(OSError, ValueError, TypeError, msgspec.ValidationError):
            tree = msgspec.convert(tomllib.loads(config.read_text("utf-8")), _File)
            if set(tree.agent.report) <= {USER, USE, SERIAL, ENDPOINT} and (data or tree.data_dir):
                folder = data or config.parent / tree.data_dir
                server, agent = tree.server, tree.agent
                return ProbeSettings(
                    folder.absolute(), server.listen, server.grpc_listen, agent.gateway, agent.report
                )
    whole = load_agent_config(config, data, {})
    return ProbeSettings(
        whole.data_dir, whole.server.listen, whole.server.grpc_listen, whole.agent.gateway, whole.agent.report
    )


class _Server(msgspec.Struct):
    listen: str = "127.0.0.1:4318"
    grpc_listen: str = "127.0.0.1:4317"


class _Agent(msgspec.Struct):
    gateway: str = ""
    report: tuple[str, ...] = (USER, USE)


class _File(msgspec.Struct):
    """
    The part of a configuration file that the probe needs. A test compares its defaults with those of all
    settings.
    """

    data_dir: str = ""
    server: _Server = msgspec.field(default_factory=_Server)
    agent: _Agent = msgspec.field(default_factory=_Agent)


def find_assistants(settings: ProbeSettings) -> Mapping[str, Any]:
    return _probe_assistants(settings).found


def _probe_assistants(settings: ProbeSettings, endpoint: str | None = None) -> ProbeResult:
    from gateway.devices.agent.probe.machine import (
        probe_machine,
    )  # imported here, so that the agent does not load it

    now = SystemClock().now()
    addresses = [f"http://{address}" for address in (settings.listen, settings.grpc_listen) if address]
    looked = probe_machine(
        settings.data_dir,
        ours=[*addresses, settings.gateway, *([endpoint] if endpoint else [])],
        report=settings.report,
        now=now,
        listen=settings.listen,
    )
    return looked._replace(found={"looked_at": utc_iso(int(now)), **looked.found})


def assistant_rows(found: dict[str, Any]) -> list[dict[str, Any]]:
    rows = found.get("assistants") or {}
    return [{name: row.get(name) for name in COLUMNS} | {"assistant": key} for key, row in rows.items()]
