"""Every axis of growth has loads that the server accepts, and its plots are drawn."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from xml.etree import ElementTree

import pytest

from tests.bench.growth.__main__ import plotted
from tests.bench.growth.axes import axes
from tests.bench.growth.plots import Plot, svg
from tests.bench.load.payloads import heartbeat
from tests.bench.server import backlog
from tests.bench.server.rounds import Figures, RoundOptions
from tests.bench.server.states import play

pytestmark = pytest.mark.bench


def test_a_point_is_measured_on_what_was_prepared(tmp_path: Path) -> None:
    """
    The server accepts the load even if the installation has ten more keys, records of many users and records of
    yesterday.
    """
    (keys,) = (axis for axis in axes(full=False) if axis.name == "keys")
    point = next(point for point in keys.points if point.label == "10")
    scenario = replace(point.scenario, items=20, clients=2, users=200, age_s=86_400)
    figures = play(scenario, "tollhouse", tmp_path, RoundOptions(seconds=0.3, warm_up=0), point.prepare)
    assert figures.refused == {}
    assert figures.broken == 0
    assert figures.undelivered == 0
    assert figures.records > 0


async def test_the_devices_of_the_heartbeats_are_enrolled_before(tmp_path: Path) -> None:
    await backlog._add_devices(tmp_path, 3)
    async with backlog.opened_storage(tmp_path) as storage:
        assert {json.loads(heartbeat(number))["device_id"] for number in range(3)} == {
            device.id for device in storage.devices.all()
        }


def test_every_axis_is_drawn() -> None:
    for axis in axes(full=True):
        figures = [
            Figures(scenario=point.label, target="tollhouse", accepted_per_s=1000.0 * number, peak_mib=100.0)
            for number, point in enumerate(axis.points)
        ]
        drawing = ElementTree.fromstring(plotted(axis, figures))
        dots = drawing.findall(".//{http://www.w3.org/2000/svg}circle")
        assert 4 * len(axis.points) == len(dots)
        texts = {text.text for text in drawing.iter("{http://www.w3.org/2000/svg}text")}
        assert {point.label for point in axis.points} <= texts


@pytest.mark.parametrize(("value", "top"), [(0, "1"), (0.3, "0.4"), (7, "8"), (10, "10"), (1234, "2,000")])
def test_the_axis_ends_above_the_highest_value(value: float, top: str) -> None:
    drawing = svg("", [Plot(title="", labels=["a"], values=[value])])
    assert f">{top}</text>" in drawing
