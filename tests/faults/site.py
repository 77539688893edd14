"""A Tollhouse between an oracle and an upstream that misbehaves, with a judge of the result."""

from __future__ import annotations

import os
import time
from collections import Counter
from collections.abc import Callable, Container
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.acceptance.conftest import COMMAND, Tollhouse
from tests.acceptance.payloads import KEEP_ALIVE
from tests.faults.broken import mutants
from tests.faults.misbehaving import FLOOD
from tests.faults.oracle import Oracle, content_hash
from tests.faults.scenarios import Trial
from tests.faults.upstream import ACCEPT, ScriptedUpstream
from tests.free_ports import free_port
from tests.waiting import wait_until

CONFIG = """
[server]
listen = "127.0.0.1:0"
grpc_listen = ""
{server}
[spool]
hold = "{hold}"
{spool}
[upstream]
base_url = "{url}"
timeout = "{timeout}"
batch_records = {batch_records}
linger = "{linger}"
[[upstream.keys]]
name = "telemetry"
secret_file = "{secret}"
use_cases = ["Send AI Telemetry"]
[[destinations]]
name = "archive"
type = "ndjson"
path = "records.ndjson"
linger = "{linger}"
{more}
"""
UPSTREAM_ROUTE = "upstream/ai-telemetry"
# generous limits, because a paused route retries only after a minute


@dataclass
class Verdict:
    """Acknowledged records that are lost, duplicated, or changed."""

    acknowledged: int
    lost: set[str] = field(default_factory=set)
    duplicates: set[str] = field(default_factory=set)
    wrong: list[str] = field(default_factory=list)

    def check(self) -> None:
        """Raise AssertionError with the lost, duplicated or changed records."""
        assert set() == self.lost, "acknowledged and lost"
        assert set() == self.duplicates, "counted twice"
        assert [] == self.wrong, self.wrong


