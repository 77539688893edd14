"""
Spans that link model calls to the spans around them. From these, a call gets the agent run that made it, and
values such as a session. Pure.

An exporter sends a span when it ends, so a call usually arrives before the spans around it. The log remembers
each span that lacks its agent, or that later spans may be below, for `KEPT_S` or until the limit. When a span
completes a chain above a call, `CommitPlanner` adds runs and values to the call.

Spans of different sender keys are never linked, so no key can attribute the calls of another key. At the
limit, the oldest spans of the key with the most spans are dropped.

A commit stores a key's spans in one row, `ROW.size` bytes each, and each set of values once.
"""

from __future__ import annotations

from collections import Counter, OrderedDict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from hashlib import blake2b
from itertools import islice
from struct import Struct, pack
from typing import Any, Final, NamedTuple, TypeAlias

import msgspec

from spool.log.partial_reports import SPANS, PartialReport
from spool.record import MAX_TAGS, RUNS, Inference

KEPT_S: Final = 86400.0  # long, because an agent may work for hours
MOST_RUNS: Final = 32  # maximum runs above a call that its record contains
MOST_PLACED: Final = 10_000  # maximum calls that one span may link
LONGEST_GIVEN: Final = 512  # maximum characters of a value from a span; longer values are not remembered
# Prefix of the span above a call, if the call's scope writes its span next to that of the SDK. Then both may
# report the same call.
BESIDE: Final = "beside "
PLAIN, STEP, RUN = 0, 1, 2  # kinds of spans: without a sign of AI, around AI calls, the run of an agent
MANY: Final = 32  # number of items at which a trace gets an index
AGE_EVERY_S: Final = 60.0

ROW: Final = Struct(">16s8s8sq")  # packed fields: trace, span, span above, position
_ITEM: Final = Struct(">8s8sq")
_FIRST_OF_PLACE: Final = 16
_TRACE: Final = ROW.size - _ITEM.size
_NO_SPAN: Final = bytes(8)
# Instead of a position, a span that is no call has one of these numbers, minus twice the index of its values in
# `given`. So the number of a run is odd.
_OF_STEP, _OF_RUN = 0, -1
_IS_BESIDE: Final = 1 << 62  # added to a call's position if the span above has the prefix BESIDE


class GivenValues(NamedTuple):
    """
    The values that a span gives to the calls below it. `tags`: include the agent's name and the unit of work.
    """

    user: str | None = None
    team: str | None = None
    session: str | None = None
    api_key: str | None = None
    tags: tuple[tuple[str, str], ...] = ()

    def with_missing_values_from(self, further: GivenValues) -> GivenValues:
        return GivenValues(
            further.user if self.user is None else self.user,
            further.team if self.team is None else self.team,
            further.session if self.session is None else self.session,
            further.api_key if self.api_key is None else self.api_key,
            tuple({**dict(further.tags), **dict(self.tags)}.items()),
        )


NOTHING_GIVEN: Final = GivenValues()


class ValuesFromSpansAbove(NamedTuple):
    """
    The agent runs around a call that it may lack, nearest first, the values that the spans around it give, and whether
    it is in a run.
    """

    runs: Sequence[str]
    given: GivenValues
    is_in_run: bool


# A span that is no counted call: trace, id, nearest run or first missing span above, kind, and the values
# that the spans up to there give.
SpanStep: TypeAlias = tuple[str, str, str | None, int, GivenValues | None]
# a call, the nearest run or first missing span above, and its position in the log
CallBelow: TypeAlias = tuple[Inference, str, int]


class LinkedSpan(NamedTuple):
    sender: str
    trace: str
    id: bytes


class Siblings(NamedTuple):
    """
    The positions (topic and number) of calls directly below the same span. `besides`: calls from an
    instrumentation scope that reports calls of other scopes as well. `others`: all other calls.
    """

    besides: Sequence[int]
    others: Sequence[int]


