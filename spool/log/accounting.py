"""
The accounting: counts of everything received and of what happened to it, which must add up exactly. Pure.

Each commit row stores the `SubmissionCounts` of its submissions. Running counters are sums over all
`SubmissionCounts`, and a recount adds up the rows again.
"""

from __future__ import annotations

import zlib
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from operator import attrgetter

import msgspec

from spool.disks import FSYNC
from spool.log.entries.codec import NO_RECORD
from spool.log.values import LogAccounting, Receipt

# Names of the terms of submissions, besides `ignored.REASON` and `rejected.REASON`.
RECEIVED = "received"
SPLIT = "split"
ACCEPTED = "accepted"
DUPLICATES = "duplicates"
PENDING = "pending"
AMENDED = "amended"  # records of this and the later terms are in a term above as well
AMENDED_LATE = "amended_late"
BRIDGED = "bridged"
BRIDGED_LATE = "bridged_late"
CONFLICT = "conflict"
UNIDENTIFIED = "unidentified"
LEFT_OUT = "left_out"  # counts left-out tags, not records, so no equation of record counts has it
# Terms that only metrics show.
UNCOMPARED = "uncompared"  # repeated reports whose record could not be read
METER_TOO_LARGE = "meter_too_large"
CORRECTED = "corrected"  # term: changes of a closed record
UNPLACED = "unplaced"  # calls that arrived before the spans between them and the agent's run
PLACED = "placed"  # term: unplaced calls that got their run
# These terms change only by retention and damage.
EXPIRED = "expired"  # deleted while the topic had no required route
RETIRED = "retired"  # deleted after every required route had finished
DAMAGED = "damaged"  # term: records stored but unreadable
KEPT = "kept"  # term: records in stored entries, computed when needed
BY_KEEPING = (EXPIRED, RETIRED, DAMAGED)

BY_SUBMISSION = (
    RECEIVED,
    SPLIT,
    ACCEPTED,
    DUPLICATES,
    PENDING,
    AMENDED,
    AMENDED_LATE,
    BRIDGED,
    BRIDGED_LATE,
    CONFLICT,
    UNIDENTIFIED,
    LEFT_OUT,
)
ROUTE_TERMS = (
    "before_start",
    "delivered",
    "refused_upstream",
    "queued",
    "dead",
    "discarded",
    "skipped",
    "damaged",
    "unknown",
    "shadow",
    "unmapped",
    "by_sync",
)


_by_submission = attrgetter(*BY_SUBMISSION)

TermSums = Mapping[tuple[str, str], int]  # numbers by topic and term


def is_counter_name(term: str) -> bool:
    return term in BY_SUBMISSION or term in BY_KEEPING or term.startswith(("ignored.", "rejected."))


class SubmissionCounts(msgspec.Struct, array_like=True, kw_only=True):
    """
    The counts of one submission by outcome. The encoding is positional: add new fields only at the end.
    `split`: further records from items with several. `left_out`: dropped tags. The fields `..._late`: changes
    of closed records.
    """

    topic: str
    received: int = 0
    split: int = 0
    accepted: int = 0
    duplicates: int = 0
    pending: int = 0
    amended: int = 0
    amended_late: int = 0
    conflict: int = 0
    unidentified: int = 0
    ignored: dict[str, int] = {}
    rejected: dict[str, int] = {}
    first: int = 0  # number of the first new record
    before: list[str] = []  # receipts of the request's earlier parts, only in the last part
    left_out: int = 0
    # records that turned out to be duplicates, and are now kept only for reference
    bridged: int = 0
    bridged_late: int = 0

    @property
    def known_and_new_count(self) -> int:
        return self.accepted + self.duplicates

    def build_receipt(self, receipt_id: str, durability: str = FSYNC) -> Receipt:
        return Receipt(
            id=receipt_id,
            records=self.accepted + self.duplicates,
            ignored=sum(self.ignored.values()),
            rejected=sum(self.rejected.values()),
            durability=durability,
        )

    @property
    def last_number(self) -> int:
        return self.first + self.accepted - 1

    def nonzero_counts(self) -> list[tuple[str, int]]:
        counts = [count for count in zip(BY_SUBMISSION, _by_submission(self), strict=True) if count[1]]
        for reason, n in self.ignored.items():
            if n:
                counts.append((f"ignored.{reason}", n))
        for reason, n in self.rejected.items():
            if n:
                counts.append((f"rejected.{reason}", n))
        return counts


_encoder = msgspec.msgpack.Encoder()
_decoder = msgspec.msgpack.Decoder(list[SubmissionCounts])


def pack_submission_counts(submissions: list[SubmissionCounts]) -> bytes:
    return _encoder.encode(submissions)


def unpack_submission_counts(packed: bytes) -> list[SubmissionCounts]:
    return _decoder.decode(packed)


def unpack_submission_counts_if_intact(packed: object, checksum: object) -> list[SubmissionCounts] | None:
    """Decode the accounting counts of a commit's submissions. Return None if the row is damaged."""
    if not isinstance(packed, bytes) or zlib.crc32(packed) != checksum:
        return None
    try:
        return unpack_submission_counts(packed)
    except NO_RECORD:
        return None


