"""
Play the calls of the table to running servers in waves, and collect what came of each call.

Between two waves a server is killed or stopped, or the records are closed. Each set has an hour of its own, so its
totals are one row of the hourly report.
"""

from __future__ import annotations

import os
import random
import signal
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any, NamedTuple

import urllib3

from tests.acceptance.captured_upstream import SPAN_TOKENS, CountingUpstream
from tests.acceptance.conftest import SEND_AI_TELEMETRY, Tollhouse
from tests.acceptance.reporters.made_call import MadeCall, made_call
from tests.acceptance.reporters.span_reports import platform_test, trace_request
from tests.acceptance.reporters.table import REPORTERS, Piece, ReporterSet, pieces, sets
from tests.rounds import IS_LONG, part

SEED = int(os.environ.get("TOLLHOUSE_ORDER_SEED", "1")) or random.SystemRandom().randrange(1, 2**31)
CALLS = 10 if IS_LONG else 1  # number of calls of each set in each round, each in its own random order
WAVES = 4
# Calls of a set begin this far apart, so that times distinguish them. Two answered calls run at the same time.
APART_S = 300
AT_ONCE = 2
NS_PER_S = 10**9
FIRST_HOUR = datetime.now(UTC).replace(minute=0, second=0, microsecond=0) - timedelta(days=14)
KINDS = ("input", "output", "cache_read", "cache_write", "reasoning")
TOKENS = tuple(f"{kind}_tokens" for kind in KINDS)
ROUTES = ("archive/ai-telemetry", "upstream/ai-telemetry")
CONFIG = """
[server]
listen = "127.0.0.1:0"
grpc_listen = ""
{storage}
[spool]
hold = "{hold}"
max_bytes = "1GiB"
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
shared = {shared}
"""
LONG_HOLD, NO_HOLD = "10h", "0s"


class Counted(NamedTuple):
    """The sum of the records of one call or one set, with corrections."""

    calls: int
    failures: int
    tokens: tuple[int, ...]
    cost: Decimal


NOTHING = Counted(0, 0, (0,) * len(KINDS), Decimal(0))


def total(found: Iterable[Counted]) -> Counted:
    rows = list(found)
    return Counted(
        sum(one.calls for one in rows),
        sum(one.failures for one in rows),
        tuple(sum(one.tokens[number] for one in rows) for number in range(len(TOKENS))),
        sum((one.cost for one in rows), Decimal(0)),
    )


# -- the calls -----------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class SetCall:
    """One call of a set of reporters, with its number (one of `CALLS`)."""

    set: ReporterSet
    number: int
    call: MadeCall

    @property
    def place(self) -> Place:
        return self.set.name, slot_of(self.set, self.number)

    @property
    def right(self) -> Counted:
        """Return what the call counts. Only some reporters state the thinking tokens."""
        call, failures = self.call, self.set.failures
        if call.failed:
            return NOTHING._replace(calls=1, failures=1)
        thinking = call.thinking if {"P", "S", "G"} & set(self.set.reporters) else 0
        tokens = (call.input, call.output, call.cache_read, call.cache_write, thinking)
        return Counted(1 + failures, failures, tokens, call.cost)


Place = tuple[str, int]  # the name of a set, and the slot of its hour in which a call is made
SETS = sets()


def slot_of(one: ReporterSet, number: int) -> int:
    return number if one.failed else number // AT_ONCE


def _calls(dice: random.Random) -> Iterator[SetCall]:
    for index, one in enumerate(SETS):
        for number in range(CALLS):
            begun = FIRST_HOUR + timedelta(hours=index, seconds=1 + slot_of(one, number) * APART_S)
            start_ns = int(begun.timestamp()) * NS_PER_S + dice.randrange(NS_PER_S)
            yield SetCall(one, number, made_call(dice, start_ns, failed=one.failed))


SET_CALLS = list(_calls(random.Random(SEED)))


def waves(dice: random.Random) -> list[list[Piece]]:
    """
    Deal the requests of each call over the waves in a random order. Some requests are sent again at any later
    point.
    """
    dealt: list[list[Piece]] = [[] for _ in range(WAVES)]
    for one in SET_CALLS:
        # the forms of reports differ between the calls of a set, and between sets that have one call each
        requests = pieces(one.set, one.call, one.number + SETS.index(one.set), dice)
        dice.shuffle(requests)
        places = sorted(dice.randrange(WAVES) for _ in requests)
        for place, request in zip(places, requests, strict=True):
            dealt[place].append(request)
            if dice.random() < 0.15:
                dealt[dice.randrange(place, WAVES)].append(request)
    tested = platform_test(dice, SET_CALLS[0].call.start_ns)
    dealt[0].append(Piece("P", trace_request(tested, as_json=False)))
    for wave in dealt:
        dice.shuffle(wave)
    return dealt


