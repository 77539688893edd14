"""A gateway of the oracle, on files, that restarts with the same data."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from aiohttp import ClientSession

from gateway.configuration.sections import Config, DeviceSettings
from gateway.devices.fleet.coverage import FleetCoverage
from gateway.devices.lifecycle import DeviceLifecycle
from gateway.devices.machine_state import MachineState
from gateway.service.app import TollhouseApp
from spool.devices.device import Device
from spool.registry.scopes import ENROLL, HEARTBEAT, INGEST, PING
from spool.registry.tables.inventory import Machine
from spool.settings import SpoolSettings
from tests.integration.conftest import ACTOR
from tests.integration.fleet.history import LOOK_S
from tests.integration.fleet.laptop import Laptop, path_of
from tests.moved_clock import MovedClock

KEY_SCOPES = (ENROLL, HEARTBEAT, PING, INGEST)


class Gateway:
    """A gateway that restarts with the same data. `config` has the settings that are not the gateway's own."""

    def __init__(
        self,
        place: Path,
        clock: MovedClock,
        *,
        name: str = "data",
        policy: str = "auto",
        config: Config | None = None,
    ) -> None:
        self._data = place / name
        self._policy = policy
        self._config = config or Config(spool=SpoolSettings(hold=0, counter_wait=0))
        self.clock = clock
        self.key_file = place / "fleet.key"

    async def start(self) -> None:
        config = replace(
            self._config,
            devices=DeviceSettings(heartbeat_interval=LOOK_S, policy=self._policy),
            data_dir=self._data,
            server=replace(self._config.server, listen="127.0.0.1:0", grpc_listen=""),
        )
        self.app = TollhouseApp(config, version="0", clock=self.clock)
        await self.app.start()
        self.client = ClientSession()
        registry = self.app.services.storage.registry
        assert registry is not None
        if not self.key_file.exists():
            self.key_file.write_text(await self.make_key("fleet"))

    async def make_key(self, name: str) -> str:
        registry = self.app.services.storage.registry
        assert registry is not None
        _, secret = await registry.keys.create(name=name, scopes=KEY_SCOPES, actor=ACTOR)
        return secret

    async def stop(self) -> None:
        await self.client.close()
        await self.app.stop()

    @property
    def lifecycle(self) -> DeviceLifecycle:
        return self.app.services.single.devices

    def find(self, laptop: Laptop) -> Device | None:
        return self.lifecycle.table.find(laptop.name)

    def state(self, laptop: Laptop) -> MachineState:
        device = self.find(laptop)
        assert device is not None
        return self.lifecycle.machine_state(device)

    async def coverage(self) -> FleetCoverage:
        fleet = self.app.services.operators.senders.require_fleet()
        return fleet.measure_coverage(await fleet.machine_rows())

    async def expect(self, laptops: Sequence[Laptop]) -> None:
        """Import the list of the MDM."""
        registry = self.app.services.storage.registry
        assert registry is not None
        machines = [Machine(serial=laptop.serial, last_seen=self.clock.now()) for laptop in laptops]
        await registry.inventory.replace_machines(machines, source="csv", confirmed=True, actor=ACTOR)

    async def post_json(self, path: str, body: object, key: str) -> None:
        headers = {"Authorization": key}
        async with self.client.post(self.app.url + path, json=body, headers=headers) as answer:
            assert answer.status in (200, 403), await answer.text()

    async def take(self, laptop: Laptop) -> None:
        headers = {"Authorization": laptop.key, "Content-Type": "application/json"}
        for body in laptop.deliver():
            async with self.client.post(self.app.url + path_of(body), data=body, headers=headers) as answer:
                assert 200 == answer.status, await answer.text()
