"""kill -9 while calls and links arrive: each acknowledged link is used, and the sums are those of the calls."""

from __future__ import annotations

import json
import random
import threading
import time
from collections import Counter
from typing import Any

import urllib3

from spool.installation import FILE
from spool.ledger.work import WorkUnitHasher
from spool.registry.scopes import CREATE_EVENT
from tests.acceptance.conftest import Tollhouse
from tests.acceptance.payloads import post, request, span
from tests.rounds import IS_LONG
from tests.waiting import wait_until

KILLS = 30 if IS_LONG else 3
SESSIONS, PULL_REQUESTS = 30, 4


class Sender:
    """Sends calls of sessions, some of which state a pull request, and links of the sessions."""

    def __init__(self, seed: int, unit_hasher: WorkUnitHasher) -> None:
        self._digests = unit_hasher
        self._random = random.Random(seed)
        self._count = 0
        self.linked: dict[str, str] = {}  # acknowledged links

    def run(self, url: str, key: str, events_key: str, stop: threading.Event) -> None:
        """Send until `stop` is set or the server is gone."""
        while not stop.is_set():
            session = f"session-{self._random.randrange(SESSIONS)}"
            try:
                if self._random.random() < 0.2:
                    self._link(url, events_key, session)
                else:
                    self._call(url, key, session)
            except urllib3.exceptions.HTTPError:
                return

    def _call(self, url: str, key: str, session: str) -> None:
        self._count += 1
        own: Any = {"vcs__change__id": "own"} if self._random.random() < 0.2 else {}
        call = span(f"chatcmpl-{self._count:032d}", gen_ai__conversation__id=session, **own)
        post(url, request([call]), key)

    def _link(self, url: str, key: str, session: str) -> None:
        pull_request = f"pr-{int(session.rpartition('-')[2]) % PULL_REQUESTS}"
        event = {"type": "tollhouse.work.link", "data": {"session": session, "pull_request": pull_request}}
        answer = post(url, json.dumps(event).encode(), key, "/v1/events")
        if answer.status == 200:
            self.linked[self._digests.digest_of_id("session", session)] = pull_request


def links(tollhouse: Tollhouse) -> dict[str, str]:
    rows = tollhouse.asked("/work/links?limit=100")["work_links"]
    return {row["session"]: row["pull_request"] for row in rows}


def calls_by_pull_request(tollhouse: Tollhouse) -> dict[str | None, int]:
    rows = tollhouse.asked("/report?by=pull_request&show=calls&range=last_7d")["rows"]
    return {row["pull_request"]: row["calls"] for row in rows}


def by_hand(
    records: list[dict[str, Any]], links: dict[str, str], unit_hasher: WorkUnitHasher
) -> dict[str | None, int]:
    return dict(
        Counter(
            record["tags"].get("pull_request")
            or links.get(unit_hasher.digest_of_id("session", record["session"]))
            for record in records
        )
    )


def test_acknowledged_links_survive_kill_9(installations: Any) -> None:
    tollhouse: Tollhouse = installations()
    key, events_key = tollhouse.key("calls"), tollhouse.key("links", "--scope", CREATE_EVENT)
    digests = WorkUnitHasher((tollhouse.data / FILE).read_bytes())
    sender, chance = Sender(3, digests), random.Random(3)
    for _ in range(KILLS):
        stop = threading.Event()
        url = tollhouse.start()
        assert sender.linked.items() <= links(tollhouse).items()
        thread = threading.Thread(target=sender.run, args=(url, key, events_key, stop))
        thread.start()
        before = len(sender.linked)
        wait_until(lambda: len(sender.linked) >= min(before + 3, SESSIONS), "links")  # noqa: B023 - called here
        time.sleep(chance.uniform(0, 0.5))
        tollhouse.kill()
        stop.set()
        thread.join()
    tollhouse.start()
    stored = links(tollhouse)
    assert sender.linked.items() <= stored.items()
    tollhouse.wait_until_drained()
    expected = by_hand(tollhouse.records(), stored, digests)
    assert {"own", "pr-0"} <= expected.keys()
    wait_until(lambda: calls_by_pull_request(tollhouse) == expected, "the sums")
