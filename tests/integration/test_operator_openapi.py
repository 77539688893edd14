"""The operator API and its OpenAPI document say the same, whatever is sent."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator

import pytest
import schemathesis
from hypothesis import settings
from openapi_spec_validator import validate
from schemathesis.checks import not_a_server_error
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    response_schema_conformance,
    status_code_conformance,
)

from gateway.doors.openapi import document
from gateway.doors.operator import CALLS, PREFIX
from spool import operators
from tests.integration.conftest import Serving
from tests.integration.operator_house import OperatorHouse, operator_house

DOCUMENT = document(CALLS, prefix=PREFIX, version="0")


def test_the_document_is_openapi() -> None:
    """OpenAPI 3.1, by the validator."""
    validate(DOCUMENT)


@pytest.mark.asyncio
async def test_it_is_served_without_a_key(serving: Serving) -> None:
    """/openapi.json, on the operator's side."""
    answer = await serving.send("/openapi.json", b"", method="GET", key=None)
    assert (200, "application/json") == (answer.status, answer.headers["Content-Type"].partition(";")[0])
    assert b'"openapi":"3.1.0"' in answer.body


def test_every_call_stands_in_it_once() -> None:
    """Each with a name of its own."""
    operations = [each["operationId"] for path in DOCUMENT["paths"].values() for each in path.values()]
    assert len(CALLS) == len(set(operations)) == len(operations)


def test_a_list_shows_its_parameters() -> None:
    """Filters that repeat, with their valid values, and the sort keys."""
    parameters = {each["name"]: each for each in DOCUMENT["paths"][f"{PREFIX}/keys"]["get"]["parameters"]}
    assert ["Enabled", "Disabled"] == parameters["status"]["schema"]["items"]["enum"]
    assert "last_accessed" in parameters["sort_key"]["schema"]["enum"]
    assert 1000 == parameters["limit"]["schema"]["maximum"]


@pytest.fixture(scope="module")
def house(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[OperatorHouse, dict[str, str]]]:
    """A house on a loop of its own, and the headers of a signed-in admin."""
    costs = pytest.MonkeyPatch()
    costs.setattr(operators, "SCRYPT_N", 2)
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever)
    thread.start()

    def run(work):  # type: ignore[no-untyped-def]
        return asyncio.run_coroutine_threadsafe(work, loop).result(30)

    context = operator_house(tmp_path_factory.mktemp("house"))
    house = run(context.__aenter__())
    link = run(house.ask("POST", "/console-links", {})).payload["link"].partition("#link=")[2]
    signed = run(house.over_http("POST", "/sessions", {"link": link}))
    headers = {
        "Cookie": f"tollhouse={signed.cookies['tollhouse'].value}",
        "X-CSRF-Token": signed.payload["session"]["csrf_token"],
    }
    yield house, headers
    run(context.__aexit__(None, None, None))
    loop.call_soon_threadsafe(loop.stop)
    thread.join()
    loop.close()
    costs.undo()


schema = schemathesis.openapi.from_dict(
    {**DOCUMENT, "paths": {path: each for path, each in DOCUMENT["paths"].items() if not path.endswith("/session")}}
)


@schema.parametrize()
@settings(max_examples=20, deadline=None)
def test_whatever_is_sent_gets_a_documented_answer(
    case: schemathesis.Case, house: tuple[OperatorHouse, dict[str, str]]
) -> None:
    """No 500, no status, type or shape that the document does not name."""
    where, headers = house
    case.call_and_validate(
        base_url=where.url,
        headers=headers,
        checks=[not_a_server_error, status_code_conformance, content_type_conformance, response_schema_conformance],
    )
