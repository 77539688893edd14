"""The tests, in the order in which they claim; each takes its share out of what the next ones see."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from gateway.reconciliation.causes import days, kinds, rates, regions, rest, silence, traffic
from gateway.reconciliation.claims import Case, Claim

Test = Callable[[Case], Iterator[Claim]]

TESTS: Sequence[Test] = (
    traffic.unreported_traffic,
    traffic.other_account,
    silence.no_telemetry,
    silence.no_bill,
    traffic.counted_twice,
    silence.billed_twice,
    kinds.tier_unknown,
    kinds.cache_split,
    days.time_edge,
    silence.silent_hours,
    traffic.double_report,
    traffic.usage_missing,
    traffic.batch_unreported,
    traffic.unreported_calls,
    traffic.missing_share,
    rates.reported_cost,
    regions.regional_price,
    rates.rates,
    rest.not_tokens,
    rest.own_price,
    rest.rounding,
)


def claims(case: Case) -> list[Claim]:
    """What every test claims, the largest first."""
    found = [claim for test in TESTS for claim in test(case)]
    return sorted(found, key=lambda each: (-each.moved, -abs(each.tokens), each.cause))
