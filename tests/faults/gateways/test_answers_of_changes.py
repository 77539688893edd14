"""
If the gateway confirmed a deletion to an operator while no standby was reachable, the deletion survives a takeover.
"""

from __future__ import annotations

import itertools
import json
import random
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import quote

import pytest

from gateway.core.paths import AS, OPERATOR_API, socket_path
from tests.acceptance.conftest import Tollhouse, UnixConnection
from tests.faults.gateways.shared_site import SharedSite
from tests.faults.scenarios import Trial
from tests.rounds import IS_LONG
from tests.spool.postgres_cluster import STANDBY, Pair, Server, folder
from tests.waiting import wait_until

KINDS = 3  # number of object kinds to delete from per round; few, because each deletion waits for a second
FLAPS_S = (0.0, 0.001, 0.005, 0.02)  # how long synchronous_standby_names is empty
# how long it names a standby before the next change; a deletion waits ten times as long
NAMED_S = 0.0 if IS_LONG else 0.1

# the database table and the key column of each kind of object
ROWS = (("keys", "name"), ("devices", "id"), ("connections", "id"), ("documents", "id"))

Way = Callable[[Pair, random.Random], AbstractContextManager[None]]


@pytest.mark.proof
@pytest.mark.proves("a deleted key works again")
@pytest.mark.fault("A10")
@pytest.mark.timeout(7200)
def test_deletion_response_matches_the_state_after_a_takeover(trial: Trial, tmp_path: Path) -> None:
    """
    A deletion's response stands after a takeover. No standby confirms anything: commits wait for it, or no
    standby is named, or both in turn. Each deletion is sent twice, to either gateway. Each response is 503 or
    matches the state after the takeover. In every second round the standby first catches up, and every
    deletion gets its final response.
    """
    ways: Iterator[Way] = itertools.cycle((flapping, emptied, lagging))
    for place, rng in enumerate(trial.rounds(short=2, full=50)):
        way = next(ways)
        with ExitStack() as stack:
            pair = stack.enter_context(new_pair())
            site = SharedSite(
                tmp_path / f"site-{place}", dsn=pair.dsn, schema="gateways", rng=rng, count=2,
                durability="replicated", commit_timeout="1s",
            )  # fmt: skip
            stack.callback(site.close)
            site.start()
            deletions = Deletions(site.gateways, rng)
            pair.catch_up()
            with way(pair, rng):
                deletions.ask()
                deletions.ask()
            if rng.random() < 0.5:
                pair.primary.change(synchronous_standby_names=STANDBY)
                pair.standby.start()
                deletions.ask_until_answered()
                pair.primary.stop()
            else:
                pair.primary.stop()
                pair.standby.start()
            pair.promote()
            undone = deletions.undone(pair.standby)
            print(f"{way.__name__}: answered {deletions.answered}, undone {undone}")
            trial.count(acknowledged=len(deletions.answered), lost=len(undone))
            assert {200, 404} >= set(deletions.answered.values())
            assert [] == undone


@contextmanager
def new_pair() -> Iterator[Pair]:
    with folder() as place:
        pair = Pair(place)
        pair.start()
        try:
            yield pair
        finally:
            pair.stop()


@contextmanager
def lagging(pair: Pair, _: random.Random) -> Iterator[None]:
    """Stop the standby that commits wait for."""
    pair.standby.stop()
    yield


@contextmanager
def emptied(pair: Pair, _: random.Random) -> Iterator[None]:
    """Stop the standby that commits wait for; later clear `synchronous_standby_names`."""
    pair.standby.stop()
    timer = threading.Timer(KINDS / 2, lambda: pair.primary.change(synchronous_standby_names=""))
    timer.start()
    yield
    timer.join()


@contextmanager
def flapping(pair: Pair, rng: random.Random) -> Iterator[None]:
    """Repeatedly clear `synchronous_standby_names` for some milliseconds."""
    pair.standby.stop()
    over, pauses = threading.Event(), random.Random(rng.random())

    def flap() -> None:
        while not over.is_set():
            pair.primary.change(synchronous_standby_names="")
            time.sleep(pauses.choice(FLAPS_S))
            pair.primary.change(synchronous_standby_names=STANDBY)
            over.wait(NAMED_S)

    thread = threading.Thread(target=flap)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


