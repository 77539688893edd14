"""
The comparison of a provider's bills with the ledger by day, and the causes of differences. Only final days
are compared. Pure.

Its steps: `_select_rows`, `_align_sides` (names and keys), `_restate_sides`, `_find_all_claims` and `_judge_lines`.
It also suggests settings to the operator: prices from the bill, and owners of provider keys.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction
from operator import attrgetter

from gateway.bills.reconciliation.causes.list import find_claims, name_alternative_causes_in_evidence
from gateway.bills.reconciliation.causes.other_lines import smallest_decimal_unit_of_amounts
from gateway.bills.reconciliation.cells import BilledCountedDifference, ComparableDimensions, split_difference
from gateway.bills.reconciliation.claims import OF_PRICES, BillComparison, CauseClaim, UnexplainedDifference
from gateway.bills.reconciliation.contract_prices import (
    CONTRACT_PRICE,
    BilledPrices,
    claim_contract_price,
    find_billed_prices,
)
from gateway.bills.reconciliation.limits import OWNER_DAYS
from gateway.bills.reconciliation.lines import (
    AGREES,
    FINAL,
    OPEN,
    UNKNOWN,
    ComparisonLine,
    DayTolerance,
    days_with_key_tokens_outside_tolerance,
    difference_rank,
    largest_claimed_amount_by_day,
    line_over_all_cells,
    lines_by_name,
    set_line_state,
    unexplained_tokens_by_day,
)
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
    LateRows,
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
from gateway.bills.reconciliation.set_aside import SetAsideCalls, set_aside_unbilled_failed_calls
from gateway.bills.reconciliation.sides import (
    DAY,
    KEY,
    MODEL,
    STANDARD,
    BilledMoney,
    BilledTokens,
    Commitment,
    ContractSum,
    CountedUse,
    Prices,
    Row,
    are_series_alike,
    count_calls_by_cost_doubt,
    replace_api_key,
)
from spool.statements import StatementRow


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
    aligned = _align_sides(comparison_input, _select_rows(comparison_input))
    if not has_causes:
        split = aligned.split_at_prices(aligned.set_aside.counted, aligned.prices, aligned.rows.money)
        return _state_totals(comparison_input.provider, aligned.rows, split, ())
    restated = _restate_sides(comparison_input, aligned)
    found = _find_all_claims(comparison_input.conversion, aligned, restated)
    return _judge_lines(comparison_input, aligned, restated, found)


def _state_totals(
    provider: str, selected: _SelectedRows, split: BilledCountedDifference, claimed: Sequence[CauseClaim]
) -> Reconciliation:
    return Reconciliation(
        provider=provider,
        total=line_over_all_cells(split, claimed),
        finest=split.levels.compared_dimensions_text,
        has_money=bool(selected.money_sources),
        sources=sorted(selected.compared_sources),
        set_aside=sorted({*selected.known_sources} - selected.compared_sources),
        foreign=selected.foreign,
        bills=selected.amount_by_bill,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class _SelectedRows:
    """
    The rows of the compared days. Each day has its tokens from one source, and its money from one source. `states`: of
    all days, before amounts are compared. `known_sources`: those with rows, also if they are not compared.
    """

    tokens: Sequence[BilledTokens]
    money: Sequence[BilledMoney]
    counted: Sequence[CountedUse]
    token_sources: Mapping[int, str]
    money_sources: Mapping[int, str]
    states: Mapping[int, str]
    known_sources: Collection[str]
    foreign: Mapping[str, int]

    @property
    def compared_days(self) -> set[int]:
        return {day for day, state in self.states.items() if state not in (OPEN, UNKNOWN)}

    @property
    def compared_sources(self) -> set[str]:
        return {*self.token_sources.values(), *self.money_sources.values()}

    @property
    def accounts(self) -> list[str]:
        return sorted({*(row.account for row in self.tokens), *(row.account for row in self.money)} - {""})

    @property
    def amount_by_bill(self) -> Mapping[str, int]:
        bills = Counter[str]()
        for row in self.money:
            bills[row.bill] += row.amount
        return bills


def _select_rows(comparison_input: ComparisonInput) -> _SelectedRows:
    provider, covered = comparison_input.provider, comparison_input.covered
    bill_rows = classify_bill_rows((row, None) for row in comparison_input.rows if row.provider == provider)
    of_tokens = choose_source_by_day(bill_rows.tokens, covered)
    of_money = choose_source_by_day(bill_rows.money, covered)
    # a source without rows states that nothing was used
    for source in sorted(covered.keys() - bill_rows.sources):
        of_tokens = dict.fromkeys(covered[source], source) | of_tokens
    wide = bill_rows.wide
    states = _comparison_state_by_day(comparison_input, of_tokens, of_money, bill_rows.unsettled, wide)
    all_rows = _SelectedRows(
        tokens=[row for row in bill_rows.tokens if of_tokens.get(row.day) == row.source],
        money=[row for row in bill_rows.money if of_money.get(row.day) == row.source],
        counted=comparison_input.counted,
        token_sources=of_tokens,
        money_sources=of_money,
        states=states,
        known_sources=bill_rows.sources,
        foreign=bill_rows.foreign,
    )
    compared = all_rows.compared_days
    return replace(
        all_rows,
        tokens=_rows_on_days(all_rows.tokens, wide, compared),
        money=_rows_on_days(all_rows.money, wide, compared),
        counted=_rows_on_days(all_rows.counted, wide, compared),
    )


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


def _comparison_state_by_day(
    comparison_input: ComparisonInput,
    token_source_by_day: Mapping[int, str],
    money_source_by_day: Mapping[int, str],
    unsettled: Mapping[str, Collection[int]],
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


@dataclass(frozen=True, kw_only=True)
class _AlignedSides:
    """
    Both sides under common names. `set_aside`: the counted usage without failed calls that the bill leaves out.
    `metered`: compared days with token counts. `listed`: prices without contracts.

    `spelled` has the names of the ledger by model family, `renamed` pairs of different names (billed, counted).
    `key_tokens` and `own_keys` are the tokens of keys that match none of the other side.
    """

    rows: _SelectedRows
    set_aside: SetAsideCalls
    levels: ComparableDimensions
    metered: Collection[int]
    prices: Prices
    listed: Prices
    keys: ProviderKeyMatching
    spelled: Mapping[str, Collection[str]]
    renamed: Sequence[tuple[str, str]]
    key_tokens: Mapping[str, Mapping[tuple[int, str], int]]
    own_keys: Mapping[str, Mapping[int, int]]

    def split_at_prices(
        self, uses: Sequence[CountedUse], prices: Prices, money: Sequence[BilledMoney]
    ) -> BilledCountedDifference:
        return split_difference(
            self.rows.tokens,
            money,
            uses,
            prices=prices,
            comparable_dimensions=self.levels,
            days_with_token_counts=self.metered,
            lacks_billed_money=not self.rows.money_sources,
        )

    def without_failed_calls(self, uses: Sequence[CountedUse]) -> list[CountedUse]:
        return [*set_aside_unbilled_failed_calls(self.rows.tokens, uses, self.levels, self.metered).counted]


def _align_sides(comparison_input: ComparisonInput, selected: _SelectedRows) -> _AlignedSides:
    compared = selected.compared_days

    def standard_prices_on_first_and_last_day(name: str) -> tuple[frozenset[tuple[str, int]], ...]:
        edges = {min(compared, default=0), max(compared, default=0)}
        return tuple(
            frozenset(comparison_input.prices(name, STANDARD, day, 0).items()) for day in sorted(edges)
        )

    tokens, money, counted, priced_as, renamed = rename_models_to_families(
        selected.tokens, selected.money, selected.counted, standard_prices_on_first_and_last_day
    )

    def prices_of_family(model: str, tier: str, day: int, context_tokens: int) -> Mapping[str, int]:
        return comparison_input.prices(priced_as(model), tier, day, context_tokens)

    def list_prices_of_family(model: str, tier: str, day: int, context_tokens: int) -> Mapping[str, int]:
        listed = comparison_input.listed
        return {} if listed is None else listed(priced_as(model), tier, day, context_tokens)

    spelled: dict[str, set[str]] = defaultdict(set)
    for own, use in zip(selected.counted, counted, strict=True):
        spelled[use.model].add(own.model)
    owners = [owner for owner in comparison_input.owners if owner.provider == comparison_input.provider]
    billed_keys = {*(row.key for row in tokens), *(row.key for row in money)}
    keys = ProviderKeyMatching(owners, billed_keys, {row.key for row in counted})
    rows = replace(
        selected,
        tokens=[replace_api_key(row, keys.comparable_key_of_billed_row(row)) for row in tokens],
        money=[replace_api_key(row, keys.comparable_key_of_billed_row(row)) for row in money],
        counted=[replace_api_key(row, keys.comparable_key_of_use(row)) for row in counted],
    )
    levels = common_comparison_levels(
        rows.tokens, rows.money, rows.counted, are_keys_matched=keys.has_matches
    )
    metered = compared & set(selected.token_sources)
    set_aside = set_aside_unbilled_failed_calls(rows.tokens, rows.counted, levels, metered)
    own_uses = [use for use, is_out in zip(counted, set_aside.left_out, strict=True) if not is_out]
    key_tokens, own_keys = _billed_and_counted_tokens_of_unmatched_keys(tokens, own_uses, keys)
    return _AlignedSides(
        rows=rows,
        set_aside=set_aside,
        levels=levels,
        metered=metered,
        prices=prices_of_family,
        listed=list_prices_of_family,
        keys=keys,
        spelled=spelled,
        renamed=renamed,
        key_tokens=key_tokens,
        own_keys=own_keys,
    )


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


@dataclass(frozen=True, kw_only=True)
class _RestatedSides:
    """
    The sides without differences of the whole month, so that the checks compare equal things: other prices than those
    of contracts, keys that the bill has exchanged, rows on a later day, and one exchange rate. Each is a claim as well.

    `own`: the counted usage at the billed prices, under its own keys.
    """

    case: BillComparison
    money: Sequence[BilledMoney]
    own: Sequence[CountedUse]
    prices: Prices
    billed_at: BilledPrices
    market_rates: Sequence[FixedExchangeRate]
    exchanged: Mapping[tuple[int, str], str]
    late: LateRows
    fixed: FixedExchangeRate | None


def _restate_sides(comparison_input: ComparisonInput, aligned: _AlignedSides) -> _RestatedSides:
    conversion, levels, money = comparison_input.conversion, aligned.levels, aligned.rows.money
    precision = _last_decimal_unit_by_day(money, aligned.rows.money_sources, conversion)
    own, prices = aligned.set_aside.counted, aligned.prices
    billed_at, market_rates, split = _find_billed_prices(comparison_input, aligned, precision)
    if billed_at.has_factors:
        prices = billed_at.billed_prices(prices, aligned.listed)
        own = aligned.without_failed_calls(billed_at.reprice_uses(aligned.rows.counted))
    exchanged = find_keys_swapped_in_bill(aligned.rows.tokens, own) if levels.key else {}
    uses = use_billed_names_of_swapped_keys(own, exchanged)
    late = find_rows_billed_on_later_day(aligned.rows.tokens, money, uses, levels, aligned.metered)
    counted = late.move_to_billed_days(uses, levels)
    if split is None or billed_at.has_factors or exchanged or late.posted:
        split = aligned.split_at_prices(counted, prices, money)
    fixed = None if conversion is None else find_fixed_exchange_rate(split, conversion, precision)
    if conversion is not None and fixed is not None:
        money = convert_at_fixed_rate(money, conversion, fixed)
        split = aligned.split_at_prices(counted, prices, money)
    return _RestatedSides(
        case=_build_comparison(comparison_input, aligned, split, uses, precision, late),
        money=money,
        own=own,
        prices=prices,
        billed_at=billed_at,
        market_rates=market_rates,
        exchanged=exchanged,
        late=late,
        fixed=fixed,
    )


def _find_billed_prices(
    comparison_input: ComparisonInput, aligned: _AlignedSides, precision: Mapping[int, int]
) -> tuple[BilledPrices, Sequence[FixedExchangeRate], BilledCountedDifference | None]:
    """
    Return the prices that the bill has instead of those of contracts, the market rates that explain it, and the split
    at the prices of contracts. Without a contract, there is nothing to find.
    """
    if comparison_input.listed is None:
        return BilledPrices(levels=aligned.levels), (), None
    conversion, counted = comparison_input.conversion, aligned.set_aside.counted
    all_listed = BilledPrices(levels=aligned.levels, every=Fraction(1)).reprice_uses(counted)

    def split_with_and_without_contracts(
        money: Sequence[BilledMoney],
    ) -> tuple[BilledCountedDifference, BilledCountedDifference]:
        return (
            aligned.split_at_prices(counted, aligned.prices, money),
            aligned.split_at_prices(all_listed, aligned.listed, money),
        )

    splits = compared = split_with_and_without_contracts(aligned.rows.money)
    market_rates = () if conversion is None else find_market_rates(splits, conversion, precision)
    if conversion is not None and len(market_rates) == 1:
        compared = split_with_and_without_contracts(
            convert_at_fixed_rate(aligned.rows.money, conversion, *market_rates)
        )
    return find_billed_prices(*compared, precision), market_rates, splits[0]


def _build_comparison(
    comparison_input: ComparisonInput,
    aligned: _AlignedSides,
    split: BilledCountedDifference,
    uses: Sequence[CountedUse],
    precision: Mapping[int, int],
    late: LateRows,
) -> BillComparison:
    failed_hours = comparison_input.failed_hours if aligned.set_aside.are_all else {}
    compared = aligned.rows.compared_days
    return BillComparison(
        split=split,
        remainder=UnexplainedDifference(split),
        key_tokens=aligned.key_tokens,
        own_keys=aligned.own_keys,
        hours={hour: tokens - failed_hours.get(hour, 0) for hour, tokens in comparison_input.hours.items()},
        days=tuple(sorted(compared)),
        precision=precision,
        are_failed_known=aligned.set_aside.is_exact,
        uses=uses,
        commitments=[
            replace(
                each,
                models={
                    name for name, own in aligned.spelled.items() if any(map(each.term.is_for_model, own))
                },
            )
            for each in comparison_input.commitments
        ],
        # omitted unless all days are compared, because these amounts cover the whole period
        sums=comparison_input.sums if aligned.rows.states.keys() <= compared else (),
        late_days={*late.posted.values()},
        awaiting=comparison_input.awaiting,
    )


def _find_all_claims(
    conversion: BillConversion | None, aligned: _AlignedSides, restated: _RestatedSides
) -> list[CauseClaim]:
    """Return the claims of the checks and of the restatements, largest first."""
    case, billed_at, fixed = restated.case, restated.billed_at, restated.fixed
    found = [billed_at.doubt_if_contract_may_be_cause(claim) for claim in find_claims(case)]
    if restated.late.posted:
        found.append(claim_late_rows(case.split, case.uses, restated.late))
    if restated.exchanged:
        found.append(claim_keys_swapped_in_bill(case.split, restated.own, restated.exchanged))
    if billed_at.has_factors:
        moved = tuple(claim.cause for claim in found if billed_at.is_token_move_with_doubtful_price(claim))
        found += [
            replace(claim, beside=moved)
            for claim in claim_contract_price(case.split, aligned.set_aside.counted, billed_at)
        ]
    if conversion is not None and (fixed is None or not fixed.is_of_market):
        # while the exchange rate is unknown, it could explain any difference in prices
        found = [
            replace(claim, beside=(*claim.beside, EXCHANGE_RATE)) if claim.cause in OF_PRICES else claim
            for claim in found
        ]
    if conversion is not None and fixed is not None:
        claim = claim_exchange_rate(case.split, aligned.rows.money, restated.money, conversion, fixed)
        # the prices with and without contracts lead to different market rates, so a contract is another
        # possible cause
        other_causes = (CONTRACT_PRICE,) if len(restated.market_rates) > 1 else ()
        found.append(replace(claim, beside=(*claim.beside, *other_causes)))
    return sorted(
        map(name_alternative_causes_in_evidence, found),
        key=lambda claim: (-claim.moved, -abs(claim.tokens), claim.cause),
    )


def _judge_lines(
    comparison_input: ComparisonInput,
    aligned: _AlignedSides,
    restated: _RestatedSides,
    found: Sequence[CauseClaim],
) -> Reconciliation:
    """Return the result, with the state of each day according to the claims."""
    provider, tolerance, split = comparison_input.provider, comparison_input.tolerance, restated.case.split
    claimed = [claim for claim in found if not claim.is_hint]
    days = lines_by_name(split, claimed, lambda cell: str(cell.day))
    models, by_key = (lines_by_name(split, claimed, attrgetter(name)) for name in (MODEL, KEY))
    spelled = {name: sorted(names) for name, names in aligned.spelled.items() if name}
    for line in models.values():
        line.where = {"model": spelled[line.name]} if line.name in spelled else {}
    for line in by_key.values():
        line.where = aligned.keys.cost_filter(line.name)
    largest = largest_claimed_amount_by_day(found)
    tokens_left = unexplained_tokens_by_day(split, claimed)
    doubtful = {day for claim in found if claim.is_hint and claim.is_of_tokens for day in claim.days}
    days_apart = days_with_key_tokens_outside_tolerance(split, tolerance) if aligned.levels.key else ()
    of_cells = lines_by_name(split, claimed, lambda cell: f"{cell.day} {cell.model}")
    return replace(
        _state_totals(provider, aligned.rows, split, claimed),
        days=[
            set_line_state(
                days.get(str(day), ComparisonLine(name=str(day))),
                state,
                tolerance,
                largest[day],
                tokens_left[day],
                are_keys_apart=day in days_apart,
                has_doubtful_claims=day in doubtful,
            )
            for day, state in sorted(aligned.rows.states.items())
        ],
        models=sorted(models.values(), key=difference_rank),
        keys=sorted(by_key.values(), key=difference_rank) if aligned.levels.key else (),
        claims=claimed,
        hints=[claim for claim in found if claim.is_hint],
        only_billed=_names_by_dimension_on_one_side(split, is_on_bill=True),
        only_counted=_names_by_dimension_on_one_side(split, is_on_bill=False),
        renamed=aligned.renamed,
        spelled=spelled,
        regions=frozenset(use.region for use in restated.case.uses if use.region),
        accounts=aligned.rows.accounts,
        owed=lines_owed_by_provider(claimed, split),
        overrides=suggest_overrides(provider, restated.case, claimed, restated.prices, aligned.spelled),
        owners=keys_with_same_tokens(provider, aligned.key_tokens, aligned.own_keys),
        error=sum(abs(line.unexplained) for line in of_cells.values()),
        doubtful_calls=count_calls_by_cost_doubt(aligned.rows.counted),
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
