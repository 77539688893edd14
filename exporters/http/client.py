"""
The HTTP client of every destination, and the only user of its library. It follows no redirect, because the
new address would get the key.
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Final, Self
from urllib.parse import urlsplit

import aiohttp
from isal import igzip

from exporters.errors import Misconfigured, Retryable, SendError
from exporters.http.allowed_addresses import Check, checking_socket_factory
from exporters.http.answers import HttpAnswer, delivery_error
from exporters.redaction import redact_secrets
from spool.clock import Clock

PROTOBUF = "application/x-protobuf"
REFUSED, NO_ANSWER, DNS, TLS = "refused", "no_answer", "dns", "tls"  # codes of `reach_problem`
MAX_ANSWER_BYTES = 64 * 1024
# maximum bytes of a response with reasons for rejected items
MAX_ITEMS_ANSWER_BYTES: Final = 1024**2
REFUSAL_S: Final = 5.0  # seconds in which a server may reject a client certificate
# a replay of container metrics names many addresses in one header
MAX_FIELD_BYTES = 256 * 1024
MIN_COMPRESSED_BYTES = 1024  # smaller bodies are not compressed
# level that takes a ninth of the time of level 6, for bodies a few per cent larger
_COMPRESSION_LEVEL = 1


@dataclass(frozen=True, kw_only=True)
class ClientSettings:
    proxy: str = field(default="", repr=False)  # proxy address, which may contain credentials
    ca_file: Path | None = None
    cert_file: Path | None = None  # certificate with its chain; needs `key_file`
    key_file: Path | None = None
    timeout_s: float = 30.0
    compression: str = "gzip"  # or "none"
    idempotency_header: str = "Idempotency-Key"
    user_agent: str = "tollhouse"
    # function that checks an address before each connection, but not with a proxy
    check: Check | None = field(default=None, repr=False)
    # the receiver may accept a request, answer 5xx, and not remember errors by idempotency key
    may_take_and_fail: bool = False


class HttpClient:
    """An HTTP client with its connections. It connects at the first request."""

    def __init__(self, settings: ClientSettings, *, clock: Clock) -> None:
        self._settings = settings
        self._clock = clock
        self._session: aiohttp.ClientSession | None = None
        self._context: ssl.SSLContext | None = None

    async def send(
        self,
        url: str,
        body: bytes,
        *,
        content_type: str,
        method: str = "POST",
        authorization: str | None = None,
        idempotency_key: str | None = None,
        headers: Mapping[str, str] | None = None,
        max_answer_bytes: int = MAX_ANSWER_BYTES,
        secrets: Iterable[str] | None = None,
        is_compressed: bool = False,
    ) -> HttpAnswer:
        """
        Send a request. Return a 2xx response, or raise an error of exporters.errors.

        `is_compressed`: the body is already gzip. No error contains one of the `secrets`, by default
        `authorization` and the values of `headers`.
        """
        settings = self._settings
        sent_headers = {"Content-Type": content_type, **(headers or {})}
        if authorization is not None:
            sent_headers["Authorization"] = authorization  # the value is sent without a scheme
        if idempotency_key is not None:
            sent_headers[settings.idempotency_header] = idempotency_key
        if is_compressed:
            sent_headers["Content-Encoding"] = "gzip"
        elif (
            settings.compression == "gzip"
            and len(body) >= MIN_COMPRESSED_BYTES
            and "Content-Encoding" not in sent_headers
        ):
            sent_headers["Content-Encoding"] = "gzip"
            body = _gzip_body(body)
        if secrets is None:
            secrets = (authorization or "", *(headers or {}).values())
        return await self._request_and_check(
            method, url, body, sent_headers, [secret for secret in secrets if secret], max_answer_bytes
        )

    async def put_file(self, url: str, pieces: AsyncIterator[bytes], *, size: int) -> None:
        """
        Send a file while it is read. No key is sent, because the address itself is secret. Raises as `send`
        does.
        """
        await self._request_and_check(
            "PUT", url, pieces, {"Content-Length": str(size)}, [url], MAX_ANSWER_BYTES
        )

    async def close(self) -> None:
        if self._session is not None:
            await self._session.close()
            self._session = None
        self._context = None

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def _request_and_check(
        self,
        method: str,
        url: str,
        data: bytes | AsyncIterator[bytes],
        headers: Mapping[str, str],
        secrets: list[str],
        max_answer_bytes: int,
    ) -> HttpAnswer:
        answer = await self._send_request(method, url, data, headers, secrets, max_answer_bytes)
        may_be_taken = self._settings.may_take_and_fail
        error = delivery_error(answer, now=self._clock.now(), may_be_accepted=may_be_taken)
        if error is not None:
            raise error
        return answer

    async def _send_request(
        self,
        method: str,
        url: str,
        data: bytes | AsyncIterator[bytes],
        headers: Mapping[str, str],
        secrets: list[str],
        max_answer_bytes: int,
    ) -> HttpAnswer:
        try:
            async with self._open_session().request(
                method,
                url,
                data=data,
                headers=headers,
                allow_redirects=False,
                proxy=self._settings.proxy or None,
                ssl=self._tls_context_for(url),
            ) as response:
                names = {name.lower(): value for name, value in response.headers.items()}
                return HttpAnswer(
                    status=response.status,
                    headers=names,
                    body=await _read_beginning(response, max_answer_bytes),
                    secrets=tuple(secrets),
                )
        except aiohttp.InvalidURL as error:
            raise Misconfigured(
                f"{redact_secrets(url, secrets)} is not a valid address", answered=False
            ) from error
        except TimeoutError as error:
            message = f"no answer within {self._settings.timeout_s:g} s"
            raise Retryable(message, answered=False, ambiguous=True) from error
        except (aiohttp.ClientError, OSError) as error:
            # the error's text contains the URL, which may contain a secret
            reason = error.message if isinstance(error, aiohttp.ClientResponseError) else str(error)
            message = f"no answer: {redact_secrets(reason or type(error).__name__, secrets)}"
            arrived = not isinstance(error, aiohttp.ClientConnectorError)
            raise Retryable(message, answered=False, ambiguous=arrived) from error

    def _open_session(self) -> aiohttp.ClientSession:
        if self._session is None:
            settings = self._settings
            # nothing is decompressed, so that a few bytes cannot become gigabytes
            connector = None
            # one after another, so that a refused address ends the request
            if settings.check is not None:
                factory = checking_socket_factory(settings.check)
                connector = aiohttp.TCPConnector(socket_factory=factory, happy_eyeballs_delay=None)
            self._session = aiohttp.ClientSession(
                connector=connector,
                timeout=aiohttp.ClientTimeout(total=settings.timeout_s),
                headers={"User-Agent": settings.user_agent, "Accept-Encoding": "identity"},
                auto_decompress=False,
                max_field_size=MAX_FIELD_BYTES,
                cookie_jar=aiohttp.DummyCookieJar(),
            )
        return self._session

    def _tls_context_for(self, url: str) -> ssl.SSLContext | bool:
        """
        Return the TLS context for an address. Plain HTTP needs none, which saves 25 ms for loading the
        system's certificates.
        """
        settings = self._settings
        is_plain = url.startswith("http://") and not settings.proxy
        if is_plain and settings.ca_file is settings.cert_file is None:
            return True
        if self._context is None:
            self._context = _build_tls_context(settings)
        return self._context


async def _read_beginning(response: aiohttp.ClientResponse, max_bytes: int) -> bytes:
    """
    Read the beginning of a response. If an error response breaks off, its status suffices. A broken 2xx
    raises Retryable, because it may have named rejected records.
    """
    answer = bytearray()  # not bytes, which would be copied with every piece
    try:
        while len(answer) < max_bytes:
            chunk = await response.content.read(max_bytes - len(answer))
            if not chunk:
                return bytes(answer)
            answer += chunk
    except (aiohttp.ClientError, TimeoutError, OSError) as error:
        if 200 <= response.status < 300:
            message = f"{response.status}, but the response broke off"
            raise Retryable(message, status=response.status, answered=False, ambiguous=True) from error
        return b""
    response.close()  # close instead of reading the rest of the response
    return bytes(answer)


def is_refused_certificate(error: BaseException | None) -> bool:
    """Return whether this client refused the server's certificate, or a TLS alert refused the client's."""
    while error is not None:
        if isinstance(error, ssl.SSLCertVerificationError):
            return True
        if isinstance(error, ssl.SSLError) and "ALERT" in (error.reason or ""):
            return True
        error = error.__cause__
    return False


def reach_problem(error: SendError) -> str:
    """Return a code for the reason why a server did not accept a request, or "" if it is only busy."""
    if error.status is not None:
        return REFUSED if error.status < 500 and error.status not in (408, 429) else ""
    cause = error.__cause__
    if isinstance(cause, aiohttp.ClientConnectorDNSError):
        return DNS
    if isinstance(cause, aiohttp.ClientSSLError | ssl.SSLError) or is_refused_certificate(cause):
        return TLS
    return "" if cause is None else NO_ANSWER


async def check_certificate_accepted(url: str, settings: ClientSettings) -> None:
    """
    Raise Misconfigured if the server rejects the client certificate.

    The rejection may arrive after the handshake, so that the request itself only sees a closed connection.
    """
    parts = urlsplit(url)
    port = parts.port or 443
    writer: asyncio.StreamWriter | None = None
    try:
        async with asyncio.timeout(REFUSAL_S):
            reader, writer = await asyncio.open_connection(
                parts.hostname, port, ssl=_build_tls_context(settings)
            )
            await reader.read(1)
    except (OSError, TimeoutError) as error:
        if is_refused_certificate(error):
            raise Misconfigured(f"no answer: {error}", answered=False) from error
    finally:
        if writer is not None:
            writer.close()


def _build_tls_context(settings: ClientSettings) -> ssl.SSLContext:
    shown = f"ca_file {settings.ca_file}"
    try:
        context = ssl.create_default_context(cafile=settings.ca_file)
        if settings.cert_file is not None:
            shown = f"{settings.cert_file} and {settings.key_file}"
            # with an empty password, OpenSSL does not ask for one on the terminal
            context.load_cert_chain(settings.cert_file, settings.key_file, password="")
    except (OSError, ValueError) as error:  # includes ssl.SSLError, which is an OSError
        reason = (isinstance(error, OSError) and error.strerror) or error
        raise Misconfigured(f"{shown} cannot be used: {reason}", answered=False) from error
    return context


def _gzip_body(body: bytes) -> bytes:
    """Compress a body. The header of gzip contains no time, so a repeated request has equal bytes."""
    packed: bytes = igzip.compress(body, compresslevel=_COMPRESSION_LEVEL, mtime=0)
    return packed