def sum_submission_counts(submissions: Iterable[SubmissionCounts]) -> Counter[tuple[str, str]]:
    sums: Counter[tuple[str, str]] = Counter()
    for terms in submissions:
        for name, n in terms.nonzero_counts():
            sums[terms.topic, name] += n
    return sums


def accounting_counts_by_topic(sums: TermSums) -> dict[str, dict[str, int]]:
    topics: dict[str, dict[str, int]] = {}
    for (topic, term), n in sorted(sums.items()):
        topics.setdefault(topic, {})[term] = n
    return topics


def check_accounting(
    counts_by_topic: Mapping[str, Mapping[str, int]],
    counts_by_route: Mapping[str, Mapping[str, int]],
    known_errors: Iterable[str] = (),
) -> LogAccounting:
    """
    Return the accounting with one sentence for each equation that does not hold, after the sentences in
    `known_errors`.
    """
    imbalances = [*known_errors]
    for topic, terms in counts_by_topic.items():
        imbalances += _topic_imbalances(topic, terms)
    for route, terms in counts_by_route.items():
        imbalances += _route_imbalances(route, terms, counts_by_topic.get(route_topic(route), {}))
    return LogAccounting(topics=counts_by_topic, routes=counts_by_route, imbalances=imbalances)


def check_recounted_accounting(
    running_counts: TermSums,
    recounted_counts: TermSums,
    counts_by_route: Mapping[str, Mapping[str, int]],
    known_errors: Iterable[str] = (),
) -> LogAccounting:
    # Commit rows do not show what retention deleted, so these terms are taken from the counters.
    by_keeping = {(topic, term): n for (topic, term), n in running_counts.items() if term in BY_KEEPING}
    imbalances = [*known_errors, *_counter_differences(running_counts, recounted_counts)]
    return check_accounting(
        accounting_counts_by_topic({**recounted_counts, **by_keeping}), counts_by_route, imbalances
    )


def counts_of_damaged_commits_and_uncounted_part(
    running_counts: TermSums, recounted_counts: TermSums, counts_by_route: Mapping[str, Mapping[str, int]]
) -> tuple[Counter[tuple[str, str]], Counter[tuple[str, str]]] | None:
    """
    Compute the accounting counts (terms) that damaged commit rows had added.

    Return all of them, and the part that is missing even in the running counters, computed from stored
    records. Return None if the accounting would still not balance, because then there is further damage.
    """
    known = {key: n for key, n in running_counts.items() if key[1] not in (*BY_KEEPING, KEPT)}
    lacking = Counter(
        {
            key: known.get(key, 0) - recounted_counts.get(key, 0)
            for key in {*known, *recounted_counts}
            if key[1] not in (*BY_KEEPING, KEPT)
        }
    )
    whole = Counter({**running_counts, **{key: n for key, n in recounted_counts.items() if key[1] == KEPT}})
    uncounted: Counter[tuple[str, str]] = Counter()
    for topic, terms in accounting_counts_by_topic(whole).items():
        accounted = terms.get(KEPT, 0) + terms.get(EXPIRED, 0) + terms.get(RETIRED, 0)
        surplus = accounted - terms.get(ACCEPTED, 0)
        if surplus > 0:
            uncounted.update({(topic, RECEIVED): surplus, (topic, ACCEPTED): surplus})
    if (
        any(n < 0 for n in lacking.values())
        or check_accounting(accounting_counts_by_topic(whole + uncounted), counts_by_route).imbalances
    ):
        return None
    return lacking + uncounted, uncounted


def _counter_differences(counters: TermSums, recounted_counts: TermSums) -> Iterator[str]:
    for topic, term in sorted({*counters, *recounted_counts}):
        counted = counters.get((topic, term), 0)
        recount_value = recounted_counts.get((topic, term), 0)
        if counted != recount_value and term not in (*BY_KEEPING, KEPT):
            yield f"{topic}: the counter of {term} says {counted}, the recount says {recount_value}"


def _topic_imbalances(topic: str, terms: Mapping[str, int]) -> Iterator[str]:
    came = terms.get(RECEIVED, 0) + terms.get(SPLIT, 0)
    went = terms.get(ACCEPTED, 0) + terms.get(DUPLICATES, 0) + terms.get(PENDING, 0)
    went += sum(n for term, n in terms.items() if term.startswith(("ignored.", "rejected.")))
    if came != went:
        terms_out = "accepted + duplicates + ignored + rejected + pending"
        yield f"{topic}: received + split = {came}, {terms_out} = {went}"
    accounted = terms.get(KEPT, 0) + terms.get(EXPIRED, 0) + terms.get(RETIRED, 0)
    if terms.get(ACCEPTED, 0) != accounted:
        yield f"{topic}: accepted = {terms.get(ACCEPTED, 0)}, kept + expired + retired = {accounted}"


def _route_imbalances(
    route: str, route_counts: Mapping[str, int], topic_counts: Mapping[str, int]
) -> Iterator[str]:
    went = sum(route_counts.get(term, 0) for term in ROUTE_TERMS)
    if topic_counts.get(ACCEPTED, 0) != went:
        yield f"{route}: accepted = {topic_counts.get(ACCEPTED, 0)}, {' + '.join(ROUTE_TERMS)} = {went}"


def route_topic(route: str) -> str:
    return route.rpartition("/")[2]
