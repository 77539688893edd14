"""
Detectors for costs that are wrong or unknown. The cause is a missing price, a missing exchange rate, or a
source that reports another cost.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from decimal import Decimal

from gateway.intake.prices import missing_prices_in_book_name
from gateway.money.insights.detector_facts import InsightFacts, PeriodSpend, mark_impossible_in_demo
from gateway.money.insights.findings import (
    build_finding,
    format_money,
    format_percent,
    format_rows,
    printable_name,
    sort_by_impact,
)
from spool.record import NS, Inference
from spool.registry.insights import LOW, MEDIUM, Finding

# Thresholds of the detector missing_price.
LEAST_UNPRICED = 5  # minimum calls without a price
# Thresholds of the detector missing_usage.
LEAST_WITHOUT_USAGE = 20  # minimum calls of a source without usage
LEAST_SHARE_WITHOUT_USAGE = Decimal("0.05")  # minimum share of the calls of the source
# Threshold of the detector old_prices.
LONGEST_AGE_D = 30
# Thresholds of the detector cost_gap.
LEAST_CALLS = 20
LEAST_GAP = Decimal("0.15")  # minimum difference between the two costs, as a share of the larger cost
LEAST_APART = Decimal(1)  # minimum difference between the two costs, in dollars


def missing_price(facts: InsightFacts) -> Sequence[Finding]:
    """Find models that have calls but no price. Their cost is missing from every total."""
    models: dict[tuple[str | None, str | None], list[PeriodSpend]] = defaultdict(list)
    for spend in facts.unpriced:
        if spend.unpriced:
            models[spend.provider, spend.model].append(spend)
    usual = _usual_price_per_token(facts.week)
    providers: dict[str | None, dict[str | None, list[PeriodSpend]]] = defaultdict(dict)
    for (provider, model), spends in models.items():
        if sum(spend.unpriced for spend in spends) >= LEAST_UNPRICED:
            providers[provider][model] = spends
    return sort_by_impact(
        _unpriced_finding(provider, models, usual) for provider, models in providers.items()
    )


@mark_impossible_in_demo("all successful calls of a demo month state usage")
def missing_usage(facts: InsightFacts) -> Sequence[Finding]:
    """Find sources whose successful calls lack token counts. Their cost is missing from every total."""
    lacking: dict[str | None, list[PeriodSpend]] = defaultdict(list)
    for spend in facts.unpriced:
        if spend.without_usage:
            lacking[spend.source].append(spend)
    all_calls: Counter[str | None] = Counter()
    for spend in facts.week:
        all_calls[spend.source] += spend.calls
    findings = []
    for source, spends in lacking.items():
        calls = sum(spend.without_usage for spend in spends)
        if calls >= LEAST_WITHOUT_USAGE and calls >= LEAST_SHARE_WITHOUT_USAGE * all_calls[source]:
            findings.append(_without_usage_finding(source, spends, calls))
    return sort_by_impact(findings)


def _without_usage_finding(source: str | None, spends: Sequence[PeriodSpend], calls: int) -> Finding:
    models: Counter[str] = Counter()
    for spend in spends:
        models[printable_name(spend.model, "calls without a model")] += spend.without_usage
    rows = [f"{model}: {count:,} calls" for model, count in models.most_common()]
    return build_finding(
        "missing_usage",
        (source,),
        title=f"{calls:,} calls of {printable_name(source)} report no usage",
        seen=(
            f"In a week, {calls:,} calls of {printable_name(source)} succeeded without token counts or "
            "other usage. They "
            f"count as $0.{format_rows(rows)}"
        ),
        advice=(
            "Set the sender to report usage. For OpenAI streams, set `stream_options.include_usage`. "
            "`tollhouse explain` shows which attributes Tollhouse reads."
        ),
        category="prices",
        effort=LOW,
        newest=max(spend.start for spend in spends),
    )


def _usual_price_per_token(week: Sequence[PeriodSpend]) -> Decimal:
    priced = [spend for spend in week if spend.cost]
    tokens = sum(spend.tokens for spend in priced)
    return sum((spend.cost for spend in priced), Decimal(0)) / tokens if tokens else Decimal(0)


def _unpriced_finding(
    provider: str | None, models: Mapping[str | None, Sequence[PeriodSpend]], usual: Decimal
) -> Finding:
    spends = [spend for model_spends in models.values() for spend in model_spends]
    calls = sum(spend.unpriced for spend in spends)
    tokens = sum(spend.tokens for spend in spends)
    sources = ", ".join(sorted({printable_name(spend.source) for spend in spends})[:5])
    largest = sorted(models, key=lambda model: (-sum(spend.tokens for spend in models[model]), model or ""))
    name = printable_name(largest[0], "calls without a model")
    name_text = name if len(models) == 1 else f"{name} and {len(models) - 1} more models"
    rows = [
        f"{printable_name(model, 'calls without a model')}: {sum(spend.unpriced for spend in models[model]):,} calls, "
        f"{sum(spend.tokens for spend in models[model]):,} tokens"
        for model in largest
    ]
    return build_finding(
        "missing_price",
        (provider,),
        title=f"No price for {name_text} of {printable_name(provider, 'no provider')}",
        seen=(
            f"{calls:,} calls with {tokens:,} tokens in a week count as $0, because the price list has no "
            f"price for them. They were reported by {sources}. The impact assumes the average price per "
            f"token of the other models.{format_rows(rows)}"
        ),
        advice=(
            "Set a price of each model (0 for your own hardware) on the page Prices of the console or with "
            "`tollhouse prices create`, then run `tollhouse ledger reprice`."
        ),
        category="prices",
        effort=LOW,
        impact=tokens * usual,
        newest=max(spend.start for spend in spends),
    )


@mark_impossible_in_demo("the price list has all tiers of a demo month")
def missing_tier_price(facts: InsightFacts) -> Sequence[Finding]:
    """
    Find calls of a service tier that the price list lacks, one finding per provider. Standard prices apply, which
    may be too high or too low.
    """
    calls: dict[str | None, dict[tuple[str | None, str], list[Inference]]] = defaultdict(
        lambda: defaultdict(list)
    )
    for call in facts.recent:
        if call.cost_source == "estimated":
            for name in missing_prices_in_book_name(call.price_book):
                calls[call.provider][call.response_model or call.request_model, name].append(call)
    return sort_by_impact(_missing_tier_price_finding(provider, groups) for provider, groups in calls.items())


def _missing_tier_price_finding(
    provider: str | None, groups: Mapping[tuple[str | None, str], Sequence[Inference]]
) -> Finding:
    calls = [call for group in groups.values() for call in group]
    tiers = ", ".join(sorted({tier for _, tier in groups}))
    rows = [
        f"{printable_name(model)}, {tier}: {len(group):,} calls, "
        f"{format_money(sum((Decimal(call.estimated_cost or 0) for call in group), Decimal(0)))}"
        for (model, tier), group in sorted(groups.items(), key=lambda item: (-len(item[1]), str(item[0])))
    ]
    return build_finding(
        "missing_tier_price",
        (provider,),
        title=f"No {tiers} price for models of {printable_name(provider, 'no provider')}, so standard prices apply",
        seen=(
            f"The price list has no {tiers} price for {len(calls):,} of the newest calls. They are estimated at "
            f"standard prices, which may differ from the bill.{format_rows(rows)}"
        ),
        advice=(
            "Load a newer price list with `tollhouse prices update`, then run `tollhouse ledger reprice`. If it "
            "lacks the price as well, compare the estimate with the provider's bill."
        ),
        category="prices",
        effort=LOW,
        impact=Decimal(0),
        newest=_newest_start(calls),
    )


@mark_impossible_in_demo("a demo month uses the newest price list")
def old_prices(facts: InsightFacts) -> Sequence[Finding]:
    """Find a price list that is too old, if calls are estimated with it."""
    estimated = [call for call in facts.recent if call.cost_source == "estimated"]
    if not facts.prices_day or not estimated:
        return []
    day = datetime.fromisoformat(facts.prices_day).replace(tzinfo=UTC)
    age = (datetime.fromtimestamp(facts.now, UTC) - day).days
    if age <= LONGEST_AGE_D:
        return []
    return [
        build_finding(
            "old_prices",
            (),
            title=f"The price list is {age} days old",
            seen=(
                f"The price list {facts.prices} is of {facts.prices_day}. {len(estimated):,} of the newest calls are "
                "estimated with it. Their models may have other prices by now."
            ),
            advice=(
                "Load a newer list: `tollhouse prices update --from URL`, or install a newer release. If "
                "prices.file names the list, replace that file. Then run `tollhouse ledger reprice`. The page "
                "Prices has an address of a public list."
            ),
            category="prices",
            effort=LOW,
            impact=Decimal(0),
            newest=_newest_start(estimated),
        )
    ]


@mark_impossible_in_demo("all amounts of a demo month are in dollars")
def missing_rate(facts: InsightFacts) -> Sequence[Finding]:
    """Find currencies without an exchange rate, one finding per currency."""
    return [
        _missing_rate_finding(currency, amount, facts.now)
        for currency, amount in sorted(facts.unconverted.items())
    ]


def _missing_rate_finding(currency: str, amount: str, now: float) -> Finding:
    return build_finding(
        "missing_rate",
        (currency,),
        title=f"No exchange rate for {currency}",
        seen=(
            f"{amount} {currency} of the last week is missing from the totals in dollars. Reports show "
            "the amount as `unconverted`."
        ),
        advice="Set a file of rates in [currency] rates_file, or add a rate in [[currency.rate]].",
        category="prices",
        effort=LOW,
        impact=Decimal(0),
        newest=now,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class _EstimateGap:
    """The reported and the estimated cost of one source's calls with one provider and model."""

    provider: str | None
    model: str | None
    calls: Sequence[Inference]
    reported: Decimal
    estimated: Decimal

    @property
    def absolute_difference(self) -> Decimal:
        return abs(self.reported - self.estimated)

    @property
    def line_text(self) -> str:
        return (
            f"{printable_name(self.model)} ({printable_name(self.provider)}): reported "
            f"{format_money(self.reported)}, list prices "
            f"{format_money(self.estimated)}, {len(self.calls):,} calls"
        )


