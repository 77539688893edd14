"""Admission by key: the bearer of a request, charged for it, with the device that the request names."""

from __future__ import annotations

from dataclasses import replace

from aiohttp import web
from yarl import URL

from gateway.http.address import Address
from gateway.http.holders.receivers import ReceiverServices
from gateway.people.authentication.access import Bearer
from gateway.service.configuration.addresses import is_loopback
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
