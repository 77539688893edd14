"""
The real address behind proxies. Only configured proxies are trusted.

A proxy appends its client to `X-Forwarded-For` and the protocol to `X-Forwarded-Proto`. So only the rightmost
entries are reliable, because the sender may forge all entries further left.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from aiohttp import web

from gateway.configuration.values import Networks, is_loopback, parse_ip

FORWARDED_FOR = "X-Forwarded-For"
FORWARDED_PROTO = "X-Forwarded-Proto"
# headers of proxies, which senders may forge
_TRACES = (FORWARDED_FOR, FORWARDED_PROTO, "X-Forwarded-Host", "X-Real-IP", "Forwarded", "Via")
_SCHEMES = ("http", "https")

# whether a named proxy reported the client
_IS_REPORTED = web.RequestKey("IS_TOLD", bool)


@dataclass(frozen=True)
class Origin:
    """The client's address and scheme as trusted proxies report them. An unreported value is None."""

    address: str | None
    scheme: str | None


class TrustedProxies:
    """The proxies that `server.trusted_proxies` names."""

    def __init__(self, names: Sequence[str] = ()) -> None:
        self._networks = Networks(names)

    def __bool__(self) -> bool:
        return bool(self._networks)

    def origin(self, peer: str | None, forwarded_for: str, forwarded_proto: str = "") -> Origin | None:
        """Return the sender's origin, or None if `peer` is not a trusted proxy."""
        if not self._networks or peer is None or peer not in self._networks:
            return None
        client, hops = None, 0
        for text in reversed(forwarded_for.split(",")):
            address = parse_ip(text)
            if address is None:
                break
            client, hops = str(address), hops + 1
            if client not in self._networks:
                break
        return Origin(client, _forwarded_scheme(forwarded_proto, max(hops, 1)))


def _forwarded_scheme(forwarded_proto: str, hops: int) -> str | None:
    """Return the scheme that the client used. Some proxies append to the list, others replace it."""
    schemes = [scheme.strip().lower() for scheme in forwarded_proto.split(",")]
    scheme = schemes[-hops] if len(schemes) >= hops else schemes[0]
    return scheme if scheme in _SCHEMES else None


def with_forwarded_origin(
    make: Callable[..., web.BaseRequest], proxies: TrustedProxies
) -> Callable[..., web.BaseRequest]:
    """
    Wrap the request factory `make`, so that requests have the address and scheme that a trusted proxy
    reports.
    """

    def make_request(*parts: Any) -> web.BaseRequest:
        request = make(*parts)
        origin = proxies.origin(
            request.remote, _joined_headers(request, FORWARDED_FOR), _joined_headers(request, FORWARDED_PROTO)
        )
        if origin is None:
            return request
        forwarded = request.clone(
            remote=origin.address or request.remote or "", scheme=origin.scheme or request.scheme
        )
        forwarded[_IS_REPORTED] = origin.address is not None
        return forwarded

    return make_request if proxies else make


def _joined_headers(request: web.BaseRequest, name: str) -> str:
    return ",".join(request.headers.getall(name, ()))


def may_be_shared_address(request: web.Request, *, is_behind_tls: bool) -> bool:
    """
    Return whether several senders may share the address: true for this machine, for an untrusted proxy, and
    for a proxy that reports no client. A sender that forges a proxy header counts as a proxy.
    `is_behind_tls`: senders use TLS, so a plaintext request comes through a proxy.
    """
    is_reported = request.get(_IS_REPORTED)
    if is_reported is not None:
        return not is_reported
    if is_behind_tls and not request.secure:
        return True
    return is_loopback(request.remote or "") or any(name in request.headers for name in _TRACES)
