"""Configuration of streams, usage events and published measures."""

from __future__ import annotations

from pathlib import Path

from gateway.configuration.reader import load_config

GOOD = """
[upstream]
base_url = "https://cost.example"
kind = "service"
connection_id = "c-1"
[upstream.events."api.call"]
stream = "api-calls"
granularity = "HOURLY"
value = "data.count"
dimensions = { "Region" = "region" }
[[streams]]
name = "api-calls"
single_writer = true
[[publish]]
stream = "ai-cost-by-team"
measure = "cost"
per = "calls"
by = "team"
dimensions = { "custom:Service" = "tag:service" }
[[destinations]]
name = "focus"
type = "focus"
path = "focus.csv"
"""


def written(tmp_path: Path, text: str) -> Path:
    path = tmp_path / "tollhouse.toml"
    path.write_text(text)
    return path


def test_everything_that_can_be_said(tmp_path: Path) -> None:
    """A configuration with every setting is accepted, and each setting reaches the upstream's settings."""
    config = load_config(written(tmp_path, GOOD), env={})
    stream = config.upstream.events["api.call"]
    assert stream.stream == "api-calls"
    assert stream.granularity == "HOURLY"
    assert stream.value == "data.count"
    assert dict(stream.dimensions) == {"Region": "region"}
    (rule,) = config.publish
    assert rule.measure == "cost"
    assert rule.per == "calls"
    assert rule.by == "team"
