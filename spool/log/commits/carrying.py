"""
Commit rows that retention takes away: their terms go on as sums.

What a damaged row counted is in no sum. So it is set aside before, as a recount does, where that can be told.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Iterable, Sequence

from spool.log import books

_log = logging.getLogger(__name__)


class DamagedCommits(Exception):
    """Among the commit rows that are to go is one that cannot be read."""


def log_set_aside(commits: Sequence[int]) -> None:
    _log.error(
        "%d commit rows are damaged and set aside: the counters keep what they counted, their receipts "
        "cannot be read",
        len(commits),
        extra={"action": "commits_set_aside", "first": commits[0], "last": commits[-1]},
    )


def carried_sums(rows: Iterable[tuple[int, int, bytes]], *, as_they_are: bool) -> Counter[tuple[str, str]]:
    """
    (topic, term) -> the sum over rows of id, checksum and packed terms.

    DamagedCommits if one is damaged; `as_they_are`: it is logged and adds nothing.
    """
    sums: Counter[tuple[str, str]] = Counter()
    for commit, checksum, packed in rows:
        terms = books.check_terms(packed, checksum)
        if terms is None and not as_they_are:
            raise DamagedCommits
        if terms is None:
            _log.error("a commit row is damaged", extra={"action": "commit_damaged", "commit": commit})
        else:
            sums.update(books.totals(terms))
    return sums
