"""
The record of who viewed whom. The people whose figures an answer shows are stored before the answer is sent.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Collection, Iterable, Iterator
from dataclasses import dataclass
from typing import Protocol, TypeVar
from urllib.parse import unquote

from aiohttp import web

from gateway.core.errors import Refusal
from gateway.core.paths import REASON, REASON_COOKIE
from gateway.http.error_table import DurableRegistry
from spool.errors import SpoolError
from spool.ledger.work import OTHER
from spool.people import ERASED, USER, People, is_pseudonym
from spool.registry.roles import IS, Rights, RoleFilter
from spool.registry.tables.viewings import ViewingTable
from spool.registry.texts import storable_text
from spool.registry.viewings import Viewing
from spool.statements import day_text
from spool.viewed_people import SEVERAL, Seen, collect_viewed_people

COMMAND, CONSOLE, API, MCP = "command", "console", "api", "mcp"
FACES = (COMMAND, CONSOLE, API, MCP)
MAX_REASON = 200
MAX_NAMED = 20  # maximum people that get rows of their own
_MAX_NAME = 200
_NOBODY = frozenset(("", OTHER, ERASED))

_log = logging.getLogger(__name__)
T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class Viewer:
    """
    The person or key that requests figures of people. `name` is a person's address or a key's name. `at` is
    in epoch seconds.
    """

    name: str
    face: str
    page: str
    reason: str
    at: float
    is_own_only: bool = False
    needs_reason: bool = False  # whether figures of others are shown only with a reason


def viewing_reason(request: web.Request) -> str:
    """Return the reason that the request states for viewing figures of people, or "". Raises Refusal 400."""
    reason = unquote(request.headers.get(REASON) or request.cookies.get(REASON_COOKIE, "")).strip()
    if len(reason) > MAX_REASON or not reason.isprintable():
        message = f"the header {REASON} must have at most {MAX_REASON} printable characters"
        raise Refusal(400, "reason", message)
    return reason


class ViewingRegistry(DurableRegistry, Protocol):
    """Stores who has seen the figures of which person."""

    people: People
    viewings: ViewingTable


async def record_viewings(answer: Awaitable[T], viewer: Viewer, registry: ViewingRegistry | None) -> T:
    """Return an answer after storing which people's figures the viewer sees in it."""

    async def store_viewings(seen: Seen) -> None:
        if registry is None or not seen.people:
            return
        viewings = list(_viewings_of_people(seen, viewer, registry.people))
        try:
            await registry.viewings.add(viewings, viewer.at)
        # if the view cannot be stored on a full disk, still show the page, because it may show the full disk
        except SpoolError:
            _log.exception("who looked could not be stored", extra={"action": "viewing_lost"})

    def require_viewing_reason(seen: Seen, person_names: Collection[str]) -> None:
        if registry is None or viewer.reason or not viewer.needs_reason or seen.is_own_only:
            return
        own = registry.people.person_identity(viewer.name)
        if not person_names or any(registry.people.person_identity(name) != own for name in person_names):
            raise _no_reason_refusal()

    seen = Seen(store_viewings, require_viewing_reason)
    with collect_viewed_people(seen):
        result = await answer
    await store_viewings(seen)
    return result


def _viewings_of_people(shown_figures: Seen, viewer: Viewer, people: People) -> Iterator[Viewing]:
    """Yield the viewings to store, one for each person whose figures an answer shows, except the viewer."""
    if viewer.is_own_only or shown_figures.is_own_only:
        return
    own = people.person_identity(viewer.name)
    named = {
        _first_linked_name(people, name) for name in shown_figures.people - _NOBODY if not is_pseudonym(name)
    }
    if len(named) > MAX_NAMED or any(len(name) > _MAX_NAME for name in named):
        named = {SEVERAL}
    for person in sorted(named):
        if people.person_identity(person) != own:
            yield Viewing(
                day=day_text(int(viewer.at)),
                viewer=viewer.name,
                person=person,
                face=viewer.face,
                page=shown_figures.page or viewer.page,
                reason=viewer.reason,
            )


def _first_linked_name(people: People, name: str) -> str:
    return next(
        iter(people.linked_names(name)), people.recorded_name_or_hash(storable_text(name.replace("\0", "")))
    )


def _no_reason_refusal() -> Refusal:
    message = (
        "privacy.min_group is set, so figures of people need the reason why you look at them: reload the console, use "
        f"--reason or $TOLLHOUSE_REASON, or send the header {REASON}"
    )
    return Refusal(403, "no_reason", message)


def needs_viewing_reason(rights: Rights, name: str, registry: ViewingRegistry | None) -> bool:
    """
    Return whether a person must state a reason to see figures of others. That applies only while
    `privacy.min_group` is set.
    """
    if registry is None or not registry.people.min_group:
        return False
    return rights.slice.has_every_call or not is_limited_to_self(rights, name, registry.people)


def is_limited_to_self(rights: Rights, name: str, people: People) -> bool:
    own = {people.person_identity(name)}

    def has_own_filter(part: Iterable[RoleFilter]) -> bool:
        named = [each.values for each in part if each.dimension == USER and each.mode == IS]
        return any(own == set(map(people.person_identity, values)) for values in named)

    return all(map(has_own_filter, rights.slice.parts))
