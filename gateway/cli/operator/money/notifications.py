"""`tollhouse notifications`: what is told to people and programs, and the channels that tell it."""

from __future__ import annotations

from typing import Any

import click

from gateway.cli.operator.client import OperatorClient, part, with_client
from gateway.cli.operator.lists import PageRequest, list_command, paged, show_page
from gateway.cli.output import as_json, show_fields, show_json
from spool.registry.notices import CHANNEL_STATES

COLUMNS = ("id", "state", "severity", "at", "attempts", "title", "error")
CHANNEL_COLUMNS = ("name", "type", "state", "waiting", "sent", "failed", "insights", "reason")

ids_argument = click.argument("ids", nargs=-1)
channel_option = click.option("--channel", help="All of this channel.")
all_option = click.option("--all", "every", is_flag=True, help="All there are.")


@click.group()
def notifications() -> None:
    """List, test, retry and discard notifications. Channels stand in the configuration, in [[notify]]."""


list_command(
    notifications,
    "list",
    root="notifications",
    columns=COLUMNS,
    filters={
        "state": "waiting, sent, failed or discarded.",
        "channel": "",
        "kind": "Such as budget.threshold_crossed or insight.opened.",
        "severity": "info, warning or critical.",
    },
    help="List notifications, the newest first.",
)


@notifications.command()
@click.option("--state", multiple=True, help=f"{', '.join(CHANNEL_STATES)}; may repeat.")
@click.option("--type", multiple=True, help="Such as webhook; may repeat.")
@paged
@with_client
def channels(client: OperatorClient, page: PageRequest, **filters: tuple[str, ...]) -> None:
    """List the channels, with what waits and why."""
    show_page(client, page, "notification_channels", CHANNEL_COLUMNS, filters)


@notifications.command()
@click.argument("id")
@as_json
@with_client
def show(client: OperatorClient, id: str, as_json: bool) -> None:
    """Show one notification with all that it says."""
    _show(client.request("GET", f"/notifications/{part(id)}"), as_json)


@notifications.command()
@click.argument("channel")
@as_json
@with_client
def test(client: OperatorClient, channel: str, as_json: bool) -> None:
    """Send a notice that shows whether a channel works. `show ID` says what became of it."""
    _show(client.request("POST", f"/notification-channels/{part(channel)}/test", body={}), as_json)


@notifications.command()
@ids_argument
@channel_option
@all_option
@as_json
@with_client
def retry(
    client: OperatorClient, ids: tuple[str, ...], channel: str | None, every: bool, as_json: bool
) -> None:
    """Send failed notifications again. One that waits and is named is tried at once."""
    payload = client.request("POST", "/notifications/retry", body=_chosen(ids, channel, every))
    show_json(payload) if as_json else click.echo(f"{payload['retried']} will be sent again")


@notifications.command()
@ids_argument
@channel_option
@all_option
@as_json
@with_client
def discard(
    client: OperatorClient, ids: tuple[str, ...], channel: str | None, every: bool, as_json: bool
) -> None:
    """Give up notifications that wait or failed."""
    payload = client.request("POST", "/notifications/discard", body=_chosen(ids, channel, every))
    show_json(payload) if as_json else click.echo(f"{payload['discarded']} discarded")


def _chosen(ids: tuple[str, ...], channel: str | None, every: bool) -> dict[str, Any]:
    body: dict[str, Any] = {"all": every}
    if ids:
        body["ids"] = list(ids)
    if channel is not None:
        body["channel"] = channel
    return body


def _show(payload: dict[str, Any], as_json: bool) -> None:
    show_json(payload) if as_json else show_fields(payload["notification"])
