"""What is told to somebody who asked for a change, and was not carried out, rests on what a standby has."""

from __future__ import annotations

from gateway.errors import Refusal
from spool.errors import Invalid, NotAllowed, NotThere
from spool.registry.registry import Registry

SAFE_METHODS = ("GET", "HEAD")
REFUSALS = (NotThere, NotAllowed, Refusal)
_OF_WHAT_IS_THERE = (404, 409)


async def confirm(
    error: NotThere | NotAllowed | Refusal, registry: Registry | None, *, asks_change: bool
) -> None:
    """
    Before somebody who asked for a change is refused because of what is there, or is not: that is with a
    standby. NotCertain if it is not, because a take-over may undo it.
    """
    if asks_change and registry is not None and _is_of_what_is_there(error):
        await registry.confirm()


def _is_of_what_is_there(error: NotThere | NotAllowed | Refusal) -> bool:
    if isinstance(error, Refusal):
        return error.status in _OF_WHAT_IS_THERE
    return not isinstance(error, Invalid)
