"""
Divides the cost of every call exactly: cost = useful + classes + not judged. Pure.

A class is an identity over the counts of consecutive calls of one lane, so nothing is scaled from a sample. Counts
prove that tokens were paid again, not why.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from msgspec.structs import replace

from gateway.money.waste.lane import ENDS_AFTER, CachedPrefix, Lane
from gateway.money.waste.rules import (
    AUTOMATIC_LIVES,
    EXPLICIT,
    FIVE_MINUTES,
    ONE_HOUR,
    SURELY_CACHEABLE,
    UNSTATED,
    CacheRule,
    rule_of_call,
)
from spool import money
from spool.record import NS, Inference, counted_cost, decimal_text

AVOIDABLE, CHOICE, PROVIDER = "avoidable", "choice", "provider"
REPEATED, BREAK, PAUSE, MODEL_SWITCH = "repeated", "break", "pause", "model_switch"
SHORTENED, MISSED, UNREAD, UNCACHED = "shortened", "missed", "unread", "uncached"
# Classes and their groups. Amounts are taken in this order, so that no token is paid again in two classes.
GROUPS = {
    REPEATED: AVOIDABLE,
    BREAK: AVOIDABLE,
    PAUSE: CHOICE,
    MODEL_SWITCH: CHOICE,
    SHORTENED: CHOICE,
    MISSED: PROVIDER,
    UNREAD: AVOIDABLE,
    UNCACHED: AVOIDABLE,
}

NO_LANE = "its source states no lane"
NO_RULE = "its provider states no rule of its cache"
NO_TIME = "a start or an end is unknown"
NO_COUNTS = "a count of tokens is missing, or the counts contradict each other"
NO_PRICE = "its price is unknown, or has changed since"
OVERLAPS = "it began before the call before it ended"
UNSURE_LIFETIME = "the tokens may or may not have been alive"
UNSURE_READ = "a call that is not known yet, or is not visible, may have read what it wrote"

REPEATS_WITHIN = 60 * NS
# Tokens that a call paid, and that are not judged because of what is not known about the cache.
_UNSURE_LIFETIME, _UNSURE_READ = "unsure_lifetime", "unsure_read"
_ORDER = (BREAK, PAUSE, _UNSURE_LIFETIME, MODEL_SWITCH, SHORTENED, MISSED, UNREAD, _UNSURE_READ)
_REASONS = {_UNSURE_LIFETIME: UNSURE_LIFETIME, _UNSURE_READ: UNSURE_READ}

Estimate = Callable[[Inference], str | None]  # a call's cost at list prices, as decimal text


class JudgedCall(NamedTuple):
    """
    A call and its cost in units of `spool.money`: `useful`, the amounts by class, and the part that is not judged with
    the `reason`. `tokens` are the tokens of each class, also of parts that are not judged. `alive` are the tokens that
    were surely alive in the cache after the call `before`, and those that may have been.
    """

    call: Inference
    cost: int
    useful: int
    amounts: Mapping[str, int]
    tokens: Mapping[str, int]
    not_judged: int
    reason: str | None
    before: Inference | None = None
    alive: tuple[int, int] = (0, 0)

    def formula(self, name: str) -> str:
        """Return how the tokens of a class follow from the counts."""
        before, (surely, perhaps) = self.before or self.call, self.alive
        read, cached = self.call.cache_read_tokens or 0, _cached(before)
        match name:
            case "repeated":
                return "the call was sent again at once; what it wrote and the next call read was of use"
            case "break":
                return f"{surely:,} cached tokens were alive, {read:,} were read"
            case "pause":
                return f"{cached:,} tokens were cached, {max(perhaps, read):,} were alive or read"
            case "model_switch":
                return f"{cached:,} tokens were cached for another model, {read:,} were read"
            case "shortened":
                return f"{cached:,} tokens were cached before the input became shorter, {read:,} were read"
            case "missed":
                return f"the provider held {self.tokens[name] + read:,} tokens, {read:,} were read"
            case "unread":
                return f"{self.tokens[name]:,} tokens were written, and no call read them"
            case _:
                return f"a cache would have held the {before.input_tokens or 0:,} tokens of the call before"


@dataclass(frozen=True, kw_only=True)
class Judge:
    """
    Judges the calls of lanes. `known_until` (ns) is the time until which all calls are known. If `knows_all` is false,
    there may be further lanes that read what these lanes wrote.
    """

    estimate: Estimate
    known_until: int
    knows_all: bool = True

    def judge(
        self, lanes: Mapping[Lane | None, Sequence[Inference]], *, others: Sequence[Inference] = ()
    ) -> Iterator[JudgedCall]:
        """
        Yield the calls of each lane in their order. None has the calls without a lane. The calls of `others` may
        have read what these lanes wrote, but are not judged.
        """
        reads = _ReadsByCache([*lanes.items(), (None, others)])
        for lane, calls in lanes.items():
            if lane is None:
                yield from (_undivided(call, NO_LANE) for call in calls)
                continue
            for steps in _separate_conversations(calls):
                _find_tokens(steps)
                self._find_unread(lane, steps, reads)
                savings = self._savings_by_caching(steps)
                for step, saving in zip(steps, savings, strict=True):
                    yield self._divide(step, saving)

    def _find_unread(self, lane: Lane, steps: Sequence[_Step], reads: _ReadsByCache) -> None:
        """Find the written tokens of a lane of which no later call read anything."""
        wrote = [bool(step.is_explicit and step.call.cache_write_tokens) for step in steps]
        if True not in wrote or any(step.call.cache_read_tokens for step in steps[wrote.index(True) + 1 :]):
            return
        for step, has_written in zip(steps, wrote, strict=True):
            if not has_written or step.reason is not None:
                continue
            read, known_dead = reads.largest_read_by_others(lane, step.call)
            unread = max(0, _cached(step.call) - max(step.call.cache_read_tokens or 0, read))
            is_sure = self.knows_all and known_dead < self.known_until
            step.tokens[UNREAD if is_sure else _UNSURE_READ] = unread

    def _savings_by_caching(self, steps: Sequence[_Step]) -> Sequence[int]:
        """
        Return what each call would have cost less if its lane had cached its input. The dearer writes of calls that
        could not have read are deducted from the calls after them.
        """
        savings = [0] * len(steps)
        counted = [
            step for step in steps if step.call.input_tokens is not None and step.call.status != "cached"
        ]
        if any(
            not step.is_explicit or (step.call.cache_read_tokens, step.call.cache_write_tokens) != (0, 0)
            for step in counted
        ):
            return savings
        debt = 0
        for index, step in enumerate(steps):
            call, before = step.call, step.before
            size = call.input_tokens or 0
            if size < SURELY_CACHEABLE or call.status == "cached":
                continue
            read = before.input_tokens or 0 if before is not None and step.reads_uncached else 0
            cached = replace(call, cache_read_tokens=read, cache_write_tokens=size - read)
            now, then = self.estimate(call), self.estimate(cached)
            if now is None or then is None:
                continue
            saving = money.text_to_units(now) - money.text_to_units(then)
            savings[index] = max(0, saving - debt)
            debt = max(0, debt - saving)
        return savings

    def _divide(self, step: _Step, saving: int) -> JudgedCall:
        call, tokens, reason = step.call, step.tokens, step.reason
        cost, stated = _cost_of(call), self.estimate(call)
        if not cost:
            return _undivided(call, reason)
        if stated is None or stated != call.estimated_cost:
            return _undivided(call, reason or NO_PRICE)
        estimate = money.text_to_units(stated)
        paid = _PaidTokens(call, estimate, self.estimate)
        amounts: dict[str, int] = {}
        if step.repeated_by is not None:
            amounts[REPEATED] = paid.repeat(step.repeated_by if step.is_explicit else None)
        for name in _ORDER:
            if tokens.get(name):
                amounts[name] = paid.move(tokens[name], to_plain=name in (UNREAD, _UNSURE_READ))
        amounts[UNCACHED] = paid.take(saving)
        # a source that reports less than list prices paid less for every token; the remainder stays useful
        shares = {
            name: amount * min(cost, estimate) // estimate for name, amount in amounts.items() if amount > 0
        }
        classes = {name: shares[name] for name in GROUPS if name in shares}
        if reason is not None:
            return JudgedCall(
                call, cost, 0, classes, tokens, cost - sum(classes.values()), reason, step.before
            )
        unsure = {name: shares[name] for name in _REASONS if name in shares}
        not_judged = sum(unsure.values())
        why = next((_REASONS[name] for name in unsure), None)
        useful = cost - sum(classes.values()) - not_judged
        return JudgedCall(call, cost, useful, classes, tokens, not_judged, why, step.before, step.alive)


def _cost_of(call: Inference) -> int:
    return money.text_to_units(decimal_text(counted_cost(call)))


def _undivided(call: Inference, reason: str | None) -> JudgedCall:
    cost, is_judged = _cost_of(call), reason is None
    return JudgedCall(call, cost, cost if is_judged else 0, {}, {}, 0 if is_judged else cost, reason)


@dataclass(slots=True, kw_only=True)
class _Step:
    """A call of a lane, the call with counts before it, and what was found about it."""

    call: Inference
    rule: CacheRule | None
    before: Inference | None = None
    reason: str | None = None
    tokens: dict[str, int] = field(default_factory=dict)
    repeated_by: Inference | None = None
    reads_uncached: bool = False
    alive: tuple[int, int] = (0, 0)

    @property
    def is_explicit(self) -> bool:
        return self.rule is not None and self.rule.kind == EXPLICIT


def _separate_conversations(calls: Sequence[Inference]) -> Iterator[Sequence[_Step]]:
    """Yield the parts of a lane, which ends `ENDS_AFTER` its last call."""
    steps: list[_Step] = []
    ended = 0
    for call in calls:
        start = call.start_time
        if steps and start is not None and ended and start > ended + ENDS_AFTER:
            yield steps
            steps = []
        steps.append(_Step(call=call, rule=rule_of_call(call)))
        ended = max(ended, call.end_time or start or 0)
    if steps:
        yield steps


def _find_tokens(steps: Iterable[_Step]) -> None:
    """Find the tokens that each call of a lane paid again, and the calls that were repeated."""
    prefix = CachedPrefix()
    last: _Step | None = None
    for step in steps:
        call = step.call
        if call.status == "cached":
            continue
        if call.start_time is None:
            step.reason = NO_TIME
            continue
        before = step.before = last.call if last is not None else None
        if before is not None and before.end_time is None:
            step.reason = NO_TIME
        elif before is not None and call.start_time < (before.end_time or 0):
            step.reason = OVERLAPS
        if not _has_counts(call, step.rule):
            step.reason = step.reason or (NO_RULE if step.rule is None else NO_COUNTS)
            continue
        if step.rule is None:
            step.reason = step.reason or NO_RULE
        if last is not None and before is not None and step.reason in (None, NO_RULE):
            if _repeats(step, before):
                last.repeated_by = call
            if step.reason is None:
                _compare(step, last, prefix)
        if step.is_explicit:
            prefix.use(call, forgets=before is None or not _is_same_model(call, before))
        last = step


def _compare(step: _Step, last: _Step, prefix: CachedPrefix) -> None:
    call, rule, tokens, before = step.call, step.rule, step.tokens, last.call
    size, size_before, read = call.input_tokens or 0, before.input_tokens or 0, call.cache_read_tokens or 0
    started = call.start_time or 0
    is_same, grows = _is_same_model(call, before), size >= size_before
    is_soon = started - (before.start_time or 0) <= AUTOMATIC_LIVES
    if rule is not None and not step.is_explicit:
        cached = size_before // rule.step * rule.step
        if is_same and grows and is_soon and cached >= rule.least:
            tokens[MISSED] = max(0, cached - read)
        return
    if not last.is_explicit:
        return
    cached = _cached(before)
    if is_same and grows:
        surely, perhaps = step.alive = prefix.alive_at(started)
        tokens[BREAK] = max(0, surely - read)
        tokens[_UNSURE_LIFETIME] = max(0, perhaps - max(surely, read))
        tokens[PAUSE] = max(0, cached - max(perhaps, read))
        step.reads_uncached = is_soon and size_before >= SURELY_CACHEABLE
    else:
        tokens[MODEL_SWITCH if grows else SHORTENED] = max(0, min(cached, size) - read)


def _repeats(step: _Step, before: Inference) -> bool:
    """
    Return whether a call repeats the one before it: that failed, or its whole cache was read and the same rest
    was sent again, so its answer was not used.
    """
    call = step.call
    if (
        not _is_same_model(call, before)
        or call.input_tokens != before.input_tokens
        or (call.start_time or 0) > (before.end_time or 0) + REPEATS_WITHIN
    ):
        return False
    if before.status == "error":
        return True
    cached = _cached(before)
    has_read_all = cached > 0 and (call.cache_read_tokens or 0) >= cached
    return step.is_explicit and has_read_all and _cached(call) == cached


def _has_counts(call: Inference, rule: CacheRule | None) -> bool:
    size, read, written = call.input_tokens, call.cache_read_tokens, call.cache_write_tokens
    if size is None or rule is None:
        return size is not None
    if read is None or (written is None and rule.kind == EXPLICIT):
        return False
    written = written or 0
    return read + written <= size and (call.cache_write_1h_tokens or 0) <= written


def _cached(call: Inference) -> int:
    return (call.cache_read_tokens or 0) + (call.cache_write_tokens or 0)


def _is_same_model(call: Inference, other: Inference) -> bool:
    """Return whether two calls have the same response model. A failed call may state only the model asked for."""
    if call.response_model is None or other.response_model is None:
        return (call.request_model or call.response_model) == (other.request_model or other.response_model)
    return call.response_model == other.response_model


class _PaidTokens:
    """The tokens of a call that were not yet found in a class, with what is left of its estimate."""

    def __init__(self, call: Inference, estimate: int, of_call: Estimate) -> None:
        self._call, self._of_call = call, of_call
        self._least = self._left = estimate
        self._written = call.cache_write_tokens or 0
        self._hour = call.cache_write_1h_tokens or 0
        self._plain = (call.input_tokens or 0) - (call.cache_read_tokens or 0) - self._written

    def repeat(self, by: Inference | None) -> int:
        """
        Take the whole call, less the dearer price of what it wrote and the call that repeats it read: that part of the
        write was of use.
        """
        call = self._call
        read = call.cache_read_tokens or 0
        used = 0 if by is None else max(0, min(by.cache_read_tokens or 0, _cached(call)) - read)
        self._plain = 0
        self._hour = min(self._hour, used)
        self._written = used
        if not used:
            return self.take(self._left)
        cheaper = self._of_call(_with_moved(call, used, self._hour, used))
        price = 0 if cheaper is None else max(0, self._left - money.text_to_units(cheaper))
        return self.take(self._left - price)

    def move(self, tokens: int, *, to_plain: bool) -> int:
        """
        Return by how much the estimate falls if tokens are read from the cache, or are plain input.

        What is paid again is the beginning of what was written, which is the hour's part. What nobody read is its end.
        """
        written = min(tokens, self._written)
        hour = max(0, written - (self._written - self._hour)) if to_plain else min(written, self._hour)
        plain = 0 if to_plain else min(tokens - written, self._plain)
        self._hour -= hour
        self._written -= written
        self._plain -= plain
        self._call = _with_moved(self._call, written, hour, 0 if to_plain else written + plain)
        estimate = self._of_call(self._call)
        least = self._least if estimate is None else min(self._least, money.text_to_units(estimate))
        amount = self.take(self._least - least)
        self._least = least
        return amount

    def take(self, amount: int) -> int:
        taken = max(0, min(amount, self._left))
        self._left -= taken
        return taken


def _with_moved(call: Inference, written: int, hour: int, read: int) -> Inference:
    return replace(
        call,
        cache_read_tokens=(call.cache_read_tokens or 0) + read,
        cache_write_tokens=(call.cache_write_tokens or 0) - written,
        cache_write_1h_tokens=call.cache_write_1h_tokens and call.cache_write_1h_tokens - hour,
    )


_Cache = tuple[str | None, str | None, str | None]  # key, provider and model


class _ReadsByCache:
    """The reads of all lanes, by the cache that they share, in the order of their starts."""

    def __init__(self, lanes: Iterable[tuple[Lane | None, Sequence[Inference]]]) -> None:
        self._reads = defaultdict[_Cache, list[tuple[int, Lane | None, Inference]]](list)
        for lane, calls in lanes:
            for call in calls:
                if call.cache_read_tokens and call.start_time is not None:
                    self._reads[_cache_of(call)].append((call.start_time, lane, call))
        for reads in self._reads.values():
            reads.sort(key=lambda each: each[0])

    def largest_read_by_others(self, lane: Lane, writer: Inference) -> tuple[int, int]:
        """
        Return the largest read by other lanes while the tokens that a call wrote lived, and when they are
        surely dead (ns). A read beyond what the call itself read renews them.
        """
        hour = writer.cache_write_1h_tokens
        lifetime = UNSTATED if hour is None else ONE_HOUR if hour else FIVE_MINUTES
        dead = (writer.end_time or writer.start_time or 0) + lifetime.dies
        reads = self._reads[_cache_of(writer)]
        largest = 0
        for start, other, call in reads[
            bisect_right(reads, writer.start_time or 0, key=lambda each: each[0]) :
        ]:
            read = call.cache_read_tokens or 0
            if start > dead:
                break
            if other != lane and read > (writer.cache_read_tokens or 0):
                largest = max(largest, read)
                dead = max(dead, (call.end_time or start) + lifetime.dies)
        return largest, dead


def _cache_of(call: Inference) -> _Cache:
    return call.api_key, call.provider, call.response_model or call.request_model
