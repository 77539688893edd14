"""Models without a price, and costs that are apart."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

from gateway.insights.detectors import cost_gap, missing_price
from gateway.insights.facts import Spend
from tests.gateway.insights.examples import TODAY, call, found, impacts, spend


def unpriced(calls: int = 40, **fields: Any) -> Spend:
    return spend(calls=calls, unpriced=calls, cost=Decimal(0), **{"provider": "acme", "model": "acme-large", **fields})


def test_a_model_without_a_price_is_weighed_with_the_others() -> None:
    """110,000 tokens cost $0.35 with a priced model, so 220,000 of an unpriced one are worth $0.70."""
    [finding] = found(missing_price, week=[spend()], unpriced=[unpriced(), unpriced(days_ago=0)])
    assert "0.70" == finding.draft.cost_impact
    assert "No price is known for acme-large of acme" == finding.draft.title
    assert TODAY == finding.newest


def test_priced_models_and_failures_are_silent() -> None:
    """Without tokens there is nothing to price, and a handful of calls is no model in use."""
    assert [] == found(missing_price, week=[spend()], unpriced=[unpriced(input_tokens=0, output_tokens=0)])
    assert [] == found(missing_price, week=[spend()], unpriced=[unpriced(calls=4)])
    assert [] == found(missing_price, week=[spend()])


def test_each_model_is_a_finding() -> None:
    """Also those without a name."""
    rows = [unpriced(), unpriced(model="other"), unpriced(model=None, provider=None)]
    titles = {each.draft.title for each in found(missing_price, unpriced=rows)}
    assert "No price is known for calls without a model of no provider" in titles
    assert 3 == len(titles)


def test_a_gap_between_report_and_estimate() -> None:
    """Thirty calls reported at 20 cents that should cost 10."""
    calls = [call(cost="0.2", estimated_cost="0.1") for _ in range(30)]
    [finding] = found(cost_gap, recent=calls)
    assert "3.00" == finding.draft.cost_impact
    assert "litellm reports $6.00 for gpt-4o, the price book says $3.00" == finding.draft.title


def test_small_gaps_and_few_calls_are_silent() -> None:
    """Ten percent is rounding and contracts; ten calls are chance; cents are nothing; an estimate alone is no gap."""
    assert [] == found(cost_gap, recent=[call(cost="0.11", estimated_cost="0.1") for _ in range(300)])
    assert [] == found(cost_gap, recent=[call(cost="0.9", estimated_cost="0.1") for _ in range(10)])
    assert [] == found(cost_gap, recent=[call(cost="0.002", estimated_cost="0.001") for _ in range(100)])
    assert [] == found(cost_gap, recent=[call(estimated_cost="0.1") for _ in range(100)])
    assert [] == found(cost_gap, recent=[call(cost="0", estimated_cost="9", status="cached") for _ in range(100)])


def test_estimates_that_are_missing_make_no_gap() -> None:
    """Only calls that have both costs are held against each other."""
    calls = [call(cost="0.1", estimated_cost="0.1") for _ in range(30)] + [call(cost="0.1") for _ in range(300)]
    assert [] == impacts(found(cost_gap, recent=calls))
