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

Where one process keeps the log it is in memory only, and rebuilt from the newest entries at start: what it
forgets would make a shadow count, so it forgets by age and, far beyond any real fleet, by number. Where
several share one, what each heard is kept in the commits of the calls (`spool.log.heard`), and looked up for
whom the memory does not know.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable, Iterator

import msgspec

from spool.clock import Clock
from spool.errors import SpoolError
from spool.log.heard import KEPT_S, Heard, digest_of
from spool.log.protocols import Log
from spool.record import AI_TELEMETRY, AiRecord, Inference, UsageMetric
from spool.shares import Shared

WINDOW_S = 3600.0
NOTED_S = 1.0  # the times of reports are this exact
MAX_REPORTERS = 200_000
REMEMBERED = 200_000  # newest records looked at after a start
KEEP_EVERY_S = 600.0  # a reporter is kept once in this time: so much earlier the others may forget it
STEP = 1024  # of them at a time: unpacked they take some 2 KiB each

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


def digests_of(reporters: Iterable[Reporter]) -> list[bytes]:
    """The names as they are kept."""
    return [_digest(reporter) for reporter in reporters]


def _digest(reporter: Reporter) -> bytes:
    return digest_of(reporter.source, reporter.service, reporter.kind, reporter.name)


class Shadows:
    """
    The reporters of inference records and when each last reported.

    `default_user` gives for records read again after a start what callers of `note` give for new ones.
    """

    def __init__(
        self,
        clock: Clock,
        *,
        default_user: Callable[[Inference], str | None] = lambda _: None,
        heard: Heard | None = None,
    ) -> None:
        self._clock = clock
        self._default_user = default_user
        self._last_reports: Shared[Reporter, float] = Shared(
            MAX_REPORTERS
        )  # shared by the keys that brought them
        self._noted: set[tuple[str | bool | None, ...]] = (
            set()
        )  # who told calls since `_noted_at`: senders repeat themselves
        self._noted_at = 0.0
        self._heard = heard
        self.is_shared = heard is not None  # other processes hear calls, too
        self._kept_at: dict[Reporter, float] = {}
        self._unkept: dict[Reporter, float] = {}  # noted since, and to be kept with the next submission
        self._known = 0  # the highest number that was looked at after the start

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
            self._noted.clear()
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
            source, service, session, record.user, default_user, device, trace_id, asked, answered, counts_for_any
        )  # fmt: skip
        if sender in self._noted:
            return
        self._noted.add(sender)
        # Claude Code's counters may name the installation alone, where its events name the account.
        users = [("user", user) for user in {record.user, default_user, device} if user]
        callers = [_ANYBODY, *([("session", session)] if session else []), *users]
        for caller in callers:
            for name in (source, _COUNTERS.get(source)):
                if name is not None:
                    self._note(Reporter(name, service, *caller), when, key)
            if service is not None:
                for model in {asked, answered} - {None}:
                    self._note(_by_model(service, model or "", *caller), when, key)
        if counts_for_any and service is not None:
            self._note(_by_any_model(source, service), when, key)
        if source in _TELL_RUNS:
            for run in _runs(source, session, trace_id):
                self._note(run, when, key)

    def note_counter(self, metric: UsageMetric, at: float | None = None, *, key: str = "") -> None:
        """A counter came in: an agent's span beside it sums up the same."""
        if metric.source in _TELL_RUNS:
            for run in _runs(metric.source, metric.session):
                self._note(run, self._now(at), key)

    def note_session(
        self, source: str, service: str | None, session: str, at: float | None = None, *, key: str = ""
    ) -> None:
        """Calls came in of a sender whose resource names this session, whatever they name themselves."""
        self._note(Reporter(source, service, "session", session), self._now(at), key)

    def shade(self, record: AiRecord, at: float | None = None) -> None:
        """
        Mark a record whose tokens others hold that came in the hour before it, or since (at: default now).
        """
        if self.have_heard(reporters_of(record), self._now(at)):
            record.shadow = True

    def have_heard(self, reporters: Iterable[Reporter], at: float) -> bool:
        """True if one of the reporters sent calls in the hour before a moment, or since."""
        for reporter in reporters:
            last = self._last_reports.get(reporter)
            if last is not None and at - last <= WINDOW_S:
                return True
        return False

    async def look_up(self, reporters: Iterable[Reporter]) -> None:
        """Learn when those were heard elsewhere whom the memory does not know."""
        if self._heard is None:
            return
        now = self._clock.now()
        unknown = {_digest(each): each for each in reporters if not self.have_heard([each], now)}
        if unknown:
            for digest, at in (await self._heard.find(unknown)).items():
                self._hear(unknown[digest], at, "")

    def take_unkept(self) -> list[Reporter]:
        """
        Whom the next submission is to keep (`digests_of`); after a failure they are given to `put_back`.
        """
        taken = list(self._unkept)
        self._kept_at.update(self._unkept)
        self._unkept.clear()
        if len(self._kept_at) > MAX_REPORTERS:
            self._kept_at.clear()
        return taken

    def _now(self, at: float | None) -> float:
        return self._clock.now() if at is None else at

    def put_back(self, reporters: Iterable[Reporter]) -> None:
        """Note that these reporters were not stored after all."""
        for reporter in reporters:
            at = self._kept_at.pop(reporter, None)
            self._unkept[reporter] = self._now(at)

    async def run(self) -> None:
        """
        Forget, for all processes that share it and until cancelled, reporters that nobody asks about any
        more.
        """
        while self._heard is not None:
            try:
                await self._heard.forget(self._clock.now() - KEPT_S)
            except SpoolError as error:
                _log.warning(
                    "what was heard is forgotten later: %s", error, extra={"action": "forgetting_put_off"}
                )
            await asyncio.sleep(WINDOW_S)

    def now(self) -> float:
        """The moment to note the calls of one payload at."""
        return self._clock.now()

    async def remember(self, log: Log) -> None:
        """Note the calls of the newest closed entries after a restart; `follow` notes the open ones."""
        since = self._clock.now() - WINDOW_S
        last = log.closed_below(AI_TELEMETRY) - 1
        for first in range(max(1, self._known + 1, last - REMEMBERED), last + 1, STEP):
            for entry in await log.read(AI_TELEMETRY, first, min(first + STEP - 1, last), whole=True):
                if entry.committed_at >= since:
                    for record in entry.records:
                        if isinstance(record, Inference):
                            self.note(record, at=entry.committed_at, default_user=self._default_user(record))
                        elif isinstance(record, UsageMetric):
                            self.note_counter(record, at=entry.committed_at)
        self._known = last

    async def follow(self, log: Log, *, hold_s: float) -> None:
        """Run in the background: note what was open at the start, which is closed `hold_s` later."""
        until = self._clock.now() + hold_s
        async for _ in log.changes(AI_TELEMETRY):
            knows_all = self._clock.now() > until
            await self.remember(log)
            if knows_all:
                break
        await asyncio.Event().wait()  # what comes later is noted as it comes

    def _note(self, reporter: Reporter, when: float, key: str) -> None:
        if self._heard is not None and when - self._kept_at.get(reporter, -KEEP_EVERY_S) >= KEEP_EVERY_S:
            self._unkept[reporter] = when
        self._hear(reporter, when, key)

    def _hear(self, reporter: Reporter, when: float, key: str) -> None:
        before = self._last_reports.get(reporter)
        newest = when if before is None or before < when else before
        if self._last_reports.put(reporter, newest, key) is not None:
            self._noted.clear()
