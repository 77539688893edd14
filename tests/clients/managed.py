"""Machines with managed settings: a user and mount namespace, whose /etc has the files of a policy bundle."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest

from tests.acceptance.conftest import Tollhouse

MOUNT = 'mount -t overlay overlay -o "lowerdir=$0/linux/etc:/etc" /etc && exec "$@"'
RUN_S = 300.0


def need_namespaces(directory: Path) -> None:
    """Skip the test if this machine lets no user mount a tree in a namespace of its own."""
    (directory / "linux/etc").mkdir(parents=True)
    done = subprocess.run(inside(directory, ["true"]), capture_output=True, text=True)
    if done.returncode:
        pytest.skip(f"no user and mount namespaces here: {done.stderr.strip()[:200]}")


def inside(bundle: Path, command: Sequence[str]) -> list[str]:
    """Return the command that runs another one with the bundle's files in /etc."""
    return ["unshare", "--map-root-user", "--mount", "sh", "-c", MOUNT, str(bundle), *command]


def make_bundle(tollhouse: Tollhouse, out: Path, *words: str) -> Path:
    """Make a bundle for every assistant with the installed command."""
    signing_key = out.with_suffix(".pem")
    public_key = out.with_suffix(".pub")
    public_key.write_text(tollhouse.run("agent", "policy", "key", str(signing_key), config=False))
    tollhouse.run(
        "agent", "policy", "--environment", "--signing-key", str(signing_key), "--out", str(out), *words
    )
    checked = ("agent", "policy", "verify", str(out), "--public-key", str(public_key))
    assert "as signed" in tollhouse.run(*checked, config=False)
    return out


def machine_variables(bundle: Path) -> dict[str, str]:
    """Return the environment variables that the bundle sets on the machine."""
    lines = (bundle / "linux/etc/environment.d/50-tollhouse.conf").read_text().splitlines()
    return {name: value.strip('"') for name, value in (line.split("=", 1) for line in lines)}


def run_managed(
    bundle: Path,
    command: Sequence[str],
    home: Path,
    directory: Path,
    environment: Mapping[str, str],
    *,
    fails: bool = False,
) -> None:
    """Run a program in `directory` on a machine with the bundle until it ends."""
    done = subprocess.run(
        inside(bundle, command),
        cwd=directory,
        capture_output=True,
        text=True,
        timeout=RUN_S,
        env={"PATH": os.environ["PATH"], "HOME": str(home), **environment},
        stdin=subprocess.DEVNULL,
    )
    assert fails or done.returncode == 0, f"{command}\n{done.stdout[-4000:]}\n{done.stderr[-4000:]}"
