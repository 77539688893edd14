"""The settings of the server and of its answers."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from gateway.configuration.values import is_loopback, parse_network, split_address
from spool.settings import KIB, MIB, Duration, Size, setting

LISTENING = ("server.listen", "server.grpc_listen", "server.operator_listen", "server.metrics_listen")
LONGEST_HEADER = 128  # limit in characters for the name of a header with a key
_HEADER = re.compile(rf"[A-Za-z0-9!#$%&'*+.^_`|~-]{{1,{LONGEST_HEADER}}}")
# Headers that proxies, HTTP or Tollhouse read for another purpose.
_TAKEN_HEADERS = frozenset({
    "accept", "authorization", "connection", "cookie", "date", "expect", "forwarded", "helicone-signature", "host",
    "idempotency-key", "keep-alive", "origin", "referer", "te", "trailer", "transfer-encoding",
    "upgrade", "user-agent", "via", "x-amz-firehose-request-id", "x-csrf-token", "x-device-id", "x-real-ip",
    "x-tollhouse-as",
})  # fmt: skip
_TAKEN_BEGINNINGS = (
    "accept-",
    "access-control-",
    "content-",
    "grpc-",
    "mcp-",
    "proxy-",
    "sec-",
    "x-forwarded-",
)


@dataclass(frozen=True, kw_only=True)
class ServerSettings:
    """Listening addresses, access, and [limits](operations/limits.md) on what one sender may use."""

    listen: str = setting(
        "127.0.0.1:4318", "address for HTTP; port 0 lets the system choose a port, which is then printed"
    )
    grpc_listen: str = setting("127.0.0.1:4317", "address for OTLP over gRPC; leave empty to switch gRPC off")
    reuse_port: bool = setting(
        False,
        "whether another process of this user may also listen on `grpc_listen`, which `tollhouse "
        "serve --take-over` needs",
    )
    operator_listen: str = setting(
        "",
        "address for `/metrics` and the operator API; if empty, `listen` if that is loopback, else 127.0.0.1:4319",
    )
    metrics_listen: str = setting(
        "",
        "additional address that serves only `/metrics` and health, for a Prometheus on another "
        "machine; if empty, there is none",
    )
    metrics_names: int = setting(
        0,
        "number of providers, of models and of teams with their own series of cost and tokens on `/metrics`; 0 means "
        "no such series; see [cost and tokens](operations/monitoring.md#cost-and-tokens); needs a restart",
        edge="all others together are `(other)`",
        least=0,
    )
    operator_plaintext: bool = setting(
        False,
        "whether a public `operator_listen` may use no TLS, because a proxy encrypts; browsers then "
        "still get `Secure` cookies",
    )
    trusted_proxies: tuple[str, ...] = setting(
        (),
        "addresses and networks of the proxies in front, such as `10.0.0.5` or `10.0.0.0/28`; only "
        "their `X-Forwarded-For` and `X-Forwarded-Proto` headers are trusted",
    )
    accept_bearer: bool = setting(False, "whether keys may also be sent as `Bearer KEY`")
    key_headers: tuple[str, ...] = setting(
        (),
        "further headers in which senders of telemetry may send their key, such as `X-Tollhouse-Key`; they take "
        "precedence over `Authorization`, and a request with two of them gets 400",
    )
    key_addresses: Mapping[str, tuple[str, ...]] = setting(
        {},
        "name of a key = addresses and networks from which it may be used, such as `198.51.100.0/24`; `*` matches any "
        "part of a name, and an entry with the exact name takes precedence. A request from another address gets 403. "
        "Keys without an entry may be used from everywhere. A device's own key is named `device ID`",
    )
    api_key_file: Path | None = setting(None, "file with a key for AI telemetry that the deployment provides")
    max_body_bytes: Size = setting(
        64 * MIB,
        "maximum size of a request body after decompression",
        edge="413 for a larger body",
        least=64 * KIB,
    )
    max_inflight_bytes: Size = setting(
        64 * MIB,
        "memory for requests that are being read; not less than `max_body_bytes`",
        edge=(
            "503 with `Retry-After`; keys share the memory, see "
            "[limits](clusters/sharing.md#how-the-bytes-in-flight-are-shared)"
        ),
    )
    small_body_bytes: Size = setting(
        MIB,
        "maximum size of a small request body",
        edge="a larger body must arrive at `min_upload_rate` and cannot use the reserve",
    )
    small_body_reserve: Size = setting(
        8 * MIB,
        "memory reserved for small bodies; at least twice `small_body_bytes`",
        edge="503 with `Retry-After`; a key gets at most half of what other keys leave free",
    )
    min_upload_rate: Size = setting(
        16 * KIB,
        "minimum bytes per second of a body over `small_body_bytes`, averaged over ten seconds; 0 means no minimum",
        edge="503 with `Retry-After` for a slower body",
    )
    max_connections: int = setting(
        10_000,
        "maximum number of open sender connections",
        edge=(
            "a new connection closes the longest idle one of the key or address with the most "
            "connections; 503 if none is idle"
        ),
        least=2,
    )
    max_items: int = setting(
        250_000,
        "maximum number of items in a body (spans, points, log records, lines, events, and the resources around them)",
        edge="413",
        least=1000,
    )
    max_grpc_messages: int = setting(
        4,
        "maximum number of gRPC messages received at once; a key gets at most half of what other keys leave free",
        edge="further messages wait 10 s, then get 503 with `Retry-After`",
        least=2,
    )
    native: bool = setting(
        True,
        "whether to use the compiled module `tollhouse-native` if it is installed; see [what it "
        "gives](develop/compiled-module.md#install-it); needs a restart",
    )
    max_event_streams: int = setting(
        50,
        "maximum number of open console pages and other readers of event streams",
        edge=(
            "a new stream ends the oldest one of the person with the most streams; 503 with "
            "`Retry-After` if nobody has two"
        ),
        least=1,
    )
    max_person_event_streams: int = setting(
        8, "maximum number of these per person", edge="a new stream ends the person's oldest one", least=1
    )
    max_operator_connections: int = setting(
        500,
        "maximum number of open connections to `metrics_listen`, and to `operator_listen` if it differs from `listen`",
        edge=(
            "a new connection closes the longest idle one of the address with the most connections; 503 "
            "if none is idle"
        ),
        least=2,
    )
    max_listed_records: int = setting(
        100_000,
        "maximum number of records that the console and the operator API search for a list of some days or months",
        edge="the list says where the search ended (`looked_through`); choose fewer days",
        least=1,
    )
    chain_keys: tuple[str, ...] = setting(
        (),
        "names of keys whose senders may be other gateways, so that their records are stored as "
        'sent; `*` matches any ending. Keys listed by a name other than "*" may also revoke and '
        "reset devices. A device's own key is named `device ID`. `tollhouse agent` needs no entry: "
        "its records are reports of its device, and the gateway prices them",
    )
    figure_keys: tuple[str, ...] = setting(
        (),
        "names of keys that may read figures although `privacy.min_group` is set, such as keys of enforcers; "
        "`*` matches any ending",
    )
    max_key_requests_per_s: int = setting(
        0, "maximum requests per second with one key; 0 means no limit", edge="429 with `Retry-After`"
    )
    max_key_bytes_per_s: Size = setting(
        0,
        "maximum bytes per second of bodies sent with one key, including refused bodies; 0 means no limit",
        edge="429 with `Retry-After`, before the next body is read",
    )
    cors_origins: tuple[str, ...] = setting((), "web origins whose pages may send telemetry from a browser")
    tls_cert_file: Path | None = setting(
        None, "file with the TLS certificate and its chain; set it with `tls_key_file` to switch TLS on"
    )
    tls_key_file: Path | None = setting(None, "file with the private key of the TLS certificate")
    tls_client_ca_file: Path | None = setting(
        None,
        "file with the certificate authorities that must have signed the certificates of senders; if empty, senders "
        "need none",
    )

    def problems(self, _: str) -> Iterator[str]:
        for name in LISTENING:
            address = getattr(self, name.partition(".")[2])
            if (address or name == "server.listen") and not _is_host_and_port(address):
                yield f'{name} must be HOST:PORT, such as "127.0.0.1:4318"'
        if _is_public_address(self.operator_listen) and not (self.tls_cert_file or self.operator_plaintext):
            yield (
                "server.operator_listen is public, so passwords, sessions and /metrics would be sent unencrypted; set "
                "server.tls_cert_file and server.tls_key_file, or server.operator_plaintext = true if a proxy encrypts"
            )
        for index, name in enumerate(self.trusted_proxies):
            if not _is_network(name):
                yield (
                    f"server.trusted_proxies[{index}] must be an address or a network, such as "
                    '"10.0.0.5" or "10.0.0.0/28", and must not match every address'
                )
        for index, name in enumerate(self.key_headers):
            if not _may_hold_key(name):
                yield (
                    f"server.key_headers[{index}] must be a header name of at most {LONGEST_HEADER} characters that "
                    'has no other meaning, such as "X-Tollhouse-Key"'
                )
        for key, networks in self.key_addresses.items():
            if not networks or not all(map(_is_network, networks)):
                yield (
                    f"server.key_addresses.{key} must list addresses or networks, such as "
                    '"198.51.100.7" or "198.51.100.0/24", and must not match every address'
                )
        if bool(self.tls_cert_file) != bool(self.tls_key_file):
            yield "set server.tls_cert_file and server.tls_key_file together"
        if self.tls_client_ca_file and not self.tls_cert_file:
            yield "server.tls_client_ca_file needs server.tls_cert_file and server.tls_key_file"
        if self.max_inflight_bytes < self.max_body_bytes:
            yield "server.max_inflight_bytes must not be less than server.max_body_bytes"
        if self.small_body_reserve < 2 * self.small_body_bytes:
            yield "server.small_body_reserve must be at least twice server.small_body_bytes"


@dataclass(frozen=True, kw_only=True)
class AnswerSettings:
    """Limits on queries about costs, and on how many run at once: [limits](operations/limits.md#answers)."""

    max_rows: int = setting(
        10_000,
        "maximum number of rows in a JSON response that is not paged, and of elements when definitions are compared",
        edge=(
            "the largest rows are returned, and one row adds up the rest, so totals stay exact; the "
            "response says `truncated`"
        ),
        least=100,
    )
    max_summed_rows: int = setting(
        50_000,
        "maximum number of rows that a query computes: periods times combinations of the group-by values",
        edge="422 with a suggestion for a smaller query",
        least=1000,
    )
    max_time: Duration = setting(
        60.0,
        "maximum time of a query, and maximum time that it waits for its turn",
        edge="422 with a suggestion for a smaller query; 429 with `Retry-After` for a query that waited",
        least=1,
    )
    at_once: int = setting(
        2,
        "number of queries that run at once, of which a person or key can have only one",
        edge="further queries wait",
        least=1,
    )
    max_waiting: int = setting(
        16,
        "maximum number of waiting queries of one person or key",
        edge="429 with `Retry-After` for a further query",
        least=1,
    )


def _is_public_address(address: str) -> bool:
    return _is_host_and_port(address) and not is_loopback(split_address(address)[0])


def _is_network(text: str) -> bool:
    try:
        return parse_network(text).prefixlen > 0
    except ValueError:
        return False


def _may_hold_key(header: str) -> bool:
    """
    Return whether a header may hold a key. Headers that a client, proxy or Tollhouse reads or changes may
    not.
    """
    name = header.lower()
    return (
        _HEADER.fullmatch(header) is not None
        and name not in _TAKEN_HEADERS
        and not name.replace("_", "-").startswith(_TAKEN_BEGINNINGS)
    )


def _is_host_and_port(text: str) -> bool:
    host, _, port = text.rpartition(":")
    return bool(host) and port.isdecimal() and int(port) < 65536
