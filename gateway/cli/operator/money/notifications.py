"""`tollhouse notifications`: what is told to people and programs, and the channels that tell it."""

from __future__ import annotations

from collections.abc import Callable
from typing import IO, Any

import click

from gateway.cli import fail
from gateway.cli.operator.client import OperatorClient, part, with_client
from gateway.cli.operator.lists import PageRequest, list_command, paged, show_page
from gateway.cli.output import JsonObject, as_json, show_fields, show_json
from spool.registry.notices import CHANNEL_STATES

COLUMNS = ("id", "state", "severity", "at", "attempts", "title", "error")
CHANNEL_COLUMNS = ("name", "type", "origin", "state", "waiting", "sent", "failed", "insights", "reason")

ids_argument = click.argument("ids", nargs=-1)
channel_option = click.option("--channel", help="All of this channel.")
all_option = click.option("--all", "every", is_flag=True, help="All there are.")


@click.group()
def notifications() -> None:
    """List, test, retry and discard notifications, and make the channels that send them."""


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


def _channel_options(command: Callable[..., None]) -> Callable[..., None]:
    """The fields of a channel; what is not given is None, or () of many."""
    for option in reversed(_CHANNEL_OPTIONS):
        command = option(command)
    return command


_CHANNEL_OPTIONS = (
    click.option(
        "--secret-file",
        type=click.File("r"),
        metavar="FILE",
        help="The file with its secret, - for standard "
        "input: the address of slack and teams, the signing secret of a webhook, the password of email, the "
        "key of pagerduty, the token of alertmanager.",
    ),
    click.option("--url", help="The address, of webhook, alertmanager and pagerduty."),
    click.option("--server", metavar="HOST:PORT", help="email: the mail server."),
    click.option(
        "--tls", type=click.Choice(["starttls", "implicit", "none"]), help="email: how it is encrypted."
    ),
    click.option("--username", help="email: who signs in."),
    click.option("--sender", metavar="EMAIL", help="email: the address that mails come from."),
    click.option("--to", multiple=True, metavar="EMAIL", help="email: where mails go; may repeat."),
    click.option(
        "--insights",
        type=click.Choice(["none", "info", "warning", "critical"]),
        help="The least severity of the insights that it is notified of.",
    ),
    click.option(
        "--quiet-hours", metavar="FROM-TO", help='When only critical notices leave, such as "22:00-07:00".'
    ),
    click.option("--digest", metavar="HH:MM", help="When notices of severity info leave together."),
    click.option("--tz", "time_zone", metavar="ZONE", help="Of both times."),
)


@notifications.command("add-channel")
@click.argument("name")
@click.argument(
    "type", type=click.Choice(["webhook", "slack", "teams", "email", "pagerduty", "alertmanager"])
)
@_channel_options
@as_json
@with_client
def add_channel(client: OperatorClient, name: str, type: str, as_json: bool, **given: Any) -> None:
    """Make a channel. Its secret is kept sealed and never shown again."""
    body = {"name": name, "type": type, **_channel(**given)}
    _show_channel(client.request("POST", "/notification-channels", body=body), as_json)


@notifications.command("edit-channel")
@click.argument("name")
@_channel_options
@as_json
@with_client
def edit_channel(client: OperatorClient, name: str, as_json: bool, **given: Any) -> None:
    """Change a channel that was made by command or in the console. What is not given stays, the secret too."""
    body = _channel(**given)
    if not body:
        fail("say what to change; tollhouse notifications edit-channel --help lists what can be", 2)
    _show_channel(client.request("PATCH", f"/notification-channels/{part(name)}", body=body), as_json)


@notifications.command("delete-channel")
@click.argument("name")
@as_json
@with_client
def delete_channel(client: OperatorClient, name: str, as_json: bool) -> None:
    """Delete a channel that was made by command or in the console."""
    payload = client.request("DELETE", f"/notification-channels/{part(name)}")
    show_json(payload) if as_json else click.echo(f"channel {name} deleted")


def _channel(*, secret_file: IO[str] | None, to: tuple[str, ...], **given: Any) -> JsonObject:
    """The body of a request: what was given."""
    body = {name: value for name, value in given.items() if value is not None}
    if to:
        body["to"] = list(to)
    if secret_file is not None:
        body["secret"] = secret_file.read().strip()
    return body


def _show_channel(payload: JsonObject, as_json: bool) -> None:
    show_json(payload) if as_json else show_fields(payload["notification_channel"])


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


def _chosen(ids: tuple[str, ...], channel: str | None, every: bool) -> JsonObject:
    body: dict[str, Any] = {"all": every}
    if ids:
        body["ids"] = list(ids)
    if channel is not None:
        body["channel"] = channel
    return body


def _show(payload: JsonObject, as_json: bool) -> None:
    show_json(payload) if as_json else show_fields(payload["notification"])
