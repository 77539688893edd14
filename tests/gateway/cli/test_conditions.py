"""Conditions of the option `--where`, and labels."""

from __future__ import annotations

import click
import pytest

from gateway.cli.parameters import Label, parse_conditions


def test_conditions_name_what_passes_and_what_does_not() -> None:
    """In a condition, the first "=" separates name and value. An empty value matches unknown."""
    given = ["team=search", "team!=ads", "tag:k=a=b", "user=", "user!="]
    assert [
        ("team", False, "search"),
        ("team", True, "ads"),
        ("tag:k", False, "a=b"),
        ("user", False, None),
        ("user", True, None),
    ] == list(parse_conditions(given))


def test_a_condition_without_a_value_ends_the_command(capsys: pytest.CaptureFixture[str]) -> None:
    """A condition without a value ends the command with exit code 2, and the error shows the notation."""
    with pytest.raises(SystemExit) as ended:
        list(parse_conditions(["team"]))
    assert 2 == ended.value.code
    assert "NAME=VALUE or NAME!=VALUE" in capsys.readouterr().err


def test_a_label_has_a_name_and_a_value() -> None:
    assert ("team", "a=b") == Label().convert("team=a=b", None, None)
    with pytest.raises(click.BadParameter, match="NAME=VALUE"):
        Label().convert("team", None, None)
