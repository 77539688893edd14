"""The same tokens under another kind: another tier, or cached and uncached input divided differently."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator

from gateway.reconciliation.claims import EXACT, STRONG, Case, Claim
from gateway.reconciliation.sides import INPUT_METERS, METERS, WRITE_1H, WRITE_5M, Cell
from gateway.reconciliation.wording import named

AGREES = 0.01
DIFFERS = 0.02


def tier_unknown(case: Case) -> Iterator[Claim]:
    """The tiers of a model disagree, their sum does not: reports lack batch, flex or priority."""
    groups: dict[Cell, list[tuple[Cell, str]]] = defaultdict(list)
    for cell, meter in case.left.extra:
        groups[cell._replace(tier="")].append((cell, meter))
    tokens: dict[Cell, int] = defaultdict(int)
    for cell, sums in case.split.billed.items():
        tokens[cell._replace(tier="")] += sum(sums.tokens.values())
    entries = []
    tiers = set()
    for group, places in groups.items():
        said = tokens[group]
        extras = [case.left.extra[place] for place in places]
        is_exchange = abs(sum(extras)) <= AGREES * said and sum(map(abs, extras)) > DIFFERS * said
        if is_exchange and len({cell.tier for cell, _ in places}) > 1:
            tiers |= {cell.tier for cell, meter in places if case.left.extra[cell, meter] > 0}
            entries += places
    claim = case.left.take(
        "tier_unknown",
        [("volume", cell, meter) for cell, meter in entries],
        sure=STRONG,
        evidence=f"the statement has these tokens under {named(sorted(tier or 'standard' for tier in tiers))}, "
        "the ledger under another tier",
        advice="Let the source report the tier that served the call: `service_tier`, or `processing` = `batch`.",
    )
    if claim is not None:
        yield claim


def cache_split(case: Case) -> Iterator[Claim]:
    """All input agrees, its cached and uncached parts do not; if only writes disagree, how long they are kept."""
    found: dict[str, list[tuple[Cell, str]]] = {"cache_split": [], "cache_ttl_1h": []}
    groups: dict[Cell, list[str]] = defaultdict(list)
    for cell, meter in case.left.extra:
        if meter in INPUT_METERS:
            groups[cell].append(meter)
    for cell, meters in groups.items():
        said = sum(tokens for meter, tokens in case.split.billed[cell].tokens.items() if meter != METERS[-1])
        extras = [case.left.extra[cell, meter] for meter in meters]
        if abs(sum(extras)) <= AGREES * said and sum(map(abs, extras)) > AGREES * said:
            cause = "cache_ttl_1h" if set(meters) <= {WRITE_5M, WRITE_1H} else "cache_split"
            found[cause] += [(cell, meter) for meter in meters]
    for cause, places in found.items():
        lacking = sorted({meter for cell, meter in places if case.left.extra[cell, meter] > 0})
        advice = (
            "Report how long cache writes are kept: `cache_creation` as the provider answers it."
            if cause == "cache_ttl_1h"
            else "Look with `tollhouse explain --why` how the source's cache counts are read."
        )
        claim = case.left.take(
            cause,
            [("volume", cell, meter) for cell, meter in places],
            sure=EXACT,
            evidence=f"the input agrees as a whole; the ledger has too few tokens under {named(lacking)}",
            advice=advice,
        )
        if claim is not None:
            yield claim