# -- servers -------------------------------------------------------------------------------------------------


class Site:
    """Servers that share one log, or a single server, and the cost service behind them."""

    def __init__(self, folders: Sequence[Path], storage: Sequence[str]) -> None:
        self.upstream = CountingUpstream()
        self.gateways = [Tollhouse(folder, "") for folder in folders]
        self._storage = storage
        self._keys: dict[str, str] = {}

    def start(self, hold: str) -> None:
        self.configure(hold)
        for gateway in self.gateways:
            (gateway.directory / "upstream.key").write_text("upstream-secret\n")
            gateway.start()
        use_case = ("--use-case", SEND_AI_TELEMETRY)
        self._keys = {name: self.gateways[0].key(f"reporter {name}", *use_case) for name in REPORTERS}
        self._keys |= dict.fromkeys(("Fi", "Fn"), self._keys["S"])  # a framework and its SDK are one process

    def configure(self, hold: str) -> None:
        shared = "true" if len(self.gateways) > 1 else "false"
        for gateway, storage in zip(self.gateways, self._storage, strict=True):
            config = CONFIG.format(storage=storage, hold=hold, upstream=self.upstream.url, shared=shared)
            gateway.config.write_text(config)

    def post(self, requests: Sequence[Piece], dice: random.Random) -> None:
        http = urllib3.PoolManager(retries=False, timeout=60.0)
        for reporter, (path, content_type, body) in requests:
            headers = {"content-type": content_type, "authorization": self._keys[reporter]}
            url = dice.choice(self.gateways).url
            answer = http.request("POST", url + path, body=body, headers=headers)
            assert answer.status < 300, (reporter, path, answer.status, answer.data[:500])
        http.clear()

    def close_records(self) -> None:
        for route in ROUTES:
            self.gateways[0].wait_until_drained(route)

    def finish(self) -> None:
        """Close all open records, and wait until everything is delivered and counted."""
        for gateway in self.gateways:
            gateway.stop()
        self.configure(NO_HOLD)
        if len(self.gateways) > 1:
            self.gateways[0].run("storage", "set", f"hold={NO_HOLD}")  # nodes share this setting
        self.gateways[0].start()
        self.close_records()
        self.gateways[0].json("spool", "verify")

    def records(self) -> list[dict[str, Any]]:
        """Return each record once. A delivery that another server repeated is in both files."""
        rows = [row for gateway in self.gateways for row in gateway.records()]
        return list({row["id"]: row for row in rows}.values())

    def end(self) -> None:
        for gateway in self.gateways:
            gateway.stop(signal.SIGKILL, code=None)
        self.upstream.close()


def kill(site: Site, number: int) -> None:
    gateway = site.gateways[number % len(site.gateways)]
    gateway.kill()
    gateway.start()


def stop(site: Site, number: int) -> None:
    gateway = site.gateways[number % len(site.gateways)]
    gateway.stop()
    gateway.start()


def close(site: Site, _: int) -> None:
    site.close_records()


def close_and_kill(site: Site, number: int) -> None:
    close(site, number)
    kill(site, number)


def go_on(_: Site, __: int) -> None:
    """Send the next wave at once."""


@dataclass(frozen=True)
class Round:
    """A way to play all waves. `between` has what happens after each wave except the last one."""

    name: str
    hold: str
    between: Sequence[Callable[[Site, int], None]]
    gateways: int = 1


EVERY_ROUND = (
    Round("within the hold, killed", LONG_HOLD, (kill, go_on, kill)),
    Round("after the hold, stopped and killed", NO_HOLD, (close, stop, close_and_kill)),
    Round("two gateways, within the hold, killed", LONG_HOLD, (kill, kill, go_on), gateways=2),
    Round(
        "two gateways, after the hold, stopped and killed", NO_HOLD, (close, stop, close_and_kill), gateways=2
    ),
)
ROUNDS = part(EVERY_ROUND, every=len(EVERY_ROUND))


# -- results -------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Played:
    """The results of a round. `archived` includes corrections, `sent` does not."""

    archived: Mapping[Place, Counted]
    sent: Mapping[Place, Counted]
    archived_calls: Mapping[Place, Counted]  # the counts of `archived`, without the corrections
    ledger: Mapping[str, Counted]  # by set
    corrections: Mapping[str, Decimal]  # the corrections: sums of `calls`, `cost`, and each kind of tokens
    sent_corrections: Mapping[str, Decimal]


