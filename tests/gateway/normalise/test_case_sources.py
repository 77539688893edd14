"""Every payload of tests/cases states its origin."""

from __future__ import annotations

from pathlib import Path

import pytest

CASES = Path(__file__).parents[2] / "cases"


def payloads(family: str) -> list[Path]:
    """Return the payloads of a family. Each is in the folder of its format or product."""
    files = (path for path in (CASES / family).glob("*/*") if path.suffix in (".json", ".ndjson"))
    return sorted(path for path in files if not path.name.endswith(".expected.json"))


@pytest.mark.parametrize("family", ["gateway", "otlp"])
def test_every_payload_has_an_entry_in_its_index(family: str) -> None:
    """
    Every payload in tests/cases has an entry with its file and its SOURCE in an index. Each gateway format has an
    index, and all OTLP products share one.
    """
    found = payloads(family)
    assert found
    for path in found:
        of_folder = path.with_name("INDEX.md")
        text = (of_folder if family == "gateway" else CASES / family / "INDEX.md").read_text()
        name = path.name if family == "gateway" else path.relative_to(CASES / family)
        assert f"`{name}`" in text, f"{path.relative_to(CASES)} has no entry with its SOURCE"
