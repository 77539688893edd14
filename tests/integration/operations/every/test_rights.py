"""The rights of people at every operation: each permission set, and requests of other pages."""

from __future__ import annotations

import pytest

from gateway.http.error_table import SAFE_METHODS
from gateway.operations.requests.address import OperatorApiAddress
from spool.registry.permission_sets import PERMISSION_SETS
from tests.integration.operations.every.declared import OPERATIONS, Operation, World

pytestmark = pytest.mark.asyncio(loop_scope="module")


def of_people(permission_set: str | None = None) -> list[tuple[Operation, OperatorApiAddress]]:
    """Return the operations of signed-in people, or those that need this permission set."""
    found = [(each, each.row) for each in OPERATIONS if isinstance(each.row, OperatorApiAddress)]
    return [
        (each, row) for each, row in found if row.needs is not None and permission_set in (None, row.needs)
    ]


def without(permission_set: str) -> list[str]:
    """Return all sets that neither are nor include this one."""
    return [each.id for each in PERMISSION_SETS.values() if permission_set not in (each.id, *each.includes)]


@pytest.mark.proves("A Member changes something")
@pytest.mark.parametrize("permission_set", PERMISSION_SETS)
async def test_a_permission_set_opens_its_operations(world: World, permission_set: str) -> None:
    """
    With all permission sets except its own, an operation is refused, and the error names its set. With only its own
    set, it is allowed.
    """
    others = await world.sign_in(without(permission_set))
    alone = await world.sign_in([permission_set])
    for operation, _ in of_people(permission_set):
        path = world.path(operation) + "?unheard_of=1"
        refused = await world.over_http(operation, path, **others)
        assert refused.status == 403, (operation.name, refused.said)
        assert refused.payload["error"]["type"] == "permission_set", (operation.name, refused.said)
        assert PERMISSION_SETS[permission_set].title in refused.said, (operation.name, refused.said)
        assert "an Admin can give you a role with it" in refused.said, operation.name
        opened = await world.over_http(operation, path, **alone)
        assert opened.status not in (401, 403, 500), (operation.name, opened.said)


async def test_another_page_changes_nothing(world: World) -> None:
    """
    A change by a signed-in person needs the token of the session and an origin of Tollhouse itself, so another web
    page changes nothing. Sign-ins check the origin as well.
    """
    signed = await world.sign_in(PERMISSION_SETS)
    foreign = [{"Origin": "https://evil.example.com"}, {"Sec-Fetch-Site": "cross-site"}]
    tokens = [{"X-CSRF-Token": token} for token in ("", "wrong")]
    for operation in OPERATIONS:
        if not operation.is_for_people or operation.method in SAFE_METHODS:
            continue
        has_session = any(row is operation.row for _, row in of_people())
        for headers in (*foreign, *(tokens if has_session else ())):
            answer = await world.over_http(operation, world.path(operation), **{**signed, **headers})
            wanted = "foreign_origin" if headers in foreign else "csrf"
            assert answer.status == 403, (operation.name, headers, answer.said)
            assert answer.payload["error"]["type"] == wanted, (operation.name, headers, answer.said)


async def test_no_operation_that_needs_a_right_answers_a_stranger(world: World) -> None:
    """Without a key and a sign-in, each operation that needs a right is refused."""
    needing = [each for each in OPERATIONS if each.row.security]
    assert len(needing) > 300
    answers = {each.name: await world.over_http(each, world.path(each)) for each in needing}
    assert {} == {name: answer for name, answer in answers.items() if answer.status not in (401, 403)}
