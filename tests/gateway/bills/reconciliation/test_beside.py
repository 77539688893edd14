"""Missing calls, clocks and kinds that nobody told, beside other causes on the same days."""

from __future__ import annotations

from random import Random

import pytest

from tests.gateway.bills.reconciliation.judging import RIGHT, SAID, UNEXPLAINED, dollars, judged_together
from tests.gateway.bills.reconciliation.plants import PLANTS, difference, planted
from tests.gateway.bills.reconciliation.simulator import ANTHROPIC, AZURE, BEDROCK, GOOGLE, OPENAI
from tests.rounds import part

CASES = [
    # Half a day without calls, on days of another zone: hours have tokens, and their price is said to be open.
    (OPENAI, 2663601241, "half a day, pacific", SAID),
    (OPENAI, 2, "half a day, local hours", RIGHT),
    (AZURE, 1394008731, "three days, pacific", SAID),
    # Half a day without calls, where other days lack some as well.
    (BEDROCK, 666753992, "key, half a day", RIGHT),
    (AZURE, 1711878759, "share, half a day", SAID),
    # Few calls are left in a day where a key and a model are missing: many hours without one are chance.
    (GOOGLE, 2515304054, "key, model", RIGHT),
    # A kind of which the statement has nothing in the whole time has gone to another, whatever else is apart.
    (ANTHROPIC, 505242943, "half a day, plain cache", RIGHT),
    (ANTHROPIC, 3154249727, "plain cache, pacific", RIGHT),
    # No token is worth less than the list price of its tier, also where money tells no tiers.
    (OPENAI, 2397418483, "input price, local hours", RIGHT),
    # The last hours of the time are silent where a clock is behind, and nothing is made of that.
    (BEDROCK, 2576281049, "local hours, unsized", UNEXPLAINED),
    # Calls that are missing, and others too many: about as many, and yet no day has those of its neighbour.
    (AZURE, 3063450026, "key, double report", UNEXPLAINED),
    # Days of calls that one side has alone show no price, the first of the month neither.
    (ANTHROPIC, 3410724048, "a day, discount", UNEXPLAINED),
    # The price of other days is that of what the ledger has of half a day.
    (GOOGLE, 3683996122, "half a day, input price", RIGHT),
    # What nothing tells apart is said: prices that undo each other, tiers on days of another zone, hours.
    (BEDROCK, 4103655947, "batch since, pacific", SAID),
    (AZURE, 1190008631, "key, local hours", SAID),
    (GOOGLE, 203784845, "batch share, plain cache", SAID),
    # A factor of all days, or of all before another price, is a cause of its own beside that price.
    (ANTHROPIC, 1756644886, "price, half", RIGHT),
    (OPENAI, 2307074195, "input price, discount", RIGHT),
    (AZURE, 361928072, "price, dear days", RIGHT),
    # Calls that are missing within what a shift moves.
    (ANTHROPIC, 1277718168, "share, pacific", SAID),
    # One kind of token at another price on the last day shows no price.
    (ANTHROPIC, 3565725351, "key, batch share", RIGHT),
    # Two factors that come to one, and days at twice the half price, which is ours.
    (BEDROCK, 2891491162, "discount, half", SAID),
    (OPENAI, 147155057, "half, dear days", SAID),
    # Rows twice where hours or calls tell what a day has; where nothing does they are left unexplained.
    (ANTHROPIC, 3552580727, "twice, pacific", RIGHT),
    (AZURE, 3311591214, "twice, unsized", UNEXPLAINED),
    (OPENAI, 178717959, "twice, unsized", RIGHT),
    # Tiers that are exchanged beside many tokens too many are said, and a chance of few of them is not.
    (AZURE, 119333380, "batch share, double report", SAID),
    (ANTHROPIC, 1453743460, "double report, pacific", UNEXPLAINED),
    # Tokens that go now this way, now that, on a few of many days are chance, and no kind of input.
    (OPENAI, 7012, "double report, local hours", UNEXPLAINED),
    # A first day whose tokens are apart, before our own price, shows no price that changed.
    (ANTHROPIC, 7013, "key, pacific", SAID),
    (ANTHROPIC, 7013, "plain cache, unsized", RIGHT),
    # Calls without tokens are fewer than what is missing, and the statement does not tell calls.
    (AZURE, 7014, "share, unsized", SAID),
    (ANTHROPIC, 13002, "price, unsized", SAID),
    # Hours of a silent day that stand on another day of the statement.
    (AZURE, 8001, "three days, pacific", SAID),
    # A kind that only the statement has, in threes: it is claimed where the ledger has none of it.
    (BEDROCK, 9001, "batch since, plain cache, local hours", SAID),
    # Rates that a claim of tokens has taken, and kinds that one side alone has, show no price of their days.
    (GOOGLE, 9002, "four days, half, local hours", SAID),
    (ANTHROPIC, 10003, "key, half", SAID),
    # Large inputs among tokens of another tier, on days of another zone, make that tier dearer.
    (ANTHROPIC, 10001, "batch key, local hours", SAID),
    # Calls without tokens make days differ, and hint at no clock.
    (BEDROCK, 10003, "key, unsized", SAID),
    # A day that lacks more than half is usual where a key is missing, and else open.
    (BEDROCK, 17001, "key", RIGHT),
    (AZURE, 11009, "key, twice", UNEXPLAINED),
    # Days next to silent ones are none on which calls are missing.
    (ANTHROPIC, 10008, "three days, local hours", SAID),
    # One kind of token at half its price, where a claim of tokens has the price of the others, shows a tier.
    (ANTHROPIC, 2034687046, "batch, half, local hours", SAID),
    # A price of less than a cent is not named beside what is large.
    (GOOGLE, 18001, "batch key, local hours", SAID),
    # One published factor in one region is of the region, whatever tokens are apart.
    (GOOGLE, 9004, "region, double report, local hours", UNEXPLAINED),
]


@pytest.mark.parametrize(("provider", "seed", "names", "state"), part(CASES, every=3))
async def test_causes_together(provider: str, seed: int, names: str, state: str) -> None:
    plants = [PLANTS[name](Random(f"{seed} {name} {provider}"), provider) for name in names.split(", ")]
    found = await planted(provider, seed, plants)
    verdict = judged_together(provider, seed, found, plants)
    assert state == verdict.state, verdict.words
    for name, plant in zip(names.split(", "), plants, strict=True):
        if state == SAID and name == "half a day":  # what is open is the price of the hours alone
            amount = dollars(difference(provider, seed, [plant]))
            claimed = sum(dollars(claim.amount) for claim in found.claims if claim.cause in plant.causes)
            assert abs(claimed - amount) <= abs(amount) / 5, verdict.words
