"""Whether what is said of a simulated month is what was planted in it."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from decimal import Decimal

from gateway.reconciliation.causes.list import ANY_PRICE
from gateway.reconciliation.cells import PARTS
from gateway.reconciliation.claims import OF_PRICES
from gateway.reconciliation.comparing import Reconciliation
from spool.ledger import money
from tests.gateway.reconciliation.plants import A_DAY, Calls, Plant, planted, same_calls
from tests.gateway.reconciliation.simulator import Call, month

RIGHT, SAID, UNEXPLAINED, WRONG, INVENTED = (
    "right",
    "said to be inseparable",
    "unexplained",
    "wrong",
    "invented",
)
NEAR = Decimal("0.02")  # of what was planted
HALF_A_CENT = Decimal("0.005")  # where that is more: of amounts below a quarter of a dollar
PENNY = Decimal("0.01")


@dataclass(frozen=True, kw_only=True)
class Verdict:
    """
    `error`: how far claims are from what was planted, of it, at worst. `words`: what was planted and found.
    """

    state: str
    error: Decimal
    words: str


def dollars(units: int) -> Decimal:
    return Decimal(money.text(units))


def holds(found: Reconciliation) -> None:
    """The identities, of all and of each line, to the last digit."""
    for line in (found.total, *found.days, *found.models, *found.keys):
        assert line.billed == line.counted + sum(line.parts[name] for name in PARTS)
        assert line.difference == sum(line.causes.values()) + line.unexplained
    assert found.total.difference == sum(claim.amount for claim in found.claims) + found.total.unexplained


def sums_of(found: Reconciliation) -> dict[str, Decimal]:
    """What each cause claims; nothing of less than a cent."""
    sums: dict[str, Decimal] = defaultdict(Decimal)
    for claim in found.claims:
        sums[claim.cause] += dollars(claim.amount)
    moved: Counter[str] = Counter()
    for claim in found.claims:
        moved[claim.cause] += claim.moved
    return {cause: amount for cause, amount in sums.items() if dollars(moved[cause]) >= PENNY}


def judged_alone(found: Reconciliation, plant: Plant) -> Verdict:
    """One cause: it is claimed, all of it, and no other."""
    holds(found)
    sums, difference = sums_of(found), dollars(found.total.difference)
    claimed = sum((amount for cause, amount in sums.items() if cause in plant.causes), Decimal(0))
    others = {cause: amount for cause, amount in sums.items() if cause not in plant.causes}
    words = f"planted {difference:.4f}, found {_words(sums)}"
    error = abs(claimed - difference) / abs(difference) if difference else Decimal(0)
    if others:
        return Verdict(state=INVENTED, error=error, words=words)
    is_right = is_near(claimed, difference, difference)
    return Verdict(state=RIGHT if is_right else WRONG if claimed else UNEXPLAINED, error=error, words=words)


def is_near(claimed: Decimal, wanted: Decimal, size: Decimal) -> bool:
    return abs(claimed - wanted) <= max(NEAR * abs(size), HALF_A_CENT)


async def judged_pair(
    provider: str, seed: int, found: Reconciliation, plants: Sequence[Plant], alone: Sequence[Decimal]
) -> Verdict:
    """
    Two causes, each of which came to so much `alone`: each is claimed; or a claim says of just these two that
    they cannot be told apart, and both together are claimed; or what is not claimed is unexplained.

    What two causes do together may be in either: a price of calls that nobody reports, or of a tier that
    nobody tells.
    """
    holds(found)
    sums, difference = sums_of(found), dollars(found.total.difference)
    shares = await _shares(provider, seed, plants, alone, difference)
    claimed = [sum((sums.get(cause, Decimal(0)) for cause in plant.causes), Decimal(0)) for plant in plants]
    known = {cause for plant in plants for cause in plant.causes}
    others = sums.keys() - known
    together = sum(claimed, Decimal(0))
    sizes = [max(map(abs, share)) for share in shares]
    planted = [f"{min(share):.3f} to {max(share):.3f}" for share in shares]
    words = f"planted {planted}, found {_words(sums)}, in all {difference:.3f}{_said_words(found)}"
    if others:
        return Verdict(state=INVENTED, error=Decimal(0), words=words)
    off = [
        max(min(share) - amount, amount - max(share), Decimal(0))
        for share, amount in zip(shares, claimed, strict=True)
    ]
    errors = (each / size for each, size in zip(off, sizes, strict=True) if each > HALF_A_CENT)
    error = max(errors, default=Decimal(0))
    if all(is_near(each, Decimal(0), size) for each, size in zip(off, sizes, strict=True)):
        return Verdict(state=RIGHT, error=error, words=words)
    if _is_said(found, plants) and is_near(together, difference, difference):
        return Verdict(state=SAID, error=Decimal(0), words=words)
    is_short = (_is_said(found, plants) and _is_within(together, difference)) or all(
        min(*share, Decimal(0)) - max(NEAR * size, HALF_A_CENT)
        <= amount
        <= max(*share, Decimal(0)) + max(NEAR * size, HALF_A_CENT)
        for share, amount, size in zip(shares, claimed, sizes, strict=True)
    )
    return Verdict(state=UNEXPLAINED if is_short else WRONG, error=error, words=words)


def _is_within(part: Decimal, whole: Decimal) -> bool:
    return min(whole, Decimal(0)) - HALF_A_CENT <= part <= max(whole, Decimal(0)) + HALF_A_CENT


def _is_said(found: Reconciliation, plants: Sequence[Plant]) -> bool:
    """Whether a claim of more than a cent names these two as inseparable, and none names a third."""
    names = [
        {claim.cause, *claim.beside}
        for claim in found.claims
        if claim.beside and dollars(claim.moved) >= PENNY
    ]
    of_two = [[_is_of(cause, plant) for plant in plants] for each in names for cause in each]
    return all(map(any, of_two)) and any(
        all(any(_is_of(cause, plant) for cause in each) for plant in plants) for each in names
    )


def _is_of(cause: str, plant: Plant) -> bool:
    return cause in plant.causes or (cause == ANY_PRICE and set(plant.causes) <= OF_PRICES)


def _said_words(found: Reconciliation) -> str:
    said = [f"{claim.cause} beside {', '.join(claim.beside)}" for claim in found.claims if claim.beside]
    return f"; {'; '.join(said)}" if said else ""


async def _shares(
    provider: str, seed: int, plants: Sequence[Plant], alone: Sequence[Decimal], difference: Decimal
) -> list[list[Decimal]]:
    """
    What each of two causes may be said to come to: before the other, after it, of the calls that are told, and
    of calls as they are told.
    """
    first, second = alone
    shares = [[first, difference - second], [difference - first, second]]
    for place, plant in enumerate(plants):

        def is_untold(call: Call, plant: Plant = plant) -> bool:
            return plant.lost(call) or plant.unsized(call)

        if any(map(is_untold, month(seed=seed, a_day=A_DAY, providers=(provider,)))):
            rest = dollars(
                (await planted(provider, seed, [plants[1 - place]], without=is_untold)).total.difference
            )
            shares[1 - place].append(rest)
            shares[place].append(difference - rest)
        if plant.told is not same_calls:
            other = plants[1 - place]

            def told(calls: Calls, plant: Plant = plant) -> Calls:
                return plant.told(plant.done(calls))

            as_told = await planted(provider, seed, [other], base=told)
            shares[1 - place].append(dollars(as_told.total.difference))
            shares[place].append(difference - dollars(as_told.total.difference))
    return shares


def _words(sums: dict[str, Decimal]) -> str:
    return ", ".join(f"{cause} {amount:.4f}" for cause, amount in sorted(sums.items())) or "nothing"
