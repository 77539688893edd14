"""
Operator API of notification channels. Secrets can be set, but are never returned.

Channels created in the console are changed here. Configured channels are changed only in the configuration file.
"""

from __future__ import annotations

import secrets
from collections.abc import Collection, Iterator, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Annotated, Any, TypeAlias

import msgspec

from gateway.core.fields import (
    KEPT,
    build_answer,
    changes_struct,
    given_fields,
    item_struct,
    one_field_answer,
    one_item_answer_struct,
)
from gateway.http.lists import Filter, ListDefinition, MemoryRows, SearchableObject, Sort
from gateway.http.requests import Result
from gateway.operations.answers import DeletedItem, NotificationItem
from gateway.operations.files.declared import ResourceFiles
from gateway.operations.files.kinds import MoneyCaller, ObjectFileHandler
from gateway.operations.holders.operators import InstallationServices
from gateway.operations.money.notifications import delivery_error_as_visible, describe_notification
from gateway.operations.requests.address import NOTHING, operator_call
from gateway.operations.requests.requests import OperatorRequest, RequestBody
from spool.errors import NotAllowed, NotThere
from spool.record import utc_iso
from spool.registry.field_notes import example, words
from spool.registry.notices import CHANNEL_STATES, RUNNING, TEST, WARNING, ChannelState, Notice
from spool.registry.permission_sets import (
    INSTALLATION_ADMINISTRATION,
    OPERATE_SPOOL,
    VIEW_COSTS,
    VIEW_OPERATION,
)
from spool.registry.registry import Registry
from spool.registry.tables.kept_channels import ChannelFields, StoredChannel


