"""When the memory looks and learns: it costs little where it gains nothing, decided by what was found."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from gateway.normalise.otlp.model import Span

MOST_SENDERS: Final = 4096
MOST_COUNTED: Final = 1024  # kinds of which no sample is kept
MOST_SAMPLES: Final = 64
LARGEST_SAMPLES: Final = 1024 * 1024


@dataclass(frozen=True, kw_only=True)
class MemoryPace:
    """
    `least_known`: the part of a request's spans below which the rules read the whole request. `most_skipped`: requests
    of one kind that are not looked at after one of which less was known. `least_seen`: spans of one kind before it is
    learned, and `least_share` of all spans that came meanwhile. `spans_a_kind`: spans that have to come for each kind
    that is learned after the first one; `most_in_turn` kinds may be due at once.
    """

    least_known: float = 0.8
    most_skipped: int = 127
    least_seen: int = 8
    least_share: float = 0.01
    spans_a_kind: int = 4000
    most_in_turn: int = 4


AT_ONCE: Final = MemoryPace(
    least_known=0, most_skipped=0, least_seen=1, least_share=0, spans_a_kind=0
)  # every span, for tests


class Trials:
    """
    Which requests are looked at. Those of the same scopes are of one kind: where their spans are not known, ever fewer
    are tried.
    """

    def __init__(self, most_skipped: int) -> None:
        self._most = most_skipped
        self._skips: dict[int, list[int]] = {}  # how many more to skip, and how many the next time

    def stands_for(self, scopes: Iterable[bytes]) -> int:
        """Return for how many requests this one is looked at; 0 if it is not. `tell` then says what was found."""
        if len(self._skips) >= MOST_SENDERS:
            self._skips.clear()
        skips = self._skips.setdefault(hash(frozenset(scopes)), [min(1, self._most), 0])
        if skips[0]:
            skips[0] -= 1
            return 0
        return skips[1] + 1

    def tell(self, scopes: Iterable[bytes], *, is_known: bool) -> None:
        """Take in whether enough of a request was known."""
        skips = self._skips.setdefault(hash(frozenset(scopes)), [0, 0])
        skips[1] = skips[1] // 2 if is_known else min(2 * skips[1] + 1, self._most)
        skips[0] = 0 if is_known else skips[1]


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
    _credit: float = 1
    _came: int = 0

    def __iter__(self) -> Iterator[Sample]:
        return iter(self._waiting.values())

    def __len__(self) -> int:
        return len(self._waiting)

    def count(self, spans: int) -> None:
        """Earn learning by spans that came."""
        self._came += spans
        if self.pace.spans_a_kind:
            self._credit = min(self._credit + spans / self.pace.spans_a_kind, self.pace.most_in_turn)

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
