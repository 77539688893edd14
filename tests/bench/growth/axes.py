"""
Axes of growth: for each axis its points, the load at each point, and the data that the installation holds before.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

from tests.bench.server import backlog, scenarios
from tests.bench.server.scenarios import Scenario

HOUR, DAY = 3600, 86400
Prepare = Callable[[Path], object]


@dataclass(frozen=True, kw_only=True)
class Point:
    label: str
    scenario: Scenario
    prepare: Prepare | None = None


@dataclass(frozen=True, kw_only=True)
class Axis:
    name: str
    words: str
    points: Sequence[Point]


def _label(number: int) -> str:
    for unit, size in (("M", 1_000_000), ("k", 1000)):
        if number >= size and number % size == 0:
            return f"{number // size}{unit}"
    return str(number)


def _of(load: str, **changes: object) -> Scenario:
    return replace(scenarios.of_name(load), **changes)  # type: ignore[arg-type]


def _backlogs(counts: Sequence[int]) -> Axis:
    points = [Point(label=_label(n), scenario=_of("100x8", name=f"backlog {n}", backlog=n)) for n in counts]
    return Axis(name="backlog", words="records that wait for an upstream that is away", points=points)


def _series(counts: Sequence[int]) -> Axis:
    points = [
        Point(label=_label(n), scenario=_of("counters-100x8", name=f"series {n}", series=n)) for n in counts
    ]
    return Axis(name="series", words="cumulative counters", points=points)


def _devices(counts: Sequence[int]) -> Axis:
    points = [
        Point(
            label=_label(n),
            scenario=_of("heartbeats-1x16", name=f"devices {n}", devices=n),
            prepare=partial(backlog.add_devices, devices=n),
        )
        for n in counts
    ]
    return Axis(name="devices", words="devices that are enrolled and send heartbeats", points=points)


def _keys(counts: Sequence[int]) -> Axis:
    points = [
        Point(
            label=_label(n), scenario=_of("1x64", name=f"keys {n}"), prepare=partial(backlog.add_keys, keys=n)
        )
        for n in counts
    ]
    return Axis(name="keys", words="API keys beside the one in use", points=points)


def _groups(counts: Sequence[int]) -> Axis:
    points = [Point(label=_label(n), scenario=_of("100x8", name=f"groups {n}", users=n)) for n in counts]
    return Axis(name="groups", words="users, each with sums of their own in the ledger", points=points)


def _ages() -> Axis:
    ages = {"now": 0, "1 h": HOUR, "1 d": DAY, "6 d": 6 * DAY}
    points = [
        Point(label=label, scenario=_of("100x8", name=f"age {label}", age_s=seconds))
        for label, seconds in ages.items()
    ]
    return Axis(name="age", words="age of the records when they arrive", points=points)


def axes(*, full: bool) -> list[Axis]:
    """List every axis. `full` has larger points and takes long."""
    return [
        _backlogs((0, 10_000, 100_000, 1_000_000, 10_000_000) if full else (0, 10_000, 100_000, 400_000)),
        _series((100, 1000, 10_000, 100_000) if full else (100, 1000, 10_000)),
        _devices((10, 100, 1000, 10_000)),
        _keys((0, 10, 100, 1000)),
        _groups((100, 1000, 10_000, 100_000) if full else (100, 1000, 10_000)),
        _ages(),
    ]
