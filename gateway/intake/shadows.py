"""
Detection of counters that repeat calls which events already reported. Such a counter becomes a shadow: a
duplicate kept for reference.

A counter is a shadow if calls of the same source, service and session (or user) arrived in the hour before
the counter. Calls that arrive while the counter waits (`waiting_counters`) count as well. A counter with
neither session nor user (Codex's) is compared by source and service.

Two libraries may report the calls and the counters of one program, under different source names. So a call is
also remembered by its service and models, independent of its source.

- A counter of the OpenTelemetry conventions that names service and model is compared only with calls of that
  service and model. So the counter counts if its model had no calls.
- Calls of the counter's own source that report tokens but no model may be of any model.
- Counters that a product defines itself are also compared with that product's calls.
- If a service or a counter's model is missing, the sources must match (`_COUNTERS`).

An agent's span may sum up the calls of another program that the agent runs. The span is a shadow if that
program reported calls or counters of the same session or trace.

Each caller (a session, user, trace or service) has one entry in memory: the time of its last calls, and the
kinds of these calls. The commit of the calls also stores the entries (`spool.log.heard`). Stored entries are
read after a start, and if several processes share a log, because a counter would count twice if its caller
was forgotten. Old entries are removed. Above `spool.max_senders`, the oldest entry of the key with the most
entries is removed.
"""

from __future__ import annotations

import asyncio
import logging
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import lru_cache
from typing import TypeAlias

import msgspec

from spool.clock import Clock
from spool.errors import SpoolError
from spool.log.heard import CALLER_BYTES, KEPT_S, Heard, digest_of, fact_of, facts_in, senders_of
from spool.log.protocols import Log
from spool.log.values import Submission
from spool.record import AI_TELEMETRY, AiRecord, Inference, UsageMetric
from spool.shares import Shared
from spool.turns.fair_turns import pause

WINDOW_S = 3600.0
NOTED_S = 1.0  # precision of the report times, in seconds
# A caller is stored at most once in this interval. So after a start, a caller may be forgotten up to this
# much too early.
KEEP_EVERY_S = 600.0
AGE_EVERY_S = 60.0
AGED_AT_ONCE = 256  # number of callers to forget between two turns of the event loop
STEP = 1024  # number of records to read at a time; unpacked, a record takes about 2 KiB
MOST_READ = 200_000  # maximum number of records to read if no callers are stored
KINDS_OF_CALLS = 4096  # cache size: number of combinations of source, service and models

# Source of the counters by source of the spans. Some libraries mark only their spans, so their counters
# have another source.
_COUNTERS = {"openllmetry": "otel", "openinference": "envoy_ai_gateway"}
# Source of the summed calls by source and operation of the agent's span. The Claude Agent SDK runs Claude Code.
_SUMMED_UP = {(source, "invoke_agent"): "claude_code" for source in ("openinference", "pydantic_ai")}
SUMMING = frozenset([operation for _, operation in _SUMMED_UP])  # operations of agent spans that sum up calls
_RUN_SOURCES = frozenset(_SUMMED_UP.values())

# Prefix of the counters in the OpenTelemetry conventions. Any library may write such counters.
_CONVENTIONS = "gen_ai."
_ANYBODY = ("", "")

_log = logging.getLogger(__name__)


class Reporter(msgspec.Struct, frozen=True, gc=False, array_like=True):
    """
    A name under which calls are remembered. The counters that counted are stored with it as well (`take_backs`).

    Tens of thousands exist while counters wait. When they were tuples, the garbage collector delayed a commit
    for 50 ms.
    """

    source: str
    service: str | None
    kind: str  # states what `name` is, such as a session, a user or a model
    name: str


class Reporters(msgspec.Struct, frozen=True, gc=False):
    """Up to two reporters. If calls of one of them are known, the record may repeat these calls."""

    first: Reporter | None = None
    second: Reporter | None = None

    def __iter__(self) -> Iterator[Reporter]:
        if self.first is not None:
            yield self.first
        if self.second is not None:
            yield self.second


def _reporters_of_counter(metric: UsageMetric) -> Reporters:
    service = metric.tags.get("service")
    caller = (
        ("session", metric.session) if metric.session else ("user", metric.user) if metric.user else _ANYBODY
    )
    of_source = Reporter(metric.source, service, *caller)
    if service is None or metric.model is None:
        return Reporters(of_source)
    of_model = _by_model(service, metric.model, *caller)
    if caller == _ANYBODY and metric.name.startswith(_CONVENTIONS):
        return Reporters(of_model, _by_any_model(metric.source, service))
    return Reporters(of_source, of_model)


def _by_any_model(source: str, service: str) -> Reporter:
    """
    Return the reporter for calls that name no model. Any counter of the same source may repeat such calls.
    """
    return Reporter(source, service, "model", "")