@contextmanager
def played(one: Round, folders: Sequence[Path], storage: Sequence[str]) -> Iterator[Played]:
    site = Site(folders, storage)
    dice = random.Random(SEED)
    try:
        site.start(one.hold)
        for number, wave in enumerate(waves(dice)):
            site.post(wave, dice)
            if number < len(one.between):
                one.between[number](site, number)
        site.finish()
        yield _results(site)
    finally:
        site.end()


def _results(site: Site) -> Played:
    records = site.records()
    calls = {row["id"]: row for row in records if row["kind"] == "inference" and not row["shadow"]}
    corrections = [row for row in records if row["kind"] == "correction"]
    counted: defaultdict[Place, list[dict[str, Any]]] = defaultdict(list)
    sent: defaultdict[Place, list[dict[str, Any]]] = defaultdict(list)
    for row in calls.values():
        counted[_place(row)].append(row)
    archived_calls = {place: _sum(rows) for place, rows in counted.items()}
    for row in corrections:
        counted[_place(calls[row["corrects"]])].append(row)
    for span in site.upstream.spans():
        sent[_place(calls[span["tollhouse.id"]])].append(span)
    return Played(
        archived={place: _sum(rows) for place, rows in counted.items()},
        sent={place: _sum_of_spans(spans) for place, spans in sent.items()},
        archived_calls=archived_calls,
        ledger=_ledger(site.gateways[0]),
        corrections=_corrections(corrections),
        sent_corrections=_sent_corrections(site.upstream),
    )


def _place(record: Mapping[str, Any]) -> Place:
    """Return the place of a record by its time."""
    time = datetime.fromisoformat(record["start_time"] or record["end_time"])
    hours, rest_s = divmod((time - FIRST_HOUR).total_seconds(), 3600)
    return SETS[int(hours)].name, int(rest_s // APART_S)


def _sum(rows: Sequence[Mapping[str, Any]]) -> Counted:
    costs = [Decimal(row["cost"] or row.get("estimated_cost") or 0) for row in rows]
    return Counted(
        sum(map(_calls_in, rows)),
        sum(_calls_in(row) for row in rows if row["status"] == "error"),
        tuple(sum(row[name] or 0 for row in rows) for name in TOKENS),
        sum(costs, Decimal(0)),
    )


def _calls_in(row: Mapping[str, Any]) -> int:
    """
    Return 1 for a call, -1 for a correction that takes a call back because another record counts it, and otherwise
    0.
    """
    if row["kind"] == "inference":
        return 1
    return -1 if row.get("counted_by") else 0


def _sum_of_spans(spans: Sequence[Mapping[str, Any]]) -> Counted:
    costs = [Decimal(one.get("tollhouse.cost") or one.get("tollhouse.estimated_cost") or 0) for one in spans]
    return Counted(
        len(spans),
        sum(one["tollhouse.status"] == "error" for one in spans),
        tuple(sum(one.get(name) or 0 for one in spans) for name in SPAN_TOKENS),
        sum(costs, Decimal(0)),
    )


def _corrections(rows: Sequence[Mapping[str, Any]]) -> dict[str, Decimal]:
    names = {"cost": "cost"} | dict(zip(KINDS, TOKENS, strict=True))
    sums = {kind: sum((Decimal(row[name] or 0) for row in rows), Decimal(0)) for kind, name in names.items()}
    sums["calls"] = Decimal(sum(map(_calls_in, rows)))
    return {kind: value for kind, value in sums.items() if value}


def _sent_corrections(upstream: CountingUpstream) -> dict[str, Decimal]:
    sums: defaultdict[str, Decimal] = defaultdict(Decimal)
    for (_, name, kind), value in upstream.counters().items():
        sums[kind or name.rpartition(".")[2]] += value
    return dict(sums)


def _ledger(gateway: Tollhouse) -> dict[str, Counted]:
    period = ("--from", _text(FIRST_HOUR), "--to", _text(FIRST_HOUR + timedelta(hours=len(SETS))))
    report = gateway.json("report", "--per", "hourly", "--by", "provider_family", *period)
    found: defaultdict[str, list[Counted]] = defaultdict(list)
    for row in report["rows"]:
        hour = datetime.fromisoformat(row["period"]) - FIRST_HOUR
        tokens = tuple(row[one] for one in TOKENS)
        counted = Counted(row["calls"], row["errors"], tokens, Decimal(row["cost"]))
        found[SETS[int(hour.total_seconds() // 3600)].name].append(counted)
    return {name: total(rows) for name, rows in found.items()}


def _text(time: datetime) -> str:
    return time.isoformat().replace("+00:00", "Z")