class _TraceIndex:
    """The spans of a trace by id, and the spans directly below each."""

    def __init__(self, items: bytes = b"") -> None:
        self.spans: dict[bytes, tuple[bytes, int]] = {}
        self.below: dict[bytes, list[bytes]] = {}
        for span, above, position_code in _ITEM.iter_unpack(items):
            self.add_span_if_new(span, above, position_code)

    def add_span_if_new(self, span: bytes, span_above: bytes, position_or_kind_code: int) -> bool:
        if span in self.spans:
            return False
        self.spans[span] = span_above, position_or_kind_code
        if span_above != _NO_SPAN:
            self.below.setdefault(span_above, []).append(span)
        return True

    def remove(self, span: bytes) -> None:
        above, _ = self.spans.pop(span)
        if above != _NO_SPAN:
            self.below[above].remove(span)
            if not self.below[above]:
                del self.below[above]

    def values_from_spans_above(
        self, span: bytes, given_values: Sequence[GivenValues]
    ) -> ValuesFromSpansAbove:
        runs: list[str] = []
        values = NOTHING_GIVEN
        passed: set[bytes] = set()  # `set[bytes]()` takes five times as long
        while (found := self.spans.get(span)) is not None and span not in passed and len(runs) < MOST_RUNS:
            passed.add(span)
            above, position_code = found
            if position_code < 0 and _is_agent_run_code(position_code):
                runs.append(span.hex())
            if position_code < 0 and (number := _given_values_index(position_code)):
                values = (
                    given_values[number]
                    if values is NOTHING_GIVEN
                    else values.with_missing_values_from(given_values[number])
                )
            span = above
        return ValuesFromSpansAbove(runs, values, bool(runs))

    def all_calls_below(self, span: bytes) -> Iterator[bytes]:
        waiting = list(self.below.get(span, ()))
        passed = {span}
        while waiting:
            each = waiting.pop()
            if each not in passed:
                passed.add(each)
                if self.spans[each][1] > 0:
                    yield each
                waiting += self.below.get(each, ())

    def calls_below_with_one_per_agent_run(self, span: bytes) -> Iterator[bytes]:
        """
        Yield the ids of the calls below a span in the trace. Of the calls in a run (of an agent) only one
        is yielded, because one is enough to state what is above the run.
        """
        waiting = list(self.below.get(span, ()))
        passed = {span}
        while waiting:
            each = waiting.pop()
            if each in passed:
                continue
            passed.add(each)
            position_code = self.spans[each][1]
            if _is_agent_run_code(position_code):
                yield from self._first_call_in_agent_run(each, passed)
                continue
            if position_code > 0:
                yield each
            waiting += self.below.get(each, ())

    def _first_call_in_agent_run(self, agent_run_span: bytes, visited_spans: set[bytes]) -> Iterator[bytes]:
        waiting = [agent_run_span]
        while waiting:
            for each in self.below.get(waiting.pop(), ()):
                if each in visited_spans:
                    continue
                visited_spans.add(each)
                if self.spans[each][1] > 0:
                    yield each
                    return
                waiting.append(each)


_Trace = bytes | _TraceIndex  # the items of a trace, or the index of many items


