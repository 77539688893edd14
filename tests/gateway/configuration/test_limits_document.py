"""`docs/limits.md` lists every limit with its default."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from exporters.settings import DestinationSettings
from gateway.configuration import reader
from gateway.configuration.sections import Config

DOCUMENT = Path(__file__).parents[3] / "docs" / "limits.md"
ROW = re.compile(r"^\| `(\w+)\.(\w+)` \| (\S+) \|", re.MULTILINE)
SECTIONS = ("server", "spool", "devices", "container", "clusters", "billing", "log")


def rows() -> list[tuple[str, str, str]]:
    return ROW.findall(DOCUMENT.read_text())


def limits(config: Config) -> Iterator[tuple[str, str]]:
    """Yield the settings that are a number or a size."""
    for section in SECTIONS:
        for field in dataclasses.fields(getattr(config, section)):
            if field.type in ("int", "Size"):
                yield section, field.name


def test_every_limit_has_a_row() -> None:
    assert set() == set(limits(Config())) - {(section, name) for section, name, _ in rows()}


@pytest.mark.parametrize(("section", "name", "text"), rows())
def test_defaults_in_the_document_are_those_of_the_configuration(
    section: str, name: str, text: str, tmp_path: Path
) -> None:
    """
    If the default of a table row is written into a configuration file, the configuration does not change.
    """
    file = tmp_path / "tollhouse.toml"
    value = text if text.isdecimal() else f'"{text}"'
    if section == "destinations":
        ndjson = 'name = "a"\ntype = "ndjson"\npath = "b"'
        file.write_text(f"[[{section}]]\n{ndjson}\n{name} = {value}\n")
        read: Any = reader.load(file, env={}).destinations[0]
        default: Any = DestinationSettings()
    else:
        file.write_text(f"[{section}]\n{name} = {value}\n")
        read = getattr(reader.load(file, env={}), section)
        default = getattr(Config(), section)
    assert getattr(default, name) == getattr(read, name)
