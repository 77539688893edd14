"""The RPM of a policy, checked and installed by rpm into a tree."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from gateway.devices.agent.policy.bundle import build_bundle
from gateway.devices.agent.policy.rpm import build_rpm_package
from gateway.devices.agent.policy.signatures import SigningKey, new_private_pem
from gateway.devices.agent.policy.targets import MANAGED, Destination

needs_rpm = pytest.mark.skipif(
    shutil.which("rpm") is None or os.geteuid() != 0, reason="rpm installs packages only for root"
)
CODEX = "etc/codex/managed_config.toml"


def rpm(tree: Path, *words: str) -> str:
    command = ["rpm", "--root", str(tree), *words]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def files_of(tree: Path) -> dict[str, bytes]:
    files = (path for path in (tree / "etc").rglob("*") if path.is_file())
    return {f"/{path.relative_to(tree)}": path.read_bytes() for path in files}


def write(
    directory: Path, version: str, endpoint: str = "http://127.0.0.1:4318"
) -> tuple[str, dict[str, bytes]]:
    """Write the package of a bundle; return its path, and the files that it installs."""
    key, destination = SigningKey(new_private_pem()), Destination(endpoint=endpoint)
    made = build_bundle(
        list(MANAGED.values()), destination, key, bundle_number=1, has_environment=True, rpm_version=version
    )
    file = directory / f"tollhouse-policy-{version}-1.noarch.rpm"
    file.write_bytes(made[f"linux/{file.name}"])
    return str(file), {
        path.removeprefix("linux"): content for path, content in made.items() if path.startswith("linux/etc/")
    }


@needs_rpm
def test_install_upgrade_and_removal(tmp_path: Path) -> None:
    """All digests are right. Installation, upgrade and removal change exactly the files of the bundle."""
    tree = tmp_path / "tree"
    tree.mkdir()
    first, files = write(tmp_path, "1")
    checked = subprocess.run(["rpm", "-Kv", first], capture_output=True, text=True).stdout
    assert [line.split(" digest: ") for line in checked.splitlines()[1:]] == [
        [f"    {name}", "OK"] for name in ("Header SHA256", "Header SHA1", "Payload SHA256", "MD5")
    ]
    rpm(tree, "-i", first)
    assert files_of(tree) == files
    assert {path.stat().st_mode & 0o777 for path in (tree / "etc").rglob("*") if path.is_file()} == {0o644}
    assert not rpm(tree, "-V", "tollhouse-policy")
    assert "tollhouse-policy-1-1.noarch\n" == rpm(tree, "-qf", f"/{CODEX}")
    second, newer = write(tmp_path, "2", endpoint="http://127.0.0.1:14318")
    assert newer != files
    rpm(tree, "-U", second)
    assert files_of(tree) == newer
    rpm(tree, "-e", "tollhouse-policy")
    assert files_of(tree) == {}


@needs_rpm
def test_an_existing_file_stays(tmp_path: Path) -> None:
    tree = tmp_path / "tree"
    (tree / CODEX).parent.mkdir(parents=True)
    (tree / CODEX).write_text('model = "gpt-5"\n')
    first, files = write(tmp_path, "1")
    rpm(tree, "-i", first)
    assert (tree / CODEX).read_text() == 'model = "gpt-5"\n'
    assert (tree / f"{CODEX}.rpmnew").read_bytes() == files[f"/{CODEX}"]


def test_equal_inputs_give_equal_bytes() -> None:
    files = {"/etc/b/two.json": b"{}", "/etc/a/one.json": b"[]" * 500}
    reversed_files = dict(reversed(list(files.items())))
    assert (
        build_rpm_package(files, "1")
        == build_rpm_package(reversed_files, "1")
        != build_rpm_package(files, "2")
    )