class _SpansOfSenderKey:
    """
    The pending spans of one sender key by trace. `given`: the values that spans give to calls below them.
    `rows`: the stored rows, oldest first.
    """

    def __init__(self) -> None:
        self.traces: dict[str, _Trace] = {}
        self.rows: OrderedDict[bytes, tuple[float, bytes]] = OrderedDict()
        self.count = 0
        # The distinct values of the spans. A span has the index of its values; an index that no span has is used again.
        self.given: list[GivenValues] = [NOTHING_GIVEN]
        self._numbers: dict[GivenValues, int] = {}
        self._uses: Counter[int] = Counter()
        self._free: list[int] = []
        # by trace, the number of calls whose span above had the prefix BESIDE
        self.besides: Counter[str] = Counter()
        self._last = b"", _TraceIndex()  # what `trace_index` read last, and its result

    def _find_or_assign_values_index(self, given_values: GivenValues | None) -> int:
        if given_values is None or given_values == NOTHING_GIVEN:
            return 0
        number = self._numbers.get(given_values)
        if number is None:
            number = self._free.pop() if self._free else len(self.given)
            self._numbers[given_values] = number
            self.given[number : number + 1] = [given_values]
        return number

    def _change_use_count_of_given_values(self, position_or_kind_code: int, span_count_change: int) -> None:
        number = _given_values_index(position_or_kind_code)
        if not number:
            return
        self._uses[number] += span_count_change
        if not self._uses[number]:
            del self._uses[number], self._numbers[self.given[number]]
            self.given[number] = NOTHING_GIVEN
            self._free.append(number)

    def trace_index(self, trace: str) -> _TraceIndex:
        """
        Return the index of a trace, which must not be changed. The last one is reused if the trace has the
        same spans.
        """
        found = self.traces.get(trace, b"")
        if isinstance(found, _TraceIndex):
            return found
        of, index = self._last
        if of is not found:
            index = _TraceIndex(found)
            self._last = found, index
        return index

    def add_span_if_new(self, trace: str, packed_span: bytes) -> bool:
        found = self.traces.get(trace)
        if found is None:
            self.traces[trace] = packed_span
        elif isinstance(found, bytes):
            span = packed_span[:8]
            if span in found and span in _TraceIndex(found).spans:
                return False
            found += packed_span
            self.traces[trace] = _TraceIndex(found) if len(found) > MANY * _ITEM.size else found
        elif not found.add_span_if_new(*_ITEM.unpack(packed_span)):
            return False
        self.count += 1
        if packed_span[_FIRST_OF_PLACE]:  # the first byte is 0 for the plain position of a call
            self._change_span_counts(trace, _ITEM.unpack(packed_span)[2], 1)
        return True

    def _change_span_counts(self, trace: str, position_or_kind_code: int, span_count_change: int) -> None:
        self._change_use_count_of_given_values(position_or_kind_code, span_count_change)
        if position_or_kind_code & _IS_BESIDE and position_or_kind_code > 0:
            self.besides[trace] += span_count_change
            if not self.besides[trace]:
                del self.besides[trace]

    def add_span_without_call_if_new(
        self, packed_ids: bytes, kind: int, given_values: GivenValues | None
    ) -> bytes | None:
        """Return a span that is no call, encoded for a row, or None if it is known."""
        position_code = kind - 2 * self._find_or_assign_values_index(given_values)
        row = packed_ids + position_code.to_bytes(8, signed=True)
        if self.add_span_if_new(packed_ids[:_TRACE].hex(), row[_TRACE:]):
            return row
        self._change_use_count_of_given_values(position_code, 0)
        return None

    def add_stored_span_if_new(self, packed_span: bytes, given_values: Sequence[GivenValues]) -> bytes | None:
        position_code = int.from_bytes(packed_span[-8:], signed=True)
        if number := _given_values_index(position_code):
            return self.add_span_without_call_if_new(
                packed_span[:-8], position_code + 2 * number, given_values[number]
            )
        return packed_span if self.add_span_if_new(packed_span[:_TRACE].hex(), packed_span[_TRACE:]) else None

    def remove_packed_span(self, packed_span: bytes) -> None:
        trace, span = packed_span[:_TRACE].hex(), packed_span[_TRACE : _TRACE + 8]
        found = self.traces[trace]
        if isinstance(found, bytes):
            at = next(at for at in range(0, len(found), _ITEM.size) if found.startswith(span, at))
            _, _, position_code = _ITEM.unpack_from(found, at)
            found = self.traces[trace] = found[:at] + found[at + _ITEM.size :]
            is_empty = not found
        else:
            _, position_code = found.spans[span]
            found.remove(span)
            is_empty = not found.spans
        self._change_span_counts(trace, position_code, -1)
        if is_empty:
            del self.traces[trace]
        self.count -= 1


