"""
Which counters repeat what events already reported: a usage metric is a shadow when an inference record of the
same source, service and session (or user) came in the hour before, or while the metric waited to be judged
(`waiting_counters`). A metric that names neither session nor user (Codex's) is compared by its source and
service alone: counted beside the events it would count twice.

Calls and counters of one program may come from two libraries, which name themselves and it differently. So a
call is also noted by its service and its models, whoever told it, and a counter of the conventions that names
both is a shadow of such calls alone: a model of which no call was told counts. Calls of its own source that
count tokens and name no model may be of any. Counters that a product made for itself go by its own calls,
too. Where a service or a counter's model is missing, the sources have to agree (`_COUNTERS`).

The span of an agent that sums up what a program below it tells is a shadow, too, when that program told calls
or counters of the same session or trace.

Each sender has one entry in memory, by its session, its user, its trace or its service: when it last told calls,
and of which sources and models. The names under which a counter looks are found in it when a counter comes. What is
noted is also kept in the commit of its calls (`spool.log.heard`), and looked up there after a start, and where
several processes share a log: what is forgotten would make a shadow count. In memory it goes by age and, over
`spool.max_senders`, the oldest of the key that has the most.
"""

from __future__ import annotations

import asyncio
import logging
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import lru_cache
from typing import NamedTuple, TypeAlias

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
NOTED_S = 1.0  # the times of reports are this exact
KEEP_EVERY_S = 600.0  # a sender is kept once in this time: so much earlier it may be forgotten after a start
AGE_EVERY_S = 60.0
AGED_AT_ONCE = 256  # senders that are forgotten between two turns of the event loop
STEP = 1024  # records that are read at a time: unpacked they take some 2 KiB each
MOST_READ = 200_000  # records that are read where nothing is kept of senders
KINDS_OF_CALLS = 4096  # that are worked out once: sources and models of a service

# What counters are known by where their senders' spans bear marks that no counter has.
_COUNTERS = {"openllmetry": "otel", "openinference": "envoy_ai_gateway"}
# Source and operation of agents that sum up, and who tells the same: the Claude Agent SDK runs Claude Code.
_SUMMED_UP = {(source, "invoke_agent"): "claude_code" for source in ("openinference", "pydantic_ai")}
SUMMING = frozenset([operation for _, operation in _SUMMED_UP])  # operations of these
_TELL_RUNS = frozenset(_SUMMED_UP.values())

_CONVENTIONS = "gen_ai."  # beginning of the names of counters that every library writes
_ANYBODY = ("", "")

_log = logging.getLogger(__name__)


class Reporter(msgspec.Struct, frozen=True, gc=False, array_like=True):
    """
    A name under which calls are noted, also as counters that count are stored (`take_backs`).

    Tens of thousands are kept while counters wait: tuples of them held up a commit for 50 ms, while the garbage
    collector went through the new ones.
    """

    source: str
    service: str | None
    kind: str  # of the name
    name: str


class Reporters(msgspec.Struct, frozen=True, gc=False):
    """The names under one of which calls are noted that a record may repeat."""

    first: Reporter | None = None
    second: Reporter | None = None

    def __iter__(self) -> Iterator[Reporter]:
        if self.first is not None:
            yield self.first
        if self.second is not None:
            yield self.second


def _reporters_beside(metric: UsageMetric) -> Reporters:
    """The names under which the calls beside a counter are noted."""
    service = metric.tags.get("service")
    who = (
        ("session", metric.session) if metric.session else ("user", metric.user) if metric.user else _ANYBODY
    )
    of_source = Reporter(metric.source, service, *who)
    if service is None or metric.model is None:
        return Reporters(of_source)
    of_model = _by_model(service, metric.model, *who)
    if who == _ANYBODY and metric.name.startswith(_CONVENTIONS):
        return Reporters(of_model, _by_any_model(metric.source, service))
    return Reporters(of_source, of_model)


def _by_any_model(source: str, service: str) -> Reporter:
    """Return the reporter of calls that name no model: any counter of the same source may repeat them."""
    return Reporter(source, service, "model", "")


