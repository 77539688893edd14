"""Calls that nobody owns, that count twice, or that fail and are repeated."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from decimal import Decimal

from gateway.money.insights.facts import Facts, Spend
from gateway.money.insights.findings import finding, hour, money, named, ordered, percent
from spool.record import NS, Inference
from spool.registry.insights import LOW, MEDIUM, Concerned, Finding

# no_owner
LEAST_OWNERLESS_SHARE = Decimal("0.05")  # of all spend of the week
LEAST_OWNERLESS = Decimal(1)  # dollars
# doubled_source
APART_NS = 5 * NS
LEAST_PAIRS = 10
LEAST_PAIRED_SHARE = 0.2  # of the calls of the source that has fewer
LEAST_TOKENS = 50  # shorter calls look alike by chance
# repeated_ids
LEAST_REPEATED = 10
# retry_storm
LEAST_ERRORS = 30  # in an hour
LEAST_FAILED_SHARE = 0.5

Pair = tuple[Inference, Inference]
Client = tuple[str | None, str | None, str | None]  # source, model, team


def no_owner(facts: Facts) -> Sequence[Finding]:
    """Find spend that names neither a team nor a user: nobody can be asked about it."""
    total = sum((spend.cost for spend in facts.week), Decimal(0))
    sources: dict[str | None, list[Spend]] = defaultdict(list)
    for spend in facts.week:
        if spend.cost and not spend.team and not spend.user:
            sources[spend.source].append(spend)
    findings = []
    for source, spends in sources.items():
        cost = sum((spend.cost for spend in spends), Decimal(0))
        if cost < max(LEAST_OWNERLESS, LEAST_OWNERLESS_SHARE * total):
            continue
        keys = sorted({named(spend.api_key, "no key") for spend in spends})[:5]
        findings.append(
            finding(
                "no_owner",
                (source,),
                title=f"{money(cost)} of {named(source)} belong to nobody",
                seen=f"{percent(cost, total)} of a week's spend came from {named(source)} without team and user "
                f"({', '.join(keys)}).",
                advice="Label the Tollhouse key of that sender (`tollhouse keys edit NAME --label team=...`), or add "
                "an [[attribution]] rule for its api_key or service.",
                category="attribution",
                effort=LOW,
                impact=cost,
                newest=max(spend.start for spend in spends),
            )
        )
    return ordered(findings)


def doubled_source(facts: Facts) -> Sequence[Finding]:
    """
    Find calls that seem to arrive twice: two sources report the same model and tokens, with starts
    within five seconds.

    Their ids do not match, so both count; this detector reports the suspicion and changes nothing.
    """
    calls = [call for call in facts.recent if _is_told(call)]
    by_source = Counter(call.source for call in calls)
    pairs: dict[tuple[str, str], list[Pair]] = defaultdict(list)
    for first, second in _pairs(calls):
        one, other = sorted((first.source, second.source))
        pairs[one, other].append((first, second))
    return ordered(
        _doubled(one, other, found, min(by_source[one], by_source[other]))
        for (one, other), found in pairs.items()
        if len(found) >= max(LEAST_PAIRS, LEAST_PAIRED_SHARE * min(by_source[one], by_source[other]))
    )


def _is_told(call: Inference) -> bool:
    tokens = (call.input_tokens or 0) + (call.output_tokens or 0)
    return call.start_time is not None and tokens >= LEAST_TOKENS and call.status != "cached"


def _pairs(calls: Sequence[Inference]) -> Iterator[Pair]:
    """Each call in at most one pair, with the nearest call before it that fits."""
    alike: dict[tuple[str, int | None, int | None], list[Inference]] = defaultdict(list)
    for call in calls:
        alike[_model(call), call.input_tokens, call.output_tokens].append(call)
    for group in alike.values():
        waiting: list[Inference] = []
        for call in sorted(group, key=_start):
            waiting = [each for each in waiting if _start(call) - _start(each) <= APART_NS]
            other = next((each for each in reversed(waiting) if each.source != call.source), None)
            if other is None:
                waiting.append(call)
            else:
                waiting.remove(other)
                yield other, call


def _start(call: Inference) -> int:
    return call.start_time or 0


def _model(call: Inference) -> str:
    """Return the model without the prefix that gateways put before it: `openai/gpt-4o` is `gpt-4o`."""
    return (call.request_model or call.response_model or "").lower().rpartition("/")[2]


def _cost(call: Inference) -> Decimal:
    return Decimal(call.cost or call.estimated_cost or 0)


def _doubled(one: str, other: str, pairs: Sequence[Pair], fewer: int) -> Finding:
    twice = sum((min(_cost(first), _cost(second)) for first, second in pairs), Decimal(0))
    return finding(
        "doubled_source",
        (one, other),
        title=f"{named(one)} and {named(other)} seem to report the same calls",
        seen=f"{len(pairs):,} of the newest calls ({percent(len(pairs), fewer)} of the smaller source) have a twin in "
        f"the other source: same model, same tokens, starts within 5 s. {money(twice)} may count twice.",
        advice="Decide which of the two counts, and set count = false for the other, as in "
        f'[sources."{named(other)}"]: its records are then kept and shown, and not summed.',
        category="duplicates",
        effort=LOW,
        impact=twice,
        newest=max(_start(second) for _, second in pairs) / NS,
    )


def repeated_ids(facts: Facts) -> Sequence[Finding]:
    """
    Find calls whose ids came again later than any lookup covers: a cache that answers with the first call's id and
    does not say so, or a sender that repeats what is hours old under a new time.
    """
    if facts.repeated_ids < LEAST_REPEATED:
        return []
    calls = sum(spend.calls for spend in facts.week)
    cost = sum((spend.cost for spend in facts.week), Decimal(0))
    return [
        finding(
            "repeated_ids",
            (),
            title=f"{facts.repeated_ids:,} calls came again hours later under the id of an earlier one",
            seen="The ids of providers' answers are in the duplicate window more than once, at times too far apart to "
            "be taken for a repeat. They count each time; the impact is what as many calls usually cost.",
            advice="Look for a cache between client and provider that repeats whole answers, and have it report them "
            "with status cached; or for an importer that sends old calls with the time of the import.",
            category="duplicates",
            effort=MEDIUM,
            impact=facts.repeated_ids * cost / calls if calls else Decimal(0),
        )
    ]


def retry_storm(facts: Facts) -> Sequence[Finding]:
    """Find hours in which most calls of a client failed, and it went on calling."""
    storms: dict[Client, list[Spend]] = defaultdict(list)
    for spend in facts.hours:
        if spend.errors >= max(LEAST_ERRORS, LEAST_FAILED_SHARE * spend.calls):
            storms[_client(spend)].append(spend)
    paid: dict[tuple[Client, float], Decimal] = defaultdict(Decimal)
    for spend in facts.failed:
        paid[_client(spend), spend.start] += spend.cost
    return ordered(
        _storm(client, hours, sum((paid[client, each.start] for each in hours), Decimal(0)))
        for client, hours in storms.items()
    )


def _client(spend: Spend) -> Client:
    return spend.source, spend.model, spend.team


def _storm(client: Client, hours: Sequence[Spend], cost: Decimal) -> Finding:
    source, model, team = client
    worst = max(hours, key=lambda each: each.errors)
    errors = sum(each.errors for each in hours)
    calls = sum(each.calls for each in hours)
    return finding(
        "retry_storm",
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
