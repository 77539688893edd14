"""Messages about notification channels that are down, so that people who wait for notifications get none."""

from __future__ import annotations

import re
from datetime import UTC, datetime
from typing import Final

from spool.registry.notices import ChannelState

# Start of an error that quotes the receiver's response: a status, after the mail recipient if there is one,
# or a report that there was no answer.
_ANSWERED: Final = re.compile(r"(?:\S+@\S+: )?\d{3}\b|no answer\b")


def strip_response_text(error: str) -> str:
    """
    Return an error without the text of the receiver's response. A channel may send to a host that readers of
    the error cannot reach themselves, so its response must stay hidden from them.
    """
    answered = _ANSWERED.match(error)
    return error if answered is None else answered[0]


def channel_trouble_title_and_text(channel: ChannelState, now: float) -> tuple[str, str] | None:
    """Return a title and a sentence for a channel that is down, or None for any other channel."""
    if not channel.needs_operator(now):
        return None
    title = f"The channel {channel.name} sends no notifications"
    why = f"{title}: {channel.reason}" if channel.reason else title
    waiting = (
        f"{channel.counts.waiting:,} {'notice waits' if channel.counts.waiting == 1 else 'notices wait'}"
    )
    if channel.critical:
        waiting += f", {channel.critical:,} of them critical"
    since = ""
    if channel.failing_since is not None:
        since = (
            f" It has failed since {datetime.fromtimestamp(channel.failing_since, UTC):%Y-%m-%d %H:%M} UTC."
        )
    return title, f"{why}. {waiting}.{since}"
