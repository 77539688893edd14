"""`tollhouse explain`: several files, some of which cannot be read, and reasons."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from gateway.cli.examples import example
from gateway.cli.explain import explain


def test_a_file_that_cannot_be_read_spoils_no_other(tmp_path: Path) -> None:
    """It is named with its reason and the exit code is 1; the others are explained."""
    good, packed, cut, damaged = (tmp_path / name for name in ("good", "packed", "cut", "damaged"))
    body = example("litellm")
    good.write_bytes(body)
    packed.write_bytes(gzip.compress(body))
    cut.write_bytes(gzip.compress(body)[:-9])
    damaged.write_bytes(b"\x1f\x8b\x08\x00" + b"garbage" * 9)
    missing = tmp_path / "missing"
    result = CliRunner().invoke(explain, [str(path) for path in (cut, good, damaged, missing, packed)])
    explained = [json.loads(line) for line in result.stdout.splitlines()]
    assert (1, [str(good), str(packed)]) == (result.exit_code, [each["file"] for each in explained])
    assert 3 == result.stderr.count("cannot be read")


def test_a_wrong_format_gets_the_nearest_right_one(tmp_path: Path) -> None:
    """Wrong use, before anything is read."""
    result = CliRunner().invoke(explain, [str(tmp_path / "none"), "--as", "bedrok"])
    assert (2, True) == (result.exit_code, "did you mean 'bedrock'?" in result.stderr)


@pytest.mark.parametrize(("temporality", "why"), [(1, "delta of cline.cost.total"), (2, "cline.cost.total grew by")])
def test_a_counters_value_has_its_reason(tmp_path: Path, temporality: int, why: str) -> None:
    """A delta is its own; what a cumulative point adds is worked out by the log, and has a reason all the same."""
    point = {"asDouble": 0.5, "startTimeUnixNano": "1790000000000000000", "timeUnixNano": "1790000060000000000"}
    counter = {"aggregationTemporality": temporality, "isMonotonic": True, "dataPoints": [point]}
    metric = {"name": "cline.cost.total", "sum": counter}
    file = tmp_path / "metrics.json"
    file.write_text(json.dumps({"resourceMetrics": [{"scopeMetrics": [{"metrics": [metric]}]}]}))
    result = CliRunner().invoke(explain, [str(file), "--why"])
    (record,) = json.loads(result.stdout)["records"]
    assert ("0.5", True) == (record["value"], why in record["why"]["value"])


def test_tags_left_out_are_counted(tmp_path: Path) -> None:
    """A tag that is too long is missing from the record, and its file says that one is; other files say nothing."""
    attributes = {"gen_ai.operation.name": "chat", "gen_ai.request.model": "gpt-4o"}
    files = [tmp_path / "fits.json", tmp_path / "does_not.json"]
    for file, plan in zip(files, ("gold", "g" * 257), strict=True):
        attributes["langsmith.metadata.plan"] = plan
        pairs = [{"key": name, "value": {"stringValue": value}} for name, value in attributes.items()]
        file.write_text(json.dumps({"resourceSpans": [{"scopeSpans": [{"spans": [{"attributes": pairs}]}]}]}))
    result = CliRunner().invoke(explain, [str(file) for file in files])
    fits, does_not = (json.loads(line) for line in result.stdout.splitlines())
    assert ({"plan": "gold"}, {}) == (fits["records"][0]["tags"], does_not["records"][0]["tags"])
    assert (False, 1) == ("left_out" in fits, does_not["left_out"])
