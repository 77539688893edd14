"""What a refusal says of what is there, or is not, rests on what a standby has."""

from __future__ import annotations

from collections.abc import Awaitable, Sequence
from typing import TypeVar

from gateway.service.errors import Refusal
from spool.errors import Invalid, NotAllowed, NotThere
from spool.registry.registry import Registry

T = TypeVar("T")
SAFE_METHODS = ("GET", "HEAD")
NOT_THERE = (404,)
OF_WHAT_IS_THERE = (404, 409)


def confirmed(work: Awaitable[T], registry: Registry | None, *, statuses: Sequence[int]) -> Awaitable[T]:
    """
    Return what the work returns. A refusal of one of these statuses, because of what is there or is not, is given
    when that is with a standby: before, it is NotCertain, because a take-over may undo it.

    Nobody else changes a registry that is not shared: there the work alone is awaited.
    """
    if not statuses or registry is None or not registry.is_shared:
        return work
    return _confirmed(work, registry, statuses)


def refusals_of(method: str) -> Sequence[int]:
    """Return the statuses that rest on rows: a look is only told that something is not there."""
    return NOT_THERE if method in SAFE_METHODS else OF_WHAT_IS_THERE


async def _confirmed(work: Awaitable[T], registry: Registry, statuses: Sequence[int]) -> T:
    try:
        return await work
    except (NotThere, NotAllowed, Refusal) as error:
        if _status(error) in statuses:
            await registry.confirm()
        raise


def _status(error: NotThere | NotAllowed | Refusal) -> int:
    if isinstance(error, Refusal):
        return error.status
    if isinstance(error, Invalid):
        return 400
    return 404 if isinstance(error, NotThere) else 409
