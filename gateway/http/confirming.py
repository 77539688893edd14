"""What is told to somebody who asked for a change, and was not carried out, rests on what a standby has."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from gateway.errors import Refusal
from spool.errors import Invalid, NotAllowed, NotThere
from spool.registry.registry import Registry

SAFE_METHODS = ("GET", "HEAD")
_OF_WHAT_IS_THERE = (404, 409)


@asynccontextmanager
async def confirmed(registry: Registry | None, *, asks_change: bool) -> AsyncIterator[None]:
    """
    Around what somebody asks for. A change that is refused because of what is there, or is not, is refused
    when that is with a standby: before, it is NotCertain, because a take-over may undo it.
    """
    try:
        yield
    except (NotThere, NotAllowed, Refusal) as error:
        if asks_change and registry is not None and _is_of_what_is_there(error):
            await registry.confirm()
        raise


def _is_of_what_is_there(error: NotThere | NotAllowed | Refusal) -> bool:
    if isinstance(error, Refusal):
        return error.status in _OF_WHAT_IS_THERE
    return not isinstance(error, Invalid)
