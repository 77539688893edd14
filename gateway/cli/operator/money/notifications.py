"""`tollhouse notifications`: notifications to people and programs, and the channels that send them."""

from __future__ import annotations

from typing import IO, Any

import click

from gateway.cli import exit_with_message
from gateway.cli.operator.commands import add_commands, list_command, request_command
from gateway.cli.output import JsonObject
from spool.registry.notices import CHANNEL_STATES

COLUMNS = ("id", "state", "severity", "at", "attempts", "title", "error")
CHANNEL_COLUMNS = ("name", "type", "origin", "state", "waiting", "sent", "failed", "insights", "reason")


@click.group()
def notifications() -> None:
    """Manage notifications and the channels that send them."""


list_command(
    notifications,
    "list",
    root="notifications",
    columns=COLUMNS,
    filters={
        "state": "Filter by status: waiting, sent, failed or discarded.",
        "channel": "",
        "kind": "Filter by kind, such as budget.threshold_crossed or insight.opened.",
        "severity": "Filter by severity: info, warning or critical.",
    },
    help="List the notifications, newest first.",
)


@notifications.group()
def channels() -> None:
    """List, create, change, test and delete the channels that send notifications."""


list_command(
    channels,
    "list",
    root="notification_channels",
    columns=CHANNEL_COLUMNS,
    filters={
        "state": f"Filter by state: {', '.join(CHANNEL_STATES)}; may repeat.",
        "type": "Filter by type, such as webhook; may repeat.",
    },
    help="List the channels, the number of waiting notifications, and the last error.",
)


_CHANNEL_OPTIONS = (
    click.option(
        "--secret-file",
        type=click.File("r"),
        metavar="FILE",
        help=(
            "File with the channel's secret, or - for standard input. slack, teams: the address. "
            "webhook: the signing secret. email: the password. pagerduty: the key. alertmanager: the "
            "token."
        ),
    ),
    click.option("--url", help="Address, for webhook, alertmanager and pagerduty."),
    click.option("--server", metavar="HOST:PORT", help="For email: mail server."),
    click.option(
        "--tls",
        type=click.Choice(["starttls", "implicit", "none"]),
        help="For email: encryption of the connection.",
    ),
    click.option("--username", help="For email: user name at the mail server."),
    click.option("--sender", metavar="EMAIL", help="For email: address in From."),
    click.option(
        "--to", multiple=True, metavar="EMAIL", help="For email: address of a recipient; may repeat."
    ),
    click.option(
        "--insights",
        type=click.Choice(["none", "info", "warning", "critical"]),
        help="Lowest severity of insights to notify about.",
    ),
    click.option(
        "--quiet-hours",
        metavar="FROM-TO",
        help='Hours in which only critical notifications are sent, such as "22:00-07:00".',
    ),
    click.option(
        "--digest",
        metavar="HH:MM",
        help="Time of day at which notifications of severity info are sent together.",
    ),
    click.option("--tz", "time_zone", metavar="ZONE", help="Time zone of --quiet and --digest."),
)


def _channel_request_body(*, secret_file: IO[str] | None, to: tuple[str, ...], **given: Any) -> JsonObject:
    body = {name: value for name, value in given.items() if value is not None}
    if to:
        body["to"] = list(to)
    if secret_file is not None:
        body["secret"] = secret_file.read().strip()
    return body


def _channel_changes_or_exit(**given: Any) -> JsonObject:
    body = _channel_request_body(**given)
    if not body:
        exit_with_message(
            "nothing to change; `tollhouse notifications channels edit --help` lists the options", 2
        )
    return body


def _notification_selection_body(ids: tuple[str, ...], channel: str | None, every: bool) -> JsonObject:
    body: JsonObject = {"all": every}
    if ids:
        body["ids"] = list(ids)
    if channel is not None:
        body["channel"] = channel
    return body


_CHOICE = (
    click.argument("ids", nargs=-1),
    click.option("--channel", help="All notifications of this channel."),
    click.option("--all", "every", is_flag=True, help="All notifications."),
)
_TYPE = click.argument(
    "type", type=click.Choice(["webhook", "slack", "teams", "email", "pagerduty", "alertmanager"])
)

add_commands(
    channels,
    request_command("create NAME", "POST /notification-channels",
            "Create a channel. Its secret is stored encrypted and never shown again.", _TYPE, *_CHANNEL_OPTIONS,
            request_body=_channel_request_body),
    request_command("edit NAME", "PATCH /notification-channels/{name}",
            "Change a channel that was created by command or in the console. Values that you omit "
            "stay, including the secret.",
            *_CHANNEL_OPTIONS, request_body=_channel_changes_or_exit),
    request_command("delete NAME", "DELETE /notification-channels/{name}",
            "Delete a channel that was created by command or in the console.", show_response="channel {name} deleted"),
    request_command("test NAME", "POST /notification-channels/{name}/test",
            "Send a test notification to a channel. `tollhouse notifications show ID` shows the result."),
)  # fmt: skip
add_commands(
    notifications,
    request_command("show ID", "GET /notifications/{id}", "Show one notification with its full text."),
    request_command("retry", "POST /notifications/retry",
            "Send failed notifications again. Waiting notifications that you name by id are tried at "
            "once.", *_CHOICE,
            request_body=_notification_selection_body, show_response="{retried} will be sent again"),
    request_command("discard", "POST /notifications/discard", "Discard waiting or failed notifications.", *_CHOICE,
            request_body=_notification_selection_body, show_response="{discarded} discarded"),
)  # fmt: skip
