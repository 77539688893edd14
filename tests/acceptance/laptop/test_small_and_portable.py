"""The agent imports few modules, and none of its own modules needs a name that Windows or macOS lacks."""

from __future__ import annotations

import ast
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import mypy
import pytest

from tests.acceptance.conftest import ROOT, Tollhouse
from tests.acceptance.payloads import post, request, span
from tests.acceptance.test_devices import FLEET
from tests.waiting import wait_until

PROGRAM = Path(__file__).with_name("windows_names.py")
OURS = ("gateway", "spool", "exporters")
AGENT = """
data_dir = "agent-data"
[server]
listen = "127.0.0.1:0"
grpc_listen = ""
[spool]
hold = "0s"
[agent]
gateway = "{url}"
enrolment_key_file = "{directory}/enrolment.key"
"""
# Libraries and parts of a gateway that an agent must not load. Each takes memory on every laptop.
NOT_IMPORTED = (
    "grpc", "psycopg", "pyarrow", "obstore", "aiokafka", "jwt", "cryptography", "yaml",
    "spool.postgres", "exporters.lake", "gateway.console", "gateway.mcp", "gateway.cli.operator",
    "gateway.operations.receivers.otlp_grpc", "gateway.service.addresses.table", "gateway.service.demo.filling",
    "gateway.money.insights", "gateway.money.recommendations", "gateway.bills.reconciliation",
    "gateway.bills.statements", "gateway.http.openapi",
    "gateway.devices.agent.probe", "gateway.devices.agent.policy.bundle", "gateway.devices.agent.policy.applied",
)  # fmt: skip

# The modules of `tollhouse agent probe`, which the agent itself does not load.
PROBE = tuple(
    f"gateway.devices.agent.probe.{name}"
    for name in ("folders", "look", "machine", "places", "states", "telemetry")
)


class Laptop:
    """An agent in a process whose standard input stays open until `close`."""

    def __init__(self, directory: Path, gateway: Tollhouse) -> None:
        self.directory = directory
        directory.mkdir()
        (directory / "enrolment.key").write_text(gateway.key("enrolment", *FLEET))
        (directory / "agent.toml").write_text(AGENT.format(url=gateway.url, directory=directory))
        self.url = ""
        self._process: subprocess.Popen[str] | None = None

    def start(self) -> None:
        words = [sys.executable, str(PROGRAM), "modules", "agent", "--config", "agent.toml"]
        with (self.directory / "log").open("a") as log:
            self._process = subprocess.Popen(
                [*words, "--until-stdin-ends"],
                cwd=self.directory,
                env={**os.environ, "PYTHONPATH": str(ROOT)},
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
            )
        assert self._process.stdout is not None
        found = re.fullmatch(r"listening on (http://\S+)\n", self._process.stdout.readline())
        assert found, (self.directory / "log").read_text()
        self.url = found[1]

    def close(self) -> int:
        """Close the agent's standard input. Return its exit code."""
        assert self._process is not None
        self._process.communicate(timeout=60)
        return self._process.returncode

    def kill(self) -> None:
        assert self._process is not None
        self._process.kill()
        self._process.communicate()

    @property
    def modules(self) -> list[str]:
        return (self.directory / "modules").read_text().split()


@pytest.fixture(scope="module")
def modules(tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[str]]:
    """Let an agent without POSIX names enrol, spool, be killed, and forward. Yield the modules that it imported."""
    directory = tmp_path_factory.mktemp("portable")
    gateway = Tollhouse(directory / "gateway", GATEWAY)
    laptop: Any = None
    try:
        gateway.start()
        laptop = Laptop(directory / "laptop", gateway)
        laptop.start()
        wait_until((directory / "laptop/agent-data/device.key").exists, "the device's own key")
        assert 200 == post(laptop.url, request([span("chatcmpl-" + "a" * 24)]), "").status
        wait_until(lambda: len(gateway.records()) == 1, "the first call")
        gateway.stop()
        assert 200 == post(laptop.url, request([span("chatcmpl-" + "b" * 24)]), "").status
        laptop.kill()
        gateway.start()
        (directory / "laptop/agent.toml").write_text(
            AGENT.format(url=gateway.url, directory=directory / "laptop")
        )
        laptop.start()
        wait_until(lambda: len(gateway.records()) == 2, "the call that was on disk")
        assert 0 == laptop.close()
        yield laptop.modules
    finally:
        if laptop is not None:
            laptop.kill()
        gateway.kill()


