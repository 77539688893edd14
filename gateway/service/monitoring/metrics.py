"""
Metrics in Prometheus text, under names that dashboards rely on.

Commits and requests are counted as they happen; the figures of the spool (queues, space) are read when the
metrics are asked for, at most once a second.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Collection, Iterator, Mapping
from dataclasses import replace
from functools import cache, partial
from typing import Protocol

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, ProcessCollector, generate_latest
from prometheus_client.metrics_core import CounterMetricFamily, Metric
from prometheus_client.registry import Collector

from gateway.service.monitoring.snapshot import Snapshot, SnapshotCollector
from spool.errors import SpoolUnavailable
from spool.log.books import CONFLICT, LEFT_OUT, METER_TOO_LARGE
from spool.log.values import Commit
from spool.packed.native import NativeUse
from spool.record import TOPICS

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
CACHE_S = 1.0
ANSWER_S = 5.0  # of the storage; Prometheus waits for ten
LAG_EVERY_S = 0.1
LAG_WINDOW_S = 15.0  # longer than the usual scrape interval, so that no peak falls between two scrapes

# of each kind that have a series of their own: sources that senders name, pairs of sources, reasons
MAX_DETAILS = 500
OTHER = "other"

# term of a commit -> (metric, the label beside topic, help)
_TERMS: Mapping[str, tuple[str, str | None, str]] = {
    "received": ("received", None, "Items that decoders read"),
    "accepted": ("accepted", "source", "Records that are new"),
    "duplicates": ("duplicate", "source", "Records that were known"),
    "ignored": ("ignored", "reason", "Items that are no record"),
    "rejected": ("rejected", "reason", "Items that could not be taken"),
    "amended": ("amended", "source", "Open records that a later report completed"),
    "amended_late": (
        "amended_late",
        "source",
        "Reports that came after their record closed and would have added to it",
    ),
    "uncompared": (
        "uncompared",
        "source",
        "Repeats of calls whose record is out of reach: what they would have added is not known",
    ),
    "corrected": ("corrected", "source", "Corrections of closed records, by who told them"),
    "bridged": ("bridged", "source", "Open records that a further report showed to be another one's call"),
    "bridged_late": (
        "bridged_late",
        "source",
        "Reports that fitted two records of which one was closed: both count",
    ),
    "conflict": ("conflict", "source", "Reports of one call that disagree on tokens or cost"),
    "unidentified": ("unidentified", "source", "Records without anything to recognise a repeat by"),
}
_BUCKETS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 10.0)


class _Registry(CollectorRegistry):
    """Leaves out the time at which each counter was made, which would be a third of all series."""

    def collect(self) -> Iterator[Metric]:
        for metric in super().collect():
            metric.samples = [sample for sample in metric.samples if not sample.name.endswith("_created")]
            yield metric


class Metrics:
    """
    Implements spool.log.protocols.Observer; every method returns at once.

    `sources` gives those that Tollhouse itself names: they have their series whatever senders name. It is
    asked when the first source is seen.
    """

    def __init__(self, sources: Callable[[], Collection[str]] = tuple) -> None:
        registry = self.registry = _Registry()
        ProcessCollector(registry=registry)
        counter = partial(Counter, registry=registry)
        histogram = partial(Histogram, registry=registry)
        self._records = {
            term: counter(f"tollhouse_records_{name}", help, ["topic", label] if label else ["topic"])
            for term, (name, label, help) in _TERMS.items()
        }
        self._left_out = counter(
            "tollhouse_tags_left_out",
            "Tags that were not kept: over a bound, or under a name of content or of a secret",
            ["topic"],
        )
        self._too_large = counter(
            "tollhouse_meters_too_large",
            "Meters that were not kept: more than what they are a part of, or than any call",
            ["topic"],
        )
        self._commit = histogram(
            "tollhouse_commit_seconds", "Group commits, flush included", buckets=_BUCKETS
        )
        self._flush = histogram(
            "tollhouse_flush_seconds", "Flushes to disk within a commit", buckets=_BUCKETS
        )
        self._requests = counter("tollhouse_requests", "Answered requests", ["endpoint", "status"])
        self._tool_calls = counter("tollhouse_mcp_calls", "Calls of assistants' tools", ["tool", "outcome"])
        self._tokens = counter(
            "tollhouse_mcp_tokens",
            "Tokens of people who ask by assistants, by what came of them",
            ["outcome"],
        )
        self._refused = counter(
            "tollhouse_refused_requests", "Requests that were refused, by the type of answer", ["type"]
        )
        self._request_children: dict[tuple[str, int | str], Counter] = {}
        self._worker_deaths = counter(
            "tollhouse_worker_deaths", "Worker processes that were replaced", ["reason"]
        )
        self._bodies = counter(
            "tollhouse_decoded_bodies", "Bodies of AI telemetry by who decoded them", ["by"]
        )
        self._body_children = {by: self._bodies.labels(by) for by in ("server", "worker")}
        self._claimed = counter(
            "tollhouse_records_claimed_device", "Records that named a device without its key"
        )
        self._sources = cache(lambda: frozenset(sources()))
        self._details: dict[str, set[str]] = {}  # by kind
        lag = Gauge("tollhouse_loop_lag_seconds", "Worst event loop lag of the last 15 s", registry=registry)
        self.lag = LoopLag(lag)
        self._snapshot = SnapshotCollector()
        registry.register(self._snapshot)
        self._refused.labels("internal")
        for topic in TOPICS:  # a series that is there from the start has a rate when its first record comes
            self._left_out.labels(topic)
            self._too_large.labels(topic)
            for term, (_, label, _) in _TERMS.items():
                self._records[term].labels(*((topic, OTHER) if label else (topic,)))

    def expect(self, endpoint: str, status: int | str) -> None:
        """An endpoint is there, and answers with this status when all is well: its series begins with 0."""
        self._request_children[endpoint, status] = self._requests.labels(endpoint, str(status))

    def tool_called(self, tool: str, outcome: str) -> None:
        """A tool of assistants was called; both are words of this program."""
        self._tool_calls.labels(tool, outcome).inc()

    def token_seen(self, outcome: str) -> None:
        """A person's token was looked at; the outcome is a word of this program."""
        self._tokens.labels(outcome).inc()

    def watch_workers(self, ready: Callable[[], int]) -> None:
        """Show how many worker processes are there."""
        Gauge("tollhouse_workers", "Worker processes that take work", registry=self.registry).set_function(
            ready
        )

    def watch_native(self, native: NativeUse) -> None:
        """Show which compiled module is used, and how often it failed."""
        info = Gauge(
            "tollhouse_native_info",
            "The compiled module tollhouse-native",
            ["version", "loaded"],
            registry=self.registry,
        )
        info.labels(native.version, str(int(native.native is not None))).set(1)
        faults = Gauge(
            "tollhouse_native_faults",
            "Failures of the compiled module since the start",
            registry=self.registry,
        )
        faults.set_function(lambda: native.native.faults if native.native is not None else 0)

    def watch_memory(self, memory: ReadMemory) -> None:
        """Show what the memory of spans knows, who read spans, why it did not know some, and what was compared."""
        kinds = Gauge("tollhouse_memory_kinds", "Kinds of spans in the memory", registry=self.registry)
        kinds.set_function(lambda: memory.kinds)
        size = Gauge("tollhouse_memory_bytes", "Bytes of keys, names and texts in it", registry=self.registry)
        size.set_function(lambda: memory.size)
        self.registry.register(MemoryCounts(memory))

    def worker_died(self, reason: str) -> None:
        """A worker process ended that should not have: one of the few words of gateway.intake.workers.pool."""
        self._worker_deaths.labels(reason).inc()

    def body_decoded(self, by: str) -> None:
        """A body of AI telemetry was decoded: by the `server` or a `worker`."""
        self._body_children[by].inc()

    def watch_certificate(self, ends_at: Callable[[], float]) -> None:
        """Show when the certificate in use ends."""
        gauge = Gauge(
            "tollhouse_certificate_end_timestamp_seconds", "When TLS stops to work", registry=self.registry
        )
        gauge.set_function(ends_at)

    def committed(self, commit: Commit) -> None:
        self._commit.observe(commit.seconds)
        self._flush.observe(commit.flush_seconds)
        for (topic, term, detail), n in commit.terms.items():
            if term == LEFT_OUT:
                self._left_out.labels(topic).inc(n)
            elif term == METER_TOO_LARGE:
                self._too_large.labels(topic).inc(n)
            counter = self._records.get(term)
            if counter is not None and n > 0:
                label = _TERMS[term][1]
                labels = (
                    (topic, self._bounded("pair" if term == CONFLICT else label, detail))
                    if label
                    else (topic,)
                )
                counter.labels(*labels).inc(n)

    def _bounded(self, kind: str, detail: str) -> str:
        """A source may be named by a sender, and every new name costs a series for good."""
        known = self._details.setdefault(kind, set())
        if detail not in known and detail not in self._sources():
            if len(known) >= MAX_DETAILS:
                return OTHER
            known.add(detail)
        return detail

    def requests(self, endpoint: str, status: int | str) -> None:
        """An answer was given. `status` is the HTTP status, or the name of the gRPC code."""
        child = self._request_children.get((endpoint, status))
        if child is None:
            child = self._request_children[endpoint, status] = self._requests.labels(endpoint, str(status))
        child.inc()

    def refused(self, type: str) -> None:
        """A request was refused: `type` is that of the answer, one of a few dozen."""
        self._refused.labels(type).inc()

    def claimed(self, records: int) -> None:
        """Records named a device whose key they did not come under."""
        self._claimed.inc(records)

    def render(self, snapshot: Snapshot) -> bytes:
        self._snapshot.snapshot = snapshot
        return generate_latest(self.registry)


