"""The words for channels that are down: people who wait for notifications get none."""

from __future__ import annotations

from datetime import UTC, datetime

from spool.registry.notices import ChannelState


def trouble_of_channel(channel: ChannelState, now: float) -> tuple[str, str] | None:
    """Return a title and a sentence for a channel that is down, or None for any other channel."""
    if not channel.is_down(now):
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
