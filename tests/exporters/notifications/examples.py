from __future__ import annotations

from typing import Any

from exporters.settings import NotifySettings
from spool.registry.notices import Notice, Notification

SECRET = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
NOW = 1_790_000_000.0  # 2026-09-21 14:13:20 UTC


def notice(id: str = "n1", **fields: Any) -> Notice:
    given = {
        "kind": "budget.threshold_crossed",
        "title": f"title of {id}",
        "at": NOW,
        "severity": "warning",
        **fields,
    }
    return Notice(id=id, **given)


def waiting(
    number: int, *, message: int | None = None, not_before: float = 0.0, **fields: Any
) -> Notification:
    said = notice(f"n{number}", **fields)
    return Notification(notice=said, channel="one", number=number, message=message, not_before=not_before)


def settings(type: str = "webhook", **fields: Any) -> NotifySettings:
    """Return channel settings that send notices at once, unless `fields` says otherwise."""
    return NotifySettings(**{"name": "one", "type": type, "group_wait": 0.0, **fields})
