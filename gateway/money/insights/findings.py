"""
Builders of findings. Names are limited in length, amounts are exact, and the key of a finding stays the same
for a subject.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from decimal import Decimal
from hashlib import blake2b

from spool.printable import replace_unprintable
from spool.registry.insights import CallFilter, Finding, InsightDraft, dollar_text
from spool.registry.notices import CRITICAL, INFO, NOT_ARRIVING, WARNING

MAX_NAME = 60
MAX_ROWS = 12  # maximum rows in the description of an insight
MAX_FINDINGS = 20  # maximum findings per detector and run; the most costly findings are kept


# categories, by severity, of findings about something that ends at a known time
CATEGORY_OF = {INFO: "keys", WARNING: "reliability", CRITICAL: NOT_ARRIVING}


def build_finding(
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
    channels: tuple[str, ...] = (),
    concerns: CallFilter | None = None,
    severity: str = "",
    csv: str = "",
) -> Finding:
    """
    Build a finding. `subject` identifies it within its detector, so later runs recognize the same finding.
    """
    draft = InsightDraft(
        title=title,
        description=f"What was seen: {seen}\n\nWhat to do: {advice}",
        category=category,
        effort=effort,
        cost_impact=dollar_text(impact),
    )
    return Finding(
        key=finding_key(detector, subject),
        draft=draft,
        newest=newest,
        channels=channels,
        concerns=concerns,
        severity=severity,
        csv=csv,
    )


def finding_key(detector: str, subject: Sequence[str | None]) -> str:
    digest = blake2b(json.dumps(list(subject)).encode(), digest_size=16).hexdigest()
    return f"{detector}:{digest}"


def format_rows(rows: Sequence[str], max_rows: int = MAX_ROWS) -> str:
    """Format the first rows of a finding as a list. Return "" if there are fewer than two rows."""
    if len(rows) < 2:
        return ""
    more_line = [f"- and {len(rows) - max_rows} more"] if len(rows) > max_rows else []
    return "\n".join(["", "", *(f"- {row}" for row in rows[:max_rows]), *more_line])


def sort_by_impact(findings: Iterable[Finding], *, max_findings: int = MAX_FINDINGS) -> list[Finding]:
    return sorted(findings, key=lambda finding: (-Decimal(finding.draft.cost_impact), finding.key))[
        :max_findings
    ]


def printable_name(value: str | None, unknown: str = "unknown", *, max_characters: int = MAX_NAME) -> str:
    """Shorten a name that a sender chose, and make it printable."""
    if not value:
        return unknown
    text = replace_unprintable(value)
    return text if len(text) <= max_characters else f"{text[: max_characters - 3]}..."


def format_money(amount: Decimal) -> str:
    return f"${Decimal(dollar_text(amount)):,}"


def format_day(moment: float) -> str:
    return datetime.fromtimestamp(moment, UTC).strftime("%Y-%m-%d")


def day_in_words(moment: float) -> str:
    """Return a day as sentences write it, such as 18 Sep."""
    when = datetime.fromtimestamp(moment, UTC)
    return f"{when.day} {when:%b}"


def format_hour(moment: float) -> str:
    return datetime.fromtimestamp(moment, UTC).strftime("%Y-%m-%d %H:00 UTC")


def format_percent(part: Decimal | float, whole: Decimal | float) -> str:
    return f"{float(part) / float(whole):.0%}" if whole else "0%"
