"""Which destination, topic and dates a command is about."""

from __future__ import annotations

from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING

import click

from gateway.cli import configured, fail

if TYPE_CHECKING:
    from exporters.lake.stores import Store
    from exporters.settings import DestinationSettings

STREAMS = ("kafka", "clickhouse")  # types of destinations without files
DAY = click.DateTime(["%Y-%m-%d"])
destination_option = click.option(
    "--destination", "name", help="The destination, if the configuration has several that are a lake."
)
topic_option = click.option(
    "--topic", help="The topic, if the destination has several; without it AI telemetry, or the first."
)


def chosen_lake(config: Path | None, name: str | None, *, of_any_type: bool = False) -> DestinationSettings:
    """The destination that is named, or the only one that is a lake of files; with `of_any_type` a stream, too."""
    from exporters.lake.destination import WITH_FILES

    destinations = configured(config).destinations
    lakes = [each for each in destinations if each.type in WITH_FILES]
    if of_any_type and (name is not None or not lakes):
        lakes += [each for each in destinations if each.type in STREAMS]
    wanted = [each for each in lakes if name in (None, each.name)]
    if len(wanted) != 1:
        names = ", ".join(each.name for each in lakes) or "none: see docs/lake.md"
        fail(f"name one destination that is a lake with --destination; the configuration has {names}", 2)
    return wanted[0]


def chosen_topic(settings: DestinationSettings, topic: str | None) -> str:
    """A topic of a destination; without one AI telemetry, or its first."""
    from spool.record import AI_TELEMETRY

    usual = AI_TELEMETRY if AI_TELEMETRY in settings.topics else settings.topics[0]
    if topic is not None and topic not in settings.topics:
        fail(f"{settings.name} has no topic {topic!r}; it has {', '.join(settings.topics)}", 2)
    return topic or usual


def chosen_route(settings: DestinationSettings, topic: str | None) -> str:
    return f"{settings.name}/{chosen_topic(settings, topic)}"


def opened_store(settings: DestinationSettings) -> Store:
    from exporters.destinations.catalogue import secret_of
    from exporters.lake.destination import store_of

    return store_of(settings, secret_of(settings))


def date_text(day: datetime | None) -> str:
    return "" if day is None else day.date().isoformat()
