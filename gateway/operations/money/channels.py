"""
Operator API of notification channels. Secrets can be set, but are never returned.

Channels created in the console are changed here. Configured channels are changed only in the configuration file.
"""

from __future__ import annotations

import secrets
from collections.abc import Collection, Mapping
from dataclasses import replace
from typing import Annotated, Any, Literal

import msgspec
from msgspec import UNSET, UnsetType

from gateway.http.lists import Filter, List, MemoryRows, Sort
from gateway.http.requests import Result
from gateway.operations.answers import DeletedItem, NotificationItem
from gateway.operations.files.declared import InFiles
from gateway.operations.files.kinds import Asking, FileKind
from gateway.operations.holders.operators import InstallationServices
from gateway.operations.money.notifications import describe_notification, shown_error
from gateway.operations.requests.address import NOTHING, call
from gateway.operations.requests.requests import OperatorRequest, RequestBody
from spool.errors import NotAllowed, NotThere
from spool.record import moment
from spool.registry.document_table import field_names
from spool.registry.field_notes import example, words
from spool.registry.notices import CHANNEL_STATES, RUNNING, TEST, WARNING, ChannelState, Notice
from spool.registry.permission_sets import (
    INSTALLATION_ADMINISTRATION,
    OPERATE_SPOOL,
    VIEW_COSTS,
    VIEW_OPERATION,
)
from spool.registry.registry import Registry
from spool.registry.tables.kept_channels import ChannelDraft, KeptChannel

Tls = Literal["starttls", "implicit", "none"]
Insights = Literal["none", "info", "warning", "critical"]


class NewChannel(RequestBody):
    """
    A new channel. The other fields are as in [[notify]].

    `secret` is the address for slack and teams, the signing secret for webhook, the password for email, the
    integration key for pagerduty, and the bearer token for alertmanager.
    """

    name: str
    type: str
    secret: str | None = None
    url: str = ""
    server: str = ""
    tls: Tls = "starttls"
    username: str = ""
    sender: str = ""
    to: tuple[str, ...] = ()
    insights: Insights = "warning"
    categories: tuple[str, ...] = ()
    quiet_hours: str = ""
    digest: str = ""
    time_zone: str = "UTC"


class ChannelChanges(RequestBody):
    """Changes to a channel. Omitted fields, including the secret, do not change."""

    version: str | None = None
    secret: str | None = None
    url: str | UnsetType = UNSET
    server: str | UnsetType = UNSET
    tls: Tls | UnsetType = UNSET
    username: str | UnsetType = UNSET
    sender: str | UnsetType = UNSET
    to: tuple[str, ...] | UnsetType = UNSET
    insights: Insights | UnsetType = UNSET
    categories: tuple[str, ...] | UnsetType = UNSET
    quiet_hours: str | UnsetType = UNSET
    digest: str | UnsetType = UNSET
    time_zone: str | UnsetType = UNSET


def describe_kept_channel(row: KeptChannel) -> Mapping[str, object]:
    """Describe a channel without its secret, but with the time when the secret was last changed."""
    stated: dict[str, Any] = {name: getattr(row, name) for name in field_names(ChannelDraft)}
    stated["secret_since"] = row.secret_since or None
    return {**stated, "last_updated": moment(row.last_updated), "version": row.version}


class ChannelTest(RequestBody):
    """An empty JSON object."""


def describe_channel(channel: ChannelState) -> dict[str, object]:
    return {
        "name": channel.name,
        "type": channel.type,
        "origin": "console" if channel.is_kept else "configuration",
        "state": channel.state,
        "reason": channel.reason or None,
        "insights": channel.insights,
        "waiting": channel.counts.waiting,
        "sent": channel.counts.sent,
        "failed": channel.counts.failed,
        "oldest": None if channel.oldest is None else moment(channel.oldest),
        "critical": channel.critical,
        "failing_since": None if channel.failing_since is None else moment(channel.failing_since),
    }


CHANNELS: List[ChannelState] = List(
    root="notification_channels",
    show=describe_channel,
    identity=Sort(value=lambda row: row.name),
    sorts={
        "name": Sort(value=lambda row: row.name),
        "type": Sort(value=lambda row: row.type),
        "state": Sort(value=lambda row: CHANNEL_STATES.index(row.state)),
        "waiting": Sort(value=lambda row: row.counts.waiting),
    },
    default_sort=("name", "asc"),
    filters={
        "state": Filter(values=lambda row: (row.state,), valid_values=CHANNEL_STATES),
        "type": Filter(values=lambda row: (row.type,)),
    },
)


