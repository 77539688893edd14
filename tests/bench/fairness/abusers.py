"""Floods by one key, or by one person in the console, each as fast as the server answers."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from tests.bench.load import payloads

JSON: Mapping[str, str] = {"Content-Type": "application/json"}
PROTOBUF: Mapping[str, str] = {"Content-Type": "application/x-protobuf"}
SPANS = 900
LARGE_SPANS = 7_400  # this number of spans is 9 MiB of JSON
RUN = payloads.RUN.decode()
DROP_ROWS = 200
OPERATOR = "/console/api"
DAYS = "2026-01-01"


@dataclass(frozen=True, kw_only=True)
class Abuser:
    """
    One flood over several connections. `as_person` authenticates with a console session instead of the key.
    """

    name: str
    clients: int = 8
    method: str = "POST"
    path: str = "/v1/traces"
    headers: Mapping[str, str] = field(default_factory=dict)
    make: Callable[[], bytes] = bytes
    compression: str = ""
    is_grpc: bool = False
    as_person: bool = False
    has_key: bool = True
    repeated: bytes = b""  # bytes that the abuser sends for ever after the first bytes of a connection
    is_raw: bool = False  # whether a connection of the abuser begins with the body instead of a request


def _question(
    name: str, path: str, *, clients: int = 8, as_person: bool = False, has_key: bool = True
) -> Abuser:
    return Abuser(name=name, method="GET", path=path, clients=clients, as_person=as_person, has_key=has_key)


def _message(method: str, **params: object) -> Callable[[], bytes]:
    return lambda: json.dumps({"jsonrpc": "2.0", "id": 1, "method": method, "params": params}).encode()


def _enrolment() -> bytes:
    return json.dumps({"device_id": f"made-up-{RUN}", "hostname": "laptop", "platform": "linux"}).encode()


def _unit_cost() -> bytes:
    records = [
        {"timestamp": "2026-11-20", "granularity": "DAILY", "element_name": f"{RUN}-{number}", "value": "1"}
        for number in range(100)
    ]
    return json.dumps({"records": records}).encode()


def _drop() -> bytes:
    row = {"time/usage_start": "2026-11-01T10:00:00Z", "cost/cost": "1.25", "resource/tag:team": "a"}
    rows = [{**row, "resource/id": f"{RUN}-{number}"} for number in range(DROP_ROWS)]
    return json.dumps({"month": "2026-11", "data": rows}).encode()


def _floods() -> list[Abuser]:
    found = []
    for clients in (1, 2, 8, 32):
        found += [
            Abuser(
                name=f"json-{clients}", clients=clients, headers=JSON, make=lambda: payloads.json_spans(SPANS)
            ),
            Abuser(
                name=f"protobuf-{clients}",
                clients=clients,
                headers=PROTOBUF,
                make=lambda: payloads.protobuf_spans(SPANS),
            ),
            Abuser(
                name=f"grpc-{clients}",
                clients=clients,
                is_grpc=True,
                make=lambda: payloads.protobuf_spans(SPANS),
            ),
            Abuser(
                name=f"litellm-{clients}",
                clients=clients,
                path="/v1/ai-telemetry/litellm",
                headers=JSON,
                make=lambda: payloads.litellm_events(SPANS // 10),
            ),
        ]
    return found


# the preface of HTTP/2 and a frame of empty settings
_HTTP2 = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + b"\0\0\0\4\0\0\0\0\0"


def _pieces(clients: int) -> list[Abuser]:
    return [
        Abuser(
            name=f"chunks-{clients}",
            clients=clients,
            headers={**JSON, "Transfer-Encoding": "chunked"},
            repeated=b"1\r\n{\r\n",
        ),
        Abuser(
            name=f"pipelined-{clients}",
            clients=clients,
            method="GET",
            path="/readyz",
            repeated=b"GET /readyz HTTP/1.1\r\nHost: localhost\r\n\r\n",
            has_key=False,
        ),
        Abuser(
            name=f"grpc-pings-{clients}",
            clients=clients,
            is_grpc=True,
            is_raw=True,
            make=lambda: _HTTP2,
            repeated=b"\0\0\x08\6\0\0\0\0\0" + bytes(8),
        ),
    ]


# Senders that give the server as many small pieces of work as their bytes allow.
ENDLESS: tuple[Abuser, ...] = tuple(each for clients in (1, 8) for each in _pieces(clients))

ABUSERS: tuple[Abuser, ...] = (
    *_floods(),
    *ENDLESS,
    Abuser(name="single-8", headers=PROTOBUF, make=lambda: payloads.protobuf_spans(1)),
    Abuser(name="single-32", clients=32, headers=PROTOBUF, make=lambda: payloads.protobuf_spans(1)),
    Abuser(name="single-64", clients=64, headers=PROTOBUF, make=lambda: payloads.protobuf_spans(1)),
    Abuser(name="odd-8", headers=JSON, make=lambda: payloads.odd_json_spans(SPANS)),
    Abuser(name="assistants-8", path="/v1/logs", headers=JSON, make=lambda: payloads.assistant_events(SPANS)),
    Abuser(
        name="gzip-4",
        clients=4,
        headers=JSON,
        make=lambda: payloads.json_spans(LARGE_SPANS),
        compression="gzip",
    ),
    Abuser(
        name="unknown-keys",
        clients=32,
        headers={**PROTOBUF, "Authorization": "th_unknown"},
        make=lambda: payloads.protobuf_spans(1),
        has_key=False,
    ),
    Abuser(
        name="heartbeats",
        clients=32,
        path="/v1/ai-control-plane/heartbeat",
        headers=JSON,
        make=lambda: payloads.heartbeat(1),
    ),
    Abuser(name="enrolments", clients=32, path="/v1/ai-control-plane/enroll", headers=JSON, make=_enrolment),
    Abuser(name="metrics", path="/v1/metrics", headers=JSON, make=lambda: payloads.counter_points(SPANS)),
    Abuser(name="events", path="/v1/events", headers=JSON, make=lambda: payloads.usage_events(SPANS)),
    Abuser(
        name="unit-cost", path="/unit-cost/v1/telemetry/allocation/bench/sum", headers=JSON, make=_unit_cost
    ),
    Abuser(
        name="drops",
        path="/v2/connections/billing/external/{connection}/billing_drops",
        headers=JSON,
        make=_drop,
    ),
    *(
        Abuser(
            name=f"mcp-{method.replace('/', '-')}", path="/mcp", headers=JSON, make=_message(method, **params)
        )
        for method, params in (
            ("tools/list", {}),
            ("resources/list", {}),
            ("prompts/list", {}),
            ("ping", {}),
            ("tools/call", {"name": "get_org_context", "arguments": {}}),
        )
    ),
    Abuser(
        name="mcp-cost-data",
        path="/mcp",
        headers=JSON,
        make=_message(
            "tools/call",
            name="get_cost_data",
            arguments={"group_by": ["user", "model"], "granularity": "daily"},
        ),
    ),
    _question("costs", f"/v2/billing/costs?start_date={DAYS}&granularity=daily&group_by=user&limit=1000"),
    _question("dimensions", "/v2/billing/dimensions"),
    _question("insights", "/v2/insights"),
    _question("definitions", "/v2/allocation/namespaces"),
    _question("views", "/v2/views"),
    _question("budgets", "/v2/budgets"),
    _question("prometheus", "/metrics", has_key=False),
    _question("readyz", "/readyz", has_key=False),
    _question(
        "report", f"{OPERATOR}/report?by=user,team,model,provider&per=hourly&range=last_7d", as_person=True
    ),
    _question("records", f"{OPERATOR}/records?limit=100", as_person=True),
    _question("comparison", f"{OPERATOR}/comparison?by=user&range=last_7d", as_person=True),
    Abuser(
        name="wrong-passwords",
        path=f"{OPERATOR}/sessions",
        headers=JSON,
        make=lambda: b'{"email":"nobody@example.com","password":"wrong wrong wrong"}',
        has_key=False,
    ),
)
BY_NAME = {each.name: each for each in ABUSERS}
# The default selection shows every mechanism once.
MAIN = (
    "json-1", "json-8", "json-32", "protobuf-8", "grpc-8", "litellm-8", "odd-8", "assistants-8", "gzip-4",
    "single-32", "single-64", "unknown-keys", "heartbeats",
    "metrics", "events", "mcp-tools-list", "mcp-cost-data", "costs", "prometheus", "report",
    *(each.name for each in ENDLESS),
)  # fmt: skip
