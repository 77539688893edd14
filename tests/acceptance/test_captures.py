"""
Replay captured requests of real clients in several orders, with a restart and a kill between them. The result
always equals the provider's journal.

The captures of every family (tests/clients/captures) go to one Tollhouse, each family under its own key,
whose label identifies the family. The record file, the ledger and the upstream's records are compared
with the journal.
"""

from __future__ import annotations

import itertools
import os
import random
import shutil
import signal
import threading
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
import urllib3

from tests.acceptance.captured_upstream import SPAN_TOKENS, CountingUpstream
from tests.acceptance.conftest import SEND_AI_TELEMETRY, Tollhouse
from tests.clients.capture import SentRequest, kept
from tests.clients.journal import Call
from tests.rounds import IS_LONG, as_proof
from tests.waiting import wait_until

pytestmark = pytest.mark.timeout(1200)  # the first test of an order waits for the whole replay

CAPTURES = kept()
FAMILIES = sorted({capture.family for capture in CAPTURES})
PRICED = sorted({capture.family for capture in CAPTURES if capture.cost is not None})
MILLIONTH = Decimal("0.000001")
SEED = int(os.environ.get("TOLLHOUSE_ORDER_SEED", "1")) or random.SystemRandom().randrange(1, 2**31)
COUNTER_WAIT_S = 2.0
# While sending, nothing closes, because later reports depend on order by design. The stop closes everything.
# After a start, counters wait until the calls that were open before it are known.
WHILE_SENDING, AFTERWARDS = "10h", "0s"
CONFIG = """
[server]
listen = "127.0.0.1:0"
grpc_listen = ""
[spool]
hold = "{hold}"
counter_wait = "2s"
[upstream]
base_url = "{upstream}"
[[upstream.keys]]
name = "telemetry"
secret_file = "upstream.key"
use_cases = ["Send AI Telemetry"]
[[destinations]]
name = "archive"
type = "ndjson"
path = "records.ndjson"
"""
TOKENS = ("input_tokens", "output_tokens", "cache_read_tokens", "cache_write_tokens", "reasoning_tokens")

Posted = tuple[str, SentRequest]  # a request that was sent: the product family and the request
Counted = tuple[str, ...]  # the outcome and the tokens of one call; an unknown number of tokens is 0


# -- orders --------------------------------------------------------------------------------------------------


def captured() -> list[Posted]:
    """Interleave the requests of all runs by the time since the start of their run."""
    requests = [(one.at, capture.family, one) for capture in CAPTURES for one in capture.requests]
    return [(family, one) for _, family, one in sorted(requests, key=lambda row: row[0])]


def backwards() -> list[Posted]:
    return captured()[::-1]


def twice() -> list[Posted]:
    return [posted for posted in captured() for _ in range(2)]


def shuffled() -> list[Posted]:
    """Shuffle the requests. A new capture does not change the order of the others."""
    placed = []
    for capture in CAPTURES:
        chance = random.Random(f"{SEED} {capture.family} {capture.run}")
        placed += [(chance.random(), capture.family, request) for request in capture.requests]
    return [(family, request) for _, family, request in sorted(placed, key=lambda row: row[0])]


def is_counter(posted: Posted) -> bool:
    return posted[1].path.endswith("/v1/metrics")


@dataclass(frozen=True)
class Order:
    name: str
    requests: Callable[[], list[Posted]]
    # how the server ends, by the number of tenths of the requests that were sent before the end
    ends: Mapping[int, int] = field(default_factory=dict)
    counters_first: bool = False  # whether counters are sent, and decided, before everything else


# In `make test`, each order has two properties, because a replay takes six seconds of processor time.
LONG_ORDERS = (
    Order("captured", captured),
    Order("shuffled", shuffled),
    Order("backwards", backwards),
    Order("twice", twice),
)
ORDERS = (
    *(LONG_ORDERS if IS_LONG else ()),
    as_proof(Order("backwards, twice", lambda: twice()[::-1])),
    as_proof(Order("counters decided before their calls come", captured, counters_first=True)),
    Order("stopped and killed", shuffled, ends={3: signal.SIGTERM, 6: signal.SIGKILL}),
)


# -- one run -------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Replayed:
    """Results of a replay by product family."""

    records: Mapping[str, list[dict[str, Any]]]
    ledger: Mapping[str, dict[str, Any]]
    spans: Mapping[str, list[dict[str, Any]]]
    counters: Mapping[str, dict[tuple[str, str], Any]]


