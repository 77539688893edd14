"""
Keycloak with a realm of two people, an assistant and a program, whose tokens are issued for a Tollhouse.
"""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import aiohttp

from tests.clients import environments
from tests.free_ports import free_port

REALM = "tollhouse"
ADMIN = "admin"
PASSWORD = "any"  # all test people have this password
REDIRECT = "http://127.0.0.1:33418/callback"
SCOPES = ("tollhouse.read", "tollhouse.write")
START = ("start-dev", "--db=dev-mem", "--http-host=127.0.0.1", "--cache=local", "--log-level=warn")


class Keycloak:
    """A running Keycloak. `resource` is the audience of its tokens."""

    def __init__(self, url: str, session: aiohttp.ClientSession) -> None:
        self.url = url
        self.issuer = f"{url}/realms/{REALM}"
        self._session = session

    async def is_up(self) -> bool:
        try:
            async with self._session.get(f"{self.url}/realms/master") as answer:
                return answer.status == 200
        except aiohttp.ClientConnectionError:
            return False

    async def make_realm(self, resource: str) -> None:
        form = {"grant_type": "password", "client_id": "admin-cli", "username": ADMIN, "password": PASSWORD}
        token = await self._token("master", form)
        headers = {"Authorization": f"Bearer {token}"}
        realm = {
            "realm": REALM,
            "enabled": True,
            "sslRequired": "none",
            "users": [_person("ada"), _person("eve")],
        }
        await self._put(headers, "", realm)
        for name in SCOPES:
            await self._put(headers, f"/{REALM}/client-scopes", _scope(name, resource))
        for client in _clients():
            await self._put(headers, f"/{REALM}/clients", client)

    async def robot(self, scope: str) -> str:
        """Fetch a program's token with a scope and the audience that the scope adds."""
        form = {"grant_type": "client_credentials", "client_id": "robot", "client_secret": "robot-secret"}
        return await self._token(REALM, {**form, "scope": scope})

    async def _token(self, realm: str, form: Mapping[str, str]) -> str:
        address = f"{self.url}/realms/{realm}/protocol/openid-connect/token"
        async with self._session.post(address, data=form) as answer:
            found = await answer.json()
            assert 200 == answer.status, found
            return str(found["access_token"])

    async def _put(self, headers: Mapping[str, str], path: str, body: Mapping[str, Any]) -> None:
        address = f"{self.url}/admin/realms{path}"
        async with self._session.post(address, json=body, headers=headers) as answer:
            assert 201 == answer.status, await answer.text()


@asynccontextmanager
async def running(resource: str, directory: Path) -> AsyncIterator[Keycloak]:
    """Run Keycloak with its realm in the memory of one process."""
    home, port = environments.keycloak(), free_port()
    log = directory / "keycloak.log"
    with log.open("wb") as to:
        process = await asyncio.create_subprocess_exec(
            str(home / "bin/kc.sh"), *START, f"--http-port={port}",
            env=environments.of_java(KC_BOOTSTRAP_ADMIN_USERNAME=ADMIN, KC_BOOTSTRAP_ADMIN_PASSWORD=PASSWORD),
            stdout=to, stderr=to, start_new_session=True,
        )  # fmt: skip
    try:
        async with aiohttp.ClientSession() as session:
            keycloak = Keycloak(f"http://127.0.0.1:{port}", session)
            while not await keycloak.is_up():
                assert process.returncode is None, log.read_text()
                await asyncio.sleep(0.2)
            await keycloak.make_realm(resource)
            yield keycloak
    finally:
        with suppress(ProcessLookupError):
            # kill the whole group, because Keycloak's start script may wait for another process
            os.killpg(process.pid, signal.SIGKILL)
        await process.wait()


def _person(name: str) -> Mapping[str, Any]:
    secret = {"type": "password", "value": PASSWORD, "temporary": False}
    return {
        "id": name, "username": name, "enabled": True, "email": f"{name}@example.com", "emailVerified": True,
        "firstName": name, "lastName": name, "credentials": [secret],
        "realmRoles": [f"default-roles-{REALM}"],
    }  # fmt: skip


def _scope(name: str, resource: str) -> Mapping[str, Any]:
    """Define a scope whose tokens are for the resource."""
    config = {"included.custom.audience": resource, "access.token.claim": "true", "id.token.claim": "false"}
    audience = {
        "name": "resource", "protocol": "openid-connect", "protocolMapper": "oidc-audience-mapper", "config": config,
    }  # fmt: skip
    return {
        "name": name, "protocol": "openid-connect", "attributes": {"include.in.token.scope": "true"},
        "protocolMappers": [audience],
    }  # fmt: skip


def _clients() -> Sequence[Mapping[str, Any]]:
    own = {"optionalClientScopes": [*SCOPES, "offline_access"], "defaultClientScopes": ["basic", "email"]}
    return (
        {
            **own, "clientId": "assistant", "publicClient": True, "redirectUris": [REDIRECT],
            "attributes": {"pkce.code.challenge.method": "S256"},
        },
        {**own, "clientId": "robot", "secret": "robot-secret", "serviceAccountsEnabled": True, "redirectUris": []},
    )  # fmt: skip
