"""The messages of all rejected configurations, approved in `refusals.txt`."""

from __future__ import annotations

from pathlib import Path

import pytest

from gateway.configuration.reader import load_config
from gateway.configuration.values import ConfigError
from tests.approved import approved


@pytest.mark.proves("`tollhouse.toml` and settings as files")
@pytest.mark.proves("Somebody reads the traffic")
@pytest.mark.parametrize(("title", "text", "words"), approved(Path(__file__).with_name("refusals.txt")))
def test_each_mistake_has_its_sentence(tmp_path: Path, title: str, text: str, words: list[str]) -> None:
    """
    The message names the setting as a user writes it. An empty message means that the configuration is valid.
    """
    path = tmp_path / "tollhouse.toml"
    path.write_text(text)
    found = []
    try:
        load_config(path, env={})
    except ConfigError as error:
        found = error.problems
    assert words == found, title
