"""
How every operator command reaches the house: the running server's socket, or the data directory when no server runs.

One code path: in both cases the command speaks HTTP with the operator API on a unix socket, and prints what it answers.
"""

from __future__ import annotations

import asyncio
import functools
import getpass
import os
import re
import time
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlencode

import aiohttp
import click
import orjson
from yarl import URL

from gateway.addresses.paths import OPERATOR_API
from gateway.cli import config_option, configured, data_option, fail
from gateway.configuration.sections import Config, ConfigError
from gateway.operator.admission import AS
from gateway.operator.offline import open_offline
from gateway.operator.socket import socket_path
from spool.errors import SpoolError, SpoolLocked
from spool.sqlite import FILE

PATIENCE_S = 5.0
RETRY_EVERY_S = 0.1
WRONG_USE = (400, 404, 409, 422)


@dataclass(frozen=True)
class House:
    """Which house a command works on, and who asks."""

    config: Config
    actor: str
    has_file: bool = False  # `config` was read from the house's file, and not made up from a data directory

    def ask(
        self, method: str, path: str, *, body: object = None, query: Sequence[tuple[str, str]] = ()
    ) -> dict[str, Any]:
        """One call of the operator API. A refusal or a house that cannot be reached ends the command."""
        try:
            status, payload = asyncio.run(self._ask(method, path, body, query))
        except ConfigError as error:
            fail("; ".join(error.problems), 2)
        except (SpoolError, OSError) as error:
            fail(str(error))
        except aiohttp.ClientError as error:
            fail(f"the house did not answer ({error}); ask again")
        if status >= 400:
            fail(payload["error"]["message"], 2 if status in WRONG_USE else 1)
        return payload

    async def _ask(
        self, method: str, path: str, body: object, query: Sequence[tuple[str, str]]
    ) -> tuple[int, dict[str, Any]]:
        url = URL(f"http://tollhouse{OPERATOR_API}{path}" + (f"?{urlencode(query)}" if query else ""), encoded=True)
        headers = {AS: quote(self.actor)}
        if body is not None:
            headers["Content-Type"] = "application/json"
        async with (
            _socket(self.config, names_routes=self.has_file) as socket,
            aiohttp.ClientSession(connector=aiohttp.UnixConnector(str(socket))) as session,
            session.request(
                method, url, headers=headers, data=None if body is None else orjson.dumps(body),
                timeout=aiohttp.ClientTimeout(total=None, sock_connect=PATIENCE_S),
            ) as response,
        ):  # fmt: skip
            return response.status, orjson.loads(await response.read())


@asynccontextmanager
async def _socket(config: Config, *, names_routes: bool) -> AsyncIterator[Path]:
    """The house's own lock says whether a server runs; between the two states we wait a little."""
    deadline = time.monotonic() + PATIENCE_S
    while True:
        try:
            async with open_offline(config, version=version("tollhouse"), names_routes=names_routes) as socket:
                yield socket
                return
        except SpoolLocked:
            socket = socket_path(config.data_dir)
        if await _answers(socket):
            yield socket
            return
        if time.monotonic() > deadline:
            fail("Tollhouse is starting or stopping")
        await asyncio.sleep(RETRY_EVERY_S)


async def _answers(socket: Path) -> bool:
    try:
        _, writer = await asyncio.open_unix_connection(str(socket))
    except OSError:
        return False
    writer.close()
    return True


def _is_new(data_dir: Path) -> bool:
    """Where one may not look, the opening says why."""
    try:
        return not (data_dir / FILE).exists()
    except OSError:
        return False


def on_a_house(command: Callable[..., None]) -> Callable[..., None]:
    """Gives a command its `house` from --data, --config and --as."""

    @data_option
    @config_option
    @click.option(
        "--as", "actor", metavar="EMAIL", help="Who asks, for the audit list; default: the user of the system."
    )
    @functools.wraps(command)
    def with_house(*, data: Path | None, config: Path | None, actor: str | None, **rest: object) -> None:
        settings = configured(config, {"data_dir": str(data.absolute()) if data else None})
        if _is_new(settings.data_dir):  # a mistyped directory would look like a house that lost everything
            click.echo(f"tollhouse: there was nothing in {settings.data_dir}: this is a new house", err=True)
        command(House(settings, actor or system_user() or f"uid {os.getuid()}", has_file=config is not None), **rest)

    return with_house


