"""Several gateways on one PostgreSQL between an oracle and an upstream, with a judge of the result."""

from __future__ import annotations

import random
import signal
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

import psycopg
from psycopg import sql

from spool.postgres.log.entries import topic_code
from spool.record import AI_TELEMETRY
from tests.acceptance.conftest import Tollhouse
from tests.acceptance.payloads import KEEP_ALIVE, post
from tests.faults.gateways.balanced import BalancedOracle
from tests.faults.gateways.counted import differences, wait_until_counted
from tests.faults.oracle import SentCall, SentRequest
from tests.faults.site import Verdict
from tests.faults.upstream import ACCEPT, ScriptedUpstream
from tests.spool.postgres_cluster import storage_table
from tests.waiting import wait_until

CONFIG = """
[server]
listen = "127.0.0.1:0"
grpc_listen = ""
{storage}
[spool]
max_bytes = "1GiB"
hold = "{hold}"
{spool}
[upstream]
base_url = "{url}"
timeout = "2s"
batch_records = 100
linger = "50ms"
[[upstream.keys]]
name = "telemetry"
secret_file = "{upstream_secret}"
use_cases = ["Send AI Telemetry"]
"""
UPSTREAM_ROUTE = "upstream/ai-telemetry"


class SharedSite:
    """
    `gateways` on one schema of a database. Each has its own directory, and each start listens at a new address.
    """

    def __init__(
        self,
        folder: Path,
        *,
        dsn: str,
        schema: str,
        rng: random.Random,
        count: int = 3,
        hold: str = "200ms",
        durability: str = "local",
        commit_timeout: str = "5s",
        storage: str = "",
        spool: str = "",
    ) -> None:
        folder.mkdir()
        self.dsn, self.schema = dsn, schema
        self._folder = folder
        self._settings = {"hold": hold, "spool": spool}
        self._durability = durability
        self._storage = f'commit_timeout = "{commit_timeout}"\n{storage}'
        self.upstream = ScriptedUpstream(rng)
        (folder / "upstream.key").touch(mode=0o600)
        (folder / "upstream.key").write_text("upstream-secret\n")
        self.gateways = [self.gateway(f"node-{number}") for number in range(count)]
        self.gateways[0].run("storage", "init")
        self.frozen: set[int] = set()
        self.refused: list[SentRequest] = []
        # calls of damaged records, which the ledger may have read before the damage
        self.damaged: list[SentCall] = []
        self.oracle = BalancedOracle(folder / "acknowledged", rng, self.gateways[0].key("load"), self.urls)

    def gateway(self, name: str, *, dsn: str = "") -> Tollhouse:
        """Create another gateway. A gateway with its own database address gets no load."""
        storage = storage_table(
            self._folder,
            dsn=self.dsn,
            schema=self.schema,
            durability=self._durability,
            more=f'{self._storage}\nnode_name = "{name}"',
        )
        if dsn:
            own = self._folder / f"{name}.dsn"
            own.touch(mode=0o600)
            own.write_text(dsn)
            storage = storage.replace(f'"{self._folder / "dsn"}"', f'"{own}"')
        config = CONFIG.format(
            storage=storage,
            url=self.upstream.url,
            upstream_secret=self._folder / "upstream.key",
            **self._settings,
        )
        return Tollhouse(self._folder / name, config)

    def urls(self) -> Sequence[str]:
        """Return the URLs a load balancer would use: all started gateways, including frozen ones."""
        return [one.url for one in self.gateways if one.process is not None and one.url]

    def start(self) -> None:
        """Start every gateway that does not run."""
        for one in self.gateways:
            if one.process is None:
                one.url = ""
                one.start()

    def holder(self) -> int:
        """Wait until a gateway runs the route to the upstream; return its number."""
        wait_until(lambda: len(self._holders()) == 1, "a gateway runs the route")
        return self._holders()[0]

    def _holders(self) -> list[int]:
        nodes = self.gateways[0].asked("/status")["nodes"]
        return [int(node["name"].rpartition("-")[2]) for node in nodes if UPSTREAM_ROUTE in node["leases"]]

    def kill(self, number: int) -> None:
        self.gateways[number].url = ""
        self.gateways[number].kill()

    def freeze(self, number: int) -> None:
        self._signal(number, signal.SIGSTOP)
        self.frozen.add(number)

    def thaw(self) -> None:
        """Resume all frozen gateways."""
        for number in self.frozen:
            self._signal(number, signal.SIGCONT)
        self.frozen.clear()

    def _signal(self, number: int, what: int) -> None:
        process = self.gateways[number].process
        assert process is not None
        process.send_signal(what)

    def refuses(self, *gateways: Tollhouse) -> float:
        """
        Return the seconds until each of the gateways (default: all) has refused a new call with
        503 and Retry-After.

        A refused call may nevertheless be stored, so `repeat` sends it again.
        """
        requests = [(one, self.oracle.make(1)) for one in gateways or self.gateways]
        with ThreadPoolExecutor(len(requests)) as threads:
            answers = list(threads.map(lambda pair: self._ask(*pair), requests))
        self.refused += [sent for _, sent in requests]
        assert [503] * len(requests) == [status for status, _ in answers]
        return max(seconds for _, seconds in answers)

    def _ask(self, one: Tollhouse, sent: SentRequest) -> tuple[int, float]:
        began = time.monotonic()
        answer = post(one.url, sent.body, self.oracle.key)
        self.oracle.answers[str(answer.status)] += 1
        return answer.status, time.monotonic() - began

    def reasons(self) -> list[str]:
        """Return why gateways are not ready. Empty if all are ready."""
        shown = [KEEP_ALIVE.request("GET", f"{url}/readyz").json() for url in self.urls()]
        return [reason for one in shown for reason in one["reasons"]]

    def is_ready(self) -> list[bool]:
        """Return the readiness of each gateway, after checking that all are alive."""
        assert {200} == {KEEP_ALIVE.request("GET", f"{url}/livez").status for url in self.urls()}
        return [KEEP_ALIVE.request("GET", f"{url}/readyz").status == 200 for url in self.urls()]

    def delivers(self, *requests: SentRequest) -> None:
        """Wait until all calls of these requests are delivered."""
        calls = {name for one in requests for name in one.calls}
        self._await(lambda: calls <= self.upstream.taken.keys(), "what was sent is delivered")

    def metrics(self) -> list[str]:
        """Return the metric lines of the first gateway."""
        answer = KEEP_ALIVE.request("GET", f"{self.gateways[0].url}/metrics")
        return answer.data.decode().splitlines()

    def repeat(self) -> None:
        """Resend each refused request until a gateway accepts it."""
        for sent in self.refused:
            taken = partial(self._is_taken, sent)
            self._await(taken, "what was refused is taken")
        self.refused.clear()

    def _is_taken(self, sent: SentRequest) -> bool:
        return any(self.oracle.is_taken(url, sent) for url in self.urls())

    def passes(self) -> float:
        """Return the seconds until a new record is accepted by some gateway and delivered."""
        began = time.monotonic()
        fresh = self.oracle.make(1)
        (name,) = fresh.calls
        self._await(lambda: any(self.oracle.is_taken(url, fresh) for url in self.urls()), "an answer")
        self._await(lambda: name in self.upstream.taken, "a fresh record is delivered")
        return time.monotonic() - began

    def _await(self, condition: Callable[[], object], what: str) -> None:
        """Wait; after the limit, the error has the state of every gateway."""
        wait_until(condition, lambda: f"{what}\n{self.described()}")

    def described(self) -> str:
        """Describe each gateway's own state and its view of the others, for the message of a failed test."""
        lines = [f"not ready because {self.reasons()}"]
        for number, one in enumerate(self.gateways):
            if one.process is None or number in self.frozen:
                lines.append(f"node {number} does not run")
                continue
            status = one.asked("/status")
            lines.append(f"node {number}: {status['nodes']} {status['routes']}")
            lines += [line[:500] for line in one.log if "request_refused" not in line][-12:]
        return "\n".join([*lines, *map(str, self._open_deliveries())])

    def _open_deliveries(self) -> Sequence[tuple[object, ...]]:
        """Return the open deliveries of the database and the gateways that send them."""
        query = sql.SQL(
            "SELECT id, route, first, last, owner, fence, sending, attempts, not_before - extract(epoch FROM now()),"
            " last_error FROM {}.deliveries WHERE state = 'open' ORDER BY route, first LIMIT 20"
        ).format(sql.Identifier(self.schema))
        with psycopg.connect(self.dsn, autocommit=True) as connection:
            return connection.execute(query).fetchall()

    def judge(self) -> Verdict:
        """Judge the running, healed gateways after everything is delivered."""
        self.upstream.behave(ACCEPT)
        self._await(lambda: not self.gateways[0].queued(UPSTREAM_ROUTE), "everything is delivered")
        promised = set(self.oracle.acknowledged)
        verdict = Verdict(len(promised))
        verdict.lost = promised - self.upstream.taken.keys() - self.upstream.rejected
        verdict.duplicates = {name for name, times in self.upstream.taken.items() if times > 1}
        verdict.wrong = [*self.oracle.unexpected, *self.upstream.violations, *self._gaps()]
        verdict.wrong += [
            f"{name} at the upstream is not as it was sent"
            for name, said in self.upstream.contents.items()
            if said != self.oracle.sent.get(name)
        ]
        for number, one in enumerate(self.gateways):
            books = self._books(one)
            if not books["balanced"]:
                verdict.wrong.append(f"node {number}: the books do not balance: {books}")
        verdict.wrong += self._not_counted(promised, verdict.lost)
        return verdict

    def _books(self, one: Tollhouse) -> Any:
        """
        Let a gateway recount its accounting. A gateway without traffic may not have reconnected to
        the database yet.
        """
        found: list[Any] = []

        def has_recounted() -> bool:
            try:
                found.append(one.json("spool", "verify"))
            except AssertionError as error:
                if "the database cannot be reached" not in str(error):
                    raise
            return bool(found)

        self._await(has_recounted, "a gateway reaches the database")
        return found[-1]

    def _not_counted(self, promised: set[str], lost: set[str]) -> Sequence[str]:
        """
        Compare the ledger's totals with the calls that were acknowledged or nevertheless stored.

        Lost calls are reported separately and need not be counted.
        """
        calls = self.oracle.calls
        wait_until_counted(self.gateways[0], self._next_number())
        kept = [calls[name] for name in (promised - lost) | self.upstream.taken.keys() if name in calls]
        may_be = [*self.damaged, *[calls[name] for name in lost]]
        missed = self.gateways[0].asked("/ledger")["ledger"]["missed"]
        wrong = [f"the ledger passed over {missed} numbers"] if missed else []
        return [*wrong, *differences(self.gateways[0], kept, may_be=may_be)]

    def _next_number(self) -> int:
        """Return the next record number of the topic of calls."""
        query = sql.SQL("SELECT next[%s] FROM {}.commits ORDER BY id DESC LIMIT 1").format(
            sql.Identifier(self.schema)
        )
        with psycopg.connect(self.dsn, autocommit=True) as connection:
            row = connection.execute(query, (topic_code(AI_TELEMETRY) + 1,)).fetchone()
        return int(row[0]) if row else 1

    def _gaps(self) -> Sequence[str]:
        """Return record numbers that no entry or two entries contain."""
        query = sql.SQL(
            "SELECT topic, first, before FROM (SELECT topic, first, lag(first + count) OVER (PARTITION BY "
            "topic"
            " ORDER BY first) AS before FROM {}.entries) e WHERE first <> before"
        ).format(sql.Identifier(self.schema))
        with psycopg.connect(self.dsn, autocommit=True) as connection:
            rows = connection.execute(query).fetchall()
        return [f"topic {topic}: {first} follows {before}" for topic, first, before in rows]

    def close(self) -> None:
        self.thaw()
        for one in self.gateways:
            one.stop(signal.SIGKILL, code=None)
        self.upstream.down()
        self.oracle.close()
