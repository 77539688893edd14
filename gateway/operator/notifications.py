"""The calls of the operator API on notifications: what waits, what was sent, and the channels that send."""

from __future__ import annotations

import re
import secrets
from collections.abc import Collection, Sequence
from dataclasses import replace
from typing import Final

from gateway.http.holders.installation import InstallationServices
from gateway.http.lists import Filter, List, MemoryRows, Sort
from gateway.http.requests import Result
from gateway.operator.body import RequestBody
from gateway.operator.requests import OperatorRequest
from spool.errors import Invalid, NotThere
from spool.record import moment
from spool.registry.notices import (
    CHANNEL_STATES,
    FAILED,
    SEVERITIES,
    STATES,
    TEST,
    WAITING,
    WARNING,
    ChannelState,
    Notice,
    Notification,
)
from spool.registry.permission_sets import INSTALLATION_ADMINISTRATION

# How an error begins in which somebody else's words follow: a status, of a recipient of mail too, or none.
_ANSWERED: Final = re.compile(r"(?:\S+@\S+: )?\d{3}\b|no answer\b")


class ChosenNotifications(RequestBody):
    """Notifications by id, or those of one channel, or all of them."""

    ids: list[str] | None = None
    channel: str | None = None
    all: bool = False


class ChannelTest(RequestBody):
    """An empty object."""


def describe_notification(row: Notification) -> dict[str, object]:
    notice = row.notice
    return {
        "id": row.id,
        "notice": notice.id,
        "channel": row.channel,
        "number": row.number,
        "state": row.state,
        "kind": notice.kind,
        "severity": notice.severity,
        "title": notice.title,
        "at": moment(notice.at),
        "attempts": row.attempts,
        "not_before": moment(row.not_before) if row.not_before else None,
        "settled": None if row.settled is None else moment(row.settled),
        "error": row.error or None,
    }


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
    }


NOTIFICATIONS: List[Notification] = List(
    root="notifications",
    show=describe_notification,
    identity=Sort(value=lambda row: row.id),
    sorts={
        "at": Sort(value=lambda row: row.notice.at),
        "settled": Sort(value=lambda row: row.settled),
        "channel": Sort(value=lambda row: row.channel),
        "severity": Sort(value=lambda row: SEVERITIES.index(row.notice.severity)),
        "state": Sort(value=lambda row: STATES.index(row.state)),
        "attempts": Sort(value=lambda row: row.attempts),
    },
    default_sort=("at", "desc"),
    filters={
        "state": Filter(values=lambda row: (row.state,), valid_values=STATES),
        "channel": Filter(values=lambda row: (row.channel,)),
        "kind": Filter(values=lambda row: (row.notice.kind,)),
        "severity": Filter(values=lambda row: (row.notice.severity,), valid_values=SEVERITIES),
    },
)

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


async def list_notifications(request: OperatorRequest[InstallationServices, None]) -> Result:
    rows = [replace(row, error=_said(request, row.error)) for row in await _all(request)]
    return await request.list(NOTIFICATIONS, MemoryRows(rows))


async def show_notification(request: OperatorRequest[InstallationServices, None]) -> Result:
    row = await request.registry.notices.find(request.word("id"))
    row = replace(row, error=_said(request, row.error))
    notice = row.notice
    said = {"text": notice.text, "fields": dict(notice.fields), "link": notice.link, "thread": notice.thread}
    return {"notification": {**describe_notification(row), **said}}


async def list_channels(request: OperatorRequest[InstallationServices, None]) -> Result:
    request.services.require_registry()
    rows = [replace(row, reason=_said(request, row.reason)) for row in await request.services.channels()]
    return await request.list(CHANNELS, MemoryRows(rows))


async def list_channel_names(request: OperatorRequest[InstallationServices, None]) -> Result:
    """
    List the names that budgets, views and reports may use, for people who may change those and may not see
    how channels fare.
    """
    table = request.registry.notices
    return {
        "channel_names": [
            {
                "name": name,
                "takes_reports": name in table.report_channels,
                "takes_people": name in table.mail_channels,
            }
            for name in table.channels
        ]
    }


async def test_channel(request: OperatorRequest[InstallationServices, ChannelTest]) -> Result:
    """Send a notice to one channel that only shows whether it arrives."""
    table = request.registry.notices
    name = request.word("name")
    if name not in table.channels:
        raise NotThere("there is no channel with this name")
    notice = Notice(
        id=f"test-{secrets.token_hex(16)}",
        kind=TEST,
        title="Test of a notification channel",
        at=request.services.clock.now(),
        text=f"This is a test of the channel {name}. Nothing has happened, and there is nothing to do.",
        severity=WARNING,
    )
    return {"notification": describe_notification(await table.test(notice, name, actor=request.actor))}


async def retry_notifications(request: OperatorRequest[InstallationServices, ChosenNotifications]) -> Result:
    """Send those that failed or were discarded again; by ids, those that wait are tried at once, too."""
    ids = await _chosen(request, of_states=(FAILED,))
    return {"retried": await request.registry.notices.retry(ids, actor=request.actor)}


async def discard_notifications(
    request: OperatorRequest[InstallationServices, ChosenNotifications],
) -> Result:
    ids = await _chosen(request, of_states=(WAITING, FAILED))
    return {"discarded": await request.registry.notices.discard(ids, actor=request.actor)}


def _said(request: OperatorRequest[InstallationServices, None], error: str) -> str:
    """
    Return why a message did not arrive; for people who may not change channels without the words of who answered:
    a channel may lead to what they cannot reach themselves.
    """
    answered = _ANSWERED.match(error)
    if answered is None or INSTALLATION_ADMINISTRATION in request.rights.permission_sets:
        return error
    return answered[0]


async def _all(
    request: OperatorRequest[InstallationServices, None]
    | OperatorRequest[InstallationServices, ChosenNotifications],
) -> Sequence[Notification]:
    table = request.registry.notices
    return [*await table.waiting(), *await table.over()]


async def _chosen(
    request: OperatorRequest[InstallationServices, ChosenNotifications], *, of_states: Collection[str]
) -> list[str]:
    given = request.body
    if (given.ids is not None) + (given.channel is not None) + given.all != 1:
        raise Invalid("name notifications by their ids, or one channel, or all of them")
    if given.ids is not None:
        return given.ids
    return [
        row.id
        for row in await _all(request)
        if row.state in of_states and given.channel in (None, row.channel)
    ]
