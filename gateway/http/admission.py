"""
Admission by key: the bearer of a request, charged for it, with the device that the request names; and what is looked at
before: headers that a request states once, and the names of this server in Host and Origin.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable
from dataclasses import replace
from ipaddress import ip_address
from urllib.parse import urlsplit

from aiohttp import web
from yarl import URL

from gateway.http.address import Address
from gateway.http.holders.receivers import ReceiverServices
from gateway.people.authentication.access import Bearer
from gateway.service.configuration.values import is_loopback
from gateway.service.errors import Refusal
from spool.devices.device import is_device_id

DEVICE_ID = "X-Device-Id"
NOBODY = Bearer("", frozenset())  # the bearer where no key is required


async def admit(address: Address, request: web.Request, services: ReceiverServices) -> Bearer:
    """The bearer of the request's key, charged for one request. Refusal 401, 403, 429, or 503 if it is not known."""
    if address.scope is None:
        return NOBODY
    access = services.access
    bearer = await access.admit_of_now(address.key.find(request), address.scope, address=request.remote or "")
    if bearer is access.local:
        _refuse_browsers(request)
    access.charge(bearer, requests=1, bytes=0)
    if address.sole_scope and bearer.scopes != {address.scope}:
        rule = f"A key in an address must have the scope {address.scope} alone"
        raise Refusal(403, "key_too_wide", f"{rule}, because addresses are logged on the way.")
    device = request.headers.get(DEVICE_ID)
    return name_device(bearer, device) if device else bearer


def check_still_open(address: Address, request: web.Request, services: ReceiverServices) -> None:
    """Refusal 401 or 403 if the key was disabled, deleted or given other scopes while its body was on the way."""
    if address.scope is not None:
        services.access.admit(address.key.find(request), address.scope, address=request.remote or "")


def name_device(bearer: Bearer, device: str | None) -> Bearer:
    """The bearer with the device that the request says it comes from; a malformed id is ignored."""
    return replace(bearer, named=device) if device and is_device_id(device) else bearer


def _refuse_browsers(request: web.Request) -> None:
    """Refusal 403 for a page in somebody's browser: where no key is asked for it would send in the user's name."""
    host = URL.build(scheme="http", authority=request.host).host
    if "Origin" in request.headers or host is None or not is_loopback(host):
        message = "Only programs of this machine may send here, under a loopback address."
        raise Refusal(403, "not_local", message)


# Every header that is read here, but for those that are lists by their definition, such as X-Forwarded-For.
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


def check_single(headers: Iterable[tuple[str, object]]) -> None:
    """Refusal 400 if a request states one of these headers twice, in whatever case, even with equal values."""
    lower = [name.lower() for name, _ in headers]
    if len(set(lower)) == len(lower):
        return
    repeated = [name for name, count in Counter(lower).items() if count > 1 and name in SINGLE]
    if repeated:
        raise Refusal(400, "repeated_header", f"Send the header {repeated[0]} once.")


def host_name(host: str) -> str:
    """The name in a Host header, without its port; empty if malformed."""
    try:
        return urlsplit(f"//{host}").hostname or ""
    except ValueError:
        return ""


def authority(origin: str) -> str | None:
    """The host and port of an origin; None when it is not an address at all."""
    try:
        return urlsplit(origin).netloc.lower()
    except ValueError:
        return None


def is_own_name(name: str, hosts: Collection[str]) -> bool:
    """True for a name that no stranger can point at this machine: only names can be rebound, addresses cannot."""
    if name == "localhost" or name in hosts:
        return True
    try:
        ip_address(name)
    except ValueError:
        return False
    return True
