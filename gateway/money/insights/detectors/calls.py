"""
Detectors for calls without an owner, for calls that count twice, and for calls that fail and are repeated.
"""

from __future__ import annotations

from collections import Counter, defaultdict, deque
from collections.abc import Iterator, Sequence
from decimal import Decimal

from gateway.money.insights.detector_facts import InsightFacts, PeriodSpend, mark_impossible_in_demo
from gateway.money.insights.findings import (
    build_finding,
    format_hour,
    format_money,
    format_percent,
    printable_name,
    sort_by_impact,
)
from spool.identity import decode_times_from_dedup_keys, possible_input_counts
from spool.record import NS, Inference, further_dedup_keys
from spool.registry.insights import LOW, MEDIUM, CallFilter, Finding

# minimum share of the week's cost without an owner
LEAST_OWNERLESS_SHARE = Decimal("0.05")  # minimum share of the week's spend that has no owner
LEAST_OWNERLESS = Decimal(1)  # minimum spend without an owner, in dollars
# Thresholds of the detector doubled_source.
APART_NS = 5 * NS
LEAST_PAIRS = 10
LEAST_WHOLE = 3  # minimum pairs of calls, if every call has a twin, or only one source states sessions
LEAST_PAIRED_SHARE = 0.2  # minimum share of the smaller source's calls that have a twin
LEAST_TOKENS = 50  # minimum tokens of a compared call, because shorter calls look alike by chance
# Thresholds of the detector repeated_ids.
LEAST_REPEATED = 10
# Thresholds of the detector retry_storm.
LEAST_ERRORS = 30  # minimum failed calls per hour
LEAST_FAILED_SHARE = 0.5

CallPair = tuple[Inference, Inference]
# suffix in the name of a source, for spans that an SDK writes next to those of the source itself
SDK = " (SDK)"
Client = tuple[str | None, str | None, str | None]  # client of a call: its source, model and team


def no_owner(facts: InsightFacts) -> Sequence[Finding]:
    """Find spend that names neither a team nor a user."""
    total = sum((spend.cost for spend in facts.week), Decimal(0))
    sources: dict[str | None, list[PeriodSpend]] = defaultdict(list)
    for spend in facts.week:
        if spend.cost and not spend.team and not spend.user:
            sources[spend.source].append(spend)
    findings = []
    for source, spends in sources.items():
        cost = sum((spend.cost for spend in spends), Decimal(0))
        if cost < max(LEAST_OWNERLESS, LEAST_OWNERLESS_SHARE * total):
            continue
        keys = sorted({printable_name(spend.api_key, "no key") for spend in spends})[:5]
        findings.append(
            build_finding(
                "no_owner",
                (source,),
                title=f"{format_money(cost)} from {printable_name(source)} has no team or user",
                seen=(
                    f"{format_percent(cost, total)} of a week's spend came from {printable_name(source)} "
                    "without a team "
                    f"or a user (keys: {', '.join(keys)})."
                ),
                advice=(
                    "Label the Tollhouse key of that sender (`tollhouse keys edit NAME --label "
                    "team=...`), or add an [[attribution]] rule that matches the api_key or the service "
                    "of these calls."
                ),
                category="attribution",
                effort=LOW,
                impact=cost,
                newest=max(spend.start for spend in spends),
            )
        )
    return sort_by_impact(findings)


def doubled_source(facts: InsightFacts) -> Sequence[Finding]:
    """
    Find pairs of calls that probably are the same call, reported by two sources. The two calls have the same
    model and tokens, and start at most five seconds apart.

    Their ids do not match, so both calls count. The finding is only a suspicion and changes no total. Spans
    that SDKs write are a source of their own.

    Calls of a gateway have no session, unless they are joined to those of an assistant. So if the twins of a
    source have no session, their share is that of its calls without a session.
    """
    calls = [call for call in facts.recent if _has_enough_tokens(call)]
    by_source = Counter(map(_source_name, calls))
    without_session = Counter(_source_name(call) for call in calls if call.session is None)
    pairs: dict[tuple[str, str], list[CallPair]] = defaultdict(list)
    for first, second in _pair_calls_of_different_sources(calls):
        first_source, other_source = sorted((_source_name(first), _source_name(second)))
        pairs[first_source, other_source].append((first, second))
    findings = []
    for (first_source, other_source), source_pairs in pairs.items():
        twins = [call for pair in source_pairs for call in pair]
        stating = {_source_name(call) for call in twins if call.session is not None}
        counts = [
            (by_source if source in stating else without_session)[source]
            for source in (first_source, other_source)
        ]
        fewer = min(counts)
        if _are_pairs_suspicious(len(source_pairs), fewer, has_one_side_sessions=len(stating) == 1):
            findings.append(_doubled_source_finding(first_source, other_source, source_pairs, fewer))
    return sort_by_impact(findings)


