"""
The amounts that one record adds to the totals, for data lakes and databases. Pure.

The rules are those of `spool.ledger.sums`; a test compares the sums of both modules.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from spool import money
from spool.ledger.sums import (
    HOUR_S,
    MAX_MONEY,
    MAX_TOKENS,
    measure_indexes_of_tokens,
    start_hour_or_arrival_hour,
)
from spool.record import CALL_UNIT, CURRENCY, NS, TOKEN_UNIT, Correction, Inference, Record, UsageMetric

_MICROSECOND_NS: Final = 1000
_HOUR_NS: Final = HOUR_S * NS
# results of `measure_indexes_of_tokens` (positions in a row of measures), in the order of CountedAmounts.tokens
_PLACES: Final = (1, 2, 3, 4, 5)

Tokens = tuple[int | None, int | None, int | None, int | None, int | None, int | None]


class CountedAmounts(NamedTuple):
    """
    The amounts that one record adds. `spend`: in units of `spool.money`, None if no cost counts.
    `tokens`: input, output, cache read, cache write, reasoning, one-hour cache write.
    """

    counted: bool
    calls: int
    spend: int | None
    tokens: Tokens


NOT_COUNTED: Final[Tokens] = (None, None, None, None, None, None)


def counted_time_us(record: Record, committed_at: float) -> int:
    """
    Return the time, in microseconds, at which the totals count a record: its start time if plausible, else
    the commit time.
    """
    start = record.start_time
    if (
        start is not None
        and start // _HOUR_NS * HOUR_S == start_hour_or_arrival_hour(start, committed_at)
        and start > 0
    ):
        return start // _MICROSECOND_NS
    return int(committed_at * 1_000_000)


def counted_amounts(record: Record) -> CountedAmounts:
    """Return the amounts that a record adds, none for a duplicate that is stored for reference."""
    if isinstance(record, Inference):
        verdict = _counted_amounts_of_call(record)
    elif isinstance(record, UsageMetric):
        verdict = _counted_amounts_of_metric(record)
    elif isinstance(record, Correction):
        verdict = _counted_amounts_of_correction(record)
    else:
        return CountedAmounts(False, 0, None, NOT_COUNTED)
    return CountedAmounts(False, 0, None, verdict.tokens) if record.shadow else verdict


def _counted_amounts_of_call(call: Inference) -> CountedAmounts:
    input_tokens, output_tokens = call.input_tokens, call.output_tokens
    reported = 0 if call.cost is None else money.text_to_units(call.cost)
    estimated = 0 if call.estimated_cost is None else money.text_to_units(call.estimated_cost)
    too_large = (
        (input_tokens or 0) > MAX_TOKENS
        or (output_tokens or 0) > MAX_TOKENS
        or abs(reported) + estimated > MAX_MONEY
    )
    tokens = (
        input_tokens,
        output_tokens,
        call.cache_read_tokens,
        call.cache_write_tokens,
        call.reasoning_tokens,
        call.cache_write_1h_tokens,
    )
    if too_large:
        return CountedAmounts(False, 0, None, tokens)
    if call.status == "cached":
        return CountedAmounts(True, 1, 0, tokens)
    spend = None
    if call.cost_source == "reported":
        spend = reported
    elif call.cost_source == "estimated":
        spend = estimated
    return CountedAmounts(True, 1, spend, tokens)


def _counted_amounts_of_metric(metric: UsageMetric) -> CountedAmounts:
    if metric.unit == CURRENCY:
        units = money.text_to_units(str(metric.value))
        is_counted = abs(units) <= MAX_MONEY
        return CountedAmounts(is_counted, 0, units if is_counted else None, NOT_COUNTED)
    if metric.unit == CALL_UNIT:
        amount = int(metric.value)
        return CountedAmounts(abs(amount) <= MAX_TOKENS, amount, None, NOT_COUNTED)
    if metric.unit != TOKEN_UNIT:  # an amount in another currency, which no sum of dollars includes
        from spool.currencies import MAX_CHARGE  # imported only if a record has an amount in another currency

        return CountedAmounts(abs(money.text_to_units(str(metric.value))) <= MAX_CHARGE, 0, None, NOT_COUNTED)
    amount = int(metric.value)
    places = measure_indexes_of_tokens(metric.name, metric.token_type)
    amounts = tuple(amount if index in places else None for index in _PLACES)
    tokens: Tokens = (amounts[0], amounts[1], amounts[2], amounts[3], amounts[4], None)
    return CountedAmounts(abs(amount) <= MAX_TOKENS, 0, None, tokens)


def _counted_amounts_of_correction(record: Correction) -> CountedAmounts:
    after, before = _counted_amounts_of_call(record.after), _counted_amounts_of_call(record.before)
    if record.after.shadow:
        counted = tuple(-(count or 0) for count in before.tokens)
        return CountedAmounts(before.counted, -int(before.counted), -(before.spend or 0), counted)  # type: ignore[arg-type]
    pairs = zip(after.tokens, before.tokens, strict=True)
    if not after.counted:
        return CountedAmounts(False, 0, None, tuple((now or 0) - (before or 0) for now, before in pairs))  # type: ignore[arg-type]
    # the call was too large to be counted before, so now all of it counts
    if not before.counted:
        return CountedAmounts(True, 1, after.spend or 0, after.tokens)
    spend = (after.spend or 0) - (before.spend or 0)
    differences = tuple((now or 0) - (before or 0) for now, before in pairs)
    return CountedAmounts(True, 0, spend, differences)  # type: ignore[arg-type]
