"""Detectors of unused keys, of keys with too many scopes, and of keys that expire."""

from __future__ import annotations

from typing import Any

import pytest

from gateway.money.insights.detectors.senders import crowding_key, expiring_key, idle_key, wide_key
from gateway.money.insights.facts import DAY_S
from spool.registry.keys import Key, Secret
from spool.registry.scopes import GROUPS, INGEST, SEND_AI_TELEMETRY
from spool.settings import COUNTED_ITEMS, MAX_SENDERS
from spool.shares import nearly_gives_way
from tests.gateway.money.insights.examples import NOW, found


def key(**fields: Any) -> Key:
    values: dict[str, Any] = {
        "id": 1, "name": "ci", "status": "Enabled", "scopes": (INGEST,), "created_by": "ada@example.com",
        "updated_by": "ada@example.com", "last_modified": NOW - 60 * DAY_S, "last_accessed": NOW - DAY_S,
    }  # fmt: skip
    return Key(**{**values, **fields})


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
def test_a_table_that_forgets_by_number_is_told_before_it_is_full(
    limit: str, key: str, title: str, rule: str
) -> None:
    """From 80 % on, the insight names the key with the most entries, and says what happens to the oldest."""
    assert not found(crowding_key, shares=list(nearly_gives_way(limit, {key: 78, "other": 1}, 100)))
    [finding] = found(crowding_key, shares=list(nearly_gives_way(limit, {key: 79, "other": 1}, 100)))
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


def test_nothing_is_told_of_what_an_expired_key_could_do() -> None:
    """An expired key is not idle or wide, because it is no longer valid."""
    expired = key(secrets=(Secret(b"digest", NOW),), last_accessed=None, scopes=(INGEST, "ai-hub:mcp"))
    assert [] == [*found(idle_key, keys=[expired]), *found(wide_key, keys=[expired])]
