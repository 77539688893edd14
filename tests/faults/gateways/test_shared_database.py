"""
The failure table of several gateways on one PostgreSQL, row by row. Two gateways, a real primary and its
synchronous standby are broken and healed under load.
"""

from __future__ import annotations

import shutil
import signal
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import psycopg
import pytest

from spool.postgres.log.entries import topic_code
from spool.record import AI_TELEMETRY
from tests.acceptance.conftest import Tollhouse
from tests.faults.gateways.broken_database import ANSWERED_S, SPOOL, BrokenDatabase, BrokenPair
from tests.faults.gateways.restarted_pooler import RestartedPooler
from tests.faults.gateways.shared_site import SharedSite
from tests.faults.oracle import SentRequest
from tests.faults.scenarios import Trial
from tests.faults.upstream import ACCEPT, refuse
from tests.rounds import IS_LONG
from tests.small_disk import fill, small_disk
from tests.spool.postgres_cluster import STANDBY, SUCCESSOR, Pair, Server, confirming, folder, user
from tests.spool.postgres_cluster import cluster as cluster
from tests.waiting import wait_until

pytestmark = pytest.mark.timeout(1800)

CALLS_BESIDE = 2000 if IS_LONG else 400  # number of calls that are sent while a transaction is open


@pytest.fixture(scope="module")
def broken(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokenPair]:
    """Create one pair for all rows, because creation takes seconds."""
    with folder() as place, ExitStack() as stack:
        pair = Pair(place, max_connections=str(MOST_CONNECTIONS))
        stack.callback(pair.stop)
        pair.start()
        made = BrokenPair(pair, tmp_path_factory.mktemp("failure") / "site")
        stack.callback(made.site.close)
        yield made


@pytest.mark.proof
@pytest.mark.fault("F31")
def test_database_down(trial: Trial, broken: BrokenPair) -> None:
    """
    While the database is down, no gateway stores anything, and each reports it. All reconnect without help.
    """
    stop_and_start(trial, broken, broken.pair.primary)


def stop_and_start(trial: Trial, broken: BrokenPair, server: Server) -> None:
    for _ in trial.rounds(short=1, full=10):
        with broken.row(trial):
            server.stop()
            broken.nothing_is_kept()
            server.start()
            broken.healed()


@pytest.mark.proof
@pytest.mark.fault("F32")
def test_frozen_database_is_detected_by_the_gateways_timeout(trial: Trial, broken: BrokenPair) -> None:
    """
    The frozen server's machine still accepts and acknowledges connections, so only the gateway's own timeout
    ends the wait.
    """
    for _ in trial.rounds(short=1, full=10):
        with broken.row(trial), standing_still(broken):
            broken.nothing_is_kept()
            broken.healed()


@contextmanager
def standing_still(broken: BrokenPair) -> Iterator[None]:
    broken.pair.primary.freeze()
    try:
        yield
    finally:
        broken.pair.primary.thaw()


@pytest.mark.proof
@pytest.mark.fault("F33")
def test_commits_without_the_standby_wait_then_get_503(trial: Trial, broken: BrokenPair) -> None:
    """
    Commits wait for the standby, then senders get 503. If a refused record was nevertheless stored, its
    repeat is a duplicate.
    """
    stop_and_start(trial, broken, broken.pair.standby)


@pytest.mark.proof
@pytest.mark.fault("F34")
def test_no_standby_is_named(trial: Trial, broken: BrokenPair) -> None:
    """
    Without a named standby, commits would not wait. So the gateway commits nothing until one is named again.
    """
    for _ in trial.rounds(short=1, full=10):
        with broken.row(trial):
            broken.pair.primary.change(synchronous_standby_names="")
            wait_until(lambda: any("the standby is gone" in one for one in broken.site.reasons()), "a reason")
            broken.nothing_is_kept()
            broken.pair.primary.change(synchronous_standby_names=STANDBY)
            broken.healed()


@pytest.mark.proof
@pytest.mark.fault("F35")
def test_a_transaction_is_left_open(trial: Trial, broken: BrokenPair) -> None:
    """Appends continue during the open transaction, and gateways report its age."""
    for _ in trial.rounds(short=1, full=3):
        with broken.row(trial), psycopg.connect(broken.pair.primary.dsn) as other:
            other.execute("SELECT pg_current_xact_id(), count(*) FROM gateways.commits")
            broken.keeps_on(CALLS_BESIDE)
            wait_until(lambda: oldest_transaction_s(broken) > 1.0, "its age is shown")
            broken.healed()


def oldest_transaction_s(broken: BrokenPair) -> float:
    for line in broken.site.metrics():
        name, _, value = line.rpartition(" ")
        if name == "tollhouse_postgres_oldest_transaction_seconds":
            return float(value)
    return 0.0


