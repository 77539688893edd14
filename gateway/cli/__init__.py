"""
The command line: arguments, messages and exit codes. Other packages never exit the process.

Each command's module is loaded when the command is called, so `tollhouse version` does not load the server.
"""

from __future__ import annotations

import gc
import importlib
import os
import sys
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

import click
from click.exceptions import NoSuchCommand
from click.shell_completion import CompletionItem

from gateway.operations.list import RESOURCES
from spool.printable import replace_unprintable

if TYPE_CHECKING:
    from gateway.configuration.sections import Config

# A command starts a garbage collection after this number of allocations. With Python's default of 700, a
# command takes a fifth longer to start, and the collections free nothing, because loaded modules stay in
# memory. A server sets another number after its start.
NEW_OBJECTS = 50_000

# heading -> command name -> its module, which has a click command of the same name, and its line in the list. The
# lines are written here, so that the list loads no module. tests/gateway/cli compares them with the commands.
_LISTED: Mapping[str, Mapping[str, tuple[str, str]]] = {
    "Everyday commands": {
        "serve": ("gateway.cli.serve", "Run the gateway until SIGTERM or SIGINT."),
        "init": ("gateway.cli.init", "Write a first configuration file with comments."),
        "send": ("gateway.cli.send.command", "Send files with AI calls to a gateway."),
        "report": ("gateway.cli.operator.money.report", "Report AI costs by team, user, model and more."),
        "keys": ("gateway.cli.operator.keys", "Create, list, change and delete API keys."),
        "budgets": ("gateway.cli.operator.money.budgets", "Create, list, change and delete budgets."),
        "insights": ("gateway.cli.operator.insights", "List and handle findings about AI spend."),
        "doctor": ("gateway.cli.doctor", "Inspect this installation and report problems."),
    },
    "Costs and bills": {
        "views": ("gateway.cli.operator.money.views", "Manage views, which are saved filters over AI costs."),
        "allocation": ("gateway.cli.operator.money.allocation", "Define your own dimensions by rules."),
        "prices": (
            "gateway.cli.prices.command",
            "Show the prices of a model, set own prices, and load a newer price list.",
        ),
        "plans": ("gateway.cli.operator.plans", "Manage plans of assistants, and show their costs."),
        "contracts": (
            "gateway.cli.operator.contracts",
            "Manage contracts with providers, and show their costs.",
        ),
        "work": (
            "gateway.cli.operator.work",
            "Show the cost of one session or pull request, and link work to pull requests, tickets and parents.",
        ),
        "recommendations": (
            "gateway.cli.operator.money.recommendations",
            "List and handle possible savings.",
        ),
        "reconcile": ("gateway.cli.operator.money.reconcile", "Compare provider bills with counted costs."),
        "enforcers": (
            "gateway.cli.operator.money.enforcers",
            "Compare limits of gateways and providers with counted costs.",
        ),
        "billed": (
            "gateway.cli.operator.money.billed",
            "Record invoices, and close months of provider bills.",
        ),
        "ledger": (
            "gateway.cli.operator.money.ledger",
            "Show, recount or recalculate the totals behind reports.",
        ),
        "export": (
            "gateway.cli.operator.export",
            "Export cost and usage in formats that other tools read, and settings as files.",
        ),
    },
    "Senders": {
        "agent": ("gateway.cli.agent", "Run on a laptop: forward coding assistants' telemetry."),
        "devices": ("gateway.cli.operator.devices", "List, admit, approve, revoke and delete devices."),
        "fleet": (
            "gateway.cli.operator.fleet",
            "Show which machines and assistants report, and why others do not.",
        ),
        "clusters": ("gateway.cli.operator.clusters", "Manage the Kubernetes clusters that report here."),
        "container": ("gateway.cli.operator.clusters", "Show container metrics and their waiting files."),
        "events": ("gateway.cli.operator.events", "Send and list usage events."),
        "streams": ("gateway.cli.operator.streams", "List unit-cost streams; resolve unanswered deliveries."),
        "explain": ("gateway.cli.explain", "Show the records that a payload would produce."),
    },
    "Delivery and storage": {
        "spool": ("gateway.cli.operator.spool", "Show and repair the queue on disk and its routes."),
        "billing": ("gateway.cli.operator.money.ledger", "Preview and send AI costs as billing files."),
        "connections": (
            "gateway.cli.operator.money.connections",
            "Manage billing connections and their files.",
        ),
        "lake": ("gateway.cli.lake.command", "Verify, repair and import data lake files."),
        "storage": ("gateway.cli.storage", "Set up, upgrade, inspect and copy the storage."),
        "backup": ("gateway.cli.backup", "Back up all data into a new directory."),
        "restore": ("gateway.cli.backup", "Restore BACKUP into an empty data directory."),
    },
    "People and notifications": {
        "operators": ("gateway.cli.operator.people", "Manage operator accounts and their sessions."),
        "roles": ("gateway.cli.operator.roles", "Manage roles: what people may do and see."),
        "people": ("gateway.cli.operator.people", "Link the names of a person, and assign names to show."),
        "console": ("gateway.cli.operator.people", "Sign in to the console."),
        "mcp": ("gateway.cli.operator.mcp", "Run an MCP server for an assistant."),
        "notifications": (
            "gateway.cli.operator.money.notifications",
            "Manage notifications and the channels that send them.",
        ),
        "scheduled-reports": (
            "gateway.cli.operator.money.scheduled_reports",
            "Send costs by mail or chat, each week or month.",
        ),
    },
    "Operation": {
        "tail": ("gateway.cli.operator.watch", "Show records as they are committed, until Ctrl-C."),
        "top": ("gateway.cli.operator.watch", "Show live rates, queues and routes, until Ctrl-C."),
        "check": ("gateway.cli.check", "Check the configuration without starting anything."),
        "reload": (
            "gateway.cli.operator.configuration",
            "Reload configuration, keys, prices and certificates.",
        ),
        "configuration": (
            "gateway.cli.operator.configuration",
            "List the settings in effect, and where each comes from.",
        ),
        "plan": ("gateway.cli.operator.files", "Compare the settings with the files of a directory."),
        "apply": ("gateway.cli.operator.files", "Make the settings equal to the files of a directory."),
        "health": ("gateway.cli.health", "Check that the running server is alive (/livez)."),
        "drill": ("gateway.cli.drill.command", "Test a copy of this installation with faults."),
        "demo": ("gateway.cli.demo", "Fill a data directory with a month of generated calls."),
        "completion": ("gateway.cli", "Print a script for completion in your shell."),
        "version": ("gateway.cli", "Print the versions of Tollhouse, Python and SQLite."),
    },
}
# the same, with the resources that declare their commands
GROUPS = {
    heading: {
        **commands,
        **{name: (each.resource, each.line) for name, each in RESOURCES.items() if each.heading == heading},
    }
    for heading, commands in _LISTED.items()
}
COMMANDS = {name: module for commands in GROUPS.values() for name, (module, _) in commands.items()}

