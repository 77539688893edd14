"""The list commands: one function makes them all, so that every list pages, sorts and filters alike."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import click

from gateway.cli.operator.client import OperatorClient, with_client
from gateway.cli.output import JsonObject, as_json, show_json, show_table

Shown = Callable[[JsonObject], JsonObject]


@dataclass(frozen=True)
class PageRequest:
    """Which page of a list is asked for, as query pairs, and how it is printed."""

    query: Sequence[tuple[str, str]]
    as_json: bool


def list_command(
    group: click.Group,
    name: str,
    *,
    root: str,
    columns: Sequence[str],
    filters: Mapping[str, str],
    types: Mapping[str, click.ParamType[str]] = {},
    shown: Shown = dict,
    help: str,
) -> None:
    """
    Adds a command that prints the list under /ROOT; `filters` maps each filter to its help text.

    `types` are those of filters that are no plain text; `shown` makes of a row what the table has.
    """

    def show(client: OperatorClient, page: PageRequest, **filters: tuple[str, ...]) -> None:
        show_page(client, page, root, columns, filters, shown=shown)

    command = paged(with_client(show))
    for field, text in reversed(list(filters.items())):
        command = click.option(
            f"--{field.replace('_', '-')}", multiple=True, type=types.get(field), help=text or None
        )(command)
    group.command(name, help=help)(command)


def paged(command: Callable[..., None]) -> Callable[..., None]:
    """Gives a list command its `page` from the options that every list has."""

    @click.option("--limit", type=int, help="Items per page, 1 to 1000; 50 when not given.")
    @click.option("--cursor", help="A next_cursor or previous_cursor from an earlier page.")
    @click.option("--sort-key", help="The field to sort by.")
    @click.option("--sort-order", help="asc or desc.")
    @as_json
    @functools.wraps(command)
    def with_page(*args: object, as_json: bool, **rest: Any) -> None:
        given = {name: rest.pop(name) for name in ("limit", "cursor", "sort_key", "sort_order")}
        query = [(name, str(value)) for name, value in given.items() if value is not None]
        command(*args, page=PageRequest(query, as_json), **rest)

    return with_page


def show_page(
    client: OperatorClient,
    page: PageRequest,
    root: str,
    columns: Sequence[str],
    filters: Mapping[str, Sequence[str]],
    *,
    path: str | None = None,
    shown: Shown = dict,
) -> None:
    """Prints a page of the list under /ROOT or another path: as JSON, or as a table with the cursor of the next."""
    given = [(name, value) for name, values in filters.items() for value in values]
    payload = client.request("GET", path or "/" + root.replace("_", "-"), query=[*page.query, *given])
    if page.as_json:
        show_json(payload)
        return
    show_table([shown(row) for row in payload[root]], columns)
    show_cursor(payload)


def show_cursor(payload: JsonObject) -> None:
    """Says on the standard error how the list goes on, if it does."""
    pagination = payload["pagination"]
    cursor = pagination["cursor"]
    if cursor["has_next"]:
        counted = f"{pagination['item_count']} of {pagination['total_count']}"
        click.echo(f"{counted}; next: --cursor {cursor['next_cursor']}", err=True)
