"""A site that receives calls and does not forward them: its words, and those of the centre."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from gateway.devices.machine_state import MachineState
from tests.integration.fleet.chain import Chain, chain
from tests.integration.fleet.history import LOOK_S, MINUTE, Call
from tests.integration.fleet.laptop import Laptop
from tests.integration.fleet.test_causes import laptop_of
from tests.moved_clock import MovedClock

# what is shown of a laptop: its word, whether it is covered, and its causes
Shown = tuple[str, bool, tuple[tuple[str, str], ...]]
REPORTING = ("reporting", True, ())
DELAYED = ("delayed", True, (("unreachable", "backlog"),))
LOST = ("losing", False, (("unreachable", "not_forwarded"),))


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> MovedClock:
    clock = MovedClock()
    monkeypatch.setattr("exporters.device_reporter.time", clock)
    return clock


def working(linked: Chain, place: Path, minutes: range) -> Laptop:
    """Return a laptop with a call in each of these minutes, all of which the site gets."""
    start = linked.site.clock.now()
    ends = [start + minute * MINUTE for minute in minutes]
    calls = [Call(ended - 30, ended, ended + 5) for ended in ends]
    laptop = laptop_of(linked.site, place / "laptop", calls, [(0.0, 0.0)])
    laptop.connect(linked.site.app.url, linked.site.key_file)
    return laptop


async def live(linked: Chain, laptop: Laptop, minutes: int) -> list[tuple[Shown, Shown]]:
    """Let time go by, and return what the site and the centre say after each look."""
    said = []
    for _ in range(round(minutes * MINUTE / LOOK_S)):
        linked.site.clock.move(LOOK_S)
        laptop.take_calls()
        laptop.probe()
        await laptop.report()
        await linked.site.take(laptop)
        await linked.settle(laptop)
        said.append((shown(linked.site.state(laptop)), shown(linked.centre.state(laptop))))
    return said


def shown(state: MachineState) -> Shown:
    return state.word, state.covered, state.causes


@pytest.mark.proof
async def test_calls_that_wait_at_a_site_are_delayed_at_the_centre(tmp_path: Path, clock: MovedClock) -> None:
    """
    If a site receives calls and does not forward them, the centre states after ten minutes that they are delayed.
    The site has the calls, so they are reported there, and nothing is lost.
    """
    async with chain(tmp_path, clock) as linked:
        await linked.site.start()
        laptop = working(linked, tmp_path, range(2, 200, 4))
        assert {(REPORTING, REPORTING)} == set((await live(linked, laptop, 20))[1:])
        linked.cut(calls=True)
        said = await live(linked, laptop, 60)
        assert {REPORTING} == {site for site, _ in said}
        assert {REPORTING} == {centre for _, centre in said[:2]}
        assert {DELAYED} == {centre for _, centre in said[5:]}
        linked.cut()
        assert (REPORTING, REPORTING) == (await live(linked, laptop, 40))[-1]
        await laptop.reporter.close()
        await linked.site.stop()


async def test_calls_that_a_site_keeps_are_lost_at_the_centre(tmp_path: Path, clock: MovedClock) -> None:
    """
    If a site is set to send no calls to the centre, the centre says so, and the site still states its laptops as
    reporting.
    """
    async with chain(tmp_path, clock, paths={"traces": ""}) as linked:
        await linked.site.start()
        laptop = working(linked, tmp_path, range(2, 200, 8))
        said = await live(linked, laptop, 150)
        assert {REPORTING} == {site for site, _ in said[1:]}
        assert {LOST} == {centre for _, centre in said[-12:]}
        await laptop.reporter.close()
        await linked.site.stop()


async def test_a_laptop_that_sleeps_is_delayed_until_its_calls_arrive(
    tmp_path: Path, clock: MovedClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """
    Its last heartbeat said at the centre that its calls wait at the site. The site sends it once more after the calls,
    also if the site restarts meanwhile.
    """
    monkeypatch.setattr("exporters.service.device_sync.DRAINED_LOOK_S", 0.1)
    async with chain(tmp_path, clock) as linked:
        await linked.site.start()
        laptop = working(linked, tmp_path, range(2, 40, 4))
        await live(linked, laptop, 10)
        linked.cut(calls=True)
        await live(linked, laptop, 30)
        await laptop.reporter.close()  # it sleeps from here on
        assert DELAYED == shown(linked.centre.state(laptop))
        await linked.site.stop()
        clock.move(60 * MINUTE)
        await linked.site.start()
        assert DELAYED == shown(linked.centre.state(laptop))
        linked.cut()
        await linked.settle(laptop)
        assert (REPORTING, REPORTING) == (
            shown(linked.site.state(laptop)),
            shown(linked.centre.state(laptop)),
        )
        device = linked.centre.find(laptop)
        await asyncio.sleep(0.5)
        assert device is linked.centre.find(laptop)  # once
        await linked.site.stop()
