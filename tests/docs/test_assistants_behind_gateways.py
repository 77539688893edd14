"""docs/promises/joining.md lists each assistant with the headers in which it states its session to a gateway."""

from __future__ import annotations

import re
from pathlib import Path

from gateway.normalise.reading.agent_headers import AgentHeaders
from gateway.normalise.reading.assistants import ASSISTANTS

PAGE = Path(__file__).parents[2] / "docs/promises/joining.md"


def test_the_page_has_the_headers_of_the_table() -> None:
    section = PAGE.read_text().split("## Assistants behind a gateway", 1)[1].split("| gateway |", 1)[0]
    rows = re.findall(r"^\| ([A-Z].*|opencode) \| (.*) \|$", section, re.MULTILINE)
    stated = {
        name: set(re.findall(r"`([\w-]+)`", headers)) for names, headers in rows for name in names.split(", ")
    }
    carried = {source.replace("_", " "): set(each.carriers) for source, each in ASSISTANTS.items()}
    assert {name.lower(): headers for name, headers in stated.items()} == {
        name.replace(" cli", "") if name.startswith("copilot") else name: headers
        for name, headers in carried.items()
        if name != "copilot chat"
    }


def test_every_header_of_the_table_is_read() -> None:
    carriers = {header for each in ASSISTANTS.values() for header in each.carriers}
    assert carriers <= set(AgentHeaders.__struct_encode_fields__)
