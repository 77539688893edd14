"""Detectors of unused keys, of keys with too many scopes, and of keys that expire."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

import pytest

from gateway.money.insights.detector_facts import DAY_S
from gateway.money.insights.detectors.senders import crowding_key, expiring_key, idle_key, wide_key
from gateway.money.insights.findings import finding_key
from gateway.money.insights.key_troubles import key_troubles
from spool.registry.insights import Finding, Insight
from spool.registry.keys import ApiKey, Secret
from spool.registry.notices import CRITICAL, INFO, WARNING, insight_severity
from spool.registry.scopes import GROUPS, INGEST, SEND_AI_TELEMETRY
from spool.registry.tables.expired_tries import ExpiredKeyUses
from spool.settings import COUNTED_ITEMS, MAX_SENDERS
from spool.shares import key_next_to_lose_entries
from tests.gateway.money.insights.examples import NOW, found


def severity_of(finding: Finding) -> str:
    """Return the severity of the insight that a finding opens."""
    insight = Insight(
        id="1", finding=finding.key, status="new", status_at=NOW, created=NOW, last_updated=NOW, found_at=NOW,
        present=True, touched=False, **asdict(finding.draft),
    )  # fmt: skip
    return insight_severity(insight)


def key(**fields: Any) -> ApiKey:
    values: dict[str, Any] = {
        "id": 1, "name": "ci", "status": "Enabled", "scopes": (INGEST,), "created_by": "ada@example.com",
        "updated_by": "ada@example.com", "last_modified": NOW - 60 * DAY_S, "last_accessed": NOW - DAY_S,
    }  # fmt: skip
    return ApiKey(**{**values, **fields})


@pytest.mark.parametrize(
    ("fields", "told"),
    [
        ({}, 0),
        ({"last_accessed": None}, 1),
        ({"last_accessed": NOW - 31 * DAY_S}, 1),
        ({"last_accessed": NOW - 29 * DAY_S}, 0),
        ({"last_accessed": None, "last_modified": NOW - DAY_S}, 0),
        ({"last_accessed": None, "status": "Disabled"}, 0),
    ],
)
def test_idle_keys(fields: dict[str, Any], told: int) -> None:
    """A key is idle if it is enabled, and unchanged and unused for thirty days."""
    assert told == len(found(idle_key, keys=[key(**fields)]))


@pytest.mark.parametrize(
    ("fields", "told"),
    [
        ({}, 0),
        ({"scopes": (), "use_cases": (SEND_AI_TELEMETRY,)}, 0),
        ({"scopes": (INGEST, "billing:read_costs")}, 1),
        ({"scopes": (INGEST, "billing:read_costs"), "status": "Disabled"}, 0),
        ({"scopes": ("billing:read_costs", "views:read_views")}, 0),
        ({"scopes": (INGEST, *GROUPS["AI Device Control Plane"])}, 0),
        ({"scopes": (*GROUPS["Container agent"], "insights:read_insights")}, 0),
        ({"scopes": (*GROUPS["Container agent"], "insights:update_insight")}, 1),
        ({"scopes": (INGEST, "insights:read_insights")}, 1),
        ({"scopes": (INGEST, "ai-hub:mcp")}, 1),
    ],
)
def test_wide_keys(fields: dict[str, Any], told: int) -> None:
    """
    A key that sends telemetry needs no scope to read or change. The container agent needs one scope to read.
    """
    assert told == len(found(wide_key, keys=[key(**fields)]))


def test_a_wide_key_names_what_is_beyond() -> None:
    """The text about a key with too many scopes counts them and lists the first few."""
    [one] = found(wide_key, keys=[key(scopes=(INGEST, "insights:read_insights"))])
    assert "The API key ci sends telemetry and has 1 other scope" == one.draft.title
    [finding] = found(wide_key, keys=[key(scopes=(INGEST, *GROUPS["Views"]))])
    assert "The API key ci sends telemetry and has 5 other scopes" == finding.draft.title
    assert "views:create_view, views:delete_view, views:read_view, views:read_views and 1 more" in (
        finding.draft.description
    )


@pytest.mark.parametrize(
    ("limit", "key", "title", "rule"),
    [
        (MAX_SENDERS, "fleet", "The key fleet", "counters that they send later may be counted"),
        (
            MAX_SENDERS,
            "",
            "The group of senders without a key",
            "counters that they send later may be counted",
        ),
        (COUNTED_ITEMS, "fleet", "The key fleet", "its oldest counters stay counted"),
        ("spool.pending_items", "fleet", "The key fleet", "closed early"),
    ],
)
def test_nearly_full_table_names_the_key_with_most_entries(
    limit: str, key: str, title: str, rule: str
) -> None:
    """From 80 % on, the insight names the key with the most entries, and says what happens to the oldest."""
    assert not found(crowding_key, shares=list(key_next_to_lose_entries(limit, {key: 78, "other": 1}, 100)))
    [finding] = found(crowding_key, shares=list(key_next_to_lose_entries(limit, {key: 79, "other": 1}, 100)))
    assert finding.draft.title.startswith(title)
    assert rule in finding.draft.description


@pytest.mark.parametrize(
    ("in_s", "fields", "told"),
    [
        (14 * DAY_S, {}, 1),
        (14 * DAY_S + 1, {}, 0),
        (1, {}, 1),
        (0, {}, 0),
        (-1, {}, 0),
        (1, {"status": "Disabled"}, 0),
        (None, {}, 0),
    ],
)
def test_keys_that_expire_soon(in_s: float | None, fields: dict[str, Any], told: int) -> None:
    """Keys are reported two weeks before they expire, while they are valid."""
    secret = Secret(b"digest", None if in_s is None else NOW + in_s)
    findings = found(expiring_key, keys=[key(secrets=(secret,), **fields)])
    assert told == len(findings)


@pytest.mark.parametrize(
    ("in_s", "last_accessed", "severity"),
    [
        (14 * DAY_S, NOW, INFO),
        (7 * DAY_S + 1, NOW, INFO),
        (7 * DAY_S, NOW, WARNING),
        (DAY_S + 1, NOW, WARNING),
        (DAY_S, NOW, CRITICAL),
        (1, NOW, CRITICAL),
        (1, None, INFO),
        (1, NOW - 30 * DAY_S, INFO),
        (1, NOW - 30 * DAY_S + 1, CRITICAL),
    ],
)
def test_the_end_of_a_used_key_is_urgent(in_s: float, last_accessed: float | None, severity: str) -> None:
    """The end of a used key is a warning for a week and critical for a day. All steps are one finding."""
    one = key(secrets=(Secret(b"digest", NOW + in_s),), last_accessed=last_accessed)
    [finding] = found(expiring_key, keys=[one])
    [trouble] = key_troubles([one], {}, now=NOW)
    assert severity == trouble.severity == severity_of(finding)
    assert finding.key == trouble.key_of_finding
    assert finding_key("expiring_key", ("1",)) == finding.key


@pytest.mark.parametrize(
    ("fields", "tries", "told"), [({}, 3, 1), ({}, 0, 0), ({"status": "Disabled"}, 3, 0)]
)
def test_an_expired_key_that_is_still_used(fields: dict[str, Any], tries: int, told: int) -> None:
    """An expired key is critical once a sender was refused, because its records are missing."""
    one = key(secrets=(Secret(b"digest", NOW - 60),), **fields)
    counted = {1: ExpiredKeyUses(expires_at=NOW - 60, count=tries, newest=NOW - 1)} if tries else {}
    findings = found(expiring_key, keys=[one], expired_tries=counted)
    assert told == len(findings)
    assert told * [CRITICAL] == [severity_of(finding) for finding in findings]
    assert all("3 requests were refused" in finding.draft.description for finding in findings)


def test_expired_key_is_neither_idle_nor_wide() -> None:
    """An expired key is not idle or wide, because it is no longer valid."""
    expired = key(secrets=(Secret(b"digest", NOW),), last_accessed=None, scopes=(INGEST, "ai-hub:mcp"))
    assert [] == [*found(idle_key, keys=[expired]), *found(wide_key, keys=[expired])]
