"""Hours in which most calls of a client failed, and it went on calling."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from decimal import Decimal

from gateway.insights.facts import Facts, Spend
from gateway.insights.findings import finding, hour, money, named, ordered
from spool.registry.insights import MEDIUM, Concerned, Finding

NAME = "retry_storm"
LEAST_ERRORS = 30  # in an hour
LEAST_SHARE = 0.5

Client = tuple[str | None, str | None, str | None]  # source, model, team


def find(facts: Facts) -> Sequence[Finding]:
    storms: dict[Client, list[Spend]] = defaultdict(list)
    for spend in facts.hours:
        if spend.errors >= max(LEAST_ERRORS, LEAST_SHARE * spend.calls):
            storms[_client(spend)].append(spend)
    paid: dict[tuple[Client, float], Decimal] = defaultdict(Decimal)
    for spend in facts.failed:
        paid[_client(spend), spend.start] += spend.cost
    return ordered(
        _finding(client, hours, sum((paid[client, each.start] for each in hours), Decimal(0)))
        for client, hours in storms.items()
    )


def _client(spend: Spend) -> Client:
    return spend.source, spend.model, spend.team


def _finding(client: Client, hours: Sequence[Spend], cost: Decimal) -> Finding:
    source, model, team = client
    worst = max(hours, key=lambda each: each.errors)
    errors = sum(each.errors for each in hours)
    calls = sum(each.calls for each in hours)
    return finding(
        NAME,
        client,
        title=f"{errors:,} of {calls:,} calls of {named(model, 'a model without a name')} failed within "
        f"{len(hours)} {'hour' if len(hours) == 1 else 'hours'}",
        seen=f"Calls that {named(source)} reports for team {named(team)} failed and were repeated, most of all "
        f"{hour(worst.start)}: {worst.errors:,} failures. The failed calls cost {money(cost)}.",
        advice="Look at the error types with `tollhouse report --by status,model`; let the client wait longer after "
        "each failure and give up after a few.",
        category="reliability",
        effort=MEDIUM,
        impact=cost,
        newest=max(each.start for each in hours),
        concerns=Concerned(
            include={"source": (source or "",), "model": (model or "",), "team": (team or "",)}
        ),
    )
