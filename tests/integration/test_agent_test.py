"""`tollhouse agent test` over sockets: what a gateway refuses, and a gateway that cannot be reached."""

from __future__ import annotations

import asyncio
import json
import socket
import ssl
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest
import pytest_asyncio

from gateway.cli.agent_delivery import DeliveryResult, try_delivery
from gateway.configuration.sections import AgentSettings, Config
from gateway.devices.agent.identity import KEY_FILE, write_private_file
from gateway.people.authentication.bearer import AuthenticatedKey
from spool.registry.scopes import ENROLL, HEARTBEAT, INGEST
from tests.free_ports import free_port
from tests.integration.certificates import Certificates
from tests.integration.conftest import ACTOR, Serve, Serving
from tests.rounds import part

ENROL = "/v1/ai-control-plane/enroll"
DEVICE = "laptop"


class Machine:
    """A machine with an agent, whose device is enrolled at a gateway."""

    def __init__(self, agent: Serving, gateway: Serving, data: Path) -> None:
        self.gateway, self.data = gateway, data
        self._listen = agent.url.removeprefix("http://")

    async def test(self, url: str = "") -> DeliveryResult:
        config = Config(agent=AgentSettings(gateway=url or self.gateway.url))
        config = replace(config, upstream=replace(config.upstream, kind="tollhouse", timeout=5))
        return await try_delivery(config, self.data, self._listen, 0)


@pytest_asyncio.fixture
async def machine(serve: Serve, tmp_path: Path) -> Machine:
    gateway = await serve()
    key = await gateway.make_key("fleet", scopes=(ENROLL, HEARTBEAT, INGEST))
    body = {"device_id": DEVICE, "fingerprint": "one", "want_key": True}
    answer = await gateway.send(ENROL, json.dumps(body).encode(), key=key)
    local = AuthenticatedKey("this machine", frozenset({INGEST}), device=DEVICE, is_local=True)
    data = tmp_path / "agent"
    data.mkdir()
    write_private_file(data / KEY_FILE, json.loads(answer.body)["key"])
    return Machine(await serve(local=local), gateway, data)


async def answering(status: int) -> asyncio.Server:
    """Start a server that answers each request with a status, or closes each connection if it is 0."""

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        if status:
            writer.write(f"HTTP/1.1 {status} It\r\nContent-Length: 0\r\nConnection: close\r\n\r\n".encode())
        writer.close()

    return await asyncio.start_server(answer, "127.0.0.1", 0)


def port_of(server: asyncio.Server) -> int:
    port: int = server.sockets[0].getsockname()[1]
    return port


async def test_a_call_arrives(machine: Machine) -> None:
    assert (True, "") == ((found := await machine.test()).arrived, found.cause)


async def test_a_gateway_that_refuses_the_key_or_the_device(machine: Machine) -> None:
    await machine.gateway.app.services.single.devices.revoke_device(DEVICE, ACTOR)
    revoked = await machine.test()
    assert (False, "refused") == (revoked.arrived, revoked.cause)
    assert "401" in revoked.words
    (machine.data / KEY_FILE).write_text("thd_nobody\n")
    assert "refused" == (await machine.test()).cause
    (machine.data / KEY_FILE).unlink()
    assert "not_enrolled" == (await machine.test()).cause


@pytest.mark.parametrize(
    ("status", "cause"),
    part(
        [
            (401, "refused"),
            (403, "refused"),
            (404, "refused"),
            (0, "no_answer"),
            (503, "busy"),
            (429, "busy"),
        ],
        every=2,
    ),
)
async def test_an_answer_of_the_gateway(machine: Machine, status: int, cause: str) -> None:
    server = await answering(status)
    try:
        found = await machine.test(f"http://127.0.0.1:{port_of(server)}")
    finally:
        server.close()
    assert (False, cause) == (found.arrived, found.cause)


async def test_a_gateway_that_cannot_be_reached(machine: Machine, tmp_path: Path) -> None:
    """
    `tollhouse agent test` names the problem of a gateway that cannot be reached: no server, a server that never
    answers, an unknown name, or a certificate of a stranger.
    """
    certificates = Certificates(tmp_path)
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(certificates.path("server.pem"), certificates.path("server.key"))
    server = await asyncio.start_server(lambda reader, writer: None, "127.0.0.1", 0, ssl=context)
    with closing(socket.create_server(("127.0.0.1", 0))) as silent:
        for url, cause in (
            (f"http://127.0.0.1:{free_port()}", "no_answer"),
            (f"http://127.0.0.1:{silent.getsockname()[1]}", "no_answer"),
            ("http://gateway.invalid", "dns"),
            (f"https://127.0.0.1:{port_of(server)}", "tls"),
        ):
            found = await machine.test(url)
            assert (False, cause) == (found.arrived, found.cause), url
    server.close()
    (machine.data / KEY_FILE).unlink()
    (machine.data / "link.json").write_text(json.dumps({"forward": "no_answer"}))
    assert "no_answer" == (await machine.test()).cause, "the reason why the device is not enrolled"
