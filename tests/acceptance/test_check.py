"""`tollhouse check` against a real upstream, another Tollhouse."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tests.acceptance.test_chain import chained


def test_check_says_what_would_be_taken(installations: Any, tmp_path: Path) -> None:
    """OTLP endpoints are tried with an empty export; the rest is unverified; what no key covers would be parked."""
    near, _, _ = chained(installations, tmp_path)
    found = {row["stream"]: row for row in near.json("check")["upstream"]}
    assert ("ok", "telemetry") == (found["traces"]["status"], found["traces"]["key"])
    assert "ok" == found["metrics"]["status"]
    assert None is found["enroll"]["key"]
    assert "parked: no key grants ai-control-plane:enroll-device" in near.run("check")


def test_check_fails_for_a_disabled_key(installations: Any, tmp_path: Path) -> None:
    """The upstream's words reach the operator."""
    near, far, _ = chained(installations, tmp_path)
    far.run("keys", "disable", "near tollhouse")
    found = {row["stream"]: row for row in near.json("check", code=1)["upstream"]}
    assert "refused" == found["traces"]["status"]
    assert "disabled" in found["traces"]["words"]


def test_check_without_an_upstream(installations: Any) -> None:
    """No upstream is a fine configuration."""
    assert "kept, priced and shown here" in installations().run("check")


def test_check_reports_missing_files(installations: Any, tmp_path: Path) -> None:
    """A secret file that is not there is a problem now, not at the first delivery."""
    more = '[upstream]\nbase_url = "http://127.0.0.1:9"\n[[upstream.keys]]\nname = "k"\nsecret_file = "none"\n'
    tollhouse = installations(more=more + 'use_cases = ["Send AI Telemetry"]\n')
    assert "cannot be read" in tollhouse.json("check", code=1)["problems"][0]


def test_check_reads_the_secrets_of_destinations(installations: Any, tmp_path: Path) -> None:
    """One that holds nothing would park its route."""
    (tmp_path / "empty").touch()
    hook = '[[destinations]]\nname = "hook"\ntype = "webhook"\nurl = "http://127.0.0.1:9"\n'
    tollhouse = installations(more=f'{hook}secret_file = "{tmp_path / "empty"}"\n')
    (problem,) = tollhouse.json("check", code=1)["problems"]
    assert f"destinations[1].secret_file: {tmp_path / 'empty'} must hold one secret on one line" == problem


def test_check_tries_destinations(installations: Any, tmp_path: Path) -> None:
    """A file that cannot be written fails the check, and is named with what would become of its records."""
    tollhouse = installations(more=f'[[destinations]]\nname = "bad"\ntype = "ndjson"\npath = "{tmp_path}"\n')
    found = {row["name"]: row["status"] for row in tollhouse.json("check", code=1)["destinations"]}
    assert {"archive": "ok", "bad": "refused"} == found
    assert "is no file that can be written; records would be parked" in tollhouse.run("check", code=1)


def test_check_reads_the_secrets_of_the_doors(installations: Any) -> None:
    """What would keep Tollhouse from starting is a problem here, and named by its setting."""
    tollhouse = installations(more='[sources.helicone]\nsigning_secret_file = "none"\n')
    (problem,) = tollhouse.json("check", code=1)["problems"]
    assert problem.startswith("sources.helicone.signing_secret_file: ") and "cannot be read" in problem
