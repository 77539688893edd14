"""
Conflicts: the number of calls whose reports disagree, by pair of sources, with the sums that each source
reported.
"""

from __future__ import annotations

from collections.abc import Mapping
from decimal import Decimal, InvalidOperation
from typing import Any

import msgspec

from spool.record import Inference, decimal_text
from spool.turns.threads import prepare_types_for_msgspec


class ReportedSum(msgspec.Struct, array_like=True):
    """The tokens and cost that one source reported, added up over calls. None: no value was reported."""

    input_tokens: int | None = None
    output_tokens: int | None = None
    cost: str | None = None

    def plus(self, other: ReportedSum) -> ReportedSum:
        return ReportedSum(
            _add_counts(self.input_tokens, other.input_tokens),
            _add_counts(self.output_tokens, other.output_tokens),
            other.cost if self.cost is None else decimal_text(Decimal(self.cost) + Decimal(other.cost or 0)),
        )


class Conflict(msgspec.Struct, array_like=True):
    """
    The calls for which a pair of sources reported different values, and what each source reported in all.
    `request_id`: request of the newest such call, as an example.
    """

    count: int = 0
    first: ReportedSum = msgspec.field(default_factory=ReportedSum)
    second: ReportedSum = msgspec.field(default_factory=ReportedSum)
    request_id: str | None = None

    def plus(self, other: Conflict) -> Conflict:
        return Conflict(
            self.count + other.count,
            self.first.plus(other.first),
            self.second.plus(other.second),
            other.request_id or self.request_id,
        )


prepare_types_for_msgspec(Conflict)


Pair = tuple[str, str, str]  # topic, source of the first report, source of the later report
MAX_PAIRS = 1000  # limit of pairs, because a sending Tollhouse may name any source
OTHER = "other"


def pair_for_excess_conflicts(source_pair: Pair) -> Pair:
    """Return the pair that collects the conflicts of all pairs beyond MAX_PAIRS."""
    return source_pair[0], OTHER, OTHER


class Conflicts(dict[Pair, Conflict]):
    """
    The conflicts by pair of sources. A new pair is always added: if there are too many, the pair with the
    fewest conflicts is merged into "other".
    """

    def add(self, topic: str, first_record: Inference, later_record: Inference) -> None:
        conflict = Conflict(
            1,
            _reported_sum(first_record),
            _reported_sum(later_record),
            first_record.request_id or later_record.request_id,
        )
        self.merge({(topic, first_record.source, later_record.source): conflict})

    def merge(self, others: Mapping[Pair, Conflict]) -> None:
        for pair, conflict in others.items():
            if pair not in self and sum(map(_is_pair_of_named_sources, self)) >= MAX_PAIRS:
                rarest = min(
                    filter(_is_pair_of_named_sources, self),
                    key=lambda sources: (self[sources].count, sources),
                )
                self._add_conflict(pair_for_excess_conflicts(rarest), self.pop(rarest))
            self._add_conflict(pair, conflict)

    def _add_conflict(self, pair: Pair, conflict: Conflict) -> None:
        self[pair] = self[pair].plus(conflict) if pair in self else conflict

    def json_rows(self) -> list[dict[str, Any]]:
        sorted_rows = sorted(self.items(), key=lambda item: (-item[1].count, item[0]))
        return [
            {
                "topic": topic,
                "first_source": first,
                "second_source": second,
                "count": conflict.count,
                "first": msgspec.to_builtins(_tokens_and_cost_by_name(conflict.first)),
                "second": msgspec.to_builtins(_tokens_and_cost_by_name(conflict.second)),
                "request_id": conflict.request_id,
            }
            for (topic, first, second), conflict in sorted_rows
        ]


def _is_pair_of_named_sources(source_pair: Pair) -> bool:
    return source_pair != pair_for_excess_conflicts(source_pair)


def _reported_sum(record: Inference) -> ReportedSum:
    return ReportedSum(record.input_tokens, record.output_tokens, _finite_cost_text(record.cost))


def _add_counts(first_count: int | None, second_count: int | None) -> int | None:
    return first_count if second_count is None else second_count + (first_count or 0)


def _finite_cost_text(text: str | None) -> str | None:
    """
    Return the cost, or None unless it is a finite decimal, because one bad report must never stop a commit.
    """
    if text is None:
        return None
    try:
        cost = Decimal(text)
    except InvalidOperation:
        return None
    return decimal_text(cost) if cost.is_finite() else None


def _tokens_and_cost_by_name(reported_sum: ReportedSum) -> dict[str, Any]:
    return {
        "input_tokens": reported_sum.input_tokens,
        "output_tokens": reported_sum.output_tokens,
        "cost": reported_sum.cost,
    }
