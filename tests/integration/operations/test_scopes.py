"""
The scope matrix: each operation is tried without a key, with every other scope, and with only its own scope.

The operations come from the address table, the source of the OpenAPI document, so new operations are included.
"""

from __future__ import annotations

from base64 import b64encode
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import NamedTuple

import pytest
import pytest_asyncio
from aiohttp import ClientSession

from gateway.configuration.sections import Config
from gateway.configuration.server import ServerSettings
from gateway.http.address import BASIC, IN_PATH, ApiAddress
from gateway.money.budgets.declared import BudgetTable, NewBudget, ViewName
from gateway.service.addresses.table import ADDRESSES
from gateway.service.app import TollhouseApp
from spool.registry.insights import InsightDraft
from spool.registry.registry import Registry
from spool.registry.roles import FULL, NewRole, RoleLimits
from spool.registry.scopes import CREATE_STREAM, SCOPES, USE_CASES
from spool.registry.views import NewView, ViewTable
from tests.integration.conftest import ACTOR, Answer, Serving
from tests.rounds import some
from tests.spool.savings import SAVING

pytestmark = pytest.mark.asyncio(loop_scope="module")

KEYS: dict[frozenset[str], str] = {}
PARAMETERS = {"connection_id": "c-1", "id": "one", "month": "2026-11", "format": "litellm", "stream": "calls",
              "type": "priority_tier"}  # fmt: skip


class Operation(NamedTuple):
    method: str
    address: ApiAddress

    @property
    def scope(self) -> str:
        assert self.address.scope is not None
        return self.address.scope


def operations() -> Iterator[Operation]:
    for address in ADDRESSES:
        if address.scope is not None:
            yield from (Operation(method, address) for method in address.operation_ids_by_method)


OPERATIONS = list(operations())
EACH = pytest.mark.parametrize(
    "operation", OPERATIONS, ids=lambda one: f"{one.method} {one.address.documented_path}"
)


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def server(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Serving]:
    """Start one gateway for all tests. Keys are created once for each set of scopes."""
    directory: Path = tmp_path_factory.mktemp("scopes")
    listening = ServerSettings(listen="127.0.0.1:0", grpc_listen="")
    config = Config(data_dir=directory, server=listening)
    app = TollhouseApp(config, version="0")
    await app.start()
    serving = Serving(app=app, key="", client=ClientSession())
    yield serving
    await serving.client.close()
    await app.stop()


async def key_of(server: Serving, scopes: frozenset[str]) -> str:
    """Return the key with exactly these scopes."""
    if scopes not in KEYS:
        KEYS[scopes] = await server.make_key(f"key {len(KEYS)}", scopes=sorted(scopes))
    return KEYS[scopes]


async def make_things(server: Serving) -> None:
    """Create whatever the path parameters name, because only existing things can be listed."""
    storage = server.app.services.storage
    assert storage.registry is not None
    if storage.registry.connections.find(PARAMETERS["connection_id"]) is None:
        await server.make_connection(PARAMETERS["connection_id"])
    if storage.registry.declared_table(BudgetTable).find(PARAMETERS.get("budget_id", "")) is None:
        PARAMETERS["budget_id"] = await make_budget(storage.registry)
    insight = await storage.registry.insights.create(InsightDraft(title="Spike"), actor=ACTOR)
    PARAMETERS["id"] = insight.id
    PARAMETERS["role_id"] = await make_role(storage.registry)
    PARAMETERS["view_id"] = await make_view(storage.registry.views)
    await storage.registry.recommendations.merge_savings([SAVING], looked_for=[SAVING.type])
    PARAMETERS["recommendation_id"] = next(each.id for each in await storage.registry.recommendations.all())
    path = f"/unit-cost/v1/telemetry/allocation/{PARAMETERS['stream']}"
    key = await key_of(server, frozenset({CREATE_STREAM}))
    assert (await server.send(path, b"{}", method="PUT", key=key)).status < 300


async def make_view(views: ViewTable) -> str:
    draft = NewView(name="All", filter={}, principal_dimension="model")
    there = views.find_by_name("All") or await views.create(
        draft, known_dimensions=("model",), max_rows=10, actor=ACTOR
    )
    return there.id


async def make_role(registry: Registry) -> str:
    there = [role for role in registry.roles.all() if not role.is_builtin]
    draft = NewRole(name="All", data_access=FULL)
    made = there or [
        await registry.roles.create(draft, known_dimensions=(), limits=RoleLimits(), actor=ACTOR)
    ]
    return made[0].id


