"""
The merge window: Langfuse's SDKs send the create of a generation and its update, which holds the usage, apart.

Halves wait for `spool.pending_window`, bounded by number and bytes, and are found again after a restart; what a trace
says of who called is remembered as long as anybody asks for it. Nothing here waits or writes: `Outcome.keep` and
`forget` say what the commit of the outcome must leave on disk.

    for _ in waiting.join(outcome, before, sender=..., now=...):    # a large batch in turns
        await sleep(0)
    receipt = await intake.take(outcome)    # on failure: waiting.undo(before)

Whoever joins has the turn of all `keys_of` the outcome until its commit.

Halves join within one sender's key only: nobody completes, or names a user for, what another key reported.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Container, Iterable, Iterator
from hashlib import blake2b
from itertools import islice, takewhile
from typing import NamedTuple

import msgspec

from gateway.normalise.formats.call import Call
from gateway.normalise.formats.driver import explained
from gateway.normalise.formats.langfuse.events import (
    GENERATION,
    ORIGINS,
    TRACE,
    TURN,
    WHOLE,
    Generation,
    Trace,
    call_of,
    in_order,
    merge_traces,
)
from gateway.normalise.formats.langfuse.on_record import Told
from gateway.normalise.outcome import MERGED, NOT_AI, Half, Outcome
from spool.identity import Identity
from spool.log.partial_reports import PartialReport
from spool.record import Inference


class Sender(msgspec.Struct, frozen=True):
    """Whose key brought a report, and what it adds to each: a half that is released later is still theirs."""

    name: str
    labels: dict[str, str] = {}
    device: str | None = None


class Entry(msgspec.Struct):
    """One half that waits, or what a trace said."""

    sender: Sender
    kind: str
    facts: bytes
    at: float = 0.0  # when it was last heard of

    def kept(self, key: bytes) -> PartialReport:
        return PartialReport(key, self.at, _encode(self))


Before = dict[bytes, Entry | None]  # what a join changed, as it was


class Released(NamedTuple):
    """What of one sender waited in vain, as it is."""

    sender: Sender
    outcome: Outcome
    entries: dict[bytes, Entry]


class Waiting:
    """Halves by sender, kind and id, oldest first."""

    def __init__(self, *, window_s: float, hold_s: float, max_halves: int, max_bytes: int) -> None:
        self._window_s = window_s
        self._max_halves = max_halves
        self._max_bytes = max_bytes
        self._entries: OrderedDict[bytes, Entry] = OrderedDict()
        self._bytes = 0
        self._told = Told(window_s=window_s, hold_s=hold_s, max_told=max_halves)

    def __len__(self) -> int:
        return len(self._entries)

    @property
    def is_over_full(self) -> bool:
        return len(self._entries) > self._max_halves or self._bytes > self._max_bytes

    def load(self, kept: Iterable[PartialReport]) -> int:
        """What was waiting when the process ended; how many of them cannot be read."""
        damaged, traces = 0, []
        for half in kept:
            try:
                entry = _entry_decoder.decode(half.body)
                _facts[entry.kind].decode(entry.facts)
            except (msgspec.DecodeError, UnicodeDecodeError, KeyError):
                damaged += 1
                continue
            entry.at = half.at
            if entry.kind == TRACE:
                traces.append((half.key, entry))
            else:
                self._set(half.key, entry)
        for key, entry in traces:  # after the generations that may ask for them
            self._set(key, entry)
        return damaged

    def join(self, outcome: Outcome, before: Before, *, sender: Sender, now: float) -> Iterator[None]:
        """
        Bring the halves of one batch together with those that wait; the outcome's records and terms follow.

        A generation that became whole is a record of this outcome; its earlier half is pending no more. What is changed
        is in `before`, as it was.
        """
        places = {one.request_id: place for place, one in enumerate(outcome.records) if isinstance(one, Inference)}
        traces_first = sorted(outcome.halves, key=lambda half: half.kind != TRACE)
        for number, half in enumerate(traces_first, start=1):
            if number % TURN == 0:
                yield
            if half.kind == TRACE:
                yield from self._remember(half, outcome, before, sender, now)
            elif half.kind == WHOLE:
                self._complete(half, places[half.key], outcome, before, sender, now)
            else:
                self._settle(half, outcome, before, sender, now)
        self._told.forget_old(now)

    def undo(self, before: Before) -> None:
        """The request was refused after all; its sender will come again."""
        for key, entry in before.items():
            self._drop(key)
            if entry is not None:
                self._set(key, entry)

    def released(self, *, now: float, busy: Container[bytes] = ()) -> list[Released]:
        """Some of what waited for the whole window, or must make room, oldest first; nothing of what is `busy`."""
        due = self._due(now, busy)
        found: list[Released] = []
        of_sender: dict[bytes, Released] = {}
        for key in due:
            entry = self._entries[key]
            name = _encode(entry.sender)
            if name not in of_sender:
                of_sender[name] = Released(entry.sender, Outcome(), {})
                found.append(of_sender[name])
            self._release(key, entry, of_sender[name], now)
        for key in due:  # a trace only after the generations that ask for it
            self._drop(key)
        return found

    def restore(self, released: Released) -> None:
        """They could not be made records: they stay the next to go."""
        for key, entry in reversed(released.entries.items()):
            self._set(key, entry)
            self._entries.move_to_end(key, last=False)

    def _due(self, now: float, busy: Container[bytes]) -> list[bytes]:
        """What waited for the whole window; then what makes room, halves last: they would be calls without a usage."""
        ended = takewhile(lambda one: now - one[1].at >= self._window_s, self._entries.items())
        due = dict.fromkeys(islice((key for key, _ in ended if key not in busy), TURN))
        room = self._max_halves - len(self._entries) + len(due)
        room_bytes = self._max_bytes - self._bytes + sum(len(self._entries[key].facts) for key in due)
        for kind in (TRACE, GENERATION):
            for key, entry in self._entries.items():
                if len(due) == TURN or (room >= 0 and room_bytes >= 0):
                    return list(due)
                if entry.kind == kind and key not in due and key not in busy:
                    due[key] = None
                    room, room_bytes = room + 1, room_bytes + len(entry.facts)
        return list(due)

    def _release(self, key: bytes, entry: Entry, released: Released, now: float) -> None:
        outcome = released.outcome
        released.entries[key] = entry
        outcome.forget.append(key)
        if entry.kind == GENERATION:
            outcome.pending -= 1
            generation = _generations.decode(entry.facts)
            trace = self._trace(entry.sender, generation.trace_id, entry.at)
            if (call := _add(outcome, generation, trace)) is not None:
                self._tell(call, entry.sender, now)

    def _tell(self, call: Call, sender: Sender, now: float) -> None:
        """
        What is said of this call from now on is no half.

        It is not kept yet: what comes before that carries the whole call, so either may be kept first, or alone.
        """
        trace_id, own_id = call.record.trace_id, call.record.request_id or ""
        trace_key = key_of(sender, TRACE, trace_id) if trace_id else None
        self._told.add(key_of(sender, GENERATION, own_id), trace_key, call.record, call.identity, now)

    def _remember(self, half: Half, outcome: Outcome, before: Before, sender: Sender, now: float) -> Iterator[None]:
        """What a trace says, also for its generations that are on record and open: it may come after them."""
        key = key_of(sender, TRACE, half.key)
        known, said = self._trace(sender, half.key, now), _traces.decode(half.facts)
        trace, left_out = (said, 0) if known is None else merge_traces(known, said)
        outcome.left_out += left_out
        self._keep(key, Entry(sender, TRACE, _encode(trace), now), outcome, before)
        if trace == known:
            return
        for number, told in enumerate(self._told.open_of(key, now), start=1):
            if number % TURN == 0:
                yield
            if (call := call_of(told.generation, trace)) is not None:
                outcome.split += 1
                outcome.add(call.record, told.identity)

    def _complete(self, half: Half, place: int, outcome: Outcome, before: Before, sender: Sender, now: float) -> None:
        """A whole generation learns from a half that waited for it, and from a trace that came before."""
        generation, identity = self._joined(half, outcome, before, sender)
        call = call_of(generation, self._trace(sender, generation.trace_id, now), identity)
        if call is not None:
            call.record.id = call.identity.id
            outcome.records[place], outcome.identities[place] = call.record, call.identity
            self._tell(call, sender, now)

    def _settle(self, half: Half, outcome: Outcome, before: Before, sender: Sender, now: float) -> None:
        """One half of this batch: it waits on, or it became whole."""
        generation, identity = self._joined(half, outcome, before, sender)
        if not generation.is_whole:
            entry = Entry(sender, GENERATION, _encode(generation), now)
            self._keep(key_of(sender, GENERATION, half.key), entry, outcome, before)
        trace = self._trace(sender, generation.trace_id, now)  # after the half, so that it outlives it
        if generation.is_whole:
            outcome.pending -= 1
            if (call := _add(outcome, generation, trace, identity)) is not None:
                self._tell(call, sender, now)

    def _joined(
        self, half: Half, outcome: Outcome, before: Before, sender: Sender
    ) -> tuple[Generation, Identity | None]:
        """With what was said before; the identity is that of its record, if it is on record."""
        key, generation = key_of(sender, GENERATION, half.key), _generations.decode(half.facts)
        if (entry := self._entries.get(key)) is not None:
            before.setdefault(key, entry)
            outcome.forget.append(key)
            self._drop(key)
            outcome.pending -= 1
            outcome.ignored[MERGED] += 1
            return in_order(_generations.decode(entry.facts), generation), None
        if (told := self._told.find(key)) is not None:
            return in_order(told.generation, generation), told.identity
        return generation, None

    def _keep(self, key: bytes, entry: Entry, outcome: Outcome, before: Before) -> None:
        before.setdefault(key, self._entries.get(key))
        outcome.keep.append(entry.kept(key))
        self._set(key, entry)

    def _trace(self, sender: Sender, trace_id: str | None, now: float) -> Trace | None:
        """What a trace said; who asks keeps it alive."""
        key = key_of(sender, TRACE, trace_id or "")
        if (entry := self._entries.get(key)) is None:
            return None
        entry.at = max(entry.at, now)
        self._entries.move_to_end(key)
        return _traces.decode(entry.facts)

    def _set(self, key: bytes, entry: Entry) -> None:
        self._drop(key)
        self._entries[key] = entry
        self._bytes += len(entry.facts)

    def _drop(self, key: bytes) -> None:
        entry = self._entries.pop(key, None)
        self._bytes -= 0 if entry is None else len(entry.facts)


def alone(outcome: Outcome) -> Outcome:
    """The outcome of one batch for which nothing else will come: every half is released as it is."""
    traces = {half.key: _traces.decode(half.facts) for half in outcome.halves if half.kind == TRACE}
    for half in outcome.halves:
        if half.kind == GENERATION:
            generation = _generations.decode(half.facts)
            outcome.pending -= 1
            _add(outcome, generation, traces.get(generation.trace_id or ""))
    outcome.halves.clear()
    return outcome


def keys_of(outcome: Outcome, sender: Sender) -> set[bytes]:
    """What a join of this outcome reads and changes."""
    return {key_of(sender, TRACE if half.kind == TRACE else GENERATION, half.key) for half in outcome.halves}


def key_of(sender: Sender, kind: str, own_id: str) -> bytes:
    named = "\0".join((sender.name, kind, own_id)).encode("utf-8", "surrogatepass")
    return blake2b(named, digest_size=16, person=b"langfuse").digest()


def _add(
    outcome: Outcome, generation: Generation, trace: Trace | None, identity: Identity | None = None
) -> Call | None:
    call = call_of(generation, trace, identity)
    if call is None:
        outcome.ignored[NOT_AI] += 1
    else:
        outcome.add(call.record, call.identity, None if outcome.why is None else explained(ORIGINS, call.record))
    return call


_encode = msgspec.msgpack.Encoder().encode
_entry_decoder = msgspec.msgpack.Decoder(Entry)
_generations = msgspec.msgpack.Decoder(Generation)
_traces = msgspec.msgpack.Decoder(Trace)
_facts: dict[str, msgspec.msgpack.Decoder[Generation] | msgspec.msgpack.Decoder[Trace]] = {
    GENERATION: _generations,
    TRACE: _traces,
}
