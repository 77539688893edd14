"""The tables of a lake, by their topics."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from exporters.lake.columns import AI_TABLE, KEPT, LakeTable
from exporters.lake.tables import other_topics
from spool import record

TABLES: Final[Mapping[str, LakeTable]] = {
    record.AI_TELEMETRY: AI_TABLE,
    record.USAGE_EVENTS: other_topics.USAGE_EVENTS,
    record.UNIT_COST: other_topics.UNIT_COST,
    record.BILLING_DATA: other_topics.BILLING_DATA,
}
# What may be left out of the tables of some topics.
OPTIONAL: Final = tuple(
    dict.fromkeys(name for table in TABLES.values() for name in table.columns if name not in KEPT)
)


def table_of(route: str) -> LakeTable:
    """The table of a route: its topic is the second part of its name."""
    return TABLES[route.partition("/")[2]]
