"""Calls that one side has and the other has not: keys, models and batches that nobody reports, and double reports."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping
from operator import attrgetter

from gateway.reconciliation.cells import OWN, RATE, Entry
from gateway.reconciliation.claims import EXACT, STRONG, WEAK, Case, Claim
from gateway.reconciliation.series import are_alike
from gateway.reconciliation.sides import INPUT, OUTPUT, BilledSums, Cell, CountedSums
from gateway.reconciliation.wording import named, percent

LEAST_SHARE = 0.01  # of the tokens: less is no gap
NEAR = 0.05
SAME_SIZE = 2.5  # names of one side alone are not told apart for sure while none has so many times the other's tokens
MEAN_ALIKE = 0.2
LEAST_KIND = 0.001  # of a model's tokens: of a smaller kind the share says nothing
UNEVEN = 2  # so many times the share of all tokens, or so small a part of it, a kind's may be

_POINT = "Let what uses it report to Tollhouse: point its base URL at the gateway, or send its OpenTelemetry here."


def unreported_traffic(case: Case) -> Iterator[Claim]:
    """Keys and models that are billed and that the ledger has no call of; then keys that are as large as the gap."""
    for name in ("key", "model"):
        for value in _only(case, name, billed=True):
            claim = case.left.take(
                "unreported_traffic",
                _entries(case, name, value),
                sure=WEAK if (alike := _may_be(case, name, value, billed=True)) else EXACT,
                evidence=f"the statement has the {name} {named([value])}, the ledger has no call of it{alike}",
                advice=_POINT,
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
            )
            if claim is not None:
                yield claim


def double_report(case: Case) -> Iterator[Claim]:
    """More was counted than billed: as much as one source reports, or twice as much."""
    left, counted = case.left, case.split.counted
    over = [entry for entry in left.volume() if left.extra[entry[1], entry[2]] < 0]
    gap, by_source = defaultdict[int, int](int), defaultdict[str, dict[int, int]](lambda: defaultdict(int))
    models = {cell.model for _, cell, _ in over}
    total = billed = 0
    for _, cell, meter in over:
        gap[cell.day] -= left.extra[cell, meter]
    for cell, sums in counted.items():
        if cell.model in models:
            total += sum(sums.tokens.values())
            for source, tokens in sums.by_source.items():
                by_source[source][cell.day] += tokens
    if sum(gap.values()) <= NEAR * total:
        return
    billed = total - sum(gap.values())
    twice = [source for source, days in sorted(by_source.items()) if are_alike(days, gap, NEAR)]
    if twice and len(by_source) > 1:
        others = named([source for source in sorted(by_source) if source != twice[0]])
        yield from _taken(
            case, "double_report", over, STRONG,
            f"{percent(total, billed)} of what was billed was counted: day by day as much too much as {twice[0]} "
            f"reports beside {others}",
            f"Count one of them: `count = false` in [sources.{twice[0]}].",
        )  # fmt: skip
    elif billed > 0 and abs(total / billed - 2) <= NEAR:
        yield from _taken(
            case, "double_report", over, WEAK,
            f"{total / billed:.2f} times what was billed was counted, by {named(sorted(by_source))}",
            "Look which two report the same calls (`tollhouse report --by source`), and set `count = false` for one.",
        )  # fmt: skip


def usage_missing(case: Case) -> Iterator[Claim]:
    """As many calls on both sides, and calls in the ledger whose tokens nobody told."""
    for model in case.models():
        ours, theirs = _of_model(case, model)
        if not ours.unsized or ours.calls <= ours.unsized:
            continue
        if theirs is not None and abs(theirs - ours.calls) > LEAST_SHARE * max(theirs, ours.calls):
            continue
        entries = _missing(case, model)
        gap = sum(case.left.extra[cell, meter] for _, cell, meter in entries)
        mean = sum(ours.tokens.values()) // (ours.calls - ours.unsized)
        is_alike = abs(gap - ours.unsized * mean) <= MEAN_ALIKE * max(gap, 1)
        if theirs is None and not is_alike:
            continue
        yield from _taken(
            case, "usage_missing", entries, STRONG if is_alike else WEAK,
            f"{ours.unsized:,} calls of {named([model])} came without their tokens: at the mean of the others they are "
            f"{ours.unsized * mean:,} of the {gap:,} that are missing",
            "Ask for usage in streams (`stream_options: {\"include_usage\": true}`); aborted streams tell none.",
        )  # fmt: skip


def batch_unreported(case: Case) -> Iterator[Claim]:
    """What is missing ran as a batch, whose results nobody reports."""
    told = {(cell.key, cell.model) for cell, sums in case.split.counted.items() if cell.tier == "batch" and sums.calls}
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
    for model in case.models():
        ours, theirs = _of_model(case, model)
        if not theirs or not ours.calls or theirs - ours.calls <= LEAST_SHARE * theirs:
            continue
        entries = _missing(case, model)
        gap = sum(case.left.extra[cell, meter] for _, cell, meter in entries)
        mean, missing = sum(ours.tokens.values()) / ours.calls, theirs - ours.calls
        if not gap or abs(gap / missing - mean) > MEAN_ALIKE * mean:
            continue
        yield from _taken(
            case, "unreported_calls", entries, STRONG,
            f"{theirs:,} calls of {named([model])} were billed and {ours.calls:,} counted, {ours.errors:,} of them "
            "failed; the missing ones have the same mean size",
            "Look for retries within an SDK, evaluations and other programs with the same key.",
        )  # fmt: skip


def missing_share(case: Case) -> Iterator[Claim]:
    """Where no calls are billed: all kinds of tokens of a model are short by about one share, on many days."""
    for model in case.models():
        ours, theirs = _of_model(case, model)
        billed: dict[str, int] = defaultdict(int)
        lacking: dict[str, int] = defaultdict(int)
        days: dict[int, int] = defaultdict(int)
        for cell, sums in case.split.billed.items():
            if cell.model == model:
                for meter, tokens in sums.tokens.items():
                    billed[_meter(meter)] += tokens
        for (cell, meter), extra in case.left.extra.items():
            if cell.model == model:
                lacking[_meter(meter)] += extra
                days[cell.day] += extra
        whole = sum(billed.values())
        if theirs or not ours.calls or not whole or len(billed) < 2:
            continue
        share = sum(lacking.values()) / whole
        shares = [lacking[meter] / tokens for meter, tokens in billed.items() if tokens >= LEAST_KIND * whole]
        is_even = all(share / UNEVEN <= each <= share * UNEVEN for each in shares)
        many = sum(extra > 0 for extra in days.values()) * 4 >= len(case.days)
        if share <= LEAST_SHARE or len(shares) < 2 or not is_even or not many:
            continue
        yield from _taken(
            case, "unreported_calls", _missing(case, model), WEAK,
            f"all kinds of tokens of {named([model])} are short by about {share:.1%} of what was billed; the statement "
            "does not tell how many calls that were",
            "Look for retries within an SDK, evaluations and other programs with the same key.",
        )  # fmt: skip


def _meter(meter: str) -> str:
    """Input that a cache had, wrote or did not see as one: what varies from call to call evens out in the sum."""
    return meter if meter == OUTPUT else INPUT


def _only(case: Case, name: str, *, billed: bool) -> list[str]:
    """The values of a field of cells that only the statement has, or only the ledger, in the whole time."""
    place = attrgetter(name)
    theirs = {place(cell) for cell, sums in case.split.billed.items() if any(sums.tokens.values()) or sums.calls}
    theirs |= {place(cell) for cell, amount in case.split.billed_money.items() if amount}
    ours = {place(cell) for cell, sums in case.split.counted.items() if sums.calls or any(sums.tokens.values())}
    is_silent = billed and name == "model" and not ours  # a provider of which nothing reports
    return sorted((theirs - ours if billed else ours - theirs) - {""}) if theirs and (ours or is_silent) else []


def _may_be(case: Case, name: str, value: str, *, billed: bool) -> str:
    """Words about a name that only the other side has, with about as many tokens: it may be the same; else ""."""
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
    return [each for each in case.left.volume() if each[1].model == model and case.left.extra[each[1], each[2]] > 0]


def _taken(case: Case, cause: str, entries: list[Entry], sure: str, evidence: str, advice: str) -> Iterator[Claim]:
    claim = case.left.take(cause, case.left.with_rates(entries), sure=sure, evidence=evidence, advice=advice)
    if claim is not None:
        yield claim


def _of_model(case: Case, model: str) -> tuple[CountedSums, int | None]:
    """What was counted of a model, and how many calls were billed; None if the statement does not tell."""
    ours, theirs = CountedSums(), None
    for cell, sums in case.split.counted.items():
        if cell.model == model:
            ours.calls, ours.errors = ours.calls + sums.calls, ours.errors + sums.errors
            ours.unsized += sums.unsized
            for meter, tokens in sums.tokens.items():
                ours.tokens[meter] += tokens
    for cell, billed in case.split.billed.items():
        if cell.model == model and billed.calls is not None:
            theirs = (theirs or 0) + billed.calls
    return ours, theirs


def _by_day(tokens: Mapping[tuple[int, str], int]) -> dict[int, int]:
    found: dict[int, int] = defaultdict(int)
    for (day, _), count in tokens.items():
        found[day] += count
    return found
