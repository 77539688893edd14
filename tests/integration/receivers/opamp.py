"""OpAMP messages and connections of tests."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any
from uuid import UUID, uuid4

from aiohttp import ClientWebSocketResponse, WSMsgType

from gateway.configuration.sections import Config, DeviceSettings
from gateway.devices.opamp.messages import REPORTS_HEARTBEAT, AgentToServer, ServerToAgent
from spool.devices.device import Device
from spool.registry.scopes import ENROLL, HEARTBEAT, INGEST, PING
from spool.settings import SpoolSettings
from tests.integration.conftest import Answer, Serving

ALL = (ENROLL, HEARTBEAT, PING, INGEST)
HOST: Mapping[str, str] = {"host.name": "mill", "host.id": "h-1", "os.type": "linux", "host.arch": "amd64"}


def config(**devices: Any) -> Config:
    settings = DeviceSettings(**{"opamp": True, **devices})
    return Config(spool=SpoolSettings(hold=0, counter_wait=0), devices=settings)


class Agent:
    """An OpAMP agent that counts its messages."""

    def __init__(
        self,
        attributes: Mapping[str, str] = MappingProxyType({}),
        *,
        uid: UUID | None = None,
        capabilities: int = REPORTS_HEARTBEAT,
    ) -> None:
        self.uid = uid or uuid4()
        self.capabilities = capabilities
        self.attributes = {**HOST, **attributes}
        self.sequence = 0

    @property
    def id(self) -> str:
        return f"opamp:{self.uid}"

    def message(self, *, full: bool = False, healthy: bool | None = None, bye: bool = False) -> Any:
        message = AgentToServer(
            instance_uid=self.uid.bytes, sequence_num=self.sequence, capabilities=self.capabilities
        )
        self.sequence += 1
        if full:
            described = message.agent_description
            described.identifying_attributes.add(key="service.name").value.string_value = "otelcol"
            described.identifying_attributes.add(key="service.version").value.string_value = "0.149.0"
            for name, text in self.attributes.items():
                described.non_identifying_attributes.add(key=name).value.string_value = text
        if healthy is not None:
            message.health.healthy = healthy
        if bye:
            message.agent_disconnect.SetInParent()
        return message


async def post(server: Serving, message: Any, key: str, **headers: str) -> Answer:
    body = message if isinstance(message, bytes) else message.SerializeToString()
    return await server.send("/v1/opamp", body, "application/x-protobuf", key=key, headers=headers)


def read(answer: Answer) -> Any:
    assert answer.status == 200, answer.body
    return ServerToAgent.FromString(answer.body)


async def connect(server: Serving, key: str, **headers: str) -> ClientWebSocketResponse:
    return await server.client.ws_connect(f"{server.url}/v1/opamp", headers={"Authorization": key, **headers})


async def tell(socket: ClientWebSocketResponse, message: Any) -> Any:
    """Send a message and return the answer."""
    await socket.send_bytes(b"\0" + message.SerializeToString())
    received = await socket.receive(timeout=30)
    assert received.type == WSMsgType.BINARY, received
    assert received.data[:1] == b"\0"
    return ServerToAgent.FromString(received.data[1:])


def find(server: Serving, id: str) -> Device:
    device = server.app.services.topics.devices.table.find(id)
    assert device is not None
    return device
