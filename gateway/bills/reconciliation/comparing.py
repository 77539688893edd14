"""
The comparison of a provider's bills with the ledger by day, and the causes of differences. Only final days
are compared. Pure.

It also suggests settings to the operator: prices from the bill, and owners of provider keys.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from decimal import Decimal
from fractions import Fraction
from operator import attrgetter

from gateway.bills.reconciliation.causes.list import find_claims, name_alternative_causes_in_evidence
from gateway.bills.reconciliation.causes.other_lines import smallest_decimal_unit_of_amounts
from gateway.bills.reconciliation.cells import BilledCountedDifference, split_difference
from gateway.bills.reconciliation.claims import OF_PRICES, BillComparison, CauseClaim, UnexplainedDifference
from gateway.bills.reconciliation.contract_prices import (
    CONTRACT_PRICE,
    BilledPrices,
    claim_contract_price,
    find_billed_prices,
)
from gateway.bills.reconciliation.limits import COARSEST, OWNER_DAYS
from gateway.bills.reconciliation.matching import (
    Owner,
    ProviderKeyMatching,
    choose_source_by_day,
    classify_bill_rows,
    common_comparison_levels,
    rename_models_to_families,
)
from gateway.bills.reconciliation.overrides import BilledPriceOverride, suggest_overrides
from gateway.bills.reconciliation.owed import OwedLine, lines_owed_by_provider
from gateway.bills.reconciliation.restating import (
    EXCHANGE_RATE,
    BillConversion,
    FixedExchangeRate,
    claim_exchange_rate,
    claim_keys_swapped_in_bill,
    claim_late_rows,
    convert_at_fixed_rate,
    find_fixed_exchange_rate,
    find_keys_swapped_in_bill,
    find_market_rates,
    find_rows_billed_on_later_day,
    last_decimal_unit_in_currency,
    use_billed_names_of_swapped_keys,
)
from gateway.bills.reconciliation.set_aside import set_aside_unbilled_failed_calls
from gateway.bills.reconciliation.sides import (
    DAY,
    KEY,
    MODEL,
    PARTS,
    STANDARD,
    VOLUME,
    BilledMoney,
    BilledTokens,
    Commitment,
    ComparisonCell,
    ContractSum,
    CountedUse,
    Prices,
    Row,
    are_series_alike,
    count_calls_by_cost_doubt,
    replace_api_key,
)
from spool.statements import StatementRow

OPEN, AGREES, EXPLAINED, DIFFERS, UNKNOWN = "open", "agrees", "explained", "differs", "no statement"
FINAL = (AGREES, EXPLAINED, DIFFERS)  # states of days that were compared, and not left open

Naming = Callable[[ComparisonCell], str]


@dataclass(frozen=True, slots=True, kw_only=True)
class DayTolerance:
    """
    The differences of a day that are allowed, as percentages of the billed amounts. A cent, plus the rounding
    of the bill, is always allowed.
    """

    money: Decimal = Decimal("0.5")
    tokens: Decimal = Decimal(1)

    def is_line_within(self, line: ComparisonLine, claimed: int) -> bool:
        """
        Return whether the line's difference is within the tolerance. A cent is always tolerated, except in
        causes about tokens or prices: `claimed` is their largest amount.
        """
        share = abs(line.billed) * self.money / 100
        difference = abs(line.difference - line.causes.get("rounding", 0))
        is_within = difference <= max(COARSEST, share) and claimed <= share
        return is_within and self.are_tokens_within(line)

    def is_unexplained_part_within(self, line: ComparisonLine, unexplained_tokens: int) -> bool:
        """
        Return whether the unexplained amount of a line, and its unexplained `unexplained_tokens`, are within the
        tolerance.
        """
        share = abs(line.billed) * self.money / 100
        is_whole = unexplained_tokens <= line.billed_tokens * self.tokens / 100
        return is_whole and abs(line.unexplained) <= max(COARSEST, share)

    def are_tokens_within(self, line: ComparisonLine) -> bool:
        return abs(line.billed_tokens - line.counted_tokens) <= line.billed_tokens * self.tokens / 100


@dataclass(slots=True, kw_only=True)
class ComparisonLine:
    """
    Sums of a day, a model, a key, or everything. `billed` is exactly `counted` plus the four amounts in
    `parts`. It is also `counted` plus the amounts in `causes` plus `unexplained`.

    `captured_tokens` are the tokens that both the bill and the ledger have.
    """

    name: str = ""
    billed: int = 0
    counted: int = 0
    parts: dict[str, int] = field(default_factory=lambda: dict.fromkeys(PARTS, 0))
    billed_tokens: int = 0
    counted_tokens: int = 0
    captured_tokens: int = 0
    captured_money: int = 0
    billed_calls: int | None = None
    counted_calls: int = 0
    causes: dict[str, int] = field(default_factory=lambda: defaultdict(int))
    state: str = AGREES
    # filter of the cost API that selects our calls of this line
    where: Mapping[str, Sequence[str]] = field(default_factory=dict)

    @property
    def difference(self) -> int:
        return self.billed - self.counted

    @property
    def explained(self) -> int:
        return sum(self.causes.values())

    @property
    def unexplained(self) -> int:
        return self.difference - self.explained


@dataclass(frozen=True, slots=True, kw_only=True)
class Reconciliation:
    """
    The result of comparing one provider's bills with the ledger. Open days and days without a bill are in no
    sum.
    """

    provider: str
    total: ComparisonLine
    finest: str
    has_money: bool
    sources: Sequence[str]
    set_aside: Sequence[str]  # bill sources that are ignored, because other sources report the same days
    foreign: Mapping[str, int]  # number of bill rows in each currency except dollars
    days: Sequence[ComparisonLine] = ()
    models: Sequence[ComparisonLine] = ()
    keys: Sequence[ComparisonLine] = ()
    claims: Sequence[CauseClaim] = ()
    only_billed: Mapping[str, Sequence[str]] = field(default_factory=dict)
    only_counted: Mapping[str, Sequence[str]] = field(default_factory=dict)
    renamed: Sequence[tuple[str, str]] = ()
    # model names as the ledger writes them, by model family
    spelled: Mapping[str, Sequence[str]] = field(default_factory=dict)
    regions: frozenset[str] = frozenset()  # regions that our calls report
    # causes that are likely but not proven, so their amounts stay unexplained
    hints: Sequence[CauseClaim] = ()
    accounts: Sequence[str] = ()  # accounts of the compared bills
    owed: Sequence[OwedLine] = ()  # discounts that the provider owes
    overrides: Sequence[BilledPriceOverride] = ()
    owners: Sequence[KeysWithSameTokens] = ()
    # billed amounts by name of the bill, "" without a name
    bills: Mapping[str, int] = field(default_factory=dict)
    error: int = 0  # sum of the unexplained amounts by day and model, without their signs
    # number of calls whose cost may be wrong, by reason
    doubtful_calls: Mapping[str, int] = field(default_factory=dict)

    @property
    def has_final_day(self) -> bool:
        return any(line.state in FINAL for line in self.days)

    def cost_filter(self, claim: CauseClaim) -> dict[str, list[str]]:
        """Return the costs filter for our calls that a claim is about, or an empty one if no filter fits."""
        names = sorted({name for model in claim.models for name in self.spelled.get(model, ())})
        regions = sorted(self.regions.intersection(claim.regions))
        return {name: values for name, values in (("model", names), ("region", regions)) if values}

    def lines_of_level(self, level: str) -> Sequence[ComparisonLine]:
        return {DAY: self.days, MODEL: self.models, KEY: self.keys}[level]


@dataclass(frozen=True, kw_only=True)
class ComparisonInput:
    """
    The bills and the counted usage of one provider. `days` begin at midnight UTC. Days from `open_from` on
    are not over.

    `covered` are the days that each source's bills cover, including days without rows. `unsettled` are those
    that may still change. `hours` are counted tokens by hour, and `failed_hours` those of them that failed
    calls used.
    """

    provider: str
    days: Sequence[int]
    open_from: int
    rows: Sequence[StatementRow]
    counted: Sequence[CountedUse]
    prices: Prices
    covered: Mapping[str, frozenset[int]] = field(default_factory=dict)
    unsettled: Mapping[str, frozenset[int]] = field(default_factory=dict)
    hours: Mapping[int, int] = field(default_factory=dict)
    failed_hours: Mapping[int, int] = field(default_factory=dict)
    owners: Sequence[Owner] = ()
    tolerance: DayTolerance = field(default_factory=DayTolerance)
    conversion: BillConversion | None = None  # the conversion, if one currency was converted to dollars
    commitments: Sequence[Commitment] = ()  # capacity that contracts state
    sums: Sequence[ContractSum] = ()  # amounts of contracts for the whole month
    listed: Prices | None = None  # prices without contracts, if there are contracts
    awaiting: Collection[int] = ()  # last days of bills whose next bill is not imported yet


def compare_bill_with_ledger(comparison_input: ComparisonInput, *, has_causes: bool = True) -> Reconciliation:
    """
    Compare a provider's bills with the ledger, and find the causes.

    Without `has_causes`, no check runs and the result has only the total and facts about the bills.
    """
    bill_rows = classify_bill_rows(
        row for row in comparison_input.rows if row.provider == comparison_input.provider
    )
    of_tokens = choose_source_by_day(bill_rows.tokens, comparison_input.covered)
    of_money = choose_source_by_day(bill_rows.money, comparison_input.covered)
    # a source without rows states that nothing was used
    for source in sorted(comparison_input.covered.keys() - bill_rows.sources):
        of_tokens = dict.fromkeys(comparison_input.covered[source], source) | of_tokens
    states = _comparison_state_by_day(
        comparison_input, of_tokens, of_money, bill_rows.unsettled, bill_rows.wide
    )
    compared = {day for day, state in states.items() if state not in (OPEN, UNKNOWN)}
    tokens = [row for row in bill_rows.tokens if of_tokens.get(row.day) == row.source]
    tokens = _rows_on_days(tokens, bill_rows.wide, compared)
    amounts = [row for row in bill_rows.money if of_money.get(row.day) == row.source]
    amounts = _rows_on_days(amounts, bill_rows.wide, compared)
    bills = Counter[str]()
    for row in amounts:
        bills[row.bill] += row.amount
    counted = _rows_on_days(comparison_input.counted, bill_rows.wide, compared)
    names = [use.model for use in counted]

    def standard_prices_on_first_and_last_day(name: str) -> tuple[frozenset[tuple[str, int]], ...]:
        edges = {min(compared, default=0), max(compared, default=0)}
        return tuple(
            frozenset(comparison_input.prices(name, STANDARD, day, 0).items()) for day in sorted(edges)
        )

    tokens, amounts, counted, priced_as, renamed = rename_models_to_families(
        tokens, amounts, counted, standard_prices_on_first_and_last_day
    )
    spelled: dict[str, set[str]] = defaultdict(set)
    for name, use in zip(names, counted, strict=True):
        spelled[use.model].add(name)
    owners = [owner for owner in comparison_input.owners if owner.provider == comparison_input.provider]
    keys = ProviderKeyMatching(
        owners, {*(row.key for row in tokens), *(row.key for row in amounts)}, {row.key for row in counted}
    )
    own_rows, billed_rows = counted, tokens
    tokens = [replace_api_key(row, keys.comparable_key_of_billed_row(row)) for row in tokens]
    amounts = [replace_api_key(row, keys.comparable_key_of_billed_row(row)) for row in amounts]
    counted = [replace_api_key(row, keys.comparable_key_of_use(row)) for row in counted]

    def prices_of_family(model: str, tier: str, day: int, context_tokens: int) -> Mapping[str, int]:
        return comparison_input.prices(priced_as(model), tier, day, context_tokens)

    def list_prices_of_family(model: str, tier: str, day: int, context_tokens: int) -> Mapping[str, int]:
        return (
            {}
            if comparison_input.listed is None
            else comparison_input.listed(priced_as(model), tier, day, context_tokens)
        )

    levels = common_comparison_levels(tokens, amounts, counted, are_keys_matched=keys.has_matches)
    metered = compared & set(of_tokens)
    of_all = counted
    set_aside = set_aside_unbilled_failed_calls(tokens, counted, levels, metered)
    counted = [*set_aside.counted]
    own_rows = [use for use, is_out in zip(own_rows, set_aside.left_out, strict=True) if not is_out]
    key_tokens, own_keys = _billed_and_counted_tokens_of_unmatched_keys(billed_rows, own_rows, keys)

    def split_at_prices(
        uses: Sequence[CountedUse], at: Prices, money: Sequence[BilledMoney]
    ) -> BilledCountedDifference:
        return split_difference(
            tokens,
            money,
            uses,
            prices=at,
            comparable_dimensions=levels,
            days_with_token_counts=metered,
            lacks_billed_money=not of_money,
        )

    if not has_causes:
        return Reconciliation(
            provider=comparison_input.provider,
            total=_line_over_all_cells(split_at_prices(counted, prices_of_family, amounts), ()),
            finest=levels.compared_dimensions_text,
            has_money=bool(of_money),
            sources=sorted({*of_tokens.values(), *of_money.values()}),
            set_aside=sorted(bill_rows.sources - {*of_tokens.values(), *of_money.values()}),
            foreign=bill_rows.foreign,
            bills=bills,
        )
    conversion = comparison_input.conversion
    precision = _last_decimal_unit_by_day(amounts, of_money, conversion)
    at_contracts, billed_at = counted, BilledPrices(levels=levels)
    at_prices: Prices = prices_of_family
    of_contracts: BilledCountedDifference | None = None
    market_rates: Sequence[FixedExchangeRate] = ()
    if comparison_input.listed is not None:
        all_listed = replace(billed_at, every=Fraction(1)).reprice_uses(counted)
        of_contracts, without = (
            split_at_prices(counted, prices_of_family, amounts),
            split_at_prices(all_listed, list_prices_of_family, amounts),
        )
        if conversion is not None:
            market_rates = find_market_rates((of_contracts, without), conversion, precision)
        if conversion is not None and len(market_rates) == 1:
            in_dollars = convert_at_fixed_rate(amounts, conversion, *market_rates)
            billed_at = find_billed_prices(
                split_at_prices(counted, prices_of_family, in_dollars),
                split_at_prices(all_listed, list_prices_of_family, in_dollars),
                precision,
            )
        else:
            billed_at = find_billed_prices(of_contracts, without, precision)
    if billed_at.has_factors:
        at_prices = billed_at.billed_prices(prices_of_family, list_prices_of_family)
        counted = [
            *set_aside_unbilled_failed_calls(tokens, billed_at.reprice_uses(of_all), levels, metered).counted
        ]
    own = counted
    exchanged = find_keys_swapped_in_bill(tokens, counted) if levels.key else {}
    of_days = counted = use_billed_names_of_swapped_keys(counted, exchanged)
    late = find_rows_billed_on_later_day(tokens, amounts, counted, levels, metered)
    counted = late.move_to_billed_days(counted, levels)
    converted = amounts
    is_restated = billed_at.has_factors or exchanged or late.posted
    split_sides = (
        split_at_prices(counted, at_prices, amounts) if is_restated or of_contracts is None else of_contracts
    )
    fixed = None if conversion is None else find_fixed_exchange_rate(split_sides, conversion, precision)
    if conversion is not None and fixed is not None:
        amounts = convert_at_fixed_rate(converted, conversion, fixed)
        split_sides = split_at_prices(counted, at_prices, amounts)
    case = BillComparison(
        split=split_sides,
        remainder=UnexplainedDifference(split_sides),
        key_tokens=key_tokens,
        own_keys=own_keys,
        hours=_subtract_hours(comparison_input.hours, comparison_input.failed_hours)
        if set_aside.are_all
        else comparison_input.hours,
        days=tuple(sorted(compared)),
        precision=precision,
        are_failed_known=set_aside.is_exact,
        uses=of_days,
        commitments=[
            replace(
                each, models={name for name, own in spelled.items() if any(map(each.term.is_for_model, own))}
            )
            for each in comparison_input.commitments
        ],
        # omitted unless all days are compared, because these amounts cover the whole period
        sums=comparison_input.sums if states.keys() <= compared else (),
        late_days={*late.posted.values()},
        awaiting=comparison_input.awaiting,
    )
    found = [billed_at.doubt_if_contract_may_be_cause(claim) for claim in find_claims(case)]
    if late.posted:
        found.append(claim_late_rows(split_sides, of_days, late))
    if exchanged:
        found.append(claim_keys_swapped_in_bill(split_sides, own, exchanged))
    if billed_at.has_factors:
        moved = tuple(claim.cause for claim in found if billed_at.is_token_move_with_doubtful_price(claim))
        found += [
            replace(claim, beside=moved)
            for claim in claim_contract_price(split_sides, at_contracts, billed_at)
        ]
    if conversion is not None and (fixed is None or not fixed.is_of_market):
        # while the exchange rate is unknown, it could explain any difference in prices
        found = [
            replace(claim, beside=(*claim.beside, EXCHANGE_RATE)) if claim.cause in OF_PRICES else claim
            for claim in found
        ]
    if conversion is not None and fixed is not None:
        claim = claim_exchange_rate(split_sides, converted, amounts, conversion, fixed)
        # the prices with and without contracts lead to different market rates, so a contract is another
        # possible cause
        other_causes = (CONTRACT_PRICE,) if len(market_rates) > 1 else ()
        found.append(replace(claim, beside=(*claim.beside, *other_causes)))
    found = sorted(
        map(name_alternative_causes_in_evidence, found),
        key=lambda claim: (-claim.moved, -abs(claim.tokens), claim.cause),
    )
    claimed = [claim for claim in found if not claim.is_hint]
    days = _lines_by_name(split_sides, claimed, lambda cell: str(cell.day))
    models, by_key = (_lines_by_name(split_sides, claimed, attrgetter(name)) for name in (MODEL, KEY))
    for line in models.values():
        line.where = {"model": sorted(spelled[line.name])} if line.name and spelled.get(line.name) else {}
    for line in by_key.values():
        line.where = keys.cost_filter(line.name)
    largest = _largest_claimed_amount_by_day(found)
    tokens_left = _unexplained_tokens(split_sides, claimed)
    doubtful = {day for claim in found if claim.is_hint and claim.is_of_tokens for day in claim.days}
    days_apart = (
        _days_with_key_tokens_outside_tolerance(split_sides, comparison_input.tolerance) if levels.key else ()
    )
    return Reconciliation(
        provider=comparison_input.provider,
        total=_line_over_all_cells(split_sides, claimed),
        days=[
            _set_line_state(
                days.get(str(day), ComparisonLine(name=str(day))),
                state,
                comparison_input.tolerance,
                largest[day],
                tokens_left[day],
                are_keys_apart=day in days_apart,
                has_doubtful_claims=day in doubtful,
            )
            for day, state in sorted(states.items())
        ],
        models=sorted(models.values(), key=_difference_rank),
        keys=sorted(by_key.values(), key=_difference_rank) if split_sides.levels.key else (),
        claims=claimed,
        hints=[claim for claim in found if claim.is_hint],
        finest=split_sides.levels.compared_dimensions_text,
        has_money=bool(of_money),
        sources=sorted({*of_tokens.values(), *of_money.values()}),
        set_aside=sorted(bill_rows.sources - {*of_tokens.values(), *of_money.values()}),
        foreign=bill_rows.foreign,
        bills=bills,
        only_billed=_names_by_dimension_on_one_side(split_sides, is_on_bill=True),
        only_counted=_names_by_dimension_on_one_side(split_sides, is_on_bill=False),
        renamed=renamed,
        spelled={name: sorted(names) for name, names in spelled.items() if name},
        regions=frozenset(row.region for row in counted if row.region),
        accounts=sorted({*(row.account for row in tokens), *(row.account for row in amounts)} - {""}),
        owed=lines_owed_by_provider(claimed, split_sides),
        overrides=suggest_overrides(comparison_input.provider, case, claimed, at_prices, spelled),
        owners=keys_with_same_tokens(comparison_input.provider, key_tokens, own_keys),
        error=sum(
            abs(line.unexplained)
            for line in _lines_by_name(split_sides, claimed, lambda cell: f"{cell.day} {cell.model}").values()
        ),
        doubtful_calls=count_calls_by_cost_doubt(of_all),
    )


def _last_decimal_unit_by_day(
    amounts: Sequence[BilledMoney], money_source_by_day: Mapping[int, str], conversion: BillConversion | None
) -> Mapping[int, int]:
    rows_by_source: dict[str, list[BilledMoney]] = defaultdict(list)
    for row in amounts:
        rows_by_source[row.source].append(row)
    digits = {
        source: last_decimal_unit_in_currency(rows, conversion)
        if conversion is not None and source in conversion.sources
        else smallest_decimal_unit_of_amounts(row.amount for row in rows)
        for source, rows in rows_by_source.items()
    }
    return {day: digits[source] for day, source in money_source_by_day.items() if source in digits}


def _rows_on_days(
    rows: Sequence[Row], bucket_start_by_day: Mapping[int, int], days: Collection[int]
) -> list[Row]:
    """Return the rows of these days. Rows within a bucket of several days count on its first day."""
    placed = (
        [replace(row, day=bucket_start_by_day.get(row.day, row.day)) for row in rows]
        if bucket_start_by_day
        else rows
    )
    return [row for row in placed if row.day in days]


def _subtract_hours(
    tokens_by_hour: Mapping[int, int], subtracted_tokens_by_hour: Mapping[int, int]
) -> Mapping[int, int]:
    return {hour: count - subtracted_tokens_by_hour.get(hour, 0) for hour, count in tokens_by_hour.items()}


def merge_lines(lines: Sequence[ComparisonLine], *, name: str) -> ComparisonLine:
    """Sum lines of the comparison into one, without their states and cost filters."""
    total = ComparisonLine(name=name)
    for line in lines:
        total.billed += line.billed
        total.counted += line.counted
        total.billed_tokens += line.billed_tokens
        total.counted_tokens += line.counted_tokens
        total.captured_tokens += line.captured_tokens
        total.captured_money += line.captured_money
        total.counted_calls += line.counted_calls
        if line.billed_calls is not None:
            total.billed_calls = (total.billed_calls or 0) + line.billed_calls
        for part, amount in line.parts.items():
            total.parts[part] += amount
        for cause, amount in line.causes.items():
            total.causes[cause] += amount
    return total


def _comparison_state_by_day(
    comparison_input: ComparisonInput,
    token_source_by_day: Mapping[int, str],
    money_source_by_day: Mapping[int, str],
    unsettled: Mapping[str, frozenset[int]],
    bucket_start_by_day: Mapping[int, int],
) -> dict[int, str]:
    """
    Return the state of each compared day before amounts are compared: AGREES, OPEN, or UNKNOWN without a
    bill.

    `unsettled` are days that may still change, by source.
    `bucket_start_by_day` maps the days of a longer billing period to its first day, which alone has a state.
    """
    last: dict[int, int] = defaultdict(int)
    for day in comparison_input.days:
        shown_day = bucket_start_by_day.get(day, day)
        last[shown_day] = max(last[shown_day], day)
    states = {}
    for day, end in last.items():
        day_sources = [
            sources[day] for sources in (token_source_by_day, money_source_by_day) if day in sources
        ]
        is_open = any(
            day in days.get(source, ())
            for source in day_sources
            for days in (unsettled, comparison_input.unsettled)
        )
        if end >= comparison_input.open_from or is_open:
            states[day] = OPEN
        elif not day_sources or (money_source_by_day and day not in money_source_by_day):
            states[day] = UNKNOWN
        else:
            states[day] = AGREES
    return states


def _billed_and_counted_tokens_of_unmatched_keys(
    tokens: Sequence[BilledTokens], counted_uses: Sequence[CountedUse], keys: ProviderKeyMatching
) -> tuple[dict[str, dict[tuple[int, str], int]], dict[str, dict[int, int]]]:
    theirs: dict[str, dict[tuple[int, str], int]] = defaultdict(lambda: defaultdict(int))
    ours: dict[str, dict[int, int]] = defaultdict(lambda: defaultdict(int))
    for row in tokens:
        if row.key in keys.unmatched_billed_keys and row.meter is not None:
            theirs[row.key][row.day, row.model] += row.quantity
    for use in counted_uses:
        if use.key and use.key not in keys.matched:
            ours[use.key][use.day] += sum(use.tokens.values())
    return theirs, ours


def _lines_by_name(
    bill_difference: BilledCountedDifference, claimed: Sequence[CauseClaim], name_of: Naming
) -> dict[str, ComparisonLine]:
    """
    Sum cells into lines by the name that `name_of` returns. The billed amount of a line is its counted amount
    plus its parts of the difference.
    """
    lines: dict[str, ComparisonLine] = {}

    def find_or_add_line(cell: ComparisonCell) -> ComparisonLine:
        name = name_of(cell)
        return lines.setdefault(name, ComparisonLine(name=name))

    for cell, sums in bill_difference.counted.items():
        cell_line = find_or_add_line(cell)
        cell_line.counted += sums.cost
        cell_line.counted_tokens += sum(sums.tokens.values())
        cell_line.counted_calls += sums.calls
    for (part, cell, _), amount in bill_difference.parts.items():
        find_or_add_line(cell).parts[part] += amount
    for cell, billed_sums in bill_difference.billed.items():
        cell_line = find_or_add_line(cell)
        if billed_sums.calls is not None:
            cell_line.billed_calls = (cell_line.billed_calls or 0) + billed_sums.calls
    all_cells = {*bill_difference.billed, *bill_difference.counted}
    for cell in all_cells:
        ours = sum(bill_difference.counted[cell].tokens.values()) if cell in bill_difference.counted else 0
        theirs = sum(bill_difference.billed[cell].tokens.values()) if cell in bill_difference.billed else 0
        if cell.day not in bill_difference.metered:
            theirs = ours
        cell_line = find_or_add_line(cell)
        cell_line.billed_tokens += theirs
        cell_line.captured_tokens += min(ours, theirs)
    for claim in claimed:
        for cell, amount in claim.by_cell.items():
            find_or_add_line(cell).causes[claim.cause] += amount
    for cell_line in lines.values():
        cell_line.billed = cell_line.counted + sum(cell_line.parts.values())
        cell_line.captured_money = max(0, min(cell_line.billed, cell_line.counted))
    return lines


def _line_over_all_cells(
    bill_difference: BilledCountedDifference, claimed: Sequence[CauseClaim]
) -> ComparisonLine:
    return _lines_by_name(bill_difference, claimed, lambda _: "").get("", ComparisonLine())


def _largest_claimed_amount_by_day(claimed: Sequence[CauseClaim]) -> dict[int, int]:
    largest: dict[int, int] = defaultdict(int)
    for claim in claimed:
        if claim.cause == "rounding" or not claim.is_of_tokens:
            continue
        of_day: dict[int, int] = defaultdict(int)
        for cell, amount in claim.by_cell.items():
            of_day[cell.day] += amount
        for day, amount in of_day.items():
            largest[day] = max(largest[day], abs(amount))
    return largest


def _unexplained_tokens(
    bill_difference: BilledCountedDifference, claimed: Sequence[CauseClaim]
) -> Counter[int]:
    """Return by day the tokens that only one side has and no claim explains."""
    left = Counter(bill_difference.extra)
    for claim in claimed:
        for (part, cell, meter), portion in claim.parts.items():
            left[cell, meter] -= portion.tokens if part == VOLUME else 0
    by_day = Counter[int]()
    for (cell, _), tokens in left.items():
        by_day[cell.day] += abs(tokens)
    return by_day


def _days_with_key_tokens_outside_tolerance(
    bill_difference: BilledCountedDifference, tolerance: DayTolerance
) -> set[int]:
    by_key = _lines_by_name(bill_difference, (), lambda cell: f"{cell.day} {cell.key}")
    return {int(name.split(" ")[0]) for name, line in by_key.items() if not tolerance.are_tokens_within(line)}


def _set_line_state(
    line: ComparisonLine,
    state: str,
    tolerance: DayTolerance,
    largest_claim: int,
    unexplained_tokens: int,
    *,
    are_keys_apart: bool,
    has_doubtful_claims: bool,
) -> ComparisonLine:
    if state == AGREES and (not tolerance.is_line_within(line, largest_claim) or are_keys_apart):
        state = (
            EXPLAINED
            if tolerance.is_unexplained_part_within(line, unexplained_tokens) and not has_doubtful_claims
            else DIFFERS
        )
    line.state = state
    return line


def _names_by_dimension_on_one_side(
    bill_difference: BilledCountedDifference, *, is_on_bill: bool
) -> dict[str, list[str]]:
    return {
        f"{name}s": sorted(
            bill_difference.names_on_side(name, is_on_bill=is_on_bill)
            - bill_difference.names_on_side(name, is_on_bill=not is_on_bill)
            - {""}
        )
        for name in (MODEL, KEY)
    }


def _difference_rank(line: ComparisonLine) -> tuple[int, int, str]:
    return -abs(line.difference), -line.billed, line.name


@dataclass(frozen=True, slots=True, kw_only=True)
class KeysWithSameTokens:
    """A provider's key and one of ours with the same tokens by day."""

    provider: str
    billed: str
    api_key: str
    days: int

    @property
    def toml(self) -> str:
        lines = ("[[reconciliation.owner]]", f'provider = "{self.provider}"', f'billed = "{self.billed}"')
        return "\n".join((*lines, f'api_key = "{self.api_key}"'))


def keys_with_same_tokens(
    provider: str,
    billed_tokens_by_key: Mapping[str, Mapping[tuple[int, str], int]],
    counted_tokens_by_key: Mapping[str, Mapping[int, int]],
) -> list[KeysWithSameTokens]:
    """
    Return pairs of keys whose tokens agree for at least a week. A pair is omitted if another key fits as well.
    """
    pairs = []
    for key, tokens in sorted(billed_tokens_by_key.items()):
        days: dict[int, int] = defaultdict(int)
        for (day, _), count in tokens.items():
            days[day] += count
        partners = [
            own_key
            for own_key, by_day in sorted(counted_tokens_by_key.items())
            if are_series_alike(days, by_day)
        ]
        if len(partners) == 1 and len(days) >= OWNER_DAYS:
            pairs.append(
                KeysWithSameTokens(provider=provider, billed=key, api_key=partners[0], days=len(days))
            )
    return pairs
