"""
Calls that two siblings of a trace report: the SDK's span, and a span of another scope directly below the same
span. Pure.

Parallel calls may be equal. As many pairs of reports as possible are formed, so the number of calls does not
depend on the order of the reports.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from spool.log.planning.nested_reports import has_same_counts_and_model, is_one_within_other
from spool.record import Inference

MOST_BESIDE: Final = 64  # limit of equal reports under one parent; if there are more, none is paired


def can_be_one_call(one: Inference, other: Inference) -> bool:
    """
    Return whether two siblings may be one call: one lies within the other, with equal models and counts.
    """
    times = [(each.start_time, each.end_time) for each in (one, other)]
    if one.status != other.status or None in (*times[0], *times[1]):
        return False
    if one.status == "ok" and not (one.input_tokens or one.output_tokens):
        return False
    if not (has_same_counts_and_model(one, other) or has_same_counts_and_model(other, one)):
        return False
    first, second = [(start or 0, end or 0) for start, end in times]
    return is_one_within_other(first, second)


def pair_reports(
    candidates_by_report: Mapping[int, Sequence[int]], pairs: Mapping[int, int]
) -> dict[int, int]:
    """
    Return as many pairs as possible, each report in one, extending `pairs`.
    `candidates_by_report`: for each report, the reports of the other side that it matches.
    The result is by report of the other side.
    """
    by_other = dict(pairs)
    paired = set(by_other.values())
    for report in candidates_by_report:
        if report not in paired:
            _find_partner(report, candidates_by_report, by_other, set())
    return by_other


def _find_partner(
    report: int, candidates_by_report: Mapping[int, Sequence[int]], by_other: dict[int, int], tried: set[int]
) -> bool:
    for other in candidates_by_report.get(report, ()):
        if other in tried:
            continue
        tried.add(other)
        if other not in by_other or _find_partner(by_other[other], candidates_by_report, by_other, tried):
            by_other[other] = report
            return True
    return False
