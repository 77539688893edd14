"""Problems that `tollhouse doctor` finds, and secrets that its bundle must not contain."""

from __future__ import annotations

import tarfile
from math import inf
from pathlib import Path
from typing import Any

import pytest

from gateway.cli import doctor
from gateway.cli.doctor import diagnose_spool
from tests.acceptance.payloads import post, request, span

SECRETS = ("s3cr3t-in-a-file", "s3cr3t-in-a-header", "s3cr3t-in-a-query", "s3cr3t-path")
MORE = """
[[destinations]]
name = "hook"
type = "webhook"
url = "https://127.0.0.1:9/s3cr3t-path?token=s3cr3t-in-a-query"
headers = {{ "X-Auth" = "s3cr3t-in-a-header" }}
[upstream]
base_url = "http://127.0.0.1:9"
[[upstream.keys]]
name = "telemetry"
secret_file = "{key}"
use_cases = ["Send AI Telemetry"]
"""


def test_a_sound_installation_has_no_problem(installations: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """
    For a sound installation, `doctor` ends with exit code 0, with and without a server. It creates no files.
    """
    monkeypatch.setattr(doctor, "HANGING_FLUSH_S", inf)  # the disk of this machine may be slow
    tollhouse = installations()
    found = tollhouse.json("doctor")["doctor"]
    assert 0 == found["problems"], found
    assert {"versions", "data_dir", "mount", "room", "flush", "clock", "descriptors", "modes"} <= {
        one["about"] for one in found["found"]
    }
    assert [] == list(tollhouse.data.iterdir())
    key = tollhouse.key("sender")
    url = tollhouse.start()
    assert 200 == post(url, request([span("chatcmpl-000000000000000000000001")]), key).status
    words = {one["about"]: one for one in tollhouse.json("doctor")["doctor"]["found"]}
    assert words["storage"]["status"] == "ok"
    assert words["books"]["status"] == "ok"
    assert words["keys"]["words"] == "1 enabled, each with one scope"
    tollhouse.stop()


def test_what_does_not_work_is_a_problem(installations: Any, tmp_path: Path) -> None:
    """
    `doctor` ends with exit code 1 for an unreachable upstream, an unreadable secret, or a directory that
    others can read.
    """
    tollhouse = installations(more=MORE.format(key=tmp_path / "missing"))
    tollhouse.key("sender")
    data = tollhouse.directory / "tollhouse-data"
    data.chmod(0o755)
    found = {one["about"]: one["status"] for one in tollhouse.json("doctor", code=1)["doctor"]["found"]}
    assert found["configuration"] == "problem"
    assert found["modes"] == "warning"
    assert "PROBLEM" in tollhouse.run("doctor", code=1)


def test_sizes_below_a_gib_are_in_mib(installations: Any) -> None:
    """A limit below 1 GiB is written in MiB, because 0.0 GiB would say nothing."""
    tollhouse = installations(config='[spool]\nmax_bytes = "64MiB"\n')
    words = {one["about"]: one["words"] for one in tollhouse.json("doctor")["doctor"]["found"]}
    assert words["room"].endswith("GiB are free, spool.max_bytes is 64 MiB")


def test_the_bundle_holds_no_secret(installations: Any, tmp_path: Path) -> None:
    """
    The bundle contains no keys of senders or upstreams, no headers, and no user info, paths and queries of
    addresses. Only its owner can read it.
    """
    secret = tmp_path / "upstream.key"
    secret.write_text("s3cr3t-in-a-file")
    tollhouse = installations(more=MORE.format(key=secret))
    key = tollhouse.key("sender")
    tollhouse.run("doctor", "--bundle", "bundle.tar.gz", code=1)
    bundle = tollhouse.directory / "bundle.tar.gz"
    assert 0o600 == bundle.stat().st_mode & 0o777
    with tarfile.open(bundle) as archive:
        contents = {member.name: archive.extractfile(member) for member in archive.getmembers()}
        texts = {name: file.read().decode() for name, file in contents.items() if file is not None}
    assert {"diagnosis", "configuration", "files", "status", "books"} == {Path(name).stem for name in texts}
    everything = "\n".join(texts.values())
    for planted in (*SECRETS, key):
        assert planted not in everything, planted
    assert '"idempotency_header"' in everything
    assert "exists" in tollhouse.attempt("doctor", "--bundle", "bundle.tar.gz").stderr


@pytest.mark.parametrize(("days", "warns"), [(None, False), (5.9, False), (6.1, True), (8.0, True)])
def test_an_old_backlog_is_a_warning(days: float | None, warns: bool) -> None:
    """
    `doctor` warns of a laptop that was offline for more than six days, because its calls may arrive too late to be
    matched with reports of other programs.
    """
    route = {
        "route": "upstream/ai-telemetry", "state": "running", "reason": None, "queued": 3, "refused_24h": 0,
        "refusal": None, "oldest_age_s": None if days is None else days * 86400,
    }  # fmt: skip
    space = {
        "entries": 1,
        "bytes": 1,
        "max_bytes": 100,
        "writable": True,
        "last_error": None,
        "wal_problem": None,
    }
    found = [
        each for each in diagnose_spool({"space": space, "routes": [route]}) if each.about.startswith("route")
    ]
    assert ["warning"] * warns == [each.status for each in found]
    assert all(f"waits for {days:.1f} days" in each.words for each in found)
