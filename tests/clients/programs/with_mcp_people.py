"""
The official SDK of the Model Context Protocol, signed in by a person. It requests the costs per team at the
start and after each line on standard input. The line `over` first makes its token expired by its own clock.
With a client id it writes as well. A client id that is the address of a document needs no registration.
Without a client id the SDK registers itself.
"""

from __future__ import annotations

import asyncio
import json
import os
import re
import sys
from html import unescape
from http.cookiejar import DefaultCookiePolicy
from typing import Any

import httpx2
from mcp import Client
from mcp.client.auth import OAuthClientProvider
from mcp.client.auth.oauth2 import AuthorizationCodeResult
from mcp.client.streamable_http import streamable_http_client
from mcp.shared.auth import OAuthClientInformationFull, OAuthClientMetadata

# An identity provider on loopback may mark its cookies as https-only. Browsers nevertheless send them on
# loopback, so this policy does as well.
LOOPBACK = DefaultCookiePolicy(secure_protocols=("http", "https"))
REDIRECT = "http://127.0.0.1:33418/callback"


class Kept:
    """Storage for the registration and the tokens of an OAuth client."""

    def __init__(self) -> None:
        self.tokens: Any = None
        self.client: Any = None

    async def get_tokens(self) -> Any:
        return self.tokens

    async def set_tokens(self, tokens: Any) -> None:
        self.tokens = tokens

    async def get_client_info(self) -> Any:
        return self.client

    async def set_client_info(self, client_info: Any) -> None:
        self.client = client_info


class Browser:
    """A simulated person who types a name at the provider and consents."""

    def __init__(self, person: str) -> None:
        self.person = person
        self.asked: list[str] = []
        self._back = httpx2.URL(REDIRECT)

    async def open(self, address: str) -> None:
        self.asked.append(httpx2.URL(address).params["scope"])
        async with httpx2.AsyncClient(timeout=60) as client:
            client.cookies.jar.set_policy(LOOPBACK)
            answer = await client.get(address)
            while True:
                if answer.is_redirect:
                    self._back = answer.url.join(answer.headers["Location"])
                    if str(self._back).startswith(REDIRECT):
                        return
                    answer = await client.get(self._back)
                    continue
                prompt = re.search(r'name="prompt" value="(\w+)"', answer.text)
                action = re.search(r'action="([^"]+)"', answer.text)
                assert action, answer.text[:2000]
                form = {"login": self.person, "username": self.person, "password": "any"}
                form |= {"prompt": prompt[1]} if prompt else {}
                answer = await client.post(answer.url.join(unescape(action[1])), data=form)

    async def come_back(self) -> AuthorizationCodeResult:
        given = self._back.params
        return AuthorizationCodeResult(code=given["code"], state=given.get("state"), iss=given.get("iss"))


def say(**told: object) -> None:
    sys.stdout.write(json.dumps(told) + "\n")
    sys.stdout.flush()


async def ask(client: Client) -> object:
    answer = await client.call_tool("get_cost_data", {"group_by": ["team"]})
    assert not answer.is_error, answer
    return sorted(row["group"]["team"] for row in answer.structured_content["rows"])


async def main(person: str, mode: str, client_id: str = "") -> None:
    kept, browser = Kept(), Browser(person)
    has_document = client_id.startswith("https:")
    if client_id and not has_document:
        kept.client = OAuthClientInformationFull(
            client_id=client_id, redirect_uris=[REDIRECT], token_endpoint_auth_method="none"
        )
    url = os.environ["MCP_URL"]
    signs_in = OAuthClientProvider(
        url,
        OAuthClientMetadata(redirect_uris=[REDIRECT], client_name="test", token_endpoint_auth_method="none"),
        kept,
        browser.open,
        browser.come_back,
        client_metadata_url=client_id if has_document else None,
    )
    http = httpx2.AsyncClient(auth=signs_in, follow_redirects=True, timeout=60)
    async with Client(streamable_http_client(url, http_client=http), mode=mode) as client:
        say(teams=await ask(client), asked=browser.asked, token=kept.tokens.access_token)
        if client_id:
            written = await client.call_tool("log_insight", {"title": f"Seen by {person}"})
            say(written=not written.is_error, asked=browser.asked)
        while line := await asyncio.to_thread(sys.stdin.readline):
            if line.strip() == "over":
                signs_in.context.token_expiry_time = 1.0
            try:
                say(teams=await ask(client), asked=browser.asked, token=kept.tokens.access_token)
            except Exception as error:
                say(refused=type(error).__name__, words=str(error)[:500])


asyncio.run(main(*sys.argv[1:]))
