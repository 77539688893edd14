"""
If a program for a deploy/ test is missing, the test is skipped with a message, but fails in continuous integration.
"""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from tests.acceptance.conftest import ROOT
from tests.tools import without

NO_GO = "Go is not installed"


@pytest.mark.parametrize(
    ("env", "reason", "fails"),
    [
        ({}, "", False),
        ({}, NO_GO, False),
        ({"CI": "true"}, "", True),
        ({"CI": "true"}, NO_GO, False),
        ({"CI": "true", "TOOLS": "required"}, NO_GO, True),
        ({"TOOLS": "required"}, "", True),
    ],
)
def test_missing_program_is_reported_with_its_remedy(
    env: dict[str, str], reason: str, fails: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """If a program is missing, the message gives the reason, or the command that downloads the program."""
    for name in ("CI", "TOOLS"):
        monkeypatch.delenv(name, raising=False)
    for name, value in env.items():
        monkeypatch.setenv(name, value)
    if reason:
        (tmp_path / "missing").write_text(f"{reason}\n")
    outcome = pytest.fail.Exception if fails else pytest.skip.Exception
    with pytest.raises(outcome, match=f"helm.*{reason or 'make kubernetes-tools'}"):
        without("helm", tmp_path / "missing", "make kubernetes-tools")


GO_OF = """#!/bin/sh
case "$1 $2" in
  "env GOVERSION") echo go1.19.8 ;;
  "env GOTOOLCHAIN") echo "" ;;
  "mod download") {answer} ;;
esac
"""


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        (None, NO_GO),
        ("exit 1", "the Go module proxy cannot be reached"),
        ("""echo '  "GoMod": "/dev/stdin"'""", "go1.19.8 is too old"),
    ],
)
def test_what_cannot_be_built_has_its_reason(answer: str | None, reason: str, tmp_path: Path) -> None:
    """
    Without Go, without Go's module proxy, or with an old Go, the build ends with exit code 3 and creates no file.
    """
    programs = tmp_path / "programs"
    programs.mkdir()
    for name in ("bash", "realpath", "mkdir", "rm", "mktemp", "tee", "sed", "cat"):
        (programs / name).symlink_to(f"/usr/bin/{name}")
    if answer is not None:
        (programs / "go").write_text(GO_OF.format(answer=answer))
        (programs / "go").chmod(0o755)
    done = subprocess.run(
        ["/bin/bash", str(ROOT / "deploy/kubernetes/tools.sh"), str(tmp_path / "tools"), "/bin/false"],
        env={"PATH": str(programs)},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
    )
    assert 3 == done.returncode, done.stderr
    assert (tmp_path / "tools/missing").read_text().startswith(reason)
    assert os.listdir(tmp_path / "tools") == ["missing"]  # noqa: PTH208


def test_continuous_integration_has_every_program() -> None:
    """CI machines have Go and reach the registries, so a missing program fails there."""
    for name in ("test", "release"):
        assert "TOOLS: required" in (ROOT / f".github/workflows/{name}.yaml").read_text()
    assert "export CI=" in (ROOT / ".ci/run").read_text()
