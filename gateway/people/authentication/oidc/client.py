"""
Requests to an OpenID provider: bounded in time and size, without redirects. The only place with its HTTP client.
"""

from __future__ import annotations

import ssl
from collections.abc import Mapping
from typing import Any

import aiohttp
import msgspec

from gateway.people.authentication.oidc.problems import ProviderDown
from gateway.service.configuration.sections import OidcSettings

MAX_ANSWER_BYTES = 256 * 1024


class ProviderClient:
    """Connections are opened with the first request and kept until `close`."""

    def __init__(self, settings: OidcSettings) -> None:
        self._settings = settings
        self._session: aiohttp.ClientSession | None = None
        self._context: ssl.SSLContext | None = None

    async def get(self, url: str) -> dict[str, Any]:
        """The JSON object at an address."""
        status, found = await self._request("GET", url, None, {})
        if status != 200:
            raise ProviderDown(f"{url} answers {status}")
        return found

    async def post(
        self, url: str, form: Mapping[str, str], headers: Mapping[str, str]
    ) -> tuple[int, dict[str, Any]]:
        """Status and JSON object of the answer to a form."""
        return await self._request("POST", url, form, headers)

    async def close(self) -> None:
        if self._session is not None:
            await self._session.close()
            self._session = None
        self._context = None

    async def _request(
        self, method: str, url: str, form: Mapping[str, str] | None, headers: Mapping[str, str]
    ) -> tuple[int, dict[str, Any]]:
        try:
            async with self._open_session().request(
                method,
                url,
                data=form,
                headers={"Accept": "application/json", **headers},
                allow_redirects=False,
                proxy=self._settings.proxy or None,
                ssl=self._tls_of(url),
            ) as response:
                return response.status, _decoded(url, response.status, await _bounded(url, response))
        except TimeoutError:
            raise ProviderDown(f"{url} did not answer within {self._settings.timeout:g} s") from None
        except (aiohttp.ClientError, OSError, ValueError) as error:
            raise ProviderDown(f"{url} cannot be reached ({type(error).__name__})") from error

    def _open_session(self) -> aiohttp.ClientSession:
        if self._session is None:
            self._session = aiohttp.ClientSession(
                connector=aiohttp.TCPConnector(limit=8),
                timeout=aiohttp.ClientTimeout(total=self._settings.timeout),
                cookie_jar=aiohttp.DummyCookieJar(),
            )
        return self._session

    def _tls_of(self, url: str) -> ssl.SSLContext | bool:
        """Return what an address is checked by: certificates, which take 25 ms to read, are read where there is TLS."""
        if url.startswith("http://") and not self._settings.proxy:
            return True
        if self._context is None:
            self._context = ssl.create_default_context(cafile=self._settings.ca_file)
        return self._context


async def _bounded(url: str, response: aiohttp.ClientResponse) -> bytes:
    found = bytearray()
    async for piece in response.content.iter_any():
        found += piece
        if len(found) > MAX_ANSWER_BYTES:
            raise ProviderDown(f"{url} answers more than {MAX_ANSWER_BYTES // 1024} KiB")
    return bytes(found)


def _decoded(url: str, status: int, body: bytes) -> dict[str, Any]:
    try:
        found = msgspec.json.decode(body)
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError):
        found = None
    if not isinstance(found, dict):
        raise ProviderDown(f"{url} answers {status} without a JSON object")
    return found
