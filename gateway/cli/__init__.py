"""
The command line: arguments, messages and exit codes. Other packages never exit the process.

Each command's module is loaded when the command is called, so `tollhouse version` does not load the server.
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

# A command starts a garbage collection after this number of allocations. With Python's default of 700, a
# command takes a fifth longer to start, and the collections free nothing, because loaded modules stay in
# memory. A server sets another number after its start.
NEW_OBJECTS = 50_000

# command name -> module with a click command of the same name
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
    "prices": "gateway.cli.prices.command",
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
# Resources that the list above does not name are added at its end.
COMMANDS = {
    **COMMANDS,
    **{word: f"{package}.command" for word, package in RESOURCES.items() if word not in COMMANDS},
}

# Packages and container images install the configuration file at this path.
SERVICE_CONFIG = Path("/etc/tollhouse/tollhouse.toml")
PLACES = (Path("tollhouse.toml"), SERVICE_CONFIG)


def found_configuration(ctx: click.Context, param: click.Parameter, named: Path | None) -> Path | None:
    """
    Return the configuration file that the caller named, or the first existing file of PLACES.

    A file found in PLACES is reported on standard error. If --data is given, no file is searched, because the
    directory may belong to another installation.
    """
    if named is not None or ctx.params.get("data") is not None or ctx.resilient_parsing:
        return named
    for path in PLACES:
        with suppress(OSError):  # this user may not have access to the directory
            if path.is_file():
                click.echo(f"configuration: {path}", err=True)
                return path
    return None


CONFIG_HELP = (
    "Configuration file (TOML); default: ./tollhouse.toml, or /etc/tollhouse/tollhouse.toml if that is "
    "missing."
)
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
    is_eager=True,  # this option is read before --config, because the default of --config depends on it
    type=click.Path(path_type=Path, file_okay=False),
    help="Data directory; default: the data_dir setting, or ./tollhouse-data.",
)


class Commands(click.Group):
    """The commands of `tollhouse`. The module of a command is loaded when the command is called."""

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


def print_versions(ctx: click.Context, param: click.Parameter, is_given: bool) -> None:
    command = main.get_command(ctx, "version") if is_given and not ctx.resilient_parsing else None
    if command is not None:
        ctx.invoke(command)
        ctx.exit()


@click.option(
    "--version",
    is_flag=True,
    is_eager=True,
    expose_value=False,
    callback=print_versions,
    help="Print the versions of Tollhouse, Python and SQLite.",
)
@click.group(cls=Commands, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
def main() -> None:
    """
    Tollhouse, a telemetry gateway for AI spend.

    It collects reports of AI calls, merges all reports of a call into one cost record, and flushes the
    record to disk before it acknowledges it. `tollhouse serve` starts a gateway; `tollhouse COMMAND --help`
    explains a command.
    """


def configured(config: Path | None, flags: dict[str, Any] | None = None) -> Config:
    """Load the configuration. If it has problems, print one line for each and exit with code 2."""
    from gateway.service.configuration.reader import load
    from gateway.service.configuration.sections import ConfigError

    try:
        return load(config, flags=flags)
    except ConfigError as error:
        for problem in error.problems:
            click.echo(f"tollhouse: {printable(problem)}", err=True)
        sys.exit(2)


def fail(message: str, code: int = 1) -> NoReturn:
    """
    Print an error and exit. The message may quote a file or a response, so control characters are escaped.
    """
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
    Print a script for completion in your shell.

    bash: add `eval "$(tollhouse completion bash)"` to ~/.bashrc.

    zsh: add `eval "$(tollhouse completion zsh)"` to ~/.zshrc.

    fish: write the output to ~/.config/fish/completions/tollhouse.fish.
    """
    from click.shell_completion import get_completion_class

    completion_class = get_completion_class(shell)
    assert completion_class is not None
    click.echo(completion_class(ctx.find_root().command, {}, "tollhouse", "_TOLLHOUSE_COMPLETE").source())
