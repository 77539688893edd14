"""Whether what is said of a simulated month is what was planted in it."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from decimal import Decimal

from gateway.reconciliation.cells import PARTS
from gateway.reconciliation.comparing import Reconciliation
from spool.ledger import money
from tests.gateway.reconciliation.plants import A_DAY, Plant, planted
from tests.gateway.reconciliation.simulator import Call, month

RIGHT, SAID, UNEXPLAINED, WRONG, INVENTED = (
    "right",
    "said to be inseparable",
    "unexplained",
    "wrong",
    "invented",
)
NEAR, NEAR_OF_TWO = Decimal("0.02"), Decimal("0.03")  # of what was planted
PENNY = Decimal("0.01")
RATES = {"price_change", "price_on_days", "discount", "tier"}
EDGES = {"time_edge"}


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
    is_near = abs(claimed - difference) <= NEAR * abs(difference) + PENNY / 2
    return Verdict(state=RIGHT if is_near else WRONG if claimed else UNEXPLAINED, error=error, words=words)


async def judged_pair(
    provider: str, seed: int, found: Reconciliation, plants: Sequence[Plant], alone: Sequence[Decimal]
) -> Verdict:
    """
    Two causes, each of which came to so much `alone`: each is claimed, or the two are said to be inseparable,
    or what is not claimed is unexplained.

    What two causes do together may be in either: a price of calls that nobody reports, or of a tier that
    nobody tells.
    """
    holds(found)
    sums, difference = sums_of(found), dollars(found.total.difference)
    shares = await _shares(provider, seed, plants, alone, difference)
    claimed = [sum((sums.get(cause, Decimal(0)) for cause in plant.causes), Decimal(0)) for plant in plants]
    others = {
        name: amount for name, amount in sums.items() if not any(name in plant.causes for plant in plants)
    }
    sizes = [max(map(abs, share)) for share in shares]
    left = abs(sum(sums.values()) - difference)
    is_all = left <= NEAR * max(sizes) + PENNY
    together = abs(difference - sum(alone)) if is_all else Decimal(0)
    planted = [f"{min(share):.3f} to {max(share):.3f}" for share in shares]
    words = f"planted {planted}, found {_words(sums)}, in all {difference:.3f}"
    are_rates = all(set(plant.causes) <= RATES for plant in plants)
    is_said = are_rates or any("told apart" in claim.evidence for claim in found.claims)
    if others and not is_said:
        return Verdict(state=INVENTED, error=Decimal(0), words=words)
    off = [
        max(min(share) - amount, amount - max(share), Decimal(0)) - together
        for share, amount in zip(shares, claimed, strict=True)
    ]
    errors = (each / size for each, size in zip(off, sizes, strict=True) if each > PENNY / 2)
    error = max(errors, default=Decimal(0))
    if not others and all(
        each <= NEAR_OF_TWO * size + PENNY / 2 for each, size in zip(off, sizes, strict=True)
    ):
        return Verdict(state=RIGHT, error=max(error, Decimal(0)), words=words)
    if is_said and left <= abs(difference) + PENNY:
        return Verdict(state=SAID, error=Decimal(0), words=words)
    is_short = all(
        min(*share, Decimal(0)) - NEAR * size - PENNY
        <= amount
        <= max(*share, Decimal(0)) + NEAR * size + PENNY
        for share, amount, size in zip(shares, claimed, sizes, strict=True)
    )
    return Verdict(state=UNEXPLAINED if is_short else WRONG, error=error, words=words)


async def _shares(
    provider: str, seed: int, plants: Sequence[Plant], alone: Sequence[Decimal], difference: Decimal
) -> list[list[Decimal]]:
    """
    What each of two causes may be said to come to: before the other, after it, and of the calls that are
    told.
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
    return shares


def _words(sums: dict[str, Decimal]) -> str:
    return ", ".join(f"{cause} {amount:.4f}" for cause, amount in sorted(sums.items())) or "nothing"
