"""`tollhouse agent`: receives telemetry of coding assistants on a laptop and forwards it to the gateway."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

import click

from gateway.cli import exit_with_message
from gateway.cli.agent_probe import probe, status
from gateway.cli.agent_settings import (
    agent_endpoint,
    config_option,
    directory_option,
    endpoint_option,
    hook_option,
    load_agent_config,
)
from gateway.devices.agent.assistants import ASSISTANTS, Assistant
from gateway.devices.agent.hook import ADDRESS, GO_ON, REFUSE, HookArguments, answer_assistant_hook

if TYPE_CHECKING:
    from gateway.devices.agent.settings import EditedSettings


class AgentCommands(click.Group):
    """The commands of `tollhouse agent`. Some modules are loaded only when their commands are called."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return sorted([*super().list_commands(ctx), "policy", "test", "unenrol"])

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name == "policy":
            from gateway.cli.agent_policy import policy

            return policy
        if cmd_name == "test":
            from gateway.cli.agent_test import test

            return test
        if cmd_name == "unenrol":
            from gateway.cli.agent_unenrol import unenrol

            return unenrol
        return super().get_command(ctx, cmd_name)


@click.group(cls=AgentCommands, invoke_without_command=True)
@config_option
@directory_option
@click.option("--gateway", metavar="URL", help="Address of the gateway to forward to.")
@click.option(
    "--enrolment-key-file",
    metavar="PATH",
    help="File with a key that may enrol devices; not needed once this device is enrolled.",
)
@click.option(
    "--device-id", metavar="ID", help="Id of this device; default: an id that the first start creates."
)
@click.option(
    "--listen", metavar="HOST:PORT", help="Loopback address on which assistants send OTLP over HTTP."
)
@click.option(
    "--grpc-listen",
    metavar="HOST:PORT",
    help='Loopback address on which assistants send OTLP over gRPC; "" turns it off.',
)
@click.option(
    "--until-stdin-ends",
    is_flag=True,
    help="Stop when standard input ends as well. A Windows service stops the agent this way.",
)
@click.pass_context
def agent(
    context: click.Context,
    config: Path | None,
    data: Path | None,
    gateway: str | None,
    enrolment_key_file: str | None,
    device_id: str | None,
    listen: str | None,
    grpc_listen: str | None,
    until_stdin_ends: bool,
) -> None:
    """
    Run on a laptop: forward coding assistants' telemetry.

    Programs on this machine send without a key. If the gateway cannot be reached, the records wait on disk.
    """
    if context.invoked_subcommand is not None:
        return
    flags = {
        "agent.gateway": gateway,
        "agent.enrolment_key_file": str(Path(enrolment_key_file).absolute()) if enrolment_key_file else None,
        "agent.device_id": device_id,
        "server.listen": listen,
        "server.grpc_listen": grpc_listen,
    }
    from gateway.cli.agent_run import (
        run_agent,
    )  # imported here, so that the other commands do not load the server

    sys.exit(run_agent(config, data, flags, stdin_stops=until_stdin_ends))


agent.add_command(probe)
agent.add_command(status)


class HookCommand(click.Command):
    """The command of an assistant's hook, whose exit code 2 refuses a session. So wrong options do not exit with 2."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        is_closed = "--closed" in args
        try:
            return super().parse_args(ctx, args)
        except click.UsageError as error:
            exit_hook_for_wrong_options(error.format_message(), is_closed=is_closed)


def exit_hook_for_wrong_options(problem: str, *, is_closed: bool) -> NoReturn:
    effect = "the session is refused" if is_closed else "the session goes on without a verdict"
    exit_with_message(
        f"{problem}; {effect}. See `tollhouse agent verdict --help`.", REFUSE if is_closed else GO_ON
    )


@agent.command("verdict", cls=HookCommand)
@click.option(
    "--session-limit",
    metavar="AMOUNT",
    default="",
    help="Amount in dollars from which a session is refused, such as 20; default: no limit.",
)
@click.option("--closed", "is_closed", is_flag=True, help="Refuse if the agent does not answer within 50 ms.")
@click.option(
    "--endpoint",
    metavar="URL",
    default=ADDRESS,
    show_default=True,
    help="HTTP address of this machine's agent.",
)
def judge_session(session_limit: str, is_closed: bool, endpoint: str) -> None:
    """
    Answer an assistant's hook: may its session go on?

    The hook's JSON is read from standard input, and only its session_id is used. The exit code is 0 (go on) or 2
    (refuse). Then standard error has the reason. Wrong options count as an agent that does not answer.
    """
    question = HookArguments(endpoint, session_limit, is_closed)
    if question.argument_problem:
        exit_hook_for_wrong_options(question.argument_problem, is_closed=is_closed)
    sys.exit(answer_assistant_hook(question))


# -- settings of assistants ----------------------------------------------------------------------------------


@agent.command("setup")
@click.argument("assistants", nargs=-1, required=True, type=click.Choice(sorted(ASSISTANTS)))
@click.option(
    "--write", "do_write", is_flag=True, help="Change the files. Each original is kept next to its file."
)
@click.option("--undo", "do_undo", is_flag=True, help="Undo the changes that --write made.")
@endpoint_option
@hook_option
@click.option(
    "--file",
    type=click.Path(path_type=Path, dir_okay=False),
    help="Another settings file to use, if you name one assistant.",
)
@directory_option
@config_option
def set_up_assistants(
    assistants: tuple[str, ...],
    do_write: bool,
    do_undo: bool,
    endpoint: str | None,
    hook: str,
    file: Path | None,
    data: Path | None,
    config: Path | None,
) -> None:
    """
    Show the settings with which assistants report to this agent.

    --write changes the assistants' settings files. --undo restores them.
    """
    from gateway.devices.agent.settings import NotEditable, undo_settings

    if do_write and do_undo:
        exit_with_message("use either --write or --undo, not both", 2)
    if file and len(assistants) > 1:
        exit_with_message("--file needs exactly one assistant", 2)
    if hook and (without := [name for name in assistants if not ASSISTANTS[name].hooks]):
        exit_with_message(f"Tollhouse sets no hook of {', '.join(without)}", 2)
    settings = load_agent_config(config, data, {})
    directory, endpoint = settings.data_dir, endpoint or agent_endpoint(settings)
    failed = False
    for name in assistants:
        assistant = ASSISTANTS[name]
        path = (file or assistant.file()).expanduser()
        try:
            if do_undo:
                edited = undo_settings(directory, assistant, path)
            else:
                edited = _edit_settings(directory, assistant, path, endpoint, hook, do_write)
        except (NotEditable, OSError) as error:
            click.echo(f"{name}: {error}", err=True)
            failed = True
            continue
        _show_edit(name, edited, written=do_write or do_undo)
    sys.exit(1 if failed else 0)


def _edit_settings(
    directory: Path, assistant: Assistant, path: Path, endpoint: str, hook: str, do_write: bool
) -> EditedSettings:
    from gateway.devices.agent.settings import edit_settings, write_settings

    edited = edit_settings(assistant, path, endpoint, hook=hook)
    return write_settings(directory, assistant, edited) if do_write else edited


def _show_edit(name: str, edited: EditedSettings, *, written: bool) -> None:
    if not edited.has_changes:
        click.echo(f"{name}: {edited.path} needs no change")
        return
    click.echo(edited.unified_diff(), nl=False)
    if written:
        backup = f"; the original is {edited.backup}" if edited.backup else ""
        click.echo(f"{name}: {edited.path} written{backup}")
    else:
        click.echo(f"{name}: nothing was changed; use --write to change the file")
