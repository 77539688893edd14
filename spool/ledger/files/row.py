"""
The row of a record in the files of facts, in the columns of `Fact`. Pure.

A call is one row with `calls` 1, and the increase of a counter one with the calls that it adds, mostly 0. Unknown
values are None. A duplicate that is stored for reference has no row.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, NamedTuple

from spool import money
from spool.cost_kinds import ESTIMATED, REPORTED, call_cost_source
from spool.ledger.counting import cut_and_cleaned_text
from spool.ledger.sums import (
    MAX_MONEY,
    MAX_TOKENS,
    MS,
    OTHER,
    measure_indexes_of_tokens,
    metric_status_and_source,
)
from spool.ledger.verdicts import counted_time_us
from spool.ledger.work import MAX_LEVELS, NONE, WorkUnitHasher
from spool.meters import quantity_in_millionths
from spool.processing import processing_mode
from spool.record import CALL_UNIT, CURRENCY, TOKEN_UNIT, Correction, Inference, Record, UsageMetric

CALL, COUNTER = "call", "counter"
_MICROSECONDS: Final = 1_000_000
_NANO_PLACES: Final = 9
_REST: Final[int] = 10 ** (money.DECIMALS - _NANO_PLACES)  # units of spool.money in a billionth of a dollar
_MEMO: Final = 50_000

Amount = tuple[int | None, int | None]  # billionths of a dollar, and the rest in 10 ** -27 dollars
NO_AMOUNT: Final[Amount] = (None, None)


class Fact(NamedTuple):
    """
    The columns that every row has. `cost_*` is the amount that counts; the other amounts are stated only where they
    are not that amount. `session`, `run` and `parent` are digests, and `above` the runs above `parent`, nearest first.
    `priced` is the number of the recalculation that made the estimate, 0 for the record's own.
    """

    number: int
    start: int
    kind: str
    calls: int
    source: str | None
    provider: str | None
    model: str | None
    request_model: str | None
    team: str | None
    user: str | None
    device: str | None
    api_key: str | None
    status: str | None
    cost_source: str | None
    mode: str | None
    region: str | None
    sender: str | None
    input_tokens: int | None = None
    output_tokens: int | None = None
    cache_read_tokens: int | None = None
    cache_write_tokens: int | None = None
    reasoning_tokens: int | None = None
    cache_write_1h_tokens: int | None = None
    took_ms: int | None = None
    cost_nano: int | None = None
    cost_rest: int | None = None
    reported_nano: int | None = None
    reported_rest: int | None = None
    estimated_nano: int | None = None
    estimated_rest: int | None = None
    session: int | None = None
    run: int | None = None
    parent: int | None = None
    above: list[int | None] | None = None
    priced: int = 0


class Row(NamedTuple):
    """A fact with what has a column for each name. `meters` are millionths, `charges` amounts by currency."""

    fact: Fact
    tags: Mapping[str, str | None]
    meters: Mapping[str, int]
    charges: Mapping[str, Amount]


class RowChange(NamedTuple):
    """
    What a correction makes of the row with a number: another row, or none if another call counts it. `seq` is the
    number of the correction.
    """

    number: int
    seq: int
    row: Row | None


class Absurd(ValueError):
    """A record with a count or an amount beyond any that a call can have."""


class RowMaker:
    """
    Makes the rows of records. It remembers texts and digests of units, so that what recurs is cleaned and hashed once.
    """

    def __init__(self, hasher: WorkUnitHasher) -> None:
        self._hasher = hasher
        self._texts = _CountedTexts()
        self._units: dict[
            tuple[str | None, str | None, str | None], tuple[int | None, int | None, int | None]
        ] = {}

    def row_of(self, record: Record, number: int, arrived: float) -> Row | RowChange | None:
        """Return what a record adds: a row, a change of an earlier row, or None. Raises Absurd."""
        if record.shadow:
            return None
        if isinstance(record, Correction) and record.corrects_number is not None:
            corrected, after = record.corrects_number, record.after
            row = None if after.shadow else self._row_of_call(after, corrected, arrived)
            return RowChange(corrected, number, row)
        if isinstance(record, Inference):
            return self._row_of_call(record, number, arrived)
        if isinstance(record, UsageMetric):
            return self._row_of_counter(record, number, arrived)
        return None

    def _row_of_call(self, call: Inference, number: int, arrived: float) -> Row:
        reported, estimated = amount_of_text(call.cost), amount_of_text(call.estimated_cost)
        if (
            (call.input_tokens or 0) > MAX_TOKENS
            or (call.output_tokens or 0) > MAX_TOKENS
            or abs(units_of_amount(reported)) + units_of_amount(estimated) > MAX_MONEY
        ):
            raise Absurd
        cost_source = call_cost_source(call)
        cost: Amount = NO_AMOUNT
        if cost_source == REPORTED:
            cost, reported = reported, NO_AMOUNT
        elif cost_source == ESTIMATED:
            cost, estimated = estimated, NO_AMOUNT
        start, end, tags, texts = call.start_time, call.end_time, call.tags, self._texts
        session = run = parent = None
        if call.session is not None or call.run is not None:
            session, run, parent = self._digests(call.session, call.run, call.parent_run)
        fact = Fact(
            number,
            counted_time_us(call, arrived) // _MICROSECONDS,
            CALL,
            1,
            texts[call.source],
            texts[call.provider],
            texts[call.response_model or call.request_model],
            texts[call.request_model],
            texts[call.team],
            texts[call.user],
            texts[call.device],
            texts[call.api_key],
            call.status,
            cost_source,
            (processing_mode(tags) or None) if tags else None,
            texts[call.region],
            texts[call.sender_key],
            call.input_tokens,
            call.output_tokens,
            call.cache_read_tokens,
            call.cache_write_tokens,
            call.reasoning_tokens,
            call.cache_write_1h_tokens,
            (end - start) // MS if start is not None and end is not None and end >= start else None,
            *cost,
            *reported,
            *estimated,
            session,
            run,
            parent,
            self._runs_above(call.session, call.ancestors) if call.ancestors else None,
        )
        meters = {name: quantity_in_millionths(quantity) for name, quantity in call.meters.items()}
        counted_tags = {name: texts[value] for name, value in tags.items()} if tags else tags
        return Row(fact, counted_tags, meters, _charges(call.charges))

    def _row_of_counter(self, metric: UsageMetric, number: int, arrived: float) -> Row:
        status, cost_source = metric_status_and_source(metric)
        is_foreign = metric.unit not in (CURRENCY, TOKEN_UNIT, CALL_UNIT)
        paid = amount_of_text(str(metric.value)) if metric.unit == CURRENCY else NO_AMOUNT
        count = 0 if is_foreign or metric.unit == CURRENCY else int(metric.value)
        if abs(units_of_amount(paid)) > MAX_MONEY or abs(count) > MAX_TOKENS:
            raise Absurd
        has_tokens, texts = metric.unit == TOKEN_UNIT, self._texts
        places = measure_indexes_of_tokens(metric.name, metric.token_type) if has_tokens else ()
        tokens = [count if place in places else None for place in range(1, 6)]
        fact = Fact(
            number,
            counted_time_us(metric, arrived) // _MICROSECONDS,
            COUNTER,
            count if metric.unit == CALL_UNIT else 0,
            texts[metric.source],
            None,
            texts[metric.model],
            None,
            texts[metric.team],
            texts[metric.user],
            texts[metric.device],
            texts[metric.api_key],
            texts[status],
            cost_source,
            None,
            None,
            texts[metric.sender_key],
            input_tokens=tokens[0],
            output_tokens=tokens[1],
            cache_read_tokens=tokens[2],
            cache_write_tokens=tokens[3],
            reasoning_tokens=tokens[4],
            cost_nano=paid[0],
            cost_rest=paid[1],
            session=self._digests(metric.session, None, None)[0],
        )
        meters = (
            {metric.meter: quantity_in_millionths(count)} if has_tokens and metric.meter is not None else {}
        )
        charges = _charges({metric.unit: str(metric.value)}) if is_foreign else {}
        return Row(fact, {name: texts[value] for name, value in metric.tags.items()}, meters, charges)

    def _digests(
        self, session: str | None, run: str | None, parent: str | None
    ) -> tuple[int | None, int | None, int | None]:
        known = self._units
        digests = known.get((session, run, parent))
        if digests is None:
            if len(known) >= _MEMO:
                known.clear()
            units = self._hasher.hash_units(session, run, parent, {})
            of_session, of_run, *_, of_parent = [None if digest == NONE else digest for digest in units]
            digests = known[session, run, parent] = of_session, of_run, of_parent
        return digests

    def _runs_above(self, session: str | None, ancestors: str) -> list[int | None]:
        return [self._digests(session, run, None)[1] for run in ancestors.split()[:MAX_LEVELS]]


def amount_of_text(text: str | None) -> Amount:
    """Return decimal text as two integers, both with its sign. Digits after the 27th decimal are cut off."""
    if text is None:
        return NO_AMOUNT
    whole, _, fraction = text.partition(".")
    if len(fraction) <= _NANO_PLACES:
        return int(whole + fraction.ljust(_NANO_PLACES, "0")), 0
    rest = int(fraction[_NANO_PLACES : money.DECIMALS].ljust(money.DECIMALS - _NANO_PLACES, "0"))
    return int(whole + fraction[:_NANO_PLACES]), -rest if text[0] == "-" else rest


def units_of_amount(amount: Amount) -> int:
    """Return the units of spool.money that an amount, or a sum of amounts, represents."""
    nano, rest = amount
    return (nano or 0) * _REST + (rest or 0)


class _CountedTexts(dict[str | None, str | None]):
    """
    Texts as the totals store them: at most MAX_TEXT characters, and None for `(other)`, which stands for many.
    """

    def __missing__(self, text: str | None) -> str | None:
        if len(self) >= _MEMO:
            self.clear()
        counted = None if not text or text == OTHER else cut_and_cleaned_text(text)
        self[text] = counted
        return counted


def _charges(charges: Mapping[str, str]) -> Mapping[str, Amount]:
    if not charges:
        return {}
    from spool.currencies import MAX_CHARGE  # imported only if a record has an amount in another currency

    amounts = {name: amount_of_text(amount) for name, amount in charges.items()}
    if any(abs(units_of_amount(amount)) > MAX_CHARGE for amount in amounts.values()):
        raise Absurd
    return amounts