class PendingSpans:
    """
    Spans that wait for the calls below them or the spans above them, of all sender keys, at most `max_spans`.

    Planning a commit adds spans at once, and `confirm_committed_rows` confirms them after the commit. If the commit
    failed, the next plan removes them (`undo_new_spans`).
    """

    def __init__(self, max_spans: int) -> None:
        self._most = max_spans
        self._senders: dict[str, _SpansOfSenderKey] = {}
        self._new: list[tuple[str, bytes]] = []  # spans that the current plan adds, packed as stored
        self._aged_at = 0.0

    @property
    def span_counts_by_key(self) -> Mapping[str, int]:
        return {name: sender.count for name, sender in self._senders.items() if sender.count}

    def __len__(self) -> int:
        # list(), because a commit plan on another thread may add a key meanwhile
        return sum(sender.count for sender in list(self._senders.values()))

    def undo_new_spans(self) -> None:
        for name, row in reversed(self._new):
            self._senders[name].remove_packed_span(row)
        self._new.clear()

    def add_calls_and_select_linkable(
        self, sender_name: str, calls: Iterable[CallBelow]
    ) -> list[tuple[LinkedSpan, CallBelow]]:
        """Add calls. Return the calls in traces with other spans, which may be above or below them."""
        sender = self._senders.setdefault(sender_name, _SpansOfSenderKey())
        traces, new, related = sender.traces, self._new, list[tuple[LinkedSpan, CallBelow]]()
        for call in calls:
            record, above, position_code = call
            if above.startswith(BESIDE):
                above, position_code = above.removeprefix(BESIDE), position_code | _IS_BESIDE
            row = _encode_pending_span(record.trace_id, record.span_id, above, position_code)
            if row is None or len(new) >= self._most:
                continue
            trace = record.trace_id
            assert trace is not None
            if trace not in traces:
                traces[trace] = row[_TRACE:]
                sender.count += 1
                if position_code & _IS_BESIDE:
                    sender.besides[trace] += 1
            elif sender.add_span_if_new(trace, row[_TRACE:]):
                related.append((LinkedSpan(sender_name, trace, row[_TRACE : _TRACE + 8]), call))
            else:
                continue
            new.append((sender_name, row))
        return related

    def add_spans_without_calls(self, sender_name: str, steps: Sequence[SpanStep]) -> list[LinkedSpan]:
        """
        Add spans that are no calls. Spans that do not look like AI are added only to traces that have AI
        spans. Return the new spans.
        """
        sender = self._senders.setdefault(sender_name, _SpansOfSenderKey())
        found = [self._add_span_without_call(sender_name, sender, step) for step in steps if step[3] != PLAIN]
        if traces := sender.traces:
            found += [
                self._add_span_without_call(sender_name, sender, step)
                for step in steps
                if step[3] == PLAIN and step[0] in traces
            ]
        return [span for span in found if span is not None]

    def _add_span_without_call(
        self, sender_name: str, sender: _SpansOfSenderKey, step: SpanStep
    ) -> LinkedSpan | None:
        trace, span, above, kind, given = step
        if len(self._new) >= self._most:
            return None
        row = _encode_pending_span(trace, span, above or _NO_SPAN.hex(), _OF_STEP)
        if row is not None:
            row = sender.add_span_without_call_if_new(row[:-8], _OF_RUN if kind == RUN else _OF_STEP, given)
        if row is None:
            return None
        self._new.append((sender_name, row))
        return LinkedSpan(sender_name, trace, row[_TRACE : _TRACE + 8])

    def values_from_spans_above(self, span: LinkedSpan) -> ValuesFromSpansAbove:
        sender = self._senders[span.sender]
        return sender.trace_index(span.trace).values_from_spans_above(span.id, sender.given)

    def call_positions_and_values_below(
        self, new_spans: Iterable[LinkedSpan]
    ) -> Iterator[tuple[int, ValuesFromSpansAbove]]:
        """
        Yield the position (topic and number) of each call below new spans, with the agent runs above it and the
        values that spans give to it.
        """
        traces: dict[tuple[str, str], list[bytes]] = {}
        for name, trace, id in new_spans:
            traces.setdefault((name, trace), []).append(id)
        for (name, trace), new in traces.items():
            sender = self._senders.get(name)
            found = None if sender is None else sender.traces.get(trace)
            if sender is None or found is None:
                continue
            if isinstance(found, bytes) and all(found.count(id) < 2 for id in new):
                continue
            index = sender.trace_index(trace)
            for call, lacks_runs in _lacks_runs_by_incomplete_call(index, new, sender.given).items():
                above = index.values_from_spans_above(call, sender.given)
                yield (index.spans[call][1] & ~_IS_BESIDE, above if lacks_runs else above._replace(runs=()))

    def positions_of_linkable_calls(self, sender_name: str, steps: Iterable[SpanStep]) -> Iterator[int]:
        """Yield the positions (topic and number) of calls below these spans, before the spans are added."""
        sender = self._senders.get(sender_name)
        if sender is None:
            return
        for trace, span, *_ in steps:
            row = _encode_pending_span(trace, span, _NO_SPAN.hex(), 0) if trace in sender.traces else None
            if row is not None:
                index = sender.trace_index(trace)
                for call in islice(index.all_calls_below(row[_TRACE : _TRACE + 8]), MOST_PLACED):
                    yield index.spans[call][1] & ~_IS_BESIDE

    def has_calls_in_several_scopes(self, sender_name: str) -> bool:
        """Return whether a scope of the sender reported calls that other scopes also report."""
        sender = self._senders.get(sender_name)
        return sender is not None and bool(sender.besides)

    def find_siblings(self, sender_name: str, trace: str, span: str, span_above: str) -> Siblings | None:
        """
        Return the calls directly below the span `span_above`, if a scope among them repeats calls of other scopes.
        """
        sender = self._senders.get(sender_name)
        if sender is None or trace not in sender.traces:
            return None
        if not (span_above.startswith(BESIDE) or trace in sender.besides):
            return None
        row = _encode_pending_span(trace, span, span_above.removeprefix(BESIDE), 0)
        if row is None:
            return None
        index = sender.trace_index(trace)
        position_codes = [index.spans[each][1] for each in index.below.get(row[_TRACE + 8 : _TRACE + 16], ())]
        calls = [position_code for position_code in position_codes if position_code > 0]
        besides = [position_code & ~_IS_BESIDE for position_code in calls if position_code & _IS_BESIDE]
        others = [position_code for position_code in calls if not position_code & _IS_BESIDE]
        return Siblings(besides, others)

    def rows_of_new_spans(self, stored_at: float) -> list[PartialReport]:
        items: dict[str, list[bytes]] = {}
        for name, row in self._new:
            items.setdefault(name, []).append(row)
        return [
            _pack_spans_of_sender(stored_at, name, rows, self._senders[name].given)
            for name, rows in items.items()
        ]

    def rows_to_delete(self, now: float) -> list[bytes]:
        """Return the keys of rows beyond the limit and, once a minute, of rows that are too old."""
        due = list(self._keys_over_limit())
        if not 0 <= now - self._aged_at < AGE_EVERY_S:
            self._aged_at = now
            for sender in self._senders.values():
                for key, (at, _) in sender.rows.items():
                    if now - at >= KEPT_S:
                        due.append(key)
                    elif at <= now:
                        break  # later rows are younger, unless a clock was ahead
        return due

    def _keys_over_limit(self) -> Iterator[bytes]:
        held = {name: sender.count for name, sender in self._senders.items()}
        over = sum(held.values()) - self._most
        if over <= 0:
            return
        rows = {name: iter(sender.rows.items()) for name, sender in self._senders.items()}
        while over > 0 and rows:
            name = max(rows, key=held.__getitem__)
            key, (_, items) = next(rows[name], (b"", (0.0, b"")))
            if not key:
                del rows[name]
                continue
            held[name] -= len(items) // ROW.size
            over -= len(items) // ROW.size
            yield key

    def confirm_committed_rows(self, rows: Iterable[PartialReport], deleted_keys: Iterable[bytes]) -> None:
        self._new.clear()
        for row in rows:
            name, items, _ = _unpack_spans_of_sender(row.body)
            self._senders[name].rows[row.key] = row.at, items
        self._forget_keys(deleted_keys)

    def load_rows(self, rows: Iterable[PartialReport]) -> int:
        """Load rows at a start or from another process. Return the number of unreadable rows."""
        self.undo_new_spans()
        damaged = 0
        for row in rows:
            try:
                name, items, given = _unpack_spans_of_sender(row.body)
            except (msgspec.DecodeError, ValueError):
                damaged += 1
                continue
            sender = self._senders.setdefault(name, _SpansOfSenderKey())
            if row.key in sender.rows:
                continue
            new = [
                each for each in _split_rows(items) if sender.add_stored_span_if_new(each, given) is not None
            ]
            sender.rows[row.key] = row.at, b"".join(new)
        self._forget_keys(list(self._keys_over_limit()))
        return damaged

    def _forget_keys(self, deleted_keys: Iterable[bytes]) -> None:
        keys = set(deleted_keys)
        for name, sender in list(self._senders.items()) if keys else ():
            for key in keys & sender.rows.keys():
                _, items = sender.rows.pop(key)
                for row in _split_rows(items):
                    sender.remove_packed_span(row)
            if not sender.count:
                del self._senders[name]


