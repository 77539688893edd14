"""
Metrics as Prometheus text. Dashboards rely on the metrics' names.

Commits and requests are counted as they happen. Figures of the storage (queues, space) are read when the
metrics are requested, at most once a second.
"""

from __future__ import annotations

import asyncio
import time
from collections import defaultdict, deque
from collections.abc import Awaitable, Callable, Collection, Iterator, Mapping
from dataclasses import replace
from functools import cache, partial

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, ProcessCollector, generate_latest
from prometheus_client.metrics_core import CounterMetricFamily, Metric
from prometheus_client.registry import Collector

from gateway.monitoring.snapshot import Snapshot, SnapshotCollector
from spool.errors import SpoolUnavailable
from spool.log.accounting import CONFLICT, LEFT_OUT, METER_TOO_LARGE
from spool.log.values import Commit
from spool.loops import RETRY_S, repeat
from spool.packed.native import CompiledModuleUse
from spool.record import TOPICS

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
CACHE_S = 1.0
# seconds to wait for the storage; Prometheus waits ten seconds for the whole response by default
ANSWER_S = 5.0
LAG_EVERY_S = 0.1  # seconds between two measurements of the event loop's lag while requests arrive
# seconds for which the worst lag is shown; longer than the usual scrape interval, so that every peak is scraped
LAG_WINDOW_S = 15.0

# Maximum number of series for each kind of detail. Details are the sources that senders name, pairs of
# sources, and reasons.
MAX_DETAILS = 500
OTHER = "other"
SPOOL_FULL = "spool_full"  # type of a refusal, see gateway.http.error_table

# Field of a commit -> (metric, second label in addition to topic, help).
_TERMS: Mapping[str, tuple[str, str | None, str]] = {
    "received": ("received", None, "Items read by decoders"),
    "accepted": ("accepted", "source", "New records"),
    "duplicates": ("duplicate", "source", "Reports of records that were already known"),
    "ignored": ("ignored", "reason", "Items that are not records"),
    "rejected": ("rejected", "reason", "Items that could not be accepted"),
    "amended": ("amended", "source", "Open records that a later report completed"),
    "amended_late": (
        "amended_late",
        "source",
        "Reports that would have changed their record, but arrived after it was closed",
    ),
    "uncompared": (
        "uncompared",
        "source",
        "Repeated reports whose record is no longer available, so the difference is unknown",
    ),
    "unplaced": (
        "unplaced",
        "source",
        "Calls that arrived before the spans above them, so the run of their agent may be unknown",
    ),
    "placed": ("placed", "source", "Such calls that got their agent's run from spans that arrived later"),
    "corrected": ("corrected", "source", "Corrections of closed records, by the source that reported them"),
    "bridged": ("bridged", "source", "Records that a later report showed to belong to another record's call"),
    "bridged_late": (
        "bridged_late",
        "source",
        "Reports that matched two records, of which one was too old to be joined, so both count",
    ),
    "conflict": ("conflict", "source", "Reports of one call that disagree on tokens or cost"),
    "unidentified": ("unidentified", "source", "Records without ids, so that repeats cannot be recognized"),
}
_BUCKETS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 10.0)


class _Registry(CollectorRegistry):
    """
    A registry that omits the `_created` sample of each counter, because these would be a third of all series.
    """

    def collect(self) -> Iterator[Metric]:
        for metric in super().collect():
            metric.samples = [sample for sample in metric.samples if not sample.name.endswith("_created")]
            yield metric


