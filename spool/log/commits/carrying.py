"""Commit rows that retention takes away: their terms go on as sums."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Iterable

from spool.log import books

_log = logging.getLogger(__name__)


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
