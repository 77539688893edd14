"""Run the workload on an installation, with or without a cut, and collect everything visible afterwards."""

from __future__ import annotations

import base64
import json
import re
import shutil
import signal
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from decimal import Decimal
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any

import urllib3

from gateway.core.paths import AS, OPERATOR_API, socket_path
from gateway.service.addresses.areas import OPERATOR_AREAS, operator_addresses
from gateway.service.addresses.table import FOR_SENDERS
from spool.registry import scopes
from tests.acceptance.captured_upstream import rows_of
from tests.acceptance.conftest import Tollhouse, UnixConnection
from tests.acceptance.restarts.workload import KEYS, MCP_CALLS_A_DAY, Halves, Sent, assistants, unpacked
from tests.clients.loopback import Loopback, body_of
from tests.waiting import wait_until

MOMENT = "a moment of the run"
TIME = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(?:\.\d+)?Z|\b\d{10}\.\d+")
URL = re.compile(r"http://127\.0\.0\.1:\d+")
INSIGHT = re.compile(r"\binsight[ -][0-9a-f]{32}(-\d+)?")
# addresses and fields that differ even between two runs without a cut, or that describe the process
NOT_COMPARED = {
    "/changes": "a stream of events, which does not end",
    "/tail": "a stream of events, which does not end",
    "/rates": "what the process saw in the last minutes",
    "/served": "what the process answered",
    "/configuration": "has the directory of the run",
    "/records": "a page of the newest, in the order of their numbers; all records are compared",
    "nodes": "the processes that were there",
    "to": "the end of the hour in which it is asked",
    "end": "the end of the hour in which it is asked",
    "next_cursor": "sealed anew each time",
    "number": "counters that wait are recorded when their time is over, between whatever comes then",
    "entries": "records that come together are packed together",
    "bytes": "of the file",
    "free_bytes": "of the file",
}
UPSTREAM_SCOPES = (
    scopes.INGEST, scopes.CREATE_EVENT, scopes.ENROLL, scopes.HEARTBEAT, scopes.BILLING_DROP,
    "unit-cost_v1:manage_telemetry_records",
)  # fmt: skip
TOPICS = ("ai-telemetry", "usage-events", "unit-cost", "billing-data")
HALVES_WAITING = 2  # number of partial reports that still wait at the end of the first half of the workload
HTTP = urllib3.PoolManager(maxsize=4, retries=False, timeout=120.0)
WEBHOOK_SECRET = "whsec_" + base64.b64encode(b"s" * 24).decode()
CONFIG = """
[server]
listen = "127.0.0.1:0"
grpc_listen = ""
{storage}
[spool]
hold = "{hold}"
counter_wait = "{wait}"
pending_window = "{window}"
max_bytes = "1GiB"
[devices]
heartbeat_interval = "1d"
[work]
retention = "1095d"  # calls of the cases would reach the end of their retention between two runs
[mcp]
daily_calls = {daily_calls}
[upstream]
base_url = "{upstream}"
[[upstream.keys]]
name = "all"
secret_file = "upstream.key"
scopes = [{scopes}]
[[notify]]
name = "alerts"
type = "webhook"
url = "{upstream}/alerts"
secret_file = "alerts.key"
"""


ARCHIVE = """
[[destinations]]
name = "archive-{topic}"
type = "ndjson"
path = "{topic}.ndjson"
shared = {shared}
topics = ["{topic}"]
"""