def _lacks_runs_by_incomplete_call(
    index: _TraceIndex, new_spans: Sequence[bytes], given_values: Sequence[GivenValues]
) -> dict[bytes, bool]:
    """
    Return calls below new spans that may lack agent runs or values from spans, with True if they may lack
    runs. For calls that lack only values, the search begins at the uppermost new spans.
    """
    calls: dict[bytes, bool] = {}
    every_new = set(new_spans)
    for id in new_spans:
        if id not in index.below:
            continue
        around = index.values_from_spans_above(id, given_values)
        # a dict keeps the order
        with_runs = (
            dict.fromkeys(islice(index.calls_below_with_one_per_agent_run(id), MOST_PLACED))
            if around.runs
            else {}
        )
        gives_values = around.given is not NOTHING_GIVEN and index.spans[id][0] not in every_new
        for call in islice(index.all_calls_below(id), MOST_PLACED) if gives_values else with_runs:
            calls[call] = call in with_runs or calls.get(call, False)
    return calls


_rows = msgspec.msgpack.Decoder(tuple[str, bytes, list[GivenValues]])


def _is_agent_run_code(position_or_kind_code: int) -> bool:
    return position_or_kind_code < 0 and position_or_kind_code % 2 == 1


def _given_values_index(position_or_kind_code: int) -> int:
    return -position_or_kind_code // 2 if position_or_kind_code < 0 else 0


