"""
Commands of the operator API, declared as rows of a table.

`request_command` sends one request and shows the response. `list_command` prints a page of a list. A command that
does more is a function; if it prints a list, it uses `with_page_options` and `fetch_and_show_page`.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import click

from gateway.cli.operator.client import OperatorClient, quote_segment, with_client
from gateway.cli.output import (
    JsonObject,
    OutputForm,
    add_output_form_options,
    as_json,
    column_title,
    show_fields,
    show_json,
    show_list,
)
from spool.printable import replace_unprintable

# click.argument(...) or click.option(...), applied to a command's function
Parameter = Callable[[Callable[..., None]], Callable[..., None]]
ShapeAnswer = Callable[[JsonObject], JsonObject]

_WITH_BODY = ("POST", "PATCH")


def show_only_resource(payload: JsonObject) -> None:
    [resource] = payload.values()
    show_fields(resource)


def request_command(
    usage: str,
    method_and_path: str,
    help: str,
    *parameters: Parameter,
    request_body: JsonObject | Callable[..., JsonObject] | None = None,
    show_response: str | Callable[[JsonObject], None] = show_only_resource,
) -> click.Command:
    """
    Make a command that sends one request and shows the response.

    `usage` is the command's name with its plain arguments, as in "revoke ID". `parameters` are options, and
    arguments that have a type. `method_and_path` is the method and the path, as in "POST /devices/{id}/revoke". Values
    that the path does not use become the body, or the query of a GET or DELETE. `request_body` replaces that body:
    it is a fixed body, or a function that makes the body from the values. `show_response` prints the response, or is
    a sentence such as "device {id} deleted".
    """
    name, *arguments = usage.split()
    method, path = method_and_path.split()

    @as_json
    @with_client
    def send_request_and_show_answer(client: OperatorClient, as_json: bool, **given: Any) -> None:
        rest = {field: value for field, value in given.items() if f"{{{field}}}" not in path}
        fields = (
            request_body(**rest)
            if callable(request_body)
            else _given_options(rest)
            if request_body is None
            else request_body
        )
        if method in _WITH_BODY:
            payload = client.request(method, _fill_path(path, given), body=fields)
        else:
            payload = client.request(method, _fill_path(path, given), query=list(fields.items()))
        if as_json:
            show_json(payload)
        elif isinstance(show_response, str):
            click.echo(replace_unprintable(show_response.format(**{**payload, **given})))
        else:
            show_response(payload)

    return click.command(name, help=help)(
        _with_click_parameters(send_request_and_show_answer, [*map(_argument_named, arguments), *parameters])
    )


def add_commands(group: click.Group, *commands: click.Command) -> None:
    for subcommand in commands:
        group.add_command(subcommand)


def confirm_option(metavar: str, help: str) -> Parameter:
    return click.option("--confirm", required=True, metavar=metavar, help=help)


def _given_options(options: JsonObject) -> JsonObject:
    return {field: value for field, value in options.items() if value is not None and value != ()}


def _fill_path(path: str, options: JsonObject) -> str:
    return path.format(**{field: quote_segment(str(value)) for field, value in options.items()})


def _argument_named(typed_name: str) -> Parameter:
    return click.argument(typed_name.lower())


def _with_click_parameters(
    command_function: Callable[..., None], parameters: Sequence[Parameter]
) -> Callable[..., None]:
    for parameter in reversed(parameters):
        command_function = parameter(command_function)
    return command_function


@dataclass(frozen=True)
class PageRequest:
    """A page of a list: its query pairs, and the form of the output, which is None for a table."""

    query: Sequence[tuple[str, str]]
    form: OutputForm | None


def list_command(
    group: click.Group,
    usage: str,
    *parameters: Parameter,
    root: str,
    columns: Sequence[str],
    filters: Mapping[str, str] = {},
    types: Mapping[str, click.ParamType[str]] = {},
    path: str = "",
    shown: ShapeAnswer = dict,
    money: Collection[str] = (),
    help: str,
) -> None:
    """
    Add a command that prints the list under /ROOT or `path`. `usage` is as in `request_command`.

    `filters` maps each filter to its help, and `types` gives the type of filters that are not plain text.
    Filters that need other settings are passed as `parameters`. `shown` turns a row of the response into a
    row of the table, and `money` are columns with US dollars.
    """
    name, *arguments = usage.split()
    path = path or "/" + root.replace("_", "-")

    @with_page_options
    @with_client
    def show_list_page(client: OperatorClient, page: PageRequest, **given: Any) -> None:
        query_filters = {field: values for field, values in given.items() if f"{{{field}}}" not in path}
        fetch_and_show_page(
            client, page, root, columns, query_filters, path=_fill_path(path, given), shown=shown, money=money
        )

    options = [
        click.option(
            f"--{field.replace('_', '-')}",
            multiple=True,
            type=types.get(field),
            help=text or filter_help(field),
        )
        for field, text in filters.items()
    ]
    group.command(name, help=help)(
        _with_click_parameters(show_list_page, [*map(_argument_named, arguments), *parameters, *options])
    )


def filter_help(field: str) -> str:
    return f"Filter by {column_title(field)}; may repeat."


def with_page_options(command: Callable[..., None]) -> Callable[..., None]:
    """Add the options of every list to a command, and pass it a `page` made from them."""

    @click.option("--limit", type=int, help="Items per page, 1 to 1000; default: 50.")
    @click.option(
        "--cursor", help="Position to continue from: next_cursor or previous_cursor of an earlier page."
    )
    @click.option("--sort-key", help="Field to sort by.")
    @click.option("--sort-order", help="Sort order: asc or desc.")
    @add_output_form_options
    @functools.wraps(command)
    def run_command_with_page(*args: object, form: OutputForm | None, **rest: Any) -> None:
        page_options = {name: rest.pop(name) for name in ("limit", "cursor", "sort_key", "sort_order")}
        query = [(name, str(value)) for name, value in page_options.items() if value is not None]
        command(*args, page=PageRequest(query, form), **rest)

    return run_command_with_page


def fetch_and_show_page(
    client: OperatorClient,
    page: PageRequest,
    root: str,
    columns: Sequence[str],
    filters: Mapping[str, Sequence[str]],
    *,
    path: str | None = None,
    shown: ShapeAnswer = dict,
    money: Collection[str] = (),
) -> None:
    """Fetch and print a page of a list. As a table or CSV, print the next page's cursor to standard error."""
    pairs = [(name, value) for name, values in filters.items() for value in values]
    payload = client.request("GET", path or "/" + root.replace("_", "-"), query=[*page.query, *pairs])
    show_list(page.form, payload, payload[root], columns, shown, money=money)
    if page.form != "json":
        show_cursor(payload)


def show_cursor(payload: JsonObject) -> None:
    """Print to standard error how to fetch the next page, if there is one."""
    pagination = payload["pagination"]
    cursor = pagination["cursor"]
    if cursor["has_next"]:
        counted = f"{pagination['item_count']} of {pagination['total_count']}"
        click.echo(f"{counted}; next: --cursor {cursor['next_cursor']}", err=True)
