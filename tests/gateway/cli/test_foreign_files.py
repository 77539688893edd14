"""Another distribution with files in the packages of Tollhouse is named, and no server starts."""

from __future__ import annotations

import sysconfig
from pathlib import Path

import pytest
from click.testing import CliRunner

from gateway.cli import main


@pytest.mark.parametrize(
    ("name", "file", "is_refused"),
    [
        ("gateway-2.0", "gateway/__init__.py", True),
        ("other-1.0", "spool/more.py", True),
        ("other-1.0", "other/spool/more.py", False),
        ("tollhouse_native-0.1.0", "tollhouse_native/__init__.py", False),
        ("tollhouse-0.1.0", "gateway/__init__.py", False),
    ],
)
def test_a_server_starts_only_with_packages_of_its_own(
    name: str, file: str, is_refused: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    record = tmp_path / f"{name}.dist-info/RECORD"
    record.parent.mkdir()
    record.write_text(f"{name}.dist-info/METADATA,sha256=x,1\n{file},sha256=y,2\n")
    monkeypatch.setattr(sysconfig, "get_path", lambda name: str(tmp_path))
    done = CliRunner().invoke(main, ["serve", "--config", str(tmp_path / "missing.toml")])
    assert 2 == done.exit_code
    assert is_refused is (f"tollhouse: {name} has files in the packages of Tollhouse" in done.output)
