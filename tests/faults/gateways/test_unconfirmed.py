"""
The standby receives nothing: commits wait for it, or no standby is named, or both in turn. Meanwhile nothing
is acknowledged and nothing is delivered, and after a takeover the upstream has each call once.
"""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from functools import partial
from pathlib import Path

import pytest

from tests.faults.gateways.broken_database import SPOOL
from tests.faults.gateways.shared_site import SharedSite
from tests.faults.gateways.test_answers_of_changes import emptied, flapping, lagging, new_pair
from tests.faults.scenarios import Trial
from tests.faults.upstream import ACCEPT, refuse
from tests.spool.postgres_cluster import SUCCESSOR, Pair, confirming
from tests.waiting import wait_until

pytestmark = pytest.mark.timeout(7200)

CALLS = 1500
MANY = 200  # number of calls that the test sends
# maximum number of delivered records: four deliveries of 100 records that the standby had received, which may
# be sent
IN_HAND = 400

Way = Callable[[Pair, random.Random], AbstractContextManager[None]]
WAYS: tuple[Way, ...] = (flapping, emptied, lagging)


@contextmanager
def sites(
    trial: Trial, tmp_path: Path, *, short: int
) -> Iterator[Iterator[tuple[SharedSite, Pair, random.Random, Way]]]:
    """Run two gateways on a pair for each round. Each round ends with a takeover and a verdict."""

    def rounds() -> Iterator[tuple[SharedSite, Pair, random.Random, Way]]:
        for place, (rng, way) in enumerate(
            zip(trial.rounds(short=short, full=50), itertools.cycle(WAYS), strict=False)
        ):
            with ExitStack() as stack:
                pair = stack.enter_context(new_pair())
                site = SharedSite(
                    tmp_path / f"site-{place}", dsn=pair.dsn, schema="gateways", rng=rng, count=2,
                    durability="replicated", commit_timeout="1s", spool=SPOOL,
                )  # fmt: skip
                stack.callback(site.close)
                site.start()
                yield site, pair, rng, way
                pair.primary.stop()
                pair.standby.start()  # the standby lacks the commits that were made after it stopped
                stack.enter_context(confirming(pair.standby))
                pair.promote()
                pair.standby.change(synchronous_standby_names=SUCCESSOR)
                took = site.passes()
                site.repeat()
                wait_until(partial(is_whole, site), "every gateway is ready")
                verdict = site.judge()
                print(f"{way.__name__}: {verdict.acknowledged} acknowledged, {len(verdict.duplicates)} twice")
                trial.count(
                    acknowledged=verdict.acknowledged, lost=len(verdict.lost), duplicates=len(verdict.duplicates),
                    recovery_s=took,
                )  # fmt: skip
                verdict.check()

    yield rounds()


def is_whole(site: SharedSite) -> bool:
    return all(site.is_ready())


def was_tried(site: SharedSite) -> bool:
    return site.upstream.attempts > 4


def waits(site: SharedSite) -> bool:
    """Return whether some gateway reports a route that waits."""
    reasons = [route["reason"] or "" for one in site.gateways for route in one.asked("/status")["routes"]]
    return any(reason.startswith("waits: ") for reason in reasons)


@pytest.mark.proof
@pytest.mark.proves("deliveries that exist on one machine")
@pytest.mark.fault("A2")
def test_nothing_leaves_that_may_be_on_one_machine(trial: Trial, tmp_path: Path) -> None:
    """The upstream recovers while no standby confirms anything. Routes wait, and nothing is sent twice."""
    with sites(trial, tmp_path, short=2) as rounds:
        for site, pair, rng, way in rounds:
            site.upstream.behave(refuse(503))
            site.oracle.send_all(site.gateways[0].url, CALLS)
            wait_until(partial(was_tried, site), "deliveries were cut")
            pair.catch_up()
            with way(pair, rng):
                site.refuses()
                wait_until(partial(waits, site), "a route says that it waits")
                site.upstream.behave(ACCEPT)
                for _ in range(3):
                    site.refuses()
                assert len(site.upstream.taken) <= IN_HAND


@pytest.mark.proof
@pytest.mark.proves("standbys named for milliseconds")
@pytest.mark.fault("A9")
def test_nothing_is_acknowledged_that_is_on_one_machine(trial: Trial, tmp_path: Path) -> None:
    """Three senders send all the time. Each sender is refused until the standby has taken over."""
    with sites(trial, tmp_path, short=2) as rounds:
        for site, pair, rng, way in rounds:
            with site.oracle.balanced(senders=3):
                wait_until(partial(has_many, site), "senders are answered")
                with way(pair, rng):
                    refused_all_the_time(site)


def has_many(site: SharedSite) -> bool:
    return len(site.oracle.acknowledged) > MANY


def refused_all_the_time(site: SharedSite) -> None:
    site.oracle.wait_until_refused()
    acknowledged = len(site.oracle.acknowledged)
    for _ in range(5):
        site.oracle.wait_until_refused()
    assert acknowledged == len(site.oracle.acknowledged)
