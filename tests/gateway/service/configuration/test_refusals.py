"""The words of every refused configuration, once: in refusals.txt, after the settings that they are about."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from gateway.service.configuration.reader import load
from gateway.service.configuration.sections import ConfigError

CASES = re.findall(
    r"^=== (.*)\n((?:(?!===).*\n)*)", Path(__file__).with_name("refusals.txt").read_text(), re.MULTILINE
)


@pytest.mark.parametrize(("title", "case"), CASES, ids=[title for title, _ in CASES])
def test_each_mistake_has_its_sentence(tmp_path: Path, title: str, case: str) -> None:
    """With the name of the setting as a user writes it; without a sentence, the configuration can run."""
    lines = case.splitlines()
    path = tmp_path / "tollhouse.toml"
    path.write_text("\n".join(line for line in lines if not line.startswith("> ")))
    found = []
    try:
        load(path, env={})
    except ConfigError as error:
        found = error.problems
    assert [line.removeprefix("> ") for line in lines if line.startswith("> ")] == found, title