class NotificationChannelItem(msgspec.Struct, kw_only=True):
    name: Annotated[str, words("The name of the channel."), example("finops")]
    type: Annotated[str, words("The type of the channel."), example("webhook")]
    origin: Annotated[
        str,
        words("Whether the channel comes from the configuration or the console."),
        example("configuration"),
    ]
    state: Annotated[str, words("The state of the channel."), example("running")]
    reason: Annotated[str | None, words("Why the channel does not send, or null."), example(None)]
    insights: Annotated[str, words("The minimum severity of insights that are sent."), example("warning")]
    waiting: Annotated[int, words("The number of notifications that wait."), example(0)]
    sent: Annotated[int, words("The number of sent notifications."), example(3)]
    failed: Annotated[int, words("The number of failed notifications."), example(0)]
    oldest: Annotated[
        str | None, words("When the oldest waiting notification was made, or null."), example(None)
    ]
    critical: Annotated[
        int, words("The number of critical notifications among the waiting ones."), example(0)
    ]
    failing_since: Annotated[
        str | None, words("The time since which no attempt succeeded, or null."), example(None)
    ]


class ChannelDetails(msgspec.Struct, kw_only=True):
    name: Annotated[str, words("The name of the channel."), example("search-team")]
    type: Annotated[str, words("The type of the channel."), example("webhook")]
    url: Annotated[
        str, words("The address to which the channel sends."), example("https://hooks.example.com/tollhouse")
    ]
    server: Annotated[str, words("The mail server as HOST:PORT."), example("")]
    tls: Annotated[str, words("The encryption of the connection to the mail server."), example("starttls")]
    username: Annotated[str, words("The user name on the mail server."), example("")]
    sender: Annotated[str, words("The sender address of mails."), example("")]
    to: Annotated[list[str], words("E-mail addresses of the recipients."), example([])]
    insights: Annotated[str, words("The minimum severity of insights that are sent."), example("warning")]
    categories: Annotated[
        list[str], words("The categories of insights that are sent; empty for all."), example([])
    ]
    quiet_hours: Annotated[
        str, words("The hours in which only critical notifications are sent."), example("")
    ]
    digest: Annotated[
        str,
        words("The time of day at which notifications of severity `info` are sent together."),
        example(""),
    ]
    time_zone: Annotated[str, words("The time zone of the quiet hours and the digest."), example("UTC")]
    secret_since: Annotated[str, words("When the secret was set."), example("2026-11-27T01:45:10.786Z")]
    last_updated: Annotated[
        str, words("When the channel was last changed."), example("2026-11-27T01:45:10.786Z")
    ]
    version: Annotated[
        str, words("Changes with each edit; send it back."), example("316e881e34aeed8723914e3c")
    ]


class OneChannelDetails(msgspec.Struct, kw_only=True):
    notification_channel: Annotated[ChannelDetails, words("The channel.")]


class ChannelName(msgspec.Struct, kw_only=True):
    name: Annotated[str, words("The name of the channel."), example("finops")]
    state: Annotated[str, words("The state of the channel."), example("running")]
    takes_reports: Annotated[bool, words("Whether the channel can send scheduled reports."), example(True)]
    takes_people: Annotated[
        bool, words("Whether the channel can send to people by their e-mail address."), example(False)
    ]


class ListChannelNamesAnswer(msgspec.Struct, kw_only=True):
    channel_names: Annotated[list[ChannelName], words("The channel names, each with the fields below.")]


class TestNotificationAnswer(msgspec.Struct, kw_only=True):
    notification: Annotated[NotificationItem, words("The test notification.")]


@call(
    "GET",
    "/notification-channels",
    VIEW_OPERATION,
    "List the channels that send notifications",
    lists=CHANNELS,
    item=NotificationChannelItem,
)
async def list_channels(request: OperatorRequest[InstallationServices, None]) -> Result:
    request.services.require_registry()
    rows = [
        replace(row, reason=shown_error(request, row.reason)) for row in await request.services.channels()
    ]
    return await request.list(CHANNELS, MemoryRows(rows))


@call(
    "POST",
    "/notification-channels",
    INSTALLATION_ADMINISTRATION,
    "Create a channel",
    status=201,
    answers=OneChannelDetails,
)
async def add_channel(request: OperatorRequest[InstallationServices, NewChannel]) -> Result:
    stated_fields = _given_fields(request.body)
    secret = stated_fields.pop("secret")
    table = request.registry.kept_channels
    limit = request.shared.most(table.limit)
    seal = request.services.seal_channel
    channel = await table.create(ChannelDraft(**stated_fields), secret, seal, most=limit, actor=request.actor)
    return {"notification_channel": describe_kept_channel(channel)}


@call(
    "GET",
    "/notification-channels/{name}",
    VIEW_OPERATION,
    "Show a channel that was created in the console",
    answers=OneChannelDetails,
)
async def show_channel(request: OperatorRequest[InstallationServices, None]) -> Result:
    return {
        "notification_channel": describe_kept_channel(
            request.registry.kept_channels.get(_stored_channel_name(request))
        )
    }


