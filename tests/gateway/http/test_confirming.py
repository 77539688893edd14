"""What refuses a change because of what is there is answered when that is with a standby."""

from __future__ import annotations

from typing import cast

import pytest

from gateway.errors import Refusal
from gateway.http.confirming import confirmed
from spool.errors import AlreadyThere, Invalid, NotAllowed, NotCertain, NotThere
from spool.registry.registry import Registry

pytestmark = pytest.mark.asyncio


class Unconfirmed:
    """A registry of several gateways, whose rows are on one machine alone."""

    is_shared = True

    async def confirm(self) -> None:
        raise NotCertain("the standby is away")


async def told(error: Exception, *, asks_change: bool = True) -> type[Exception]:
    async def refuse() -> None:
        raise error

    with pytest.raises(Exception) as raised:
        await confirmed(refuse(), cast(Registry, Unconfirmed()), asks_change=asks_change)
    return raised.type


@pytest.mark.parametrize(
    "error",
    [
        NotThere("x"),
        NotAllowed("x"),
        AlreadyThere("x"),
        Refusal(404, "gone", "x"),
        Refusal(409, "not_empty", "x"),
    ],
)
async def test_who_asked_for_a_change_is_not_told_of_what_may_be_undone(
    error: NotThere | NotAllowed | Refusal,
) -> None:
    """It is 503 instead; whoever only looks is told what is there now."""
    assert NotCertain is await told(error)
    assert type(error) is await told(error, asks_change=False)


@pytest.mark.parametrize(
    "error", [Invalid("x"), Refusal(403, "missing_scope", "x"), Refusal(503, "busy", "x")]
)
async def test_what_does_not_rest_on_rows_is_told_at_once(error: Exception) -> None:
    """A value that breaks a rule does so whatever is kept."""
    assert type(error) is await told(error)
