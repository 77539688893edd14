"""The command reference as Markdown: every command with its arguments and options, as in `--help`."""

from __future__ import annotations

import inspect
from collections import Counter
from collections.abc import Collection, Iterator, Mapping

import click

from docs.generate.repeats import FieldRow, ShownAt, ShownTable
from gateway.cli import main

_HEAD = """# Commands

The help of every command, as `tollhouse COMMAND --help` prints it. Exit codes: 0 success, 1 failure, 2 wrong use or
configuration. Only [`tollhouse plan`](#tollhouse-plan) exits with 2 if the settings differ from the files, and with 1
after wrong use. With `--json` a command prints JSON, in most cases the response of the operator API. With `--csv` a
list is CSV: a header with the names of the fields, and every field of each row. A text that a spreadsheet would read
as a formula begins with an apostrophe.

## Shared options

Many commands have these options, and list their names after their own options.

| option | |
|---|---|
"""
_CLIENTS = "Options of clients"
_OF_CLIENTS = ("--data", "--config", "--as", "--reason")
_SHARED_FROM = (
    20  # commands that have an option, or the same shared options, before the page explains them once
)


def page() -> str:
    """Return the page. A group precedes its commands."""
    contexts = list(_contexts(click.Context(main, info_name="tollhouse")))
    counts = Counter(option for context in contexts for option in _options(context))
    shared = {option for option, count in counts.items() if count >= _SHARED_FROM}
    rows, shown = "".join(map(_line, sorted(shared))), ShownTable()
    sets = Counter(_shared_names(context, shared) for context in contexts)
    titles = {_OF_CLIENTS: _CLIENTS} | {
        names: _title(names) for names, count in sets.items() if "--json" in names and count >= _SHARED_FROM
    }
    text = _HEAD + rows + "".join(f"\n## {title}\n\n{_listed(names)}\n" for names, title in titles.items())
    return text + "".join(_section(context, shared, titles, shown) for context in contexts)


def _shared_names(context: click.Context, shared: Collection[FieldRow]) -> tuple[str, ...]:
    return tuple(option.name for option in _options(context) if option in shared)


def _title(names: Collection[str]) -> str:
    """Return the title of a set of shared options."""
    return "Options of lists" if "--limit" in names else "Options of requests"


def _listed(names: Collection[str]) -> str:
    return f"[Shared](#shared-options): {', '.join(f'`{name}`' for name in names)}."


def _linked(title: str) -> str:
    return f"[{title}](#{title.lower().replace(' ', '-')})."


def _shortened(names: Collection[str]) -> str:
    """Return a set of shared options, those of clients as a link."""
    if not set(_OF_CLIENTS) <= set(names):
        return _listed(names)
    rest = [name for name in names if name not in _OF_CLIENTS]
    return f"{_listed(rest)} {_linked(_CLIENTS)}" if rest else _linked(_CLIENTS)


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


def _options(context: click.Context) -> list[FieldRow]:
    """Return the options and the arguments, without arguments that have no text."""
    params = context.command.get_params(context)
    records = [record for each in params if (record := each.get_help_record(context))]
    shown = [record for record in records if record[1] or record[0].startswith("-")]
    return [_row(*record) for record in shown if not record[0].endswith("--help")]


def _row(option: str, text: str) -> FieldRow:
    name, _, value = _cell(option).partition(" ")
    needed = "  [required]"
    return FieldRow(
        name, value, "required" if text.endswith(needed) else "", _cell(text.removesuffix(needed))
    )


def _section(
    context: click.Context,
    shared: Collection[FieldRow],
    titles: Mapping[tuple[str, ...], str],
    shown: ShownTable,
) -> str:
    command = context.command
    usage = " ".join([context.command_path, *command.collect_usage_pieces(context)])
    text = f"\n{'#' * (1 + context.command_path.count(' '))} {context.command_path}\n\n"
    text += f"{inspect.cleandoc(command.help or '')}\n\n```text\n{usage}\n```\n".replace("\b\n", "")
    options = _options(context)
    place = ShownAt("", context.command_path, context.command_path.replace(" ", "-"))
    own, others = shown.fold_table([option for option in options if option not in shared], place)
    if own:
        text += "\n| option | |\n|---|---|\n" + "".join(map(_line, own))
    names = _shared_names(context, shared)
    title = titles.get(names, "")
    named = _linked(title) if title else _shortened(names)
    also = named if names else ""
    rest = " ".join(filter(None, (others, also)))
    return f"{text}\n{rest}\n" if rest else text


def _line(option: FieldRow) -> str:
    needed = " Required." if option.notes else ""
    return f"| `{f'{option.name} {option.kind}'.rstrip()}` | {option.meaning}{needed} |\n"


def _cell(words: str) -> str:
    """
    Replace bars, because a bar ends a table cell. Markdown readers differ in how they escape a bar in code.
    """
    return words.replace("|", ", ")