def _are_pairs_suspicious(
    pair_count: int, calls_of_smaller_source: int, *, has_one_side_sessions: bool
) -> bool:
    """
    Return whether two sources have too many pairs of equal calls for chance. If only one of them states
    sessions, they are probably an assistant and its gateway, so fewer pairs suffice.
    """
    if pair_count < LEAST_WHOLE:
        return False
    if pair_count == calls_of_smaller_source:
        return True
    least = LEAST_WHOLE if has_one_side_sessions else LEAST_PAIRS
    return pair_count >= max(least, LEAST_PAIRED_SHARE * calls_of_smaller_source)


def _has_enough_tokens(call: Inference) -> bool:
    tokens = (call.input_tokens or 0) + (call.output_tokens or 0)
    return call.start_time is not None and tokens >= LEAST_TOKENS and call.status != "cached"


def _pair_calls_of_different_sources(calls: Sequence[Inference]) -> Iterator[CallPair]:
    """Pair each call with the nearest earlier call of another source. Each call is in at most one pair."""
    calls_by_shape: dict[tuple[str, int | None, int | None], list[Inference]] = defaultdict(list)
    for call in calls:
        for count in _possible_input_tokens(call):
            calls_by_shape[_model_without_prefix(call), count, call.output_tokens].append(call)
    paired: set[int] = set()
    for group in calls_by_shape.values():
        # One queue per source, because a list of all calls takes quadratic time if many calls look alike.
        waiting: dict[str, deque[tuple[int, Inference]]] = defaultdict(deque)
        unpaired = sorted([call for call in group if id(call) not in paired], key=_start_or_zero)
        for position, call in enumerate(unpaired):
            source = _source_name(call)
            for queue in waiting.values():
                while queue and _start_or_zero(call) - _start_or_zero(queue[0][1]) > APART_NS:
                    queue.popleft()
            others = [queue for name, queue in waiting.items() if queue and name != source]
            if not others:
                waiting[source].append((position, call))
                continue
            _, paired_call = max(others, key=lambda queue: queue[-1][0]).pop()
            paired |= {id(paired_call), id(call)}
            yield paired_call, call


def _source_name(call: Inference) -> str:
    """
    Return the source of a call. If a span of an SDK is joined to no other call, its source has a name of its
    own.
    """
    return f"{call.source}{SDK}" if _is_sdk_span_without_gateway(call) else call.source


def _is_sdk_span_without_gateway(call: Inference) -> bool:
    inner, outer = (
        decode_times_from_dedup_keys(further_dedup_keys(call), is_inner=is_inner)
        for is_inner in (True, False)
    )
    return bool(inner) and not outer


def _possible_input_tokens(call: Inference) -> set[int | None]:
    """Return the possible input tokens of a call. A framework may report an SDK's input without the cache."""
    return {call.input_tokens, *(possible_input_counts(call) if _is_sdk_span_without_gateway(call) else ())}


def _start_or_zero(call: Inference) -> int:
    return call.start_time or 0


def _model_without_prefix(call: Inference) -> str:
    return (call.request_model or call.response_model or "").lower().rpartition("/")[2]


def _call_cost(call: Inference) -> Decimal:
    return Decimal(call.cost or call.estimated_cost or 0)


_WITHOUT_SDK = (
    "The provider's SDK reports these calls next to a framework, and neither the trace nor an id connects the "
    "two spans. Switch off the spans of the SDK, for example with ANTHROPIC_OPEN_TELEMETRY=false, or run the "
    "framework's calls so that its span is the current one."
)


