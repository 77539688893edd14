"""A bill and a ledger that differ by one cause: only this cause is claimed, for the whole difference."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from gateway.bills.reconciliation.causes.list import (
    ANY_PRICE,
    find_claims,
    name_alternative_causes_in_evidence,
)
from gateway.bills.reconciliation.cells import ComparableDimensions, split_difference
from gateway.bills.reconciliation.claims import (
    EXACT,
    KINDS,
    OTHERS,
    BillComparison,
    CauseClaim,
    UnexplainedDifference,
    build_claim,
)
from gateway.bills.reconciliation.claims import PRICES as PRICES_OF_MODEL
from gateway.bills.reconciliation.sides import (
    CACHE_READ,
    INPUT,
    METERS,
    OUTPUT,
    WRITE_1H,
    WRITE_5M,
    BilledMoney,
    BilledTokens,
    ComparisonCell,
    CountedUse,
)
from spool.money import UNIT

DAY_S = 86400
DAYS = [20_000 * DAY_S + number * DAY_S for number in range(10)]
TOKENS = {INPUT: 1_000_000, CACHE_READ: 400_000, WRITE_5M: 200_000, WRITE_1H: 100_000, OUTPUT: 50_000}
MICRO = UNIT // 10**6
PRICES = {
    INPUT: 3 * MICRO,
    CACHE_READ: 3 * MICRO // 10,
    WRITE_5M: 15 * MICRO // 4,
    WRITE_1H: 6 * MICRO,
    OUTPUT: 15 * MICRO,
}
LEVELS = ComparableDimensions(key=True, tier=True, money_key=False, money_tier=False)


def listed(model: str, tier: str, day: int, context: int = 0) -> Mapping[str, int]:
    return {meter: price // 2 if tier == "batch" else price for meter, price in PRICES.items()}


def use(day: int, tokens: Mapping[str, int] = TOKENS, **fields: Any) -> CountedUse:
    """Create the use of ten calls on a day."""
    price = listed("", fields.get("tier", ""), day)
    values = {meter: count * price[meter] for meter, count in tokens.items()}
    given: dict[str, Any] = {
        "day": day, "source": "litellm", "key": "a", "team": "", "model": "sonnet", "tier": "", "calls": 10,
        "errors": 0, "unsized": 0, "tokens": tokens, "values": values, "cost": sum(values.values()),
    }  # fmt: skip
    return CountedUse(**{**given, **fields})


def told_of(of: CountedUse) -> list[BilledTokens]:
    """Create the provider's usage for the same calls."""
    fields = {
        "source": "usage",
        "day": of.day,
        "account": "",
        "key": of.key,
        "model": of.model,
        "tier": of.tier,
    }
    meters = [(meter, of.tokens.get(meter, 0)) for meter in METERS]
    counts = [*meters, (None, of.calls)]
    return [BilledTokens(**fields, meter=meter, quantity=count) for meter, count in counts]  # type: ignore[arg-type]


def paid(of: CountedUse) -> list[BilledMoney]:
    """Create the provider's charges for the same calls."""
    return [
        BilledMoney(
            source="costs",
            day=of.day,
            account="",
            key="",
            model=of.model,
            tier=None,
            meter=meter,
            amount=value,
        )
        for meter, value in of.values.items()
    ]


Sides = tuple[list[BilledTokens], list[BilledMoney], list[CountedUse]]


