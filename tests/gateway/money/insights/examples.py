"""Facts that lead to no finding. Each test adds the facts that its detector must find."""

from __future__ import annotations

from collections.abc import Sequence
from decimal import Decimal
from typing import Any

from gateway.money.insights.detector_facts import DAY_S, Detector, InsightFacts, PeriodSpend
from spool.record import NS, Inference
from spool.registry.insights import EFFORTS, Finding, check_insight_draft

NOW = 1_790_000_000.0 // DAY_S * DAY_S + 15 * 3600  # the afternoon of a Monday
TODAY = NOW // DAY_S * DAY_S


def spend(days_ago: float = 1, **fields: Any) -> PeriodSpend:
    values: dict[str, Any] = {
        "source": "litellm", "provider": "openai", "model": "gpt-4o", "team": "search",
        "calls": 100, "input_tokens": 100_000, "output_tokens": 10_000, "cost": Decimal("0.35"),
    }  # fmt: skip
    return PeriodSpend(start=TODAY - days_ago * DAY_S, **{**values, **fields})


def call(seconds_ago: float = 3600, **fields: Any) -> Inference:
    values: dict[str, Any] = {
        "id": b"\0" * 16, "source": "litellm", "provider": "openai", "request_model": "gpt-4o", "team": "search",
        "start_time": int((NOW - seconds_ago) * NS), "input_tokens": 1000, "output_tokens": 100,
    }  # fmt: skip
    return Inference(**{**values, **fields})


def found(detector: Detector, **facts: Any) -> Sequence[Finding]:
    """Run a detector, and check that each finding can be stored and read."""
    findings = detector(InsightFacts(now=NOW, **facts))
    for finding in findings:
        assert finding.key.startswith(f"{detector.__name__}:")
        assert check_insight_draft(finding.draft) == finding.draft
        assert finding.draft.effort in EFFORTS
        assert "What was seen: " in finding.draft.description
        assert "What to do: " in finding.draft.description
    assert len({finding.key for finding in findings}) == len(findings)
    return findings


def impacts(findings: Sequence[Finding]) -> list[str]:
    return [finding.draft.cost_impact for finding in findings]