def cost_gap(facts: InsightFacts) -> Sequence[Finding]:
    """
    Find calls whose reported cost differs from the estimated cost. The cause is a wrong price, a contract, or
    a mistake of the source.
    """
    calls: dict[tuple[str, str | None, str | None], list[Inference]] = defaultdict(list)
    for call in facts.recent:
        if call.status == "ok" and call.cost is not None and call.estimated_cost is not None:
            calls[call.source, call.provider, call.response_model or call.request_model].append(call)
    gaps: dict[str, list[_EstimateGap]] = defaultdict(list)
    for (source, provider, model), group in calls.items():
        reported = sum((Decimal(call.cost or 0) for call in group), Decimal(0))
        estimated = sum((Decimal(call.estimated_cost or 0) for call in group), Decimal(0))
        gap = _EstimateGap(
            provider=provider, model=model, calls=group, reported=reported, estimated=estimated
        )
        if len(group) >= LEAST_CALLS and gap.absolute_difference >= max(
            LEAST_APART, LEAST_GAP * max(reported, estimated)
        ):
            gaps[source].append(gap)
    return sort_by_impact(
        _cost_difference_finding(
            source, sorted(spends, key=lambda gap: (-gap.absolute_difference, gap.line_text))
        )
        for source, spends in gaps.items()
    )


