"""
The merge window: Langfuse's SDKs send the create of a generation and its update, which holds the usage, apart.

Halves wait up to ten minutes, bounded by number and bytes, and are found again after a restart; what a trace says of
who called is remembered as long. Nothing here waits or writes: `Changes` say what must be on disk, and when.

    changes = waiting.join(outcome, sender=..., now=...)
    await pending.put(changes.keep)         # before the answer
    receipt = await intake.take(outcome)    # on failure: waiting.undo(changes)
    await pending.forget(changes.forget)    # only now: a crash before finds both halves, and one record

Halves join within one sender's key only: nobody completes, or names a user for, what another key reported.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable
from hashlib import blake2b
from typing import Final, NamedTuple

import msgspec

from gateway.normalise.formats.langfuse import GENERATION, NAME, TRACE, Generation, Trace, attribute, call_of, merge
from gateway.normalise.outcome import MERGED, NOT_AI, Half, Outcome
from spool.pending import Kept
from spool.record import Inference

WINDOW_S: Final = 600.0
MAX_HALVES: Final = 20_000
MAX_BYTES: Final = 16 * 1024 * 1024


class Sender(msgspec.Struct, frozen=True):
    """Whose key brought a report, and what it adds to each: a half that is released later is still theirs."""

    name: str
    labels: dict[str, str] = {}
    device: str | None = None


class Changes(NamedTuple):
    """What a join asks of the disk; `before` is what `undo` puts back."""

    keep: list[Kept]
    forget: list[bytes]
    before: dict[bytes, _Entry | None]


class Released(NamedTuple):
    """A generation whose other half did not come in time, as it is; `key` is forgotten once it is a record."""

    sender: Sender
    outcome: Outcome
    key: bytes
    entry: _Entry


class _Entry(msgspec.Struct):
    sender: Sender
    kind: str
    facts: bytes
    at: float = 0.0  # when it was last heard of

    def kept(self, key: bytes) -> Kept:
        return Kept(key, self.at, _encode(self))


class Waiting:
    """Halves by sender, kind and id, oldest first."""

    def __init__(self, *, window_s: float = WINDOW_S, max_halves: int = MAX_HALVES, max_bytes: int = MAX_BYTES) -> None:
        self._window_s = window_s
        self._max_halves = max_halves
        self._max_bytes = max_bytes
        self._entries: OrderedDict[bytes, _Entry] = OrderedDict()
        self._bytes = 0

    def __len__(self) -> int:
        return len(self._entries)

    @property
    def is_over_full(self) -> bool:
        return len(self._entries) > self._max_halves or self._bytes > self._max_bytes

    def load(self, kept: Iterable[Kept]) -> None:
        """What was waiting when the process ended."""
        for half in kept:
            entry = _entry_decoder.decode(half.body)
            entry.at = half.at
            self._set(half.key, entry)

    def join(self, outcome: Outcome, *, sender: Sender, now: float) -> Changes:
        """
        Bring the halves of one batch together with those that wait; the outcome's records and terms follow.

        A generation that became whole is a record of this outcome; its earlier half is pending no more.
        """
        changes = Changes([], [], {})
        for half in outcome.halves:
            if half.kind == TRACE:
                self._remember(half, changes, sender, now)
        for record in outcome.records:
            if isinstance(record, Inference) and record.source == NAME and record.request_id is not None:
                self._complete(record, outcome, changes, sender)
        for half in outcome.halves:
            if half.kind == GENERATION:
                self._settle(half, outcome, changes, sender, now)
        return changes

    def undo(self, changes: Changes) -> None:
        """The request was refused after all; its sender will come again."""
        for key, before in changes.before.items():
            self._drop(key)
            if before is not None:
                self._set(key, before)

    def released(self, *, now: float) -> list[Released]:
        """What waited for the whole window, or must make room; oldest first."""
        released = []
        while self._entries:
            key, entry = next(iter(self._entries.items()))
            if now - entry.at < self._window_s and not self.is_over_full:
                break
            self._drop(key)
            released.append(self._release(key, entry))
        return released

    def restore(self, released: Released) -> None:
        """It could not be made a record: it stays the next to go."""
        if released.key not in self._entries:
            self._set(released.key, released.entry)
            self._entries.move_to_end(released.key, last=False)

    def _remember(self, half: Half, changes: Changes, sender: Sender, now: float) -> None:
        key = _key(sender, TRACE, half.key)
        said, known = _traces.decode(half.facts), self._trace(sender, half.key)
        if known is not None:
            said = Trace(
                said.id,
                user=said.user or known.user,
                team=said.team or known.team,
                session=said.session or known.session,
                tags=known.tags | said.tags,
            )
        self._keep(key, _Entry(sender, TRACE, _encode(said), now), changes)

    def _complete(self, record: Inference, outcome: Outcome, changes: Changes, sender: Sender) -> None:
        """A whole generation learns from a half that waited for it, and from a trace that came before."""
        key = _key(sender, GENERATION, record.request_id or "")
        if (entry := self._entries.get(key)) is not None:
            half = _generations.decode(entry.facts)
            record.start_time = half.start_time if record.start_time is None else record.start_time
            record.trace_id = record.trace_id or half.trace_id
            self._resolve(key, outcome, changes)
        if (trace := self._trace(sender, record.trace_id)) is not None:
            attribute(record, trace)

    def _settle(self, half: Half, outcome: Outcome, changes: Changes, sender: Sender, now: float) -> None:
        """One half of this batch: it waits on, or it became whole."""
        key, generation = _key(sender, GENERATION, half.key), _generations.decode(half.facts)
        if (entry := self._entries.get(key)) is not None:
            generation = merge(_generations.decode(entry.facts), generation)
            self._resolve(key, outcome, changes)
        if not generation.is_whole:
            self._keep(key, _Entry(sender, GENERATION, _encode(generation), now), changes)
            return
        outcome.pending -= 1
        _add(outcome, generation, self._trace(sender, generation.trace_id))

    def _resolve(self, key: bytes, outcome: Outcome, changes: Changes) -> None:
        """What waited is part of something else now."""
        changes.before.setdefault(key, self._entries.get(key))
        changes.forget.append(key)
        self._drop(key)
        outcome.pending -= 1
        outcome.ignored[MERGED] += 1

    def _keep(self, key: bytes, entry: _Entry, changes: Changes) -> None:
        changes.before.setdefault(key, self._entries.get(key))
        if key in changes.forget:
            changes.forget.remove(key)
        changes.keep.append(entry.kept(key))
        self._set(key, entry)

    def _release(self, key: bytes, entry: _Entry) -> Released:
        outcome = Outcome()
        if entry.kind == GENERATION:
            outcome.pending = -1
            generation = _generations.decode(entry.facts)
            _add(outcome, generation, self._trace(entry.sender, generation.trace_id))
        return Released(entry.sender, outcome, key, entry)

    def _trace(self, sender: Sender, trace_id: str | None) -> Trace | None:
        entry = self._entries.get(_key(sender, TRACE, trace_id)) if trace_id else None
        return None if entry is None else _traces.decode(entry.facts)

    def _set(self, key: bytes, entry: _Entry) -> None:
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


def _add(outcome: Outcome, generation: Generation, trace: Trace | None) -> None:
    call = call_of(generation, trace)
    if call is None:
        outcome.ignored[NOT_AI] += 1
    else:
        outcome.add(call.record, call.identity)


def _key(sender: Sender, kind: str, own_id: str) -> bytes:
    named = "\0".join((sender.name, kind, own_id)).encode("utf-8", "surrogatepass")
    return blake2b(named, digest_size=16, person=b"langfuse").digest()


_encode = msgspec.msgpack.Encoder().encode
_entry_decoder = msgspec.msgpack.Decoder(_Entry)
_generations = msgspec.msgpack.Decoder(Generation)
_traces = msgspec.msgpack.Decoder(Trace)