@pytest.mark.proof
@pytest.mark.fault("F36")
def test_too_many_connections(trial: Trial, broken: BrokenPair) -> None:
    """
    Other clients use all connections. Gateways report why they store nothing, and continue when
    connections are free.
    """
    for _ in trial.rounds(short=1, full=10):
        with broken.row(trial), ExitStack() as others:
            take_all_connections(others, broken)
            wait_until(lambda: says_too_many(broken), "a reason")
            broken.nothing_is_kept()
            broken.healed()


def says_too_many(broken: BrokenPair) -> bool:
    """
    Return whether gateways report the server's message to an unprivileged role, for reserved slots or no slots.
    """
    words = ("connection slots", "too many clients")
    return any(one in reason for one in words for reason in broken.site.reasons())


def take_all_connections(others: ExitStack, broken: BrokenPair) -> None:
    """
    Take the free connections and end the gateways' own until all are taken. The gateways compete for
    each freed one.
    """
    watcher = others.enter_context(psycopg.connect(broken.pair.primary.dsn, autocommit=True))
    left = MOST_CONNECTIONS - 1
    while left:
        try:
            others.enter_context(psycopg.connect(broken.pair.primary.dsn, autocommit=True))
            left -= 1
        except psycopg.OperationalError:
            watcher.execute(END_GATEWAYS)


MOST_CONNECTIONS = 40
END_GATEWAYS = "SELECT pg_terminate_backend(pid, 1000) FROM pg_stat_activity WHERE usename = 'gateway'"


@pytest.mark.proof
@pytest.mark.fault("F38")
def test_damage(trial: Trial, broken: BrokenPair) -> None:
    """
    Damage a body: its records are set aside and counted. Damage a commit's row: the recount reports it once.
    Damage its ids: the next start skips them. All other records are delivered.
    """
    site, damaged_calls = broken.site, 0
    for _ in trial.rounds(short=1, full=5):
        with broken.row(trial, load=False):
            # the upstream refuses, so that no gateway reads the damaged records
            site.upstream.behave(refuse(503))
            body, terms, ids = [sent_alone(broken) for _ in range(3)]
            broken.is_booked(ids.commit)
            for number in range(len(site.gateways)):
                site.kill(number)
            damage(broken, "entries", "body", f"first = {body.first}")
            damage(broken, "commits", "terms", f"id = {terms.commit}")
            damage(broken, "commits", "ids", f"id = {ids.commit}")
            site.start()
            site.upstream.behave(ACCEPT)
            broken.healed()
            site.delivers(terms.sent, ids.sent)
            books = site.gateways[0].json("spool", "verify", code=1)
            assert f"commit {terms.commit}: its row is damaged" == books["imbalances"][0]
            damaged_calls += len(body.sent.calls)
            assert damaged_calls == books["topics"][AI_TELEMETRY]["damaged"]
            for one in site.gateways:
                says_so = partial(is_said, one, "the ids of a commit are damaged")
                wait_until(says_so, "the log names them")
            # by now the gateways have set the damaged records aside
            assert site.gateways[1].json("spool", "verify")["balanced"]
            for name in body.sent.calls:
                del site.oracle.acknowledged[name]
                site.damaged.append(site.oracle.calls[name])


def is_said(gateway: Tollhouse, words: str) -> bool:
    return any(words in line for line in gateway.log)


@dataclass(frozen=True)
class SentAlone:
    """A request whose calls have their own commit and entry."""

    sent: SentRequest
    first: int
    commit: int


def sent_alone(broken: BrokenPair) -> SentAlone:
    sent = broken.site.oracle.make(5)
    taken = partial(broken.site.oracle.is_taken, broken.site.gateways[0].url, sent)
    wait_until(taken, "a request is taken")
    ((first, commit),) = broken.pair.primary.execute(NEWEST)
    assert isinstance(first, int) and isinstance(commit, int)
    return SentAlone(sent, first, commit)


NEWEST = f"""
    SELECT (SELECT max(first) FROM gateways.entries WHERE topic = {topic_code(AI_TELEMETRY)}),
           (SELECT max(id) FROM gateways.commits WHERE octet_length(ids) > 0)"""


def damage(broken: BrokenPair, table: str, column: str, condition: str) -> None:
    """Invert the bits of one byte. A second call restores them."""
    broken.pair.primary.execute(
        f"UPDATE gateways.{table} SET {column} = set_byte({column}, octet_length({column}) / 2,"
        f" get_byte({column}, octet_length({column}) / 2) # 255) WHERE {condition}"
    )


@pytest.mark.proof
@pytest.mark.fault("F40")
def test_old_primary_that_resumes_stores_nothing(trial: Trial, broken: BrokenPair) -> None:
    """
    The old primary freezes, the standby is promoted, and the old primary resumes. A gateway that reaches only
    the old primary stores nothing, and no other gateway stores anything there. This row is last, because it
    cannot be undone.
    """
    pair, site = broken.pair, broken.site
    list(trial.rounds(short=1, full=1))
    alone = site.gateway("alone", dsn=pair.primary.dsn)
    alone.start()
    try:
        with confirming(pair.standby), broken.row(trial):
            pair.primary.freeze()
            pair.promote()
            pair.standby.change(synchronous_standby_names=SUCCESSOR)
            broken.healed()
            print(f"on the promoted standby after {site.passes():.1f} s")
            pair.primary.thaw()
            for _ in range(2):
                site.refuses(alone)
                broken.keeps_on(200)
    finally:
        alone.stop(signal.SIGKILL, code=None)


