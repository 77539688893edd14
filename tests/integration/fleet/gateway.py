"""A gateway of the oracle, on files, that restarts with the same data."""

from __future__ import annotations

from pathlib import Path

from aiohttp import ClientSession

from gateway.configuration.sections import Config, DeviceSettings, ServerSettings
from gateway.devices.lifecycle import DeviceLifecycle
from gateway.devices.machine_state import MachineState
from gateway.service.app import App
from spool.registry.scopes import ENROLL, HEARTBEAT, INGEST, PING
from spool.settings import SpoolSettings
from tests.integration.conftest import ACTOR
from tests.integration.fleet.history import LOOK_S
from tests.integration.fleet.laptop import Laptop, path_of
from tests.moved_clock import MovedClock


class Gateway:
    """A gateway that restarts with the same data."""

    def __init__(self, place: Path, clock: MovedClock) -> None:
        self._place = place
        self.clock = clock
        self.key_file = place / "fleet.key"

    async def start(self) -> None:
        config = Config(
            spool=SpoolSettings(hold=0, counter_wait=0),
            devices=DeviceSettings(heartbeat_interval=LOOK_S),
            data_dir=self._place / "data",
            server=ServerSettings(listen="127.0.0.1:0", grpc_listen=""),
        )
        self.app = App(config, version="0", clock=self.clock)
        await self.app.start()
        self.client = ClientSession()
        registry = self.app.services.storage.registry
        assert registry is not None
        if not self.key_file.exists():
            scopes = (ENROLL, HEARTBEAT, PING, INGEST)
            _, secret = await registry.keys.create(name="fleet", scopes=scopes, actor=ACTOR)
            self.key_file.write_text(secret)

    async def stop(self) -> None:
        await self.client.close()
        await self.app.stop()

    @property
    def lifecycle(self) -> DeviceLifecycle:
        return self.app.services.topics.devices

    def state(self, laptop: Laptop) -> MachineState:
        device = self.lifecycle.table.find(laptop.name)
        assert device is not None
        return self.lifecycle.state_of(device)

    async def post_json(self, path: str, body: object, key: str) -> None:
        headers = {"Authorization": key}
        async with self.client.post(self.app.url + path, json=body, headers=headers) as answer:
            assert answer.status in (200, 403), await answer.text()

    async def take(self, laptop: Laptop) -> None:
        headers = {"Authorization": laptop.key, "Content-Type": "application/json"}
        for body in laptop.deliver():
            async with self.client.post(self.app.url + path_of(body), data=body, headers=headers) as answer:
                assert 200 == answer.status, await answer.text()
