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

The callers (sessions, users, traces and services) are in memory, each with the kinds of its calls and their last
times (`callers`). The commit of the calls also stores them (`spool.log.recent_senders`). Stored callers are read after
a start, and if several processes share a log, because a counter would count twice if its caller was forgotten.
"""

from __future__ import annotations

import logging
import sys
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from hashlib import blake2b
from typing import TypeAlias

import msgspec

from gateway.intake.callers import (
    KEEP_EVERY_S,
    KNOWN_S,
    NAME_BYTES,
    WINDOW_S,
    CallKind,
    KnownCallers,
    fact_digests_of_kind,
)
from gateway.intake.rate_cards.names import model_name_used_by_maker
from gateway.normalise.reading.token_metrics import DRAFT, OPERATION, TOKEN_USAGE, USAGE
from spool.caches import remove_oldest_eighth
from spool.clock import Clock
from spool.errors import SpoolError
from spool.log.protocols import RecordLog
from spool.log.recent_senders import (
    CALLER_BYTES,
    FACT_BYTES,
    KEPT_S,
    MOST_FACTS,
    StoredSenders,
    call_kind_digest,
    call_kind_digests_of_sender_key,
    caller_digest,
)
from spool.log.values import Submission
from spool.loops import repeat
from spool.record import AI_TELEMETRY, AiRecord, Inference, UsageMetric
from spool.turns.fair_turns import pause_for_others

MOST_BYTES = MOST_FACTS * FACT_BYTES
NOTED_S = 1.0  # precision of report times, in seconds
AGE_EVERY_S = 60.0
AGED_AT_ONCE = 256  # callers forgotten between two turns of the event loop
STEP = 1024  # records read at a time; unpacked, a record takes about 2 KiB
MOST_READ = 200_000  # maximum records read at a start if no callers were stored
KINDS_OF_CALLS = 16_384  # maximum cached combinations of source, service and models

# Source of spans -> source of the counters of the same library. Some libraries mark only their spans.
_COUNTERS = {"openllmetry": "otel", "openinference": "envoy_ai_gateway"}
# Source and operation of an agent's span -> source of the calls that the span sums up. The Claude Agent SDK
# runs Claude Code.
_SUMMED_UP = {(source, "invoke_agent"): "claude_code" for source in ("openinference", "pydantic_ai")}
SUMMING = frozenset([operation for _, operation in _SUMMED_UP])
_RUN_SOURCES = frozenset(_SUMMED_UP.values())

# prefix of counters that follow the conventions, which any library may write
_CONVENTIONS = "gen_ai."
_TOKEN_COUNTERS = (TOKEN_USAGE, USAGE, f"{DRAFT}tokens")
_ANYBODY = ("", "")
_OF_COUNTERS = "counters"

_log = logging.getLogger(__name__)


class CallReporter(msgspec.Struct, frozen=True, gc=False, array_like=True):
    """
    A name, such as a session or a user, under which reported calls are noted. Each recorded counter is stored
    under this name. If calls of the name arrive later, the counter is reversed (`reversals`).

    Tens of thousands exist while counters wait. As tuples, they made the garbage collector delay a commit for
    50 ms.
    """

    source: str
    service: str | None
    kind: str  # kind of thing that `name` names, such as a session, a user or a model
    name: str


class CallReporters(msgspec.Struct, frozen=True, gc=False):
    """Up to three reporters of a counter. If one of them reported calls, the counter repeats these calls."""

    first: CallReporter | None = None
    second: CallReporter | None = None
    third: CallReporter | None = None

    def __iter__(self) -> Iterator[CallReporter]:
        if self.first is not None:
            yield self.first
        if self.second is not None:
            yield self.second
        if self.third is not None:
            yield self.third


def _reporters_whose_calls_counter_may_repeat(metric: UsageMetric) -> CallReporters:
    service = metric.tags.get("service")
    caller = (
        ("session", metric.session) if metric.session else ("user", metric.user) if metric.user else _ANYBODY
    )
    of_source = CallReporter(metric.source, service, *caller)
    of_counters = None
    if metric.name.startswith(OPERATION):
        of_counters = CallReporter(metric.source, service, _OF_COUNTERS, _counter_name(metric))
    if service is None or metric.model is None:
        return CallReporters(of_source, of_counters)
    of_model = _model_reporter(service, metric.model, *caller)
    if caller == _ANYBODY and metric.name.startswith(_CONVENTIONS):
        return CallReporters(of_model, _any_model_reporter(metric.source, service), of_counters)
    return CallReporters(of_source, of_model, of_counters)


def _counter_name(metric: UsageMetric) -> str:
    """
    Return the token type and model of a counter. A histogram repeats the counter for which both are equal.
    """
    return f"{metric.token_type}\0{model_name_used_by_maker(metric.model or '')}"


def _any_model_reporter(source: str, service: str) -> CallReporter:
    # for a call without a model, any counter of its source may repeat it
    return CallReporter(source, service, "model", "")


def _model_reporter(service: str, model: str, kind: str, name: str) -> CallReporter:
    return CallReporter("", service, f"model {kind}", f"{model_name_used_by_maker(model)}\0{name}")


def is_run_summary(call: Inference) -> bool:
    """
    Return whether an agent's span sums up the calls of another program that it runs, which may report them
    itself.
    """
    return (call.source, call.operation) in _SUMMED_UP


def source_of_calls_in_summary(run_summary: Inference) -> str:
    return _SUMMED_UP[run_summary.source, run_summary.operation or ""]


def reporters_of_record(record: AiRecord) -> CallReporters:
    if isinstance(record, UsageMetric):
        return _reporters_whose_calls_counter_may_repeat(record)
    return _reporters_of_run_ids(source_of_calls_in_summary(record), record.session, record.trace_id)


def _reporters_of_run_ids(source: str, *ids: str | None) -> CallReporters:
    return CallReporters(*(CallReporter(source, None, "run", id) for id in ids if id is not None))


# source, service, request model and response model of a call, and whether it counts for any model
_Sender: TypeAlias = tuple[str, str | None, str | None, str | None, bool]
Unkept: TypeAlias = Mapping[str, Collection[CallKind]]  # kinds of calls to store, by caller

# The caller of a run is its session or its trace. Without a name, the prefix of services is the caller of all
# calls without a service.
_SESSION, _USER, _SERVICE = "session ", "user ", "service"
_OF_SOURCE, _OF_MODEL, _OF_ANY_MODEL, _OF_RUN = "source", "model", "any model", "run"


def _call_kind_from_names(
    source: str,
    service: str | None,
    request_model: str | None,
    response_model: str | None,
    matches_counters_of_any_model: bool,
) -> CallKind:
    """
    Return a call's kind: digests of its source, service and models. By these, a counter finds the calls that
    it may repeat. With `matches_counters_of_any_model`, counters of any model find the call.
    """
    facts = {_full_digest_of_call_fact(_OF_SOURCE, source, service): None}
    if source in _COUNTERS:
        facts[_full_digest_of_call_fact(_OF_SOURCE, _COUNTERS[source], service)] = None
    if service is not None:
        for model in (request_model, response_model):
            if model is not None:
                facts[_full_digest_of_call_fact(_OF_MODEL, model_name_used_by_maker(model), service)] = None
        if matches_counters_of_any_model:
            facts[_full_digest_of_call_fact(_OF_ANY_MODEL, source, service)] = None
    if source in _RUN_SOURCES:
        facts[_digest_of_run_reporting_source(source)] = None
    return b"".join(facts)


@lru_cache(KINDS_OF_CALLS)
def _full_digest_of_call_fact(fact_type: str, name: str, service: str | None) -> bytes:
    names = fact_type, name, service
    more = blake2b(repr(names).encode("utf-8", "surrogatepass"), digest_size=NAME_BYTES - FACT_BYTES)
    return call_kind_digest(*names) + more.digest()


def _digest_of_run_reporting_source(source: str) -> bytes:
    return _full_digest_of_call_fact(_OF_RUN, source, None)


def _caller_name_of_service(service: str | None) -> str:
    return _SERVICE if service is None else f"{_SERVICE} {service}"


def _caller_and_fact_digest_of_reporter(reporter: CallReporter) -> tuple[str, bytes]:
    source, service, kind, name = reporter.source, reporter.service, reporter.kind, reporter.name
    if kind == "run":
        return _SESSION + name, _digest_of_run_reporting_source(source)
    if kind == "model":
        return _caller_name_of_service(service), _full_digest_of_call_fact(_OF_ANY_MODEL, source, service)
    if kind == _OF_COUNTERS:
        return _caller_name_of_service(service), _full_digest_of_call_fact(
            _OF_COUNTERS, f"{source}\0{name}", service
        )
    looked_up = _full_digest_of_call_fact(_OF_SOURCE, source, service)
    if kind.startswith("model "):
        model, _, name = name.partition("\0")
        kind = kind.removeprefix("model ")
        looked_up = _full_digest_of_call_fact(_OF_MODEL, model, service)
    return f"{kind} {name}" if kind else _caller_name_of_service(service), looked_up


def _caller_digest(caller: str) -> bytes:
    prefix, space, name = caller.partition(" ")
    return caller_digest(prefix, name if space else None)


@lru_cache(KINDS_OF_CALLS)
def _shortened_first_and_other_fact_digests(kind: CallKind) -> tuple[bytes, bytes]:
    first, *others = fact_digests_of_kind(kind)
    return first[:FACT_BYTES], b"".join(fact[:FACT_BYTES] for fact in others)


def sender_rows_to_store(unstored_callers: Unkept) -> list[bytes]:
    senders = list[bytes]()
    for caller, kinds in unstored_callers.items():
        if len(kinds) == 1:
            data = b"".join(_shortened_first_and_other_fact_digests(*kinds))
        else:
            facts = [_shortened_first_and_other_fact_digests(kind) for kind in kinds]
            # Store the source and the service once, because most kinds of calls of one caller share them.
            data = b"".join([*dict.fromkeys([first for first, _ in facts]), *[others for _, others in facts]])
        digest = _caller_digest(caller)
        if len(data) <= MOST_BYTES:
            senders.append(digest + data)
        else:
            senders += [
                digest + data[begin : begin + MOST_BYTES] for begin in range(0, len(data), MOST_BYTES)
            ]
    return senders


class ReportedCallers:
    """
    The table of callers that reported calls, and the callers that the next commit must store.

    `default_user` returns the user for records that are read from the log after a start. Without `heard` (the
    stored table), nothing is stored, which is enough for `tollhouse explain`.
    """

    def __init__(
        self,
        clock: Clock,
        *,
        default_user: Callable[[Inference], str | None] = lambda _: None,
        heard: StoredSenders | None = None,
        max_senders: int = sys.maxsize,
    ) -> None:
        self._clock = clock
        self._default_user = default_user
        self._callers = KnownCallers(max_senders)
        self._heard = heard
        self._second = 0.0
        self._known: dict[_Sender, CallKind] = {}
        # by key: callers that are stored with the next data that the key sends
        self._unkept: dict[str, dict[str, Collection[CallKind]]] = {}

    def __len__(self) -> int:
        return len(self._callers)

    @property
    def used_caller_slots_by_sender_key(self) -> Mapping[str, int]:
        return self._callers.used_caller_slots_by_sender_key

    @property
    def evicted_caller_count(self) -> int:
        return self._callers.pushed_out

    def note_call(
        self,
        record: Inference,
        reported_at: float | None = None,
        *,
        default_user: str | None = None,
        sender_key: str = "",
    ) -> None:
        self.note_records([record], [default_user], self._time_or_now(reported_at), sender_key=sender_key)

    def note_records(
        self,
        records: Sequence[AiRecord],
        default_users: Sequence[str | None],
        reported_at: float,
        *,
        sender_key: str,
    ) -> None:
        """
        Note the callers of records. `reported_at` is in epoch seconds. `default_users` has for each record the user
        for reports that name no user. `sender_key` is "" if the sender's key is no longer known.
        """
        # Calls of the same second share one time object, to save memory.
        if 0 <= reported_at - self._second < NOTED_S:
            reported_at = self._second
        else:
            self._second = reported_at
        known, entries = self._known, self._callers.entries
        # time by kind, for each session and service
        groups: dict[tuple[str | None, str | None], dict[CallKind, float]] = {}
        group: tuple[str | None, str | None] | None = None
        reported: dict[CallKind, float] = {}
        for call, default_user in zip(records, default_users, strict=True):
            if not isinstance(call, Inference):
                self.note_counter(call, reported_at, sender_key=sender_key)
                continue
            source, tags = call.source, call.tags
            request_model, response_model = call.request_model, call.response_model
            counts_for_any = (
                request_model is None and response_model is None and call.input_tokens is not None
            )
            service = tags.get("service")
            sender = source, service, request_model, response_model, counts_for_any
            kind = known.get(sender) or self._build_and_cache_call_kind(sender)
            if (call.session, service) != group:
                group = call.session, service
                reported = groups.setdefault(group, {})
            reported[kind] = reported_at
            user = call.user
            # This repeats what `KnownCallers.note_calls` does for a known kind, without calls, because it
            # runs per span.
            if user:
                caller = _USER + user
                entry = entries.get(caller)
                if entry is None or entry.key != sender_key or not entry.at <= reported_at < entry.due_at:
                    self._note_calls(caller, {kind: reported_at}, sender_key)
                elif entry.kind is kind:
                    entry.at = reported_at
                elif entry.times is not None and kind in entry.times:
                    entry.times[kind] = entry.at = reported_at
                else:
                    self._note_calls(caller, {kind: reported_at}, sender_key)
            if default_user and default_user != user:
                self._note_calls(_USER + default_user, {kind: reported_at}, sender_key)
            # Claude Code's counters may name only the installation, while its events name the account.
            device = tags.get("device")
            if device and device != user and device != default_user:
                self._note_calls(_USER + device, {kind: reported_at}, sender_key)
            if source in _RUN_SOURCES and call.trace_id is not None:
                self._note_calls(
                    _SESSION + call.trace_id,
                    {_digest_of_run_reporting_source(source): reported_at},
                    sender_key,
                )
        of_services: dict[str | None, dict[CallKind, float]] = {}
        for (session, service), reported in groups.items():
            if session:
                self._note_calls(_SESSION + session, reported, sender_key)
            of_services.setdefault(service, {}).update(reported)
        for service, reported in of_services.items():
            self._note_calls(_caller_name_of_service(service), reported, sender_key)

    def _build_and_cache_call_kind(self, sender: _Sender) -> CallKind:
        if len(self._known) >= KINDS_OF_CALLS:
            remove_oldest_eighth(self._known)
        kind = self._known[sender] = _call_kind_from_names(*sender)
        return kind

    def note_counter(
        self, metric: UsageMetric, reported_at: float | None = None, *, sender_key: str = ""
    ) -> None:
        """
        Note a counter as a report. A span of an agent in the same session or trace sums up the same usage,
        and a histogram of the same tokens repeats it.
        """
        if metric.token_type is not None and metric.name.startswith(_TOKEN_COUNTERS):
            service, counted = metric.tags.get("service"), f"{metric.source}\0{_counter_name(metric)}"
            fact = _full_digest_of_call_fact(_OF_COUNTERS, counted, service)
            self._note_calls(
                _caller_name_of_service(service), {fact: self._time_or_now(reported_at)}, sender_key
            )
        if metric.source in _RUN_SOURCES and metric.session is not None:
            self._note_calls(
                _SESSION + metric.session,
                {_digest_of_run_reporting_source(metric.source): self._time_or_now(reported_at)},
                sender_key,
            )

    def note_session_of_sender(
        self,
        source: str,
        service: str | None,
        session: str,
        reported_at: float | None = None,
        *,
        sender_key: str = "",
    ) -> None:
        """Remember a session that a sender's resource names, even if its calls name other sessions."""
        self._note_calls(
            _SESSION + session,
            {_full_digest_of_call_fact(_OF_SOURCE, source, service): self._time_or_now(reported_at)},
            sender_key,
        )

    def mark_record_if_it_repeats_calls(self, record: AiRecord, reported_at: float | None = None) -> None:
        if self.has_any_reported_calls(reporters_of_record(record), self._time_or_now(reported_at)):
            record.shadow = True

    def has_any_reported_calls(self, reporters: Iterable[CallReporter], moment: float) -> bool:
        """Return whether one of the reporters reported calls in the hour before `moment`, or after `moment`."""
        last = self._callers.last_reported_at
        return any(
            moment - last(*_caller_and_fact_digest_of_reporter(reporter)) <= WINDOW_S
            for reporter in reporters
        )

    async def load_reporters_from_storage(
        self, reporters: Iterable[CallReporter], *, sender_key: str = ""
    ) -> None:
        """
        Look up reporters in the storage. `sender_key` is the Tollhouse key whose limit of callers the found entries
        use.
        """
        if self._heard is None or not self._heard.has_any_sender:
            return
        now = self._clock.now()
        unknown: dict[bytes, list[tuple[str, bytes]]] = {}
        for reporter in reporters:
            if not self.has_any_reported_calls([reporter], now):
                caller, fact = _caller_and_fact_digest_of_reporter(reporter)
                unknown.setdefault(_caller_digest(caller), []).append((caller, fact))
        if not unknown:
            return
        for sender, at in await self._heard.find_senders_of_callers(unknown):
            facts = call_kind_digests_of_sender_key(sender)
            for caller, fact in unknown[sender[:CALLER_BYTES]]:
                if fact[:FACT_BYTES] in facts:
                    self._callers.note_calls(caller, {fact: at}, sender_key)

    def take_unstored_callers(self, sender_key: str) -> Unkept:
        """Return the callers to store. If the submission fails, pass them to `put_back_callers`."""
        return self._unkept.pop(sender_key, {})

    def put_back_callers(self, unstored_callers: Unkept, sender_key: str) -> None:
        for caller, kinds in unstored_callers.items():
            self._queue_kinds(caller, kinds, sender_key)

    def _time_or_now(self, moment: float | None) -> float:
        return self._clock.now() if moment is None else moment

    async def run(self) -> None:
        await repeat(
            self._delete_old_senders,
            every_s=KEEP_EVERY_S,
            failed="old senders of calls cannot be deleted now",
            action="forgetting_put_off",
        )

    async def _delete_old_senders(self) -> None:
        if self._heard is not None:
            await self._heard.delete_old(self._clock.now() - KEPT_S)

    async def forget_old_periodically(self) -> None:
        await repeat(
            self.forget_old_callers,
            every_s=AGE_EVERY_S,
            failed="old callers cannot be forgotten now",
            action="forgetting_put_off",
        )

    async def forget_old_callers(self) -> None:
        oldest = self._clock.now() - KNOWN_S
        while self._callers.forget_callers_before(oldest, AGED_AT_ONCE) == AGED_AT_ONCE:
            await pause_for_others()

    def now(self) -> float:
        return self._clock.now()

    async def restore_missing_callers(self, record_log: RecordLog) -> None:
        """
        If no callers are stored, find and store the callers of the last hour's records. They may be missing because
        the file was salvaged after damage.
        """
        if self._heard is None or self._heard.has_any_sender:
            return
        since = self._clock.now() - WINDOW_S
        end = await record_log.newest_number(AI_TELEMETRY)
        for first in range(end - STEP, max(0, end - MOST_READ) - STEP, -STEP):
            entries = await record_log.read(
                AI_TELEMETRY, max(1, first), first + STEP - 1, includes_open_records=True
            )
            newest = [entry for entry in entries if entry.committed_at >= since]
            for entry in newest:
                for record in entry.records:
                    if isinstance(record, Inference):
                        self.note_call(
                            record, reported_at=entry.committed_at, default_user=self._default_user(record)
                        )
                    elif isinstance(record, UsageMetric):
                        self.note_counter(record, reported_at=entry.committed_at)
            if not newest:
                break
        unkept = self.take_unstored_callers("")
        if unkept:
            senders = sender_rows_to_store(unkept)
            try:
                await record_log.append_submission(Submission(topic=AI_TELEMETRY, received=0, heard=senders))
            except (
                SpoolError
                # if the callers cannot be stored, for example on a full disk, they stay only in memory until the
                # next start
            ) as error:
                _log.warning(
                    "senders of calls cannot be stored: %s", error, extra={"action": "senders_not_kept"}
                )

    def _note_calls(
        self, caller: str, reported_at_by_kind: Mapping[CallKind, float], sender_key: str
    ) -> None:
        due = self._callers.note_calls(caller, reported_at_by_kind, sender_key)
        if due and self._heard is not None:
            self._queue_kinds(caller, due, sender_key)

    def _queue_kinds(self, caller: str, kinds: Collection[CallKind], sender_key: str) -> None:
        unkept = self._unkept.get(sender_key)
        if unkept is None:
            unkept = self._unkept[sender_key] = {}
        queued = unkept.get(caller)
        unkept[caller] = kinds if queued is None else [*queued, *kinds]
