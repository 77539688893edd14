"""The compiled module in a release: its lock file, its bill of materials, and platforms without a wheel."""

from __future__ import annotations

import os
import runpy
import subprocess
import tomllib
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]
WHEEL = "tollhouse_native-0.1.0-cp311-abi3-manylinux_2_34_x86_64.whl"
OTHER = "tollhouse_native-0.1.0-cp311-abi3-macosx_11_0_arm64.whl"


@pytest.fixture(scope="module")
def wheels() -> dict[str, Any]:
    return runpy.run_path(str(ROOT / "deploy/native_wheels.py"))


def test_platforms_without_a_wheel_are_named(wheels: dict[str, Any]) -> None:
    """A release without the module names all platforms. The Tollhouse wheel itself does not count."""
    every = list(wheels["PLATFORMS"])
    assert every == wheels["without_wheel"](["tollhouse-0.1.0-py3-none-any.whl", "tollhouse-0.1.0.tar.gz"])
    left = wheels["without_wheel"]([WHEEL, OTHER])
    assert set(every) - set(left) == {"Linux with glibc on x86_64", "macOS on arm64"}


def test_the_lock_file_names_every_wheel(wheels: dict[str, Any]) -> None:
    """The lock file has one version, the hash of each wheel, and nothing else of the release."""
    lines = wheels["lock"]({WHEEL: "ab" * 32, OTHER: "cd" * 32, "tollhouse-0.1.0.tar.gz": "ef" * 32})
    _, *lock = lines.replace("\\\n", "").splitlines()
    assert [f"tollhouse-native==0.1.0     --hash=sha256:{'cd' * 32}     --hash=sha256:{'ab' * 32}"] == lock
    assert "" == wheels["lock"]({"tollhouse-0.1.0.tar.gz": "ef" * 32})


def test_the_module_has_the_version_of_tollhouse() -> None:
    """The compiled module has Tollhouse's version, and no extra requires it, because it is in no index."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    crate = tomllib.loads((ROOT / "native/Cargo.toml").read_text())["package"]
    assert project["version"] == crate["version"]
    extras = project["optional-dependencies"].values()
    assert [] == [each for extra in extras for each in extra if each.startswith(crate["name"])]


def test_crates_are_in_the_bill_with_their_licences(tmp_path: Path) -> None:
    """The bill of materials lists each crate once, even after two runs, and existing entries stay."""
    found = runpy.run_path(str(ROOT / "deploy/crates.py"))
    crate = found["component"]({"name": "heck", "version": "0.5.0", "checksum": "ab"}, "MIT/Apache-2.0")
    assert [{"expression": "MIT OR Apache-2.0"}] == crate["licenses"]
    bill = {"components": [{"bom-ref": "aiohttp"}], "dependencies": [{"ref": "aiohttp"}]}
    whole = found["with_components"](bill, [crate])
    assert ["aiohttp", "pkg:cargo/heck@0.5.0"] == [each["bom-ref"] for each in whole["components"]]
    assert whole == found["with_components"](whole, [crate])


@pytest.mark.proof
def test_the_wheel_is_the_same_bytes_wherever_it_is_built(wheels: dict[str, Any], tmp_path: Path) -> None:
    """
    Two copies in different directories give the same bytes. The installed module has the expected interface.
    """
    if why := wheels["reason"]():
        pytest.skip(why)
    found = []
    for name in ("one", "another/below"):
        place = tmp_path / name
        place.mkdir(parents=True)
        files = subprocess.run(
            ["git", "ls-files", "native"], cwd=ROOT, check=True, capture_output=True, text=True
        )
        for file in files.stdout.split():
            (place / file).parent.mkdir(parents=True, exist_ok=True)
            (place / file).write_bytes((ROOT / file).read_bytes())
            (place / file).chmod((ROOT / file).stat().st_mode)
        wheels["build"](place, place / "dist", {**os.environ, "SOURCE_DATE_EPOCH": "1790000000"})
        (wheel,) = (place / "dist").iterdir()
        found.append((wheel.name, sha256(wheel.read_bytes()).hexdigest()))
    assert found[0] == found[1]
