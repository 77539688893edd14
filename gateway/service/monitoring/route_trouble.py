"""The words for a route that delivers nothing: why it stopped, and that nothing is lost."""

from __future__ import annotations

import re

from spool.deliveries.values import ORPHANED, PARKED, REFUSING, RouteState

_UPSTREAM = "upstream"  # the destination name of the [upstream] section
_WRONG_KEY = ("401", "403")
_STATUS = re.compile(r"\d{3}\b")
_KEY = re.compile(r"\(key ([^()]+)\)$")


def trouble_of(route: RouteState) -> tuple[str, str] | None:
    """Return a title and a sentence for a route that delivers nothing now, or None if it delivers."""
    destination, _, topic = route.name.rpartition("/")
    receiver = "your cost service" if destination == _UPSTREAM else destination
    if route.state == ORPHANED:
        title = f"{topic} for {destination} has no destination"
        why = f"The configuration no longer has the destination {destination}, so its {topic} records wait"
    elif route.state == REFUSING:
        title = f"{receiver} rejects every record of {topic}"
        why = f"{title}: {route.reason}" if route.reason else title
    elif route.state == PARKED:
        title = f"Forwarding of {topic} is paused"
        why = f"{title}: {_why_paused(receiver, route.reason)}"
    elif route.stuck:
        title = f"{receiver} does not accept one record of {topic}"
        why = f"{title}, and the route waits for it"
    else:
        return None
    return title, f"{why}. Nothing is lost."


def _why_paused(receiver: str, reason: str | None) -> str:
    status = _STATUS.match(reason or "")
    if status and status[0] in _WRONG_KEY:
        key = _KEY.search(reason or "")
        return f"{receiver} refuses Tollhouse's key{f' {key[1]}' if key else ''} ({status[0]})"
    if status:
        return f"{receiver} does not accept records at this address ({status[0]})"
    return reason or f"{receiver} does not accept records"
