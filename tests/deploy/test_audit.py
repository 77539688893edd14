"""`make audit` checks every lock file. A failed lookup fails the audit if the lists are reachable."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
# This program replaces pip-audit. The lock file's content decides its result.
PROGRAM = """#!{python}
import json, sys
lock, found = sys.argv[sys.argv.index("-r") + 1], sys.argv[sys.argv.index("-o") + 1]
word = open(lock).read().strip()
if word == "away":
    sys.exit("cannot reach the list")
package = {{"name": "aiohttp", "version": "1"}}
known = {{"clean": {{"vulns": []}}, "bad": {{"vulns": [{{"id": "CVE-1"}}]}}, "skipped": {{"skip_reason": "?"}}}}
package |= known[word]
open(found, "w").write(json.dumps({{"dependencies": [package]}}))
sys.exit(word == "bad")
"""


@pytest.mark.proves("images, locks, the metrics listener")
@pytest.mark.proves("A dependency is replaced, or known to be unsafe")
@pytest.mark.parametrize(
    ("locks", "required", "fails"),
    [
        (("clean", "clean"), "", False),
        (("clean", "bad"), "", True),
        (("away", "away"), "", False),
        (("away", "away"), "required", True),
        (("clean", "away"), "", True),
        (("clean", "skipped"), "", True),
        ((), "", True),
    ],
)
def test_what_is_not_known_fails_where_it_could_be(
    tmp_path: Path, locks: tuple[str, ...], required: str, fails: bool
) -> None:
    """If the machine reaches no list of vulnerabilities, the audit fails only where it is required."""
    program = tmp_path / "pip-audit"
    program.write_text(PROGRAM.format(python=sys.executable))
    program.chmod(0o755)
    (tmp_path / "deploy/locks").mkdir(parents=True)
    for place, word in enumerate(locks):
        (tmp_path / f"deploy/locks/requirements-{place}.lock").write_text(word)
    command = [
        sys.executable,
        str(ROOT / "deploy/audit.py"),
        "--program",
        str(program),
        "--checkout",
        str(tmp_path),
    ]
    environment = {**os.environ, "AUDIT": required}
    done = subprocess.run(command, env=environment, capture_output=True, text=True)
    assert int(fails) == done.returncode
    assert done.stderr == ""


# This program replaces cargo. The lock file's content decides the result of `cargo audit`.
CARGO = """#!{python}
import json, sys
if sys.argv[2:] == ["--version"]:
    sys.exit({missing})
word = open(sys.argv[-1]).read().strip()
if word == "away":
    sys.exit("cannot reach the list")
found = [{{"package": {{"name": "pyo3", "version": "1"}}}}] if word == "bad" else []
print(json.dumps({{"vulnerabilities": {{"list": found}}}}))
sys.exit(word == "bad")
"""


@pytest.mark.parametrize(
    ("word", "missing", "fails", "said"),
    [
        ("clean", 0, False, "clean"),
        ("bad", 0, True, "vulnerable: pyo3 1"),
        ("away", 0, True, "not checked: cannot reach the list"),
        ("bad", 101, False, "left out: cargo audit is not installed"),
    ],
)
def test_crates_are_looked_up_where_that_can_be(
    tmp_path: Path, word: str, missing: int, fails: bool, said: str
) -> None:
    """
    Without `cargo audit`, the audit reports that crates were not checked, and passes even where it is required.
    """
    for name, text in (("pip", PROGRAM.format(python=sys.executable)),
                       ("cargo", CARGO.format(python=sys.executable, missing=missing))):  # fmt: skip
        (tmp_path / name).write_text(text)
        (tmp_path / name).chmod(0o755)
    for folder in ("deploy/locks", "native"):
        (tmp_path / folder).mkdir(parents=True)
    (tmp_path / "deploy/locks/requirements.lock").write_text("clean")
    (tmp_path / "native/Cargo.lock").write_text(word)
    programs = ["--program", str(tmp_path / "pip"), "--cargo", str(tmp_path / "cargo")]
    command = [sys.executable, str(ROOT / "deploy/audit.py"), *programs, "--checkout", str(tmp_path)]
    environment = {**os.environ, "AUDIT": "required"}
    done = subprocess.run(command, env=environment, capture_output=True, text=True)
    assert int(fails) == done.returncode
    assert done.stdout.splitlines()[-1] == f"native/Cargo.lock: {said}"


def test_continuous_integration_reaches_the_lists() -> None:
    """CI requires the audit, so a failed lookup fails there."""
    for name in ("test", "release"):
        assert "AUDIT: required" in (ROOT / f".github/workflows/{name}.yaml").read_text()
