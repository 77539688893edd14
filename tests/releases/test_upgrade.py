"""The release's wheel is installed outside the checkout, started, upgraded and removed."""

from __future__ import annotations

import zipfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.releases.installing import MINUTE_S, Installers, run
from tests.releases.upgrade import Installation, remove, upgrade

EARLIER = "0.0.1"

pytestmark = [pytest.mark.timeout(30 * MINUTE_S), pytest.mark.proof]  # the first test also builds the release


def earlier_build(wheel: Path, directory: Path) -> Path:
    """Write the wheel with an earlier version."""
    version = wheel.name.split("-")[1]
    about = f"tollhouse-{version}.dist-info", f"tollhouse-{EARLIER}.dist-info"
    replaced = {
        f"{about[0]}/METADATA": (f"\nVersion: {version}\n", f"\nVersion: {EARLIER}\n"),
        f"{about[0]}/RECORD": about,
    }
    built = directory / wheel.name.replace(version, EARLIER)
    with zipfile.ZipFile(wheel) as ours, zipfile.ZipFile(built, "w") as theirs:
        for name in ours.namelist():
            before, after = replaced.get(name, ("", ""))
            text = ours.read(name)
            assert before.encode() in text
            theirs.writestr(
                name.replace(*about), text.replace(before.encode(), after.encode()) if before else text
            )
    return built


@pytest.fixture(scope="module")
def one(installers: Installers, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Installation]:
    installation = Installation(tmp_path_factory.mktemp("one"), installers)
    yield installation
    installation.stop(code=None)


def test_a_build_is_installed_killed_upgraded_and_removed(
    one: Installation, wheel: Path, tmp_path: Path
) -> None:
    """After a kill under load and an upgrade, each call is counted once. A removal leaves the data."""
    assert upgrade(one, earlier_build(wheel, tmp_path), wheel) > 0
    printed = run(one.bin / "tollhouse", "version", directory=one.directory)
    assert f"tollhouse {wheel.name.split('-')[1]}" == printed.splitlines()[0]
    remove(one)
