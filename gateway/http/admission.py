"""Admission of requests: checks of headers, the key and its scope, and the charge to the key's limits."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable
from dataclasses import replace
from ipaddress import ip_address
from urllib.parse import urlsplit

from aiohttp import web
from yarl import URL

from gateway.configuration.values import is_loopback
from gateway.core.errors import Refusal
from gateway.http.address import ApiAddress
from gateway.http.handler_services import AdmissionServices
from gateway.people.authentication.bearer import KEPT_UNDER, AuthenticatedKey
from spool.devices.device import is_device_id

DEVICE_ID = "X-Device-Id"
NOBODY = AuthenticatedKey("", frozenset())  # bearer of a request that needs no key


async def admit_request(
    address: ApiAddress, request: web.Request, services: AdmissionServices
) -> AuthenticatedKey:
    """
    Return the key holder of a request, after charging the request to the key's limits.

    Raises Refusal 401, 403 or 429, or 503 if the key cannot be checked now.
    """
    if address.scope is None:
        return NOBODY
    access = services.access
    key = find_credential(address, request, services)
    bearer = await access.admit_with_current_keys(key, address.scope, address=request.remote or "")
    if bearer is access.local:
        _refuse_browsers(request)
        ends = map(request.get_extra_info, ("peername", "sockname"))
        bearer = access.with_user_of_connection(bearer, *ends)
    access.charge_request(bearer, requests=1, bytes=0)
    if address.sole_scope and bearer.scopes != {address.scope}:
        rule = f"A key in a URL must have only the scope {address.scope}"
        raise Refusal(403, "key_too_wide", f"{rule}, because proxies log URLs.")
    device = request.headers.get(DEVICE_ID)
    return with_device_name(bearer, device) if device else bearer


def find_credential(address: ApiAddress, request: web.Request, services: AdmissionServices) -> str | None:
    """Return the key in a request. Raises Refusal 400 for two keys."""
    key = None
    if services.access.key_headers and address.scope in KEPT_UNDER:
        key = find_key_header(request.headers.items(), services.access.key_headers)
    return address.key.find(request) if key is None else key


def find_key_header(headers: Iterable[tuple[str, object]], names: Collection[str]) -> str | None:
    """
    Return the key in the header fields of `names`, or None. Raises Refusal 400 if two of the fields have a
    key.
    """
    found = [value for name, value in headers if name.lower() in names]
    if len(found) > 1:
        raise Refusal(400, "repeated_header", "Send the key in one header, and send that header once.")
    return str(found[0]) if found else None


def recheck_key(address: ApiAddress, request: web.Request, services: AdmissionServices) -> None:
    """Reject a key that ended or changed while the body arrived. Raises Refusal 401 or 403."""
    if address.scope is not None:
        key = find_credential(address, request, services)
        services.access.admit(key, address.scope, address=request.remote or "")


def with_device_name(bearer: AuthenticatedKey, device: str | None) -> AuthenticatedKey:
    """Return the bearer of a request that names a device. A malformed device id is ignored."""
    return replace(bearer, named=device) if device and is_device_id(device) else bearer


def _refuse_browsers(request: web.Request) -> None:
    """
    Raise Refusal 403 for a web page. Without keys, any page could send records as the person who opens it.
    """
    host = URL.build(scheme="http", authority=request.host).host
    if "Origin" in request.headers or host is None or not is_loopback(host):
        message = "Without a key, only programs on this machine may send, to a loopback address."
        raise Refusal(403, "not_local", message)


# Every header that this server reads, except lists such as X-Forwarded-For.
SINGLE = frozenset(
    {
        "authorization",
        "x-api-key",
        "x-amz-firehose-access-key",
        "x-amz-firehose-request-id",
        "helicone-signature",
        "x-csrf-token",
        "x-tollhouse-as",
        "x-device-id",
        "idempotency-key",
        "host",
        "origin",
        "sec-fetch-site",
        "content-length",
        "content-type",
        "content-encoding",
        "transfer-encoding",
        "mcp-protocol-version",
        "mcp-method",
        "mcp-name",
        "mcp-session-id",
    }
)


def check_single_headers(headers: Iterable[tuple[str, object]]) -> None:
    """
    Raise Refusal 400 if a header appears twice. Letter case does not matter, and equal values count as well.
    """
    lower = [name.lower() for name, _ in headers]
    if len(set(lower)) == len(lower):
        return
    repeated = [name for name, count in Counter(lower).items() if count > 1 and name in SINGLE]
    if repeated:
        raise Refusal(400, "repeated_header", f"Send the header {repeated[0]} once.")


def hostname_without_port(host: str) -> str:
    try:
        return urlsplit(f"//{host}").hostname or ""
    except ValueError:
        return ""


def is_own_name(name: str, hosts: Collection[str]) -> bool:
    """Return whether a host name is safe from DNS rebinding: an IP address, localhost or one of `hosts`."""
    if name == "localhost" or name in hosts:
        return True
    try:
        ip_address(name)
    except ValueError:
        return False
    return True