# Packages and container images install the configuration file at this path.
SERVICE_CONFIG = Path("/etc/tollhouse/tollhouse.toml")
PLACES = (Path("tollhouse.toml"), SERVICE_CONFIG)


def find_configuration_file(ctx: click.Context, param: click.Parameter, named: Path | None) -> Path | None:
    """
    Return the configuration file that the caller named, or the first existing file of PLACES.

    A file found in PLACES is reported on standard error. If --data is given, no file is searched, because the
    directory may belong to another installation.
    """
    if named is not None or ctx.params.get("data") is not None or ctx.resilient_parsing:
        return named
    for path in PLACES:
        with suppress(OSError):  # another user may own the directory and deny access
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
    callback=find_configuration_file,
    help=CONFIG_HELP,
)
data_option = click.option(
    "--data",
    is_eager=True,  # this option is read before --config, because the default of --config depends on it
    type=click.Path(path_type=Path, file_okay=False),
    help="Data directory; default: the data_dir setting, or ./tollhouse-data.",
)


WIDEST = max(map(len, COMMANDS))  # with one width for all names, the groups of commands share one column


def _is_raised_by_click_echo(error: OSError) -> bool:
    traceback = error.__traceback__
    while traceback is not None and traceback.tb_next is not None:
        traceback = traceback.tb_next
    return traceback is not None and traceback.tb_frame.f_code is click.echo.__code__