def _cost_difference_finding(source: str, gaps: Sequence[_EstimateGap]) -> Finding:
    """Build one finding for a source, because its price table is the likely cause. Each model is a row."""
    reported = sum((gap.reported for gap in gaps), Decimal(0))
    estimated = sum((gap.estimated for gap in gaps), Decimal(0))
    difference = sum((gap.absolute_difference for gap in gaps), Decimal(0))
    models = printable_name(gaps[0].model) if len(gaps) == 1 else f"{len(gaps)} models"
    count = sum(len(gap.calls) for gap in gaps)
    return build_finding(
        "cost_gap",
        (source,),
        title=(
            f"{printable_name(source)} reports {format_money(reported)} for {models}, but list prices "
            f"give {format_money(estimated)}"
        ),
        seen=(
            f"{count:,} of the newest calls of {models} have both a reported and an estimated cost. The "
            f"two differ by {format_percent(difference, max(reported, estimated))}. The reported cost "
            f"counts.{format_rows([g.line_text for g in gaps])}"
        ),
        advice=(
            "Compare one call with the provider's invoice. If the reported cost is right, for example "
            "because of a contract, put its prices in [[prices.override]]. Otherwise, correct the price "
            "table of the source."
        ),
        category="prices",
        effort=MEDIUM,
        impact=difference,
        newest=_newest_start([call for gap in gaps for call in gap.calls]),
    )


def _newest_start(calls: Sequence[Inference]) -> float | None:
    starts = [call.start_time for call in calls if call.start_time is not None]
    return max(starts) / NS if starts else None
