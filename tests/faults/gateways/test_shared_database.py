"""
The failure table of several gateways on one PostgreSQL, row by row, with real processes: a primary, its
synchronous standby and two gateways, broken and healed under load.
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

from spool.postgres.log.entries import code
from spool.record import AI_TELEMETRY
from tests.acceptance.conftest import Tollhouse, wait_for
from tests.faults.gateways.broken_database import ANSWERED_S, SPOOL, BrokenDatabase, BrokenPair
from tests.faults.gateways.restarted_pooler import RestartedPooler
from tests.faults.gateways.shared_site import SharedSite
from tests.faults.oracle import SentRequest
from tests.faults.scenarios import LONG, Trial
from tests.faults.upstream import ACCEPT, refuse
from tests.small_disk import fill, small_disk
from tests.spool.postgres_cluster import STANDBY, SUCCESSOR, Pair, Server, confirming, folder, user
from tests.spool.postgres_cluster import cluster as cluster

pytestmark = pytest.mark.timeout(1800)

CALLS_BESIDE = 2000 if LONG else 400  # an open transaction


@pytest.fixture(scope="module")
def broken(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokenPair]:
    """One for all rows: it takes seconds to make."""
    with folder() as place, ExitStack() as stack:
        pair = Pair(place, max_connections=str(MOST_CONNECTIONS))
        stack.callback(pair.stop)
        pair.start()
        made = BrokenPair(pair, tmp_path_factory.mktemp("failure") / "site")
        stack.callback(made.site.close)
        yield made


@pytest.mark.fault("F31")
def test_database_down(trial: Trial, broken: BrokenPair) -> None:
    """Nothing is kept, and every gateway says so; they connect again by themselves."""
    stop_and_start(trial, broken, broken.pair.primary)


def stop_and_start(trial: Trial, broken: BrokenPair, server: Server) -> None:
    for _ in trial.rounds(short=1, full=10):
        with broken.row(trial):
            server.stop()
            broken.nothing_is_kept()
            server.start()
            broken.healed()


@pytest.mark.fault("F32")
def test_database_stands_still(trial: Trial, broken: BrokenPair) -> None:
    """The machine under it takes connections and answers for it, so that only a clock of ours ends the wait."""
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


@pytest.mark.fault("F33")
def test_standby_gone(trial: Trial, broken: BrokenPair) -> None:
    """Commits wait for it, then senders hear 503: what was kept nevertheless is known when they repeat it."""
    stop_and_start(trial, broken, broken.pair.standby)


@pytest.mark.fault("F34")
def test_no_standby_is_named(trial: Trial, broken: BrokenPair) -> None:
    """Commits would wait for nobody then: none is made until a standby is named again."""
    for _ in trial.rounds(short=1, full=10):
        with broken.row(trial):
            broken.pair.primary.change(synchronous_standby_names="")
            wait_for(
                lambda: any("the standby is gone" in one for one in broken.site.reasons()),
                ANSWERED_S,
                "a reason",
            )
            broken.nothing_is_kept()
            broken.pair.primary.change(synchronous_standby_names=STANDBY)
            broken.healed()


@pytest.mark.fault("F35")
def test_a_transaction_is_left_open(trial: Trial, broken: BrokenPair) -> None:
    """Appends go on beside it, and gateways show how old it is."""
    for _ in trial.rounds(short=1, full=3):
        with broken.row(trial), psycopg.connect(broken.pair.primary.dsn) as other:
            other.execute("SELECT pg_current_xact_id(), count(*) FROM gateways.commits")
            broken.keeps_on(CALLS_BESIDE)
            wait_for(lambda: oldest_transaction_s(broken) > 1.0, ANSWERED_S, "its age is shown")
            broken.healed()


def oldest_transaction_s(broken: BrokenPair) -> float:
    for line in broken.site.metrics():
        name, _, value = line.rpartition(" ")
        if name == "tollhouse_postgres_oldest_transaction_seconds":
            return float(value)
    return 0.0


@pytest.mark.fault("F36")
def test_too_many_connections(trial: Trial, broken: BrokenPair) -> None:
    """Others have all that the server gives: gateways say why they keep nothing, and go on when some are free."""
    for _ in trial.rounds(short=1, full=10):
        with broken.row(trial), ExitStack() as others:
            take_all_connections(others, broken)
            wait_for(lambda: says_too_many(broken), ANSWERED_S, "a reason")
            broken.nothing_is_kept()
            broken.healed()


def says_too_many(broken: BrokenPair) -> bool:
    """The server's words for a role without privileges, while it has slots for others and when it has none."""
    words = ("connection slots", "too many clients")
    return any(one in reason for one in words for reason in broken.site.reasons())


def take_all_connections(others: ExitStack, broken: BrokenPair) -> None:
    """Takes what is left and ends the gateways' own, until it has all: each of those is tried for by them, too."""
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


