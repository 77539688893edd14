"""The configuration reference says of every limit what happens there."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator

import pytest

from docs.generate.configuration import tables
from gateway.configuration.sections import Config

SECTIONS = ("server", "spool", "devices", "container", "clusters", "billing", "contracts", "log")


def numbers_and_sizes() -> Iterator[tuple[str, str]]:
    for section in SECTIONS:
        for field in dataclasses.fields(getattr(Config(), section)):
            if field.type in ("int", "Size"):
                yield section, field.name


@pytest.mark.parametrize(("section", "name"), list(numbers_and_sizes()))
def test_every_limit_says_what_happens_there(section: str, name: str) -> None:
    [table] = [table for table in tables() if table.header == f"[{section}]"]
    [key] = [key for key in table.keys if key.name == name]
    assert key.setting.edge
