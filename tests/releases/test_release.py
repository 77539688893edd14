"""A release builds to the same bytes twice, and its workflows run the same commands as developers."""

from __future__ import annotations

import re
import subprocess
import sys
import zipfile
from pathlib import Path
from typing import Any

import pytest
import yaml
from hatchling.builders.wheel import WheelBuilder

from tests.processes.copied import ROOT
from tests.releases.conftest import CYCLONEDX
from tests.releases.installing import MINUTE_S

WORKFLOWS = sorted((ROOT / ".github/workflows").iterdir())

pytestmark = pytest.mark.timeout(30 * MINUTE_S)  # the first test also builds the release


@pytest.mark.proof
def test_a_release_is_the_same_bytes_twice(
    build: subprocess.CompletedProcess[str], release: Path, wheel: Path
) -> None:
    """
    The release has wheel, sdist, bill of materials and checksums. The wheel contains the three packages, the
    console's files and the rate card.
    """
    names = {path.name for path in release.iterdir()}
    (sdist,) = (name for name in names if name.endswith(".tar.gz"))
    bill = {"tollhouse.cdx.json"} if CYCLONEDX.exists() else set()
    assert {wheel.name, sdist, "SHA256SUMS", "IMAGES", *bill} == names
    assert build.stdout == (release / "SHA256SUMS").read_text()
    assert "no wheel of the compiled module for Windows on x86_64: " in build.stderr
    checked = subprocess.run(
        ["sha256sum", "--check", "SHA256SUMS"], cwd=release, check=True, capture_output=True
    )
    assert len(names) - 1 == len(checked.stdout.splitlines())
    inside = zipfile.ZipFile(wheel).namelist()
    assert {"gateway", "exporters", "spool"} == {
        name.split("/")[0] for name in inside if ".dist-info" not in name
    }
    assert "gateway/console/static/index.html" in inside
    assert any(re.fullmatch(r"gateway/intake/rate_cards/[\d-]+\.json", name) for name in inside)


def test_the_wheel_has_the_packages_with_their_data() -> None:
    """The wheel contains the three packages, the console's files and the rate card."""
    inside = {file.distribution_path for file in WheelBuilder(str(ROOT)).recurse_included_files()}
    assert {"gateway", "exporters", "spool"} == {name.split("/")[0] for name in inside}
    assert "gateway/console/static/index.html" in inside
    assert any(re.fullmatch(r"gateway/intake/rate_cards/[\d-]+\.json", name) for name in inside)


def test_a_version_that_the_changelog_does_not_name_is_refused(tmp_path: Path) -> None:
    """
    A build is refused if the changelog does not name its version. The refusal says what to do. SNAPSHOT=1
    permits a trial build.
    """
    version = re.search(r'^version = "(.+)"$', (ROOT / "pyproject.toml").read_text(), re.MULTILINE)
    assert version
    if f"## [{version[1]}] - " in (ROOT / "CHANGELOG.md").read_text():
        pytest.skip("this version is released")
    command: list[str | Path] = [sys.executable, ROOT / "deploy/release.py", "--out", tmp_path]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 1
    assert f"## [{version[1]}] - DATE" in done.stderr


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.name)
def test_workflows_are_pinned_and_have_few_rights(path: Path) -> None:
    """
    Each action is pinned to a commit, rights are read-only by default, and tests run through .ci. Each workflow but
    the one at night builds a release and upgrades to it.
    """
    workflow: dict[str, Any] = yaml.safe_load(path.read_text())
    assert {"contents": "read"} == workflow["permissions"]
    for job in workflow["jobs"].values():
        for step in job["steps"]:
            assert "uses" in step or "run" in step
            assert re.fullmatch(r"[\w-]+/[\w-]+@[0-9a-f]{40}", step.get("uses", "a/b@" + 40 * "0"))
    runs = [step.get("run", "") for job in workflow["jobs"].values() for step in job["steps"]]
    others = (
        ("bash .ci/proofs",) if path.name == "night.yaml" else ("make release", "make test-upgrade FROM=")
    )
    for command in ("bash .ci/run", *others):
        assert any(run.startswith(command) for run in runs)


def test_every_part_runs_at_full_size_at_night() -> None:
    workflow = yaml.safe_load((ROOT / ".github/workflows/night.yaml").read_text())
    parts = re.search(r"^PARTS := ((?:.*\\\n)*.*)", (ROOT / "tests/tests.mk").read_text(), re.MULTILINE)
    assert parts
    named = {name.removeprefix("test-") for name in parts[1].split() if name not in ("\\", "lint")}
    assert named == set(workflow["jobs"]["proofs"]["strategy"]["matrix"]["part"])


def test_a_release_needs_proofs_of_its_code() -> None:
    """A release is refused if product code changed since `make proofs` passed."""
    code = """
import release
commits = [release.git("rev-parse", name).decode().strip() for name in ("HEAD", "HEAD:docs")]
passed = [f"passed on 1 May 2026 at commit `{each}`: 9 tests" for each in commits]
for words in ("has not run as a whole yet.", *passed):
    print(release.unproved(f"Words.\\n\\n`make proofs` {words}\\n"))
"""
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT / "deploy", capture_output=True, text=True, check=True
    )
    never, unchanged, changed = done.stdout.split("\n")[:3]
    assert "`make proofs` has not passed as a whole" == never
    assert "" == unchanged
    assert re.fullmatch(r"`make proofs` has not run since .*exporters/__init__\.py.* changed", changed)


@pytest.mark.parametrize(
    "path", sorted((ROOT / ".github/ISSUE_TEMPLATE").iterdir()), ids=lambda path: path.name
)
def test_issue_templates_are_forms(path: Path) -> None:
    """Each form parses, and each field has a label."""
    form = yaml.safe_load(path.read_text())
    for field in form.get("body", []):
        assert field["type"] in ("markdown", "textarea", "input")
        assert field["attributes"].get("label") or field["type"] == "markdown"
