"""Detectors of models without a price, and of reported costs that differ from list prices."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any

from gateway.money.insights.detector_facts import PeriodSpend
from gateway.money.insights.detectors.prices import (
    cost_gap,
    missing_price,
    missing_tier_price,
    missing_usage,
    old_prices,
)
from tests.gateway.money.insights.examples import NOW, TODAY, call, found, impacts, spend


def unpriced(calls: int = 40, **fields: Any) -> PeriodSpend:
    usual = {"provider": "acme", "model": "acme-large", "unpriced": calls}
    return spend(calls=calls, cost=Decimal(0), **{**usual, **fields})


def test_a_model_without_a_price_is_weighed_with_the_others() -> None:
    """
    With a priced model, 110,000 tokens cost $0.35, so 220,000 tokens of an unpriced model are worth $0.70.
    """
    [finding] = found(missing_price, week=[spend()], unpriced=[unpriced(), unpriced(days_ago=0)])
    assert "0.70" == finding.draft.cost_impact
    assert "No price for acme-large of acme" == finding.draft.title
    assert TODAY == finding.newest


def test_priced_models_and_failures_are_silent() -> None:
    """Models with a price, calls without usage, and a few calls without a price are not reported."""
    assert [] == found(missing_price, week=[spend()], unpriced=[unpriced(unpriced=0, without_usage=50)])
    assert [] == found(missing_price, week=[spend()], unpriced=[unpriced(calls=4)])
    assert [] == found(missing_price, week=[spend()])


def test_a_source_without_usage_is_one_finding() -> None:
    """Many calls without usage are one finding per source. Few calls, and a small share of all, are silent."""
    rows = [unpriced(unpriced=0, without_usage=15), unpriced(unpriced=0, without_usage=9, model="other")]
    [finding] = found(missing_usage, week=[spend(calls=100)], unpriced=rows)
    assert "24 calls of litellm report no usage" == finding.draft.title
    assert "- other: 9 calls" in finding.draft.description
    assert [] == found(missing_usage, week=[spend(calls=1000)], unpriced=rows)
    assert [] == found(missing_usage, week=[spend(calls=100)], unpriced=rows[:1])


def test_the_models_of_a_provider_are_one_finding() -> None:
    """
    Models without a price are one finding per provider, with one row per model. Calls without a model belong
    to no provider.
    """
    rows = [unpriced(), unpriced(calls=80, model="other"), unpriced(model=None, provider=None)]
    findings = {finding.draft.title: finding for finding in found(missing_price, unpriced=rows)}
    several = "No price for acme-large and 1 more models of acme"
    assert {several, "No price for calls without a model of no provider"} == set(findings)
    assert "- other: 80 calls" in findings[several].draft.description


def test_a_source_whose_prices_are_wrong_is_one_finding() -> None:
    """
    A source that reports wrong prices is one finding. Its fourteen models are rows, the most expensive first,
    and the last ones are only counted. Another source is a separate finding.
    """
    calls = [
        call(cost=str(2 + number), estimated_cost="1", request_model=name, response_model=name)
        for number in range(14)
        for name in [f"model-{number}"]
        for _ in range(20)
    ]
    calls += [call(cost="2", estimated_cost="1", source="otel") for _ in range(20)]
    first, second = found(cost_gap, recent=calls)
    assert "litellm reports $2,380.00 for 14 models, but list prices give $280.00" == first.draft.title
    rows = [line for line in first.draft.description.splitlines() if line.startswith("- ")]
    assert len(rows) == 13
    assert rows[-1] == "- and 2 more"
    assert rows[0].startswith("- model-13 (openai): reported $300.00, list prices $20.00, 20 calls")
    assert "otel reports $40.00 for gpt-4o, but list prices give $20.00" == second.draft.title


def test_a_gap_between_report_and_estimate() -> None:
    """A source reports 20 cents for each of thirty calls that should cost 10 cents."""
    calls = [call(cost="0.2", estimated_cost="0.1") for _ in range(30)]
    [finding] = found(cost_gap, recent=calls)
    assert "3.00" == finding.draft.cost_impact
    assert "litellm reports $6.00 for gpt-4o, but list prices give $3.00" == finding.draft.title


def test_small_gaps_and_few_calls_are_silent() -> None:
    """Gaps of ten percent, ten calls, cents, and calls with only an estimate are ignored."""
    assert [] == found(cost_gap, recent=[call(cost="0.11", estimated_cost="0.1") for _ in range(300)])
    assert [] == found(cost_gap, recent=[call(cost="0.9", estimated_cost="0.1") for _ in range(10)])
    assert [] == found(cost_gap, recent=[call(cost="0.002", estimated_cost="0.001") for _ in range(100)])
    assert [] == found(cost_gap, recent=[call(estimated_cost="0.1") for _ in range(100)])
    assert [] == found(
        cost_gap, recent=[call(cost="0", estimated_cost="9", status="cached") for _ in range(100)]
    )


def test_estimates_that_are_missing_make_no_gap() -> None:
    """Reported costs are compared with estimates only for calls that have both."""
    calls = [call(cost="0.1", estimated_cost="0.1") for _ in range(30)] + [
        call(cost="0.1") for _ in range(300)
    ]
    assert [] == impacts(found(cost_gap, recent=calls))


def test_tiers_without_a_price_are_named() -> None:
    """
    Estimates at standard prices for lack of a tier's price are one finding per provider. Estimates with the tier's
    price are not reported, and neither are calls with a reported cost.
    """
    lacking: dict[str, Any] = {
        "price_book": "list-1+overrides-1234+flex-at-standard",
        "estimated_cost": "0.1",
    }
    calls = [
        *(call(cost_source="estimated", **lacking) for _ in range(3)),
        call(cost_source="estimated", **{**lacking, "price_book": "list-1+batch-at-standard"}),
        call(cost_source="reported", cost="0.2", **lacking),
        call(cost_source="estimated", estimated_cost="0.1", price_book="list-1+overrides-1234"),
    ]
    [finding] = found(missing_tier_price, recent=calls)
    assert "No batch, flex price for models of openai, so standard prices apply" == finding.draft.title
    assert "- gpt-4o, flex: 3 calls, $0.30\n- gpt-4o, batch: 1 calls, $0.10" in finding.draft.description
    assert [] == found(missing_tier_price, recent=calls[-2:])


def test_an_old_price_list_is_named() -> None:
    """
    A list of 31 days ago is reported if calls are estimated with it. A list of 30 days ago, a list without a day, and a
    list that estimates nothing are not.
    """
    day = datetime.fromtimestamp(NOW, UTC).date()
    calls = [call(cost_source="estimated", estimated_cost="0.1"), call(cost="0.2", cost_source="reported")]
    old = {"prices": "list-1", "prices_day": (day - timedelta(days=31)).isoformat()}
    [finding] = found(old_prices, recent=calls, **old)
    assert "The price list is 31 days old" == finding.draft.title
    assert "1 of the newest calls" in finding.draft.description
    assert "tollhouse prices update" in finding.draft.description
    assert [] == found(old_prices, recent=calls[1:], **old)
    assert [] == found(old_prices, recent=calls, prices_day=(day - timedelta(days=30)).isoformat())
    assert [] == found(old_prices, recent=calls, prices_day="")
