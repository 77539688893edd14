"""
The command line: arguments, messages and exit codes, and the only place that exits.

Commands are loaded when they are called, so that `tollhouse version` does not pay for the server's imports.
"""

from __future__ import annotations

import gc
import importlib
import sys
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

import click

from gateway.http.resources.list import RESOURCES
from spool.printable import printable

if TYPE_CHECKING:
    from gateway.service.configuration.sections import Config

# Between two rounds of the collector. Python's own 700 cost a fifth of a start, and free nothing: what is
# loaded stays. A server has its own number from the end of its start on.
NEW_OBJECTS = 50_000

# word -> module that holds a click command of the same name
COMMANDS = {
    "serve": "gateway.cli.serve",
    "init": "gateway.cli.init",
    "reload": "gateway.cli.operator.configuration",
    "configuration": "gateway.cli.operator.configuration",
    "storage": "gateway.cli.storage",
    "backup": "gateway.cli.backup",
    "restore": "gateway.cli.backup",
    "check": "gateway.cli.check",
    "doctor": "gateway.cli.doctor",
    "health": "gateway.cli.health",
    "drill": "gateway.cli.drill.command",
    "explain": "gateway.cli.explain",
    "send": "gateway.cli.send.command",
    "keys": "gateway.cli.operator.keys",
    "devices": "gateway.cli.operator.devices",
    "clusters": "gateway.cli.operator.clusters",
    "container": "gateway.cli.operator.clusters",
    "agent": "gateway.cli.agent",
    "spool": "gateway.cli.operator.spool",
    "lake": "gateway.cli.lake.command",
    "events": "gateway.cli.operator.streams",
    "streams": "gateway.cli.operator.streams",
    "billing": "gateway.cli.operator.money.ledger",
    "connections": "gateway.cli.operator.money.connections",
    "budgets": "gateway.money.budgets.command",
    "export": "gateway.cli.operator.export",
    "ledger": "gateway.cli.operator.money.ledger",
    "report": "gateway.cli.operator.money.report",
    "reconcile": "gateway.cli.operator.money.reconcile",
    "billed": "gateway.cli.operator.money.billed",
    "views": "gateway.cli.operator.money.views",
    "allocation": "gateway.money.allocation.command",
    "mcp": "gateway.cli.operator.mcp",
    "tail": "gateway.cli.operator.watch",
    "top": "gateway.cli.operator.watch",
    "insights": "gateway.cli.operator.insights",
    "recommendations": "gateway.cli.operator.money.recommendations",
    "notifications": "gateway.cli.operator.money.notifications",
    "scheduled-reports": "gateway.money.calls.reports.command",
    "annotations": "gateway.money.annotations.command",
    "plans": "gateway.bills.plans.command",
    "demo": "gateway.cli.demo",
    "operators": "gateway.cli.operator.people",
    "people-names": "gateway.cli.operator.people",
    "roles": "gateway.cli.operator.roles",
    "console": "gateway.cli.operator.people",
    "completion": "gateway.cli",
    "version": "gateway.cli",
}
# A resource that is not placed above comes last.
COMMANDS = {
    **COMMANDS,
    **{word: f"{package}.command" for word, package in RESOURCES.items() if word not in COMMANDS},
}

# Where the configuration is looked for when it is not named; the second is that of packages and images.
SERVICE_CONFIG = Path("/etc/tollhouse/tollhouse.toml")
PLACES = (Path("tollhouse.toml"), SERVICE_CONFIG)


def found_configuration(ctx: click.Context, param: click.Parameter, named: Path | None) -> Path | None:
    """
    The configuration that is named, else the first of PLACES that is there, which is told.

    A data directory that is named has its own installation: then nothing is looked for.
    """
    if named is not None or ctx.params.get("data") is not None or ctx.resilient_parsing:
        return named
    for place in PLACES:
        with suppress(OSError):  # a directory that this user may not look into
            if place.is_file():
                click.echo(f"configuration: {place}", err=True)
                return place
    return None


CONFIG_HELP = "The configuration file (TOML); default: ./tollhouse.toml, else /etc/tollhouse/tollhouse.toml."
CONFIG_VARIABLE = "TOLLHOUSE_CONFIG"
config_option = click.option(
    "--config",
    type=click.Path(path_type=Path, dir_okay=False),
    envvar=CONFIG_VARIABLE,
    show_envvar=True,
    callback=found_configuration,
    help=CONFIG_HELP,
)
data_option = click.option(
    "--data",
    is_eager=True,  # read before --config, whose default depends on it
    type=click.Path(path_type=Path, file_okay=False),
    help="The data directory; default: that of the configuration, else ./tollhouse-data.",
)


class Commands(click.Group):
    """Looks commands up in the table; a wrong word gets the nearest right one."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in COMMANDS:
            return None
        gc.set_threshold(NEW_OBJECTS)
        command: click.Command = getattr(
            importlib.import_module(COMMANDS[cmd_name]), cmd_name.replace("-", "_")
        )
        return command


def print_versions(ctx: click.Context, param: click.Parameter, asked: bool) -> None:
    """Do what `tollhouse version` does, for those who look for it behind a flag."""
    command = main.get_command(ctx, "version") if asked and not ctx.resilient_parsing else None
    if command is not None:
        ctx.invoke(command)
        ctx.exit()


@click.option(
    "--version",
    is_flag=True,
    is_eager=True,
    expose_value=False,
    callback=print_versions,
    help="Print the versions, as `tollhouse version` does.",
)
@click.group(cls=Commands, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
def main() -> None:
    """
    Tollhouse, a telemetry gateway for AI spend: one trustworthy cost record per call, on disk before the answer.
    """


def configured(config: Path | None, flags: dict[str, Any] | None = None) -> Config:
    """The configuration, or exit 2 with every problem on a line of its own."""
    from gateway.service.configuration.reader import load
    from gateway.service.configuration.sections import ConfigError

    try:
        return load(config, flags=flags)
    except ConfigError as error:
        for problem in error.problems:
            click.echo(f"tollhouse: {printable(problem)}", err=True)
        sys.exit(2)


def fail(message: str, code: int = 1) -> NoReturn:
    """Say why and leave. What is said may quote a file or an answer."""
    lines = "\n".join(map(printable, message.split("\n")))
    click.echo(f"tollhouse: {lines}", err=True)
    sys.exit(code)


@click.command()
def version() -> None:
    """Print the versions of Tollhouse, Python and SQLite."""
    import platform
    from importlib.metadata import version as installed

    from spool.engines import engine_of
    from spool.settings import SQLITE

    click.echo(f"tollhouse {installed('tollhouse')}")
    click.echo(f"python {platform.python_version()}")
    click.echo(engine_of(SQLITE).version())


@click.command()
@click.argument("shell", type=click.Choice(("bash", "zsh", "fish")))
@click.pass_context
def completion(ctx: click.Context, shell: str) -> None:
    """
    Print the script that completes commands and options in a shell.

    For bash add `eval "$(tollhouse completion bash)"` to ~/.bashrc, for zsh the same with zsh to ~/.zshrc;
    for fish write what is printed to ~/.config/fish/completions/tollhouse.fish.
    """
    from click.shell_completion import get_completion_class

    made = get_completion_class(shell)
    assert made is not None
    click.echo(made(ctx.find_root().command, {}, "tollhouse", "_TOLLHOUSE_COMPLETE").source())
