"""
The oracle of a chain: laptops report to the gateway of a site, which reports to a centre. Each is sometimes away, and
sometimes the centre gets only reports of devices, and their calls wait at the site.
`make proofs` tries more random fleets.
"""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from gateway.devices.fleet.heartbeat_facts import NOT_FORWARDED
from gateway.devices.fleet.uses import LOSING
from gateway.devices.machine_state import MachineState
from spool.devices.device import ENROLLED, HEARD_EVERY_S
from tests.integration.fleet.chain import Chain, chain, summary
from tests.integration.fleet.history import HOUR, LOOK_S, Span
from tests.integration.fleet.laptop import Laptop
from tests.integration.fleet.test_oracle import FIRST, HOURS, Story, compare_words
from tests.moved_clock import MovedClock
from tests.rounds import IS_LONG

SEEDS = 10 if IS_LONG else 1


class ChainStory(Story):
    """Two laptops, the gateway of their site, and the centre."""

    def __init__(self, dice: random.Random, place: Path, clock: MovedClock, linked: Chain) -> None:
        super().__init__(dice, place, clock, [linked.site])
        self._linked = linked
        self._site_away, self._centre_away = self._drawn(dice), self._drawn(dice)
        self._calls_away = self._drawn(dice)
        self._is_site_away = False
        self._cut_at = 0.0  # when calls last waited at the site
        self._before: dict[str, MachineState] = {}  # the last state of each laptop at the centre
        # by laptop, since when only the site states that it lost calls
        self._known_late: dict[str, float] = {}
        self.compared = 0

    def _drawn(self, dice: random.Random) -> Span:
        begin = self.end - dice.uniform(2, HOURS - 2) * HOUR
        return Span(begin, begin + dice.uniform(0.2, 4) * HOUR)

    async def look(self) -> None:
        """Let the laptops report, and compare the gateways if both can be reached."""
        await self._leave_and_return()
        await super().look()
        now, linked = self.clock.now(), self._linked
        if linked.keeps_calls:
            self._cut_at = now
        for laptop in self.laptops:
            device = linked.site.find(laptop)
            if self._is_site_away or linked.is_cut:
                self._check_kept(laptop)
            elif device is not None and device.state == ENROLLED:
                await linked.settle(laptop)
                if device.last_seen == now:
                    self._compare(laptop)
                self._before[laptop.name] = linked.centre.state(laptop)

    async def _go_on(self) -> None:
        if not self._is_site_away:
            await super()._go_on()

    async def _leave_and_return(self) -> None:
        site, now = self._linked.site, self.clock.now()
        if self._site_away.has(now) and not self._is_site_away:
            self._is_site_away = True
            await site.stop()
        elif self._is_site_away and not self._site_away.has(now):
            self._is_site_away = False
            await site.start()
            for laptop in self.laptops:
                laptop.url = site.app.url
                await laptop.restart()
        is_away = self._centre_away.has(now)
        self._linked.cut(devices=is_away, calls=is_away or self._calls_away.has(now))

    def _check_kept(self, laptop: Laptop) -> None:
        """Check that the centre keeps the state of a laptop while it receives nothing about it."""
        if laptop.name in self._before:
            assert self._before[laptop.name].word == self._linked.centre.state(laptop).word

    def _compare(self, laptop: Laptop) -> None:
        site, centre = self._linked.site, self._linked.centre
        here, there = site.state(laptop), centre.state(laptop)
        if self.clock.now() - self._cut_at <= LOOK_S:  # a report may be sent before the calls that waited
            before = self._before.get(laptop.name)
            is_kept = before is not None and before.word == LOSING
            assert there.word != LOSING or here.word == LOSING or is_kept, (here, there)
        elif self._has_one_time(laptop) and not self._is_known_late(laptop, here, there):
            assert summary(here) == summary(there)
            self.compared += 1

    def _has_one_time(self, laptop: Laptop) -> bool:
        """
        Return whether both gateways have the same times of calls. If a call waited at the site while the clock was set,
        they do not, because a call has a time of the laptop, and each gateway knows only the offset of now. Of calls
        that arrive together, a gateway may store any time.
        """
        here, there = self._linked.site.find(laptop), self._linked.centre.find(laptop)
        assert here is not None and there is not None
        one, other = here.newest_calls, there.newest_calls
        is_same = one.keys() == other.keys() and all(
            abs(at - other[name]) < HEARD_EVERY_S for name, at in one.items()
        )
        assert is_same or len(laptop.past.offsets) > 1, (one, other)
        return is_same

    def _is_known_late(self, laptop: Laptop, here: MachineState, there: MachineState) -> bool:
        """Return whether the centre hears of a loss at the next report, because calls waited at the last one."""
        if not is_lost_below(here) or is_lost_below(there):
            self._known_late.pop(laptop.name, None)
            return False
        since = self._known_late.setdefault(laptop.name, self.clock.now())
        assert self.clock.now() - since <= 2 * LOOK_S, (here, there)
        return True


def is_lost_below(state: MachineState) -> bool:
    return any(cause == NOT_FORWARDED for _, cause in state.causes)


@pytest.mark.proof
@pytest.mark.parametrize("seed", range(FIRST, FIRST + SEEDS))
async def test_states_are_the_same_along_a_chain(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    """
    What the site states about its laptops is true, and the centre states the same once it received it. While the
    site or the centre is away, the centre keeps its last state, and calls that wait are no loss.
    """
    clock = MovedClock()
    monkeypatch.setattr("exporters.device_reporter.time", clock)
    async with chain(tmp_path, clock) as linked:
        story = ChainStory(random.Random(seed), tmp_path, clock, linked)
        await story.tell()
    compare_words(story)
    assert story.compared > 10
