"""
Rules for when to look up requests and when to learn kinds, so that the memory costs little time where it
saves none.

The module also holds samples of spans, without their content, that wait to be learned.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from gateway.normalise.otlp.admission import DROPPED, REDUCED, RULES
from gateway.normalise.otlp.decoding import wire
from gateway.normalise.otlp.model import Span
from spool.caches import remove_oldest_eighth

MOST_SENDERS: Final = 4096
# After `_UNRESTED` consecutive requests without a known span, the next request is read without the memory of
# spans. Then one request is read without it after every `_RESTED` requests without a known span.
_UNRESTED, _RESTED = 16, 4


@dataclass(frozen=True, kw_only=True)
class MemoryPace:
    """Limits on how often the span memory looks up spans and learns new kinds of spans."""

    # Share of a request's spans that must be known. With fewer known spans, the rules read the whole request.
    least_known: float = 0.8
    # After a request with too few known spans, the rules read at most this number of requests of the same
    # kind without looking up their spans.
    most_skipped: int = 127
    least_seen: int = 8  # number of spans of a kind that must be seen before it is learned
    # share of all spans since the kind's first span that the kind must have before it is learned
    least_share: float = 0.0005
    # number of kinds of spans that are learned before the limit `spans_a_kind` applies
    first_kinds: int = 256
    spans_a_kind: int = 4000  # number of spans that must arrive before each further kind is learned
    most_in_turn: int = 4  # limit of kinds that may be due for learning at the same time
    look_share: float = 0.005  # share of all spans that may be looked up without success
    # number of spans that may be looked up without success before `look_share` applies
    free_looks: int = 6000
    most_rested: int = 15  # while no lookup succeeds, skip at most this number of requests in a row


# tests use these settings, with which every span is looked up
AT_ONCE: Final = MemoryPace(
    least_known=0, most_skipped=0, least_seen=1, least_share=0, spans_a_kind=0, look_share=1, most_rested=0
)


class TriedSender:
    """
    How often requests with the same scopes are looked up in the span memory. Numbers of requests: `skips`
    will still be skipped, `next` will be skipped after the next failed lookup, and `skipped` were skipped
    since the last lookup.
    """

    __slots__ = ("is_known", "next", "skipped", "skips")

    def __init__(self, skips: int) -> None:
        self.skips, self.next, self.skipped = skips, 0, 0
        self.is_known = False  # True if the latest request had enough known spans


class SpanLookupPacer:
    """
    Decides which requests are looked up in the span memory.

    Requests with the same scopes are of one kind. If the memory does not know their spans, fewer and fewer of
    these requests are looked up. Unsuccessful lookups of all kinds together are limited to a fraction of the
    spans.
    """

    def __init__(self, pace: MemoryPace) -> None:
        self._pace = pace
        self._senders: dict[int, TriedSender] = {}
        self._free: float = pace.free_looks  # number of spans that may still be looked up without success
        self._refused = 0  # consecutive requests in which no lookup succeeded
        # number of next requests that skip the lookup of spans, and number of requests that have skipped it
        self._rests = self._rested = 0

    def skip_request_if_lookups_paused(self) -> bool:
        """
        Return whether the next request is not looked up in the span memory, whatever its scopes are. Counts
        it as skipped.
        """
        if not self._rests:
            return False
        self._rests -= 1
        self._rested += 1
        return True

    def note_request_read_by_rules(self) -> None:
        """
        Note that no span of a request was known to the span memory, so the rules read it. After many such
        requests in a row, some of the next ones are not looked up.
        """
        self._refused += 1
        self._rests = min(max(0, self._refused - _UNRESTED) // _RESTED, self._pace.most_rested)

    def take_represented_request_count(self) -> int:
        """
        Return the number of requests that this request represents: itself, and those that were not looked up
        in the span memory since the last call. Resets their number.
        """
        rested, self._rested = self._rested, 0
        return rested + 1

    def find_or_add_sender(self, scopes: Iterable[bytes]) -> TriedSender:
        key = hash(frozenset(scopes))
        found = self._senders.get(key)
        if found is None:
            if len(self._senders) >= MOST_SENDERS:
                remove_oldest_eighth(self._senders)
            found = self._senders[key] = TriedSender(min(1, self._pace.most_skipped))
        return found

    @property
    def has_large_failed_lookup_budget(self) -> bool:
        """
        Return True while so many spans may still be looked up in vain that no request has to be skipped.
        """
        return self._free > self._pace.free_looks / 2

    def decide_lookup_and_represented_requests(
        self, sender: TriedSender, span_count: int, represented_requests: int = 1
    ) -> int:
        """
        Return 0 if a request is not to be looked up in the span memory. Otherwise return the number of
        requests that it represents.

        `represented_requests` is the number of requests that were not looked up before, plus this request. If
        the result is not 0, call `note_lookup_result` afterwards.
        """
        pace = self._pace
        self._free = min(self._free + span_count * pace.look_share, pace.free_looks)
        if sender.skips or not (sender.is_known or self._free > 0):
            sender.skips = max(0, sender.skips - represented_requests)
            sender.skipped += represented_requests
            self.note_request_read_by_rules()
            return 0
        times, sender.skipped = sender.skipped + represented_requests, 0
        return times

    def note_lookup_result(
        self, sender: TriedSender, *, failed_span_count: int, is_hopeless: bool = False
    ) -> None:
        """
        Note the result of looking up a request's spans in the memory of kinds. `failed_span_count` is the
        number of spans looked up without success, or 0 if enough spans were known. `is_hopeless`: the memory
        will never know enough spans of such requests.
        """
        sender.is_known = not failed_span_count
        if sender.is_known:
            sender.next //= 2
            self._refused = 0
            return
        self.note_request_read_by_rules()
        self._free -= failed_span_count
        most = self._pace.most_skipped
        if is_hopeless or not self.has_large_failed_lookup_budget:
            sender.next = most if is_hopeless else min(2 * sender.next + 1, most)
        sender.skips = max(sender.next, min(1, most))


MOST_COUNTED: Final = 1024  # limit of kinds counted before a sample of them is stored
MOST_SAMPLES: Final = 64
LARGEST_SAMPLES: Final = 1024 * 1024
_LONGEST_NAME: Final = 256
_NO_VALUE: Final = b"\x12\x00"


class SpanSample(NamedTuple):
    """A sample span of a kind that waits to be learned."""

    span: Span
    encoded: bytes


@dataclass
class SpanKindSightings:
    """
    Counts for one kind of span: all spans that came before its first span (`came`), its spans that were seen,
    and the number of spans that these represent (`stands_for`), because some requests are not looked up.
    """

    came: int
    seen: int = 0
    stands_for: int = 0


@dataclass
class WaitingSamples:
    """
    Samples of spans from which to learn new kinds. Until a kind is frequent, its spans are only counted,
    because counting costs less than storing a sample.
    """

    pace: MemoryPace
    _counts: dict[int, SpanKindSightings] = field(default_factory=dict)
    _waiting: dict[int, SpanSample] = field(default_factory=dict)
    _bytes: int = 0
    _credit: float = 0
    _came: int = 0

    def __post_init__(self) -> None:
        self._credit = self.pace.first_kinds

    def __iter__(self) -> Iterator[SpanSample]:
        return iter(self._waiting.values())

    def __len__(self) -> int:
        return len(self._waiting)

    def add_spans_to_learning_budget(self, span_count: int) -> None:
        self._came += span_count
        if self.pace.spans_a_kind:
            most = max(self.pace.most_in_turn, self._credit)
            self._credit = min(self._credit + span_count / self.pace.spans_a_kind, most)

    def count_span_and_check_if_sample_wanted(self, kind_number: int, represented_spans: int) -> bool:
        """
        Count a span of a kind. Return whether the caller should pass a sample of the kind to `add_sample`.
        """
        counted = self._counts.pop(kind_number, None) or SpanKindSightings(self._came)
        counted.seen += 1
        counted.stands_for += represented_spans
        self._counts[kind_number] = counted
        if len(self._counts) > MOST_COUNTED:
            del self._counts[next(iter(self._counts))]
        came = self._came - counted.came
        is_often = counted.seen >= self.pace.least_seen and counted.stands_for >= came * self.pace.least_share
        return is_often and kind_number not in self._waiting

    def add_sample(self, kind: int, sample: SpanSample) -> None:
        """Store a sample of a kind. If there are too many, the oldest samples are removed."""
        if len(sample.encoded) > LARGEST_SAMPLES:
            return
        self._waiting[kind] = sample
        self._bytes += len(sample.encoded)
        while len(self._waiting) > MOST_SAMPLES or self._bytes > LARGEST_SAMPLES:
            self._remove_sample(next(iter(self._waiting)))

    def pop_most_frequent(self) -> SpanSample | None:
        """
        Remove and return the sample of the most frequent kind. Return None if no sample waits, or if too few
        spans arrived since the last kind was learned.
        """
        if not self._waiting or self._credit < 1:
            return None
        if self.pace.spans_a_kind:
            self._credit -= 1
        none = SpanKindSightings(0)
        kind = max(self._waiting, key=lambda kind: self._counts.get(kind, none).stands_for)
        self._counts.pop(kind, None)
        return self._remove_sample(kind)

    def clear(self) -> None:
        self._counts.clear()
        self._waiting.clear()
        self._bytes = 0

    def _remove_sample(self, kind: int) -> SpanSample:
        sample = self._waiting.pop(kind)
        self._bytes -= len(sample.encoded)
        return sample


def span_attribute_names(encoded_span: bytes) -> set[str]:
    pairs = wire.Span.FromString(encoded_span).attributes
    names = {str(wire.EncodedKeyValue.FromString(pair).key) for pair in pairs}
    return {name for name in names if len(name.encode()) <= _LONGEST_NAME}


def remove_content_from_span(encoded_span: bytes, is_unread_attribute: Callable[[bytes], bool]) -> bytes:
    """
    Return an encoded span without content, without attributes that no rule reads, and without the fields that
    learning a kind does not examine.
    """
    span = wire.Span.FromString(encoded_span)
    span.ClearField("trace_state")
    span.ClearField("links")
    span.ClearField("events")
    span.status.message = ""
    kept = []
    for pair in span.attributes:
        read = wire.EncodedKeyValue.FromString(pair)
        if is_unread_attribute(read.key.encode()):
            continue
        if RULES[read.key] in (DROPPED, REDUCED):
            read.ClearField("value")
            pair = read.SerializeToString() + _NO_VALUE
        kept.append(pair)
    del span.attributes[:]
    span.attributes.extend(kept)
    stripped: bytes = span.SerializeToString()
    return stripped
