"""
Checks every lock file for known vulnerabilities.

    make audit                 reports lock files that cannot be checked from here, without failing
    AUDIT=required make audit  fails for them: for continuous integration with network access

If one lock file could be checked and another could not, both commands fail. If `cargo audit` is installed, it
checks the crates of the compiled module.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

ROOT = Path(__file__).parents[1]
LOCKS = "deploy/locks"
CRATES = "native/Cargo.lock"
CLEAN, VULNERABLE, UNKNOWN, LEFT_OUT = "clean", "vulnerable", "not checked", "left out"


def main() -> None:
    parser = argparse.ArgumentParser(description="Check the locked dependencies for known vulnerabilities.")
    parser.add_argument("--program", default="pip-audit", help="command that checks a Python lock file")
    parser.add_argument("--checkout", type=Path, default=ROOT, help="directory with deploy/locks and native")
    parser.add_argument("--cargo", default="cargo", help="cargo command with the subcommand `audit`")
    options = parser.parse_args()
    verdicts = []
    for lock in sorted((options.checkout / LOCKS).glob("*.lock")):
        verdict, words = look_up(options.program, lock)
        print(f"{lock.name}: {verdict}{words and f': {words}'}")
        verdicts.append(verdict)
        if verdict == UNKNOWN and CLEAN not in verdicts and not is_required():
            break  # the lists of known vulnerabilities cannot be reached
    if (crates := options.checkout / CRATES).exists():
        verdict, words = look_up_crates(options.cargo, crates)
        print(f"{CRATES}: {verdict}{words and f': {words}'}")
        verdicts += [] if verdict == LEFT_OUT else [verdict]
    sys.exit(is_failure(verdicts, required=is_required()))


def is_required() -> bool:
    return os.environ.get("AUDIT") == "required"


def is_failure(verdicts: Sequence[str], *, required: bool) -> bool:
    """Return whether a lock file is vulnerable, or was not checked although it should have been."""
    reached = required or any(verdict != UNKNOWN for verdict in verdicts)
    return not verdicts or VULNERABLE in verdicts or (UNKNOWN in verdicts and reached)


def look_up(program: str, lock: Path) -> tuple[str, str]:
    """Check a lock file. Return the verdict, and the packages that are vulnerable or could not be checked."""
    with tempfile.TemporaryDirectory() as place:
        found = Path(place) / "found.json"
        command = [program, "-r", str(lock), "--require-hashes", "--disable-pip", "--progress-spinner", "off"]
        done = subprocess.run([*command, "-f", "json", "-o", str(found)], capture_output=True, text=True)
        try:
            packages = json.loads(found.read_text())["dependencies"]
        except (OSError, ValueError, KeyError):
            lines = done.stderr.strip().splitlines()
            return UNKNOWN, lines[-1] if lines else "the list of known vulnerabilities cannot be reached"
    vulnerable = [f"{each['name']} {each['version']}" for each in packages if each.get("vulns")]
    skipped = [each["name"] for each in packages if "vulns" not in each]
    if vulnerable:
        return VULNERABLE, ", ".join(vulnerable)
    return (UNKNOWN, ", ".join(skipped)) if skipped else (CLEAN, "")


def look_up_crates(cargo: str, lock: Path) -> tuple[str, str]:
    """Check the crates of a lock file. Return LEFT_OUT if `cargo audit` is not installed."""
    try:
        subprocess.run([cargo, "audit", "--version"], capture_output=True, check=True)
    except (OSError, subprocess.CalledProcessError):
        return LEFT_OUT, "cargo audit is not installed"
    done = subprocess.run([cargo, "audit", "--json", "--file", lock], capture_output=True, text=True)
    try:
        found = json.loads(done.stdout)["vulnerabilities"]["list"]
    except (ValueError, KeyError):
        lines = done.stderr.strip().splitlines()
        return UNKNOWN, lines[-1] if lines else "the list of known vulnerabilities cannot be reached"
    vulnerable = [f"{each['package']['name']} {each['package']['version']}" for each in found]
    return (VULNERABLE, ", ".join(vulnerable)) if vulnerable else (CLEAN, "")


if __name__ == "__main__":
    main()
