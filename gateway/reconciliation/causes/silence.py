"""Days and hours of which one side has nothing, or the bill has all a second time."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterator
from fractions import Fraction

from gateway.reconciliation.cells import RATE, VOLUME, Entry
from gateway.reconciliation.claims import EXACT, STRONG, Case, Claim, Portion
from gateway.reconciliation.rate_series import SAME, of_model
from gateway.reconciliation.sides import DAY_S
from gateway.reconciliation.wording import day_text, named

HOUR_S = 3600
LEAST_HOURS = 5  # without a call that have one on other days: fewer are chance
LEAST_SHARE = 0.1  # of a day's tokens: less is no part of a day
LEAST_USUAL = 0.2  # of a day's tokens: what the silent hours have on other days
ALIKE = 3  # so many times as much as the hours usually have, or so small a part of it, a day may lack

_POINT = "Look whether the gateway, or what reports to it, stood still or was not in use yet."


def no_telemetry(case: Case) -> Iterator[Claim]:
    """Days with a bill and without a call, while there are calls on others."""
    counted, billed = _days(case)
    silent = sorted((billed - counted) & _open(case))
    if not silent or not counted:
        return
    claim = case.left.take(
        "no_telemetry",
        _entries(case, silent),
        sure=EXACT,
        evidence=f"{_named(silent)}: the statement has tokens or money, the ledger has no call, as it has on "
        f"{len(counted):,} other days",
        advice=_POINT,
        tells_calls=True,
    )
    if claim is not None:
        yield claim


def no_bill(case: Case) -> Iterator[Claim]:
    """Days with calls of which a statement says that nothing was billed, as it does of others."""
    counted, billed = _days(case)
    free = sorted(day for day in (counted - billed) & _open(case) if day in case.split.metered)
    if not free or not billed:
        return
    claim = case.left.take(
        "no_bill",
        _entries(case, free),
        sure=EXACT,
        evidence=f"{_named(free)}: the ledger has calls, and the statement, which is about these days, has nothing",
        advice="Import the statement of these days again, whole; or look which account paid them.",
        tells_calls=True,
    )
    if claim is not None:
        yield claim


def billed_twice(case: Case) -> Iterator[Claim]:
    """
    Days of which the statement has the tokens of each model exactly twice, or more often: rows that came
    again.
    """
    split, left = case.split, case.left
    again = split.repeats.billed
    portions = {}
    for (cell, meter), value in split.values.items():
        if cell.day in again and cell not in left.told:
            own = split.counted[cell].tokens.get(meter, 0) if cell in split.counted else 0
            share = 1 - Fraction(1, again[cell.day])
            said = own + split.extra.get((cell, meter), 0)
            worth = value + split.parts.get((VOLUME, cell, meter), 0)
            portions[VOLUME, cell, meter] = Portion(round(worth * share), round(said * share))
    claim = left.take(
        "billed_twice",
        portions,
        sure=STRONG,
        evidence=f"{_named(sorted(again))}: the statement has input and output of each model exactly twice, or more",
        advice="Look whether rows of these days stand in the report more than once, and import it again.",
        portions=portions,
        tells_calls=True,
    )
    if claim is not None:
        yield claim


def silent_hours(case: Case) -> Iterator[Claim]:
    """Hours in a row without a call, on a day that lacks about as much as these hours have on other days."""
    lacking: dict[int, int] = defaultdict(int)
    for (cell, _), extra in case.left.extra.items():
        lacking[cell.day] += extra
    billed: dict[int, int] = defaultdict(int)
    for cell, sums in case.split.billed.items():
        billed[cell.day] += sum(sums.tokens.values())
    whole = [day for day in case.days if abs(lacking[day]) <= LEAST_SHARE * billed[day] and billed[day]]
    days, words = [], []
    for day in sorted(lacking):
        if not case.hours or lacking[day] <= LEAST_SHARE * billed[day] or len(whole) * 2 < len(case.days):
            continue
        first, hours = _longest_silence(case, day)
        usual = [
            case.hours.get(other + hour * HOUR_S, 0)
            for other in whole
            for hour in range(first, first + hours)
        ]
        mean, mean_day = sum(usual) / len(whole), sum(billed[other] for other in whole) / len(whole)
        is_as_usual = mean >= LEAST_USUAL * mean_day and mean / ALIKE <= lacking[day] <= mean * ALIKE
        if is_as_usual and sum(map(bool, usual)) >= LEAST_HOURS * len(whole):
            days.append(day)
            words.append(f"{day_text(day)} {first:02d}:00 to {first + hours:02d}:00")
    if not days:
        return
    claim = case.left.take(
        "no_telemetry",
        _entries(case, days),
        sure=STRONG,
        evidence=f"{named(words)} (UTC): the ledger has no call, and the day lacks about what other days have then",
        advice=_POINT,
        tells_calls=True,
    )
    if claim is not None:
        yield claim


def _longest_silence(case: Case, day: int) -> tuple[int, int]:
    """The first hour of the longest time of a day without a counted token, and how many hours that is."""
    best, begun = (0, 0), 0
    for hour in range(DAY_S // HOUR_S):
        if case.hours.get(day + hour * HOUR_S, 0):
            begun = hour + 1
        elif hour + 1 - begun > best[1]:
            best = (begun, hour + 1 - begun)
    return best


def _days(case: Case) -> tuple[set[int], set[int]]:
    """Those with counted calls, and those with billed tokens, calls or money."""
    counted = {
        cell.day for cell, sums in case.split.counted.items() if sums.calls or any(sums.tokens.values())
    }
    billed = {cell.day for cell, sums in case.split.billed.items() if any(sums.tokens.values()) or sums.calls}
    return counted, billed | {cell.day for cell, _ in case.split.paid}


def _open(case: Case) -> set[int]:
    """Days of which no other test has taken the tokens, or that have none."""
    return {cell.day for _, cell, _ in case.left.volume()} | (set(case.days) - case.split.metered)


def _entries(case: Case, days: Collection[int]) -> list[Entry]:
    """
    What is left of tokens on some days, with the rates there unless the model has them on other days as well.
    """
    left, chosen = case.left, set(days)
    volume = [entry for entry in left.volume() if entry[1].day in chosen]
    rates: list[Entry] = []
    for model in {entry[1].model for entry in left.of(RATE)}:
        of_model_ = [entry for entry in left.of(RATE) if entry[1].model == model and entry[1].day in chosen]
        series = of_model(case.split, model, {meter for _, _, meter in of_model_}, left.paid)
        for entry in of_model_:
            of_meter = series.get(entry[2])
            others = set(of_meter.worth) - chosen if of_meter is not None else set()
            if of_meter is None or not others or abs(of_meter.ratio(others) - 1) <= SAME:
                rates.append(entry)
    return list(dict.fromkeys((*volume, *left.with_rates(volume), *rates)))


def _named(days: list[int]) -> str:
    return named([day_text(day) for day in days])
