"""A stopped route is named with its destination and its cause in every face, for every type of destination."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from exporters.destinations.catalogue import TYPES
from exporters.settings import DestinationSettings
from gateway.configuration.sections import Config
from gateway.money.insights.detector_facts import InsightFacts
from gateway.money.insights.detectors.records import stuck_route
from gateway.monitoring.route_trouble import TO_CORRECT, how_to_resume, route_trouble_title_and_text
from spool.deliveries.values import PARKED, REFUSING, RUNNING, RouteState
from spool.record import AI_TELEMETRY
from spool.settings import SpoolSettings
from tests.exporters.upstream import FakeUpstream, Reply
from tests.gateway.money.insights.test_reliability import RUNNING as RUNNING_ROUTE
from tests.integration.conftest import Serve
from tests.integration.states.conftest import Faces, faces_of
from tests.rounds import part
from tests.spool.contract.examples import add, call
from tests.waiting import until

STOPPED = replace(RUNNING_ROUTE, state=PARKED, queued=3)


async def _stopped(faces: Faces, name: str) -> RouteState:
    """Return the route once it delivers nothing."""
    deliveries = faces.server.app.services.storage.deliveries

    async def stopped() -> list[RouteState]:
        routes = await deliveries.route_states()
        return [route for route in routes if route.name == name and route.state != RUNNING]

    return (await until(stopped, f"{name} stops"))[0]


async def _assert_named(faces: Faces, route: RouteState, correct: str) -> None:
    destination = route.name.partition("/")[0]
    trouble = route_trouble_title_and_text([route])
    assert trouble is not None
    title, text = trouble
    assert destination in title
    [cause] = [each for each in await faces.attention() if each["kind"] == "route"]
    assert ("critical", title, text) == (cause["severity"], cause["title"], cause["text"])
    [line] = [each for each in await faces.doctor() if each["about"] == f"route {route.name}"]
    assert "problem" == line["status"]
    [insight] = [each for each in await faces.insights() if route.name in each.title]
    states = {
        key: value
        for (name, key), value in (await faces.metrics()).items()
        if name == "tollhouse_route_state"
    }
    assert states[("route", route.name), ("state", route.state)] == 1.0
    shown = {each["route"]: each for each in (await faces.api("/status"))["routes"]}
    assert (route.state, route.reason) == (shown[route.name]["state"], shown[route.name]["reason"])
    assert route.reason
    for words in (text, line["words"], insight.description):
        assert route.reason in words
    assert correct in insight.description


@pytest.mark.parametrize("type", part(["ndjson", "focus", "file"], every=3))
async def test_a_path_that_cannot_be_written(serve: Serve, tmp_path: Path, type: str) -> None:
    """A path cannot be written: the cause is the path, not a key or an address."""
    (tmp_path / "file").write_text("")
    path = tmp_path / "file" / "below" if type != "file" else tmp_path / "file"
    destination = DestinationSettings(name="archive", type=type, path=path, topics=(AI_TELEMETRY,))
    config = Config(spool=SpoolSettings(hold=0, counter_wait=0), destinations=(destination,))
    faces = await faces_of(await serve(config=config), tmp_path / "data-0")
    storage = faces.server.app.services.storage
    if type == "file":  # a lake writes only full files, and those of past hours
        await storage.deliveries.set_route_state(
            f"archive/{AI_TELEMETRY}", PARKED, f"{path}: Not a directory"
        )
    await add(storage.log, call(1))
    route = await _stopped(faces, f"archive/{AI_TELEMETRY}")
    assert PARKED == route.state
    await _assert_named(
        faces, route, "Correct the path, the permissions there or the disk of the destination archive"
    )


@pytest.mark.parametrize(("status", "state"), part([(403, PARKED), (404, PARKED), (400, REFUSING)], every=2))
async def test_an_address_that_refuses(serve: Serve, tmp_path: Path, status: int, state: str) -> None:
    async with FakeUpstream() as receiver:
        receiver.answers.extend([Reply(status)] * 1000)
        destination = DestinationSettings(
            name="archive", type="webhook", url=f"{receiver.url}/hook", topics=(AI_TELEMETRY,)
        )
        config = Config(spool=SpoolSettings(hold=0, counter_wait=0), destinations=(destination,))
        faces = await faces_of(await serve(config=config), tmp_path / "data-0")
        await add(faces.server.app.services.storage.log, *(call(number) for number in range(12)))
        route = await _stopped(faces, f"archive/{AI_TELEMETRY}")
        assert state == route.state
        correct = "The destination rejects every record"
        if state == PARKED:
            correct = "Correct the address, the headers or the secret of the destination archive"
        await _assert_named(faces, route, correct)


@pytest.mark.parametrize("type", [*TYPES, "upstream"])
def test_every_type_says_what_to_correct(type: str) -> None:
    name = f"{'upstream' if type == 'upstream' else 'archive'}/{AI_TELEMETRY}"
    route = replace(STOPPED, name=name, reason="the cause in the words of the destination")
    types = {} if type == "upstream" else {"archive": type}
    [finding] = stuck_route(InsightFacts(now=0, routes=[route], destination_types=types))
    assert how_to_resume(route, types) in finding.draft.description
    assert ("key" in how_to_resume(route, types)) == (type == "upstream")
    trouble = route_trouble_title_and_text([route])
    assert trouble is not None
    assert ("your cost service" if type == "upstream" else "archive") in trouble[0]
    assert "the cause in the words of the destination" in trouble[1]
    assert TO_CORRECT.keys() == {*TYPES, "upstream"}
