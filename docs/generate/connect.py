"""
The console's page Connect takes its texts from docs/connect: names, settings and sources, one place for both.

HOST and KEY stay in them; the page puts an address and a fresh key in their place.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path

_LINK = re.compile(r"\[([^\]]+)\]\(([^)]+)\)")
_BLOCK = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def module(docs: Path) -> str:
    """The file of the console that holds the texts."""
    tools = json.dumps(list(_tools(docs / "connect")), ensure_ascii=False, indent=1)
    head = "/** The settings of each sender, as docs/connect has them: written by make docs-reference. */"
    return f"{head}\nexport const TOOLS = {tools};\n"


def _tools(folder: Path) -> Iterator[dict[str, object]]:
    """In the order of the index, by its columns."""
    lines = (folder / "index.md").read_text().splitlines()
    rows = [line.split("|")[1:-1] for line in lines if line.startswith("| ")]
    kinds, *named = [[cell.strip() for cell in row] for row in rows]
    for place, kind in enumerate(kinds):
        for row in named:
            link = _LINK.search(row[place])
            if link:
                name = link[2].removesuffix(".md")
                yield {"id": name, "title": link[1], "kind": kind, **_page(folder / link[2])}


def _page(path: Path) -> dict[str, object]:
    text = path.read_text()
    source = re.search(r"^\| source \| (.*) \|$", text, re.MULTILINE)
    settings = text.partition("\n## Settings\n")[2].partition("\n## ")[0]
    return {"source": _plain(source[1]) if source else "", "steps": list(_steps(settings))}


def _steps(settings: str) -> Iterator[dict[str, str]]:
    """Text and blocks in their order: a paragraph is text, a block has what is to be copied."""
    end = 0
    for found in _BLOCK.finditer(settings):
        yield from _paragraphs(settings[end : found.start()])
        yield {"code": found[2].rstrip("\n")}
        end = found.end()
    yield from _paragraphs(settings[end:])


def _paragraphs(text: str) -> Iterator[dict[str, str]]:
    for part in text.split("\n\n"):
        if part.strip().startswith("|"):
            yield from _rows(part)
        elif part.strip():
            yield {"text": _plain(" ".join(part.split()))}


def _rows(table: str) -> Iterator[dict[str, str]]:
    """Each row of a table as a text of its own, without its head."""
    for line in table.strip().splitlines()[2:]:
        name, *rest = (cell.strip() for cell in line.split("|")[1:-1])
        yield {"text": _plain(f"{name}: {' '.join(rest)}")}


def _plain(text: str) -> str:
    return _LINK.sub(r"\1", text).replace("`", "")
