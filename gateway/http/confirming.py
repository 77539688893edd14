"""What is told to somebody who asked for a change, and was not carried out, rests on what a standby has."""

from __future__ import annotations

from collections.abc import Awaitable
from typing import TypeVar

from gateway.errors import Refusal
from spool.errors import Invalid, NotAllowed, NotThere
from spool.registry.registry import Registry

T = TypeVar("T")
SAFE_METHODS = ("GET", "HEAD")
_OF_WHAT_IS_THERE = (404, 409)


def confirmed(work: Awaitable[T], registry: Registry | None, *, asks_change: bool) -> Awaitable[T]:
    """
    Return what the work returns. A change that is refused because of what is there, or is not, is refused
    when that is with a standby: before, it is NotCertain, because a take-over may undo it.

    Nobody else changes a registry that is not shared: there the work alone is awaited.
    """
    if not asks_change or registry is None or not registry.is_shared:
        return work
    return _confirmed(work, registry)


async def _confirmed(work: Awaitable[T], registry: Registry) -> T:
    try:
        return await work
    except (NotThere, NotAllowed, Refusal) as error:
        if _is_of_what_is_there(error):
            await registry.confirm()
        raise


def _is_of_what_is_there(error: NotThere | NotAllowed | Refusal) -> bool:
    if isinstance(error, Refusal):
        return error.status in _OF_WHAT_IS_THERE
    return not isinstance(error, Invalid)
