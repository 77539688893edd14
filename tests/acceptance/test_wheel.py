"""The release's wheel, installed as an operator does, on the oldest and the newest supported Python."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.documents import blocks
from tests.rounds import part

ROOT = Path(__file__).parents[2]
# The workflow runs the whole suite on each version, so `make test` installs the wheel on the oldest and the newest.
VERSIONS = part(["3.11", "3.12", "3.13", "3.14"], every=3)
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
MINUTE_S = 60

pytestmark = pytest.mark.timeout(10 * MINUTE_S)


def run(*command: str | Path, directory: Path, **environ: Path | str) -> str:
    """Run a command that must succeed with `environ` added to the environment; return its standard output."""
    # run outside the checkout, so that Python imports the installed packages
    env = {**os.environ, **{name: str(value) for name, value in environ.items()}}
    done = subprocess.run(
        command, cwd=directory, env=env, capture_output=True, text=True, timeout=8 * MINUTE_S
    )
    assert done.returncode == 0, f"{command}: exit {done.returncode}\n{done.stdout}\n{done.stderr}"
    return done.stdout


def candidates(version: str) -> Iterator[Path]:
    """Yield possible interpreters of that version: this one, those on the PATH, those of pyenv."""
    yield Path(sys.executable)
    if on_path := shutil.which(f"python{version}"):
        yield Path(on_path)
    pyenv = Path(os.environ.get("PYENV_ROOT") or Path.home() / ".pyenv")
    yield from sorted(pyenv.glob(f"versions/{version}.*/bin/python"))


def interpreter(version: str) -> Path | None:
    """
    Return an interpreter that starts and has that version, or None, because pyenv puts broken commands
    on the PATH.
    """
    question = "import sys; print('{}.{}'.format(*sys.version_info))"
    for candidate in candidates(version):
        answer = subprocess.run([candidate, "-c", question], capture_output=True, text=True)
        if answer.returncode == 0 and answer.stdout.strip() == version:
            return candidate
    return None


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Build the wheel with the locked build backend of this environment, which downloads nothing."""
    directory = tmp_path_factory.mktemp("wheel")
    build = (sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--no-build-isolation")
    run(*build, "--wheel-dir", directory, ROOT, directory=directory)
    (built,) = directory.glob("tollhouse-*.whl")
    return built


@dataclass(frozen=True)
class Installers:
    """uv and pipx. uv reuses its downloads in further environments."""

    bin: Path
    cache: Path

    def uv(self, *words: str | Path, directory: Path) -> None:
        run(self.bin / "uv", *words, directory=directory, UV_CACHE_DIR=self.cache)

    def environment(self, python: Path, directory: Path) -> Path:
        """Create an environment below the directory; return the folder of its commands."""
        self.uv("venv", "--quiet", "--python", python, directory / "venv", directory=directory)
        return directory / "venv/bin"


@pytest.fixture(scope="module")
def installers(tmp_path_factory: pytest.TempPathFactory) -> Installers:
    directory = tmp_path_factory.mktemp("installers")
    run(sys.executable, "-m", "venv", "--without-pip", directory / "venv", directory=directory)
    pip = (
        sys.executable,
        "-m",
        "pip",
        "--python",
        directory / "venv/bin/python",
        "--disable-pip-version-check",
    )
    run(*pip, "install", "--quiet", "--no-compile", "uv", "pipx", directory=directory)
    return Installers(directory / "venv/bin", directory / "cache")


@pytest.mark.parametrize("version", VERSIONS)
def test_the_wheel_runs_beside_the_locked_dependencies(
    version: str, wheel: Path, installers: Installers, tmp_path: Path
) -> None:
    """
    With only the packages of deploy/locks/requirements.lock, every module imports and the command works. The
    PostgreSQL engine needs the packages of its own lock as well.
    """
    base = interpreter(version)
    if base is None:
        pytest.skip(f"Python {version} is not installed")
    bin = installers.environment(base, tmp_path)
    install = ("pip", "install", "--quiet", "--python", bin / "python")
    installers.uv(
        *install, "--require-hashes", "-r", ROOT / "deploy/locks/requirements.lock", directory=tmp_path
    )
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
    The page's command works with both installers, and the dependencies come from the package index. The commands
    below run that of pip.
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
    The page's commands run from an empty directory to a call that is accepted. Their time is printed. They install
    the wheel with pip as the page's first section does.
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
            with suppress(ProcessLookupError):  # the server, and after a timeout the shell
                os.killpg(shell.pid, signal.SIGTERM)
