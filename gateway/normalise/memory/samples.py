"""Samples of spans that wait to be learned, without their content."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from gateway.normalise.memory.pace import MemoryPace
from gateway.normalise.otlp.admission import DROPPED, REDUCED, RULES
from gateway.normalise.otlp.decoding import wire
from gateway.normalise.otlp.model import Span

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
