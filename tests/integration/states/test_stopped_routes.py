"""A route that delivers nothing has one state on every face, whatever a test request to its destination returns."""

from __future__ import annotations

from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler

import pytest

from tests.acceptance.conftest import ARCHIVE, Tollhouse
from tests.clients.loopback import Loopback, body_of
from tests.integration.payloads import json_span, json_traces
from tests.integration.states import faces
from tests.waiting import wait_until

CALLS = 5
HOOKS = """
[[destinations]]
name = "rejecting"
type = "otlp"
url = "{url}/rejecting"
[[destinations]]
name = "paused"
type = "otlp"
url = "{url}/paused"
"""
ROUTES = {"rejecting/ai-telemetry": "rejected", "paused/ai-telemetry": "paused"}


class Receiver(Loopback):
    """Accepts an empty export, as `check` sends it, and no export with a call."""

    def __init__(self) -> None:
        super().__init__(_Handler)


class _Handler(BaseHTTPRequestHandler):
    def do_POST(self) -> None:
        body = body_of(self)
        refused = 400 if self.path.startswith("/rejecting") else 403
        self.send_response(refused if body else 200)
        self.send_header("Content-Type", "application/x-protobuf")
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, *_: object) -> None:
        """Log nothing."""


@pytest.fixture(scope="module")
def house(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Tollhouse]:
    receiver = Receiver()
    more = HOOKS.format(url=receiver.url)
    house = Tollhouse(tmp_path_factory.mktemp("routes"), ARCHIVE.format(server="", hold="0s", more=more))
    key = house.key("sender")
    house.start()
    spans = [json_span(spanId=f"{n + 1:016x}") for n in range(CALLS)]
    assert 200 == faces.send(house, key, json_traces(*spans))[0]
    for route, state in (("rejecting/ai-telemetry", "refusing"), ("paused/ai-telemetry", "parked")):
        wait_until(lambda: house.route(route)["state"] == state, route)  # noqa: B023 - called here
    yield house
    house.stop(code=None)
    receiver.close()


def test_the_state_of_a_route_overrules_a_test_request(house: Tollhouse) -> None:
    """
    If a route is stopped, `check` and `doctor` say that records wait, and `check` exits with 1, although an empty
    export is accepted.
    """
    code, checked = faces.check(house)
    assert 1 == code
    found = {one["name"]: one for one in checked["destinations"]}
    assert "ok" == found["archive"]["status"]
    diagnoses = faces.diagnoses(house)
    text = house.attempt("check").stdout
    metrics = faces.metrics(house)
    for route, word in ROUTES.items():
        name = route.partition("/")[0]
        queued = house.route(route)["queued"]
        said = f"{word}, {queued} records wait"
        assert queued > 0
        assert ("refused", True) == (found[name]["status"], said in found[name]["words"])
        assert said in text
        marks = {status for status, _, words in diagnoses if said in words}
        assert {"problem"} == marks
        assert 2 == sum(said in words for _, _, words in diagnoses)  # the route and its destination
        state = house.route(route)["state"]
        assert 1 == metrics[f'tollhouse_route_state{{route="{route}",state="{state}"}}']


def test_a_route_without_a_destination_is_a_problem(house: Tollhouse) -> None:
    """`check` names a stopped route even if no line of its output is about its destination."""
    whole = house.config.read_text()
    try:
        house.config.write_text(whole[: whole.index('[[destinations]]\nname = "paused"')])
        code, checked = faces.check(house)
    finally:
        house.config.write_text(whole)
    assert 1 == code
    assert ["route paused/ai-telemetry: paused"] == [text.partition(",")[0] for text in checked["problems"]]