def equal() -> Sides:
    """Create equal sides with two keys. The second has half the use of the first."""
    half = {meter: count // 2 for meter, count in TOKENS.items()}
    uses = [counted_use for day in DAYS for counted_use in (use(day), use(day, half, key="b", calls=5))]
    return (
        [row for counted_use in uses for row in told_of(counted_use)],
        [row for counted_use in uses for row in paid(counted_use)],
        uses,
    )


def found(sides: Sides, **fields: Any) -> tuple[list[CauseClaim], int, int]:
    """Return the claims, the unexplained rest, and the difference."""
    tokens, money, counted = sides
    parts = split_difference(tokens, money, counted, prices=listed, comparable_dimensions=LEVELS)
    case = BillComparison(split=parts, remainder=UnexplainedDifference(parts), days=tuple(DAYS), **fields)
    counted_total = sum(sums.cost for sums in parts.counted.values())
    return (
        [*map(name_alternative_causes_in_evidence, find_claims(case))],
        sum(case.remainder.amounts.values()),
        parts.billed_total - counted_total,
    )


def the_one(sides: Sides, cause: str, **fields: Any) -> CauseClaim:
    claimed, unexplained, difference = found(sides, **fields)
    assert [cause] == [claim.cause for claim in claimed]
    assert 0 == unexplained
    assert difference == claimed[0].amount
    assert claimed[0].evidence
    assert claimed[0].advice
    return claimed[0]


def test_nothing_to_claim() -> None:
    assert ([], 0, 0) == found(equal())


def test_a_model_that_only_the_bill_has() -> None:
    tokens, money, counted = equal()
    other_uses = [use(day, model="haiku") for day in DAYS]
    claim = the_one(
        ([*tokens, *(row for other_use in other_uses for row in told_of(other_use))],
         [*money, *(row for other_use in other_uses for row in paid(other_use))], counted),
        "unreported_traffic",
    )  # fmt: skip
    assert claim.sure == "exact"
    assert claim.models == ("haiku",)
    assert sum(sum(other_use.tokens.values()) for other_use in other_uses) == claim.tokens


def test_a_provider_of_which_nothing_reports() -> None:
    """If no source reports calls of a provider, the whole bill is claimed as unreported traffic."""
    tokens, money, _ = equal()
    claim = the_one((tokens, money, []), "unreported_traffic")
    assert sum(row.amount for row in money) == claim.amount
    assert claim.models == ("sonnet",)


def test_a_model_that_only_the_ledger_has() -> None:
    tokens, money, counted = equal()
    claim = the_one((tokens, money, [*counted, *(use(day, model="llama") for day in DAYS)]), "other_account")
    assert claim.amount < 0


@pytest.mark.parametrize(
    ("places", "beside"),
    [((0,), ("no_telemetry", "posted_late")), ((5,), ("no_telemetry",)), ((0, 3, 5), ())],
)
def test_missing_calls_of_few_days_may_have_another_cause(
    places: tuple[int, ...], beside: tuple[str, ...]
) -> None:
    """
    Calls missing on the first day may belong to the day before, and calls missing on two days to hours without
    telemetry.
    """
    tokens, money, counted = equal()
    more = [
        use(DAYS[place], {meter: count // 3 for meter, count in TOKENS.items()}, calls=3) for place in places
    ]
    for one in more:
        tokens, money = [*tokens, *told_of(one)], [*money, *paid(one)]
    [claim], _, _ = found((tokens, money, counted))
    assert ("unreported_calls", "exact") == (claim.cause, claim.sure)
    assert beside == claim.beside


def test_the_next_bill_may_have_what_the_last_days_lack() -> None:
    """A day that the bill lacks is proven. On its last two days it is only a hint, until the next bill is there."""
    tokens, money, counted = equal()
    lacking = (DAYS[4], DAYS[-1])
    split = partial(
        split_difference,
        [row for row in tokens if row.day not in lacking],
        [row for row in money if row.day not in lacking],
        counted,
        prices=listed,
        comparable_dimensions=LEVELS,
        days_with_token_counts=set(DAYS),
    )
    for awaiting, expected in (
        ((), [(lacking, False, ())]),
        (DAYS[-2:], [((DAYS[4],), False, ()), ((DAYS[-1],), True, ("next_bill",))]),
    ):
        parts = split()
        case = BillComparison(
            split=parts, remainder=UnexplainedDifference(parts), days=tuple(DAYS), awaiting=awaiting
        )
        claims = sorted(find_claims(case), key=lambda claim: claim.days)
        assert expected == [(claim.days, claim.is_hint, claim.beside) for claim in claims]
        assert {"no_bill"} == {claim.cause for claim in claims}


def test_tokens_that_the_last_day_lacks_are_supposed_to_be_on_the_next_bill() -> None:
    """Tokens that no check explains are a hint on the last days of a bill, and on no other day."""
    tokens, money, counted = equal()
    for day, hints in ((DAYS[-1], ["next_bill"]), (DAYS[4], [])):
        more = use(day, {meter: count // 3 for meter, count in TOKENS.items()}, calls=3)
        claims, _, _ = found((tokens, money, [*counted, more]), awaiting=frozenset(DAYS[-2:]))
        assert hints == [claim.cause for claim in claims if claim.is_hint]
        assert all(claim.amount < 0 for claim in claims)


@pytest.mark.parametrize(("key", "is_proven"), [("a", True), ("b", False)])
def test_rows_of_a_key_that_a_bill_repeats(key: str, is_proven: bool) -> None:
    """
    If the rows of most of a day are there twice, exactly these are claimed. Those of a smaller part may also be calls
    that were not reported, so both causes are a hint.
    """
    tokens, money, counted = equal()
    [repeated] = [each for each in counted if (each.day, each.key) == (DAYS[3], key)]
    sides = [*tokens, *told_of(repeated)], [*money, *paid(repeated)], counted
    if is_proven:
        assert repeated.cost == the_one(sides, "billed_twice").amount
    else:
        [claim], _, difference = found(sides)
        assert (claim.cause, claim.is_hint, difference) == ("unreported_calls", True, repeated.cost)
        assert "billed_twice" in claim.beside


@pytest.mark.parametrize(("moved", "is_named"), [(UNIT // 100, True), (UNIT // 100 - 1, False)])
@pytest.mark.parametrize(
    ("beside", "other", "otherwise"),
    [(OTHERS, "discount", ()), (KINDS, "cache_split", ()), (PRICES_OF_MODEL, "discount", (ANY_PRICE,))],
)
def test_causes_below_a_cent_are_not_named_next_to_another(
    monkeypatch: pytest.MonkeyPatch,
    moved: int,
    is_named: bool,
    beside: str,
    other: str,
    otherwise: tuple[str, ...],
) -> None:
    """A cause is named as another explanation of the same tokens from one cent on."""

    def claim_both(comparison: BillComparison) -> Iterator[CauseClaim]:
        cell = ComparisonCell(DAYS[0], model="sonnet")
        for cause, amount, names in (("no_bill", UNIT, [beside]), (other, moved, [])):
            yield build_claim(
                cause, {cell: amount}, certainty=EXACT, evidence="e", advice="a", alternative_causes=names
            )

    monkeypatch.setattr("gateway.bills.reconciliation.causes.list.TESTS", (claim_both,))
    claims, _, _ = found(equal())
    assert ((other,) if is_named else otherwise) == claims[0].beside


@pytest.mark.parametrize(
    ("silent_hours", "claimed"), [(0, ["billed_twice", "time_edge"]), (6, ["time_edge"])]
)
def test_a_day_billed_twice_is_known_by_its_hours(silent_hours: int, claimed: list[str]) -> None:
    """
    A day is twice in a bill without numbers of calls, whose days begin eight hours later. The tokens of its hours
    show this. If the day has hours without a call, they may explain the difference, so it is not claimed.
    """
    twice, hour_s = DAYS[4], 3600
    spoken: dict[int, int] = {}  # times TOKENS, by hour
    for number, day in enumerate([*DAYS, DAYS[-1] + DAY_S]):
        silent = range(12, 12 + silent_hours) if day == twice else range(0)
        spoken |= {day + hour * hour_s: 1 + number % 3 for hour in range(24) if hour not in silent}

    def use_from(day: int, first_hour: int, *, times: int = 1, calls: int) -> CountedUse:
        count = sum(spoken.get(day + hour * hour_s, 0) for hour in range(first_hour, first_hour + 24))
        return use(day, {meter: tokens * count * times for meter, tokens in TOKENS.items()}, calls=calls)

    billed = [use_from(day, 8, times=1 + (day == twice), calls=0) for day in DAYS]
    sides = (
        [row for each in billed for row in told_of(each)],
        [row for each in billed for row in paid(each)],
        [use_from(day, 0, calls=10) for day in DAYS],
    )
    hours = {hour: count * sum(TOKENS.values()) for hour, count in spoken.items()}
    claims, _, _ = found(sides, hours=hours)
    assert claimed == [claim.cause for claim in claims]


def test_a_bill_with_as_many_calls_lacks_none() -> None:
    """
    If the bill has more tokens of each call but not more calls, the difference is not claimed as missing calls.
    """
    tokens, money, counted = equal()
    more = [replace(row, quantity=row.quantity * 6 // 5) if row.meter else row for row in tokens]
    claimed, _, _ = found((more, [replace(row, amount=row.amount * 6 // 5) for row in money], counted))
    assert "unreported_calls" not in {claim.cause for claim in claimed}


def test_equal_inputs_on_another_day_lack_no_output() -> None:
    """
    If a shifted clock moves calls with equal input and other output, the bill does not seem to lack output, and no
    cause is a fact.
    """
    outputs = [40_000 + 7_919 * place % 23_000 for place in range(len(DAYS))]
    counted = [
        use(day, {**TOKENS, OUTPUT: output}, key=key)
        for day, output in zip(DAYS, outputs, strict=True)
        for key in ("a", "b")
    ]
    later = [replace(row, day=DAYS[(DAYS.index(row.day) + 1) % len(DAYS)]) for row in counted]
    claimed, _, _ = found(
        (
            [row for each in counted for row in told_of(each)],
            [row for each in counted for row in paid(each)],
            later,
        )
    )
    assert not [claim for claim in claimed if not claim.is_hint]


def test_days_that_exchange() -> None:
    """
    The bill has some tokens one day later than the ledger. If the bill states no hours, the claim is uncertain.
    """
    tokens, money, counted = equal()
    sizes = [3, 9, 4, 8, 2, 7, 5, 9, 3]
    moved_tokens = {meter: count // 20 for meter, count in TOKENS.items()}

    def changed(day: int, factor: int) -> CountedUse:
        return use(day, {meter: count * factor for meter, count in moved_tokens.items()}, calls=0)

    late = [changed(day, size) for day, size in zip(DAYS[1:], sizes, strict=True)]
    early = [changed(day, size) for day, size in zip(DAYS, sizes, strict=False)]
    claim = the_one(
        ([*tokens, *(row for late_use in late for row in told_of(late_use))],
         [*money, *(row for late_use in late for row in paid(late_use))], [*counted, *early]),
        "time_edge",
    )  # fmt: skip
    assert claim.amount == 0
    assert claim.tokens == 0
    assert claim.sure == "weak"
    assert claim.moved > 0


def test_a_tier_that_is_not_reported() -> None:
    """Half of the calls are billed as batch, at half the price, but reported at the normal tier."""
    tokens, money, counted = equal()
    batch = [
        use(counted_use.day, counted_use.tokens, key=counted_use.key, tier="batch", calls=counted_use.calls)
        for counted_use in counted
    ]
    tokens += [row for batch_use in batch for row in told_of(batch_use)]
    money += [row for batch_use in batch for row in paid(batch_use)]
    claim = the_one(
        (tokens, money, [*counted, *(replace(counted_use, tier="") for counted_use in counted)]),
        "tier_unknown",
    )
    assert claim.amount < 0
    assert "batch" in claim.evidence


@pytest.mark.parametrize(("to", "cause"), [(INPUT, "cache_split"), (WRITE_1H, "cache_ttl_1h")])
def test_cached_input_under_another_kind(to: str, cause: str) -> None:
    """The ledger counts tokens as five-minute cache writes, and the bill has them under another kind."""
    tokens, money, counted = equal()
    wrong = []
    for counted_use in counted:
        moved_tokens = {
            **counted_use.tokens,
            to: counted_use.tokens[to] - counted_use.tokens[to] // 2,
            WRITE_5M: counted_use.tokens[WRITE_5M],
        }
        moved_tokens[WRITE_5M] += counted_use.tokens[to] // 2
        wrong.append(use(counted_use.day, moved_tokens, key=counted_use.key, calls=counted_use.calls))
    claim = the_one((tokens, money, wrong), cause)
    assert claim.tokens == 0
    assert claim.sure == "exact"


def test_everything_twice_by_one_source() -> None:
    tokens, money, counted = equal()
    claim = the_one((tokens, money, [*counted, *counted]), "double_report")
    assert claim.sure == "exact"
    assert -sum(counted_use.cost for counted_use in counted) == claim.amount


def test_a_doubled_key_next_to_a_key_that_lacks_calls() -> None:
    """
    A second source reports a third of one key's calls again, and another key of the model lacks calls. The second
    source is claimed with its exact amount, and the missing calls are not part of it.
    """
    tokens, money, counted = equal()
    third = {meter: count // 3 for meter, count in TOKENS.items()}
    again = [use(day, third, source="openinference", calls=3) for day in DAYS]
    fewer = [
        each
        if each.key == "a"
        else use(each.day, {m: n * 3 // 5 - place for m, n in each.tokens.items()}, key="b", calls=3)
        for place, each in enumerate(counted)
    ]
    claimed, _, _ = found((tokens, money, [*fewer, *again]))
    [claim] = [claim for claim in claimed if claim.cause == "double_report"]
    assert ("exact", ("a",)) == (claim.sure, claim.keys)
    assert -sum(each.cost for each in again) == claim.amount
    assert "as much as openinference reports in addition to litellm" in claim.evidence
    assert "[sources.openinference]" in claim.advice


def test_calls_without_their_tokens() -> None:
    """A fifth of the calls were streams without usage."""
    tokens, money, _ = equal()
    four = {meter: count // 5 * 4 for meter, count in TOKENS.items()}
    less = [
        each
        for day in DAYS
        for each in (
            use(day, four, calls=8),
            use(day, {}, calls=2, unsized=2, cost=0),
            use(day, {meter: count // 2 for meter, count in TOKENS.items()}, key="b", calls=5),
        )
    ]
    claim = the_one((tokens, money, less), "usage_missing")
    assert "exact" == claim.sure
    assert "20 calls" in claim.evidence


def test_calls_that_nobody_reports() -> None:
    """For each key, a fifth of the calls are retries inside an SDK, which no source reports."""
    tokens, money, counted = equal()
    less = [
        use(
            counted_use.day,
            {meter: count // 5 * 4 for meter, count in counted_use.tokens.items()},
            key=counted_use.key,
            calls=counted_use.calls // 5 * 4,
        )
        for counted_use in counted
    ]
    assert "strong" == the_one((tokens, money, less), "unreported_calls").sure


def test_batches_that_nobody_reports() -> None:
    tokens, money, counted = equal()
    batch = [use(day, tier="batch") for day in DAYS]
    tokens += [row for batch_use in batch for row in told_of(batch_use)]
    money += [row for batch_use in batch for row in paid(batch_use)]
    assert (
        sum(batch_use.cost for batch_use in batch)
        == the_one((tokens, money, counted), "batch_unreported").amount
    )


@pytest.mark.parametrize(
    ("numerator", "denominator", "cause"),
    [(1, 2, "tier"), (11, 10, "region"), (2, 1, "tier"), (9, 10, "discount"), (13, 10, "price_change")],
)
def test_one_factor_for_all(numerator: int, denominator: int, cause: str) -> None:
    tokens, money, counted = equal()
    changed_money = [replace(row, amount=row.amount * numerator // denominator) for row in money]
    the_one((tokens, changed_money, counted), cause)


# For each day, how many tenths of its calls were processed in the region.
SHARES = [3, 7, 2, 5, 6, 1, 4, 8, 2, 5]


def dearer_in(regions: Mapping[str, int], told: str = "", at: int = 11) -> Sides:
    """
    Bill a share of each day's calls at `at` tenths of the price. `regions` divides that share, in tenths of
    all calls. `told` is the side that states the regions.
    """
    tokens, money, counted = [], [], []
    for index, day in enumerate(DAYS):
        shares = {name: SHARES[index] * part for name, part in regions.items()} | {
            "": 100 - 10 * SHARES[index]
        }
        for name, share in shares.items():
            region_use = use(
                day, {meter: count * share // 100 for meter, count in TOKENS.items()}, region=name
            )
            dear = [replace(row, amount=row.amount * (at if name else 10) // 10) for row in paid(region_use)]
            money += dear
            tokens += [replace(row, region=name if told == "bill" else "") for row in told_of(region_use)]
            counted.append(region_use if told == "ledger" else replace(region_use, region=""))
    return tokens, money, counted


@pytest.mark.parametrize("told", ["ledger", "bill"])
@pytest.mark.parametrize("at", [11, 14])
@pytest.mark.parametrize("regions", [{"us": 10}, {"eu-west-1": 4, "us-east-1": 6}])
def test_a_region_that_is_dearer(regions: Mapping[str, int], at: int, told: str) -> None:
    """
    The claim for an expensive region is found for any share of the calls, and for published
    and unpublished factors.
    """
    claim = the_one(dearer_in(regions, told, at), "region")
    assert claim.sure == "strong"
    assert tuple(sorted(regions)) == claim.regions
    assert all(name in claim.evidence for name in regions)
    assert f"billed at {at / 10:.3f} of our price" in claim.evidence
    assert ("according to Tollhouse" in claim.evidence) == (told == "ledger")


def test_one_region_of_several_that_is_dearer() -> None:
    """If only one of several regions is more expensive, only this region is claimed."""
    tokens, money, counted = dearer_in({"us": 10}, "ledger")
    named = [
        replace(counted_use, region=counted_use.region or ("global" if index % 4 else "eu"))
        for index, counted_use in enumerate(counted)
    ]
    assert ("us",) == the_one((tokens, money, named), "region").regions


def test_regions_with_a_price_each() -> None:
    """
    If each region has its own price, the factor of each is found. A region at the normal price is not named.
    """
    tokens, money, counted = [], [], []
    for index, day in enumerate(DAYS):
        for share, name, at in (
            (SHARES[index], "eu", 11), (SHARES[-1 - index] + 1, "ap", 13), (index + 2, "us", 10), (4, "", 10)
        ):  # fmt: skip
            region_use = use(
                day, {meter: count * share // 10 for meter, count in TOKENS.items()}, region=name
            )
            money += [replace(row, amount=row.amount * at // 10) for row in paid(region_use)]
            tokens += told_of(region_use)
            counted.append(region_use)
    claim = the_one((tokens, money, counted), "region")
    assert claim.sure == "strong"
    assert claim.regions == ("ap", "eu")
    assert "processed in ap at 1.300, eu at 1.100 of our price" in claim.evidence


def test_all_calls_in_one_region() -> None:
    """
    If all calls cost a tenth more, the claim is their region. Any other constant factor is claimed as a price.
    """
    tokens, money, counted = equal()
    within = [replace(counted_use, region="us-east-1") for counted_use in counted]
    tenth = [replace(row, amount=row.amount * 11 // 10) for row in money]
    assert "100.0% of the value" in the_one((tokens, tenth, within), "region").evidence
    third = [replace(row, amount=row.amount * 13 // 10) for row in money]
    the_one((tokens, third, within), "price_change")
    everywhere = [replace(counted_use, region="global") for counted_use in counted]
    the_one((tokens, tenth, everywhere), "price_change")


def test_region_claim_starts_when_calls_begin_to_state_it() -> None:
    """
    Calls state their region only from some day on. From that day, the claim is about regions. Earlier days
    only match the pattern, or stay unexplained.
    """
    later = DAYS[len(DAYS) // 2]
    tokens, money, counted = equal()
    tenth = [replace(row, amount=row.amount * 11 // 10) for row in money]
    claimed, unexplained, _ = found(
        (
            tokens,
            tenth,
            [replace(counted_use, region="us" * (counted_use.day >= later)) for counted_use in counted],
        )
    )
    assert [("region", "strong", ("us",)), ("region", "weak", ())] == sorted(
        (claim.cause, claim.sure, claim.regions) for claim in claimed
    )
    assert unexplained == 0
    assert claimed[0].amount == claimed[1].amount
    assert "on the days for which it knows regions, 100.0% of the value" in claimed[0].evidence
    tokens, money, counted = dearer_in({"us": 10}, "ledger")
    with_regions = [
        replace(counted_use, region=counted_use.region * (counted_use.day >= later))
        for counted_use in counted
    ]
    [claim], unexplained, difference = found((tokens, money, with_regions))
    assert claim.cause == "region"
    assert claim.sure == "strong"
    assert claim.regions == ("us",)
    assert claim.amount + unexplained == difference
    assert unexplained > 0
    by_bill, _, _ = dearer_in({"us": 10}, "bill")
    assert "according to the bill" in the_one((by_bill, money, with_regions), "region").evidence


def test_claim_of_an_unreported_region_is_not_certain() -> None:
    """
    No report names the region. The claim rests only on the price factor, which is one that regions have, so
    it is not certain.
    """
    tokens, money, counted = equal()
    claim = the_one(
        (tokens, [replace(row, amount=row.amount * 11 // 10) for row in money], counted), "region"
    )
    assert claim.sure == "weak"
    assert claim.regions == ()


def test_large_inputs() -> None:
    """A quarter of the tokens belongs to large inputs, at 2 and 1.5 times the price."""
    tokens, money, counted = equal()
    changed_money = [
        replace(row, amount=row.amount + row.amount // (8 if row.meter == OUTPUT else 4)) for row in money
    ]  # fmt: skip
    assert "25%" in the_one((tokens, changed_money, counted), "long_context").evidence


@pytest.mark.parametrize("is_counted_again", [False, True])
def test_a_size_of_calls_with_other_input_is_no_fact(is_counted_again: bool) -> None:
    """
    Large inputs that are billed at the base price are a fact. If cached tokens were reported again as input, the calls
    may only seem large. Then the value of the repeated tokens is no fact either.
    """

    def by_size(model: str, tier: str, day: int, context: int = 0) -> Mapping[str, int]:
        return {INPUT: 6 * MICRO, CACHE_READ: MICRO, OUTPUT: 45 * MICRO // 2} if context else base

    base = {INPUT: 3 * MICRO, CACHE_READ: MICRO // 2, OUTPUT: 15 * MICRO}
    billed = {INPUT: 150_000, CACHE_READ: 100_000, OUTPUT: 1_000}
    reported = {**billed, INPUT: 250_000} if is_counted_again else billed
    large = by_size("", "", 0, 200_000)
    values = {meter: count * large[meter] for meter, count in reported.items()}
    counted = [
        use(day, reported, values=values, cost=sum(values.values()), context=200_000, calls=1) for day in DAYS
    ]
    theirs = [use(day, billed, calls=1) for day in DAYS]
    money = [replace(row, amount=billed[row.meter] * base[row.meter]) for one in theirs for row in paid(one)]
    tokens = [replace(row, context=0) for one in theirs for row in told_of(one)]
    parts = split_difference(tokens, money, counted, prices=by_size, comparable_dimensions=LEVELS)
    case = BillComparison(split=parts, remainder=UnexplainedDifference(parts), days=tuple(DAYS))
    claims = find_claims(case)
    facts = [(claim.cause, claim.sure) for claim in claims if not claim.is_hint]
    assert ([] if is_counted_again else [("premium_absent", "exact")]) == facts
    repeated = [claim.tokens for claim in claims if claim.cause == "cached_twice"]
    assert ([-100_000 * len(DAYS)] if is_counted_again else []) == repeated


@pytest.mark.parametrize("days", [2, 10])
@pytest.mark.parametrize("is_on_each_day", [True, False])
def test_cached_input_that_is_counted_twice(days: int, is_on_each_day: bool) -> None:
    """Our input minus the bill's input is the cached input on each day; on a single other day, it is no proof."""
    tokens, money, _ = equal()
    again = {**TOKENS, INPUT: TOKENS[INPUT] + TOKENS[CACHE_READ]}
    other = {**again, INPUT: again[INPUT] + (0 if is_on_each_day else 7)}
    counted = [use(day, other if day == DAYS[3] else again) for day in DAYS]
    counted += [
        use(day, {meter: count // 2 for meter, count in TOKENS.items()}, key="b", calls=5) for day in DAYS
    ]
    if days < len(DAYS):
        uses = equal()[2]
        counted = [*counted[:days], *(one for one in uses if one.day >= DAYS[days] or one.key == "b")]
    claimed, unexplained, _ = found((tokens, money, counted))
    is_proof = is_on_each_day and days == len(DAYS)
    assert is_proof == (["cached_twice"] == [claim.cause for claim in claimed if claim.sure == "exact"])
    assert not is_proof or unexplained == 0


def test_writes_alone() -> None:
    """The bill states one-hour cache writes only as writes, without their duration."""
    tokens, money, counted = equal()
    changed_money = [
        replace(row, amount=row.amount * 13 // 10) if row.meter == WRITE_5M else row for row in money
    ]
    assert "50%" in the_one((tokens, changed_money, counted), "cache_ttl_1h").evidence


def test_a_price_from_a_day_on() -> None:
    tokens, money, counted = equal()
    changed_money = [
        replace(row, amount=row.amount * 4 // 3) if row.meter == INPUT and row.day >= DAYS[6] else row
        for row in money
    ]
    claim = the_one((tokens, changed_money, counted), "price_change")
    assert DAYS[6] == claim.since
    assert claim.sure == "exact"
    assert "input $4 a million, ours $3" in claim.evidence


def test_a_price_that_sources_know() -> None:
    """Calls report the billed price, so only the price book is wrong. The claim covers the whole difference."""
    tokens, money, counted = equal()
    changed_money = [replace(row, amount=row.amount * 5 // 4) for row in money]
    claim = the_one(
        (
            tokens,
            changed_money,
            [replace(counted_use, cost=counted_use.cost * 5 // 4) for counted_use in counted],
        ),
        "reported_cost",
    )
    assert 0 == claim.amount


def test_lines_that_are_no_tokens() -> None:
    """Each kind of bill line other than tokens is a separate claim. Credits keep their sign."""
    tokens, money, counted = equal()
    lines = {"web_search": 5 * UNIT, "credit": -2 * UNIT, "tax": UNIT}
    money += [replace(money[0], meter=kind, amount=amount) for kind, amount in lines.items()]
    claimed, unexplained, difference = found((tokens, money, counted))
    assert [("not_tokens", 5 * UNIT), ("credit", -2 * UNIT), ("tax", UNIT)] == [
        (claim.cause, claim.amount) for claim in claimed
    ]
    assert unexplained == 0
    assert difference == 4 * UNIT


def test_searches_reported_by_calls_match_the_bill() -> None:
    """
    Searches reported by calls match the bill's lines. Only the rest is a difference, and it is not
    the ledger's price.
    """
    tokens, money, counted = equal()
    fees = {"web_search": 3 * UNIT}
    searching = [replace(counted[0], fees=fees, cost=counted[0].cost + 3 * UNIT), *counted[1:]]
    money.append(replace(money[0], meter="web_search", amount=3 * UNIT))
    assert ([], 0, 0) == found((tokens, money, searching))
    money[-1] = replace(money[-1], amount=5 * UNIT)
    claim = the_one((tokens, money, searching), "meter_differs")
    assert claim.amount == 2 * UNIT
    assert "calls report $3" in claim.evidence


def test_calls_without_a_price() -> None:
    """Calls without a price count as 0 in the ledger but are billed."""
    tokens, money, counted = equal()
    unpriced = [
        replace(counted_use, cost=0) if counted_use.key == "b" else counted_use for counted_use in counted
    ]
    assert (
        sum(counted_use.cost for counted_use in counted if counted_use.key == "b")
        == the_one((tokens, money, unpriced), "own_price").amount
    )


def test_what_nothing_explains() -> None:
    """A difference of unknown pattern stays completely unexplained."""
    tokens, money, counted = equal()
    changed_money = [
        replace(row, amount=row.amount * (10 + (row.day // DAY_S * 7) % 5) // 10)
        if row.meter == INPUT
        else row
        for row in money
    ]
    claimed, unexplained, difference = found((tokens, changed_money, counted))
    assert [] == claimed
    assert unexplained == difference > 0


def test_every_cause_is_documented() -> None:
    """The page lists each cause that a check or a restatement claims."""
    code = "".join(path.read_text() for path in Path("gateway/bills/reconciliation").rglob("*.py"))
    causes = set(re.findall(r'(?:claim_entries(?:_with_price_differences)?|build_claim)\(\s*"(\w+)"', code))
    assert {"failed_calls", "posted_late", "no_bill", "other_model"} < causes
    listed = re.findall(r"^\| (`.+`) \|", Path("docs/bills/reconciliation.md").read_text(), re.MULTILINE)
    assert causes <= {name for cell in listed for name in re.findall(r"`(\w+)`", cell)}


def test_two_causes_at_once() -> None:
    """An unreported batch and a price change each get their share, and nothing remains."""
    tokens, money, counted = equal()
    batch = [use(day, tier="batch") for day in DAYS]
    tokens += [row for batch_use in batch for row in told_of(batch_use)]
    money += [row for batch_use in batch for row in paid(batch_use)]
    changed_money = [
        replace(row, amount=row.amount * 6 // 5) if row.meter == OUTPUT else row for row in money
    ]
    claimed, unexplained, difference = found((tokens, changed_money, counted))
    assert {"batch_unreported", "price_change"} == {claim.cause for claim in claimed}
    assert 0 == unexplained
    assert difference == sum(claim.amount for claim in claimed)
