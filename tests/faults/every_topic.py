"""
A client of the topics other than calls. It sends reports, repeats unanswered ones, and judges the result.
"""

from __future__ import annotations

import json
import random
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import urllib3

from tests.acceptance.conftest import Tollhouse
from tests.acceptance.payloads import KEEP_ALIVE
from tests.faults.oracle import PATIENCE_S, RETRIED
from tests.faults.site import Verdict
from tests.waiting import wait_until

TOPICS = ("usage-events", "unit-cost", "billing-data")
SCOPES = (
    "events_v1:create_event",
    "unit-cost_v1:manage_telemetry_records",
    "unit-cost_v1:read_telemetry",
    "connections:create_billing_external_billing_drop",
)
CONNECTION = "bill"
STREAM = "/unit-cost/v1/telemetry/allocation/calls"
DROPS = f"/v2/connections/billing/external/{CONNECTION}/billing_drops"
REPEATED = 30  # number of acknowledged reports that are sent again after each start
DESTINATIONS = "".join(
    f"""
[[destinations]]
name = "{topic}"
type = "ndjson"
path = "{topic}.ndjson"
topics = ["{topic}"]
"""
    for topic in TOPICS
)


@dataclass(frozen=True)
class Report:
    """
    One request with one record of a unique name. `value` may differ between two requests with the
    same idempotency key.
    """

    topic: str
    name: str
    value: int

    def request(self, value: int) -> tuple[str, dict[str, Any]]:
        if self.topic == "usage-events":
            return "/v1/events", {
                "specversion": "1.0", "id": self.name, "source": "app", "type": "page", "data": {"n": value},
            }  # fmt: skip
        if self.topic == "unit-cost":
            record = {
                "timestamp": "2026-01-01",
                "granularity": "DAILY",
                "element_name": self.name,
                "value": value,
            }
            return f"{STREAM}/sum", {"records": [record]}
        row = {"time/usage_start": "2026-11-01T10:00:00Z", "cost/cost": str(value), "resource/id": self.name}
        return DROPS, {"month": "2026-11", "operation": "sum", "data": [row]}


class EveryTopic:
    """Reports of topics other than calls, each with an idempotency key."""

    def __init__(self, rng: random.Random, tollhouse: Tollhouse) -> None:
        self._rng = rng
        self._tollhouse = tollhouse
        self._key = tollhouse.key("others", *(f"--scope={scope}" for scope in SCOPES))
        tollhouse.run("connections", "create", "--name", "bill", "--provider", "MongoDB", "--id", CONNECTION)
        self.acknowledged: list[Report] = []
        self._unanswered: list[Report] = []
        self._wrong: list[str] = []

    @contextmanager
    def load(self, url: str) -> Iterator[None]:
        """
        Send until the block or the server ends. First resend what the last load left unanswered,
        then acknowledged reports.
        """
        stop = threading.Event()
        thread = threading.Thread(target=self._run, args=(url, stop))
        thread.start()
        try:
            yield
        finally:
            stop.set()
            thread.join()

    def wait_until_taken(self) -> None:
        """Wait for further acknowledgements, so that the fault meets work on a slow machine as well."""
        enough = len(self.acknowledged) + 3
        wait_until(lambda: len(self.acknowledged) >= enough, "reports of other topics are answered")

    def _run(self, url: str, stop: threading.Event) -> None:
        again = self._rng.sample(self.acknowledged, min(REPEATED, len(self.acknowledged)))
        waiting = [*self._unanswered, *again]
        while not stop.is_set():
            if not waiting:
                waiting = [self._make() for _ in range(5)]
                self._unanswered += waiting
            try:
                if self._is_taken(url, waiting[0]):
                    waiting.pop(0)
            except urllib3.exceptions.HTTPError:
                return  # the server was killed meanwhile

    def _make(self) -> Report:
        return Report(
            self._rng.choice(TOPICS), f"{self._rng.getrandbits(64):016x}", self._rng.randrange(1, 1000)
        )

    def _is_taken(self, url: str, report: Report) -> bool:
        status = self._post(url, report, report.value)
        if status == 200:
            if report in self._unanswered:
                self._unanswered.remove(report)
                self.acknowledged.append(report)
        elif status not in RETRIED:
            self._wrong.append(f"{report}: {status}")
        return status == 200

    def _post(self, url: str, report: Report, value: int) -> int:
        path, body = report.request(value)
        headers = {
            "Content-Type": "application/json",
            "Authorization": self._key,
            "Idempotency-Key": f"key of {report.name}",
        }
        answer = KEEP_ALIVE.request(
            "POST", url + path, body=json.dumps(body).encode(), headers=headers, timeout=PATIENCE_S
        )
        return answer.status

    def judge(self, url: str) -> Verdict:
        """
        Judge the running, healed installation. Each acknowledged report exists once in the record file and in
        the totals, and its idempotency key still belongs to its body.
        """
        for report in self.acknowledged:
            assert self._is_settled(url, report, report.value) == 200
            if self._is_settled(url, report, report.value + 1) != 422:
                self._wrong.append(f"{report}: its key stands for another body, too")
        for topic in TOPICS:
            self._tollhouse.wait_until_drained(f"{topic}/{topic}")
        verdict = Verdict(len(self.acknowledged), wrong=self._wrong)
        lines = [line for topic in TOPICS for line in _lines(self._tollhouse.directory / f"{topic}.ndjson")]
        written = Counter(map(_name, lines))
        promised = {report.name for report in self.acknowledged}
        verdict.lost = promised - written.keys()
        verdict.duplicates = {name for name, n in written.items() if n > 1}
        sent = {report.name: report for report in (*self.acknowledged, *self._unanswered)}
        verdict.wrong += [f"{name} was never sent" for name in written.keys() - sent.keys()]
        kept = Counter(sent[name].topic for name in written.keys() & sent.keys())
        for topic, terms in self._tollhouse.json("spool", "verify")["topics"].items():
            if topic in TOPICS and terms["accepted"] != kept[topic]:
                verdict.wrong.append(
                    f"the books have {terms['accepted']} of {topic}, and {kept[topic]} are there"
                )
        totals = self._totals(url)
        for report in self.acknowledged:
            if report.topic == "unit-cost" and totals.get(report.name) != report.value:
                verdict.wrong.append(f"{report}: its total is {totals.get(report.name)}")
        return verdict

    def _totals(self, url: str) -> dict[str, int]:
        """Return the unit-cost totals by report name."""
        found: dict[str, int] = {}
        query = "limit=1000"
        while query:
            headers = {"Authorization": self._key}
            answer = KEEP_ALIVE.request("GET", f"{url}{STREAM}/records?{query}", headers=headers)
            if answer.status == 404:  # no report has been sent yet, so the address answers 404
                break
            assert answer.status == 200, answer.data
            page = answer.json()
            found |= {row["element_name"]: int(row["value"]) for row in page["records"]}
            cursor = page["pagination"]["cursor"]["next_cursor"]
            query = f"limit=1000&cursor={cursor}" if cursor else ""
        return found

    def _is_settled(self, url: str, report: Report, value: int) -> int:
        """Repeat a report until its status is final; return the status."""

        def answered() -> int:
            status = self._post(url, report, value)
            return 0 if status in RETRIED else status

        return wait_until(answered, f"{report} is answered")


def _lines(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def _name(record: dict[str, Any]) -> str:
    if record["kind"] == "billing_drop":
        return str(record["body"]["data"][0]["resource/id"])
    return str(record["event_id" if record["kind"] == "usage_event" else "element_name"])
