"""The release's wheel, installed as an operator does, on the oldest and the newest supported Python."""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from tests.documents import blocks
from tests.processes.copied import ROOT
from tests.releases.installing import MINUTE_S, Installers, interpreter, run
from tests.rounds import part

# The workflow runs the whole suite on each version, so `make test` installs the wheel on the oldest.
VERSIONS = part(["3.11", "3.12", "3.13", "3.14"], every=4)
IMPORT_EVERYTHING = """
import importlib, pkgutil, sys
_, is_wanted, *extras = sys.argv
for package in ("gateway", "exporters", "spool"):
    for module in pkgutil.walk_packages(importlib.import_module(package).__path__, f"{package}."):
        is_extra = module.name.startswith(tuple(f"{extra}." for extra in extras))
        if not module.name.endswith(".__main__") and is_extra == (is_wanted == "yes"):
            importlib.import_module(module.name)
"""
# prefixes of modules that need an extra
POSTGRES, LAKE, KAFKA = "spool.postgres", "exporters.lake", "exporters.kafka"

pytestmark = [pytest.mark.timeout(30 * MINUTE_S), pytest.mark.proof]  # the first test also builds the release


def check_bill(bill: Any, listed: Any) -> None:
    """Check that the bill has the installed packages, and else only packages of other versions of Python."""
    installed = {(each["name"], each["version"]) for each in listed}
    billed = {
        (each["name"], each["version"]) for each in bill["components"] if each["purl"].startswith("pkg:pypi/")
    }
    assert set() == installed - billed
    conditional = re.findall(
        r"^(\S+)==\S+ ;", (ROOT / "deploy/locks/requirements.lock").read_text(), re.MULTILINE
    )
    assert set() == {name for name, _ in billed - installed} - set(conditional)


@pytest.mark.parametrize("version", VERSIONS)
def test_wheel_runs_with_only_the_locked_dependencies(
    version: str, wheel: Path, installers: Installers, tmp_path: Path
) -> None:
    """
    With only the packages of deploy/locks/requirements.lock, every module imports and the command works. The
    bill of materials lists these packages. The PostgreSQL engine needs the packages of its own lock as well.
    """
    base = interpreter(version)
    if base is None:
        pytest.skip(f"Python {version} is not installed")
    bin = installers.environment(base, tmp_path)
    install = ("pip", "install", "--quiet", "--python", bin / "python")
    installers.uv(
        *install, "--require-hashes", "-r", ROOT / "deploy/locks/requirements.lock", directory=tmp_path
    )
    if (bill := wheel.with_name("tollhouse.cdx.json")).exists():
        listed = run(
            installers.bin / "uv",
            "pip",
            "list",
            "--python",
            bin / "python",
            "--format",
            "json",
            directory=tmp_path,
        )
        check_bill(json.loads(bill.read_text()), json.loads(listed))
    installers.uv(*install, "--no-deps", "--no-index", wheel, directory=tmp_path)
    run(
        bin / "python",
        "-W",
        "error",
        "-c",
        IMPORT_EVERYTHING,
        "no",
        POSTGRES,
        LAKE,
        KAFKA,
        directory=tmp_path,
    )
    assert run(bin / "tollhouse", "version", directory=tmp_path).startswith("tollhouse ")
    installers.uv(
        *install,
        "--require-hashes",
        "-r",
        ROOT / "deploy/locks/requirements-postgres.lock",
        directory=tmp_path,
    )
    run(bin / "python", "-W", "error", "-c", IMPORT_EVERYTHING, "yes", POSTGRES, directory=tmp_path)


PAGE = ROOT / "docs/install/wheel.md"
NO_COMPILE = "0"  # pip reads this variable as the value of `compile`, not of `no compile`


@pytest.mark.parametrize("installer", ["pipx", "uv"])
def test_the_page_installs_it_with_one_command(
    installer: str, wheel: Path, installers: Installers, tmp_path: Path
) -> None:
    """
    The page's command installs the release with both installers, and the dependencies come from the package index.
    The commands below run that of pip.
    """
    bin = tmp_path / "bin"
    (words,) = re.findall(rf"^ {{4}}{installer} (.+) tollhouse-\S+\.whl$", PAGE.read_text(), re.MULTILINE)
    places: dict[str, Path | str] = {
        "PIPX_HOME": tmp_path / "home",
        "PIPX_BIN_DIR": bin,
        "PIPX_DEFAULT_PYTHON": Path(sys.executable),
        "PIPX_DEFAULT_BACKEND": "uv",  # the default of pipx if the machine has it, which reuses its downloads
        "UV_TOOL_DIR": tmp_path / "home",
        "UV_TOOL_BIN_DIR": bin,
        "UV_CACHE_DIR": installers.cache,
        "UV_PYTHON": Path(sys.executable),
    }
    run(installers.bin / installer, *words.split(), wheel, directory=tmp_path, **places)
    assert run(bin / "tollhouse", "version", directory=tmp_path).startswith("tollhouse ")


def test_an_empty_machine_runs_with_keys_roles_and_budgets(wheel: Path, tmp_path: Path) -> None:
    """
    An empty machine is installed with the commands of the page, from an empty directory to a call that is accepted.
    Their time is printed. They install the wheel with pip as the page's first section does.
    """
    (block,) = (block for block in blocks(PAGE.read_text()) if block.language == "sh")
    (pip,) = re.findall(r"^ {4}~/(tollhouse/bin/pip .+)$", PAGE.read_text(), re.MULTILINE)
    assert pip in block.text.splitlines()
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{free.getsockname()[1]}"
    commands = block.text.replace("127.0.0.1:4318", address).replace(wheel.name, str(wheel))
    env = {
        **os.environ,
        "TOLLHOUSE_SERVER__LISTEN": address,
        "TOLLHOUSE_SERVER__GRPC_LISTEN": "",
        "PIP_NO_COMPILE": NO_COMPILE,
    }
    began = time.monotonic()
    with subprocess.Popen(
        ["bash", "-euc", commands], cwd=tmp_path, env=env, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
        text=True, start_new_session=True,
    ) as shell:  # fmt: skip
        try:
            printed, _ = shell.communicate(timeout=8 * MINUTE_S)
            print(f"the commands took {time.monotonic() - began:.1f} s")
            assert 0 == shell.returncode, f"{printed}\n{(tmp_path / 'tollhouse.log').read_text()}"
            for kind, name in (("keys", "checkout"), ("budgets", "Monthly"), ("roles", "Finance")):
                listed = run(tmp_path / "tollhouse/bin/tollhouse", kind, "list", "--json", directory=tmp_path)
                assert name in [each["name"] for each in json.loads(listed)[kind]]
        finally:
            with suppress(ProcessLookupError):  # end the server, and after a timeout the shell as well
                os.killpg(shell.pid, signal.SIGTERM)
