"""Client addresses in the headers of trusted proxies."""

from __future__ import annotations

import pytest

from gateway.http.listening.forwarded import Origin, TrustedProxies

PROXIES = TrustedProxies(["10.0.0.0/28", "2001:db8::1"])


@pytest.mark.parametrize(
    ("peer", "forwarded_for", "proto", "expected"),
    [
        ("192.0.2.1", "198.51.100.1", "https", None),
        ("10.0.0.16", "198.51.100.1", "https", None),
        ("10.0.0.5", "198.51.100.1", "https", Origin("198.51.100.1", "https")),
        ("::ffff:10.0.0.5", "198.51.100.1", "", Origin("198.51.100.1", None)),
        ("2001:db8::1", "2001:db8::99", "HTTPS", Origin("2001:db8::99", "https")),
        ("10.0.0.5", "6.6.6.6, 198.51.100.1", "", Origin("198.51.100.1", None)),
        ("10.0.0.5", "6.6.6.6, 198.51.100.1, 10.0.0.6", "https, http", Origin("198.51.100.1", "https")),
        ("10.0.0.5", "198.51.100.1, 10.0.0.6", "http", Origin("198.51.100.1", "http")),
        ("10.0.0.5", "198.51.100.1:4711", "", Origin("198.51.100.1", None)),
        ("10.0.0.5", "[2001:db8::99]:4711", "", Origin("2001:db8::99", None)),
        ("10.0.0.5", "unknown", "https", Origin(None, "https")),
        ("10.0.0.5", "", "", Origin(None, None)),
        ("10.0.0.5", "unknown, 10.0.0.6", "gopher", Origin("10.0.0.6", None)),
        ("", "198.51.100.1", "https", None),
        (None, "198.51.100.1", "https", None),
    ],
)
def test_a_named_proxy_is_believed(
    peer: str, forwarded_for: str, proto: str, expected: Origin | None
) -> None:
    """
    The origin is the first address from the right that is not a trusted proxy. The protocol is the one that
    the same proxy reported.
    """
    assert expected == PROXIES.origin(peer, forwarded_for, proto)


def test_without_names_nobody_is() -> None:
    assert TrustedProxies().origin("10.0.0.5", "198.51.100.1", "https") is None
