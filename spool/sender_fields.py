"""Counts of the fields that reported calls contain, by source and sender version. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping

import msgspec

DAYS = 14  # stored days, including today
MAX_SOURCES = 64
MAX_VERSIONS = 8  # the newest versions of a source, which have their own counts
MAX_GROUPS = 8  # the providers, and the operations, that have their own counts in a version and day
OTHER = "(other)"
_FORMER = "former"  # name of the document that lists older versions
ONE, SEVERAL = 1, 2  # `senders` stores at most two, so the count is "one" or "several"


class FieldCounts(msgspec.Struct, kw_only=True, omit_defaults=True):
    """
    The calls of a source and sender version on one UTC day.

    `fields`: number of calls by field that they state. `billed`: successful calls of an operation that is
    billed by tokens. `uncounted`: how many of these state no counts or meters. `senders`: hashes of at most
    two keys or devices. `first`: first arrival of the version, on any day. `misdated`: number of items with a start
    time that shows a wrong clock, by year and name of the key or device, such as `1970 app`. A year ahead of the
    server's clock has a plus sign. These items are counted without the version.
    """

    first: float
    last: float
    calls: int = 0
    billed: int = 0
    uncounted: int = 0
    fields: dict[str, int] = {}
    providers: dict[str, int] = {}
    operations: dict[str, int] = {}
    senders: list[str] = []
    misdated: dict[str, int] = {}

    def add_counts(self, other: FieldCounts) -> None:
        self.first, self.last = min(self.first, other.first), max(self.last, other.last)
        self.calls += other.calls
        self.billed += other.billed
        self.uncounted += other.uncounted
        self.fields = Counter(self.fields) + Counter(other.fields)
        self.providers = _add_counts(self.providers, other.providers)
        self.operations = _add_counts(self.operations, other.operations)
        self.misdated = _add_counts(self.misdated, other.misdated)
        self.senders = list(dict.fromkeys([*self.senders, *other.senders]))[:SEVERAL]


def _add_counts(one: Mapping[str, int], other: Mapping[str, int]) -> dict[str, int]:
    sums = Counter(one)
    for name, n in other.items():
        is_known = name in sums or len(sums) < MAX_GROUPS
        sums[name if is_known else OTHER] += n
    return dict(sums)


def sum_counts(counts: Iterable[FieldCounts]) -> FieldCounts:
    first, *others = counts
    total = msgspec.structs.replace(first)
    for other in others:
        total.add_counts(other)
    return total


NO_VERSION = ""  # version of senders that state none
Sender = tuple[str, str]  # source, and version of the sender
SenderDay = dict[Sender, FieldCounts]
