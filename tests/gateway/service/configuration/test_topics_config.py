"""The configuration of streams, events and publications, and what is said about mistakes in it."""

from __future__ import annotations

from pathlib import Path

import pytest

from gateway.service.configuration.reader import load
from gateway.service.configuration.sections import ConfigError

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
    """A full configuration is taken, and the way out gets its part of it."""
    config = load(written(tmp_path, GOOD), env={})
    stream = config.upstream.events["api.call"]
    assert stream.stream == "api-calls"
    assert stream.granularity == "HOURLY"
    assert stream.value == "data.count"
    assert dict(stream.dimensions) == {"Region": "region"}
    (rule,) = config.publish
    assert rule.measure == "cost"
    assert rule.per == "calls"
    assert rule.by == "team"


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (
            ('kind = "service"', 'kind = "tollhous"'),
            "upstream.kind: 'tollhous' is not known; did you mean 'tollhouse'?",
        ),
        (
            ('stream = "api-calls"', 'stream = "api calls"'),
            "upstream.events.api.call.stream is required: letters",
        ),
        (
            ('granularity = "HOURLY"', 'granularity = "WEEKLY"'),
            "upstream.events.api.call.granularity: 'WEEKLY'",
        ),
        (('name = "api-calls"', 'name = ""'), "streams[0].name is required: letters"),
        (
            ("[[publish]]", '[[streams]]\nname = "api-calls"\n[[publish]]'),
            "streams[1].name 'api-calls' is used twice",
        ),
        (
            ('measure = "cost"', 'measure = "costs"'),
            "publish[0].measure: 'costs' is not known; did you mean 'cost'?",
        ),
        (('per = "calls"', 'per = "minutes"'), "publish[0].per: 'minutes' is not known"),
        (('by = "team"', 'by = "teams"'), "publish[0].by: 'teams' is not known; did you mean 'team'?"),
        (
            ('"tag:service"', '"tag:nothing"'),
            "publish[0].dimensions.custom:Service: 'tag:nothing' is not known",
        ),
        (('path = "focus.csv"', ""), "destinations[0].path is required for type 'focus'"),
    ],
)
def test_mistakes_are_told_in_the_users_words(tmp_path: Path, change: tuple[str, str], words: str) -> None:
    """Each mistake is one sentence with the full name of the key."""
    assert change[0] in GOOD
    with pytest.raises(ConfigError) as caught:
        load(written(tmp_path, GOOD.replace(*change, 1)), env={})
    (problem,) = caught.value.problems
    assert words in problem