class ProcessMetrics:
    """
    The metrics of this process. Implements spool.log.protocols.CommitObserver; every method returns at once.

    `sources` returns the sources that Tollhouse itself knows, and is called when the first source arrives.
    They always get a series, however many names senders invent. `full_since` is when the first request after the last
    commit was refused because the spool is full, in epoch seconds.
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
            "Tags that were not stored: over a limit, or with a name that suggests content or a secret",
            ["topic"],
        )
        self._too_large = counter(
            "tollhouse_meters_too_large",
            "Meters that were not stored, because they are larger than their total or than any possible call",
            ["topic"],
        )
        self._commit = histogram(
            "tollhouse_commit_seconds", "Duration of group commits, including the flush", buckets=_BUCKETS
        )
        self._flush = histogram(
            "tollhouse_flush_seconds", "Duration of flushes to disk within a commit", buckets=_BUCKETS
        )
        self._requests = RequestCounts()
        registry.register(self._requests)
        self._tool_calls = counter("tollhouse_mcp_calls", "Tool calls by assistants", ["tool", "outcome"])
        self._tokens = counter(
            "tollhouse_mcp_tokens",
            "Access tokens of people who use assistants, by outcome of the check",
            ["outcome"],
        )
        self.full_since: float | None = None
        self._refused = counter("tollhouse_refused_requests", "Refused requests, by error type", ["type"])
        self._claimed = counter(
            "tollhouse_records_claimed_device", "Records that named a device without using its key"
        )
        self._sources = cache(lambda: frozenset(sources()))
        self._details: dict[str, set[str]] = {}  # kind of detail -> the known values of its label
        lag = Gauge("tollhouse_loop_lag_seconds", "Worst event loop lag of the last 15 s", registry=registry)
        self.lag = LoopLag(lag)
        self._snapshot = SnapshotCollector()
        registry.register(self._snapshot)
        self._refused.labels("internal")
        # These series exist from the start, because a series without an earlier value shows no rate for
        # its first record.
        for topic in TOPICS:
            self._left_out.labels(topic)
            self._too_large.labels(topic)
            for term, (_, label, _) in _TERMS.items():
                self._records[term].labels(*((topic, OTHER) if label else (topic,)))

    def start_endpoint_series_at_zero(self, endpoint: str, status: int | str) -> None:
        """Announce an endpoint and its status for success, so that its series starts at 0."""
        self._requests.answered[endpoint, status] += 0

    def count_tool_call(self, tool: str, outcome: str) -> None:
        self._tool_calls.labels(tool, outcome).inc()

    def count_token_check(self, outcome: str) -> None:
        self._tokens.labels(outcome).inc()

    def watch_native(self, native: CompiledModuleUse) -> None:
        info = Gauge(
            "tollhouse_native_info",
            "Version of the compiled module tollhouse-native in use",
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

    def watch_decoded_spans(self, spans: Mapping[str, int]) -> None:
        self.registry.register(DecodedSpans(spans))

    def note_commit(self, commit: Commit) -> None:
        self.full_since = None
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
                    (topic, self._bounded_label("pair" if term == CONFLICT else label, detail))
                    if label
                    else (topic,)
                )
                counter.labels(*labels).inc(n)

    def _bounded_label(self, kind: str, detail: str) -> str:
        """
        Return the label value. If there are too many values, return a common value instead, because each name
        that a sender invents would cost a series.
        """
        known = self._details.setdefault(kind, set())
        if detail not in known and detail not in self._sources():
            if len(known) >= MAX_DETAILS:
                return OTHER
            known.add(detail)
        return detail

    def count_request(self, endpoint: str, status: int | str) -> None:
        """Count a response. `status` is the HTTP status or the name of the gRPC code."""
        self._requests.answered[endpoint, status] += 1

    def count_refusal(self, type: str) -> None:
        self._refused.labels(type).inc()
        if type == SPOOL_FULL and self.full_since is None:
            self.full_since = time.time()

    def count_records_claiming_devices(self, record_count: int) -> None:
        """Count records that named a device but were sent with another key."""
        self._claimed.inc(record_count)

    def render(self, snapshot: Snapshot) -> bytes:
        self._snapshot.snapshot = snapshot
        return generate_latest(self.registry)


class Exposition:
    """The text of `/metrics`, rendered at most once a second."""

    def __init__(
        self, metrics: ProcessMetrics, read: Callable[[], Awaitable[Snapshot]], now: Callable[[], float]
    ) -> None:
        self.metrics = metrics
        self._read = read
        self._now = now
        self._text = b""
        self._good_until = float("-inf")
        self._lock = asyncio.Lock()
        self._newest: Snapshot | None = None

    async def current_text(self) -> bytes:
        async with self._lock:
            if self._now() >= self._good_until:
                self._text = self.metrics.render(await self._read_snapshot())
                self._good_until = self._now() + CACHE_S
            return self._text

    async def _read_snapshot(self) -> Snapshot:
        """
        Read the figures of the storage. If it is unreachable, return the newest known ones, so that this
        process's own counts appear.
        """
        try:
            async with asyncio.timeout(ANSWER_S):
                self._newest = await self._read()
        except (SpoolUnavailable, TimeoutError) as error:
            if self._newest is None:
                raise SpoolUnavailable("the storage does not answer") from error
            self._newest = replace(self._newest, answers=False)
        return self._newest


class LoopLag:
    """
    Measures how late the event loop resumes a waiting task. Requests are delayed by this time while other
    work blocks the loop. While there are no requests, nothing is measured.
    """

    def __init__(self, gauge: Gauge) -> None:
        # the time of each measurement and the lag, in seconds
        self._samples: deque[tuple[float, float]] = deque(maxlen=round(LAG_WINDOW_S / LAG_EVERY_S))
        gauge.set_function(lambda: self.worst_lag_s)

    @property
    def worst_lag_s(self) -> float:
        since = time.monotonic() - LAG_WINDOW_S
        return max((lag for measured_at, lag in tuple(self._samples) if measured_at >= since), default=0.0)

    async def measure_repeatedly(self, activity: Callable[[], Awaitable[None]]) -> None:
        """Measure the lag repeatedly. `activity` waits while there are no requests."""

        async def measure() -> None:
            await activity()
            due = time.monotonic() + LAG_EVERY_S
            await asyncio.sleep(LAG_EVERY_S)
            now = time.monotonic()
            self._samples.append((now, max(0.0, now - due)))

        await repeat(
            measure,
            every_s=0.0,
            failed="the lag of the event loop could not be measured",
            action="lag_not_measured",
            retry_s=RETRY_S,
        )


class RequestCounts(Collector):
    """
    Answered requests by endpoint and status. They are counted in a dict, because a counter of
    prometheus_client takes a lock for each request.
    """

    def __init__(self) -> None:
        self.answered: defaultdict[tuple[str, int | str], int] = defaultdict(int)

    def collect(self) -> Iterator[Metric]:
        family = CounterMetricFamily("tollhouse_requests", "Answered requests", labels=["endpoint", "status"])
        for (endpoint, status), count in list(self.answered.items()):
            family.add_metric([endpoint, str(status)], count)
        yield family


class DecodedSpans(Collector):
    """Spans in protobuf by their decoder, for servers with the compiled module."""

    def __init__(self, spans: Mapping[str, int]) -> None:
        self._spans = spans

    def collect(self) -> Iterator[Metric]:
        family = CounterMetricFamily(
            "tollhouse_spans_decoded",
            "Spans in protobuf, by whether the compiled module or Python decoded them",
            labels=["by"],
        )
        for by, count in self._spans.items():
            family.add_metric([by], count)
        yield family
