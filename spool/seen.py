"""
The people whose figures an answer shows.

The ledger and lists note each person whom a query names. Whoever answers the request stores them as viewings.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field

from spool.people import SECOND_NAME, USER

SEVERAL = "(several people)"  # stands for a list with a line for each person
_NAMING = (USER, SECOND_NAME, "subject")  # dimensions and fields that name a person


@dataclass(slots=True)
class Seen:
    """
    `page` replaces the address of the request, if one address has several pages, such as tools of assistants. With
    `is_own_only`, the viewer may see no calls but the own ones.
    """

    save: Callable[[Seen], Awaitable[None]]
    people: set[str] = field(default_factory=set)
    page: str = ""
    is_own_only: bool = False


_seen: ContextVar[Seen | None] = ContextVar("seen", default=None)


@contextmanager
def collect_seen(seen: Seen | None) -> Iterator[None]:
    """Note in `seen` the people whose figures the block reads. With None, nothing that it reads is shown."""
    token = _seen.set(seen)
    try:
        yield
    finally:
        _seen.reset(token)


def note_people(filter: Mapping[str, Collection[str]], lines: Collection[str] = ()) -> None:
    """Note the people whom a filter names. If it names none, note SEVERAL if `lines` has a dimension of people."""
    seen = _seen.get()
    if seen is None:
        return
    named = [person for name in _NAMING for person in filter.get(name, ())]
    if named:
        seen.people.update(named)
    elif not set(_NAMING).isdisjoint(lines):
        seen.people.add(SEVERAL)


def note_page(page: str, *, is_own_only: bool) -> None:
    seen = _seen.get()
    if seen is not None:
        seen.page, seen.is_own_only = page, is_own_only


async def save_seen() -> None:
    """Store the people that were noted, before an answer that does not end soon."""
    seen = _seen.get()
    if seen is not None:
        await seen.save(seen)