class Recorder(Loopback):
    """A cost service that accepts everything, and a receiver of alerts."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._requests: list[tuple[str, str, bytes]] = []  # each request's path, idempotency key and body
        super().__init__(_handler(self))

    def take(self, path: str, key: str, body: bytes) -> None:
        with self._lock:
            self._requests.append((path, key, body))

    def arrived(self) -> Mapping[str, list[Any]]:
        """
        Return what counts per path. Repeats under one idempotency key count once, and a device counts with
        its latest report. A call record has the number of its keys, because it counts once per key.
        """
        bodies: dict[str, dict[str, bytes]] = {}
        with self._lock:
            for path, key, body in self._requests:
                place = key or str(json.loads(body)["device_id"])
                bodies.setdefault(f"upstream {path}", {})[place] = body
        return {path: _items(path, found.values()) for path, found in bodies.items()}


def _items(path: str, bodies: Iterable[bytes]) -> list[Any]:
    if not path.endswith(("/traces", "/metrics")):
        return [item for body in bodies for item in json.loads(body).get("records", [json.loads(body)])]
    rows = [row for body in bodies for row in rows_of(path, body)]
    times = Counter(row["tollhouse.id"] for row in rows)
    return [{"times": times[id], **row} for id, row in {row["tollhouse.id"]: row for row in rows}.items()]


def _handler(recorder: Recorder) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def take(self) -> None:
            body = unpacked(body_of(self), self.headers.get("Content-Encoding", ""))
            key = self.headers.get("Idempotency-Key") or self.headers.get("webhook-id")
            recorder.take(self.path, key or "", body)
            self.send_response(200)
            self.send_header("Content-Type", self.headers.get("Content-Type", "application/json"))
            answer = b"{}" if "json" in self.headers.get("Content-Type", "json") else b""
            self.send_header("Content-Length", str(len(answer)))
            self.end_headers()
            self.wfile.write(answer)

        do_POST = take

        def log_message(self, *_: object) -> None:
            """Log nothing."""

    return Handler


# -- cuts ----------------------------------------------------------------------------------------------------


def none(tollhouse: Tollhouse) -> None:
    """A cut that does nothing."""


def stop(tollhouse: Tollhouse) -> None:
    tollhouse.stop()
    tollhouse.start()


def two_stops(tollhouse: Tollhouse) -> None:
    stop(tollhouse)
    stop(tollhouse)


def kill(tollhouse: Tollhouse) -> None:
    tollhouse.kill()
    tollhouse.start()


def kill_and_stop(tollhouse: Tollhouse) -> None:
    kill(tollhouse)
    stop(tollhouse)


CUTS: Mapping[str, Callable[[Tollhouse], None]] = {
    "stop": stop,
    "two stops": two_stops,
    "kill": kill,
    "kill and stop": kill_and_stop,
    "take-over": Tollhouse.take_over,
}


# -- one run -------------------------------------------------------------------------------------------------


class Site:
    """An installation with keys and resources. Each run gets a copy of it."""

    def __init__(self, place: Path) -> None:
        self.began = time.time()
        self.tollhouse = Tollhouse(place, configured("http://127.0.0.1:1", hold="0s", wait="10h"))
        (place / "upstream.key").write_text("upstream-secret\n")
        (place / "alerts.key").write_text(WEBHOOK_SECRET + "\n")
        self.tollhouse.start()
        scopes = sorted({row.scope for row in FOR_SENDERS if row.scope})
        grants = [word for scope in scopes for word in ("--scope", scope)]
        self.keys = {
            name: self.tollhouse.key(f"key {name}", *grants, "--label", f"team={name}") for name in KEYS
        }
        self._make_resources()
        self.tollhouse.stop()

    def _make_resources(self) -> None:
        run = self.tollhouse.json
        run("connections", "create", "--id", "bill", "--name", "Bill", "--provider", "MongoDB")
        run("views", "create", "--name", "All", "--principal", "model")
        plan = [
            "--measure",
            "tokens",
            "--amount",
            "200000",
            "--every",
            "yearly",
            "--alert",
            "50",
            "--alert",
            "100",
        ]
        run("budgets", "create", "--name", "Tokens", "--view", "All", *plan)

    def copy_to(self, place: Path, config: str) -> Tollhouse:
        """Copy the installation to another directory, or to a database if the configuration has one."""
        shutil.copytree(self.tollhouse.directory, place)
        made = Tollhouse(place, config)
        if "[storage]" in config:
            made.data.rename(place / "files")
            made.make_data_directory()
            made.run("storage", "copy", "--from", "files", "--to-config", str(made.config), config=False)
        return made


def configured(upstream: str, *, hold: str, wait: str, window: str = "10h", storage: str = "") -> str:
    shared = str(bool(storage)).lower()
    text = CONFIG.format(
        storage=storage,
        hold=hold,
        wait=wait,
        window=window,
        upstream=upstream,
        daily_calls=MCP_CALLS_A_DAY,
        scopes=_quoted(UPSTREAM_SCOPES),
    )
    return text + "".join(ARCHIVE.format(topic=topic, shared=shared) for topic in TOPICS)


def run_workload(
    site: Site,
    place: Path,
    halves: Halves,
    cut: Callable[[Tollhouse], None],
    *,
    is_open: bool,
    storage: str = "",
) -> Mapping[str, Any]:
    """
    Send both halves with a cut between them; return everything visible afterwards, by name.

    With `is_open`, nothing of the first half is decided or closed at the cut. Otherwise everything is,
    except partial reports.
    """
    recorder = Recorder()
    hold, wait = ("10h", "10h") if is_open else ("0s", "100ms")
    config = configured(recorder.url, hold=hold, wait=wait, storage=storage)
    tollhouse = site.copy_to(place, config)
    try:
        tollhouse.start()
        answers = [send(tollhouse, site.keys, each) for each in halves.before]
        if not is_open:
            settle(tollhouse, waiting=HALVES_WAITING)
            evaluate(tollhouse)
        questions = assistants()
        answers += [send(tollhouse, site.keys, each) for each in questions.before]
        cut(tollhouse)
        answers += [send(tollhouse, site.keys, each) for each in halves.after]
        if is_open:
            tollhouse.stop()
            config = configured(recorder.url, hold="0s", wait="0s", window="0s", storage=storage)
            tollhouse.config.write_text(config)
            if storage:
                # all gateways share this setting, so the configuration file does not have it
                tollhouse.run("storage", "set", "hold=0s")
            tollhouse.start()
        settle(tollhouse)
        wait_until(lambda: not counted_beside_calls(tollhouse), "counters beside calls are taken back")
        settle(tollhouse)
        evaluate(tollhouse)
        answers += [send(tollhouse, site.keys, each) for each in questions.after]
        return {
            "answers": [plain(answer, site.began) for answer in answers],
            **{name: plain(said, site.began) for name, said in observed(tollhouse, recorder).items()},
        }
    finally:
        tollhouse.stop(signal.SIGKILL, code=None)
        recorder.close()
        shutil.rmtree(place)


def send(tollhouse: Tollhouse, keys: Mapping[str, str], sent: Sent) -> Mapping[str, Any]:
    headers = {**sent.headers, "Content-Type": sent.kind, "Authorization": keys[sent.key]}
    if sent.path.startswith("/api/public"):
        pair = base64.b64encode(f"public:{keys[sent.key]}".encode()).decode()
        headers["Authorization"] = f"Basic {pair}"
    answer = HTTP.request(sent.method, tollhouse.url + sent.path, body=sent.body, headers=headers)
    # the part of the header after the receipt's id
    receipt = answer.headers.get("Tollhouse-Receipt", "").partition(";")[2]
    body = json.loads(answer.data) if answer.data else None
    return {"path": sent.path, "status": answer.status, "receipt": receipt, "body": body}


def settle(tollhouse: Tollhouse, *, waiting: int = 0) -> None:
    """
    Wait until everything except `waiting` partial reports is decided, delivered, and counted in the ledger.
    """

    def is_settled() -> bool:
        status = tollhouse.asked("/status")
        pending = sum(int(topic["pending"]) for topic in status["topics"])
        ledger = tollhouse.asked("/ledger")["ledger"]
        newest = 1 + next(topic["accepted"] for topic in status["topics"] if topic["topic"] == TOPICS[0])
        queued = any(route["queued"] for route in status["routes"])
        return not queued and pending == waiting and ledger["reach"] == newest

    wait_until(is_settled, "everything is decided and has left")


def counted_beside_calls(tollhouse: Tollhouse) -> Decimal:
    """Return the sum of counters whose calls arrived later, less the reversed amounts."""
    lines = (tollhouse.directory / "ai-telemetry.ndjson").read_text().rpartition("\n")[0].splitlines()
    records = [one for one in map(json.loads, lines) if one["kind"] == "usage_metric" and not one["shadow"]]
    return sum((Decimal(one["value"]) for one in records if one["source"] == "claude_code"), Decimal(0))


def evaluate(tollhouse: Tollhouse) -> None:
    """Evaluate budgets and insights, and wait until the alerts are sent."""
    tollhouse.json("budgets", "evaluate")
    tollhouse.json("insights", "check")
    wait_until(lambda: not any(each["waiting"] for each in _channels(tollhouse)), "alerts have left")


def _channels(tollhouse: Tollhouse) -> list[Any]:
    found: list[Any] = tollhouse.asked("/notification-channels")["notification_channels"]
    return found


# -- what is seen --------------------------------------------------------------------------------------------


def observed(tollhouse: Tollhouse, recorder: Recorder) -> Mapping[str, Any]:
    """
    Collect records, lists of the operator API, a recount, and the requests at the upstream and the alert receiver.
    """
    seen: dict[str, Any] = {"verify": tollhouse.json("spool", "verify")}
    for topic in TOPICS:
        lines = (tollhouse.directory / f"{topic}.ndjson").read_text().splitlines()
        seen[f"records of {topic}"] = [json.loads(line) for line in lines]
    for path in operator_lists():
        seen[path] = ask(tollhouse, path)
    # the overview has only the newest insights; /insights has all
    seen["/overview"]["body"]["overview"].pop("insights")
    for each in seen["/insights"]["body"]["insights"]:
        each["id"] = "an insight"  # the real id of an insight is random, so the comparison uses this one
    for cause in seen["/attention"]["body"]["attention"]["causes"]:
        if cause["subject"] == cause["insight"]:
            cause["subject"] = "an insight"
        cause["insight"] = cause["insight"] and "an insight"
    return {**seen, **recorder.arrived()}


def ask(tollhouse: Tollhouse, path: str) -> Mapping[str, Any]:
    connection = UnixConnection(socket_path(tollhouse.data))
    try:
        connection.request("GET", OPERATOR_API + path, headers={AS: "test"})
        answer = connection.getresponse()
        body = answer.read()
        is_json = "json" in answer.headers.get("Content-Type", "")
        return {"status": answer.status, "body": json.loads(body) if is_json else body.decode()}
    finally:
        connection.close()


def operator_lists() -> Iterator[str]:
    """Yield every address of the operator API that needs no parameters."""
    for area in OPERATOR_AREAS:
        for row in operator_addresses(area):
            path = row.path.removeprefix("/console/api")
            if "GET" in row.methods and "{" not in path and path not in NOT_COMPARED:
                yield path


def plain(value: Any, began: float, name: str = "") -> Any:
    """Normalise a value for comparison: drop `NOT_COMPARED`, replace the times of the run, and sort lists."""
    if isinstance(value, Mapping):
        return {name: plain(said, began, name) for name, said in value.items() if name not in NOT_COMPARED}
    if isinstance(value, list | tuple):
        rows = [plain(each, began, name) for each in value]
        return sorted(rows, key=lambda row: json.dumps(row, sort_keys=True))
    if isinstance(value, float):
        return MOMENT if value >= began else value
    if isinstance(value, str):
        value = URL.sub("http://here", INSIGHT.sub("an insight", value))
        return TIME.sub(lambda found: MOMENT if moment(found[0]) >= began else found[0], value)
    return value


def moment(text: str) -> float:
    return datetime.fromisoformat(text).timestamp() if "T" in text else float(text)


def differences(one: Any, other: Any, place: str = "") -> Iterator[str]:
    """Yield each position where two values differ, with both."""
    if isinstance(one, Mapping) and isinstance(other, Mapping):
        for name in sorted(one.keys() | other.keys()):
            yield from differences(one.get(name), other.get(name), f"{place} {name}")
    elif isinstance(one, list) and isinstance(other, list):
        yield from _of_lists(one, other, place)
    elif one != other:
        yield f"{place}: {one!r}, {other!r}"


def _of_lists(one: list[Any], other: list[Any], place: str) -> Iterator[str]:
    """Yield rows that only one list has. If both lists have equally many of them, compare field by field."""
    left, right = [Counter(json.dumps(each, sort_keys=True) for each in rows) for rows in (one, other)]
    gone, new = sorted((left - right).elements()), sorted((right - left).elements())
    if len(gone) == len(new):
        for before, after in zip(gone, new, strict=True):
            yield from differences(json.loads(before), json.loads(after), f"{place} []")
    else:
        yield from (f"{place}: - {row}" for row in gone)
        yield from (f"{place}: + {row}" for row in new)


def _quoted(names: Sequence[str]) -> str:
    return ", ".join(f'"{name}"' for name in names)