def _fails_to_flush_output() -> bool:
    try:
        sys.stdout.flush()
    except OSError:
        return True
    return False


class TollhouseProgram(click.Group):
    """
    The program `tollhouse`, or the self-contained agent. If the output cannot be written, for example on a
    full disk, it prints an error and exits with 1.
    """

    def main(self, *args: Any, **extra: Any) -> Any:
        try:
            try:
                return super().main(*args, **extra)
            finally:
                sys.stdout.flush()
        except OSError as error:
            if not (_is_raised_by_click_echo(error) or _fails_to_flush_output()):
                raise
            # At exit, the interpreter flushes the output again. Without this, that would fail with a second message.
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            exit_with_message(f"the output cannot be written: {error.strerror}")


class Commands(TollhouseProgram):
    """The commands of `tollhouse`. The module of a command is loaded when the command is called."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in COMMANDS:
            return None
        gc.set_threshold(NEW_OBJECTS)
        module = importlib.import_module(COMMANDS[cmd_name])
        if cmd_name in RESOURCES and RESOURCES[cmd_name].heading:
            from gateway.cli.operator.resources import build_resource_group, resource_of_module

            return build_resource_group(cmd_name, resource_of_module(module))
        command: click.Command = getattr(module, cmd_name.replace("-", "_"))
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        try:
            return super().resolve_command(ctx, args)
        except NoSuchCommand as error:  # click knows only loaded commands, so it cannot suggest any other
            raise NoSuchCommand(error.command_name, possibilities=COMMANDS, ctx=ctx) from None

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        """Complete the names of commands without loading the commands."""
        lines = {name: line for commands in GROUPS.values() for name, (_, line) in commands.items()}
        names = [name for name in lines if name.startswith(incomplete)]
        options = click.Command.shell_complete(self, ctx, incomplete)
        return [*(CompletionItem(name, help=lines[name]) for name in names), *options]

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        for heading, commands in GROUPS.items():
            with formatter.section(heading):
                formatter.write_dl([(name.ljust(WIDEST), line) for name, (_, line) in commands.items()])


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


def load_config_or_exit(config: Path | None, flags: dict[str, Any] | None = None) -> Config:
    """Load the configuration. If it has problems, print one line for each and exit with code 2."""
    from gateway.configuration.reader import load_config
    from gateway.configuration.values import ConfigError

    try:
        return load_config(config, flags=flags)
    except ConfigError as error:
        for problem in error.problems:
            click.echo(f"tollhouse: {replace_unprintable(problem)}", err=True)
        sys.exit(2)


def exit_with_message(message: str, code: int = 1) -> NoReturn:
    """
    Print an error and exit. The message may quote a file or a response, so control characters are escaped.
    """
    lines = "\n".join(map(replace_unprintable, message.split("\n")))
    click.echo(f"tollhouse: {lines}", err=True)
    sys.exit(code)


def exit_because_of(error: Exception) -> NoReturn:
    """Exit with the message of an error, with code 2 if the same command cannot succeed."""
    from spool.errors import NotAllowed, OtherSchema

    exit_with_message(str(error), 2 if isinstance(error, NotAllowed | OtherSchema) else 1)


@click.command()
def version() -> None:
    """Print the versions of Tollhouse, Python and SQLite."""
    import platform
    import sqlite3
    from importlib.metadata import version as installed

    click.echo(f"tollhouse {installed('tollhouse')}")
    click.echo(f"python {platform.python_version()}")
    click.echo(f"sqlite {sqlite3.sqlite_version}")


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
