"""
The oracle of a chain: laptops report to the gateway of a site, which reports to a centre. Each is sometimes away.
`TOLLHOUSE_ORACLE_CHAIN_SEEDS` sets the number of random fleets.
"""

from __future__ import annotations

import asyncio
import os
import random
from http.server import BaseHTTPRequestHandler
from pathlib import Path

import pytest

from exporters.settings import UpstreamKey, UpstreamSettings
from gateway.configuration.sections import Config, ServerSettings
from gateway.devices.fleet.facts import NOT_FORWARDED, UNREACHABLE
from gateway.devices.machine_state import MachineState
from spool.devices.device import ENROLLED
from spool.settings import SpoolSettings
from tests.clients.between.relay import Relay
from tests.clients.loopback import Loopback
from tests.integration.conftest import ACTOR
from tests.integration.fleet.gateway import KEY_SCOPES, Gateway
from tests.integration.fleet.history import HOUR, Span
from tests.integration.fleet.laptop import Laptop
from tests.integration.fleet.test_oracle import FIRST, HOURS, Story, compare_words
from tests.moved_clock import MovedClock

SEEDS = int(os.environ.get("TOLLHOUSE_ORACLE_CHAIN_SEEDS", "1"))
PATIENCE_S = 120.0
SPOOL = SpoolSettings(hold=0, counter_wait=0)
CALLS_LOST_BELOW = ((UNREACHABLE, NOT_FORWARDED),)  # only the gateway that compares hours knows it


class Away(BaseHTTPRequestHandler):
    """A centre that cannot be reached."""

    def do_POST(self) -> None:
        self.send_error(503)

    def log_message(self, *_: object) -> None:
        """Log nothing."""


class ChainStory(Story):
    """Two laptops, the gateway of their site, and the centre."""

    def __init__(
        self,
        dice: random.Random,
        place: Path,
        clock: MovedClock,
        site: Gateway,
        centre: Gateway,
        relay: Relay,
    ) -> None:
        super().__init__(dice, place, clock, [site])
        self._centre, self._relay, self._wall = centre, relay, Loopback(Away)
        self._site_away, self._centre_away = self._drawn(dice), self._drawn(dice)
        self._is_site_away = False
        self._before: dict[str, str] = {}  # what the centre said last of each laptop
        self.compared = 0

    def _drawn(self, dice: random.Random) -> Span:
        begin = self.end - dice.uniform(2, HOURS - 2) * HOUR
        return Span(begin, begin + dice.uniform(0.2, 4) * HOUR)

    async def look(self) -> None:
        """Let the laptops report, and compare the gateways if both can be reached."""
        await self._leave_and_return()
        await super().look()
        is_cut = self._is_site_away or self._relay.target == self._wall.url
        for laptop in self.laptops:
            device = self.gateways[0].find(laptop)
            if is_cut:
                self._check_kept(laptop)
            elif device is not None and device.state == ENROLLED and has_one_clock(laptop):
                await self._settle(laptop)
                if device.last_seen == self.clock.now():
                    self._compare(laptop)

    async def _go_on(self) -> None:
        if not self._is_site_away:
            await super()._go_on()

    async def _leave_and_return(self) -> None:
        [site], now = self.gateways, self.clock.now()
        if self._site_away.has(now) and not self._is_site_away:
            self._is_site_away = True
            await site.stop()
        elif self._is_site_away and not self._site_away.has(now):
            self._is_site_away = False
            await site.start()
            for laptop in self.laptops:
                laptop.url = site.app.url
                await laptop.restart()
        self._relay.target = self._wall.url if self._centre_away.has(now) else self._centre.app.url

    def _check_kept(self, laptop: Laptop) -> None:
        """The centre keeps the word of a laptop of which it hears nothing."""
        if laptop.name in self._before:
            assert self._before[laptop.name] == self._centre.state(laptop).word

    async def _settle(self, laptop: Laptop) -> None:
        """Wait until the centre has all that the site knows of a laptop."""
        [site] = self.gateways
        await site.lifecycle.table.flush()
        await site.app.reload(ACTOR)  # what waited for a centre that was away is sent now
        async with asyncio.timeout(PATIENCE_S):
            while not self._has_arrived(laptop):  # noqa: ASYNC110 - a table tells one reader alone
                await asyncio.sleep(0.005)
        self._before[laptop.name] = self._centre.state(laptop).word

    def _has_arrived(self, laptop: Laptop) -> bool:
        here, there = self.gateways[0].find(laptop), self._centre.find(laptop)
        if here is None or there is None or here.sent_version < here.version:
            return False
        return here.newest_calls == there.newest_calls and there.last_seen >= here.last_seen

    def _compare(self, laptop: Laptop) -> None:
        here, there = self.gateways[0].state(laptop), self._centre.state(laptop)
        if here.causes != CALLS_LOST_BELOW:
            assert summary(here) == summary(there)
            self.compared += 1

    async def close(self) -> None:
        self._wall.close()


def has_one_clock(laptop: Laptop) -> bool:
    """Return whether a clock was not set. The gateways may correct a call by its time before and after that."""
    return len(laptop.past.offsets) == 1


def summary(state: MachineState) -> tuple[object, ...]:
    assistants = [
        (each.name, each.state, each.cause, each.setting, each.use) for each in state.assistants.each
    ]
    return state.word, state.covered, state.link, state.causes, assistants


@pytest.mark.parametrize("seed", range(FIRST, FIRST + SEEDS))
async def test_states_are_the_same_along_a_chain(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    """
    What the site says of its laptops is true, and the centre says the same once it heard of it. While the site or
    the centre is away, the centre keeps its word, and calls that wait are no loss.
    """
    clock = MovedClock()
    monkeypatch.setattr("exporters.device_reporter.time", clock)
    (tmp_path / "centre").mkdir()
    config = Config(spool=SPOOL, server=ServerSettings(chain_keys=("site",)))
    centre = Gateway(tmp_path / "centre", clock, config=config)
    await centre.start()
    relay = Relay(centre.app.url)
    secret = tmp_path / "site.key"
    secret.write_text(await centre.make_key("site"))
    key = UpstreamKey(name="site", secret_file=secret, scopes=KEY_SCOPES)
    upstream = UpstreamSettings(base_url=relay.url, kind="tollhouse", keys=(key,))
    site = Gateway(tmp_path, clock, config=Config(spool=SPOOL, upstream=upstream))
    story = ChainStory(random.Random(seed), tmp_path, clock, site, centre, relay)
    try:
        await story.tell()
    finally:
        await story.close()
        await centre.stop()
        relay.close()
    compare_words(story)
    assert story.compared > 10 or not any(map(has_one_clock, story.laptops))
