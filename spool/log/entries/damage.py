"""Damaged entries and amendments: what is remembered and logged of them."""

from __future__ import annotations

import logging
from collections.abc import Iterable
from typing import NamedTuple

from spool.errors import EntryUnreadable

_log = logging.getLogger(__name__)


class Damage(NamedTuple):
    """An entry that was found damaged just now."""

    first: int
    records: int
    reason: str


def log_damage(topic: str, damage: Iterable[Damage]) -> None:
    for one in damage:
        _log.error(
            "an entry is damaged and set aside",
            extra={
                "action": "entry_damaged",
                "topic": topic,
                "first": one.first,
                "records": one.records,
                "reason": one.reason,
            },
        )


def log_damaged_amendment(topic: str, number: int, error: EntryUnreadable) -> None:
    _log.warning(
        "an amendment is damaged, its record stays as it first came",
        extra={"action": "amendment_damaged", "topic": topic, "number": number, "reason": str(error)},
    )
