"""Detectors for gateways that share a PostgreSQL."""

from __future__ import annotations

from gateway.money.insights.detectors.service import DIFFERENT_AFTER_S as AFTER_S
from gateway.money.insights.detectors.service import different_settings, old_transaction
from spool.leases import NodeSettings
from tests.gateway.money.insights.examples import NOW, found


def node(name: str, since_s: float, *, id: str = "", **digests: str) -> NodeSettings:
    """Create a gateway that took over its settings `since_s` seconds ago."""
    return NodeSettings(node=id or name, name=name, since=NOW - since_s, digests=digests)


def test_settings_that_differ_are_an_insight() -> None:
    """The insight about different settings groups the gateways by equal values, and shows no value."""
    nodes = [
        node("a", 9000, hold="x1", prices="y1", retention="z1"),
        node("b", 8000, hold="x1", prices="y1", retention="z1"),
        node("c", AFTER_S + 60, hold="x2", prices="y2", retention="z1"),
    ]
    [one] = found(different_settings, node_settings=nodes)
    assert "for 11 minutes" in one.draft.description
    assert "hold: a, b | c; prices: a, b | c." in one.draft.description
    assert "retention" not in one.draft.description
    assert not any(digest in one.draft.description for digest in ("x1", "x2", "y1", "y2"))


def test_what_has_just_changed_is_none() -> None:
    """
    A new configuration reaches the gateways one after another, so a setting that has just changed is no
    insight. If one gateway restarts, differences between the others are still reported.
    """
    rolling = [node("a", 9000, hold="x1"), node("b", AFTER_S, hold="x2")]
    assert [] == found(different_settings, node_settings=rolling)
    [one] = found(different_settings, node_settings=[*rolling, node("c", AFTER_S + 1, hold="x2")])
    assert "hold: a | b, c" in one.draft.description


def test_a_setting_that_only_one_release_has_is_none() -> None:
    """A setting that only one release has is no insight, because an upgrade of all gateways may take time."""
    nodes = [node("a", 9000, hold="x1"), node("b", 9000, hold="x1", new="y1")]
    assert [] == found(different_settings, node_settings=nodes)
    assert [] == found(different_settings)


def test_gateways_of_one_name_and_many_settings() -> None:
    """Gateways with the same name are distinguished by their ids, and only the first settings are named."""
    names = [f"s{n:02}" for n in range(12)]
    nodes = [
        node("a", 9000, id="11111111-1", **dict.fromkeys(names, "x")),
        node("a", 9000, id="22222222-2", **dict.fromkeys(names, "y")),
    ]
    [one] = found(different_settings, node_settings=nodes)
    assert "s00: a (11111111) | a (22222222)" in one.draft.description
    assert "s09" in one.draft.description
    assert "s10" not in one.draft.description
    assert "and 2 more" in one.draft.description


def test_a_transaction_that_stays_open_is_an_insight() -> None:
    """
    The insight and the alert about an open transaction both start after ten minutes. If the age is unknown,
    there is no insight.
    """
    [one] = found(old_transaction, oldest_transaction_s=3600.0)
    assert "60 minutes" in one.draft.description
    for harmless in (None, 0.0, 600.0):
        assert [] == found(old_transaction, oldest_transaction_s=harmless)