def _by_model(service: str, model: str, kind: str, name: str) -> Reporter:
    return Reporter("", service, f"model {kind}", f"{model.rpartition('/')[2].lower()}\0{name}")


def sums_up(call: Inference) -> bool:
    """True for an agent's sum of calls that another program may report."""
    return (call.source, call.operation) in _SUMMED_UP


def tells_the_calls_of(agent: Inference) -> str:
    """The source that tells the calls that an agent's span sums up."""
    return _SUMMED_UP[agent.source, agent.operation or ""]


def reporters_of(record: AiRecord) -> Reporters:
    """The names under one of which is noted who tells what a counter or an agent's sum repeats."""
    if isinstance(record, UsageMetric):
        return _reporters_beside(record)
    return _runs(tells_the_calls_of(record), record.session, record.trace_id)


def _runs(source: str, *ids: str | None) -> Reporters:
    """The names of a run, by its session and its trace; whichever service it is."""
    return Reporters(*(Reporter(source, None, "run", id) for id in ids if id is not None))


# Of whom calls are noted: a session, a user, a run (by its session or trace), or all of a service, and its name.
Caller: TypeAlias = tuple[str, str | None]


class Fact(NamedTuple):
    """A kind of calls that a caller told: of a source, of a model, of a source and any model, or of a run."""

    kind: str
    name: str
    service: str | None


class ToldCalls(msgspec.Struct, frozen=True, gc=False):
    """When a caller last told calls of these kinds, and when that was last kept."""

    at: float
    facts: tuple[Fact, ...]
    kept_at: float


Unkept: TypeAlias = Mapping[Caller, tuple[Fact, ...]]

_SESSION, _USER, _SERVICE = "session", "user", "service"
_OF_SOURCE, _OF_MODEL, _OF_ANY_MODEL, _OF_RUN = "source", "model", "any model", "run"


@lru_cache(KINDS_OF_CALLS)
def _facts(
    source: str, service: str | None, asked: str | None, answered: str | None, counts_for_any: bool
) -> tuple[Fact, ...]:
    """Return what a counter can look for that repeats such a call."""
    facts = {Fact(_OF_SOURCE, source, service): None}
    if source in _COUNTERS:
        facts[Fact(_OF_SOURCE, _COUNTERS[source], service)] = None
    if service is not None:
        for model in (asked, answered):
            if model is not None:
                facts[Fact(_OF_MODEL, _plain(model), service)] = None
        if counts_for_any:
            facts[Fact(_OF_ANY_MODEL, source, service)] = None
    if source in _TELL_RUNS:
        facts[_run_of(source)] = None
    return tuple(facts)


def _plain(model: str) -> str:
    return model.rpartition("/")[2].lower()


def _run_of(source: str) -> Fact:
    return Fact(_OF_RUN, source, None)


def _looked_up(reporter: Reporter) -> tuple[Caller, Fact]:
    """Return who is noted under a name that a counter has, and what it must have told."""
    source, service, kind, name = reporter.source, reporter.service, reporter.kind, reporter.name
    if kind == "run":
        return (_SESSION, name), _run_of(source)
    if kind == "model":
        return (_SERVICE, service), Fact(_OF_ANY_MODEL, source, service)
    fact = Fact(_OF_SOURCE, source, service)
    if kind.startswith("model "):
        model, _, name = name.partition("\0")
        kind = kind.removeprefix("model ")
        fact = Fact(_OF_MODEL, model, service)
    return (kind, name) if kind else (_SERVICE, service), fact


def senders_to_keep(unkept: Unkept) -> list[bytes]:
    """Return callers and what they told as they are kept."""
    return [
        sender
        for caller, facts in unkept.items()
        for sender in senders_of(digest_of(*caller), [fact_of(*fact) for fact in dict.fromkeys(facts)])
    ]