class Thing(NamedTuple):
    """An object that can be deleted. `confirm` is the text that the deletion requires."""

    folder: str
    id: str
    confirm: str = ""

    @property
    def path(self) -> str:
        return f"{self.folder}/{quote(self.id)}"


class Deletions:
    """Objects that two gateways know, and the responses to their deletions."""

    def __init__(self, gateways: list[Tollhouse], rng: random.Random) -> None:
        self._gateways = gateways
        self._rng = rng
        all_things = things(gateways[0])
        self._things = {name: all_things[name] for name in rng.sample(sorted(all_things), KINDS)}
        # the response's status per deleted object; a 503 does not count as a response
        self.answered: dict[str, int] = {}
        wait_until(self._are_known, "both gateways know all of it")

    def _are_known(self) -> bool:
        return all(
            ask(one, "GET", thing.path)[0] == 200 for one in self._gateways for thing in self._things.values()
        )

    def ask(self) -> None:
        """Repeat each deletion without a final response, on a random gateway."""
        for name in self._rng.sample(
            sorted(self._things.keys() - self.answered.keys()), KINDS - len(self.answered)
        ):
            thing = self._things[name]
            query = f"?confirm={quote(thing.confirm)}" if thing.confirm else ""
            status, _ = ask(self._rng.choice(self._gateways), "DELETE", thing.path + query)
            if status != 503:
                self.answered[name] = status

    def ask_until_answered(self) -> None:
        wait_until(self._ask_is_answered, "each deletion is answered")

    def _ask_is_answered(self) -> bool:
        self.ask()
        return len(self.answered) == KINDS

    def undone(self, server: Server) -> list[str]:
        """Return the objects that the server still has although their deletion was confirmed."""
        kept = {
            id for table, column in ROWS for (id,) in server.execute(f"SELECT {column} FROM gateways.{table}")
        }
        return [name for name in self.answered if self._things[name].id in kept]


def things(gateway: Tollhouse) -> dict[str, Thing]:
    """Create one object of each kind."""

    def make(path: str, **given: object) -> Any:
        status, answer = ask(gateway, "POST", path, given)
        assert status == 201, answer
        return answer

    make("/keys", name="the key", use_cases=["Send AI Telemetry"])
    make("/devices", id="device")
    filtered = {"principal_dimension": "model", "filter": {}}
    under = make("/views", name="budgeted", **filtered)["view"]["id"]
    view = make("/views", name="doomed", **filtered)["view"]["id"]
    budget = make("/budgets", name="doomed", view={"id": under}, default_amount="5")["budget"]["id"]
    role = make("/roles", name="doomed", data_access="full")["role"]["id"]
    make("/connections", connection_id="connection", name="doomed", cloud_provider="x")
    make("/allocation/namespaces", id="namespace", name="doomed")
    return {
        "key": Thing("/keys", "the key", "the key"),
        "device": Thing("/devices", "device", "device"),
        "view": Thing("/views", view),
        "budget": Thing("/budgets", budget, "doomed"),
        "role": Thing("/roles", role),
        "connection": Thing("/connections", "connection", "connection"),
        "namespace": Thing("/allocation/namespaces", "namespace"),
    }


def ask(gateway: Tollhouse, method: str, path: str, body: object = None) -> tuple[int, Any]:
    """Send a request on the gateway's socket."""
    connection = UnixConnection(socket_path(gateway.data))
    content = None if body is None else json.dumps(body)
    try:
        headers = {AS: "test@example.com", "Content-Type": "application/json"}
        connection.request(method, OPERATOR_API + path, body=content, headers=headers)
        answer = connection.getresponse()
        payload = answer.read()
    finally:
        connection.close()
    return answer.status, json.loads(payload) if payload else None
