"""The registry file of a policy bundle, imported by Wine's `reg`."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from gateway.devices.agent.policy.bundle import build_bundle
from gateway.devices.agent.policy.signatures import SigningKey, new_private_pem
from gateway.devices.agent.policy.targets import MANAGED, Destination
from tests.gateway.devices.agent.policy.test_bundle import registry

pytestmark = pytest.mark.clients

WINE = shutil.which("wine64", path=f"{os.environ['PATH']}:/usr/lib/wine")


@pytest.mark.skipif(WINE is None, reason="wine64 is not installed")
@pytest.mark.parametrize("key", ["", "th_a-secret_KEY"])
def test_wine_imports_the_same_values(tmp_path: Path, key: str) -> None:
    """After the import by Wine's `reg`, a query for each value returns the text of the file."""
    destination = Destination(endpoint="https://tollhouse.example.com", key=key)
    assistants = list(MANAGED.values())
    files = build_bundle(
        assistants, destination, SigningKey(new_private_pem()), bundle_number=1, has_environment=True
    )
    (tmp_path / "policy.reg").write_bytes(files["windows/policy.reg"])

    def reg(*words: str) -> str:
        done = subprocess.run(
            [str(WINE), "reg", *words],
            cwd=tmp_path,
            env={**os.environ, "WINEPREFIX": str(tmp_path / "wine"), "WINEDEBUG": "-all"},
            check=True,
            capture_output=True,
            text=True,
            timeout=300,
        )
        return done.stdout

    reg("import", "policy.reg")
    values = registry(files["windows/policy.reg"])
    assert len(values) == (5 if key else 4)
    for (path, name), text in values.items():
        [line] = [line for line in reg("query", path, "/v", name).splitlines() if name in line]
        assert line.split(maxsplit=2) == [name, "REG_SZ", text]
