"""Options and settings that the commands of `tollhouse agent` share."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from gateway.cli import exit_with_message, load_config_or_exit
from gateway.devices.agent.hook_settings import EXAMPLE, hook_command_problem

# imported late, because the probe is started often and must start fast
if TYPE_CHECKING:
    from gateway.configuration.sections import Config

endpoint_option = click.option(
    "--endpoint",
    metavar="URL",
    help="HTTP address of this machine's agent; default: the agent's server.listen.",
)


def _refuse_invalid_hook_command(ctx: click.Context, param: click.Parameter, command: str) -> str:
    if command and (problem := hook_command_problem(command)):
        exit_with_message(problem, 2)
    return command


hook_option = click.option(
    "--hook",
    metavar="COMMAND",
    default="",
    callback=_refuse_invalid_hook_command,
    help=f"Also let the hooks of Claude Code run this command, such as '{EXAMPLE}'; default: no hook.",
)
# The agent has its own configuration file, so this option does not search the places of a gateway's file.
config_option = click.option(
    "--config",
    type=click.Path(path_type=Path, dir_okay=False),
    help="Configuration file (TOML) of the agent.",
)
directory_option = click.option(
    "--data",
    type=click.Path(path_type=Path, file_okay=False),
    help="Data directory of the agent; default: the data_dir setting, or ~/.local/share/tollhouse-agent.",
)


def agent_endpoint(config: Config) -> str:
    return f"http://{config.server.listen}"


def load_agent_config(config: Path | None, data: Path | None, flags: Mapping[str, Any]) -> Config:
    return load_config_or_exit(config, flags_with_data_directory(config, data, flags))


def flags_with_data_directory(
    config: Path | None, data: Path | None, flags: Mapping[str, Any]
) -> dict[str, Any]:
    directory = data or (None if config or "TOLLHOUSE_DATA_DIR" in os.environ else _default_agent_directory())
    return {**flags, "data_dir": str(directory.absolute()) if directory else None}


def _default_agent_directory() -> Path:
    base = os.environ.get("XDG_DATA_HOME")
    return (Path(base) if base else Path.home() / ".local" / "share") / "tollhouse-agent"
