"""`make audit`: every lock file is looked up, and what could not be is a failure where it could."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
# Stands for pip-audit: the lock file says what is known of it.
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
    """And not on a machine that reaches no list, unless it has to."""
    program = tmp_path / "pip-audit"
    program.write_text(PROGRAM.format(python=sys.executable))
    program.chmod(0o755)
    for place, word in enumerate(locks):
        (tmp_path / f"requirements-{place}.lock").write_text(word)
    command = [
        sys.executable,
        str(ROOT / "deploy/audit.py"),
        "--program",
        str(program),
        "--locks",
        str(tmp_path),
    ]
    environment = {**os.environ, "AUDIT": required}
    done = subprocess.run(command, env=environment, capture_output=True, text=True)
    assert (int(fails), "") == (done.returncode, done.stderr)


def test_continuous_integration_reaches_the_lists() -> None:
    """So what is not known fails there."""
    for name in ("test", "release"):
        assert "AUDIT: required" in (ROOT / f".github/workflows/{name}.yaml").read_text()
