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

from tests.acceptance.conftest import ROOT

WORKFLOWS = sorted((ROOT / ".github/workflows").iterdir())


def release(*words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, ROOT / "deploy/release.py", *words], capture_output=True, text=True
    )


def test_a_release_is_the_same_bytes_twice(tmp_path: Path) -> None:
    """
    The release has wheel, sdist and checksums. The wheel contains the three packages, the console's files and
    the rate card.
    """
    done = release("--snapshot", "--no-native", "--out", str(tmp_path))
    if "not committed" in done.stderr:
        pytest.skip("there are changes that are not committed")
    assert 0 == done.returncode, done.stderr
    names = {path.name for path in tmp_path.iterdir()}
    (wheel,) = (name for name in names if name.endswith(".whl"))
    (sdist,) = (name for name in names if name.endswith(".tar.gz"))
    assert {wheel, sdist, "SHA256SUMS", "IMAGES"} == names
    assert done.stdout == (tmp_path / "SHA256SUMS").read_text()
    assert "no wheel of the compiled module for Windows on x86_64: " in done.stderr
    subprocess.run(["sha256sum", "--check", "SHA256SUMS"], cwd=tmp_path, check=True, capture_output=True)
    inside = zipfile.ZipFile(tmp_path / wheel).namelist()
    assert {"gateway", "exporters", "spool"} == {
        name.split("/")[0] for name in inside if ".dist-info" not in name
    }
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
    done = release("--out", str(tmp_path))
    assert done.returncode == 1
    assert f"## [{version[1]}] - DATE" in done.stderr


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.name)
def test_workflows_are_pinned_and_have_few_rights(path: Path) -> None:
    """Each action is pinned to a commit, rights are read-only by default, and tests run through .ci/run."""
    workflow: dict[str, Any] = yaml.safe_load(path.read_text())
    assert {"contents": "read"} == workflow["permissions"]
    for job in workflow["jobs"].values():
        for step in job["steps"]:
            assert "uses" in step or "run" in step
            assert re.fullmatch(r"[\w-]+/[\w-]+@[0-9a-f]{40}", step.get("uses", "a/b@" + 40 * "0"))
        assert "bash .ci/run" in [step.get("run") for step in job["steps"]]


@pytest.mark.parametrize(
    "path", sorted((ROOT / ".github/ISSUE_TEMPLATE").iterdir()), ids=lambda path: path.name
)
def test_issue_templates_are_forms(path: Path) -> None:
    """Each form parses, and each field has a label."""
    form = yaml.safe_load(path.read_text())
    for field in form.get("body", []):
        assert field["type"] in ("markdown", "textarea", "input")
        assert field["attributes"].get("label") or field["type"] == "markdown"
