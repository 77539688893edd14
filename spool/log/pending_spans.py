"""
Spans that link model calls to the agent's run that made them. Pure.

An exporter sends a span when it ends, so a call usually arrives before the spans around it. The log remembers
each span whose agent has not arrived, and each span that later spans may be below, until `KEPT_S` have passed or
the limit is reached. When a span completes a chain from a call to an agent, `Planner` adds the run to the call.

Spans of different keys are never linked, so no key can attribute the calls of another key. At the limit, the
oldest spans of the key with the most spans are forgotten.

A commit stores the spans of each key in one row of the waiting reports, with `ROW.size` bytes for each span.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from hashlib import blake2b
from itertools import islice
from struct import Struct, pack
from typing import Final, NamedTuple, TypeAlias

import msgspec

from spool.log.partial_reports import SPANS, PartialReport
from spool.record import RUNS, Inference

KEPT_S: Final = 86400.0  # an agent may work for hours
MOST_RUNS: Final = 32  # runs above a call that its record states
MOST_PLACED: Final = 10_000  # calls that one span may link to their runs
PLAIN, STEP, RUN = 0, 1, 2  # kinds of spans: without a sign of AI, around AI calls, the run of an agent
MANY: Final = 32  # items of a trace from which on it has an index
AGE_EVERY_S: Final = 60.0

ROW: Final = Struct(">16s8s8sq")  # the trace, the span, the span above it, the place
_ITEM: Final = Struct(">8s8sq")
_TRACE: Final = ROW.size - _ITEM.size
_NO_SPAN: Final = bytes(8)
_OF_STEP, _OF_RUN = 0, -1  # instead of the place of a call


# A span that is no counted call: its trace, its id, the nearest run or the first missing span above it, and its kind.
SpanStep: TypeAlias = tuple[str, str, str | None, int]
# a call with the nearest run or the first missing span above it, and its place in the log
CallBelow: TypeAlias = tuple[Inference, str, int]


class LinkedSpan(NamedTuple):
    """A span of a key."""

    sender: str
    trace: str
    id: bytes


class _Index:
    """The spans of one trace by id, and the spans directly below each span."""

    def __init__(self, items: bytes = b"") -> None:
        self.spans: dict[bytes, tuple[bytes, int]] = {}
        self.below: dict[bytes, list[bytes]] = {}
        for span, above, place in _ITEM.iter_unpack(items):
            self.add(span, above, place)

    def add(self, span: bytes, above: bytes, place: int) -> bool:
        if span in self.spans:
            return False
        self.spans[span] = above, place
        if above != _NO_SPAN:
            self.below.setdefault(above, []).append(span)
        return True

    def remove(self, span: bytes) -> None:
        above, _ = self.spans.pop(span)
        if above != _NO_SPAN:
            self.below[above].remove(span)
            if not self.below[above]:
                del self.below[above]

    def runs_above(self, span: bytes) -> list[str]:
        """Return the runs around a span, from the nearest on. The span itself counts if it is a run."""
        runs: list[str] = []
        passed = set[bytes]()
        while (found := self.spans.get(span)) is not None and span not in passed and len(runs) < MOST_RUNS:
            passed.add(span)
            above, place = found
            if place == _OF_RUN:
                runs.append(span.hex())
            span = above
        return runs

    def calls_below(self, span: bytes) -> Iterator[bytes]:
        """
        Yield the calls below a span whose nearest run is not below it as well. For each run below the span, yield one
        of its calls, which then states what is above the run.
        """
        waiting = list(self.below.get(span, ()))
        passed = {span}
        while waiting:
            each = waiting.pop()
            if each in passed:
                continue
            passed.add(each)
            place = self.spans[each][1]
            if place == _OF_RUN:
                yield from self._first_call(each, passed)
                continue
            if place > 0:
                yield each
            waiting += self.below.get(each, ())

    def _first_call(self, run: bytes, passed: set[bytes]) -> Iterator[bytes]:
        waiting = [run]
        while waiting:
            for each in self.below.get(waiting.pop(), ()):
                if each in passed:
                    continue
                passed.add(each)
                if self.spans[each][1] > 0:
                    yield each
                    return
                waiting.append(each)


_Trace = bytes | _Index  # the items of a trace, or their index if there are many


class _Sender:
    """The spans of one key by trace, and its stored rows, oldest first."""

    def __init__(self) -> None:
        self.traces: dict[str, _Trace] = {}
        self.rows: OrderedDict[bytes, tuple[float, bytes]] = OrderedDict()
        self.count = 0

    def index(self, trace: str) -> _Index:
        found = self.traces.get(trace, b"")
        return found if isinstance(found, _Index) else _Index(found)

    def add(self, trace: str, item: bytes) -> bool:
        """Add a span to a trace. Return False if the span is known."""
        found = self.traces.get(trace)
        if found is None:
            self.traces[trace] = item
        elif isinstance(found, bytes):
            span = item[:8]
            if span in found and span in _Index(found).spans:
                return False
            found += item
            self.traces[trace] = _Index(found) if len(found) > MANY * _ITEM.size else found
        elif not found.add(*_ITEM.unpack(item)):
            return False
        self.count += 1
        return True

    def remove(self, row: bytes) -> None:
        trace, span = row[:_TRACE].hex(), row[_TRACE : _TRACE + 8]
        found = self.traces[trace]
        if isinstance(found, bytes):
            at = next(at for at in range(0, len(found), _ITEM.size) if found.startswith(span, at))
            found = self.traces[trace] = found[:at] + found[at + _ITEM.size :]
            is_empty = not found
        else:
            found.remove(span)
            is_empty = not found.spans
        if is_empty:
            del self.traces[trace]
        self.count -= 1


class PendingSpans:
    """
    The remembered spans of all keys, at most `most`.

    A plan adds spans at once, and `apply` confirms them after the commit. If the commit failed, the next plan takes
    them back (`begin`).
    """

    def __init__(self, most: int) -> None:
        self._most = most
        self._senders: dict[str, _Sender] = {}
        self._new: list[tuple[str, bytes]] = []  # the spans of a plan, as they are stored
        self._aged_at = 0.0

    @property
    def held(self) -> Mapping[str, int]:
        """Return the number of spans by key."""
        return {name: sender.count for name, sender in self._senders.items() if sender.count}

    def __len__(self) -> int:
        # a plan on another thread may add a key meanwhile
        return sum(sender.count for sender in list(self._senders.values()))

    def begin(self) -> None:
        """Take back the spans of a commit that failed."""
        for name, row in reversed(self._new):
            self._senders[name].remove(row)
        self._new.clear()

    def add_calls(self, name: str, calls: Iterable[CallBelow]) -> list[tuple[LinkedSpan, CallBelow]]:
        """
        Remember calls of a key. Return those whose trace has other spans, because these may be above or below the call.
        """
        sender = self._senders.setdefault(name, _Sender())
        traces, new, related = sender.traces, self._new, list[tuple[LinkedSpan, CallBelow]]()
        for call in calls:
            record, above, place = call
            row = _row_of(record.trace_id, record.span_id, above, place)
            if row is None or len(new) >= self._most:
                continue
            trace = record.trace_id
            assert trace is not None
            if trace not in traces:
                traces[trace] = row[_TRACE:]
                sender.count += 1
            elif sender.add(trace, row[_TRACE:]):
                related.append((LinkedSpan(name, trace, row[_TRACE : _TRACE + 8]), call))
            else:
                continue
            new.append((name, row))
        return related

    def add_steps(self, name: str, steps: Sequence[SpanStep]) -> list[LinkedSpan]:
        """
        Add spans of a key that are no calls. Spans without a sign of AI are added only to traces with AI spans. Return
        the new spans.
        """
        sender = self._senders.setdefault(name, _Sender())
        found = [self._added(name, sender, step) for step in steps if step[3] != PLAIN]
        if traces := sender.traces:
            found += [
                self._added(name, sender, step) for step in steps if step[3] == PLAIN and step[0] in traces
            ]
        return [span for span in found if span is not None]

    def _added(self, name: str, sender: _Sender, step: SpanStep) -> LinkedSpan | None:
        trace, span, above, kind = step
        row = _row_of(trace, span, above or _NO_SPAN.hex(), _OF_RUN if kind == RUN else _OF_STEP)
        if row is None or len(self._new) >= self._most or not sender.add(trace, row[_TRACE:]):
            return None
        self._new.append((name, row))
        return LinkedSpan(name, trace, row[_TRACE : _TRACE + 8])

    def runs_of(self, span: LinkedSpan) -> list[str]:
        """Return the known runs around a known span, from the nearest on."""
        return self._senders[span.sender].index(span.trace).runs_above(span.id)

    def calls_below(self, span: LinkedSpan) -> Iterator[tuple[int, list[str]]]:
        """Yield the places of calls below a new span, with the runs around each call, if there are any."""
        sender = self._senders.get(span.sender)
        found = None if sender is None else sender.traces.get(span.trace)
        if sender is None or found is None or (isinstance(found, bytes) and found.count(span.id) < 2):
            return
        index = sender.index(span.trace)
        if span.id not in index.below or not index.runs_above(span.id):
            return
        for call in islice(index.calls_below(span.id), MOST_PLACED):
            yield index.spans[call][1], index.runs_above(call)

    def places_below(self, name: str, steps: Iterable[SpanStep]) -> Iterator[int]:
        """Yield the places of calls that spans may link to their runs, before the spans are added."""
        sender = self._senders.get(name)
        if sender is None:
            return
        for trace, span, _, _ in steps:
            row = _row_of(trace, span, _NO_SPAN.hex(), 0) if trace in sender.traces else None
            if row is not None:
                index = sender.index(trace)
                for call in islice(index.calls_below(row[_TRACE : _TRACE + 8]), MOST_PLACED):
                    yield index.spans[call][1]

    def new_rows(self, at: float) -> list[PartialReport]:
        """Return the rows to store with a commit: one for each key that sent new spans."""
        items: dict[str, list[bytes]] = {}
        for name, row in self._new:
            items.setdefault(name, []).append(row)
        return [_stored(at, name, b"".join(rows)) for name, rows in items.items()]

    def due(self, now: float) -> list[bytes]:
        """Return the keys of the rows to delete: those beyond the limit, and once a minute those that are too old."""
        due = list(self._beyond())
        if not 0 <= now - self._aged_at < AGE_EVERY_S:
            self._aged_at = now
            for sender in self._senders.values():
                for key, (at, _) in sender.rows.items():
                    if now - at >= KEPT_S:
                        due.append(key)
                    elif at <= now:
                        break  # rows of a clock that was ahead may precede older ones
        return due

    def _beyond(self) -> Iterator[bytes]:
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

    def apply(self, rows: Iterable[PartialReport], gone: Iterable[bytes]) -> None:
        """Confirm the spans of a plan after its commit."""
        self._new.clear()
        for row in rows:
            name, items = _decode(row.body)
            self._senders[name].rows[row.key] = row.at, items
        self._forget(gone)

    def load(self, rows: Iterable[PartialReport]) -> int:
        """Add stored rows, at a start or from another process. Return the number of unreadable rows."""
        self.begin()
        damaged = 0
        for row in rows:
            try:
                name, items = _decode(row.body)
            except (msgspec.DecodeError, ValueError):
                damaged += 1
                continue
            sender = self._senders.setdefault(name, _Sender())
            if row.key in sender.rows:
                continue
            new = [each for each in _rows_in(items) if sender.add(each[:_TRACE].hex(), each[_TRACE:])]
            sender.rows[row.key] = row.at, b"".join(new)
        self._forget(list(self._beyond()))
        return damaged

    def _forget(self, gone: Iterable[bytes]) -> None:
        keys = set(gone)
        for name, sender in list(self._senders.items()) if keys else ():
            for key in keys & sender.rows.keys():
                _, items = sender.rows.pop(key)
                for row in _rows_in(items):
                    sender.remove(row)
            if not sender.count:
                del self._senders[name]


_rows = msgspec.msgpack.Decoder(tuple[str, bytes])


def _row_of(trace: str | None, span: str | None, above: str, place: int) -> bytes | None:
    """Return a span as it is stored, or None if its ids are not those of OpenTelemetry."""
    if trace is None or span is None or len(trace) != 32 or len(span) != 16 or len(above) != 16:
        return None
    try:
        ids = bytes.fromhex(trace + span + above)
    except ValueError:
        return None
    return ids + place.to_bytes(8, signed=True) if len(ids) == 32 else None


def _rows_in(items: bytes) -> Iterator[bytes]:
    return (items[at : at + ROW.size] for at in range(0, len(items), ROW.size))


def _stored(at: float, sender: str, items: bytes) -> PartialReport:
    """Return the row of the spans of one key in a commit."""
    body = msgspec.msgpack.encode((sender, items))
    return PartialReport(SPANS + blake2b(pack(">d", at) + body, digest_size=16).digest(), at, body)


def _decode(body: bytes) -> tuple[str, bytes]:
    """Return the key's name and the spans of a row. Raises msgspec.DecodeError or ValueError if it is damaged."""
    sender, items = _rows.decode(body)
    if len(items) % ROW.size:
        raise ValueError("spans are cut off")
    return sender, items


def runs_to_add(known: Sequence[str | None], runs: Sequence[str]) -> dict[str, str]:
    """
    Return the fields of a call that its runs fill. `known` are its present run, parent run and further runs. Another
    run that a report stated stays.
    """
    run, parent, ancestors = known
    stated = [each for each in (run, parent, *(ancestors or "").split()) if each is not None]
    if not runs or len(stated) >= len(runs) or (run is None and stated) or stated != [*runs[: len(stated)]]:
        return {}
    return {name: value for name, value in zip(RUNS, fields_of(runs), strict=True) if value is not None}


def fields_of(runs: Sequence[str]) -> tuple[str, str | None, str | None]:
    """Return run, parent run and ancestors of a call, from the runs around it."""
    return runs[0], runs[1] if len(runs) > 1 else None, " ".join(runs[2:]) or None
