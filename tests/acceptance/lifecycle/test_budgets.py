"""Budgets of a server that is killed repeatedly: every threshold is notified exactly once."""

from __future__ import annotations

import json
import threading
import time
import urllib.request
from collections import defaultdict
from collections.abc import Iterator
from functools import partial
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest

from tests.acceptance.conftest import COMMAND, Tollhouse
from tests.acceptance.lifecycle.killed import seconds_of
from tests.integration.payloads import json_span, json_traces
from tests.processes.copied import start_process
from tests.rounds import IS_LONG
from tests.waiting import wait_until

NOTIFY = """
[[notify]]
name = "alerts"
type = "webhook"
url = "http://127.0.0.1:{port}/"
secret_file = "alerts.secret"
insights = "none"
"""
PERCENTS = (20, 40, 60, 80, 100) if IS_LONG else (20, 40)


@pytest.fixture
def received() -> Iterator[tuple[int, list[dict[str, Any]]]]:
    """Yield the port of a webhook receiver, and a list of the received bodies with their `webhook-id`."""
    bodies: list[dict[str, Any]] = []

    class Receiver(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            bodies.append({**body, "webhook-id": self.headers["webhook-id"]})
            self.send_response(204)
            self.end_headers()

        def log_message(self, format: str, *args: object) -> None:
            """Log nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Receiver)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    yield server.server_port, bodies
    server.shutdown()
    thread.join()
    server.server_close()


def send_call(tollhouse: Tollhouse, key: str) -> None:
    now = time.time_ns()
    body = json_traces(json_span(startTimeUnixNano=str(now), endTimeUnixNano=str(now + 10**9)))
    headers = {"Authorization": key, "Content-Type": "application/json"}
    with urllib.request.urlopen(
        urllib.request.Request(f"{tollhouse.url}/v1/traces", body, headers), timeout=30
    ) as got:
        assert 200 == got.status


def has_fired(tollhouse: Tollhouse, id: str, count: int) -> bool:
    """
    Evaluate again, because a call counts only once its record is closed; return whether `count`
    thresholds have fired.
    """
    tollhouse.run("budgets", "evaluate")
    return len(tollhouse.asked(f"/budgets/{id}/alerts")["alerts"]) == count


@pytest.mark.proof
@pytest.mark.timeout(600)
def test_kills_neither_lose_nor_repeat_an_alert(
    installations: Any, received: tuple[int, list[dict[str, Any]]]
) -> None:
    """
    Each of the calls crosses one threshold. The server is killed at a different moment of each evaluation
    and restarted. In the end each threshold has fired once, and the receiver has one id for each.
    """
    port, bodies = received
    tollhouse: Tollhouse = installations(more=NOTIFY.format(port=port))
    (tollhouse.directory / "alerts.secret").write_text("whsec_" + "MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw" + "\n")
    key = tollhouse.key("sender")
    tollhouse.run("views", "create", "--name", "All", "--principal", "model")
    tollhouse.start()
    alerts = [word for percent in PERCENTS for word in ("--alert", str(percent))]
    # at most five calls of 120 input and 30 output tokens
    plan = ("--measure", "tokens", "--amount", "750", "--every", "yearly")
    made = tollhouse.json("budgets", "create", "--name", "Chat", "--view", "All", *plan, *alerts)
    id = made["budget"]["id"]
    took_s = seconds_of("budgets", "evaluate", "--config", str(tollhouse.config))
    for round in range(len(PERCENTS)):
        send_call(tollhouse, key)
        asking = start_process(
            [str(COMMAND), "budgets", "evaluate", "--config", str(tollhouse.config)], cwd=tollhouse.directory
        )
        time.sleep(took_s * round / 3)
        tollhouse.kill()
        asking.wait(300)
        tollhouse.start()
        # Wait for each threshold. If one evaluation finds two crossed thresholds, it notifies only the higher one.
        wait_until(partial(has_fired, tollhouse, id, round + 1), f"alert {round + 1}")
    fired = tollhouse.json("budgets", "alerts", id, "--sort-key", "percent", "--sort-order", "asc")["alerts"]
    assert [(percent, "fired", True) for percent in PERCENTS] == [
        (alert["percent"], alert["state"], alert["told"]) for alert in fired
    ]
    wait_until(
        lambda: len({body["webhook-id"] for body in bodies}) == len(PERCENTS), "every alert at the receiver"
    )
    ids = defaultdict(set)
    for body in bodies:
        ids[body["data"]["fields"]["threshold"]].add(body["webhook-id"])
    assert [1] * len(PERCENTS) == [len(each) for each in ids.values()]
