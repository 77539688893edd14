"""OpAMP instances that move between two gateways on one PostgreSQL."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from aiohttp import WSMsgType

from gateway.configuration.sections import DeviceSettings
from gateway.devices.fleet.heartbeat_facts import decode_instances
from gateway.devices.opamp.messages import REPORT_FULL_STATE
from tests.integration.conftest import ACTOR, Serve
from tests.integration.receivers.opamp import ALL, Agent, connect, find, post, read, tell
from tests.integration.test_two_gateways import shared_config
from tests.spool.postgres_cluster import Schema
from tests.waiting import limited, until


async def test_an_instance_moves(new_schema: Callable[[], Schema], serve: Serve, tmp_path: Path) -> None:
    """
    The other gateway asks for the full state and continues the same device, also under a new uid. A revocation at one
    gateway ends the connection at the other.
    """
    schema = new_schema()
    base = shared_config(schema.dsn, schema.name, tmp_path)
    config = replace(base, devices=DeviceSettings(opamp=True))
    one, other = await serve(config=config), await serve(config=config, key_name="other sender")
    key = await one.make_key("fleet", scopes=ALL)
    first, second = Agent({"host.name": "mill\0\ud7ff"}), Agent()
    read(await post(one, first.message(full=True, healthy=True), key))
    assert find(one, first.id).hostname.startswith("mill")
    table = other.app.services.topics.devices.table
    await until(lambda: table.find(first.id) is not None)
    async with await connect(other, key) as socket:
        assert (await tell(socket, first.message())).flags == REPORT_FULL_STATE
        assert (await tell(socket, first.message(full=True))).flags == 0
    await until(lambda: not decode_instances(find(other, first.id).heartbeat)[str(first.uid)]["connected"])
    await other.app.services.topics.devices.table.flush()
    await until(lambda: not decode_instances(find(one, first.id).heartbeat)[str(first.uid)]["connected"])
    async with await connect(one, key) as socket:
        await tell(socket, second.message(full=True))
        devices = one.app.services.topics.devices
        assert [device.id for device in devices.table.all()] == [first.id]
        await until(lambda: str(second.uid) in decode_instances(find(other, first.id).heartbeat))
        await other.app.services.topics.devices.revoke_device(first.id, ACTOR)
        async with limited():
            closed = await socket.receive()
        assert (closed.type, closed.data) == (WSMsgType.CLOSE, 1008)
    assert (await post(one, second.message(full=True), key)).status == 410
