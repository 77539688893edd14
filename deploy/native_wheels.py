"""
Builds the wheel of the compiled module for a release, and lists platforms without a wheel.

A machine builds only for its own platform. The bytes do not depend on the directories of the sources and crates.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path

ROOT = Path(__file__).parents[1]
MATURIN = ROOT / ".venv-native/bin/maturin"
NAME = "tollhouse-native"
LOCK = "requirements-native.lock"

# platforms of a release, with a pattern for the end of the wheel's name
PLATFORMS: Mapping[str, str] = {
    "Linux with glibc on x86_64": r"manylinux\w*_x86_64",
    "Linux with glibc on aarch64": r"manylinux\w*_aarch64",
    "Linux with musl on x86_64": r"musllinux\w*_x86_64",
    "Linux with musl on aarch64": r"musllinux\w*_aarch64",
    "macOS on x86_64": r"macosx\w*_(x86_64|universal2)",
    "macOS on arm64": r"macosx\w*_(arm64|universal2)",
    "Windows on x86_64": r"win_amd64",
}


def reason() -> str:
    """Return why the module cannot be built here, or "" if it can."""
    done = subprocess.run([ROOT / "native/available.sh"], capture_output=True, text=True)
    if done.returncode:
        return done.stdout.strip() or done.stderr.strip()
    return (
        ""
        if MATURIN.exists()
        else "the compiled module is not built, because maturin is missing; `make release` installs it"
    )


def build(sources: Path, out: Path, environment: Mapping[str, str]) -> None:
    """Build the wheel from a copy of the sources into a directory. Raises CalledProcessError."""
    crates = os.environ.get("CARGO_HOME", str(Path.home() / ".cargo"))
    flags = [f"--remap-path-prefix={sources}=/tollhouse", f"--remap-path-prefix={crates}=/cargo"]
    command = [
        str(MATURIN),
        "build",
        "--quiet",
        "--release",
        "--locked",
        "--out",
        str(out),
        "--interpreter",
        sys.executable,
    ]
    subprocess.run(
        [*command, "--manifest-path", str(sources / "native/Cargo.toml")],
        env={**environment, "CARGO_ENCODED_RUSTFLAGS": "\x1f".join(flags)},
        check=True,
        capture_output=True,
    )


def without_wheel(names: Iterable[str]) -> list[str]:
    """Return the platforms for which none of these files is a wheel of the module."""
    ours = [name for name in names if _is_ours(name)]
    return [
        words
        for words, end in PLATFORMS.items()
        if not any(re.search(rf"-{end}\.whl$", name) for name in ours)
    ]


def lock(digests: Mapping[str, str]) -> str:
    """Return the lock file that installs the wheels among these files, or "" without any wheel."""
    ours = {name: digest for name, digest in sorted(digests.items()) if _is_ours(name)}
    if not ours:
        return ""
    (version,) = {name.split("-")[1] for name in ours}
    hashes = "".join(f" \\\n    --hash=sha256:{digest}" for digest in ours.values())
    return f"# pip install --no-deps --require-hashes --find-links . -r {LOCK}\n{NAME}=={version}{hashes}\n"


def _is_ours(name: str) -> bool:
    return name.startswith(NAME.replace("-", "_") + "-") and name.endswith(".whl")
