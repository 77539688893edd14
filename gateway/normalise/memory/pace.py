"""
When the memory looks and learns: it costs little where it gains nothing, decided by what was found. And the samples
of spans, without their content, that wait to be learned.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from gateway.normalise.otlp.admission import DROPPED, REDUCED, RULES
from gateway.normalise.otlp.decoding import wire
from gateway.normalise.otlp.model import Span

MOST_SENDERS: Final = 4096
_UNRESTED, _RESTED = 16, 4  # requests refused before one passes unseen, and for each one more that does


@dataclass(frozen=True, kw_only=True)
class MemoryPace:
    """
    `least_known`: the part of a request's spans below which the rules read the whole request. `most_skipped`: requests
    of one kind that are not looked at after one of which less was known. `least_seen`: spans of one kind before it is
    learned, and `least_share` of all spans that came meanwhile. `spans_a_kind`: spans that have to come for each kind
    that is learned after the `first_kinds`; `most_in_turn` kinds may be due at once. `look_share`: the part of all
    spans that may be looked for in vain, beside `free_looks` of them. `most_rested`: requests of anybody that pass
    unseen between two, while none is looked at with success.
    """

    least_known: float = 0.8
    most_skipped: int = 127
    least_seen: int = 8
    least_share: float = 0.0005
    first_kinds: int = 256
    spans_a_kind: int = 4000
    most_in_turn: int = 4
    look_share: float = 0.005
    free_looks: int = 6000
    most_rested: int = 15


AT_ONCE: Final = MemoryPace(
    least_known=0, most_skipped=0, least_seen=1, least_share=0, spans_a_kind=0, look_share=1, most_rested=0
)  # every span, for tests


class TriedSender:
    """Requests of the same scopes: how many more are to be skipped, how many the next time, and how many were."""

    __slots__ = ("is_known", "next", "skipped", "skips")

    def __init__(self, skips: int) -> None:
        self.skips, self.next, self.skipped = skips, 0, 0
        self.is_known = False  # enough of the newest request that was looked at


class Trials:
    """
    Which requests are looked at. Those of the same scopes are of one kind: where their spans are not known, ever fewer
    are tried, and all of them together no more than a part of what comes.
    """

    def __init__(self, pace: MemoryPace) -> None:
        self._pace = pace
        self._senders: dict[int, TriedSender] = {}
        self._free: float = pace.free_looks  # spans that may be looked for in vain
        self._refused = 0  # requests that were not looked at with success, one behind the other
        self._rests = self._rested = 0  # requests that are to pass unseen, and that did

    def rests(self) -> bool:
        """True if a request is not even to be asked for its sender."""
        if not self._rests:
            return False
        self._rests -= 1
        self._rested += 1
        return True

    def refuse(self) -> None:
        """Take in that a request is for the rules."""
        self._refused += 1
        self._rests = min(max(0, self._refused - _UNRESTED) // _RESTED, self._pace.most_rested)

    def stands_for_rested(self) -> int:
        """Return for how many requests this one stands that passed unseen, itself among them."""
        rested, self._rested = self._rested, 0
        return rested + 1

    def sender(self, scopes: Iterable[bytes]) -> TriedSender:
        """Return who sends requests of these scopes."""
        key = hash(frozenset(scopes))
        found = self._senders.get(key)
        if found is None:
            if len(self._senders) >= MOST_SENDERS:
                self._senders.clear()
            found = self._senders[key] = TriedSender(min(1, self._pace.most_skipped))
        return found

    @property
    def has_much(self) -> bool:
        """True while so many spans may be looked for in vain that no request needs to be passed over for it."""
        return self._free > self._pace.free_looks / 2

    def stands_for(self, sender: TriedSender, spans: int, rested: int = 1) -> int:
        """
        Return for how many requests this one is looked at; 0 if it is not. `tell` then says what was found.

        It came with so many spans, and is one of those that rested.
        """
        pace = self._pace
        self._free = min(self._free + spans * pace.look_share, pace.free_looks)
        if sender.skips or not (sender.is_known or self._free > 0):
            sender.skips = max(0, sender.skips - rested)
            sender.skipped += rested
            self.refuse()
            return 0
        times, sender.skipped = sender.skipped + rested, 0
        return times

    def tell(self, sender: TriedSender, *, in_vain: int, is_hopeless: bool = False) -> None:
        """
        Take in how many spans were looked for in vain, 0 if enough of the request was known, and whether enough of it
        never will be.
        """
        sender.is_known = not in_vain
        if sender.is_known:
            sender.next //= 2
            self._refused = 0
            return
        self.refuse()
        self._free -= in_vain
        most = self._pace.most_skipped
        if is_hopeless or not self.has_much:
            sender.next = most if is_hopeless else min(2 * sender.next + 1, most)
        sender.skips = max(sender.next, min(1, most))


MOST_COUNTED: Final = 1024  # kinds of which no sample is kept
MOST_SAMPLES: Final = 64
LARGEST_SAMPLES: Final = 1024 * 1024
_LONGEST_NAME: Final = 256
_NO_VALUE: Final = b"\x12\x00"


class Sample(NamedTuple):
    """A span of a kind that is to be learned."""

    span: Span
    encoded: bytes


@dataclass
class Sightings:
    """How many spans of a kind were seen, how many these stand for, and after how many spans the first one came."""

    came: int
    seen: int = 0
    stands_for: int = 0


@dataclass
class Samples:
    """What waits to be learned. A kind is only counted until it is seen often, which costs less than a sample of it."""

    pace: MemoryPace
    _counts: dict[int, Sightings] = field(default_factory=dict)
    _waiting: dict[int, Sample] = field(default_factory=dict)
    _bytes: int = 0
    _credit: float = 0
    _came: int = 0

    def __post_init__(self) -> None:
        self._credit = self.pace.first_kinds

    def __iter__(self) -> Iterator[Sample]:
        return iter(self._waiting.values())

    def __len__(self) -> int:
        return len(self._waiting)

    def count(self, spans: int) -> None:
        """Earn learning by spans that came."""
        self._came += spans
        if self.pace.spans_a_kind:
            most = max(self.pace.most_in_turn, self._credit)
            self._credit = min(self._credit + spans / self.pace.spans_a_kind, most)

    def is_wanted(self, kind: int, times: int) -> bool:
        """Sightings a span of a kind that stands for so many; True if it is to be given to `add`."""
        counted = self._counts.pop(kind, None) or Sightings(self._came)
        counted.seen += 1
        counted.stands_for += times
        self._counts[kind] = counted
        if len(self._counts) > MOST_COUNTED:
            del self._counts[next(iter(self._counts))]
        came = self._came - counted.came
        is_often = counted.seen >= self.pace.least_seen and counted.stands_for >= came * self.pace.least_share
        return is_often and kind not in self._waiting

    def add(self, kind: int, sample: Sample) -> None:
        """Take a sample of a kind; those that wait for longest are left out if there are too many."""
        if len(sample.encoded) > LARGEST_SAMPLES:
            return
        self._waiting[kind] = sample
        self._bytes += len(sample.encoded)
        while len(self._waiting) > MOST_SAMPLES or self._bytes > LARGEST_SAMPLES:
            self._remove(next(iter(self._waiting)))

    def take(self) -> Sample | None:
        """Remove and return the sample that is due, of the kind that came most; None if none is."""
        if not self._waiting or self._credit < 1:
            return None
        if self.pace.spans_a_kind:
            self._credit -= 1
        none = Sightings(0)
        kind = max(self._waiting, key=lambda kind: self._counts.get(kind, none).stands_for)
        self._counts.pop(kind, None)
        return self._remove(kind)

    def clear(self) -> None:
        self._counts.clear()
        self._waiting.clear()
        self._bytes = 0

    def _remove(self, kind: int) -> Sample:
        sample = self._waiting.pop(kind)
        self._bytes -= len(sample.encoded)
        return sample


def names_of(encoded: bytes) -> set[str]:
    """Return the names of a span's attributes, but those that are too long."""
    pairs = wire.Span.FromString(encoded).attributes
    names = {str(wire.EncodedKeyValue.FromString(pair).key) for pair in pairs}
    return {name for name in names if len(name.encode()) <= _LONGEST_NAME}


def without_content(encoded: bytes) -> bytes:
    """Return a span without values that are content, and without what is not looked at."""
    span = wire.Span.FromString(encoded)
    span.ClearField("trace_state")
    span.ClearField("links")
    span.ClearField("events")
    span.status.message = ""
    kept = []
    for pair in span.attributes:
        read = wire.EncodedKeyValue.FromString(pair)
        if RULES[read.key] in (DROPPED, REDUCED):
            read.ClearField("value")
            pair = read.SerializeToString() + _NO_VALUE
        kept.append(pair)
    del span.attributes[:]
    span.attributes.extend(kept)
    stripped: bytes = span.SerializeToString()
    return stripped
