"""Viewings: who saw figures of which person, on which page and day."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Viewing:
    """
    A day on which a viewer saw figures of a person. `person` is a name in records, or SEVERAL. `face` is the way of
    access, and `page` an address or a tool.
    """

    day: str
    viewer: str
    person: str
    face: str
    page: str
    reason: str
    id: int = 0