def _renumber_given_values(row: bytes, new_number_of: Callable[[int], int]) -> bytes:
    position_code = int.from_bytes(row[-8:], signed=True)
    number = _given_values_index(position_code)
    if not number:
        return row
    return row[:-8] + (position_code + 2 * (number - new_number_of(number))).to_bytes(8, signed=True)


def _encode_pending_span(
    trace: str | None, span: str | None, span_above: str, position_or_kind_code: int
) -> bytes | None:
    if trace is None or span is None or len(trace) != 32 or len(span) != 16 or len(span_above) != 16:
        return None
    try:
        ids = bytes.fromhex(trace + span + span_above)
    except ValueError:
        return None
    return ids + position_or_kind_code.to_bytes(8, signed=True) if len(ids) == 32 else None


def _split_rows(items: bytes) -> Iterator[bytes]:
    return (items[at : at + ROW.size] for at in range(0, len(items), ROW.size))


def _pack_spans_of_sender(
    stored_at: float, sender: str, packed_spans: Iterable[bytes], given_values: Sequence[GivenValues]
) -> PartialReport:
    stored = {0: 0}  # index in `given_values` -> index in the row
    # only a negative position contains an index of values; its first byte has the sign
    items = b"".join(
        [
            row
            if row[-8] < 0x80
            else _renumber_given_values(row, lambda number: stored.setdefault(number, len(stored)))
            for row in packed_spans
        ]
    )
    body = msgspec.msgpack.encode((sender, items, [given_values[number] for number in stored]))
    return PartialReport(
        SPANS + blake2b(pack(">d", stored_at) + body, digest_size=16).digest(), stored_at, body
    )


