"""The command reference as Markdown: every command with its arguments and options, as in `--help`."""

from __future__ import annotations

import inspect
from collections.abc import Iterator

import click

from gateway.cli import main

_HEAD = """# Commands

The help of every command, as `tollhouse COMMAND --help` prints it. Exit codes: 0 success, 1 failure, 2 wrong use or
configuration. Only [`tollhouse plan`](#tollhouse-plan) exits with 2 if the settings differ from the files, and with 1
after wrong use. With `--json` a command prints JSON, in most cases the response of the operator API. With `--csv` a
list is CSV: a header with the names of the fields, and every field of each row. A text that a spreadsheet would read
as a formula begins with an apostrophe.
"""


def page() -> str:
    """Return the page. A group precedes its commands."""
    return _HEAD + "".join(
        _section(context) for context in _contexts(click.Context(main, info_name="tollhouse"))
    )


def _contexts(parent: click.Context) -> Iterator[click.Context]:
    group = parent.command
    assert isinstance(group, click.Group)
    for name in group.list_commands(parent):
        command = group.get_command(parent, name)
        if command is None or command.hidden:
            continue
        context = click.Context(command, info_name=name, parent=parent)
        yield context
        if isinstance(command, click.Group):
            yield from _contexts(context)


def _section(context: click.Context) -> str:
    command = context.command
    usage = " ".join([context.command_path, *command.collect_usage_pieces(context)])
    text = f"\n{'#' * (1 + context.command_path.count(' '))} {context.command_path}\n\n"
    text += f"{inspect.cleandoc(command.help or '')}\n\n```text\n{usage}\n```\n".replace("\b\n", "")
    options = [record for each in command.get_params(context) if (record := each.get_help_record(context))]
    shown = [(option, words) for option, words in options if not option.endswith("--help")]
    if shown:
        text += "\n| option | |\n|---|---|\n"
        text += "".join(f"| `{_cell(option)}` | {_cell(words)} |\n" for option, words in shown)
    return text


def _cell(words: str) -> str:
    """
    Replace bars, because a bar ends a table cell. Markdown readers differ in how they escape a bar in code.
    """
    return words.replace("|", ", ")
