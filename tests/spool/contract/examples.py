"""Examples for the contract of the log: a movable clock, calls with identities, an observer."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from datetime import datetime
from decimal import Decimal
from typing import Any

from spool import identity
from spool.identity import RecordIdentity
from spool.log.protocols import RecordLog
from spool.log.recent_senders import MOST_FACTS
from spool.log.values import Commit, CounterPoint, LogEntry, Receipt, Submission
from spool.record import AI_TELEMETRY, NS, Inference, Record, UsageMetric

NOON = 1_790_000_000  # the start of the tests' time, in epoch seconds


class Observed:
    """An observer that stores the commits that it receives."""

    def __init__(self) -> None:
        self.commits: list[Commit] = []

    def note_commit(self, commit: Commit) -> None:
        self.commits.append(commit)

    @property
    def terms(self) -> Counter[tuple[str, str]]:
        """Sum the terms of all commits and topics by term and by source or reason."""
        sums: Counter[tuple[str, str]] = Counter()
        for commit in self.commits:
            for (_, term, label), n in commit.terms.items():
                sums[term, label] += n
        return sums


def call(number: int, *, at: float = NOON, **fields: Any) -> tuple[Inference, RecordIdentity]:
    """Return a call with a long response id, and its identity."""
    fields = {
        "source": "otel",
        "start_time": int(at * NS),
        "input_tokens": 100,
        "output_tokens": 10,
        **fields,
    }
    record = Inference(id=b"", **fields)
    known_as = identity.call_identity(record, response_id=f"chatcmpl-{number:032d}")
    record.id = known_as.id
    return record, known_as


def counted_from(day: str) -> tuple[Inference, RecordIdentity]:
    """Return a free call of a day, so that every later time is counted as a whole."""
    at = datetime.fromisoformat(f"{day}T00:00+00:00").timestamp()
    return call(10**9, at=at, cost="0", cost_source="reported", input_tokens=0, output_tokens=0)


def submission(calls: Iterable[tuple[Record, RecordIdentity]], **terms: Any) -> Submission:
    calls = list(calls)
    others = sum(terms.get("ignored", {}).values()) + sum(terms.get("rejected", {}).values())
    points = terms.get("points", ())
    received = len(calls) + len(points) + others + terms.get("pending", 0) - terms.get("split", 0)
    return Submission(
        **{
            "topic": AI_TELEMETRY,
            "received": received,
            "records": [record for record, _ in calls],
            "identities": [known_as for _, known_as in calls],
            **terms,
        }
    )


async def add(record_log: RecordLog, *calls: tuple[Record, RecordIdentity], **terms: Any) -> Receipt:
    return await record_log.append_submission(submission(calls, **terms))


async def everything(record_log: RecordLog, topic: str = AI_TELEMETRY) -> list[Record | None]:
    """Return the closed records of a topic, in order."""
    return [record for entry in await entries(record_log, topic) for record in entry.records]


async def entries(record_log: RecordLog, topic: str = AI_TELEMETRY) -> Sequence[LogEntry]:
    return await record_log.read(topic, 1, record_log.lowest_open_number(topic))


async def topic_terms(record_log: RecordLog, topic: str = AI_TELEMETRY) -> dict[str, int]:
    return dict((await record_log.books()).topics.get(topic, {}))


async def assert_books_balance(record_log: RecordLog, *, accepted_twice: bool = False) -> None:
    """Assert that counters equal a recount, every equation balances, and no known id was accepted again."""
    counted, recounted = await record_log.books(), await record_log.verify()
    assert accepted_twice is bool(recounted.accepted_twice)
    recounted = replace(recounted, accepted_twice={})
    assert [] == list(counted.imbalances)
    assert [] == list(recounted.imbalances)
    assert counted == recounted


def point(
    value: int | str, *, at: float, since: float = NOON, series: bytes = b"s" * 16, unit: str = "{token}"
) -> CounterPoint:
    """Return a cumulative point of a token or money counter."""
    exact = Decimal(value) if isinstance(value, str) else value
    template = UsageMetric(id=b"", source="otel", name="gen_ai.client.token.usage", unit=unit)
    return CounterPoint(series, int(since * NS), int(at * NS), exact, template)


def senders_of(caller: bytes, facts: Sequence[bytes]) -> Iterator[bytes]:
    """Yield the keys that store a caller's kinds of calls. Each key has up to MOST_FACTS kinds."""
    for start in range(0, len(facts), MOST_FACTS):
        yield caller + b"".join(facts[start : start + MOST_FACTS])
