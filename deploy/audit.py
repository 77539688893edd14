"""
Looks every lock file up among known vulnerabilities.

    make audit                 what cannot be looked up from here is said, and is not a failure
    AUDIT=required make audit  it is one: for continuous integration that reaches the lists

Where one lock file was looked up, another that was not is a failure, too. The crates of the compiled module are
looked up by `cargo audit`, where that is installed.
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
CLEAN, VULNERABLE, UNKNOWN, LEFT_OUT = "clean", "vulnerable", "not looked up", "left out"


def main() -> None:
    parser = argparse.ArgumentParser(
        description="Look the locked dependencies up among known vulnerabilities."
    )
    parser.add_argument("--program", default="pip-audit", help="what looks a lock file up")
    parser.add_argument("--checkout", type=Path, default=ROOT, help="where deploy/locks and native are")
    parser.add_argument("--cargo", default="cargo", help="what looks crates up, with its command `audit`")
    options = parser.parse_args()
    verdicts = []
    for lock in sorted((options.checkout / LOCKS).glob("*.lock")):
        verdict, words = look_up(options.program, lock)
        print(f"{lock.name}: {verdict}{words and f': {words}'}")
        verdicts.append(verdict)
        if verdict == UNKNOWN and CLEAN not in verdicts and not is_required():
            break  # no list of known vulnerabilities can be reached from here
    if (crates := options.checkout / CRATES).exists():
        verdict, words = look_up_crates(options.cargo, crates)
        print(f"{CRATES}: {verdict}{words and f': {words}'}")
        verdicts += [] if verdict == LEFT_OUT else [verdict]
    sys.exit(is_failure(verdicts, required=is_required()))


def is_required() -> bool:
    return os.environ.get("AUDIT") == "required"


def is_failure(verdicts: Sequence[str], *, required: bool) -> bool:
    """Whether something is vulnerable, or is not known to be clean where that could be known."""
    reached = required or any(verdict != UNKNOWN for verdict in verdicts)
    return not verdicts or VULNERABLE in verdicts or (UNKNOWN in verdicts and reached)


def look_up(program: str, lock: Path) -> tuple[str, str]:
    """The verdict on a lock file, with the packages that are vulnerable or could not be looked up."""
    with tempfile.TemporaryDirectory() as place:
        found = Path(place) / "found.json"
        command = [program, "-r", str(lock), "--require-hashes", "--disable-pip", "--progress-spinner", "off"]
        done = subprocess.run([*command, "-f", "json", "-o", str(found)], capture_output=True, text=True)
        try:
            packages = json.loads(found.read_text())["dependencies"]
        except (OSError, ValueError, KeyError):
            lines = done.stderr.strip().splitlines()
            return UNKNOWN, lines[-1] if lines else "no list can be reached from here"
    vulnerable = [f"{each['name']} {each['version']}" for each in packages if each.get("vulns")]
    skipped = [each["name"] for each in packages if "vulns" not in each]
    if vulnerable:
        return VULNERABLE, ", ".join(vulnerable)
    return (UNKNOWN, ", ".join(skipped)) if skipped else (CLEAN, "")


def look_up_crates(cargo: str, lock: Path) -> tuple[str, str]:
    """The verdict on the crates of a lock file; they are left out where the command is not installed."""
    try:
        subprocess.run([cargo, "audit", "--version"], capture_output=True, check=True)
    except (OSError, subprocess.CalledProcessError):
        return LEFT_OUT, "cargo audit is not installed"
    done = subprocess.run([cargo, "audit", "--json", "--file", lock], capture_output=True, text=True)
    try:
        found = json.loads(done.stdout)["vulnerabilities"]["list"]
    except (ValueError, KeyError):
        lines = done.stderr.strip().splitlines()
        return UNKNOWN, lines[-1] if lines else "no list can be reached from here"
    vulnerable = [f"{each['package']['name']} {each['package']['version']}" for each in found]
    return (VULNERABLE, ", ".join(vulnerable)) if vulnerable else (CLEAN, "")


if __name__ == "__main__":
    main()
