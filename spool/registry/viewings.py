"""Viewings: who saw figures of which person, on which page and day."""

from __future__ import annotations

from dataclasses import dataclass

KEPT_S, MOST_A_DAY = 365 * 86_400, 1000  # defaults of privacy.viewings and privacy.max_viewed


@dataclass(frozen=True, slots=True, kw_only=True)
class Viewing:
    """
    A viewer saw figures of a person on a day. `person`: name as in records, or SEVERAL. `face`: the
    interface. `page`: an address or a tool.
    """

    day: str
    viewer: str
    person: str
    face: str
    page: str
    reason: str
    id: int = 0
