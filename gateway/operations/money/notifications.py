"""Operator API of notifications, waiting and sent."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace
from typing import Annotated, Any

from gateway.core.fields import build_answer, one_field_answer
from gateway.http.lists import Filter, ListDefinition, MemoryRows, Sort
from gateway.http.requests import Result
from gateway.monitoring.channel_trouble import strip_response_text
from gateway.operations.answers import Discarded, NotificationItem, Retried
from gateway.operations.holders.operators import InstallationServices
from gateway.operations.requests.address import operator_call
from gateway.operations.requests.requests import OperatorRequest, RequestBody
from spool.errors import Invalid
from spool.record import utc_iso
from spool.registry.field_notes import example, words
from spool.registry.notices import FAILED, SEVERITIES, STATES, WAITING, Notification
from spool.registry.permission_sets import INSTALLATION_ADMINISTRATION, OPERATE_SPOOL, VIEW_OPERATION


class ChosenNotifications(RequestBody):
    """A selection of notifications."""

    ids: Annotated[list[str] | None, words("The ids of the notifications.")] = None
    channel: Annotated[str | None, words("The name of the channel whose notifications are chosen.")] = None
    all: Annotated[bool, words("Whether all notifications are chosen.")] = False


def describe_notification(row: Notification) -> dict[str, object]:
    notice = row.notice
    return build_answer(
        NotificationItem,
        row,
        notice=notice.id,
        kind=notice.kind,
        severity=notice.severity,
        title=notice.title,
        at=utc_iso(notice.at),
        not_before=utc_iso(row.not_before) if row.not_before else None,
        settled=None if row.settled is None else utc_iso(row.settled),
        error=row.error or None,
    )


NOTIFICATIONS: ListDefinition[Notification] = ListDefinition(
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


class NotificationDetails(NotificationItem, kw_only=True):
    text: Annotated[
        str,
        words("The text of the notification."),
        example(
            "This is a test of the channel search-team. Nothing has happened, and you need not do anything."
        ),
    ]
    fields: Annotated[dict[str, str], words("Facts about the event, as name and value."), example({})]
    link: Annotated[str, words("An address with more about the notification, or empty."), example("")]
    thread: Annotated[
        str, words("The subject that joins notifications about the same item, or empty."), example("")
    ]


@operator_call(
    "GET", "/notifications", VIEW_OPERATION, "List notifications", lists=NOTIFICATIONS, item=NotificationItem
)
async def list_notifications(request: OperatorRequest[InstallationServices, None]) -> Result:
    rows = [
        replace(row, error=delivery_error_as_visible(request, row.error))
        for row in await _all_notifications(request)
    ]
    return await request.list_page(NOTIFICATIONS, MemoryRows(rows))


@operator_call(
    "GET",
    "/notifications/{id}",
    VIEW_OPERATION,
    "Show a notification",
    answers=one_field_answer(
        "OneNotification",
        notification=Annotated[NotificationDetails, words("The notification, with the fields below.")],
    ),
)
async def show_notification(request: OperatorRequest[InstallationServices, None]) -> Result:
    row = await request.registry.notices.find(request.path_parameter("id"))
    row = replace(row, error=delivery_error_as_visible(request, row.error))
    notice = row.notice
    message = {
        "text": notice.text,
        "fields": dict(notice.fields),
        "link": notice.link,
        "thread": notice.thread,
    }
    return {"notification": {**describe_notification(row), **message}}


@operator_call("POST", "/notifications/retry", OPERATE_SPOOL, "Send notifications again", answers=Retried)
async def retry_notifications(request: OperatorRequest[InstallationServices, ChosenNotifications]) -> Result:
    """
    Send failed or discarded notifications again. Waiting notifications selected by id are also
    sent at once.
    """
    ids = await _chosen_ids(request, of_states=(FAILED,))
    return {"retried": await request.registry.notices.retry_notifications(ids, actor=request.actor)}


@operator_call("POST", "/notifications/discard", OPERATE_SPOOL, "Discard notifications", answers=Discarded)
async def discard_notifications(
    request: OperatorRequest[InstallationServices, ChosenNotifications],
) -> Result:
    ids = await _chosen_ids(request, of_states=(WAITING, FAILED))
    return {"discarded": await request.registry.notices.discard_notifications(ids, actor=request.actor)}


def delivery_error_as_visible(request: OperatorRequest[Any, None], error: str) -> str:
    """
    Return why a message did not arrive. People who may not change channels do not see the text of
    the receiver's response.
    """
    may_change = INSTALLATION_ADMINISTRATION in request.rights.permission_sets
    return error if may_change else strip_response_text(error)


async def _all_notifications(
    request: OperatorRequest[InstallationServices, None]
    | OperatorRequest[InstallationServices, ChosenNotifications],
) -> Sequence[Notification]:
    table = request.registry.notices
    return [*await table.waiting_notifications(), *await table.finished_notifications()]


async def _chosen_ids(
    request: OperatorRequest[InstallationServices, ChosenNotifications], *, of_states: Collection[str]
) -> list[str]:
    body = request.body
    if (body.ids is not None) + (body.channel is not None) + body.all != 1:
        raise Invalid("give either the ids of notifications, or a channel, or all")
    if body.ids is not None:
        return body.ids
    return [
        row.id
        for row in await _all_notifications(request)
        if row.state in of_states and body.channel in (None, row.channel)
    ]
