"""
Messages about routes that deliver nothing: why they stopped, and that nothing is lost. Routes of one
destination that stopped for the same reason have one cause.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence

from spool.deliveries.values import ORPHANED, PARKED, REFUSING, RUNNING, RouteState

_UPSTREAM = "upstream"  # the destination name of the [upstream] section
_WRONG_KEY = ("401", "403")
_PATH = "the path, the permissions there or the disk"
_HTTP = "the address, the headers or the secret"
_STORE = "the bucket, the address or the credentials"
# Destination type -> settings that an operator may have to correct.
TO_CORRECT = {
    _UPSTREAM: "the address or a key of [upstream]",
    "ndjson": _PATH,
    "focus": _PATH,
    "file": _PATH,
    "s3": _STORE,
    "gcs": _STORE,
    "azure": _STORE,
    "otlp": _HTTP,
    "webhook": _HTTP,
    "kafka": "the brokers, the topic or the credentials",
    "clickhouse": "the address, the table or the password",
}
_STATUS = re.compile(r"\d{3}\b")
_KEY = re.compile(r"\(key ([^()]+)\)$")


def group_by_cause(routes: Iterable[RouteState]) -> list[list[RouteState]]:
    """
    Group the routes that stopped for the same reason at the same destination. Each running route is a group
    of its own.
    """
    groups: dict[tuple[str, ...], list[RouteState]] = {}
    for route in sorted(routes, key=lambda route: route.name):
        destination = route.name.rpartition("/")[0]
        reason = "" if route.state == ORPHANED else route.reason or ""
        cause = (route.name,) if route.state == RUNNING else (destination, route.state, reason)
        groups.setdefault(cause, []).append(route)
    return [*groups.values()]


def route_trouble_title_and_text(routes: Sequence[RouteState]) -> tuple[str, str] | None:
    """
    Return a title and a sentence for routes that deliver nothing for one cause, as `group_by_cause` grouped
    them. Return None for a group that delivers.
    """
    route = routes[0]
    destination = route.name.rpartition("/")[0]
    topics = join_with_and([route.name.rpartition("/")[2] for route in routes])
    receiver = "your cost service" if destination == _UPSTREAM else destination
    if route.state == ORPHANED:
        title = f"{topics} for {destination} {'has' if len(routes) == 1 else 'have'} no destination"
        why = f"The configuration no longer has the destination {destination}, so its {topics} records wait"
    elif route.state == REFUSING:
        title = f"{receiver} rejects every record of {topics}"
        why = f"{title}: {route.reason}" if route.reason else title
    elif route.state == PARKED:
        title = f"Forwarding of {topics} to {receiver} is paused"
        why = f"{title}: {_pause_reason(receiver, route.reason)}"
    elif route.stuck:
        title = f"{receiver} does not accept one record of {topics}"
        why = f"{title}, and the route waits for it"
    else:
        return None
    return title, f"{why}. Nothing is lost."


def http_status_in(reason: str | None) -> str | None:
    """Return the HTTP status at the start of a reason, without the receiver's words."""
    status = _STATUS.match(reason or "")
    return status and status[0]


def how_to_resume(route: RouteState, types: Mapping[str, str]) -> str:
    """
    Return what to correct so that a paused route delivers again. `types` are the types of destinations by
    name. A route without a type sends to the cost service.
    """
    destination = route.name.rpartition("/")[0]
    type = types.get(destination, _UPSTREAM)
    whose = "" if type == _UPSTREAM else f" of the destination {destination}"
    keys = " and shows the scopes of each key" if type == _UPSTREAM else ""
    return (
        f"Correct {TO_CORRECT[type]}{whose}, as the error says. `tollhouse check` tests the destination{keys}. "
        "Nothing is lost, and the route resumes by itself."
    )


def join_with_and(names: Sequence[str]) -> str:
    *others, last = names
    return f"{', '.join(others)} and {last}" if others else last


def _pause_reason(receiver: str, reason: str | None) -> str:
    status = http_status_in(reason)
    if status in _WRONG_KEY:
        key = _KEY.search(reason or "")
        return f"{receiver} refuses Tollhouse's key{f' {key[1]}' if key else ''} ({status})"
    if status:
        return f"{receiver} does not accept records at this address ({status})"
    return reason or f"{receiver} does not accept records"