def _unpack_spans_of_sender(body: bytes) -> tuple[str, bytes, list[GivenValues]]:
    """
    Return the sender key, spans and values of a row. Raises msgspec.DecodeError or ValueError if it is
    damaged.
    """
    sender, items, given = _rows.decode(body)
    if len(items) % ROW.size:
        raise ValueError("a stored row of spans ends within a span")
    if any(_given_values_index(position_code) >= len(given) for *_, position_code in ROW.iter_unpack(items)):
        raise ValueError("a stored span refers to values that its row does not have")
    return sender, items, given


def change_given_values(body: bytes, change: Callable[[GivenValues], GivenValues]) -> bytes:
    """
    Change the user, team and other values that spans give to calls, in a stored row. A damaged row is
    returned unchanged.
    """
    try:
        sender, items, given = _unpack_spans_of_sender(body)
    except (msgspec.DecodeError, ValueError):
        return body
    return msgspec.msgpack.encode((sender, items, [*map(change, given)]))


def run_fields_to_add(
    known_fields: Sequence[str | None], run_ids_nearest_first: Sequence[str]
) -> dict[str, str]:
    """
    Return the fields that these runs add to a call. `known_fields`: its run, parent run and
    further runs. A run that a report stated does not change.
    """
    run, parent, ancestors = known_fields
    stated = [each for each in (run, parent, *(ancestors or "").split()) if each is not None]
    if (
        not run_ids_nearest_first
        or len(stated) >= len(run_ids_nearest_first)
        or (run is None and stated)
        or stated != [*run_ids_nearest_first[: len(stated)]]
    ):
        return {}
    return {
        name: value
        for name, value in zip(RUNS, run_parent_and_joined_ancestors(run_ids_nearest_first), strict=True)
        if value is not None
    }


def values_to_add(
    known_record: Inference, given_values: GivenValues, *, is_in_run: bool = False
) -> dict[str, Any]:
    """
    Return the fields that a call lacks. In the run of an agent, the name of the run is also stronger than that of the
    call, because some libraries state the same name in all calls.
    """
    named = zip(("user", "team", "session", "api_key"), given_values[:4], strict=True)
    fields: dict[str, Any] = {
        name: value for name, value in named if value is not None and getattr(known_record, name) is None
    }
    room = max(0, MAX_TAGS - len(known_record.tags))
    if tags := [(name, value) for name, value in given_values.tags if name not in known_record.tags][:room]:
        fields["tags"] = {**known_record.tags, **dict(tags)}
    agent = dict(given_values.tags).get("agent") if is_in_run else None
    if agent is not None and known_record.tags.get("agent", agent) != agent:
        fields["tags"] = {**fields.get("tags", known_record.tags), "agent": agent}
    return fields


def run_parent_and_joined_ancestors(
    run_ids_nearest_first: Sequence[str],
) -> tuple[str, str | None, str | None]:
    return (
        run_ids_nearest_first[0],
        run_ids_nearest_first[1] if len(run_ids_nearest_first) > 1 else None,
        " ".join(run_ids_nearest_first[2:]) or None,
    )
