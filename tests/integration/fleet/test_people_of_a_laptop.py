"""Two people at one agent: each call has the login of the user who sent it, and belongs to the home of this user."""

from __future__ import annotations

import asyncio
import json
import os
import socket
from contextlib import closing
from urllib.parse import urlsplit

import pytest

from gateway.devices.agent.connection_user import with_user_of_connection
from gateway.devices.agent.heard_calls import ReceivedCall
from gateway.people.authentication.bearer import AuthenticatedKey
from spool.registry.scopes import INGEST
from tests.integration.conftest import Serve
from tests.integration.payloads import json_span

LOGINS = {12_345: "ada", 12_346: "bob"}
LOCAL = AuthenticatedKey("this machine", frozenset({INGEST}), device="laptop", is_local=True)


def text_attribute(name: str, value: str) -> dict[str, object]:
    return {"key": name, "value": {"stringValue": value}}


def post_as(user: int, url: str, body: bytes) -> None:
    """Send a request in a process of another user."""
    place = urlsplit(url)
    "localhost".encode("idna")  # another user may not be able to load this codec of Python
    child = os.fork()
    if child:
        assert 0 == os.waitpid(child, 0)[1]
        return
    status = 1
    try:
        os.setgid(user)
        os.setuid(user)
        with closing(socket.create_connection((place.hostname or "", place.port or 0))) as connection:
            head = f"POST /v1/traces HTTP/1.1\r\nHost: localhost\r\nContent-Length: {len(body)}\r\n"
            connection.sendall(f"{head}Content-Type: application/json\r\n\r\n".encode() + body)
            status = 0 if b" 200 " in connection.recv(4096) else 1
    finally:
        os._exit(status)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can act as another user")
async def test_a_call_has_the_login_of_its_sender(serve: Serve) -> None:
    """A user that the assistant states has precedence, and a service has no login."""
    agent = await serve(local=LOCAL)
    devices = agent.app.services.single.devices
    heard: list[ReceivedCall] = []
    devices.called = heard.extend
    agent.app.services.receivers.access.with_user_of_connection = with_user_of_connection
    devices.login_of = lambda user: LOGINS.get(user, "")
    for user, stated in ((12_345, ""), (12_346, ""), (12_347, ""), (12_346, "cleo")):
        span = json_span()
        span["attributes"] += [text_attribute("user.id", stated)] if stated else []
        resource = {"attributes": [text_attribute("service.name", "github-copilot")]}
        traces = {"resourceSpans": [{"resource": resource, "scopeSpans": [{"spans": [span]}]}]}
        await asyncio.to_thread(post_as, user, agent.url, json.dumps(traces).encode())
    users = [record.user for record in await agent.records()]
    assert ["ada", "bob", None, "cleo"] == users
    assert [12_345, 12_346, 12_347, 12_346] == [call.user for call in heard]
