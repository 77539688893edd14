"""A refusal that depends on stored rows is sent only after a standby has those rows."""

from __future__ import annotations

from typing import cast

import pytest

from gateway.core.errors import Refusal
from gateway.http.error_table import delay_refusal_until_durable, statuses_to_delay_until_durable
from spool.errors import AlreadyThere, Invalid, NotAllowed, NotCertain, NotThere
from spool.registry.registry import Registry


class Unconfirmed:
    """A shared registry whose rows are not confirmed by a standby yet."""

    is_shared = True

    async def wait_until_durable(self) -> None:
        raise NotCertain("the standby is away")


async def told(error: Exception, method: str = "POST") -> type[Exception]:
    async def refuse() -> None:
        raise error

    with pytest.raises(Exception) as raised:
        await delay_refusal_until_durable(
            refuse(), cast(Registry, Unconfirmed()), statuses=statuses_to_delay_until_durable(method)
        )
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
async def test_error_based_on_reversible_rows_becomes_503(error: NotThere | NotAllowed | Refusal) -> None:
    """If an error depends on rows that a failover may undo, the sender of the change receives 503 instead."""
    assert NotCertain is await told(error)


async def test_a_look_and_a_change_agree_about_what_is_not_there() -> None:
    """If a key was deleted but no standby has the deletion, GET and DELETE both answer 503, not 404."""
    for error in (NotThere("x"), Refusal(404, "gone", "x")):
        assert {NotCertain} == {await told(error, method) for method in ("GET", "HEAD", "DELETE")}
    assert NotAllowed is await told(NotAllowed("x"), "GET")


@pytest.mark.parametrize(
    "error", [Invalid("x"), Refusal(403, "missing_scope", "x"), Refusal(503, "busy", "x")]
)
async def test_error_without_stored_rows_is_sent_at_once(error: Exception) -> None:
    """An error that does not depend on stored rows is sent at once, without waiting for a standby."""
    assert type(error) is await told(error)
