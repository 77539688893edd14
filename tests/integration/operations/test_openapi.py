"""The endpoints, the operator API and `/openapi.json` agree for every generated request."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple
from urllib.error import HTTPError
from urllib.request import Request, urlopen
from zlib import crc32

import pytest
import schemathesis
from aiohttp import ClientSession, UnixConnector, web
from hypothesis import settings
from openapi_spec_validator import validate
from schemathesis.checks import not_a_server_error
from schemathesis.config import CoveragePhaseConfig, OperationConfig, PhasesConfig
from schemathesis.filters import FilterSet
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    response_schema_conformance,
    status_code_conformance,
)
from schemathesis.transport.requests import ManagedCookiesSession

from gateway.configuration.sections import Config, DeviceSettings
from gateway.configuration.server import ServerSettings
from gateway.core.paths import OPERATOR_API
from gateway.http.openapi import openapi_document
from gateway.operations.installation.status import NOWHERE
from gateway.people.authentication.bearer import KEPT_UNDER
from gateway.service.addresses.application import CONSOLE_PAGES, build_application
from gateway.service.addresses.areas import DEMO
from gateway.service.addresses.table import ADDRESSES, FOR_SENDERS
from gateway.service.app import TollhouseApp
from spool.registry import operators
from spool.registry.scopes import SCOPES
from tests.integration.conftest import ACTOR, Serve
from tests.rounds import IS_LONG, part, some

DOCUMENT = openapi_document(ADDRESSES, version="0")
CHECKS = [not_a_server_error, status_code_conformance, content_type_conformance, response_schema_conformance]
PROTOBUF = "application/x-protobuf"
PATIENCE_S = 300  # the default of 10 seconds is too short when ten processes share two processors
EXAMPLES = 100 if IS_LONG else 1  # number of examples per operation
SHARES = 60  # number of shares into which operations are split; each run tests the edge cases of one share
METHODS = ("GET", "POST", "PUT", "PATCH", "DELETE")


@schemathesis.serializer(PROTOBUF)
def protobuf(_: schemathesis.SerializationContext, value: Any) -> bytes:
    """Encode any generated value as bytes, which are rarely a valid message."""
    return value if isinstance(value, bytes) else str(value).encode("utf-8", "surrogatepass")


class Target(NamedTuple):
    url: str
    headers: dict[str, str]
    session: ManagedCookiesSession  # this session keeps connections open, but stores no cookie of an answer


@pytest.mark.proof
def test_the_document_is_openapi() -> None:
    validate(DOCUMENT)


def test_every_operation_has_a_name_of_its_own() -> None:
    """Operation names are unique, because generated clients take their method names from them."""
    names = [each["operationId"] for path in DOCUMENT["paths"].values() for each in path.values()]
    assert len(set(names)) == len(names)


def test_every_method_of_a_path_is_defined_in_one_row() -> None:
    """One row of the address table defines every method of a path."""
    pairs = [(method, each.path) for each in ADDRESSES for method in each.methods]
    assert len(set(pairs)) == len(pairs)


async def test_every_address_is_in_the_document(serve: Serve) -> None:
    """
    The route table and the document name the same addresses. The console page is left out because it is
    only for browsers, and a closing slash at the addresses of senders because it changes nothing.
    """
    serving = await serve()
    app = build_application(serving.app.services, for_senders=True, for_operators=True)
    of_demo = OPERATOR_API + DEMO + "/"  # the demo month has the same read operations under its own path
    pages = {path.replace(":.*", "") for path in CONSOLE_PAGES}
    with_slash = {f"{each.documented_path}/" for each in ADDRESSES if each.scope in KEPT_UNDER}
    assert {each.documented_path for each in (*ADDRESSES, NOWHERE)} | with_slash == {
        path for path in served(app.router) if path not in pages and not path.startswith(of_demo)
    }
    documented = {path: set(methods) for path, methods in DOCUMENT["paths"].items()}
    for each in ADDRESSES:
        assert {method.lower() for method in each.operation_ids_by_method} <= documented[each.documented_path]


def served(router: web.UrlDispatcher) -> Iterator[str]:
    """Yield the path of every route, including those of areas and mounted applications."""
    for resource in router.resources():
        info: Any = resource.get_info()
        if "app" in info:
            yield from served(info["app"].router)
        elif "area" in info:
            yield from served(info["area"])
        else:
            yield info.get("formatter") or info["path"]


def test_a_generated_client_can_send_every_boolean_parameter() -> None:
    """A boolean has no enumeration of texts, because no boolean is one of them."""
    parameters = [
        parameter["schema"].get("items", parameter["schema"])
        for methods in DOCUMENT["paths"].values()
        for operation in methods.values()
        for parameter in operation.get("parameters", ())
        if "schema" in parameter
    ]
    booleans = [schema for schema in parameters if schema.get("type") == "boolean"]
    assert len(booleans) > 15
    assert [] == [schema for schema in booleans if "enum" in schema]


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Target]:
    """Run a gateway on its own event loop, with a key that has every scope and a signed-in admin."""
    costs = pytest.MonkeyPatch()
    costs.setattr(operators, "SCRYPT_N", 2)
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever, daemon=True)
    thread.start()

    def run(work: Any) -> Any:
        return asyncio.run_coroutine_threadsafe(work, loop).result(120)

    app = TollhouseApp(_config(tmp_path_factory.mktemp("store")), version="0")
    run(app.start())
    # each event stream ends right after its start, so that no test waits
    app.services.operators.installation.event_streams.end_all()
    with ManagedCookiesSession() as session:
        session.trust_env = False
        yield Target(app.url, run(_headers(app)), session)
    run(app.stop())
    loop.call_soon_threadsafe(loop.stop)
    thread.join()
    loop.close()
    costs.undo()


def _config(directory: Path) -> Config:
    return Config(
        data_dir=directory,
        server=ServerSettings(listen="127.0.0.1:0", grpc_listen=""),
        devices=DeviceSettings(max=5),
    )


async def _headers(app: TollhouseApp) -> dict[str, str]:
    registry = app.services.storage.registry
    assert registry is not None
    _, secret = await registry.keys.create(name="everything", scopes=sorted(SCOPES), actor=ACTOR)
    socket = str(app.config.data_dir / "operator.sock")
    async with ClientSession(connector=UnixConnector(socket)) as client:
        as_ada = {"X-Tollhouse-As": "ada@example.com"}
        async with client.post(
            f"http://tollhouse{OPERATOR_API}/console-links", json={}, headers=as_ada
        ) as answer:
            link = (await answer.json())["link"].partition("#link=")[2]
    sessions = f"{app.url}{OPERATOR_API}/sessions"
    async with ClientSession() as client, client.post(sessions, json={"link": link}) as signed:
        token = (await signed.json())["session"]["csrf_token"]
        cookie = f"tollhouse={signed.cookies['tollhouse'].value}"
    return {"Authorization": secret, "Cookie": cookie, "X-CSRF-Token": token}


@pytest.mark.parametrize(
    "path", part([*sorted({each.path for each in FOR_SENDERS if each.security})], every=3)
)
def test_endpoint_accepts_exactly_the_documented_methods(server: Target, path: str) -> None:
    """
    An address accepts the methods in the document. Every other method answers 405 and names the allowed ones.
    """
    here = [each for each in FOR_SENDERS if each.path == path]
    documented = {method for each in here for method in each.operation_ids_by_method}
    words = {name: (values or ("one",))[0] for name, values in here[0].path_parameters.items()}
    address = here[0].documented_path.format(**words)
    for method in sorted(set(METHODS) - documented):
        with pytest.raises(HTTPError) as refused:
            urlopen(Request(server.url + address, method=method, headers=server.headers))
        with refused.value as answer:
            assert 405 == answer.status
            assert documented == set(answer.headers["Allow"].split(", ")) - {"HEAD"}


_NOT_TRIED = {f"{OPERATOR_API}/session"}  # not tested, because it would sign the admin out
schema = schemathesis.openapi.from_dict(
    {
        **DOCUMENT,
        "paths": {
            path: each
            for path, each in some(sorted(DOCUMENT["paths"].items()), every=6)
            if path not in _NOT_TRIED
        },
    }
)


def without_edges(share: int) -> OperationConfig:
    """Skip the edge cases of operations in other shares, because each operation has about sixty."""
    paths = DOCUMENT["paths"].items()
    operations = sorted(f"{method.upper()} {path}" for path, methods in paths for method in methods)
    chosen = set(operations[share::SHARES])
    others = FilterSet()
    others.include(lambda context: context.operation.label not in chosen)
    return OperationConfig(
        filter_set=others, phases=PhasesConfig(coverage=CoveragePhaseConfig(enabled=False))
    )


# The share depends on the operations, not on the day, so the same code never passes on one day and fails
# on the next.
if not IS_LONG:
    schema.config.operations.operations.append(without_edges(crc32(json.dumps(DOCUMENT).encode()) % SHARES))


@schema.parametrize()
@settings(max_examples=EXAMPLES, deadline=None, derandomize=not IS_LONG)
def test_whatever_is_sent_gets_a_documented_answer(case: schemathesis.Case[Any], server: Target) -> None:
    """
    Whatever a request contains, the answer is never a 500. The document names its status, media type and shape.
    """
    case.call_and_validate(
        base_url=server.url, session=server.session, headers=server.headers, checks=CHECKS, timeout=PATIENCE_S
    )
