"""
The calls of the operator API on channels that people make. Their secrets come in and never go out.

Channels of the configuration are listed beside them, and changed in the file alone.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

import msgspec
from msgspec import UNSET, UnsetType

from gateway.http.holders.installation import InstallationServices
from gateway.http.requests import Result
from gateway.operator.body import RequestBody
from gateway.operator.requests import OperatorRequest
from spool.errors import NotAllowed
from spool.record import moment
from spool.registry.shared.document_table import names_of
from spool.registry.tables.kept_channels import ChannelDraft, KeptChannel

Tls = Literal["starttls", "implicit", "none"]
Insights = Literal["none", "info", "warning", "critical"]


class NewChannel(RequestBody):
    """
    `secret` is the address of slack and teams, the signing secret of a webhook, the password of email, the integration
    key of pagerduty, the bearer token of alertmanager. The other fields are as in [[notify]].
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
    """What is left out stays as it is, the secret too."""

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
    """All but the secret, of which is told since when it is the same."""
    stated: dict[str, Any] = {name: getattr(row, name) for name in names_of(ChannelDraft)}
    stated["secret_since"] = row.secret_since or None
    return {**stated, "last_updated": moment(row.last_updated), "version": row.version}


async def add_channel(request: OperatorRequest[InstallationServices, NewChannel]) -> Result:
    given = _stated(request.body)
    secret = given.pop("secret")
    table = request.registry.kept_channels
    most = request.shared.most(table.limit)
    seal = request.services.seal_channel
    made = await table.create(ChannelDraft(**given), secret, seal, most=most, actor=request.actor)
    return {"notification_channel": describe_kept_channel(made)}


async def show_channel(request: OperatorRequest[InstallationServices, None]) -> Result:
    return {"notification_channel": describe_kept_channel(request.registry.kept_channels.get(_name(request)))}


async def edit_channel(request: OperatorRequest[InstallationServices, ChannelChanges]) -> Result:
    given = _stated(request.body)
    table = request.registry.kept_channels
    secret = given.pop("secret")
    version = given.pop("version")
    seal = request.services.seal_channel
    changed = await table.change(_name(request), given, secret, seal, version=version, actor=request.actor)
    return {"notification_channel": describe_kept_channel(changed)}


async def remove_channel(request: OperatorRequest[InstallationServices, None]) -> Result:
    """
    Remove a channel. Its waiting notices stay until they are discarded or there is a channel of this name again.
    """
    name = _name(request)
    await request.registry.kept_channels.delete(name, actor=request.actor)
    return {"deleted": name}


def _name(request: OperatorRequest[InstallationServices, Any]) -> str:
    """NotAllowed for a channel of the configuration."""
    name = request.word("name")
    registry = request.registry
    if registry.kept_channels.find(name) is None and name in registry.notices.channels:
        raise NotAllowed(f"{name} is a channel of the configuration: change it there, then reload")
    return name


def _stated(given: msgspec.Struct) -> dict[str, Any]:
    values = {name: getattr(given, name) for name in given.__struct_fields__}
    return {name: value for name, value in values.items() if value is not UNSET}