class FaultSite:
    """One installation with its own upstream and oracle. Every start listens at the same address."""

    def __init__(
        self, tollhouse: Tollhouse, upstream: ScriptedUpstream, oracle: Oracle, secret: Path
    ) -> None:
        self.tollhouse = tollhouse
        self.upstream = upstream
        self.oracle = oracle
        self.secret = secret

    @property
    def url(self) -> str:
        return self.tollhouse.url

    def start(self, *, mutant: str = "", **environment: str) -> str:
        listen = self.url.removeprefix("http://") or f"127.0.0.1:{free_port()}"
        where = {"TOLLHOUSE_SERVER__LISTEN": listen}
        words = mutants.command(mutant) if mutant else (str(COMMAND),)
        return self.tollhouse.start(env={**where, **environment}, command=words)

    def kill(self) -> None:
        self.tollhouse.kill()

    def take_over(self) -> None:
        """Let another process take over at the same address."""
        self.tollhouse.take_over({"TOLLHOUSE_SERVER__LISTEN": self.url.removeprefix("http://")})

    def until(self, condition: Callable[[FaultSite], bool], what: str) -> None:
        wait_until(lambda: condition(self), what)

    def route_states(self) -> list[dict[str, Any]]:
        shown: list[dict[str, Any]] = KEEP_ALIVE.request("GET", f"{self.url}/readyz").json()["routes"]
        return shown

    def resident_mib(self, *, peak: bool = False) -> float:
        """Return the server's resident memory, now or at its peak."""
        assert self.tollhouse.process is not None
        status = Path(f"/proc/{self.tollhouse.process.pid}/status").read_text()
        name = "VmHWM:" if peak else "VmRSS:"
        (line,) = (line for line in status.splitlines() if line.startswith(name))
        return int(line.split()[1]) / 1024

    def forget_peak(self) -> None:
        """Reset the peak of the resident memory."""
        assert self.tollhouse.process is not None
        Path(f"/proc/{self.tollhouse.process.pid}/clear_refs").write_text("5")

    def processor_s(self) -> float:
        """Return the server's processor time since its start."""
        assert self.tollhouse.process is not None
        fields = Path(f"/proc/{self.tollhouse.process.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    @property
    def state(self) -> str:
        """Return the state of the route to the upstream."""
        return str(self._upstream_route()["state"])

    @property
    def queued(self) -> int:
        return int(self._upstream_route()["queued"])

    @property
    def dead(self) -> int:
        """Return the number of records set aside."""
        return len(self.tollhouse.asked("/dead")["dead"])

    def _upstream_route(self) -> dict[str, Any]:
        return next(route for route in self.route_states() if route["route"] == UPSTREAM_ROUTE)

    def heal(self, *, since: float | None = None) -> float:
        """
        Heal the upstream; return the seconds until a new record was delivered, from now or from `since`.
        """
        self.upstream.behave(ACCEPT)
        began = time.monotonic() if since is None else since
        fresh = self.oracle.make(1)
        (name,) = fresh.calls
        wait_until(lambda: self.oracle.send(self.url, fresh), "a fresh record is acknowledged")
        wait_until(lambda: name in self.upstream.taken, "a fresh record is delivered")
        return time.monotonic() - began

    def close(self, trial: Trial, *, since: float | None = None) -> Verdict:
        """
        Heal, wait until drained, judge and count. Raises AssertionError with the lost, duplicated
        or changed records.
        """
        recovery_s = self.heal(since=since)
        verdict = self.judge(self.oracle.acknowledged)
        trial.count(
            acknowledged=verdict.acknowledged,
            lost=len(verdict.lost),
            duplicates=len(verdict.duplicates),
            recovery_s=recovery_s,
        )
        assert verdict.acknowledged, "nothing was acknowledged"
        verdict.check()
        self.tollhouse.stop()
        return verdict

    def judge(self, acknowledged: Container[str], *, topic: str = "") -> Verdict:
        """
        Judge the running, healed installation by these acknowledged calls, after every route (or every route
        of `topic`) is drained.
        """
        self.until(
            lambda one: not any(r["queued"] for r in one.route_states() if r["route"].endswith(topic)),
            "all routes are drained",
        )
        oracle, upstream = self.oracle, self.upstream
        # a snapshot, because calls that the judge does not wait for, such as a flood, may still arrive
        taken, rejected, delivered = dict(upstream.taken), set(upstream.rejected), dict(upstream.contents)
        records = self.tollhouse.records()
        written = Counter(record["request_id"] for record in records)
        contents = {
            one["request_id"]: content_hash(one["request_id"], one["input_tokens"], one["user"])
            for one in records
        }
        dead = self._dead()
        there = taken.keys() | rejected | dead
        promised = {name for name in list(oracle.acknowledged) if name in acknowledged}
        verdict = Verdict(len(promised))
        verdict.lost = (promised - there) | (promised - written.keys())
        twice = {
            f"{name} in the {place}"
            for place, counts in (("upstream", taken), ("record file", written))
            for name, n in counts.items()
            if n > 1
        }
        verdict.duplicates = twice
        verdict.wrong = [*oracle.unexpected, *upstream.violations]
        for place, said in (("upstream", delivered), ("record file", contents)):
            verdict.wrong += [
                f"{name} in the {place} is not as it was sent"
                for name in said
                if said[name] != oracle.sent.get(name) and not name.startswith(FLOOD)
            ]
        if not self.tollhouse.json("spool", "verify")["balanced"]:
            verdict.wrong.append("the books do not balance")
        return verdict

    def _dead(self) -> set[str]:
        """Return the response ids of records set aside."""
        letters: list[dict[str, Any]] = self.tollhouse.json("spool", "dead", "list", "--limit", "1000")[
            "dead"
        ]
        shown = [self.tollhouse.json("spool", "dead", "show", str(letter["id"])) for letter in letters]
        return {one["dead"]["record"]["request_id"] for one in shown}
