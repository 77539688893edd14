"""Commit rows that retention takes away: their terms go on as sums."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Iterable, Sequence

from spool.log import books

_log = logging.getLogger(__name__)


def log_set_aside(commits: Sequence[int]) -> None:
    _log.error(
        "%d commit rows are damaged and set aside: the counters keep what they counted, their receipts cannot be read",
        len(commits),
        extra={"action": "commits_set_aside", "first": commits[0], "last": commits[-1]},
    )


def carried_sums(rows: Iterable[tuple[int, int, bytes]]) -> Counter[tuple[str, str]]:
    """(topic, term) -> the sum over rows of id, checksum and packed terms. A damaged one is logged and adds nothing."""
    sums: Counter[tuple[str, str]] = Counter()
    for commit, checksum, packed in rows:
        terms = books.checked_terms(packed, checksum)
        if terms is None:
            _log.error("a commit row is damaged", extra={"action": "commit_damaged", "commit": commit})
        else:
            sums.update(books.totals(terms))
    return sums
