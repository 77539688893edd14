"""Calls that the ledger lacks, or has without tokens, for keys and models that both sides know."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction
from math import isqrt
from statistics import median

from gateway.bills.reconciliation.causes.days import hints_at_shift
from gateway.bills.reconciliation.cells import Entry
from gateway.bills.reconciliation.claims import EXCHANGED, OTHERS, STRONG, WEAK, Case, Claim
from gateway.bills.reconciliation.sides import INPUT, OUTPUT, VOLUME, Cell, CountedSums, Place
from gateway.bills.reconciliation.wording import day_text, named

LEAST_SHARE = 0.01  # share of the tokens; a difference below this share is not a gap
MEAN_ALIKE = 0.2
# Limits of random variation. The tokens of n calls may differ from the expected number by this multiple of
# the mean call size times the square root of n. CHANCE is wide, because a few large calls have many tokens.
# LIKELY covers most cases.
CHANCE, LIKELY = 6, 3
# share of a model's tokens; kinds below this share are ignored, because they may lack any share by chance
LEAST_KIND = 0.001
FEW = 10  # at most 1/FEW of the days may be unusual
# Minimum kinds of tokens on a day that lacks half of its tokens. With fewer kinds, all of them may lack
# half by chance.
LEAST_KINDS = 4
LEAST_CALLS = 10  # minimum counted calls on a day with fewer than LEAST_KINDS kinds of tokens
# If a day has fewer than LEAST_KINDS kinds of tokens, the other days may lack at most this share of their tokens.
MOST_USUAL = 0.2
UNEVEN = 2  # maximum ratio between the share that one kind of token lacks and the share that all tokens lack
_ASK_FOR_USAGE = (
    'Request usage in streams (`stream_options: {"include_usage": true}`). Aborted streams report no usage.'
)

# cell, meter, tokens that the ledger lacks for both, and billed tokens
_Said = tuple[Cell, str, int, int]


@dataclass(frozen=True, kw_only=True)
class Doubts:
    """
    Other causes that would explain the same tokens: `words` for the evidence, and the names of the
    causes in `beside`.
    """

    note: str = ""
    beside: tuple[str, ...] = ()

    def __add__(self, other: Doubts) -> Doubts:
        return Doubts(note=self.note + other.note, beside=(*self.beside, *other.beside))


@dataclass(frozen=True, kw_only=True)
class _UnsizedCalls:
    """
    Calls of one model that reached the ledger without token counts.

    `gap` is the number of billed tokens that the ledger lacks at the `entries`. `mean` is the mean size of the model's
    other calls, in tokens. `missing` is the number of billed calls that the ledger lacks: 0 if it is within
    LEAST_SHARE, None if the bill does not state the number of calls.
    """

    model: str
    number: int
    mean: int
    gap: int
    entries: list[Entry]
    missing: int | None

    def is_explained_by(self, calls: int) -> bool:
        """Return whether `calls` calls of mean size add up to the gap, apart from random variation."""
        return self._apart(calls) <= max(MEAN_ALIKE * self.gap, CHANCE * self.mean * isqrt(calls))

    def is_close_to(self, calls: int) -> bool:
        """Return whether `calls` calls of mean size add up to the gap within MEAN_ALIKE."""
        return self._apart(calls) <= MEAN_ALIKE * max(self.gap, 1)

    @property
    def may_lack_calls(self) -> bool:
        """Return whether the gap is too large for these calls, even with random variation."""
        likely = max(MEAN_ALIKE * self.gap, LIKELY * self.mean * isqrt(self.number))
        return self.gap - self.number * self.mean > likely

    @property
    def evidence(self) -> str:
        return (
            f"{self.number:,} calls of {named([self.model])} came without tokens; at the mean size of "
            f"the other calls, they are {self.number * self.mean:,} of the {self.gap:,} missing tokens"
        )

    def _apart(self, calls: int) -> int:
        return abs(self.gap - calls * self.mean)


def usage_missing(case: Case) -> Iterator[Claim]:
    """Explain missing tokens by calls that reached the ledger without token counts."""
    for model in case.models():
        calls = _unsized_calls(case, model)
        if calls is None:
            continue
        if calls.missing:
            yield from _share_of_missing_tokens(case, calls, calls.missing)
        else:
            yield from _all_missing_tokens(case, calls)


def _all_missing_tokens(case: Case, calls: _UnsizedCalls) -> Iterator[Claim]:
    """
    Claim all missing tokens: gap = number x mean, apart from random variation (see `is_explained_by`).

    If the bill states the number of calls and the ledger has all of them, the whole gap belongs to these calls.
    If the bill does not state the number, the ledger may lack some calls as well.
    """
    if calls.missing is None and not calls.is_explained_by(calls.number):
        return
    evidence = calls.evidence
    beside: tuple[str, ...] = ()
    if calls.missing is None and calls.may_lack_calls:
        evidence += "; the bill does not state the number of calls, so some calls may be missing as well"
        beside = ("unreported_calls",)
    sure = STRONG if calls.is_close_to(calls.number) else WEAK
    yield from case.taken("usage_missing", calls.entries, sure, evidence, _ASK_FOR_USAGE, beside=beside)


def _share_of_missing_tokens(case: Case, calls: _UnsizedCalls, missing: int) -> Iterator[Claim]:
    """
    Claim part of the missing tokens for calls without tokens, if the ledger lacks calls as well.

    The check is gap = (number + missing) x mean, apart from random variation. The part is number /
    (number + missing).
    """
    lacking = calls.number + missing
    if missing < 0 or not calls.is_explained_by(lacking):
        return
    share = Fraction(calls.number, lacking)
    yield from case.taken(
        "usage_missing",
        calls.entries,
        WEAK,
        f"{calls.evidence}; {missing:,} calls are missing as well, and the tokens are divided by the "
        "numbers of calls",
        _ASK_FOR_USAGE,
        portions={entry: case.remainder.portion(entry, share) for entry in calls.entries},
        beside=("unreported_calls",),
    )


def _unsized_calls(case: Case, model: str) -> _UnsizedCalls | None:
    """
    Return a model's calls without tokens. Return None if there are none, if all calls lack tokens, or if no
    tokens are missing.
    """
    if not any(sums.unsized for cell, sums in case.split.counted.items() if cell.model == model):
        return None
    unusual = _unusual_days(case)
    ours, theirs = _of_model(case, model, unusual)
    if not ours.unsized or ours.calls <= ours.unsized:
        return None
    entries = [entry for entry in _missing(case, model) if entry[1].day not in unusual]
    if not entries:
        return None
    missing = None
    if theirs is not None:
        missing = theirs - ours.calls
        if abs(missing) <= LEAST_SHARE * max(theirs, ours.calls):
            missing = 0
    return _UnsizedCalls(
        model=model,
        number=ours.unsized,
        mean=sum(ours.tokens.values()) // (ours.calls - ours.unsized),
        gap=sum(case.remainder.extra[cell, meter] for _, cell, meter in entries),
        entries=entries,
        missing=missing,
    )


def batch_unreported(case: Case) -> Iterator[Claim]:
    """Claim missing batch tokens of models without any counted batch call."""
    reported = {
        (cell.key, cell.model)
        for cell, sums in case.split.counted.items()
        if cell.tier == "batch" and sums.calls
    }
    reported |= case.remainder.unreported_tiers
    entries = [
        entry
        for entry in case.remainder.volume()
        if entry[1].tier == "batch"
        and case.remainder.extra[entry[1], entry[2]] > 0
        and (entry[1].key, entry[1].model) not in reported
    ]
    yield from case.taken(
        "batch_unreported",
        entries,
        STRONG,
        "the bill has batch tokens of a model, but Tollhouse has no batch call of it",
        "Report batch results when they are fetched, with the tag `processing` = `batch`.",
    )


def unreported_calls(case: Case) -> Iterator[Claim]:
    """
    Claim missing calls if the bill has more calls with the same mean size. Typical causes are retries within
    an SDK, evaluations, and a second gateway.
    """
    may_be_shifted = hints_at_shift(case)
    for model in case.models():
        entries = _missing(case, model)
        if not entries:
            continue
        unusual = _unusual_days(case)
        entries = [entry for entry in entries if entry[1].day not in unusual]
        ours, theirs = _of_model(case, model, unusual)
        if not theirs or not ours.calls or theirs - ours.calls <= LEAST_SHARE * theirs:
            continue
        gap = sum(case.remainder.extra[cell, meter] for _, cell, meter in entries)
        mean = sum(ours.tokens.values()) / ours.calls
        missing = theirs - ours.calls
        if not gap or abs(gap / missing - mean) > MEAN_ALIKE * mean:
            continue
        doubts = _too_many(case, model, may_be_shifted=may_be_shifted) + _silent(case)
        yield from case.taken(
            "unreported_calls",
            entries,
            STRONG,
            f"{theirs:,} calls of {named([model])} were billed and {ours.calls:,} counted "
            f"({ours.errors:,} failed); the missing calls have the same mean size{doubts.note}",
            "Look for retries within an SDK, evaluations, and other programs with the same key.",
            beside=doubts.beside,
        )


def missing_share(case: Case) -> Iterator[Claim]:
    """
    Claim missing calls if the bill states no calls, but all kinds of a model's tokens lack about the same
    share on many days.
    """
    may_be_shifted = hints_at_shift(case)
    for model in case.models():
        ours, theirs = _of_model(case, model)
        billed: dict[str, int] = defaultdict(int)
        lacking: dict[str, int] = defaultdict(int)
        days: dict[int, int] = defaultdict(int)
        for cell, sums in case.split.billed.items():
            if cell.model == model and cell not in case.remainder.explained:
                for meter, tokens in sums.tokens.items():
                    billed[_meter(meter)] += tokens
        for (cell, meter), extra in case.remainder.extra.items():
            if cell.model == model:
                lacking[_meter(meter)] += extra
                days[cell.day] += extra
        whole = sum(billed.values())
        if theirs or not ours.calls or not whole or len(billed) < 2 or model in case.remainder.counted_again:
            continue
        if ours.unsized and may_be_shifted:
            continue  # calls without tokens and shifted times would together also make many days lack a share
        share = sum(lacking.values()) / whole
        shares = [lacking[meter] / tokens for meter, tokens in billed.items() if tokens >= LEAST_KIND * whole]
        is_even = all(share / UNEVEN <= day_share <= share * UNEVEN for day_share in shares)
        many = sum(extra > 0 for extra in days.values()) * 4 >= len(case.days)
        if share <= LEAST_SHARE or len(shares) < 2 or not is_even or not many:
            continue
        entries = _missing(case, model)
        unusual = _unusual_days(case)
        doubts = _unsized(ours) + _too_many(case, model, may_be_shifted=may_be_shifted) + _silent(case)
        yield from case.taken(
            "unreported_calls",
            [entry for entry in entries if entry[1].day not in unusual],
            WEAK,
            f"all kinds of tokens of {named([model])} lack about {share:.1%} of the billed amount; "
            f"the bill does not state the number of calls{doubts.note}",
            "Look for retries within an SDK, evaluations, and other programs with the same key.",
            beside=doubts.beside,
        )


def _meter(meter: str) -> str:
    """Treat all kinds of input as one, because their shares vary from call to call but even out in total."""
    return meter if meter == OUTPUT else INPUT


def _missing(case: Case, model: str) -> list[Entry]:
    """
    Return a model's volume entries. Return nothing if about as many tokens are surplus as missing, because
    missing calls do not explain that.
    """
    extras = {
        (cell, meter): extra for (cell, meter), extra in case.remainder.extra.items() if cell.model == model
    }
    entries: list[Entry] = [(VOLUME, *cell_meter) for cell_meter in extras]
    lacking, surplus = (
        sum(abs(extra) for extra in extras.values() if (extra > 0) is sign) for sign in (True, False)
    )
    return entries if surplus <= EXCHANGED * lacking else []


def _unusual_days(case: Case) -> set[int]:
    """
    Return the few days that lack at least half of everything. The report may repeat their rows, or calls of
    half a day may be missing. Return nothing unless the other days lack some tokens as well.
    """
    billed_places = list(_said(case))
    halves, lacking = _days_lacking_half(case, billed_places), _lacking(billed_places)
    other_days = [day_sums for day, day_sums in lacking.items() if day not in halves]
    extra, tokens = (sum(day_sums[index] for day_sums in other_days) for index in (0, 1))
    return halves if extra > LEAST_SHARE * tokens and len(halves) * FEW <= len(lacking) else set()


def _lacking(billed_places: Iterable[_Said]) -> dict[int, tuple[int, int]]:
    """Return missing and billed tokens by day."""
    by_day: dict[int, tuple[int, int]] = defaultdict(lambda: (0, 0))
    for cell, _, extra, tokens in billed_places:
        by_day[cell.day] = by_day[cell.day][0] + extra, by_day[cell.day][1] + tokens
    return by_day


def _said(case: Case) -> Iterator[_Said]:
    """Yield all cells and meters with billed tokens."""
    counted = {(cell, meter) for cell, sums in case.split.counted.items() for meter in sums.tokens}
    for cell, meter in counted | case.remainder.extra.keys():
        tokens = case.remainder.said_tokens(cell, meter)
        if tokens > 0:
            yield cell, meter, case.remainder.extra.get((cell, meter), 0), tokens


def days_lacking_half(case: Case) -> set[int]:
    """
    Return the days that lack at least half of every kind of token of every key and model. Tiers are compared
    separately unless the other days lack little.
    """
    return _days_lacking_half(case, list(_said(case)))


def _days_lacking_half(case: Case, places: Sequence[_Said]) -> set[int]:
    are_few = median([extra / tokens for extra, tokens in _lacking(places).values()] or [0]) <= MOST_USUAL
    kinds: dict[Place, list[int]] = defaultdict(lambda: [0, 0])
    for cell, meter, extra, tokens in places:
        sums = kinds[cell._replace(tier="", region="") if are_few else cell, meter]
        sums[0] += extra
        sums[1] += tokens
    halves_by_day: dict[int, list[bool]] = defaultdict(list)
    for (cell, _), (extra, tokens) in kinds.items():
        halves_by_day[cell.day].append(extra * 2 >= tokens)
    calls = Counter[int]()
    for cell, counted_sums in case.split.counted.items():
        calls[cell.day] += counted_sums.calls
    return {
        day
        for day, halves in halves_by_day.items()
        if all(halves) and (len(halves) >= LEAST_KINDS or (are_few and calls[day] >= LEAST_CALLS))
    }


def _unsized(ours: CountedSums) -> Doubts:
    """Return calls without token counts as another possible cause of missing tokens."""
    if not ours.unsized:
        return Doubts()
    return Doubts(note=f"; {ours.unsized:,} calls came without tokens", beside=("usage_missing",))


def _silent(case: Case) -> Doubts:
    """Return hours without a call as another possible cause of missing tokens."""
    if not case.remainder.may_be_silent:
        return Doubts()
    days = named([day_text(day) for day in case.remainder.may_be_silent])
    return Doubts(note=f"; hours without a call on {days} may also be a gap", beside=("no_telemetry",))


def _too_many(case: Case, model: str, *, may_be_shifted: bool) -> Doubts:
    """Return other possible causes of missing tokens: a surplus in other places, or shifted times."""
    extras = [extra for (cell, _), extra in case.remainder.extra.items() if cell.model == model]
    surplus = -sum(extra for extra in extras if extra < 0)
    is_much = surplus > LEAST_SHARE * sum(extra for extra in extras if extra > 0)
    note = f"; {surplus:,} tokens are surplus in other places" if is_much else ""
    if may_be_shifted:
        return Doubts(
            note=f"{note}; shifted times would also explain the differences of days", beside=("time_edge",)
        )
    return Doubts(note=note, beside=(OTHERS,) if is_much else ())


def _of_model(case: Case, model: str, without: Collection[int] = ()) -> tuple[CountedSums, int | None]:
    """
    Return a model's counted sums and its number of billed calls (None if not stated), without explained cells.
    """
    ours, theirs = CountedSums(), None
    for cell, sums in case.split.counted.items():
        if cell.model == model and cell not in case.remainder.explained and cell.day not in without:
            ours.calls, ours.errors = ours.calls + sums.calls, ours.errors + sums.errors
            ours.unsized += sums.unsized
            for meter, tokens in sums.tokens.items():
                ours.tokens[meter] += tokens
    for cell, billed in case.split.billed.items():
        is_open = cell not in case.remainder.explained and cell.day not in without
        if cell.model == model and billed.calls is not None and is_open:
            theirs = (theirs or 0) + billed.calls
    return ours, theirs
