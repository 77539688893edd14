"""The words of every refused configuration, once: in refusals.txt, after the settings that they are about."""

from __future__ import annotations

from pathlib import Path

import pytest

from gateway.service.configuration.reader import load
from gateway.service.configuration.sections import ConfigError
from tests.approved import approved


@pytest.mark.parametrize(("title", "text", "words"), approved(Path(__file__).with_name("refusals.txt")))
def test_each_mistake_has_its_sentence(tmp_path: Path, title: str, text: str, words: list[str]) -> None:
    """With the name of the setting as a user writes it; without a sentence, the configuration can run."""
    path = tmp_path / "tollhouse.toml"
    path.write_text(text)
    found = []
    try:
        load(path, env={})
    except ConfigError as error:
        found = error.problems
    assert words == found, title