@pytest.mark.fault("F38")
def test_damage(trial: Trial, broken: BrokenPair) -> None:
    """
    Of a body: its records are set aside and counted. Of a commit's terms: the recount names it, once. Of its
    ids: a start leaves them out. What is beside them is delivered.
    """
    site, damaged_calls = broken.site, 0
    for _ in trial.rounds(short=1, full=5):
        with broken.row(trial, load=False):
            site.upstream.behave(refuse(503))  # so that nobody has read what is damaged
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
                wait_for(says_so, ANSWERED_S, "the log names them")
            assert site.gateways[1].json("spool", "verify")["balanced"]  # it was set aside, for every gateway
            for name in body.sent.calls:
                del site.oracle.acknowledged[name]
                site.damaged.append(site.oracle.calls[name])


def is_said(gateway: Tollhouse, words: str) -> bool:
    return any(words in line for line in gateway.log)


@dataclass(frozen=True)
class SentAlone:
    """A request whose calls are a commit and an entry of their own."""

    sent: SentRequest
    first: int
    commit: int


def sent_alone(broken: BrokenPair) -> SentAlone:
    sent = broken.site.oracle.make(5)
    taken = partial(broken.site.oracle.is_taken, broken.site.gateways[0].url, sent)
    wait_for(taken, ANSWERED_S, "a request is taken")
    ((first, commit),) = broken.pair.primary.execute(NEWEST)
    assert isinstance(first, int) and isinstance(commit, int)
    return SentAlone(sent, first, commit)


NEWEST = f"""
    SELECT (SELECT max(first) FROM gateways.entries WHERE topic = {code(AI_TELEMETRY)}),
           (SELECT max(id) FROM gateways.commits WHERE octet_length(ids) > 0)"""


def damage(broken: BrokenPair, table: str, column: str, which: str) -> None:
    """Turns the bits of a byte over; twice is not at all."""
    broken.pair.primary.execute(
        f"UPDATE gateways.{table} SET {column} = set_byte({column}, octet_length({column}) / 2,"
        f" get_byte({column}, octet_length({column}) / 2) # 255) WHERE {which}"
    )


@pytest.mark.fault("F40")
def test_the_old_primary_goes_on(trial: Trial, broken: BrokenPair) -> None:
    """
    It stands still, the standby is promoted, then it goes on: who reaches only the old one keeps nothing;
    others keep nothing there. The last row, because there is no way back.
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


@pytest.mark.fault("F39")
def test_pooler_killed(trial: Trial, cluster: Server, tmp_path: Path) -> None:
    """Behind pgbouncer in its mode transaction: it is killed and comes again, as if the database had."""
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


@pytest.mark.fault("F41")
def test_a_standby_that_lags_takes_over(trial: Trial, tmp_path: Path) -> None:
    """
    What it had not received is lost: the gateway that acknowledged it says so in its log, and `tollhouse doctor`.
    """
    for rng in trial.rounds(short=1, full=1):
        with folder() as place, ExitStack() as stack:
            pair = Pair(place, synchronous_standby_names="")
            stack.callback(pair.stop)
            pair.start()
            site = SharedSite(tmp_path / "site", dsn=pair.dsn, schema="gateways", rng=rng, count=1)
            stack.callback(site.close)
            site.start()
            site.oracle.patience_s = ANSWERED_S  # a repeat would be one more commit
            site.passes()
            pair.catch_up()
            pair.standby.stop()
            site.upstream.behave(refuse(503))  # else it would have what the database lost
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
            told = [one["words"] for one in site.gateways[0].json("doctor", code=1)["doctor"]["found"]]
            (lost,) = [words for words in told if "are missing from the database" in words]
            print(lost)
            assert "20 commits with 100 new records" in lost
            says_so = partial(is_said, site.gateways[0], "20 commits with 100 new records")
            wait_for(says_so, ANSWERED_S, "the log says so")
            trial.count(acknowledged=verdict.acknowledged, lost=len(verdict.lost),
                        duplicates=len(verdict.duplicates), recovery_s=took)  # fmt: skip
            verdict.lost.clear()
            verdict.check()


@pytest.mark.fault("F37")
def test_disk_full(trial: Trial, cluster: Server, tmp_path: Path) -> None:
    """Of a database whose files have a disk of their own: 503 and when to come again, then it goes on by itself."""
    with folder() as place, ExitStack() as stack:
        disk = stack.enter_context(small_disk(place / "disk", mib=64))
        if name := user():
            shutil.chown(disk, name)
        cluster.execute(f"CREATE TABLESPACE small LOCATION '{disk}'")
        stack.callback(cluster.execute, "DROP TABLESPACE small")
        cluster.execute("CREATE DATABASE small TABLESPACE small")
        # A killed gateway's statements may still run.
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
                # What has room in a page that is there is kept as ever.
                wait_for(lambda: site.oracle.answers["503"] > 50, ANSWERED_S, "senders are refused")
                wait_for(lambda: any("is full" in one for one in site.reasons()), ANSWERED_S, "a reason")
                filler.unlink()
                broken.healed()
