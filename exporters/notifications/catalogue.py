"""The channel types, and the checks and construction of the channels in [[notify]]."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from exporters.declared import LazyDeclarations
from exporters.http.allowed_addresses import problems_of_forbidden_url
from exporters.notifications import schedule
from exporters.notifications.channel import StoredChannelSettings, address_problems
from exporters.problems import problems_of_choice, problems_of_url
from exporters.settings import NotifySettings
from spool.clock import Clock

if TYPE_CHECKING:
    from exporters.notifications.channel import Channel, ChannelType

_FOLDER = "exporters.notifications.channels"
TYPES: LazyDeclarations[ChannelType] = LazyDeclarations(
    {
        name: f"{_FOLDER}.{name}"
        for name in ("webhook", "slack", "teams", "email", "pagerduty", "alertmanager")
    }
)


def all_channel_problems(channels: Sequence[NotifySettings], *, shown_name: str = "notify") -> Iterator[str]:
    """Yield the problems of all channels. Their settings are named `notify[0]` and so on."""
    names: set[str] = set()
    for index, settings in enumerate(channels):
        shown_name = f"notify[{index}]" if shown_name.startswith("notify") else shown_name
        if not re.fullmatch(r"[A-Za-z0-9._-]{1,64}", settings.name):
            yield f"{shown_name}.name is required: letters, digits, '.', '_' and '-', at most 64"
        elif settings.name in names:
            yield f"{shown_name}.name {settings.name!r} is already used"
        names.add(settings.name)
        yield from problems_of_choice(f"{shown_name}.type", settings.type, tuple(TYPES))
        if settings.type in TYPES:
            type_problems = list(TYPES[settings.type].problems(shown_name, settings))
            yield from type_problems
            if isinstance(settings, StoredChannelSettings) and not type_problems:
                yield from address_problems(f"{shown_name}.url", settings.url)
                yield from problems_of_forbidden_url(f"{shown_name}.server", f"smtp://{settings.server}")
        yield from problems_of_url(f"{shown_name}.proxy", settings.proxy)
        yield from schedule.schedule_problems(shown_name, settings)


def build_channel(settings: NotifySettings, clock: Clock) -> Channel:
    return TYPES[settings.type].build(settings, clock)
