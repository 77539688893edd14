"""The operator side of the OpenAPI document. `test_openapi` of the API sends requests to it."""

from __future__ import annotations

from gateway.core.paths import OPERATOR_API
from gateway.http.openapi import openapi_document
from gateway.service.addresses.table import OPERATOR_ADDRESSES
from tests.integration.conftest import Serving

DOCUMENT = openapi_document(OPERATOR_ADDRESSES, version="0")


async def test_it_is_served_without_a_key(serving: Serving) -> None:
    """The operator listener serves /openapi.json without a key."""
    answer = await serving.send("/openapi.json", b"", method="GET", key=None)
    assert answer.status == 200
    assert answer.headers["Content-Type"].partition(";")[0] == "application/json"
    assert b'"openapi":"3.1.0"' in answer.body


def test_a_call_names_the_permission_set_that_it_needs() -> None:
    """Each call names its permission set in addition to the session. Only the sign-in needs neither."""
    for row in OPERATOR_ADDRESSES:
        found = DOCUMENT["paths"][row.documented_path][row.methods[0].lower()]["security"]
        needed = [words for way in found for words in way.values() if words]
        assert ([[row.needs]] if row.needs else []) == needed, row.name
        assert bool(found) == (row.needs is not None), row.name


def test_what_may_be_left_out_is_not_required() -> None:
    """A report has no required parameter, and some may repeat. A deletion requires its confirmation."""
    report = {each["name"]: each for each in DOCUMENT["paths"][f"{OPERATOR_API}/report"]["get"]["parameters"]}
    once = {
        "from",
        "to",
        "range",
        "view",
        "tz",
        "per",
        "compare",
        "colours",
        "top",
        "top_by",
        "unit",
        "scope",
        "cost_type",
        "currency",
        "format",
        "lines",
        "missing",
        "limit",
        "cursor",
    }
    assert once | {"by", "where", "show"} == set(report)
    assert not any(each.get("required") for each in report.values())
    assert {"by", "where", "show"} == {
        name for name, each in report.items() if each["schema"]["type"] == "array"
    }
    delete = {
        each["name"]: each
        for each in DOCUMENT["paths"][f"{OPERATOR_API}/keys/{{name}}"]["delete"]["parameters"]
    }
    assert delete["confirm"]["required"]


def test_a_list_shows_its_parameters() -> None:
    """The document lists repeated filters with their valid values, and the sort keys."""
    parameters = {
        each["name"]: each for each in DOCUMENT["paths"][f"{OPERATOR_API}/keys"]["get"]["parameters"]
    }
    assert ["Enabled", "Disabled"] == parameters["status"]["schema"]["items"]["enum"]
    assert "last_accessed" in parameters["sort_key"]["schema"]["enum"]
    assert 1000 == parameters["limit"]["schema"]["maximum"]


def test_a_filter_with_one_value_is_no_list() -> None:
    """The document states which filters of a list may be given only once."""
    parameters = {
        each["name"]: each for each in DOCUMENT["paths"][f"{OPERATOR_API}/records"]["get"]["parameters"]
    }
    assert "string" == parameters["from"]["schema"]["type"]
    assert "array" == parameters["source"]["schema"]["type"]


def test_a_call_says_to_whom_it_is_closed() -> None:
    """The document says which addresses are limited or refused for limited people."""
    paths = DOCUMENT["paths"]
    assert (
        "Limited to the calls that the person may see."
        == paths[f"{OPERATOR_API}/report"]["get"]["description"]
    )
    assert "Requires a role for all calls." == paths[f"{OPERATOR_API}/status"]["get"]["description"]
    assert "Requires access to all calls." == paths[f"{OPERATOR_API}/configuration"]["get"]["description"]
    assert "description" not in paths[f"{OPERATOR_API}/session"]["get"]
