"""The files of a release, built once for all tests that install them."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.processes.copied import ROOT
from tests.releases.installing import Installers, install_installers

CYCLONEDX = ROOT / ".venv-audit/bin/cyclonedx-py"


@pytest.fixture(scope="session")
def build(tmp_path_factory: pytest.TempPathFactory) -> subprocess.CompletedProcess[str]:
    """Build a release as continuous integration does, without the compiled module."""
    bill = ["--cyclonedx", str(CYCLONEDX)] if CYCLONEDX.exists() else []
    out = tmp_path_factory.mktemp("release")
    command = [
        sys.executable,
        str(ROOT / "deploy/release.py"),
        "--snapshot",
        "--no-native",
        *bill,
        "--out",
        str(out),
    ]
    return subprocess.run(command, capture_output=True, text=True)


@pytest.fixture(scope="session")
def release(build: subprocess.CompletedProcess[str]) -> Path:
    assert 0 == build.returncode, build.stderr
    return Path(build.args[-1])


@pytest.fixture(scope="session")
def wheel(release: Path) -> Path:
    (built,) = release.glob("tollhouse-*.whl")
    return built


@pytest.fixture(scope="session")
def installers(tmp_path_factory: pytest.TempPathFactory) -> Installers:
    return install_installers(tmp_path_factory.mktemp("installers"))
