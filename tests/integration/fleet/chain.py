"""A chain: the gateway of a site reports to a centre, with one way for devices and another one for their calls."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from http.server import BaseHTTPRequestHandler
from itertools import count
from pathlib import Path
from typing import NamedTuple

from exporters.settings import UpstreamKey, UpstreamSettings
from gateway.configuration.sections import Config
from gateway.configuration.server import ServerSettings
from gateway.devices.machine_state import MachineState
from spool.settings import SpoolSettings
from tests.clients.between.relay import Relay
from tests.clients.loopback import Loopback
from tests.integration.conftest import ACTOR
from tests.integration.fleet.gateway import KEY_SCOPES, Gateway
from tests.integration.fleet.laptop import Laptop
from tests.moved_clock import MovedClock
from tests.waiting import until

SPOOL = SpoolSettings(hold=0, counter_wait=0)


class Away(BaseHTTPRequestHandler):
    """A centre that cannot be reached."""

    def do_POST(self) -> None:
        self.send_error(503)

    def log_message(self, *_: object) -> None:
        """Log nothing."""


class Chain(NamedTuple):
    site: Gateway
    centre: Gateway
    devices: Relay
    calls: Relay
    wall: Loopback

    def cut(self, *, devices: bool = False, calls: bool = False) -> None:
        """Let the centre be away for devices, for their calls, or for both."""
        for relay, is_cut in ((self.devices, devices), (self.calls, calls)):
            relay.target = self.wall.url if is_cut else self.centre.app.url

    @property
    def is_cut(self) -> bool:
        """Return whether the centre hears nothing of devices."""
        return self.devices.target == self.wall.url

    @property
    def keeps_calls(self) -> bool:
        """Return whether calls wait at the site."""
        return self.calls.target == self.wall.url

    async def settle(self, laptop: Laptop) -> None:
        """Wait until the centre has all that the site can send about a laptop."""
        await self.site.lifecycle.table.flush()
        numbers = count()

        async def has_arrived() -> bool:
            if next(numbers) % 200 == 0:
                # what waited for a centre that was away is sent now, also after a late refusal
                await self.site.app.reload(ACTOR)
            return await self._has_arrived(laptop)

        await until(has_arrived, f"the centre has all of {laptop}")

    async def _has_arrived(self, laptop: Laptop) -> bool:
        here, there = self.site.find(laptop), self.centre.find(laptop)
        if here is None or there is None or here.sent_version < here.facts_version:
            return False
        # while calls wait, the newest row is sent and counts as not sent
        if here.sent_version < here.version and not self.keeps_calls:
            return False
        routes = await self.site.app.services.storage.deliveries.route_states()
        is_sent = self.keeps_calls or not any(route.queued for route in routes)
        return is_sent and there.last_seen >= here.last_seen


@asynccontextmanager
async def chain(
    place: Path, clock: MovedClock, paths: Mapping[str, str] | None = None
) -> AsyncIterator[Chain]:
    """Start the centre. The site knows it, and is started by the test."""
    (place / "centre").mkdir()
    config = Config(spool=SPOOL, server=ServerSettings(chain_keys=("site",)))
    centre = Gateway(place / "centre", clock, config=config)
    await centre.start()
    devices, calls, wall = Relay(centre.app.url), Relay(centre.app.url), Loopback(Away)
    secret = place / "site.key"
    secret.write_text(await centre.make_key("site"))
    upstream = UpstreamSettings(
        base_url=devices.url,
        ai_telemetry_url=calls.url,
        kind="tollhouse",
        keys=(UpstreamKey(name="site", secret_file=secret, scopes=KEY_SCOPES),),
        paths=paths or {},
    )
    try:
        site = Gateway(place, clock, config=Config(spool=SPOOL, upstream=upstream))
        yield Chain(site, centre, devices, calls, wall)
    finally:
        await centre.stop()
        for server in (devices, calls, wall):
            server.close()


def summary(state: MachineState) -> tuple[object, ...]:
    assistants = [
        (each.name, each.state, each.cause, each.setting, each.use) for each in state.assistants.each
    ]
    return state.word, state.covered, state.link, state.causes, assistants
