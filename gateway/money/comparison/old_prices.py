"""The cost that tokens would have had at the prices of another time, by kind of token and model."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from fractions import Fraction
from operator import itemgetter
from typing import Any, NamedTuple

from msgspec.structs import replace

from gateway.intake.prices import PriceBook
from gateway.intake.rate_cards.card import CardUnreadable
from gateway.intake.rates import Rate
from gateway.money.comparison.split import MIXES, CostsAtOldPrices
from gateway.money.comparison.wording import MILLION, format_dollars
from spool import money
from spool.ledger.queries import CostQuery, CostRow
from spool.ledger.sums import input_size_and_is_output_known
from spool.ledger.usages import MEASURES, GroupUsage, UsageByGroup
from spool.processing import STANDARD
from spool.record import NS, decimal_text


class Priced(NamedTuple):
    """The dimensions on which the price of a call depends, the most important first."""

    provider: str | None
    model: str | None
    size: str | None = None
    mode: str | None = None
    region: str | None = None
    cost_source: str | None = None


KINDS = Priced._fields  # dimensions added to a query's groups, because prices depend on them
# amounts of a row that are weighted
_WEIGHED = (*MEASURES, "cached_input_tokens", "cached_output_tokens", "calls")
# The first cause in MIXES compares prices only by the first two fields of a price kind, provider and model.
_LEAST_DEPTH = 2
_SMALL = -1  # stands for inputs that are too small for the price for large inputs

RateHistory = Sequence[tuple[int, Rate]]  # input tokens above which a rate applies, and the rate
AnyUsage = CostRow | GroupUsage
# kind of calls with one price: provider, model, size, mode, region, and whether the cost is reported
_PriceKind = tuple[Any, ...]


class SpentRow(NamedTuple):
    """
    The spend of calls with the same provider, model and other price dimensions. The cost is in units of
    money.
    """

    of: Priced
    sums: AnyUsage
    cost: int


@dataclass(slots=True)
class _CallSum:
    """
    A sum of calls: cost in units of money, tokens, and weight. The weight is the cost at list prices, or None
    if a price is unknown.
    """

    cost: int = 0
    tokens: int = 0
    weight: int | None = 0

    def add_row(self, row: SpentRow, rate: Rate | None) -> None:
        weight = None if rate is None else _approximate_cost_at_rate(row.sums, rate)
        self.cost += row.cost
        self.tokens += _uncached_tokens(row.sums)
        self.weight = None if self.weight is None or weight is None else self.weight + weight

    def cost_at_prices_of(self, old: _CallSum) -> int:
        """
        Return the cost of these tokens if each dollar of list price had cost as much as in `old`. If a list
        price is unknown, use the cost per token instead. If `old` has no tokens, return the current cost.
        """
        before, now = old.weight, self.weight
        if before is None or now is None or before <= 0:
            before, now = old.tokens, self.tokens
        return old.cost * now // before if before > 0 else self.cost


async def load_price_list(load: Callable[[], PriceBook]) -> PriceBook | None:
    """Load the price list in a thread. Return None if its file cannot be read."""
    try:
        return await asyncio.to_thread(load)
    except CardUnreadable:
        return None


@dataclass(frozen=True, slots=True, kw_only=True)
class OldPrices:
    """
    Computes the costs of later tokens at the prices of an earlier time, and the reasons for the differences.

    The list prices of the later time weight the kinds of tokens of a model. The old price is the old cost per
    weighted token. So a changed mix of tokens does not count as a price change, even if the paid prices
    differ from list prices. Calls without earlier calls of their kind have no old price, so their current
    cost is used.
    """

    book: PriceBook | None
    # begins of the earlier and the later period, in nanoseconds
    before: int
    now: int
    source: str = ""  # the only source of the query, if it has one

    @classmethod
    def of(cls, price_book: PriceBook | None, baseline: CostQuery, query: CostQuery) -> OldPrices:
        before, now = (int(side.since.timestamp()) * NS for side in (baseline, query))
        sources = query.include.get("source", ())
        return cls(book=price_book, before=before, now=now, source=sources[0] if len(sources) == 1 else "")

    def costs_at_old_prices(self, before: Sequence[SpentRow], now: Sequence[SpentRow]) -> CostsAtOldPrices:
        """
        Return the cost of the tokens of `now` at the prices of `before`, one amount for each cause in MIXES.
        The first amount groups prices by provider and model, and each further amount by one more dimension.
        """
        costs: list[int] = []
        reasons: dict[str, str] = {}
        for depth, name in enumerate(MIXES, start=_LEAST_DEPTH):
            old, new = (self._call_sums_by_price_kind(rows, depth, self.now) for rows in (before, now))
            costs.append(sum(sums.cost_at_prices_of(old.get(kind, _CallSum())) for kind, sums in new.items()))
            if name in _SHARES:
                reasons[name] = _share_change_sentence(_SHARES[name], old, new)
        listed, reported = self._amounts_by_price_change(old, new, now)
        sums = [sum(changed.values()) for changed in (listed, reported)]
        for name, changed, amount in zip(("prices", "reported_rates"), (listed, reported), sums, strict=True):
            if changed:
                reasons[name] = max(changed, key=lambda text: changed[text] * (1 if amount > 0 else -1))
        return CostsAtOldPrices(costs=tuple(costs), prices=sums[0], reported_rates=sums[1], reasons=reasons)

    def _call_sums_by_price_kind(
        self, rows: Sequence[SpentRow], kind_depth: int, price_time_ns: int
    ) -> dict[_PriceKind, _CallSum]:
        sums: dict[_PriceKind, _CallSum] = {}
        for row in rows:
            kind = self._price_kind(row.of)[:kind_depth]
            sums.setdefault(kind, _CallSum()).add_row(row, self._rate_at(kind, price_time_ns))
        return sums

    def _price_kind(self, of: Priced) -> _PriceKind:
        """
        Return the values that decide the price. The size is the number of tokens from which a list price for
        large inputs applies, or -1.
        """
        beyond, _ = input_size_and_is_output_known(int(of.size or 0))
        tiers = self.book.rates_at(of.provider, of.model, self.now) if self.book and beyond > 0 else ()
        size = next((above for above, _ in tiers if beyond >= above), _SMALL)
        return of.provider, of.model, size, of.mode or STANDARD, of.region, of.cost_source == "reported"

    def _rate_at(self, kind: _PriceKind, time: int) -> Rate | None:
        """
        Return the list price of a kind at a time (ns). A kind without a size or tier gets the price of small
        inputs in the standard tier. Return None if the price is unknown.
        """
        provider, model, size, mode = (
            (*kind, _SMALL, STANDARD)[:4] if len(kind) == 2 else (*kind, STANDARD)[:4]
        )
        if self.book is None or model is None:
            return None
        quote = self.book.find_quote(provider, model, mode, time)
        return next((rate for above, rate in quote.tiers if above == size), quote.rate)

    def _amounts_by_price_change(
        self, old: Mapping[_PriceKind, _CallSum], new: Mapping[_PriceKind, _CallSum], rows: Sequence[SpentRow]
    ) -> tuple[dict[str, int], dict[str, int]]:
        """
        Return the amounts of changed prices by their reasons: those of the price list, and those that only a
        source reports. The list price is the reason if its change explains at least half of the amount.
        """
        of_list: dict[str, int] = {}
        of_source: dict[str, int] = {}
        at_list = self._call_sums_by_price_kind(rows, _LEAST_DEPTH + len(MIXES) - 1, self.before)
        for kind, sums in new.items():
            if kind not in old:
                continue
            rest = sums.cost - sums.cost_at_prices_of(old[kind])
            listed = (sums.weight or 0) - (at_list[kind].weight or 0)
            if rest * listed > 0 and 2 * abs(listed) >= abs(rest):
                text = self._describe_price_change(kind)
                of_list[text] = of_list.get(text, 0) + rest
            elif kind[-1] and kind[1] and rest and sums.tokens > 0:
                text = self._describe_reported_rate(
                    kind, sums, rest, is_list_unchanged=sums.weight is not None and not listed
                )
                of_source[text] = of_source.get(text, 0) + rest
        return of_list, of_source

    def _describe_price_change(self, kind: _PriceKind) -> str:
        old, new = (self._rate_at(kind, time) for time in (self.before, self.now))
        name = next(
            (
                name
                for name in ("input", "output")
                if _list_price_text(old, name) != _list_price_text(new, name)
            ),
            "cache_read",
        )
        return f"{kind[1]} {name.replace('_', ' ')} {_list_price_text(new, name)}, before {_list_price_text(old, name)}"

    def _describe_reported_rate(
        self, kind: _PriceKind, sums: _CallSum, cost_change: int, *, is_list_unchanged: bool
    ) -> str:
        now, before = (
            format_dollars(cost * MILLION // sums.tokens) for cost in (sums.cost, sums.cost - cost_change)
        )
        earlier = sums.cost - cost_change
        percent = round(abs(Decimal(cost_change)) * 100 / earlier) if earlier > 0 else 0
        share = f"{percent or 'under 1'} % " if earlier > 0 else ""
        text = (
            f"{self.source or 'its source'} reports {share}{'more' if cost_change > 0 else 'less'} for the same tokens "
            f"of {kind[1]} ({now} a million, before {before})"
        )
        return f"{text}; the list price did not change" if is_list_unchanged else text


def _share_change_sentence(
    share: _Share, old: Mapping[_PriceKind, _CallSum], new: Mapping[_PriceKind, _CallSum]
) -> str:
    shares: list[dict[Any, Fraction]] = []
    for side in (new, old):
        whole = max(1, sum(sums.tokens for sums in side.values()))
        of_value: dict[Any, Fraction] = defaultdict(Fraction)
        for kind, sums in side.items():
            of_value[share.value(kind)] += Fraction(sums.tokens, whole)
        shares.append(of_value)
    values = sorted(value for value in {*shares[0], *shares[1]} if value)
    if not values:
        return ""
    value = max(values, key=lambda name: abs(shares[0][name] - shares[1][name]))
    now, before = (of_value[value] for of_value in shares)
    places = next(
        (places for places in range(3) if round(100 * now, places) != round(100 * before, places)), 2
    )
    words = share.words.format(value)
    return f"{float(100 * now):.{places}f} % of its tokens {words}, before {float(100 * before):.{places}f} %"


class _Share(NamedTuple):
    """
    A property of calls, such as the tier. If the share of tokens with the property changed, `words` describes
    it as a reason.
    """

    value: Callable[[_PriceKind], Any]
    words: str


_SHARES: Mapping[str, _Share] = {
    "large_inputs": _Share(lambda kind: kind[2] != _SMALL, "were in large inputs"),
    "other_tiers": _Share(itemgetter(3), "were in the tier {}"),
    "other_regions": _Share(itemgetter(4), "were in the region {}"),
    "reported_costs": _Share(itemgetter(5), "had a reported cost"),
}


def _list_price_text(rate: Rate | None, kind: str) -> str:
    price = None if rate is None else getattr(rate, kind)
    return (
        "without a price"
        if rate is None or price is None
        else f"${decimal_text(Decimal(price).scaleb(6 - rate.digits))}"
    )


def cache_saving(provider: str | None, model: str | None, row: CostRow, prices: PriceBook) -> int | None:
    """
    Return the units of money that a provider's prompt cache saved, or None if a price is unknown or nothing
    was cached.

    The list prices of the row's day are used, for calls of the row's average size. The result is negative if
    cache reads saved less than cache writes cost.
    """
    read = row.cache_read_tokens
    written = row.cache_write_tokens
    long = row.cache_write_1h_tokens
    if not read and not written:
        return None
    rate = _rate_for_size(row, prices.rates_at(provider, model, int(row.start.timestamp()) * NS))
    if rate is None:
        return None
    plain = rate.input
    cheap = rate.cache_read
    dear = rate.cache_write if written else plain
    dearest = rate.cache_write_1h if long else dear
    if plain is None or cheap is None or dear is None or dearest is None:
        return None
    surcharge = (dear - plain) * (written - long) + (dearest - plain) * long
    return money.scaled_amount_to_units((plain - cheap) * read - surcharge, rate.digits)


def _uncached_tokens(row: AnyUsage) -> int:
    return row.input_tokens + row.output_tokens - row.cached_input_tokens - row.cached_output_tokens


def _rate_for_size(row: AnyUsage, rates: RateHistory) -> Rate | None:
    size = _mean_input_size(row)
    return next((rate for beyond, rate in rates if size > beyond), None)


def _mean_input_size(row: AnyUsage) -> int:
    return max(1, row.input_tokens // max(1, row.calls))


def _approximate_cost_at_rate(row: AnyUsage, rate: Rate) -> int | None:
    price, output, read, written = rate[:4]
    if price is None or output is None or read is None or written is None:
        return None
    cached = row.cache_read_tokens + row.cache_write_tokens
    fresh = max(0, row.input_tokens - row.cached_input_tokens - cached)
    of_input = price * fresh + read * row.cache_read_tokens + written * row.cache_write_tokens
    of_output = output * (row.output_tokens - row.cached_output_tokens)
    of_requests = money.scaled_amount_to_units(
        rate.per_request * (fresh + cached), rate.digits
    ) // _mean_input_size(row)
    return money.scaled_amount_to_units(of_input + of_output, rate.digits) + of_requests


def spent_rows_by_group(
    usages: UsageByGroup, dimensions: Sequence[str], group_width: int
) -> dict[tuple[str | None, ...], list[SpentRow]]:
    groups: dict[tuple[str | None, ...], list[SpentRow]] = {}
    indexes = [dimensions.index(name) for name in KINDS if name in dimensions]
    for group, usage in usages.items():
        row = SpentRow(Priced(*(group[index] for index in indexes)), usage, usage.cost)
        groups.setdefault(group[:group_width], []).append(row)
    return groups


def merge_rows_by_kind(parts: Iterable[Sequence[SpentRow]]) -> list[SpentRow]:
    return [_add_rows(rows[0], rows[1:]) for rows in _rows_by_kind(parts).values()]


def subtract_rows(rows: Sequence[SpentRow], parts: Iterable[Sequence[SpentRow]]) -> list[SpentRow]:
    parts_by_kind = _rows_by_kind(parts)
    return [_add_rows(row, parts_by_kind.get(row.of, ()), sign=-1) for row in rows]


def _rows_by_kind(parts: Iterable[Sequence[SpentRow]]) -> dict[Priced, list[SpentRow]]:
    rows_by_kind: dict[Priced, list[SpentRow]] = {}
    for part in parts:
        for row in part:
            rows_by_kind.setdefault(row.of, []).append(row)
    return rows_by_kind


def _add_rows(first: SpentRow, other_rows: Sequence[SpentRow], sign: int = 1) -> SpentRow:
    sums = {
        name: getattr(first.sums, name) + sign * sum([getattr(row.sums, name) for row in other_rows])
        for name in _WEIGHED
    }
    cost = first.cost + sign * sum([row.cost for row in other_rows])
    return SpentRow(first.of, replace(first.sums, **sums), cost)