class Exposition:
    """The text of `/metrics`, rendered at most once a second."""

    def __init__(
        self,
        metrics: Metrics,
        read: Callable[[], Awaitable[Snapshot]],
        now: Callable[[], float],
    ) -> None:
        self._metrics = metrics
        self._read = read
        self._now = now
        self._text = b""
        self._good_until = float("-inf")
        self._lock = asyncio.Lock()
        self._newest: Snapshot | None = None

    async def text(self) -> bytes:
        async with self._lock:
            if self._now() >= self._good_until:
                self._text = self._metrics.render(await self._snapshot())
                self._good_until = self._now() + CACHE_S
            return self._text

    async def _snapshot(self) -> Snapshot:
        """
        Read the storage's figures; while it is unreachable, the newest ones, so that this process's own
        counts are still shown.
        """
        try:
            async with asyncio.timeout(ANSWER_S):
                self._newest = await self._read()
        except (SpoolUnavailable, TimeoutError):
            if self._newest is None:
                raise
            self._newest = replace(self._newest, answers=False)
        return self._newest


class LoopLag:
    """How late the loop wakes a sleeper: what a client waits for while something hogs the loop."""

    def __init__(self, gauge: Gauge) -> None:
        self._samples: deque[float] = deque(maxlen=round(LAG_WINDOW_S / LAG_EVERY_S))
        gauge.set_function(lambda: self.worst)

    @property
    def worst(self) -> float:
        return max(self._samples, default=0.0)

    async def run(self) -> None:
        now = asyncio.get_running_loop().time
        while True:
            due = now() + LAG_EVERY_S
            await asyncio.sleep(LAG_EVERY_S)
            self._samples.append(max(0.0, now() - due))


class ReadMemory(Protocol):
    """The memory of spans, as far as metrics show it."""

    @property
    def spans(self) -> Mapping[str, int]: ...

    @property
    def misses(self) -> Mapping[str, int]: ...

    @property
    def compared(self) -> Mapping[str, int]: ...

    @property
    def kinds(self) -> int: ...

    @property
    def size(self) -> int: ...


class MemoryCounts(Collector):
    """Reads the counts when they are asked for."""

    def __init__(self, memory: ReadMemory) -> None:
        self._memory = memory

    def collect(self) -> Iterator[Metric]:
        """Yield spans by who read them, misses by reason, and comparisons by result."""
        memory = self._memory
        yield _family("spans", "Spans that were read by the memory or by the rules", "by", memory.spans)
        yield _family("misses", "Spans or bodies that the memory did not know", "reason", memory.misses)
        yield _family("compared", "Spans that were read both ways", "result", memory.compared)


def _family(name: str, words: str, label: str, counts: Mapping[str, int]) -> Metric:
    family = CounterMetricFamily(f"tollhouse_memory_{name}", words, labels=[label])
    for value, count in counts.items():
        family.add_metric([value], count)
    return family