def _doubled_source_finding(one: str, other: str, pairs: Sequence[CallPair], fewer: int) -> Finding:
    twice = sum((min(_call_cost(first), _call_cost(second)) for first, second in pairs), Decimal(0))
    return build_finding(
        "doubled_source",
        (one, other),
        title=f"{printable_name(one)} and {printable_name(other)} seem to report the same calls",
        seen=(
            f"{len(pairs):,} of the newest calls ({format_percent(len(pairs), fewer)} of the smaller source) "
            "have a twin in the other source. Model and tokens are the same, and the calls start within "
            f"5 s. {format_money(twice)} may count twice."
        ),
        advice=_WITHOUT_SDK
        if other.endswith(SDK) or one.endswith(SDK)
        else (
            "Decide which source should count. For the other source, set count = false, as in "
            f'[sources."{printable_name(other)}"]. Its records are then stored and shown, but not summed.'
        ),
        category="duplicates",
        effort=LOW,
        impact=twice,
        newest=max(_start_or_zero(second) for _, second in pairs) / NS,
    )


@mark_impossible_in_demo("a demo month has no sender that repeats ids for hours")
def repeated_ids(facts: InsightFacts) -> Sequence[Finding]:
    """
    Find ids used again so late that duplicate detection does not recognize them.

    There are two usual causes. A cache may respond with the id of the first call without reporting that the
    response is cached. Or a sender may send calls again after hours with a new time.
    """
    if facts.repeated_ids < LEAST_REPEATED:
        return []
    calls = sum(spend.calls for spend in facts.week)
    cost = sum((spend.cost for spend in facts.week), Decimal(0))
    return [
        build_finding(
            "repeated_ids",
            (),
            title=f"{facts.repeated_ids:,} calls reuse the id of a call that is hours older",
            seen=(
                "Some response ids of providers are recorded more than once. The calls are too far apart "
                "in time to be recognized as repeats, so each of them counts. The impact assumes the "
                "average cost per call."
            ),
            advice=(
                "Look for a cache between the client and the provider that repeats whole responses, and "
                "have it report them with the status cached. Also look for an importer that sends old "
                "calls with the time of the import."
            ),
            category="duplicates",
            effort=MEDIUM,
            impact=facts.repeated_ids * cost / calls if calls else Decimal(0),
        )
    ]


def retry_storm(facts: InsightFacts) -> Sequence[Finding]:
    """Find clients that continued to call in hours in which most of their calls failed."""
    storms: dict[Client, list[PeriodSpend]] = defaultdict(list)
    for spend in facts.hours:
        if spend.errors >= max(LEAST_ERRORS, LEAST_FAILED_SHARE * spend.calls):
            storms[_client_key(spend)].append(spend)
    paid: dict[tuple[Client, float], Decimal] = defaultdict(Decimal)
    for spend in facts.failed:
        paid[_client_key(spend), spend.start] += spend.cost
    return sort_by_impact(
        _error_storm_finding(client, hours, sum((paid[client, hour.start] for hour in hours), Decimal(0)))
        for client, hours in storms.items()
    )


def _client_key(spend: PeriodSpend) -> Client:
    return spend.source, spend.model, spend.team


def _error_storm_finding(client: Client, hours: Sequence[PeriodSpend], cost: Decimal) -> Finding:
    source, model, team = client
    worst = max(hours, key=lambda item: item.errors)
    errors = sum(hour.errors for hour in hours)
    calls = sum(hour.calls for hour in hours)
    return build_finding(
        "retry_storm",
        client,
        title=(
            f"{errors:,} of {calls:,} calls of {printable_name(model, 'a model without a name')} failed within "
            f"{len(hours)} {'hour' if len(hours) == 1 else 'hours'}"
        ),
        seen=(
            f"{printable_name(source)} reports failed and repeated calls for team "
            f"{printable_name(team)}. The worst hour "
            f"was {format_hour(worst.start)}, with {worst.errors:,} failures. The failed calls cost "
            f"{format_money(cost)}."
        ),
        advice=(
            "Look at the error types with `tollhouse report --by status,model`. Have the client wait "
            "longer after each failure and stop after a few failures."
        ),
        category="reliability",
        effort=MEDIUM,
        impact=cost,
        newest=max(hour.start for hour in hours),
        concerns=CallFilter(
            include={"source": (source or "",), "model": (model or "",), "team": (team or "",)}
        ),
    )