class NewNotificationChannel(ChannelFields, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A new channel. The other fields are as in [[notify]]."""

    secret: Annotated[
        str | None,
        words(
            "The address for slack and teams, the signing secret for webhook, the password for email, the "
            "integration key for pagerduty, and the bearer token for alertmanager."
        ),
        example("whsec_..."),
    ] = None


if TYPE_CHECKING:
    ChannelChanges: TypeAlias = Any
else:
    ChannelChanges = changes_struct(
        NewNotificationChannel,
        "Changes to a channel. Omitted fields, including the secret, do not change.",
        unchangeable_fields=("name", "type"),
    )
NotificationChannelItem = item_struct(
    NewNotificationChannel,
    "A channel that was created in the console, without its secret.",
    omitted_fields=("secret",),
    has_id=False,
    answer_only_fields={
        "secret_since": Annotated[
            str | None, words("When the secret was set, or null."), example("2026-11-27T01:45:10.786Z")
        ],
        "last_updated": KEPT["last_updated"],
        "version": KEPT["version"],
    },
)
OneNotificationChannel = one_item_answer_struct(NewNotificationChannel, NotificationChannelItem)


def describe_kept_channel(row: StoredChannel) -> Mapping[str, object]:
    return build_answer(
        NotificationChannelItem,
        row,
        secret_since=row.secret_since or None,
        last_updated=utc_iso(row.last_updated),
    )


class ChannelTest(RequestBody):
    """The request body, an empty JSON object."""


def describe_channel(channel: ChannelState) -> dict[str, object]:
    return build_answer(
        ChannelStateItem,
        channel,
        origin="console" if channel.is_kept else "configuration",
        reason=channel.reason or None,
        waiting=channel.counts.waiting,
        sent=channel.counts.sent,
        failed=channel.counts.failed,
        oldest=None if channel.oldest is None else utc_iso(channel.oldest),
        failing_since=None if channel.failing_since is None else utc_iso(channel.failing_since),
    )


CHANNELS: ListDefinition[ChannelState] = ListDefinition(
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


class ChannelStateItem(msgspec.Struct, kw_only=True):
    name: Annotated[str, words("The name of the channel."), example("finops")]
    type: Annotated[str, words("The type of the channel."), example("webhook")]
    origin: Annotated[
        str,
        words("Whether the channel comes from the configuration or the console."),
        example("configuration"),
    ]
    state: Annotated[str, words("The state of the channel."), example("running")]
    reason: Annotated[str | None, words("Why the channel does not send, or null."), example(None)]
    insights: Annotated[
        str, words("The minimum severity of insights that are sent, or `none`."), example("warning")
    ]
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


class ChannelName(msgspec.Struct, kw_only=True):
    name: Annotated[str, words("The name of the channel."), example("finops")]
    state: Annotated[str, words("The state of the channel."), example("running")]
    takes_reports: Annotated[bool, words("Whether the channel can send scheduled reports."), example(True)]
    takes_people: Annotated[
        bool, words("Whether the channel can send to people by their e-mail address."), example(False)
    ]


async def _names_of_channels(
    request: OperatorRequest[InstallationServices, None],
) -> Iterator[SearchableObject]:
    return (SearchableObject(name, (name,)) for name in request.registry.notices.channels)


@operator_call(
    "GET",
    "/notification-channels",
    VIEW_OPERATION,
    "List the channels that send notifications",
    names=_names_of_channels,
    lists=CHANNELS,
    item=ChannelStateItem,
)
async def list_channels(request: OperatorRequest[InstallationServices, None]) -> Result:
    request.services.require_registry()
    rows = [
        replace(row, reason=delivery_error_as_visible(request, row.reason))
        for row in await request.services.channels()
    ]
    return await request.list_page(CHANNELS, MemoryRows(rows))


@operator_call(
    "POST",
    "/notification-channels",
    INSTALLATION_ADMINISTRATION,
    "Create a channel",
    status=201,
    answers=OneNotificationChannel,
)
async def add_channel(request: OperatorRequest[InstallationServices, NewNotificationChannel]) -> Result:
    table = request.registry.kept_channels
    limit = request.shared.most(table.limit)
    channel = await table.create(request.body, request.body.secret, max_rows=limit, actor=request.actor)
    return {"notification_channel": describe_kept_channel(channel)}


@operator_call(
    "GET",
    "/notification-channels/{name}",
    VIEW_OPERATION,
    "Show a channel that was created in the console",
    answers=OneNotificationChannel,
)
async def show_channel(request: OperatorRequest[InstallationServices, None]) -> Result:
    return {
        "notification_channel": describe_kept_channel(
            request.registry.kept_channels.get(_stored_channel_name(request))
        )
    }


@operator_call(
    "PATCH",
    "/notification-channels/{name}",
    INSTALLATION_ADMINISTRATION,
    "Change a channel",
    answers=OneNotificationChannel,
)
async def edit_channel(request: OperatorRequest[InstallationServices, ChannelChanges]) -> Result:
    changes = given_fields(request.body)
    secret = changes.pop("secret", None)
    table = request.registry.kept_channels
    changed = await table.change(
        _stored_channel_name(request), changes, secret, version=request.body.version, actor=request.actor
    )
    return {"notification_channel": describe_kept_channel(changed)}


@operator_call(
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


@operator_call(
    "GET",
    "/channel-names",
    VIEW_COSTS,
    "List the names of the channels",
    shows=NOTHING,
    answers=one_field_answer(
        "ListChannelNamesAnswer",
        channel_names=Annotated[list[ChannelName], words("The channel names, each with the fields below.")],
    ),
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


@operator_call(
    "POST",
    "/notification-channels/{name}/test",
    OPERATE_SPOOL,
    "Send a test notification to a channel",
    status=201,
    answers=one_field_answer(
        "TestNotificationAnswer", notification=Annotated[NotificationItem, words("The test notification.")]
    ),
)
async def test_channel(request: OperatorRequest[InstallationServices, ChannelTest]) -> Result:
    table = request.registry.notices
    name = request.path_parameter("name")
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
    name = request.path_parameter("name")
    registry = request.registry
    if registry.kept_channels.find(name) is None and name in registry.notices.channels:
        raise NotAllowed(f"{name} is a channel of the configuration; change it there, then reload")
    return name


class ChannelFileHandler(ObjectFileHandler):
    """Channels that people created, in files. A file names the file with the secret of a channel."""

    files = ResourceFiles(name="channels", ignores_case=False)
    noun = action = "channel"
    new = NewNotificationChannel
    reads = VIEW_OPERATION
    changes = INSTALLATION_ADMINISTRATION
    without = ("secret",)
    has_secret = is_found_by_name = True

    async def rows_by_id(self, registry: Registry) -> Mapping[str, StoredChannel]:
        return {channel.id: channel for channel in registry.kept_channels.all()}

    async def find(self, registry: Registry, id: str) -> StoredChannel | None:
        return registry.kept_channels.find(id)

    def known_names(self, registry: Registry) -> Collection[str]:
        return registry.notices.channels

    async def create(
        self, caller: MoneyCaller, new_values: NewNotificationChannel, secret: str | None
    ) -> str:
        table = caller.registry.kept_channels
        most = caller.shared.most(table.limit)
        return (await table.create(new_values, secret, max_rows=most, actor=caller.actor)).id

    async def change(
        self, caller: MoneyCaller, row: StoredChannel, new_values: NewNotificationChannel, secret: str | None
    ) -> None:
        fields = self._channel_fields(new_values)
        await caller.registry.kept_channels.change(row.name, fields, secret, actor=caller.actor)

    async def delete(self, caller: MoneyCaller, row: StoredChannel) -> None:
        await caller.registry.kept_channels.delete(row.name, actor=caller.actor)

    def secret_version(self, row: StoredChannel) -> object:
        return row.sealed

    def needs_secret(self, row: StoredChannel) -> bool:
        return bool(row.sealed)

    def _channel_fields(self, new_values: NewNotificationChannel) -> dict[str, Any]:
        return {name: getattr(new_values, name) for name in self.field_names}


CHANNEL_KIND = ChannelFileHandler()
