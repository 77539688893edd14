"""
The people whose figures a response shows: queries record whom they name, and the response stores them as
viewings.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field

from spool.people import SECOND_NAME, USER

SEVERAL = "(several people)"  # the name for a list that has a line for each person
_NAMING = (USER, SECOND_NAME, "subject")


@dataclass(slots=True)
class Seen:
    """
    The people whose figures a response shows. `check`: raises if the viewer may not see figures of the named
    people, or of all people if none is named. `page`: stored as the viewed page in place of the request's
    path, which may serve several pages, such as tools. `is_own_only`: the viewer sees only own calls.
    """

    save: Callable[[Seen], Awaitable[None]]
    check: Callable[[Seen, Collection[str]], None] = lambda seen, named: None
    people: set[str] = field(default_factory=set)
    page: str = ""
    is_own_only: bool = False


_seen: ContextVar[Seen | None] = ContextVar("seen", default=None)


@contextmanager
def collect_viewed_people(seen: Seen | None) -> Iterator[None]:
    """
    Record in `seen` the people whose figures the `with` block reads. Pass None if the block's data are not
    shown.
    """
    token = _seen.set(seen)
    try:
        yield
    finally:
        _seen.reset(token)


def check_may_view_people(filter: Mapping[str, Collection[str]]) -> None:
    """Raise if the viewer may not see figures of the people in a filter. Nothing is recorded."""
    seen = _seen.get()
    if seen is not None:
        seen.check(seen, _named_people(filter))


def note_viewed_people(filter: Mapping[str, Collection[str]], lines: Collection[str] = ()) -> None:
    """
    Record the people in the filter of a result that is not empty as seen. If the filter names none, but `lines`
    (the dimensions of the result's rows) include people, record SEVERAL.
    """
    seen = _seen.get()
    if seen is None:
        return
    named = _named_people(filter)
    seen.check(seen, named)
    if named:
        seen.people.update(named)
    elif not set(_NAMING).isdisjoint(lines):
        seen.people.add(SEVERAL)


def _named_people(filter: Mapping[str, Collection[str]]) -> Collection[str]:
    return [person for name in _NAMING for person in filter.get(name, ())]


def set_viewed_page(page: str, *, shows_own_data_only: bool) -> None:
    seen = _seen.get()
    if seen is not None:
        seen.page, seen.is_own_only = page, shows_own_data_only


async def save_viewings() -> None:
    """Store the viewings so far, before a response that does not end soon."""
    seen = _seen.get()
    if seen is not None:
        await seen.save(seen)