@pytest.fixture(scope="module")
def prepared(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, str]]:
    """Create a data directory with a key per family; return it with the secrets."""
    tollhouse = Tollhouse(
        tmp_path_factory.mktemp("prepared"), CONFIG.format(upstream="http://127.0.0.1:1", hold=WHILE_SENDING)
    )
    (tollhouse.directory / "upstream.key").write_text("upstream-secret\n")
    use_case = ("--use-case", SEND_AI_TELEMETRY)
    tollhouse.start()  # commands are faster if a server runs
    keys = {family: tollhouse.key(family, *use_case, "--label", f"team={family}") for family in FAMILIES}
    tollhouse.stop()
    return tollhouse.directory, keys


@pytest.fixture(scope="module", params=ORDERS, ids=lambda order: order.name)
def replayed(
    request: pytest.FixtureRequest,
    prepared: tuple[Path, dict[str, str]],
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[Replayed]:
    """Replay everything in one order, and wait until all open and waiting records are decided."""
    directory, keys = prepared
    place = tmp_path_factory.mktemp("replayed") / "installation"
    shutil.copytree(directory, place)
    upstream = CountingUpstream()
    tollhouse = Tollhouse(place, CONFIG.format(upstream=upstream.url, hold=WHILE_SENDING))
    try:
        tollhouse.start()
        _send(tollhouse, keys, request.param)
        tollhouse.stop()  # a stop of the server closes open records
        tollhouse.config.write_text(CONFIG.format(upstream=upstream.url, hold=AFTERWARDS))
        tollhouse.start()
        wait_until(lambda: _waiting(tollhouse) == 0, "every counter is decided")
        _wait_for_take_backs(tollhouse)
        for route in ("archive/ai-telemetry", "upstream/ai-telemetry"):
            tollhouse.wait_until_drained(route)
        tollhouse.json("spool", "verify")
        yield _by_family(tollhouse, upstream)
    finally:
        tollhouse.stop(signal.SIGKILL, code=None)
        upstream.close()
        shutil.rmtree(place)


def _send(tollhouse: Tollhouse, keys: Mapping[str, str], order: Order) -> None:
    print(f"TOLLHOUSE_ORDER_SEED={SEED}")
    requests = order.requests()
    if order.counters_first:
        counters = [posted for posted in requests if is_counter(posted)]
        _post_all(tollhouse, keys, counters)
        time.sleep(COUNTER_WAIT_S)
        wait_until(lambda: _waiting(tollhouse) == 0, "every counter is decided")
        requests = [posted for posted in requests if not is_counter(posted)]
    places = sorted((len(requests) * tenths // 10, how) for tenths, how in order.ends.items())
    begin = 0
    for place, how in places:
        _post_all(tollhouse, keys, requests[begin:place])
        _end_while_sending(tollhouse, how, keys, requests[place : place + 20])
        begin = place  # send the interrupted requests again, as senders would do
    _post_all(tollhouse, keys, requests[begin:])


def _post_all(tollhouse: Tollhouse, keys: Mapping[str, str], requests: Sequence[Posted]) -> None:
    http = urllib3.PoolManager(retries=False, timeout=30.0)
    for family, request in requests:
        headers = {**request.headers, "authorization": keys[family]}
        answer = http.request("POST", tollhouse.url + request.path, body=request.body, headers=headers)
        assert answer.status < 300, (family, request.path, answer.status, answer.data[:500])
    http.clear()


def _end_while_sending(
    tollhouse: Tollhouse, how: int, keys: Mapping[str, str], requests: Sequence[Posted]
) -> None:
    """End the server while requests are in flight, and ignore their responses."""

    def send() -> None:
        try:
            _post_all(tollhouse, keys, requests)
        except (urllib3.exceptions.HTTPError, AssertionError):
            return

    sender = threading.Thread(target=send)
    sender.start()
    time.sleep(0.05)
    tollhouse.stop(how, code=None)
    sender.join()
    tollhouse.start()


def _waiting(tollhouse: Tollhouse) -> int:
    return sum(int(topic["pending"]) for topic in tollhouse.json("spool", "status")["topics"])


def _wait_for_take_backs(tollhouse: Tollhouse) -> None:
    """Wait until counters next to calls sum to zero, because no state reports the end of the reversals."""

    def is_zero() -> bool:
        tollhouse.wait_until_drained("archive/ai-telemetry")
        return not _summed_counters(tollhouse.records())

    wait_until(is_zero, "counters next to calls sum to zero")


def _by_family(tollhouse: Tollhouse, upstream: CountingUpstream) -> Replayed:
    report = tollhouse.json("report", "--by", "team", "--from", "2020-01-01")
    spans = _grouped(upstream.spans(), "tollhouse.team")
    counters: dict[str, dict[tuple[str, str], Any]] = {}
    for (team, name, kind), value in upstream.counters().items():
        counters.setdefault(team, {})[name, kind] = value
    ledger = {row["team"]: row for row in report["rows"]}
    return Replayed(_grouped(tollhouse.records(), "team"), ledger, spans, counters)


def _grouped(rows: Sequence[dict[str, Any]], name: str) -> dict[str, list[dict[str, Any]]]:
    ordered = sorted(rows, key=lambda row: str(row.get(name)))
    return {
        team: list(group) for team, group in itertools.groupby(ordered, key=lambda row: str(row.get(name)))
    }


# -- the judge -----------------------------------------------------------------------------------------------


def told_by(family: str) -> list[Call]:
    return [call for capture in CAPTURES if capture.family == family for call in capture.told]


def _counted(status: str, tokens: Sequence[int | None]) -> Counted:
    return status, *(str(value or 0) for value in tokens)


def _summed_counters(records: Sequence[Mapping[str, Any]]) -> dict[tuple[str, str, str], Decimal]:
    """Return the non-zero sums of counters by name, less the reversed amounts."""
    sums: defaultdict[tuple[str, str, str], Decimal] = defaultdict(Decimal)
    for one in records:
        if one["kind"] == "usage_metric" and not one["shadow"]:
            sums[str(one["team"]), one["name"], str(one["token_type"])] += Decimal(str(one["value"]))
    return {kind: value for kind, value in sums.items() if value}


def _differences(expected: Counter[Counted], found: Counter[Counted]) -> tuple[list[Counted], list[Counted]]:
    return sorted((expected - found).elements()), sorted((found - expected).elements())


def test_every_family_came_out(replayed: Replayed) -> None:
    """After a replay, each product family has records, and each record has a family."""
    assert FAMILIES
    assert FAMILIES == sorted(replayed.records) == sorted(replayed.ledger) == sorted(replayed.spans)


@pytest.mark.parametrize("family", FAMILIES)
def test_the_calls_are_the_journal(replayed: Replayed, family: str) -> None:
    """The record file and the upstream have each call once, with its outcome and its tokens by kind."""
    expected = Counter(
        _counted(call.status, [getattr(call, name) for name in TOKENS]) for call in told_by(family)
    )
    calls = [one for one in replayed.records[family] if one["kind"] == "inference" and not one["shadow"]]
    archived = Counter(_counted(one["status"], [one[name] for name in TOKENS]) for one in calls)
    sent = Counter(
        _counted(one["tollhouse.status"], [one.get(name) for name in SPAN_TOKENS])
        for one in replayed.spans[family]
    )
    assert ([], []) == _differences(expected, archived)
    assert ([], []) == _differences(expected, sent)


@pytest.mark.parametrize("family", FAMILIES)
def test_the_ledger_adds_up_the_journal(replayed: Replayed, family: str) -> None:
    """The ledger's calls and tokens by kind equal the journal's, although counters repeat the calls."""
    calls = told_by(family)
    expected = {name: sum(getattr(call, name) or 0 for call in calls) for name in TOKENS}
    row = replayed.ledger[family]
    assert {"calls": len(calls), **expected} == {name: row[name] for name in ("calls", *TOKENS)}


@pytest.mark.parametrize("family", PRICED)
def test_the_costs_are_those_that_the_client_reports(replayed: Replayed, family: str) -> None:
    """
    Costs match to a millionth of a dollar, because some clients report floating-point numbers. A cached
    response costs nothing.
    """
    expected = sum(
        (capture.cost or Decimal(0) for capture in CAPTURES if capture.family == family), Decimal(0)
    )
    archived = [
        one["cost"] for one in replayed.records[family] if one["kind"] == "inference" and not _is_free(one)
    ]
    sent = [
        one.get("tollhouse.cost") for one in replayed.spans[family] if one["tollhouse.status"] != "cached"
    ]
    sums = [sum((Decimal(cost or 0) for cost in costs), Decimal(0)) for costs in (archived, sent)]
    reported = Decimal(replayed.ledger[family]["reported"])
    assert [expected.quantize(MILLIONTH)] * 3 == [cost.quantize(MILLIONTH) for cost in (*sums, reported)]


def _is_free(record: Mapping[str, Any]) -> bool:
    return record["status"] == "cached" or bool(record["shadow"])


@pytest.mark.parametrize("family", FAMILIES)
def test_counters_summed_before_their_calls_are_reversed(replayed: Replayed, family: str) -> None:
    """Counters that were summed before their calls were known are reversed in the end, upstream as well."""
    assert {} == _summed_counters(replayed.records[family])
    assert {} == replayed.counters.get(family, {})
