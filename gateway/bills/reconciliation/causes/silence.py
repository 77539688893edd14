"""Days and hours for which one side has nothing, and days billed twice."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterator
from dataclasses import replace
from fractions import Fraction
from statistics import median

from gateway.bills.reconciliation.causes.missing import days_missing_half_of_tokens
from gateway.bills.reconciliation.causes.shifted_days import BY_TOKENS, find_shift, portions_moved_by_shift
from gateway.bills.reconciliation.cells import DifferenceEntry
from gateway.bills.reconciliation.claims import (
    EXACT,
    OTHERS,
    STRONG,
    WEAK,
    BillComparison,
    CauseClaim,
    ClaimedPortion,
)
from gateway.bills.reconciliation.limits import (
    FAR,
    FARTHEST,
    GAP,
    LARGE_SHARE,
    LEAST_BESIDE,
    LEAST_CALLS,
    LEAST_HOURS,
    MOST_AGAIN,
    ROUGHLY,
    SAME,
    SIMILAR,
)
from gateway.bills.reconciliation.rate_series import cell_rate_series, model_rate_series
from gateway.bills.reconciliation.sides import DAY_S, RATE, VOLUME
from gateway.bills.reconciliation.wording import day_text, join_names

HOUR_S = 3600
NEXT_BILL = "next_bill"

_POINT = "Check whether the gateway or its senders were down or not yet in use."


def claim_no_telemetry(comparison: BillComparison) -> Iterator[CauseClaim]:
    counted, billed = _counted_and_billed_days(comparison)
    silent = sorted((billed - counted) & _days_with_unexplained_or_unstated_tokens(comparison))
    if not silent or not counted:
        return
    shift = find_shift(comparison)
    moved_portions = portions_moved_by_shift(comparison, shift, silent) if shift is not None else {}
    may_be_chance = _may_be_chance(comparison, counted)
    claim = comparison.remainder.claim_entries(
        "no_telemetry",
        _entries_on_days(comparison, silent),
        certainty=EXACT,
        evidence=(
            f"{_join_days(silent)}: the bill has tokens or money, but Tollhouse has no call, unlike on "
            f"{len(counted):,} other days{BY_TOKENS if moved_portions else ''}"
        ),
        advice=_POINT,
        portions={
            entry: comparison.remainder.remaining_portion_of_entry(entry, portion)
            for entry, portion in moved_portions.items()
        },
        explains_calls=not moved_portions,
        alternative_causes=[*["time_edge"] * bool(moved_portions), *["unreported_calls"] * may_be_chance],
    )
    if claim is not None:
        yield claim


def _may_be_chance(comparison: BillComparison, days: Collection[int]) -> bool:
    calls = sum(sums.calls for cell, sums in comparison.split.counted.items() if cell.day in days)
    billed = sum(
        sum(sums.tokens.values()) for cell, sums in comparison.split.billed.items() if cell.day in days
    )
    lacking = sum(extra for (cell, _), extra in comparison.remainder.extra.items() if cell.day in days)
    return calls < LEAST_CALLS * len(days) and lacking > ROUGHLY * billed


def claim_no_bill(comparison: BillComparison) -> Iterator[CauseClaim]:
    """
    Explain the costs of counted days that a bill does not have, though it has other days. Such a bill states
    that nothing was billed on them.
    """
    counted, billed = _counted_and_billed_days(comparison)
    free = sorted(
        day
        for day in (counted - billed) & _days_with_unexplained_or_unstated_tokens(comparison)
        if day in comparison.split.metered
    )
    for days in (
        [day for day in free if (day in comparison.awaiting) == is_late] for is_late in (False, True)
    ):
        claim = comparison.remainder.claim_entries(
            "no_bill",
            _entries_on_days(comparison, days) if billed else (),
            certainty=EXACT,
            evidence=f"{_join_days(days)}: Tollhouse has calls, but the bill, which covers these days, has nothing",
            advice="Import the complete bill of these days again, or check which account paid them.",
            explains_calls=True,
        )
        if claim is not None:
            yield claim


def claim_next_bill(comparison: BillComparison) -> Iterator[CauseClaim]:
    """Suppose that tokens which a bill lacks on its last days will be on the next bill, which is not imported yet."""
    extra = comparison.remainder.extra
    yield from comparison.claim_entries_with_price_differences(
        NEXT_BILL,
        [
            entry
            for entry in comparison.remainder.token_difference_entries()
            if entry[1].day in comparison.awaiting and extra[entry[1:]] < 0
        ],
        WEAK,
        "the last two days of the bill lack counted tokens, and the next bill is not imported yet",
        "Import the next bill: usage that a provider reports late is on it.",
    )


def name_next_bill_as_other_cause(claim: CauseClaim, comparison: BillComparison) -> CauseClaim:
    """Turn a claim into a hint if the next bill may have everything that it says the bill lacks."""
    is_late = claim.tokens < 0 and {*claim.days} <= {*comparison.awaiting}
    return replace(claim, beside=(*claim.beside, NEXT_BILL)) if is_late else claim


def claim_days_billed_repeatedly(comparison: BillComparison) -> Iterator[CauseClaim]:
    """
    Claim days that are billed two or more times because the report repeats rows. All tokens, or all calls,
    must be an exact multiple. With shifted times, the tokens of the shifted hours count.
    """
    split = comparison.split
    remainder = comparison.remainder
    in_calls = _times_billed_by_day_according_to_calls(comparison)
    in_hours = _times_billed_by_day_according_to_hours(comparison)
    times_by_day = {**in_hours, **in_calls, **split.repeats.billed}
    portions = {}
    for cell, meter in split.values:
        # a key and model that agrees on such a day is not repeated
        is_different = (cell, meter) in remainder.extra or cell.day in in_hours
        if cell.day in times_by_day and cell not in remainder.explained and is_different:
            share = 1 - Fraction(1, times_by_day[cell.day])
            worth, tokens = remainder.billed_value_and_tokens((VOLUME, cell, meter))
            portions[VOLUME, cell, meter] = ClaimedPortion(round(worth * share), round(tokens * share))
    is_of_hours = not times_by_day.keys() <= {*in_calls, *split.repeats.billed}
    repeated_text = (
        "the input and output of each model" if split.repeats.billed else "the calls of each key and model"
    )
    claim = remainder.claim_entries(
        "billed_twice",
        portions,
        certainty=STRONG,
        evidence=(
            f"{_join_days(sorted(times_by_day))}: the bill has "
            f"{'the tokens of the shifted hours' if is_of_hours else repeated_text} exactly twice, or more often"
        ),
        advice="Check whether the report repeats the rows of these days, and import it again.",
        portions=portions,
        explains_calls=True,
        alternative_causes=("time_edge",) if is_of_hours else (),
    )
    if claim is not None:
        yield claim


def _times_billed_by_day_according_to_calls(comparison: BillComparison) -> dict[int, int]:
    """
    Return how many times repeated days were billed: the same whole multiple of our number of calls for each
    key and model. Some calls may have no tokens. Return nothing if most days are like this.
    """
    theirs: dict[int, dict[tuple[str, str], int]] = defaultdict(lambda: defaultdict(int))
    ours: dict[int, dict[tuple[str, str], int]] = defaultdict(lambda: defaultdict(int))
    for cell, sums in comparison.split.billed.items():
        if sums.calls and cell not in comparison.remainder.explained:
            theirs[cell.day][cell.key, cell.model] += sums.calls
    for cell, counted_sums in comparison.split.counted.items():
        if counted_sums.calls and cell not in comparison.remainder.explained:
            ours[cell.day][cell.key, cell.model] += counted_sums.calls
    times_by_day = {}
    for day, calls in theirs.items():
        own_calls = ours[day]
        if calls.keys() == own_calls.keys() and sum(own_calls.values()) >= LEAST_CALLS:
            times = {Fraction(count, own_calls[key]) for key, count in calls.items()}
            if len(times) == 1 and (once := times.pop()).denominator == 1 and 1 < once <= MOST_AGAIN + 1:
                times_by_day[day] = int(once)
    return times_by_day if len(times_by_day) * 2 < len(theirs) else {}


def _times_billed_by_day_according_to_hours(comparison: BillComparison) -> dict[int, int]:
    """
    Return, for each day billed more than once, how many times it was billed. Days with hours without a call
    are left out, because such hours may explain the difference.
    """
    shift = find_shift(comparison)
    if shift is None:
        return {}
    billed: dict[int, int] = defaultdict(int)
    counted: dict[int, int] = defaultdict(int)
    for cell, sums in comparison.split.billed.items():
        billed[cell.day] += sum(sums.tokens.values())
    for cell, counted_sums in comparison.split.counted.items():
        counted[cell.day] += sum(counted_sums.tokens.values())
    times_by_day = {}
    for day in shift.days_with_other_differences(billed):
        once = counted[day] + shift.moved_by_day[day]
        times = round(billed[day] / once) if once > 0 else 0
        is_multiple = 1 < times <= MOST_AGAIN + 1 and abs(billed[day] - times * once) <= GAP * billed[day]
        if is_multiple and not _has_unusual_silence(comparison, day, shift.hours):
            times_by_day[day] = times
    return times_by_day


def _has_unusual_silence(comparison: BillComparison, day: int, shift_hours: int) -> bool:
    first, hours = _start_and_hours_of_longest_silence(comparison, day, shift_hours)

    def tokens_on_other_days(begin: int, end: int) -> int:
        return sum(
            comparison.hours.get(other_day + (hour + shift_hours) * HOUR_S, 0)
            for other_day in comparison.days
            if other_day != day
            for hour in range(begin, end)
        )

    return tokens_on_other_days(first, first + hours) >= ROUGHLY * tokens_on_other_days(0, DAY_S // HOUR_S)


def claim_silent_hours(comparison: BillComparison) -> Iterator[CauseClaim]:
    """
    Claim consecutive hours without a call, on days that lack about as many tokens as these hours have
    on other days. If other days differ as well, the amount is uncertain.
    """
    lacking: dict[int, int] = defaultdict(int)
    lacks: dict[tuple[int, str], int] = defaultdict(int)  # missing tokens by day and model
    for (cell, _), extra in comparison.remainder.extra.items():
        lacking[cell.day] += extra
        lacks[cell.day, cell.model] += extra
    billed: dict[int, int] = defaultdict(int)
    for cell, sums in comparison.split.billed.items():
        if cell not in comparison.remainder.explained:
            billed[cell.day] += sum(sums.tokens.values())
    billed_days = [day for day in comparison.days if billed[day]]
    if not billed_days or not comparison.hours:
        return
    usual = max(0.0, median(lacking[day] / billed[day] for day in billed_days))
    gaps = {day: lacking[day] - usual * billed[day] for day in billed_days}
    chance = FAR * median(map(abs, gaps.values()))
    whole = [day for day in billed_days if abs(gaps[day]) <= max(LARGE_SHARE * billed[day], chance)]
    is_beside = usual > GAP
    is_uneven = bool(whole) and median(abs(gaps[day]) / billed[day] for day in whole) > GAP
    least = LEAST_BESIDE if is_beside else LEAST_HOURS
    days, hour_spans = [], []
    # days that may be billed twice: the hours without calls do not explain all missing tokens
    large = set()
    for day in sorted(gaps):
        if gaps[day] <= LARGE_SHARE * billed[day] or len(whole) * 2 < len(comparison.days):
            continue
        first, hours = _start_and_hours_of_longest_silence(comparison, day, comparison.remainder.shift)
        begin = first + comparison.remainder.shift
        then = [
            comparison.hours.get(other_day + hour * HOUR_S, 0)
            for other_day in whole
            for hour in range(begin, begin + hours)
        ]
        mean = sum(then) / len(whole)
        mean_day = sum(billed[other_day] for other_day in whole) / len(whole)
        is_as_usual = (
            mean >= ROUGHLY * (1 - usual) * mean_day and mean / SIMILAR <= gaps[day] <= mean * SIMILAR
        )
        is_begin = first == 0 and day == comparison.days[0]
        is_end = first + hours == 24 and day == comparison.days[-1]
        is_edge = is_begin or is_end
        if is_as_usual and sum(map(bool, then)) >= least * len(whole):
            date = day_text(day + begin // 24 * DAY_S)
            hour = begin % 24
            if is_edge and hours < FARTHEST:
                # a shifted clock has the same effect, unless the silence is longer than any difference of
                # time zones
                continue
            if gaps[day] <= chance:
                comparison.remainder.may_be_silent.append(day)
                continue
            days.append(day)
            # tokens that are missing if the bill counted everything of this day twice
            once = gaps[day] - billed[day] / 2
            if gaps[day] > 2 * mean and once > mean / 2:
                large.add(day)
            hour_spans.append(f"{date} {hour:02d}:00 to {hour + hours:02d}:00")
    if not days:
        return
    evidence = (
        f"{join_names(hour_spans)} (UTC): Tollhouse has no call, and the day lacks about as much as other days "
        "have at that time"
    )
    if is_beside:
        evidence += "; other days lack tokens as well"
    entries = [
        entry for entry in _entries_on_days(comparison, days) if lacks[entry[1].day, entry[1].model] > 0
    ]
    portions = _portions_beyond_usual_price(comparison, days)
    if is_beside:
        shares = {day: Fraction(gaps[day] / lacking[day]) for day in days}
        portions = {
            entry: comparison.remainder.portion_of_entry(entry, shares[entry[1].day]) for entry in entries
        } | portions
    claim = comparison.remainder.claim_entries(
        "no_telemetry",
        entries,
        certainty=WEAK
        if is_beside or is_uneven or any(cell.model in comparison.remainder.changed for _, cell, _ in entries)
        else STRONG,
        evidence=evidence + (BY_TOKENS if comparison.remainder.shift else ""),
        advice=_POINT,
        portions=portions,
        explains_calls=True,
        alternative_causes=[
            *(["time_edge"] if comparison.remainder.shift else []),
            *(["billed_twice"] if large and large & days_missing_half_of_tokens(comparison) else []),
            *([OTHERS] if is_beside else []),
        ],
    )
    if claim is not None:
        yield claim


def _start_and_hours_of_longest_silence(
    comparison: BillComparison, day: int, shift_hours: int
) -> tuple[int, int]:
    """
    Return start and length of the longest time without a call, in hours. `shift_hours` is the number of hours by
    which the ledger's times are ahead.
    """
    best = (0, 0)
    begun = 0
    for hour in range(DAY_S // HOUR_S):
        if comparison.hours.get(day + (hour + shift_hours) * HOUR_S, 0):
            begun = hour + 1
        elif hour + 1 - begun > best[1]:
            best = (begun, hour + 1 - begun)
    return best


def _counted_and_billed_days(comparison: BillComparison) -> tuple[set[int], set[int]]:
    counted = {
        cell.day for cell, sums in comparison.split.counted.items() if sums.calls or any(sums.tokens.values())
    }
    billed = {
        cell.day for cell, sums in comparison.split.billed.items() if any(sums.tokens.values()) or sums.calls
    }
    return counted, billed | {cell.day for cell, _ in comparison.split.paid}


def _days_with_unexplained_or_unstated_tokens(comparison: BillComparison) -> set[int]:
    return {cell.day for _, cell, _ in comparison.remainder.token_difference_entries()} | (
        set(comparison.days) - comparison.split.metered
    )


def _entries_on_days(comparison: BillComparison, days: Collection[int]) -> list[DifferenceEntry]:
    """
    Return the differences of these days. Price differences are left out if the model has them on other days
    as well.
    """
    remainder = comparison.remainder
    chosen = set(days)
    volume = [entry for entry in remainder.token_difference_entries() if entry[1].day in chosen]
    rates: list[DifferenceEntry] = []
    for model in {entry[1].model for entry in remainder.entries_of_difference_part(RATE)}:
        model_rates = [entry for entry in remainder.rate_entries(model) if entry[1].day in chosen]
        series = model_rate_series(
            comparison.split, model, {meter for _, _, meter in model_rates}, remainder.remaining_billed_amount
        )
        for entry in model_rates:
            of_meter = series.get(entry[2])
            other_days = set(of_meter.worth) - chosen if of_meter is not None else set()
            if of_meter is None or not other_days or abs(of_meter.billed_ratio(other_days) - 1) <= SAME:
                rates.append(entry)
    return list(dict.fromkeys((*volume, *remainder.with_price_differences(volume), *rates)))


def _portions_beyond_usual_price(
    comparison: BillComparison, days: Collection[int]
) -> dict[DifferenceEntry, ClaimedPortion]:
    # the price difference of other days is assumed for the counted part of these days as well
    remainder = comparison.remainder
    split = comparison.split
    entries = [entry for entry in remainder.entries_of_difference_part(RATE) if entry[1].day in days]
    portions = {}
    for model in {entry[1].model for entry in entries}:
        cells = {cell for cell in split.cells_of_model(model) if cell.day not in days}
        meters = {meter for _, cell, meter in entries if cell.model == model}
        for meter, of_meter in cell_rate_series(
            split, cells, meters, remainder.remaining_billed_amount
        ).items():
            steps = of_meter.billed_ratio_periods() if of_meter.is_steady() else None
            for entry in (entry for entry in entries if (entry[1].model, entry[2]) == (model, meter)):
                prices = [price for since, price in steps or () if since <= entry[1].day]
                if prices and abs(prices[-1] - 1) > SAME and (entry[1], meter) in split.worth:
                    of_price = round((prices[-1] - 1) * split.worth[entry[1], meter])
                    portions[entry] = ClaimedPortion(remainder.amounts[entry] - of_price)
    return portions


def _join_days(days: list[int]) -> str:
    return join_names([day_text(day) for day in days])
