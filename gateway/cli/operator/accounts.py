"""The books as sentences: what was received, and what became of it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from spool.log.books import (
    ACCEPTED,
    DAMAGED,
    DUPLICATES,
    EXPIRED,
    KEPT,
    PENDING,
    RECEIVED,
    RETIRED,
    ROUTE_TERMS,
    SPLIT,
    topic_of,
)

_WORDS = {
    KEPT: "kept",
    RETIRED: "done and past retention",
    EXPIRED: "past retention",
    DUPLICATES: "repeats",
    PENDING: "waiting for their other half",
    "before_start": "older than the route",
    "refused_upstream": "refused upstream",
    "queued": "waiting",
    "dead": "dead letters",
    "unknown": "unconfirmed",
    "shadow": "shadows",
    "unmapped": "without a stream or path",
    "by_sync": "sent as states",
    "handed_over": "handed over",
}
_KEEPING = (KEPT, RETIRED, EXPIRED)
_REASONS = ("ignored.", "rejected.")


def accounts(
    topics: Mapping[str, Mapping[str, int]], routes: Mapping[str, Mapping[str, int]]
) -> Iterator[str]:
    """A line for each topic and each route: a sum and its parts; parts of zero are left out."""
    for topic, terms in topics.items():
        came = terms.get(RECEIVED, 0) + terms.get(SPLIT, 0)
        split = f" (with {terms[SPLIT]:,} more that items held)" if terms.get(SPLIT) else ""
        reasons = {name: n for name, n in terms.items() if name.startswith(_REASONS)}
        parts = {name: terms.get(name, 0) for name in (*_KEEPING, DUPLICATES, PENDING)} | reasons
        damaged = f"; {terms[DAMAGED]:,} of what is kept cannot be read" if terms.get(DAMAGED) else ""
        yield f"{topic}: received {came:,}{split} = {_sum(parts.items())}{damaged}"
    for route, terms in routes.items():
        whole = topics.get(topic_of(route), {}).get(ACCEPTED, 0)
        yield f"{route}: accepted {whole:,} = {_sum((name, terms.get(name, 0)) for name in ROUTE_TERMS)}"


def _sum(parts: Iterable[tuple[str, int]]) -> str:
    return " + ".join(f"{_word(name)} {n:,}" for name, n in parts if n) or "0"


def _word(name: str) -> str:
    kind, _, reason = name.partition(".")
    return f"{kind} ({reason.replace('_', ' ')})" if reason else _WORDS.get(name, name.replace("_", " "))