def _by_model(service: str, model: str, kind: str, name: str) -> Reporter:
    return Reporter("", service, f"model {kind}", f"{model.rpartition('/')[2].lower()}\0{name}")


def sums_up(call: Inference) -> bool:
    """Return whether a record is an agent's span that sums up calls which another program may report."""
    return (call.source, call.operation) in _SUMMED_UP


def source_of_summed_calls(agent: Inference) -> str:
    """Return the source that reports the calls which an agent's span sums up."""
    return _SUMMED_UP[agent.source, agent.operation or ""]


def reporters_of(record: AiRecord) -> Reporters:
    """Return the reporters of the calls that a counter or an agent's sum may repeat."""
    if isinstance(record, UsageMetric):
        return _reporters_of_counter(record)
    return _runs(source_of_summed_calls(record), record.session, record.trace_id)


def _runs(source: str, *ids: str | None) -> Reporters:
    """Return the reporters of a run by its session and its trace. They match any service."""
    return Reporters(*(Reporter(source, None, "run", id) for id in ids if id is not None))


# A kind (session, user or service) and its name. The caller of a run is its session or its trace.
Caller: TypeAlias = tuple[str, str | None]


# A kind of calls that a caller reported: its word, the source or model, and the service. Calls of a source, of a model,
# of a source with any model, or of a run. The garbage collector stops visiting plain tuples of texts, but never named
# tuples. After 120,000 calls, all requests waited 0.3 s for a full collection of named tuples.
Fact: TypeAlias = tuple[str, str, str | None]


class ReportedCalls(msgspec.Struct, frozen=True, gc=False):
    """
    The time when a caller last reported calls of these kinds, and the time for which that was last stored.
    """

    at: float
    facts: tuple[Fact, ...]
    kept_at: float


Unkept: TypeAlias = Mapping[Caller, tuple[Fact, ...]]

_SESSION, _USER, _SERVICE = "session", "user", "service"
_OF_SOURCE, _OF_MODEL, _OF_ANY_MODEL, _OF_RUN = "source", "model", "any model", "run"


@lru_cache(KINDS_OF_CALLS)
def _facts(
    source: str,
    service: str | None,
    request_model: str | None,
    response_model: str | None,
    counts_for_any: bool,
) -> tuple[Fact, ...]:
    """
    Return the kinds to which a call belongs. A counter that repeats the call looks for one of these kinds.
    """
    facts = {(_OF_SOURCE, source, service): None}
    if source in _COUNTERS:
        facts[(_OF_SOURCE, _COUNTERS[source], service)] = None
    if service is not None:
        for model in (request_model, response_model):
            if model is not None:
                facts[(_OF_MODEL, _plain(model), service)] = None
        if counts_for_any:
            facts[(_OF_ANY_MODEL, source, service)] = None
    if source in _RUN_SOURCES:
        facts[_run_of(source)] = None
    return tuple(facts)


def _plain(model: str) -> str:
    return model.rpartition("/")[2].lower()


def _run_of(source: str) -> Fact:
    return (_OF_RUN, source, None)


def _looked_up(reporter: Reporter) -> tuple[Caller, Fact]:
    """Return the caller and the kind of calls for which a reporter is searched."""
    source, service, kind, name = reporter.source, reporter.service, reporter.kind, reporter.name
    if kind == "run":
        return (_SESSION, name), _run_of(source)
    if kind == "model":
        return (_SERVICE, service), (_OF_ANY_MODEL, source, service)
    fact = (_OF_SOURCE, source, service)
    if kind.startswith("model "):
        model, _, name = name.partition("\0")
        kind = kind.removeprefix("model ")
        fact = (_OF_MODEL, model, service)
    return (kind, name) if kind else (_SERVICE, service), fact


def senders_to_keep(unkept: Unkept) -> list[bytes]:
    """Encode callers and the kinds of their calls for storage."""
    return [
        sender
        for caller, facts in unkept.items()
        for sender in senders_of(digest_of(*caller), [fact_of(*fact) for fact in dict.fromkeys(facts)])
    ]