as_json = click.option("--json", "as_json", is_flag=True, help="Print what the operator API answers.")


@dataclass(frozen=True)
class Page:
    """Which page of a list is asked for, as query pairs, and how it is printed."""

    query: Sequence[tuple[str, str]]
    as_json: bool


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
        command(*args, page=Page(query, as_json), **rest)

    return with_page


def show_page(house: House, page: Page, root: str, columns: Sequence[str], asked: Mapping[str, Sequence[str]]) -> None:
    """
    A page of the list under /ROOT as JSON, or as a table and how to see the next one.

    `asked` are the command's own options: the list's filters by their names, each as often as it was given.
    """
    filters = [(name, value) for name, values in asked.items() for value in values]
    payload = house.ask("GET", "/" + root.replace("_", "-"), query=[*page.query, *filters])
    if page.as_json:
        show_json(payload)
        return
    show_table(payload[root], columns)
    pagination = payload["pagination"]
    if pagination["cursor"]["has_next"]:
        shown, total = pagination["item_count"], pagination["total_count"]
        click.echo(f"{shown} of {total}; next: --cursor {pagination['cursor']['next_cursor']}", err=True)


def part(name: str) -> str:
    """A name as one part of a path."""
    return quote(name, safe="")


def show_json(payload: object) -> None:
    click.echo(orjson.dumps(payload, option=orjson.OPT_INDENT_2).decode())


def show_fields(fields: Mapping[str, Any]) -> None:
    """One thing, a line for each of its fields."""
    show_table([{"field": name.replace("_", " "), "value": value} for name, value in fields.items()],
               ("field", "value"))  # fmt: skip


def show_table(rows: Sequence[Mapping[str, Any]], columns: Sequence[str]) -> None:
    """Columns as wide as their widest cell."""
    cells = [[name.replace("_", " ").upper() for name in columns]]
    cells += [[_cell(row.get(name)) for name in columns] for row in rows]
    widths = [max(len(line[place]) for line in cells) for place in range(len(columns))]
    for line in cells:
        click.echo("  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip())


def _cell(value: object) -> str:
    if value is None:
        return "-"
    if isinstance(value, list):
        return ", ".join(map(str, value)) or "-"
    if isinstance(value, dict):
        return ", ".join(f"{name}={'-' if each is None else each}" for name, each in value.items()) or "-"
    if isinstance(value, float):
        return f"{value:.1f}"
    return printable(str(value)) or "-"


def printable(text: str) -> str:
    """What a sender or an upstream wrote must not move the terminal's cursor."""
    return "".join(mark if mark.isprintable() else " " for mark in text)


class Seconds(click.ParamType[float]):
    """A duration such as 30s, 15m, 24h or 7d."""

    name = "duration"
    _units = {"": 1, "s": 1, "m": 60, "h": 3600, "d": 86400}  # noqa: RUF012 - read only

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        found = re.fullmatch(r"(\d+(?:\.\d+)?)([smhd]?)", str(value).strip())
        if found is None:
            self.fail("a duration is a number and s, m, h or d, such as 24h", param, ctx)
        return float(found[1]) * self._units[found[2]]


class Label(click.ParamType[tuple[str, str]]):
    """K=V."""

    name = "label"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> tuple[str, str]:
        name, equals, text = str(value).partition("=")
        if not equals:
            self.fail("a label is written NAME=VALUE, such as team=search", param, ctx)
        return name, text


def system_user() -> str | None:
    """Who runs the command; None in a container that runs under a number without a name."""
    try:
        return getpass.getuser()
    except (KeyError, OSError):
        return None