async def make_budget(registry: Registry) -> str:
    views, draft = registry.views, NewView(name="everything", filter={}, principal_dimension="model")
    view = views.find_by_name("everything") or await views.create(
        draft, known_dimensions=("model",), max_rows=10, actor=ACTOR
    )
    budget = NewBudget(name="All", view=ViewName(id=view.id), default_amount="1")
    return (
        await registry.declared_table(BudgetTable).create(
            budget, known_dimensions=("model",), max_rows=10, actor=ACTOR
        )
    ).id


class Wrong(NamedTuple):
    """A fault of a request body, other than being empty, and the status that it causes."""

    type: str | None
    coding: str = ""


WRONG = (Wrong(None), Wrong("text/nonsense"), Wrong("application/json", "rot13"))


async def send(
    server: Serving, operation: Operation, key: str | None, query: str = "", wrong: Wrong | None = None
) -> Answer:
    """Send a request with an empty body, which most operations refuse after they have checked the key."""
    address = operation.address
    fixed = {name: values[0] for name, values in address.path_parameters.items() if values}
    words = dict.fromkeys(address.path_parameters, "one") | PARAMETERS | fixed
    headers = {}
    if address.key is IN_PATH:
        words["hook"], key = key or "none", None
    elif BASIC in address.key.schemes and key is not None:
        headers["Authorization"] = "Basic " + b64encode(f"public:{key}".encode()).decode()
    kind = next(iter(address.takes), None) if wrong is None else wrong.type
    if wrong is not None and wrong.coding:
        headers["Content-Encoding"] = wrong.coding
    path = address.documented_path.format(**words) + query
    return await server.send(path, b"", kind, method=operation.method, key=key, headers=headers)


def said(answer: Answer) -> str:
    return answer.body.decode("utf-8", "replace")


@EACH
async def test_no_key_opens_nothing(server: Serving, operation: Operation) -> None:
    """
    Without a key, the answer is 401 even if the media type or the encoding of the body is wrong as well.
    """
    for wrong in some((None, *WRONG), every=3):
        answer = await send(server, operation, None, wrong=wrong)
        assert 401 == answer.status, (wrong, said(answer))


@EACH
async def test_every_other_scope_opens_nothing(server: Serving, operation: Operation) -> None:
    """A key with all scopes except the needed one gets 403 with the name of that scope."""
    key = await key_of(server, SCOPES - {operation.scope})
    for wrong in some((None, *WRONG), every=3):
        answer = await send(server, operation, key, wrong=wrong)
        assert answer.status == 403, (wrong, said(answer))
        assert operation.scope in said(answer), (wrong, said(answer))


@EACH
async def test_the_needed_scope_opens_it(server: Serving, operation: Operation) -> None:
    """
    With only its own scope, an operation may still be refused, but for another reason and never with a 500.
    """
    answer = await send(server, operation, await key_of(server, frozenset({operation.scope})))
    assert answer.status not in (401, 403), said(answer)
    assert answer.status < 500, said(answer)


@pytest.mark.parametrize("use_case", USE_CASES)
async def test_a_managed_use_case_opens_its_operations_alone(server: Serving, use_case: str) -> None:
    """A use case opens exactly the operations whose scope it grants."""
    key = await server.make_key(use_case, use_cases=[use_case])
    for operation in OPERATIONS:
        answer = await send(server, operation, key)
        is_open = answer.status not in (401, 403)
        # If an address contains a key, this key must have exactly one scope.
        granted = operation.scope in USE_CASES[use_case]
        assert granted == is_open, (operation.method, operation.address.path, said(answer))


@EACH
async def test_an_unknown_parameter_is_refused(server: Serving, operation: Operation) -> None:
    """Unknown parameters are refused, except at addresses where another product's client chooses them."""
    if not operation.address.checks_query and operation.address.lists is None:
        pytest.skip("another product's address")
    if operation.address.lists:
        await make_things(server)
    answer = await send(
        server, operation, await key_of(server, frozenset({operation.scope})), "?unheard_of=1"
    )
    assert answer.status == 400, said(answer)
    assert "parameter" in said(answer), said(answer)


async def test_every_scope_opens_something() -> None:
    """Every scope of the published catalogue opens an operation. The tests above prove how."""
    opened = {operation.scope for operation in OPERATIONS}
    assert SCOPES == opened


async def test_addresses_of_other_products_are_few() -> None:
    """Only addresses for other products accept any parameter."""
    free = {each.address.path for each in OPERATIONS if not (each.address.checks_query or each.address.lists)}
    assert {
        "/api/public/ingestion", "/api/public/otel/v1/traces", "/api/otel/v1/traces", "/api/public/projects",
        "/opentelemetry/v1/traces", "/api/v1/traces", "/api/v1/events", "/v1/ai-telemetry/helicone/{hook}",
    } == free  # fmt: skip