class Shadows:
    """
    The callers that reported calls, each with the time of the last report.

    `default_user` returns the user for records that are read from the log after a start. For new records,
    callers of `note` pass the user. Without `heard`, nothing is stored, which is enough to explain files.
    """

    def __init__(
        self,
        clock: Clock,
        *,
        default_user: Callable[[Inference], str | None] = lambda _: None,
        heard: Heard | None = None,
        max_senders: int = sys.maxsize,
    ) -> None:
        self._clock = clock
        self._default_user = default_user
        # The main entry of a caller is under the caller. Its other entries are under caller and kind of calls.
        self._senders: Shared[Caller | tuple[Caller, Fact], ReportedCalls] = Shared(max_senders)
        # Senders seen since `_noted_at`. Further calls of these senders need no work.
        self._noted: set[tuple[str | bool | None, ...]] = set()
        # facts by their id(), which is faster to look up than their hash
        self._noted_of_services: dict[int, tuple[Fact, ...]] = {}
        self._noted_at = 0.0
        self._heard = heard
        # Callers to store with the next submission of a key, by key.
        self._unkept: dict[str, dict[Caller, tuple[Fact, ...]]] = {}
        self.pushed_out = 0  # number of entries that were removed early because of the limit

    def __len__(self) -> int:
        return len(self._senders)

    @property
    def held(self) -> Mapping[str, int]:
        """Return the number of known callers by key."""
        return self._senders.held

    def note(
        self, record: Inference, at: float | None = None, *, default_user: str | None = None, key: str = ""
    ) -> None:
        """
        Remember the sender of a call that arrived at `at` (epoch seconds, default now).

        `default_user` is the user for reports of the same sender that name no user. `key` is the name of the
        sender's key, or "" if the key is no longer known.
        """
        # the time is read here without a helper function, because this runs for every span
        when = self._clock.now() if at is None else at
        if not 0 <= when - self._noted_at < NOTED_S:
            self._forget_noted()
            self._noted_at = when
        source = record.source
        session = record.session
        tags = record.tags
        service = tags.get("service")
        device = tags.get("device")
        trace_id = record.trace_id if source in _RUN_SOURCES else None
        request_model, response_model = record.request_model, record.response_model
        counts_for_any = request_model is None and response_model is None and record.input_tokens is not None
        sender = (
            source,
            service,
            session,
            record.user,
            default_user,
            device,
            trace_id,
            request_model,
            response_model,
            counts_for_any,
        )
        if sender in self._noted:
            return
        self._noted.add(sender)
        # Claude Code's counters may name only the installation, while its events name the account.
        users = {record.user, default_user, device}
        facts = _facts(source, service, request_model, response_model, counts_for_any)
        if id(facts) not in self._noted_of_services:
            self._noted_of_services[id(facts)] = facts
            self._hear((_SERVICE, service), facts, when, key)
        if session:
            self._hear((_SESSION, session), facts, when, key)
        for user in users:
            if user:
                self._hear((_USER, user), facts, when, key)
        if trace_id is not None:
            self._hear((_SESSION, trace_id), (_run_of(source),), when, key)

    def note_counter(self, metric: UsageMetric, at: float | None = None, *, key: str = "") -> None:
        """
        Remember a counter that arrived, because an agent's span of the same session or trace sums up
        the same usage.
        """
        if metric.source in _RUN_SOURCES and metric.session is not None:
            facts = (_run_of(metric.source),)
            self._hear((_SESSION, metric.session), facts, self._now(at), key)

    def note_session(
        self, source: str, service: str | None, session: str, at: float | None = None, *, key: str = ""
    ) -> None:
        """Remember a session that a sender's resource names, even if its calls name other sessions."""
        facts = ((_OF_SOURCE, source, service),)
        self._hear((_SESSION, session), facts, self._now(at), key)

    def shade(self, record: AiRecord, at: float | None = None) -> None:
        """
        Mark a record as a shadow if its calls were reported in the hour before `at` (default now) or after `at`.
        """
        if self.have_heard(reporters_of(record), self._now(at)):
            record.shadow = True

    def have_heard(self, reporters: Iterable[Reporter], at: float) -> bool:
        """Return whether one of the reporters reported calls in the hour before `at`, or after `at`."""
        for reporter in reporters:
            caller, fact = _looked_up(reporter)
            entry = self._senders.get(caller)
            if entry is not None and fact in entry.facts and at - entry.at <= WINDOW_S:
                return True
            entry = self._senders.get((caller, fact))
            if entry is not None and at - entry.at <= WINDOW_S:
                return True
        return False

    async def look_up(self, reporters: Iterable[Reporter], *, key: str = "") -> None:
        """Load stored callers that memory does not know. `key` is the key of the request that needs them."""
        if self._heard is None or not self._heard.knows_any:
            return
        now = self._clock.now()
        unknown: dict[bytes, list[tuple[Caller, Fact]]] = {}
        for reporter in reporters:
            if not self.have_heard([reporter], now):
                caller, fact = _looked_up(reporter)
                unknown.setdefault(digest_of(*caller), []).append((caller, fact))
        if not unknown:
            return
        for sender, at in await self._heard.find(unknown):
            facts = facts_in(sender)
            for caller, fact in unknown[sender[:CALLER_BYTES]]:
                if fact_of(*fact) in facts:
                    self._put((caller, fact), ReportedCalls(at, (fact,), at), key)

    def take_unkept(self, key: str) -> Unkept:
        """
        Return the callers that the next submission of a key must store (`senders_to_keep`).

        If the submission fails, pass them to `put_back`.
        """
        return self._unkept.pop(key, {})

    def put_back(self, unkept: Unkept, key: str) -> None:
        """Queue callers for storage again, because the submission that should have stored them failed."""
        for caller, facts in unkept.items():
            self._keep(caller, facts, key)

    def _now(self, at: float | None) -> float:
        return self._clock.now() if at is None else at

    async def run(self) -> None:
        """Delete stored callers that are too old to matter. Runs until it is cancelled."""
        while self._heard is not None:
            try:
                await self._heard.forget(self._clock.now() - KEPT_S)
            except SpoolError as error:
                _log.warning(
                    "old senders of calls cannot be deleted now: %s",
                    error,
                    extra={"action": "forgetting_put_off"},
                )
            await asyncio.sleep(KEEP_EVERY_S)

    async def age(self) -> None:
        """Remove callers from memory that are too old to matter. Runs until it is cancelled."""
        while True:
            await asyncio.sleep(AGE_EVERY_S)
            await self.forget_old()

    async def forget_old(self) -> None:
        oldest = self._clock.now() - WINDOW_S - AGE_EVERY_S
        while self._senders.forget(lambda sender: sender.at < oldest, AGED_AT_ONCE) == AGED_AT_ONCE:
            await pause()

    def now(self) -> float:
        """Return the time for all calls of one payload."""
        return self._clock.now()

    async def remember(self, log: Log) -> None:
        """
        If no callers are stored, find and store the callers of the last hour's records. They may be missing
        because the file was salvaged after damage.
        """
        if self._heard is None or self._heard.knows_any:
            return
        since = self._clock.now() - WINDOW_S
        end = await log.newest_number(AI_TELEMETRY)
        for first in range(end - STEP, max(0, end - MOST_READ) - STEP, -STEP):
            entries = await log.read(AI_TELEMETRY, max(1, first), first + STEP - 1, with_open=True)
            newest = [entry for entry in entries if entry.committed_at >= since]
            for entry in newest:
                for record in entry.records:
                    if isinstance(record, Inference):
                        self.note(record, at=entry.committed_at, default_user=self._default_user(record))
                    elif isinstance(record, UsageMetric):
                        self.note_counter(record, at=entry.committed_at)
            if not newest:
                break
        unkept = self.take_unkept("")
        if unkept:
            senders = senders_to_keep(unkept)
            try:
                await log.append(Submission(topic=AI_TELEMETRY, received=0, heard=senders))
            except (
                SpoolError
            ) as error:  # for example a full disk; the callers then stay in memory until the next start
                _log.warning(
                    "senders of calls cannot be stored: %s", error, extra={"action": "senders_not_kept"}
                )

    def _hear(self, caller: Caller, facts: tuple[Fact, ...], when: float, key: str) -> None:
        """
        Remember that a caller reported calls. Use the main entry of the caller, or one entry per kind of
        calls if the kinds differ.
        """
        entry = self._senders.get(caller)
        if (
            entry is None
            or entry.facts == facts
            or when - entry.at > WINDOW_S
            or set(facts).issuperset(entry.facts)
        ):
            self._note(caller, caller, facts, entry, when, key)
            return
        for fact in facts:
            name = caller, fact
            self._note(name, caller, (fact,), self._senders.get(name), when, key)

    def _note(
        self,
        name: Caller | tuple[Caller, Fact],
        caller: Caller,
        facts: tuple[Fact, ...],
        entry: ReportedCalls | None,
        when: float,
        key: str,
    ) -> None:
        """Update an entry, unless it was updated a moment ago. `entry` is the current value of the entry."""
        kept_at = -KEEP_EVERY_S
        if entry is not None and entry.facts == facts:
            if when - entry.at < NOTED_S:
                return
            kept_at = entry.kept_at
        if when - kept_at >= KEEP_EVERY_S and self._heard is not None:
            kept_at = when
            self._keep(caller, facts, key)
        self._put(name, ReportedCalls(when, facts, kept_at), key)

    def _keep(self, caller: Caller, facts: tuple[Fact, ...], key: str) -> None:
        unkept = self._unkept.get(key)
        if unkept is None:
            unkept = self._unkept[key] = {}
        queued = unkept.get(caller)
        unkept[caller] = facts if queued is None else queued + facts

    def _put(self, name: Caller | tuple[Caller, Fact], entry: ReportedCalls, key: str) -> None:
        removed = self._senders.put(name, entry, key)
        if removed is not None:
            self.pushed_out += 1
            # forget recent senders, because otherwise the next call of the removed caller would count
            # as already remembered
            if entry.at - removed.at <= NOTED_S:
                self._forget_noted()

    def _forget_noted(self) -> None:
        self._noted.clear()
        self._noted_of_services.clear()
