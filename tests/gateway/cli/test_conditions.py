"""How --where is read, wherever a command takes it."""

from __future__ import annotations

import pytest

from gateway.cli.parameters import conditions


def test_conditions_name_what_passes_and_what_does_not() -> None:
    """The first sign of equality counts; nothing behind it is the unknown value."""
    given = ["team=search", "team!=ads", "tag:k=a=b", "user=", "user!="]
    assert [
        ("team", False, "search"),
        ("team", True, "ads"),
        ("tag:k", False, "a=b"),
        ("user", False, None),
        ("user", True, None),
    ] == list(conditions(given))


def test_a_condition_without_a_value_ends_the_command(capsys: pytest.CaptureFixture[str]) -> None:
    """With the exit code of wrong usage, and how it is written."""
    with pytest.raises(SystemExit) as ended:
        list(conditions(["team"]))
    assert 2 == ended.value.code
    assert "NAME=VALUE or NAME!=VALUE" in capsys.readouterr().err