class Shadows:
    """
    The senders of inference records and when each last reported.

    `default_user` gives for records read after a start what callers of `note` give for new ones. Without `heard`
    nothing is kept: explaining files.
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
        # By their callers; what a caller tells besides, by caller and fact.
        self._senders: Shared[Caller | tuple[Caller, Fact], ToldCalls] = Shared(max_senders)
        self._noted: set[tuple[str | bool | None, ...]] = (
            set()
        )  # who told calls since `_noted_at`: senders repeat themselves
        self._noted_of_services: dict[int, tuple[Fact, ...]] = {}  # by id, which is quicker to look for
        self._noted_at = 0.0
        self._heard = heard
        # By key: what is to be kept with its next submission.
        self._unkept: dict[str, dict[Caller, tuple[Fact, ...]]] = {}
        self.pushed_out = 0  # before their time, for want of room

    def __len__(self) -> int:
        return len(self._senders)

    @property
    def held(self) -> Mapping[str, int]:
        """Return how many senders are known by the calls of each key."""
        return self._senders.held

    def note(
        self, record: Inference, at: float | None = None, *, default_user: str | None = None, key: str = ""
    ) -> None:
        """
        An inference record came in (at: epoch seconds, default now).

        `default_user` is the user whom a report of the same sender is put down to when it names none itself;
        `key` is the key that brought it, "" if that is not known any more.
        """
        when = self._clock.now() if at is None else at  # each span comes here: no call for that
        if not 0 <= when - self._noted_at < NOTED_S:
            self._forget_noted()
            self._noted_at = when
        source = record.source
        session = record.session
        tags = record.tags
        service = tags.get("service")
        device = tags.get("device")
        trace_id = record.trace_id if source in _TELL_RUNS else None
        asked, answered = record.request_model, record.response_model
        counts_for_any = asked is None and answered is None and record.input_tokens is not None
        sender = (
            source,
            service,
            session,
            record.user,
            default_user,
            device,
            trace_id,
            asked,
            answered,
            counts_for_any,
        )
        if sender in self._noted:
            return
        self._noted.add(sender)
        # Claude Code's counters may name the installation alone, where its events name the account.
        users = {record.user, default_user, device}
        facts = _facts(source, service, asked, answered, counts_for_any)
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
        """A counter came in: an agent's span beside it sums up the same."""
        if metric.source in _TELL_RUNS and metric.session is not None:
            facts = (_run_of(metric.source),)
            self._hear((_SESSION, metric.session), facts, self._now(at), key)

    def note_session(
        self, source: str, service: str | None, session: str, at: float | None = None, *, key: str = ""
    ) -> None:
        """Calls came in of a sender whose resource names this session, whatever they name themselves."""
        facts = (Fact(_OF_SOURCE, source, service),)
        self._hear((_SESSION, session), facts, self._now(at), key)

    def shade(self, record: AiRecord, at: float | None = None) -> None:
        """Mark a record whose tokens others hold that came in the hour before it, or since (at: default now)."""
        if self.have_heard(reporters_of(record), self._now(at)):
            record.shadow = True

    def have_heard(self, reporters: Iterable[Reporter], at: float) -> bool:
        """True if one of the reporters sent calls in the hour before a moment, or since."""
        for reporter in reporters:
            caller, fact = _looked_up(reporter)
            told = self._senders.get(caller)
            if told is not None and fact in told.facts and at - told.at <= WINDOW_S:
                return True
            told = self._senders.get((caller, fact))
            if told is not None and at - told.at <= WINDOW_S:
                return True
        return False

    async def look_up(self, reporters: Iterable[Reporter], *, key: str = "") -> None:
        """Learn what is kept of those whom the memory does not know; `key` is the one that asks."""
        if self._heard is None or not self._heard.knows_any:
            return
        now = self._clock.now()
        asked: dict[bytes, list[tuple[Caller, Fact]]] = {}
        for reporter in reporters:
            if not self.have_heard([reporter], now):
                caller, fact = _looked_up(reporter)
                asked.setdefault(digest_of(*caller), []).append((caller, fact))
        if not asked:
            return
        for sender, at in await self._heard.find(asked):
            facts = facts_in(sender)
            for caller, fact in asked[sender[:CALLER_BYTES]]:
                if fact_of(*fact) in facts:
                    self._put((caller, fact), ToldCalls(at, (fact,), at), key)

    def take_unkept(self, key: str) -> Unkept:
        """
        Return whom the next submission of a key is to keep (`senders_to_keep`); after a failure they are
        given to `put_back`.
        """
        return self._unkept.pop(key, {})

    def put_back(self, unkept: Unkept, key: str) -> None:
        """Note that these were not stored after all."""
        for caller, facts in unkept.items():
            self._keep(caller, facts, key)

    def _now(self, at: float | None) -> float:
        return self._clock.now() if at is None else at

    async def run(self) -> None:
        """Forget, until cancelled, what is kept of senders that nobody asks about any more."""
        while self._heard is not None:
            try:
                await self._heard.forget(self._clock.now() - KEPT_S)
            except SpoolError as error:
                _log.warning(
                    "what was heard is forgotten later: %s", error, extra={"action": "forgetting_put_off"}
                )
            await asyncio.sleep(KEEP_EVERY_S)

    async def age(self) -> None:
        """Forget, until cancelled, senders in memory that told no calls for longer than anybody asks about."""
        while True:
            await asyncio.sleep(AGE_EVERY_S)
            await self.forget_old()

    async def forget_old(self) -> None:
        before = self._clock.now() - WINDOW_S - AGE_EVERY_S
        while self._senders.forget(lambda told: told.at < before, AGED_AT_ONCE) == AGED_AT_ONCE:
            await pause()

    def now(self) -> float:
        """The moment to note the calls of one payload at."""
        return self._clock.now()

    async def remember(self, log: Log) -> None:
        """
        Where nothing is kept of senders, note and keep those of the newest records, back to an hour ago: the file may
        have been salvaged.
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
            except SpoolError as error:  # of a full disk: they are known until the next start
                _log.warning("what was heard is not kept: %s", error, extra={"action": "senders_not_kept"})

    def _hear(self, caller: Caller, facts: tuple[Fact, ...], when: float, key: str) -> None:
        """Note that a caller told calls: it has one entry, and one for each kind of calls that is not in that."""
        told = self._senders.get(caller)
        if (
            told is None
            or told.facts == facts
            or when - told.at > WINDOW_S
            or set(facts).issuperset(told.facts)
        ):
            self._note(caller, caller, facts, told, when, key)
            return
        for fact in facts:
            name = caller, fact
            self._note(name, caller, (fact,), self._senders.get(name), when, key)

    def _note(
        self,
        name: Caller | tuple[Caller, Fact],
        caller: Caller,
        facts: tuple[Fact, ...],
        told: ToldCalls | None,
        when: float,
        key: str,
    ) -> None:
        """Renew the entry of that name, if it was not a moment ago; `told` is what it has now."""
        kept_at = -KEEP_EVERY_S
        if told is not None and told.facts == facts:
            if when - told.at < NOTED_S:
                return
            kept_at = told.kept_at
        if when - kept_at >= KEEP_EVERY_S and self._heard is not None:
            kept_at = when
            self._keep(caller, facts, key)
        self._put(name, ToldCalls(when, facts, kept_at), key)

    def _keep(self, caller: Caller, facts: tuple[Fact, ...], key: str) -> None:
        unkept = self._unkept.get(key)
        if unkept is None:
            unkept = self._unkept[key] = {}
        before = unkept.get(caller)
        unkept[caller] = facts if before is None else before + facts

    def _put(self, name: Caller | tuple[Caller, Fact], told: ToldCalls, key: str) -> None:
        gone = self._senders.put(name, told, key)
        if gone is not None:
            self.pushed_out += 1
            if told.at - gone.at <= NOTED_S:  # its next call is not to be taken for one that is noted
                self._forget_noted()

    def _forget_noted(self) -> None:
        self._noted.clear()
        self._noted_of_services.clear()