@call(
    "PATCH",
    "/notification-channels/{name}",
    INSTALLATION_ADMINISTRATION,
    "Change a channel",
    answers=OneChannelDetails,
)
async def edit_channel(request: OperatorRequest[InstallationServices, ChannelChanges]) -> Result:
    stated_fields = _given_fields(request.body)
    table = request.registry.kept_channels
    secret = stated_fields.pop("secret")
    version = stated_fields.pop("version")
    seal = request.services.seal_channel
    changed = await table.change(
        _stored_channel_name(request), stated_fields, secret, seal, version=version, actor=request.actor
    )
    return {"notification_channel": describe_kept_channel(changed)}


@call(
    "DELETE",
    "/notification-channels/{name}",
    INSTALLATION_ADMINISTRATION,
    "Delete a channel",
    answers=DeletedItem,
)
async def remove_channel(request: OperatorRequest[InstallationServices, None]) -> Result:
    """
    Delete a channel. Its waiting notices stay until they are discarded, or until a channel of the same
    name is created.
    """
    name = _stored_channel_name(request)
    await request.registry.kept_channels.delete(name, actor=request.actor)
    return {"deleted": name}


@call(
    "GET",
    "/channel-names",
    VIEW_COSTS,
    "List the names of the channels",
    shows=NOTHING,
    answers=ListChannelNamesAnswer,
)
async def list_channel_names(request: OperatorRequest[InstallationServices, None]) -> Result:
    """
    List the channel names for budgets, views and reports. This call exists because some people may change
    budgets and views but not see the reasons why a channel sends nothing.
    """
    table = request.registry.notices
    states = {channel.name: channel.state for channel in await request.services.channels()}
    return {
        "channel_names": [
            {
                "name": name,
                "state": states.get(name, RUNNING),
                "takes_reports": name in table.report_channels,
                "takes_people": name in table.mail_channels,
            }
            for name in table.channels
        ]
    }


@call(
    "POST",
    "/notification-channels/{name}/test",
    OPERATE_SPOOL,
    "Send a test notification to a channel",
    status=201,
    answers=TestNotificationAnswer,
)
async def test_channel(request: OperatorRequest[InstallationServices, ChannelTest]) -> Result:
    table = request.registry.notices
    name = request.word("name")
    if name not in table.channels:
        raise NotThere("there is no channel with this name")
    notice = Notice(
        id=f"test-{secrets.token_hex(16)}",
        kind=TEST,
        title="Test of a notification channel",
        at=request.services.clock.now(),
        text=f"This is a test of the channel {name}. Nothing has happened, and you need not do anything.",
        severity=WARNING,
    )
    return {
        "notification": describe_notification(await table.add_test_notice(notice, name, actor=request.actor))
    }


def _stored_channel_name(request: OperatorRequest[InstallationServices, Any]) -> str:
    """Return the channel name in the path. Raises NotAllowed for a configured channel."""
    name = request.word("name")
    registry = request.registry
    if registry.kept_channels.find(name) is None and name in registry.notices.channels:
        raise NotAllowed(f"{name} is a channel of the configuration; change it there, then reload")
    return name


def _given_fields(body: msgspec.Struct) -> dict[str, Any]:
    values = {name: getattr(body, name) for name in body.__struct_fields__}
    return {name: value for name, value in values.items() if value is not UNSET}


class ChannelKind(FileKind):
    """Channels that people created, in files. A file names the file with the secret of a channel."""

    files = InFiles(name="channels", ignores_case=False)
    noun = action = "channel"
    new = NewChannel
    reads = VIEW_OPERATION
    without = ("secret",)
    has_secret = is_found_by_name = True

    async def rows(self, registry: Registry) -> Mapping[str, KeptChannel]:
        return {channel.id: channel for channel in registry.kept_channels.all()}

    async def find(self, registry: Registry, id: str) -> KeptChannel | None:
        return registry.kept_channels.find(id)

    def known_names(self, registry: Registry) -> Collection[str]:
        return registry.notices.channels

    async def create(self, asking: Asking, given: NewChannel, secret: str | None) -> str:
        table, shared = asking.registry.kept_channels, asking.shared
        draft, most = ChannelDraft(**self._channel_fields(given)), shared.most(table.limit)
        created = await table.create(draft, secret, shared.seal_channel, most=most, actor=asking.actor)
        shared.name_channels(asking.registry)
        return created.id

    async def change(self, asking: Asking, row: KeptChannel, given: NewChannel, secret: str | None) -> None:
        fields = self._channel_fields(given)
        seal = asking.shared.seal_channel
        await asking.registry.kept_channels.change(row.name, fields, secret, seal, actor=asking.actor)
        asking.shared.name_channels(asking.registry)

    async def delete(self, asking: Asking, row: KeptChannel) -> None:
        await asking.registry.kept_channels.delete(row.name, actor=asking.actor)
        asking.shared.name_channels(asking.registry)

    def secret_mark(self, row: KeptChannel) -> object:
        return row.sealed

    def needs_secret(self, row: KeptChannel) -> bool:
        return bool(row.sealed)

    def _channel_fields(self, given: NewChannel) -> dict[str, Any]:
        return {name: getattr(given, name) for name in self.fields}


CHANNEL_KIND = ChannelKind()
