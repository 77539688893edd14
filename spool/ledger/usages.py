"""
Sums of groups for a comparison of two times. There may be tens of thousands of groups, so a group is a small
object, and each set of dimensions is read once.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import msgspec

from spool import money
from spool.cost_kinds import NONE
from spool.ledger.costs import (
    MOST_SPANS,
    check_and_simplify_query,
    has_no_billed_costs,
    periods_of_query,
    query_costs,
)
from spool.ledger.counting import read_state
from spool.ledger.days.spans import group_reads, plan_period_reads
from spool.ledger.dimensions import TOTAL, Group
from spool.ledger.ledger_rows import LedgerRows
from spool.ledger.queries import CostQuery, CostRow
from spool.record import CURRENCY
from spool.turns.question_limit import CHECK_EVERY, QuestionLimit

if TYPE_CHECKING:
    from spool.currencies import Rates

MEASURES = ("input_tokens", "output_tokens", "cache_read_tokens", "cache_write_tokens")


class GroupUsage(msgspec.Struct, kw_only=True, gc=False):
    """The sums of a group: fields of a CostRow, with money in units of `spool.money`."""

    cost: int = 0
    reported: int = 0
    calls: int = 0
    unpriced: int = 0
    input_tokens: int = 0
    output_tokens: int = 0
    cache_read_tokens: int = 0
    cache_write_tokens: int = 0
    cached_input_tokens: int = 0
    cached_output_tokens: int = 0


_FIELDS = GroupUsage.__struct_fields__
UsageByGroup = dict[Group, GroupUsage]
_Known = tuple[Group, str, str]  # group, status and cost source


def row_usage(row: CostRow) -> GroupUsage:
    values = {name: getattr(row, name) for name in _FIELDS}
    values |= {name: money.text_to_units(values[name]) for name in ("cost", "reported")}
    return GroupUsage(**values)


def usages_by_group(
    ledger_rows: LedgerRows,
    queries: Sequence[CostQuery],
    limit: QuestionLimit | None,
    rates: Rates | None = None,
) -> Iterator[UsageByGroup]:
    """
    Yield the sums by group of each query. The queries differ only in their times. Raises the errors of
    `query_costs`.
    """
    known: dict[int, _Known] = {}
    texts: dict[str | None, str | None] = {}  # each text is kept only once
    state = read_state(ledger_rows)
    for query in queries:
        query = check_and_simplify_query(ledger_rows, replace(query, granularity=TOTAL, measures=MEASURES))
        if (
            query.currency != CURRENCY
            or state["charged"]
            or query.unit_of_work
            or not has_no_billed_costs(query)
        ):
            yield {row.group: row_usage(row) for row in query_costs(ledger_rows, query, limit, rates)}
            continue
        by_group: UsageByGroup = {}
        for questions in group_reads(
            plan_period_reads(ledger_rows, query, list(periods_of_query(query)), state), MOST_SPANS
        ):
            sums = list(ledger_rows.sums_by_dimension_set([question.span for question in questions], query))
            unknown = [values[0] for values in sums if values[0] not in known]
            for number, status, cost_source, group in ledger_rows.groups_of_dimension_sets(unknown, query):
                known[number] = tuple(map(texts.setdefault, group, group)), status, cost_source
            for index, values in enumerate(sums):
                _add_usage(by_group, known[values[0]], values)
                if limit is not None and index % CHECK_EVERY == 0:
                    limit.check_rows(len(by_group))
                    limit.check_time()
        yield {group: usage for group, usage in by_group.items() if any(msgspec.structs.astuple(usage))}


def _add_usage(by_group: UsageByGroup, of: _Known, values: Sequence[int]) -> None:
    group, status, cost_source = of
    _, calls, given, made, read, written, reported, estimated = values
    usage = by_group.get(group)
    if usage is None:
        usage = by_group[group] = GroupUsage()
    usage.calls += calls
    usage.input_tokens += given
    usage.output_tokens += made
    usage.cache_read_tokens += read
    usage.cache_write_tokens += written
    if status == "cached":
        usage.cached_input_tokens += given
        usage.cached_output_tokens += made
        return
    usage.reported += reported
    if cost_source == "reported":
        usage.cost += reported
    elif cost_source == "estimated":
        usage.cost += estimated
    elif cost_source == NONE:
        usage.unpriced += calls
