"""`tollhouse explain` over several files, some of which cannot be read."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

from click.testing import CliRunner

from gateway.cli.examples import example
from gateway.cli.explain import explain


def test_a_file_that_cannot_be_read_spoils_no_other(tmp_path: Path):
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


def test_a_wrong_format_gets_the_nearest_right_one(tmp_path: Path):
    """Wrong use, before anything is read."""
    result = CliRunner().invoke(explain, [str(tmp_path / "none"), "--as", "bedrok"])
    assert (2, True) == (result.exit_code, "did you mean 'bedrock'?" in result.stderr)