@pytest.mark.proof
@pytest.mark.fault("F39")
def test_pooler_killed(trial: Trial, cluster: Server, tmp_path: Path) -> None:
    """A killed and restarted pgbouncer in transaction mode looks like a restarted database."""
    rounds = list(trial.rounds(short=1, full=10))
    with folder() as place, ExitStack() as stack:
        pooler = RestartedPooler(place, cluster)
        stack.callback(pooler.kill)
        pooler.start()
        site = SharedSite(
            tmp_path / "site",
            dsn=pooler.dsn,
            schema="pooled",
            rng=rounds[0],
            count=1,
            spool=SPOOL,
            storage=POOLED,
        )
        stack.callback(site.close)
        site.start()
        broken = BrokenDatabase(site)
        for _ in rounds:
            with broken.row(trial):
                pooler.kill()
                broken.nothing_is_kept()
                pooler.start()
                broken.healed()


POOLED = 'pooler = "transaction"'


@pytest.mark.proof
@pytest.mark.fault("F41")
def test_records_lost_to_a_lagging_standby_are_reported(trial: Trial, tmp_path: Path) -> None:
    """
    Records that the standby had not received are lost. The gateway that acknowledged them reports it in its
    log, and so does `tollhouse doctor`.
    """
    for rng in trial.rounds(short=1, full=1):
        with folder() as place, ExitStack() as stack:
            pair = Pair(place, synchronous_standby_names="")
            stack.callback(pair.stop)
            pair.start()
            site = SharedSite(tmp_path / "site", dsn=pair.dsn, schema="gateways", rng=rng, count=1)
            stack.callback(site.close)
            site.start()
            # wait long enough for every answer, because a repeated request would be another commit
            site.oracle.patience_s = ANSWERED_S
            site.passes()
            pair.catch_up()
            pair.standby.stop()
            # the upstream refuses; otherwise it would have the records that the database lost
            site.upstream.behave(refuse(503))
            tail = [site.oracle.make(5) for _ in range(20)]
            for sent in tail:
                assert site.oracle.is_taken(site.gateways[0].url, sent)
            began = time.monotonic()
            pair.primary.stop()
            pair.standby.start()
            pair.promote()
            site.upstream.behave(ACCEPT)
            site.passes()
            took = time.monotonic() - began
            verdict = site.judge()
            assert verdict.lost == {name for sent in tail for name in sent.calls}
            findings = [one["words"] for one in site.gateways[0].json("doctor", code=1)["doctor"]["found"]]
            (lost,) = [words for words in findings if "are missing from the database" in words]
            print(lost)
            assert "20 commits with 100 new records" in lost
            says_so = partial(is_said, site.gateways[0], "20 commits with 100 new records")
            wait_until(says_so, "the log says so")
            trial.count(acknowledged=verdict.acknowledged, lost=len(verdict.lost),
                        duplicates=len(verdict.duplicates), recovery_s=took)  # fmt: skip
            verdict.lost.clear()
            verdict.check()


@pytest.mark.proof
@pytest.mark.fault("F37")
def test_disk_full(trial: Trial, cluster: Server, tmp_path: Path) -> None:
    """
    The database files are on a small disk. Senders get 503 with Retry-After, then the gateways
    continue without help.
    """
    with folder() as place, ExitStack() as stack:
        disk = stack.enter_context(small_disk(place / "disk", mib=64))
        if name := user():
            shutil.chown(disk, name)
        cluster.execute(f"CREATE TABLESPACE small LOCATION '{disk}'")
        stack.callback(cluster.execute, "DROP TABLESPACE small")
        cluster.execute("CREATE DATABASE small TABLESPACE small")
        # statements of a killed gateway may still run
        stack.callback(cluster.execute, "DROP DATABASE small WITH (FORCE)")
        dsn = cluster.dsn.replace("dbname=postgres", "dbname=small")
        rounds = list(trial.rounds(short=1, full=5))
        site = SharedSite(tmp_path / "site", dsn=dsn, schema="gateways", rng=rounds[0], count=1, spool=SPOOL)
        stack.callback(site.close)
        site.start()
        broken = BrokenDatabase(site)
        for _ in rounds:
            with broken.row(trial):
                filler = fill(disk)
                # records that fit into existing pages are still stored
                wait_until(lambda: site.oracle.answers["503"] > 50, "senders are refused")
                wait_until(lambda: any("is full" in one for one in site.reasons()), "a reason")
                filler.unlink()
                broken.healed()
