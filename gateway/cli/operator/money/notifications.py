"""`tollhouse notifications`: what is told to people and programs, and the channels that tell it."""

from __future__ import annotations

from typing import IO, Any

import click

from gateway.cli import fail
from gateway.cli.operator.commands import add_commands, command, list_command
from gateway.cli.output import JsonObject
from spool.registry.notices import CHANNEL_STATES

COLUMNS = ("id", "state", "severity", "at", "attempts", "title", "error")
CHANNEL_COLUMNS = ("name", "type", "origin", "state", "waiting", "sent", "failed", "insights", "reason")


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

list_command(
    notifications,
    "channels",
    root="notification_channels",
    columns=CHANNEL_COLUMNS,
    filters={"state": f"{', '.join(CHANNEL_STATES)}; may repeat.", "type": "Such as webhook; may repeat."},
    help="List the channels, with what waits and why.",
)


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


def _channel(*, secret_file: IO[str] | None, to: tuple[str, ...], **given: Any) -> JsonObject:
    body = {name: value for name, value in given.items() if value is not None}
    if to:
        body["to"] = list(to)
    if secret_file is not None:
        body["secret"] = secret_file.read().strip()
    return body


def _changed_channel(**given: Any) -> JsonObject:
    body = _channel(**given)
    if not body:
        fail("say what to change; tollhouse notifications edit-channel --help lists what can be", 2)
    return body


def _chosen(ids: tuple[str, ...], channel: str | None, every: bool) -> JsonObject:
    body: JsonObject = {"all": every}
    if ids:
        body["ids"] = list(ids)
    if channel is not None:
        body["channel"] = channel
    return body


_CHOICE = (
    click.argument("ids", nargs=-1),
    click.option("--channel", help="All of this channel."),
    click.option("--all", "every", is_flag=True, help="All there are."),
)
_TYPE = click.argument(
    "type", type=click.Choice(["webhook", "slack", "teams", "email", "pagerduty", "alertmanager"])
)

add_commands(
    notifications,
    command("show ID", "GET /notifications/{id}", "Show one notification with all that it says."),
    command("test CHANNEL", "POST /notification-channels/{channel}/test",
            "Send a notice that shows whether a channel works. `show ID` says what became of it."),
    command("add-channel NAME", "POST /notification-channels",
            "Make a channel. Its secret is kept sealed and never shown again.", _TYPE, *_CHANNEL_OPTIONS,
            sends=_channel),
    command("edit-channel NAME", "PATCH /notification-channels/{name}",
            "Change a channel that was made by command or in the console. What is not given stays, the secret too.",
            *_CHANNEL_OPTIONS, sends=_changed_channel),
    command("delete-channel NAME", "DELETE /notification-channels/{name}",
            "Delete a channel that was made by command or in the console.", shows="channel {name} deleted"),
    command("retry", "POST /notifications/retry",
            "Send failed notifications again. One that waits and is named is tried at once.", *_CHOICE,
            sends=_chosen, shows="{retried} will be sent again"),
    command("discard", "POST /notifications/discard", "Give up notifications that wait or failed.", *_CHOICE,
            sends=_chosen, shows="{discarded} discarded"),
)  # fmt: skip
