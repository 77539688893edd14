"""
Calls that one side has and the other has not: keys, models and batches that nobody reports, and double
reports.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from math import isqrt
from operator import attrgetter
from statistics import median

from gateway.reconciliation.causes.days import hints_at_shift
from gateway.reconciliation.cells import OWN, RATE, VOLUME, Entry
from gateway.reconciliation.claims import EXACT, OTHERS, STRONG, WEAK, Case, Claim, Portion
from gateway.reconciliation.series import are_alike
from gateway.reconciliation.sides import INPUT, OUTPUT, BilledSums, Cell, CountedSums
from gateway.reconciliation.wording import named, percent

LEAST_SHARE = 0.01  # of the tokens: less is not a gap
NEAR = 0.05
EXCHANGED = 0.1  # of the tokens that one side lacks, so many may be too many elsewhere
# names of one side alone are not told apart for sure while none has so many times the other's tokens
SAME_SIZE = 2.5
MEAN_ALIKE = 0.2
# times the mean size and the root of their number some calls may be off: few large ones are many tokens
CHANCE = 6
LEAST_KIND = 0.001  # of a model's tokens: of a smaller kind the share says nothing
FEW = 10  # days may be one in so many of all
LEAST_KINDS = 4  # of tokens of a day: of fewer it may be chance that each lacks half
UNEVEN = 2  # so many times the share of all tokens, or so small a part of it, a kind's may be

_POINT = (
    "Let what uses it report to Tollhouse: point its base URL at the gateway, or send its OpenTelemetry here."
)


@dataclass(frozen=True, kw_only=True)
class Doubts:
    """What else may hold in the place of a cause: in words, and by name."""

    words: str = ""
    beside: tuple[str, ...] = ()

    def __add__(self, other: Doubts) -> Doubts:
        return Doubts(words=self.words + other.words, beside=(*self.beside, *other.beside))


def unreported_traffic(case: Case) -> Iterator[Claim]:
    """
    Keys and models that are billed and that the ledger has no call of; then keys that are as large as the
    gap.
    """
    for name in ("key", "model"):
        for value in _only(case, name, billed=True):
            claim = case.left.take(
                "unreported_traffic",
                _entries(case, name, value),
                sure=WEAK if (alike := _may_be(case, name, value, billed=True)) else EXACT,
                evidence=f"the statement has the {name} {named([value])}, the ledger has no call of it{alike}",
                advice=_POINT,
                tells_calls=True,
            )
            if claim is not None:
                yield claim
    yield from _as_large_as_the_gap(case)


def _as_large_as_the_gap(case: Case) -> Iterator[Claim]:
    """Keys of the provider that no key of ours is like, and whose tokens are, day by day, what is missing."""
    alone = {
        key: tokens
        for key, tokens in case.key_tokens.items()
        if not any(are_alike(_by_day(tokens), own) for own in case.own_keys.values())
    }
    for keys in [[key] for key in sorted(alone)] + ([sorted(alone)] if len(alone) > 1 else []):
        wanted: dict[tuple[int, str], int] = defaultdict(int)
        for key in keys:
            for place, tokens in alone[key].items():
                wanted[place] += tokens
        entries, gap = [], defaultdict[int, int](int)
        for entry in case.left.volume():
            cell = entry[1]
            extra = case.left.extra[cell, entry[2]]
            if extra > 0 and wanted.get((cell.day, cell.model), 0) > 0:
                entries.append(entry)
                gap[cell.day] += extra
        if entries and are_alike(_by_day(wanted), gap):
            claim = case.left.take(
                "unreported_traffic",
                case.left.with_rates(entries),
                sure=STRONG,
                evidence=f"the tokens of the provider's key {named(keys)} are, day by day, those that are missing",
                advice=_POINT,
            )
            if claim is not None:
                yield claim
            return


def other_account(case: Case) -> Iterator[Claim]:
    """Keys and models that the ledger has and the statement has not: another account, or no bill at all."""
    for name in ("key", "model"):
        for value in _only(case, name, billed=False):
            claim = case.left.take(
                "other_account",
                _entries(case, name, value),
                sure=WEAK if (alike := _may_be(case, name, value, billed=False)) else STRONG,
                evidence=f"the ledger has calls of the {name} {named([value])}, the statement has none{alike}",
                advice="Import the statement of the account that pays; a subscription or a local server has none.",
                tells_calls=True,
            )
            if claim is not None:
                yield claim


def counted_twice(case: Case) -> Iterator[Claim]:
    """
    Keys or models of which exactly twice as much was counted, on every day of theirs, by two sources alike.
    """
    split, left = case.split, case.left
    twice = split.repeats.counted
    portions = {
        (VOLUME, cell, meter): Portion(-value // 2, -split.counted[cell].tokens[meter] // 2)
        for (cell, meter), value in split.values.items()
        if (cell.key, cell.model) in twice and cell not in left.told and value
    }
    names = sorted({source for sources in twice.values() for source in sources})
    claim = left.take(
        "double_report",
        portions,
        sure=STRONG,
        evidence=f"exactly twice as much was counted as was billed, on each day, as much by {' as by '.join(names)}",
        advice=f"Count one of them: `count = false` in [sources.{names[-1] if names else ''}].",
        portions=portions,
    )
    if claim is not None:
        yield claim


def double_report(case: Case) -> Iterator[Claim]:
    """More was counted than billed: as much as one source reports, or twice as much."""
    left, counted = case.left, case.split.counted
    over = [entry for entry in left.volume() if left.extra[entry[1], entry[2]] < 0]
    gap, by_source = defaultdict[int, int](int), defaultdict[str, dict[int, int]](lambda: defaultdict(int))
    models = {cell.model for _, cell, _ in over}
    lacking = sum(extra for (cell, _), extra in left.extra.items() if extra > 0 and cell.model in models)
    total = billed = 0
    for _, cell, meter in over:
        gap[cell.day] -= left.extra[cell, meter]
    for cell, sums in counted.items():
        if cell.model in models:
            total += sum(sums.tokens.values())
            for source, tokens in sums.by_source.items():
                by_source[source][cell.day] += tokens
    if sum(gap.values()) <= NEAR * total or lacking > EXCHANGED * sum(gap.values()):
        return
    billed = total - sum(gap.values())
    case.left.counted_again |= models
    others = [entry for entry in left.volume() if entry[1].model in models and entry not in over]
    over += others  # the few with too few tokens: both together are what is too many
    twice = [source for source, days in sorted(by_source.items()) if are_alike(days, gap, NEAR)]
    if twice and len(by_source) > 1:
        beside = named([source for source in sorted(by_source) if source != twice[0]])
        yield from _taken(
            case, "double_report", over, STRONG,
            f"{percent(total, billed)} of what was billed was counted: day by day as much too much as "
            f"{twice[0]} "
            f"reports beside {beside}",
            f"Count one of them: `count = false` in [sources.{twice[0]}].",
        )  # fmt: skip
    elif billed > 0 and abs(total / billed - 2) <= NEAR:
        yield from _taken(
            case, "double_report", over, WEAK,
            f"{total / billed:.2f} times what was billed was counted, by {named(sorted(by_source))}",
            "Look which two report the same calls (`tollhouse report --by source`), and set `count = false` "
            "for one.",
        )  # fmt: skip


def usage_missing(case: Case) -> Iterator[Claim]:
    """
    Calls in the ledger whose tokens nobody told; where calls are missing as well, each has its share by
    number.
    """
    for model in case.models():
        unusual = _unusual_days(case)
        ours, theirs = _of_model(case, model, unusual)
        if not ours.unsized or ours.calls <= ours.unsized:
            continue
        missing = 0 if theirs is None else theirs - ours.calls
        is_of_all = abs(missing) <= LEAST_SHARE * max(theirs or 0, ours.calls)
        entries = [entry for entry in _missing(case, model) if entry[1].day not in unusual]
        gap = sum(case.left.extra[cell, meter] for _, cell, meter in entries)
        mean = sum(ours.tokens.values()) // (ours.calls - ours.unsized)
        lacking = ours.unsized if is_of_all else ours.unsized + missing
        apart = abs(gap - lacking * mean)
        is_alike = apart <= MEAN_ALIKE * max(gap, 1)
        by_chance = max(MEAN_ALIKE * gap, CHANCE * mean * isqrt(max(lacking, 0)))
        is_near = apart <= by_chance or (theirs is not None and is_of_all)
        if (missing < 0 and not is_of_all) or not is_near or not entries:
            continue
        share = Fraction(ours.unsized, lacking)
        divided = "" if is_of_all else (
            f", and {missing:,} calls are missing: both are divided by their number"
        )  # fmt: skip
        yield from _taken(
            case, "usage_missing", entries, STRONG if is_alike and is_of_all else WEAK,
            f"{ours.unsized:,} calls of {named([model])} came without their tokens: at the mean of the "
            "others they are "
            f"{ours.unsized * mean:,} of the {gap:,} that are missing{divided}",
            "Ask for usage in streams (`stream_options: {\"include_usage\": true}`); aborted streams tell "
            "none.",
            portions={} if is_of_all else {entry: case.left.portion(entry, share) for entry in entries},
            beside=() if is_of_all else ("unreported_calls",),
        )  # fmt: skip


def batch_unreported(case: Case) -> Iterator[Claim]:
    """Claim missing tokens that ran as a batch, whose results nobody reports."""
    told = {
        (cell.key, cell.model)
        for cell, sums in case.split.counted.items()
        if cell.tier == "batch" and sums.calls
    }
    told |= case.left.untold_tiers
    entries = [
        entry
        for entry in case.left.volume()
        if entry[1].tier == "batch"
        and case.left.extra[entry[1], entry[2]] > 0
        and (entry[1].key, entry[1].model) not in told
    ]
    yield from _taken(
        case, "batch_unreported", entries, STRONG,
        "the statement has batch tokens of a model, and the ledger has no batch call of it",
        "Report results of batches when they are fetched, with the tag `processing` = `batch`.",
    )  # fmt: skip


def unreported_calls(case: Case) -> Iterator[Claim]:
    """More calls were billed, of the same mean size: retries within an SDK, evaluations, a second gateway."""
    may_be_shifted = hints_at_shift(case)
    for model in case.models():
        entries = _missing(case, model)
        unusual = _unusual_days(case)
        entries = [entry for entry in entries if entry[1].day not in unusual]
        ours, theirs = _of_model(case, model, unusual)
        if not theirs or not ours.calls or theirs - ours.calls <= LEAST_SHARE * theirs:
            continue
        gap = sum(case.left.extra[cell, meter] for _, cell, meter in entries)
        mean, missing = sum(ours.tokens.values()) / ours.calls, theirs - ours.calls
        if not gap or abs(gap / missing - mean) > MEAN_ALIKE * mean:
            continue
        doubts = _too_many(case, model, may_be_shifted=may_be_shifted)
        yield from _taken(
            case, "unreported_calls", entries, STRONG,
            f"{theirs:,} calls of {named([model])} were billed and {ours.calls:,} counted, {ours.errors:,} "
            "of them "
            f"failed; the missing ones have the same mean size{doubts.words}",
            "Look for retries within an SDK, evaluations and other programs with the same key.",
            beside=doubts.beside,
        )  # fmt: skip


def missing_share(case: Case) -> Iterator[Claim]:
    """
    Claim a missing share if no calls are billed: all kinds of tokens of a model lack about one share, on many
    days.
    """
    may_be_shifted = hints_at_shift(case)
    for model in case.models():
        ours, theirs = _of_model(case, model)
        billed: dict[str, int] = defaultdict(int)
        lacking: dict[str, int] = defaultdict(int)
        days: dict[int, int] = defaultdict(int)
        for cell, sums in case.split.billed.items():
            if cell.model == model and cell not in case.left.told:
                for meter, tokens in sums.tokens.items():
                    billed[_meter(meter)] += tokens
        for (cell, meter), extra in case.left.extra.items():
            if cell.model == model:
                lacking[_meter(meter)] += extra
                days[cell.day] += extra
        whole = sum(billed.values())
        if theirs or not ours.calls or not whole or len(billed) < 2 or model in case.left.counted_again:
            continue
        share = sum(lacking.values()) / whole
        shares = [lacking[meter] / tokens for meter, tokens in billed.items() if tokens >= LEAST_KIND * whole]
        is_even = all(share / UNEVEN <= each <= share * UNEVEN for each in shares)
        many = sum(extra > 0 for extra in days.values()) * 4 >= len(case.days)
        if share <= LEAST_SHARE or len(shares) < 2 or not is_even or not many:
            continue
        entries = _missing(case, model)
        unusual = _unusual_days(case)
        doubts = _unsized(ours) + _too_many(case, model, may_be_shifted=may_be_shifted)
        yield from _taken(
            case, "unreported_calls", [entry for entry in entries if entry[1].day not in unusual], WEAK,
            f"all kinds of tokens of {named([model])} are short by about {share:.1%} of what was billed; the "
            "statement "
            f"does not tell how many calls that were{doubts.words}",
            "Look for retries within an SDK, evaluations and other programs with the same key.",
            beside=doubts.beside,
        )  # fmt: skip


def _meter(meter: str) -> str:
    """
    Input that a cache had, wrote or did not see as one: what varies from call to call evens out in the sum.
    """
    return meter if meter == OUTPUT else INPUT


def _only(case: Case, name: str, *, billed: bool) -> list[str]:
    """The values of a field of cells that only the statement has, or only the ledger, in the whole time."""
    place = attrgetter(name)
    theirs = {
        place(cell) for cell, sums in case.split.billed.items() if any(sums.tokens.values()) or sums.calls
    }
    theirs |= {place(cell) for cell, amount in case.split.billed_money.items() if amount}
    ours = {
        place(cell) for cell, sums in case.split.counted.items() if sums.calls or any(sums.tokens.values())
    }
    is_silent = billed and name == "model" and not ours  # a provider of which nothing reports
    return (
        sorted((theirs - ours if billed else ours - theirs) - {""}) if theirs and (ours or is_silent) else []
    )


def _may_be(case: Case, name: str, value: str, *, billed: bool) -> str:
    """
    Words about a name that only the other side has, with about as many tokens: it may be the same; else "".
    """
    place = attrgetter(name)
    sides = (case.split.billed, case.split.counted) if billed else (case.split.counted, case.split.billed)

    def tokens(side: Mapping[Cell, BilledSums | CountedSums], of: str) -> int:
        return sum(sum(sums.tokens.values()) for cell, sums in side.items() if place(cell) == of)

    size = tokens(sides[0], value)
    others = _only(case, name, billed=not billed)
    alike = [
        each
        for each in others
        if size < SAME_SIZE * tokens(sides[1], each) and tokens(sides[1], each) < SAME_SIZE * size
    ]
    return f"; {named(alike)} on the other side has about as many tokens and may be the same" if alike else ""


def _entries(case: Case, name: str, value: str) -> list[Entry]:
    left, place = case.left, attrgetter(name)
    volume = [each for each in left.volume() if place(each[1]) == value]
    priced = [each for part in (RATE, OWN) for each in left.of(part) if place(each[1]) == value]
    return list(dict.fromkeys((*left.with_rates(volume), *priced)))


def _missing(case: Case, model: str) -> list[Entry]:
    """
    Entries of a model with too few tokens, and the few with too many; none where about as many are too many,
    which no missing call explains.
    """
    extras = {(cell, meter): extra for (cell, meter), extra in case.left.extra.items() if cell.model == model}
    found: list[Entry] = [(VOLUME, *place) for place in extras]
    lacking, over = (
        sum(abs(each) for each in extras.values() if (each > 0) is sign) for sign in (True, False)
    )
    return found if over <= EXCHANGED * lacking else []


def _unusual_days(case: Case) -> set[int]:
    """
    The few days that lack at least half of every kind of token of every model and tier, where the others lack
    some: rows of them may stand in the report twice, or calls of half a day be missing.
    """
    said: dict[int, list[bool]] = defaultdict(list)
    usual: dict[int, list[int]] = defaultdict(lambda: [0, 0])
    counted = {(cell, meter) for cell, sums in case.split.counted.items() for meter in sums.tokens}
    for cell, meter in counted | case.left.extra.keys():
        tokens, extra = case.left.said((VOLUME, cell, meter)).tokens, case.left.extra.get((cell, meter), 0)
        if tokens > 0:
            said[cell.day].append(extra * 2 >= tokens)
            usual[cell.day][0] += extra
            usual[cell.day][1] += tokens
    far = {day for day, halves in said.items() if len(halves) >= LEAST_KINDS and all(halves)}
    is_usual = bool(usual) and median(extra / tokens for extra, tokens in usual.values()) > LEAST_SHARE
    return far if is_usual and len(far) * FEW <= len(said) else set()


def _unsized(ours: CountedSums) -> Doubts:
    """Some of what is missing may be of calls that the ledger has without their tokens."""
    if not ours.unsized:
        return Doubts()
    return Doubts(words=f"; {ours.unsized:,} calls came without tokens", beside=("usage_missing",))


def _too_many(case: Case, model: str, *, may_be_shifted: bool) -> Doubts:
    """A model has tokens too many in other places, or of other days: some of what is missing may be these."""
    extras = [extra for (cell, _), extra in case.left.extra.items() if cell.model == model]
    over = -sum(extra for extra in extras if extra < 0)
    is_much = over > LEAST_SHARE * sum(extra for extra in extras if extra > 0)
    words = f"; {over:,} tokens are too many in other places" if is_much else ""
    if may_be_shifted:
        return Doubts(words=f"{words}; times that differ would explain how days do", beside=("time_edge",))
    return Doubts(words=words, beside=(OTHERS,) if is_much else ())


def _taken(
    case: Case,
    cause: str,
    entries: list[Entry],
    sure: str,
    evidence: str,
    advice: str,
    portions: Mapping[Entry, Portion] | None = None,
    beside: Sequence[str] = (),
) -> Iterator[Claim]:
    entries = entries if portions else case.left.with_rates(entries)
    claim = case.left.take(
        cause, entries, sure=sure, evidence=evidence, advice=advice, portions=portions, beside=beside
    )
    if claim is not None:
        yield claim


def _of_model(case: Case, model: str, without: Collection[int] = ()) -> tuple[CountedSums, int | None]:
    """
    Return the counted sums of a model and the number of billed calls (None: not stated), where they are not
    explained yet.
    """
    ours, theirs = CountedSums(), None
    for cell, sums in case.split.counted.items():
        if cell.model == model and cell not in case.left.told and cell.day not in without:
            ours.calls, ours.errors = ours.calls + sums.calls, ours.errors + sums.errors
            ours.unsized += sums.unsized
            for meter, tokens in sums.tokens.items():
                ours.tokens[meter] += tokens
    for cell, billed in case.split.billed.items():
        is_open = cell not in case.left.told and cell.day not in without
        if cell.model == model and billed.calls is not None and is_open:
            theirs = (theirs or 0) + billed.calls
    return ours, theirs


def _by_day(tokens: Mapping[tuple[int, str], int]) -> dict[int, int]:
    found: dict[int, int] = defaultdict(int)
    for (day, _), count in tokens.items():
        found[day] += count
    return found
