"""Missing calls, shifted clocks and unreported kinds next to other causes on the same days."""

from __future__ import annotations

from random import Random

import pytest

from tests.gateway.bills.reconciliation.judging import HINTED, RIGHT, UNEXPLAINED, judged_together
from tests.gateway.bills.reconciliation.plants import PLANTS, planted
from tests.gateway.bills.reconciliation.plants import full_days as full_days
from tests.gateway.bills.reconciliation.simulator import ANTHROPIC, AZURE, BEDROCK, GOOGLE, OPENAI
from tests.rounds import part

CASES = [
    # Half a day has no calls, and the bill's days are in another time zone. The claim only says that the
    # price of the missing hours is unclear.
    (OPENAI, 2663601241, "half a day, pacific", HINTED),
    (OPENAI, 2, "half a day, local hours", HINTED),
    (AZURE, 1394008731, "three days, pacific", HINTED),
    # Half a day has no calls, and other days also lack some calls.
    (BEDROCK, 666753992, "key, half a day", HINTED),
    (AZURE, 1711878759, "share, half a day", HINTED),
    # A key and a model are missing, so few calls remain and many hours are empty by chance.
    (GOOGLE, 2515304054, "key, model", RIGHT),
    # If the bill lacks a token kind on all days, these tokens are billed as another kind. This is found even
    # if other things differ.
    (ANTHROPIC, 505242943, "half a day, plain cache", HINTED),
    (ANTHROPIC, 3154249727, "plain cache, pacific", HINTED),
    # The list price of a tier is the minimum price of its tokens, even if the bill's amounts state no tier.
    (OPENAI, 2397418483, "input price, local hours", RIGHT),
    # The last hours are empty because a clock is slow, and this causes no claim.
    (BEDROCK, 2576281049, "local hours, unsized", UNEXPLAINED),
    # Missing and surplus calls nearly cancel, but no calls moved to the next day.
    (AZURE, 3063450026, "key, double report", UNEXPLAINED),
    # A day that only the bill or only the ledger has is no evidence about prices, even if it is the first day
    # of the month.
    (ANTHROPIC, 3410724048, "a day, discount", RIGHT),
    # The price of other days applies to the half day that the ledger has.
    (GOOGLE, 3683996122, "half a day, input price", RIGHT),
    # If causes cannot be separated, all are named: opposite prices, tiers on days of another time zone, and hours.
    (BEDROCK, 4103655947, "batch since, pacific", HINTED),
    (AZURE, 1190008631, "key, local hours", UNEXPLAINED),
    (GOOGLE, 203784845, "batch share, plain cache", HINTED),
    # A price factor for all days, or for all days before another price, is a separate cause.
    (ANTHROPIC, 1756644886, "price, half", RIGHT),
    (OPENAI, 2307074195, "input price, discount", RIGHT),
    (AZURE, 361928072, "price, dear days", RIGHT),
    # Some of the calls that the time shift moves to another day are missing.
    (ANTHROPIC, 1277718168, "share, pacific", HINTED),
    # One token kind has another price only on the last day, which is not enough to claim a price change.
    (ANTHROPIC, 3565725351, "key, batch share", RIGHT),
    # Two price factors cancel each other, so some days cost twice the half price, which equals our price.
    (BEDROCK, 2891491162, "discount, half", HINTED),
    (OPENAI, 147155057, "half, dear days", HINTED),
    # If hours or call counts show the true amount of a day, duplicated rows are claimed. Otherwise the
    # difference stays unexplained.
    (ANTHROPIC, 3552580727, "twice, pacific", HINTED),
    (AZURE, 3311591214, "twice, unsized", UNEXPLAINED),
    (OPENAI, 178717959, "twice, unsized", RIGHT),
    # Tokens that moved between tiers are claimed next to many surplus tokens, but not next to a few random ones.
    (AZURE, 119333380, "batch share, double report", HINTED),
    (ANTHROPIC, 1453743460, "double report, pacific", UNEXPLAINED),
    # Tokens that vary in both directions on a few days are chance, not a kind of input.
    (OPENAI, 7012, "double report, local hours", UNEXPLAINED),
    # If the tokens of the first day differ, that day is no evidence of an earlier price change.
    (ANTHROPIC, 7013, "key, pacific", RIGHT),
    (ANTHROPIC, 7013, "plain cache, unsized", HINTED),
    # More calls are missing than the ledger has calls without tokens, and the bill states no number of calls.
    (AZURE, 7014, "share, unsized", HINTED),
    (ANTHROPIC, 13002, "price, unsized", RIGHT),
    # The hours of a day without reports belong to another day of the bill.
    (AZURE, 8001, "three days, pacific", HINTED),
    # Even with three causes, a token kind that only the bill has is claimed.
    (BEDROCK, 9001, "batch since, plain cache, local hours", HINTED),
    # Rates that a claim about tokens already uses are no evidence about the price of a day. The same applies
    # to token kinds that only one side has.
    (GOOGLE, 9002, "four days, half, local hours", HINTED),
    (ANTHROPIC, 10003, "key, half", RIGHT),
    # On shifted days, large inputs are among the tokens of another tier, so this tier seems more expensive.
    (ANTHROPIC, 10001, "batch key, local hours", HINTED),
    # Calls without tokens make days differ, but do not suggest a shifted clock.
    (BEDROCK, 10003, "key, unsized", HINTED),
    # If a key is missing, a day may lack more than half of its calls. Otherwise, such a day is unclear.
    (BEDROCK, 17001, "key", RIGHT),
    (AZURE, 11009, "key, twice", UNEXPLAINED),
    # A day next to a day without reports does not count as a day with missing calls.
    (ANTHROPIC, 10008, "three days, local hours", HINTED),
    # If one token kind costs half its price, this is a claim about a tier, provided that a claim about tokens
    # explains the prices of the other kinds.
    (ANTHROPIC, 2034687046, "batch, half, local hours", HINTED),
    # A price below a cent is not named next to large amounts.
    (GOOGLE, 18001, "batch key, local hours", HINTED),
    # If one region has one published price factor, the region explains it, even if tokens differ.
    (GOOGLE, 9004, "region, double report, local hours", UNEXPLAINED),
]


@pytest.mark.usefixtures("full_days")
@pytest.mark.parametrize(("provider", "seed", "names", "state"), part(CASES, every=45))
async def test_causes_together(provider: str, seed: int, names: str, state: str) -> None:
    plants = [PLANTS[name](Random(f"{seed} {name} {provider}"), provider) for name in names.split(", ")]
    result = await planted(provider, seed, plants)
    verdict = judged_together(provider, seed, result, plants)
    assert state == verdict.state, verdict.words
