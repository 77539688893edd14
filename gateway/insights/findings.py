"""Builds findings: bounded names, exact amounts, and a key that stays the same for the same subject."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from decimal import Decimal
from hashlib import blake2b

from spool.registry.insights import Draft, Finding, dollars

MAX_NAME = 60
MAX_FINDINGS = 20  # of one detector in one run: the most costly ones are kept


def finding(
    detector: str,
    subject: Sequence[str | None],
    *,
    title: str,
    seen: str,
    advice: str,
    category: str,
    effort: str,
    impact: Decimal = Decimal(0),
    newest: float | None = None,
) -> Finding:
    """Builds a finding. `subject` identifies it among those of its detector, also when found again."""
    digest = blake2b(json.dumps(list(subject)).encode(), digest_size=16).hexdigest()
    draft = Draft(
        title=title,
        description=f"What was seen: {seen}\n\nWhat to do: {advice}",
        category=category,
        effort=effort,
        cost_impact=dollars(impact),
    )
    return Finding(key=f"{detector}:{digest}", draft=draft, newest=newest)


def ordered(findings: Iterable[Finding]) -> list[Finding]:
    """Returns the most costly findings first, MAX_FINDINGS at most."""
    return sorted(findings, key=lambda each: (-Decimal(each.draft.cost_impact), each.key))[:MAX_FINDINGS]


def named(value: str | None, unknown: str = "unknown") -> str:
    """Returns a name that a sender chose, shortened and printable."""
    if not value:
        return unknown
    text = "".join(mark if mark.isprintable() else " " for mark in value)
    return text if len(text) <= MAX_NAME else f"{text[: MAX_NAME - 3]}..."


def money(amount: Decimal) -> str:
    return f"${Decimal(dollars(amount)):,}"


def day(at: float) -> str:
    return datetime.fromtimestamp(at, UTC).strftime("%Y-%m-%d")


def hour(at: float) -> str:
    return datetime.fromtimestamp(at, UTC).strftime("%Y-%m-%d %H:00 UTC")


def percent(part: Decimal | float, whole: Decimal | float) -> str:
    return f"{float(part) / float(whole):.0%}" if whole else "0%"
