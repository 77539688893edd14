"""An agent configuration expressed as Helm chart values."""

from __future__ import annotations

from gateway.clusters.agent_config import FIELDS, chart_values, check_agent_config, fields_without_value

WHOLE = {
    "scrape_interval": "30s",
    "upload_interval": "5m",
    "metrics": {"include": ["a"]},
    "labels": {"pods": ["^team$", "^app$"], "namespaces": ["^team$", "^cost$"]},
    "namespaces": {"exclude": ["kube-system"]},
    "log_level": "warn",
    "x_owner": "platform",
}


def test_each_name_has_its_value_or_is_named() -> None:
    """Every setting either has a chart value or is listed as one without a value."""
    check_agent_config(WHOLE)
    assert set(FIELDS) | {"x_owner"} == set(WHOLE)
    assert {
        "prometheusConfig": {"globalScrapeInterval": "30s"},
        "aggregator": {"cloudzero": {"sendInterval": "5m"}, "logging": {"level": "warn"}},
        "insightsController": {
            "server": {"logging": {"level": "warn"}},
            "labels": {
                "enabled": True,
                "patterns": ["^team$", "^app$", "^cost$"],
                "resources": {"pods": True, "namespaces": True},
            },
        },
    } == chart_values(WHOLE)
    assert ["metrics", "namespaces", "x_owner"] == fields_without_value(WHOLE)


def test_what_is_not_set_is_left_to_the_chart() -> None:
    """
    An unset setting produces no chart value. If `labels` names no kind, the collection of labels is off.
    """
    assert chart_values({}) == {}
    assert fields_without_value({}) == []
    off = {"enabled": False, "resources": {"pods": False, "namespaces": False}}
    assert {"insightsController": {"labels": off}} == chart_values({"labels": {}})
    pods = chart_values({"labels": {"pods": ["a"]}})["insightsController"]["labels"]
    assert pods["resources"] == {"pods": True, "namespaces": False}
    assert pods["patterns"] == ["a"]
