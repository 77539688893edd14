"""Comparison of a reconciliation with the causes that were planted in a simulated month."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from decimal import Decimal
from itertools import combinations

from gateway.bills.reconciliation.causes.list import ANY_PRICE
from gateway.bills.reconciliation.claims import OF_PRICES
from gateway.bills.reconciliation.comparing import Reconciliation
from gateway.bills.reconciliation.lines import ComparisonLine
from gateway.bills.reconciliation.sides import PARTS
from gateway.bills.reconciliation.wording import build_rounded_comparison_row
from spool import money
from tests.gateway.bills.reconciliation.plants import Plant, difference, no_call, prices_of, same_calls

RIGHT, HINTED, UNEXPLAINED, WRONG, INVENTED = ("right", "hinted", "unexplained", "wrong", "invented")
NEAR = Decimal("0.001")  # tolerance as a share of the planted amount
# minimum tolerance in dollars, for planted amounts below a quarter of a dollar
HALF_A_CENT = Decimal("0.005")
PENNY = Decimal("0.01")


@dataclass(frozen=True, kw_only=True)
class Verdict:
    """
    The result of a comparison. `error` is the largest relative error of a claim. `words` describes what was
    planted and found.
    """

    state: str
    error: Decimal
    words: str


def dollars(units: int) -> Decimal:
    return Decimal(money.units_to_text(units))


def holds(found: Reconciliation) -> None:
    """Check that the identities hold exactly, in total and for each line."""
    for line in (found.total, *found.days, *found.models, *found.keys):
        assert line.billed == line.counted + sum(line.parts[name] for name in PARTS)
        assert line.difference == sum(line.causes.values()) + line.unexplained
        for places in (2, 4):
            is_added_up(line, places)
    assert found.total.difference == sum(claim.amount for claim in found.claims) + found.total.unexplained


def is_added_up(line: ComparisonLine, places: int) -> None:
    """Check that the shown amounts of a line add up, and that each is its exact amount but for the rounding."""
    causes = {cause: money.units_to_text(amount) for cause, amount in line.causes.items()}
    exact = {name: money.units_to_text(getattr(line, name)) for name in ("billed", "counted", "unexplained")}
    shown = build_rounded_comparison_row(
        exact["billed"], exact["counted"], causes, exact["unexplained"], places=places
    )
    assert shown.billed - shown.counted == sum(shown.causes.values()) + shown.unexplained
    assert shown.explained == sum(shown.causes.values())
    half = Decimal(1).scaleb(-places) / 2
    assert abs(shown.billed - dollars(line.billed)) <= half
    assert abs(shown.counted - dollars(line.counted)) <= half
    assert abs(shown.unexplained - dollars(line.unexplained)) <= half * (1 if causes else 2)
    assert line.unexplained or not causes or not shown.unexplained
    for cause, amount in shown.causes.items():
        assert abs(amount - dollars(line.causes[cause])) <= half * (len(causes) + 3)


def sums_of(found: Reconciliation, planted: Sequence[Plant] = ()) -> dict[str, Decimal]:
    """Sum the claims by cause. Claims below a cent count only if their cause was planted."""
    known = {cause for plant in planted for cause in plant.causes}
    sums: dict[str, Decimal] = defaultdict(Decimal)
    for claim in found.claims:
        sums[claim.cause] += dollars(claim.amount)
    moved_by_cause: Counter[str] = Counter()
    for claim in found.claims:
        moved_by_cause[claim.cause] += claim.moved
    return {
        cause: amount
        for cause, amount in sums.items()
        if cause in known or dollars(moved_by_cause[cause]) >= PENNY
    }


def judged_alone(found: Reconciliation, plant: Plant) -> Verdict:
    """
    Judge a month with one planted cause. Only this cause may be claimed, and the claim must cover
    the whole difference.
    """
    holds(found)
    sums, whole = sums_of(found, [plant]), dollars(found.total.difference)
    causes = {claim.cause for claim in found.claims}
    claimed = sum((amount for cause, amount in sums.items() if cause in plant.causes), Decimal(0))
    other_sums = {cause: amount for cause, amount in sums.items() if cause not in plant.causes}
    message = f"planted {whole:.4f}, found {_words(sums)}{_hints(found)}"
    error = abs(claimed - whole) / abs(whole) if whole else Decimal(0)
    if other_sums:
        return Verdict(state=INVENTED, error=error, words=message)
    if is_near(claimed, whole, whole) and (whole or not plant.causes or plant.causes[0] in causes):
        return Verdict(state=RIGHT, error=error, words=message)
    state = HINTED if _is_hinted(plant, found) else UNEXPLAINED
    return Verdict(state=WRONG if claimed else state, error=error, words=message)


def is_near(claimed: Decimal, wanted: Decimal, size: Decimal) -> bool:
    return abs(claimed - wanted) <= max(NEAR * abs(size), HALF_A_CENT)


def judged_together(provider: str, seed: int, found: Reconciliation, plants: Sequence[Plant]) -> Verdict:
    """
    Judge a month with several causes.

    Each cause is claimed with its amount, or some of its amount is unexplained. If two causes affect each other,
    such as unreported calls and their price, that effect may be in the claim of either.
    """
    holds(found)
    assert found.total.difference == difference(provider, seed, plants, world=prices_of(plants))
    sums, months = sums_of(found, plants), Months(provider, seed, plants)
    claimed = [sum((sums.get(cause, Decimal(0)) for cause in plant.causes), Decimal(0)) for plant in plants]
    shares = [months.shares(frozenset({plant_index})) for plant_index in range(len(plants))]
    planted = [f"{min(share):.3f} to {max(share):.3f}" for share in shares]
    in_all = dollars(found.total.difference)
    message = f"planted {planted}, found {_words(sums)}, in all {in_all:.3f}{_hints(found)}"
    if sums.keys() - {cause for plant in plants for cause in plant.causes}:
        return Verdict(state=INVENTED, error=Decimal(0), words=message)
    error = max(map(_error, claimed, shares))
    right = {
        plant_index for plant_index, share in enumerate(shares) if _is_of_share(claimed[plant_index], share)
    }
    short = {
        plant_index
        for plant_index, share in enumerate(shares)
        if _is_of_share(claimed[plant_index], share, is_part=True)
        # roundings go both ways, so a part of them may be more than the whole
        or (
            plants[plant_index].causes == ("rounding",)
            and abs(claimed[plant_index]) <= 2 * max(map(abs, share))
        )
    }
    if len(right) == len(plants):
        return Verdict(state=RIGHT, error=error, words=message)
    if len(right | short) < len(plants):
        return Verdict(state=WRONG, error=error, words=message)
    hinted = {plant_index for plant_index, plant in enumerate(plants) if _is_hinted(plant, found)}
    state = HINTED if len(right | hinted) == len(plants) else UNEXPLAINED
    return Verdict(state=state, error=error, words=message)


def _error(claimed: Decimal, share: Sequence[Decimal]) -> Decimal:
    off = max(min(share) - claimed, claimed - max(share), Decimal(0))
    return off / max(*map(abs, share), PENNY) if off > HALF_A_CENT else Decimal(0)


def _is_of_share(claimed: Decimal, share: Sequence[Decimal], *, is_part: bool = False) -> bool:
    """
    Return whether the claimed amount is within the possible range of a cause's amount, or with `is_part`
    between that range and 0.
    """
    near = max(NEAR * max(map(abs, share)), HALF_A_CENT)
    amounts = (*share, Decimal(0)) if is_part else share
    return min(amounts) - near <= claimed <= max(amounts) + near


def _is_hinted(plant: Plant, found: Reconciliation) -> bool:
    """Return whether a hint names a cause of the plant."""
    named = {cause for hint in found.hints for cause in (hint.cause, *hint.beside)}
    return any(cause in named or (cause in OF_PRICES and ANY_PRICE in named) for cause in plant.causes)


def _hints(found: Reconciliation) -> str:
    hints = [" or ".join((hint.cause, *hint.beside)) for hint in found.hints]
    return f"; hints: {', '.join(hints)}" if hints else ""


@dataclass(frozen=True, kw_only=True)
class _Calls:
    """
    The calls of a month as some plants leave them: without the calls that a plant does not report, or changed as
    the plant reports them.
    """

    place: int
    are_told: bool


class Months:
    """
    The effect of planted causes on a month, separately and together. It is computed for all calls, for
    reported calls, and for calls as reported.
    """

    def __init__(self, provider: str, seed: int, plants: Sequence[Plant]) -> None:
        self._provider = provider
        self._seed = seed
        self._plants = plants
        self._world = prices_of(plants)
        self._known: dict[tuple[frozenset[int], _Calls | None], Decimal] = {}

    def shares(self, group: frozenset[int]) -> list[Decimal]:
        """
        Return the possible amounts of a group of plants: applied before or after the other plants, and for
        each set of calls.
        """
        every = frozenset(range(len(self._plants)))
        amounts = [self._amount(subset | group) - self._amount(subset) for subset in _subsets(every - group)]
        for calls in self._others():
            of_it = calls.place in group
            for subset in _subsets(every - group - {calls.place}):
                together = self._amount(subset | group, None if of_it else calls)
                amounts.append(together - self._amount(subset, calls))
        return amounts

    def _others(self) -> Iterator[_Calls]:
        for index, plant in enumerate(self._plants):
            if any(chosen is not no_call for chosen in (plant.lost, plant.unsized, plant.fails)):
                yield _Calls(place=index, are_told=False)
            if plant.told is not same_calls:
                yield _Calls(place=index, are_told=True)

    def _amount(self, chosen: frozenset[int], calls: _Calls | None = None) -> Decimal:
        """Return the difference that these plants cause in a month."""
        if chosen and (chosen, calls) not in self._known:
            plants = [self._plants[plant_index] for plant_index in sorted(chosen)]
            self._known[chosen, calls] = dollars(self._difference(plants, calls))
        return self._known[chosen, calls] if chosen else Decimal(0)

    def _difference(self, plants: Sequence[Plant], calls: _Calls | None) -> int:
        if calls is None:
            return difference(self._provider, self._seed, plants, world=self._world)
        of = self._plants[calls.place]
        if calls.are_told:
            return difference(
                self._provider,
                self._seed,
                plants,
                base=lambda month: of.told(of.done(month)),
                world=self._world,
            )
        return difference(
            self._provider,
            self._seed,
            plants,
            without=lambda call: of.lost(call) or of.unsized(call) or of.fails(call),
            world=self._world,
        )


def _subsets(places: frozenset[int]) -> list[frozenset[int]]:
    return [
        frozenset(subset) for size in range(len(places) + 1) for subset in combinations(sorted(places), size)
    ]


def _words(sums: dict[str, Decimal]) -> str:
    return ", ".join(f"{cause} {amount:.4f}" for cause, amount in sorted(sums.items())) or "nothing"
