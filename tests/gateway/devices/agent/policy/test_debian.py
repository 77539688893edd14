"""The Debian package of a policy, installed by dpkg into a tree."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from gateway.devices.agent.policy.bundle import build_bundle
from gateway.devices.agent.policy.debian import build_debian_package
from gateway.devices.agent.policy.signatures import SigningKey, new_private_pem
from gateway.devices.agent.policy.targets import MANAGED, Destination

needs_dpkg = pytest.mark.skipif(
    shutil.which("dpkg") is None or os.geteuid() != 0, reason="dpkg installs packages only for root"
)
CODEX = "etc/codex/managed_config.toml"


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """Make a tree in which dpkg knows no package."""
    tree = tmp_path / "tree"
    for folder in ("etc", "var/lib/dpkg/info", "var/lib/dpkg/updates", "var/log"):
        (tree / folder).mkdir(parents=True)
    (tree / "var/lib/dpkg/status").touch()
    return tree


def dpkg(tree: Path, *words: str) -> None:
    command = ["dpkg", f"--root={tree}", "--force-confold", *words]
    done = subprocess.run(command, capture_output=True, text=True, stdin=subprocess.DEVNULL)
    assert done.returncode == 0, done.stdout + done.stderr


def files_of(tree: Path) -> dict[str, bytes]:
    return {
        f"/{path.relative_to(tree)}": path.read_bytes()
        for path in (tree / "etc").rglob("*")
        if path.is_file()
    }


def write(
    directory: Path, version: str, endpoint: str = "http://127.0.0.1:4318"
) -> tuple[str, dict[str, bytes]]:
    """Write the package of a bundle; return its path, and the files that it installs."""
    key = SigningKey(new_private_pem())
    destination = Destination(endpoint=endpoint)
    made = build_bundle(
        list(MANAGED.values()), destination, key, bundle_number=1, has_environment=True, deb_version=version
    )
    file = directory / f"tollhouse-policy_{version}_all.deb"
    file.write_bytes(made[f"linux/{file.name}"])
    return str(file), {
        path.removeprefix("linux"): content for path, content in made.items() if path.startswith("linux/etc/")
    }


@needs_dpkg
def test_install_upgrade_and_purge(tmp_path: Path, tree: Path) -> None:
    """The package has the files of the bundle. An upgrade changes them, and a purge leaves nothing."""
    first, files = write(tmp_path, "1")
    dpkg(tree, "-i", first)
    assert files_of(tree) == files
    assert {path.stat().st_mode & 0o777 for path in (tree / "etc").rglob("*") if path.is_file()} == {0o644}
    second, newer = write(tmp_path, "2", endpoint="http://127.0.0.1:14318")
    assert newer != files
    dpkg(tree, "-i", second)
    assert files_of(tree) == newer
    dpkg(tree, "--purge", "tollhouse-policy")
    assert files_of(tree) == {}


@needs_dpkg
def test_an_existing_file_stays(tmp_path: Path, tree: Path) -> None:
    (tree / CODEX).parent.mkdir()
    (tree / CODEX).write_text('model = "gpt-5"\n')
    first, files = write(tmp_path, "1")
    dpkg(tree, "-i", first)
    assert (tree / CODEX).read_text() == 'model = "gpt-5"\n'
    assert files_of(tree).keys() >= files.keys()


def test_equal_inputs_give_equal_bytes() -> None:
    files = {"/etc/a/b.json": b"{}\n", "/etc/c.toml": b""}
    assert build_debian_package(files, "1") == build_debian_package(dict(reversed(files.items())), "1")
    assert build_debian_package(files, "1") != build_debian_package(files, "2")