GATEWAY = """
[server]
listen = "127.0.0.1:0"
grpc_listen = ""
[spool]
hold = "0s"
[[destinations]]
name = "archive"
type = "ndjson"
path = "records.ndjson"
"""


def test_the_agent_runs_without_names_of_posix_and_imports_little(modules: list[str]) -> None:
    """
    The agent imports no part of a gateway, and fewer than 601 modules of ours, with the readers of telemetry. The
    fixture has shown that it runs.
    """
    found = [
        name for name in modules if any(name == part or name.startswith(part + ".") for part in NOT_IMPORTED)
    ]
    assert not found
    ours = [name for name in modules if name.partition(".")[0] in OURS]
    assert 300 < len(ours) < 601, len(ours)


def test_the_first_request_waits_for_no_import(modules: list[str]) -> None:
    """The modules that read telemetry are there, although this process got no request."""
    names = (
        "operations.receivers.otlp_http",
        "normalise.otlp.products",
        "normalise.otlp.decoding.json_schema",
    )
    assert {f"gateway.{name}" for name in names} <= set(modules)


def modules_that_differ() -> set[str]:
    """Return the modules of Python whose names depend on the system, as mypy's descriptions of them state."""
    described = Path(mypy.__file__).parent / "typeshed/stdlib"
    files = [file for file in described.rglob("*.pyi") if "sys.platform" in file.read_text()]
    names = [".".join(file.relative_to(described).with_suffix("").parts) for file in files]
    return {name.removesuffix(".__init__") for name in names}


@cache
def imported(name: str) -> set[str]:
    """Return the modules that a module of ours imports anywhere, and the names that may be modules."""
    spec = find_spec(name)
    assert spec is not None and spec.origin is not None
    found: set[str] = set()
    for each in ast.walk(ast.parse(Path(spec.origin).read_text())):
        if isinstance(each, ast.Import):
            found |= {alias.name for alias in each.names}
        elif isinstance(each, ast.ImportFrom) and each.module:
            found |= {each.module, *(f"{each.module}.{alias.name}" for alias in each.names)}
    return found


@pytest.mark.proof
@pytest.mark.parametrize("platform", ["win32", "darwin"])
def test_types_of_the_agent_on_other_systems(modules: list[str], platform: str) -> None:
    """
    By mypy's descriptions of Windows and macOS, the agent's modules use no name that these systems lack. mypy reads
    only modules that import a module of Python which differs between systems. It follows no other module, because
    `make lint` checks them, so it does not know a few types of other modules' classes.
    """
    differing = modules_that_differ()
    ours = [name for name in (*modules, *PROBE) if name.partition(".")[0] in OURS]
    read = [name for name in ours if differing & imported(name)]
    assert {"gateway.cli.agent_run", "spool.sqlite.database"} < set(read) < set(ours)
    # this mypy cache is beside that of `make lint`, which is for this system
    cache = ROOT / ".mypy_cache" / platform
    done = subprocess.run(
        [sys.executable, "-m", "mypy", "--config-file=", "--platform", platform, "--follow-imports", "skip",
         "--ignore-missing-imports", "--disable-error-code", "has-type", "--cache-dir", cache,
         *(word for name in read for word in ("-m", name))],
        cwd=ROOT,
        capture_output=True,
        text=True,
    )  # fmt: skip
    assert 0 == done.returncode, done.stdout + done.stderr
