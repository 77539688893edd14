"""`tollhouse version` and `tollhouse --version` print the same versions."""

from __future__ import annotations

from importlib.metadata import version

import pytest
from click.testing import CliRunner

from gateway.cli import main


@pytest.mark.parametrize("word", ["version", "--version"])
def test_the_versions_are_printed(word: str) -> None:
    result = CliRunner().invoke(main, [word])
    assert result.exit_code == 0
    assert result.output.startswith(f"tollhouse {version('tollhouse')}\npython 3.")


def test_completion_after_the_version_flag_prints_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    main.make_context("tollhouse", ["--version"], resilient_parsing=True)
    assert capsys.readouterr().out == ""


def test_without_the_flag_the_command_that_is_named_runs() -> None:
    result = CliRunner().invoke(main, ["completion", "--help"])
    assert result.exit_code == 0
    assert not result.output.startswith("tollhouse ")
