"""Readers of the documents: code blocks by language, and the facts of the pages in docs/connect."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import yaml

ROOT = Path(__file__).parents[1]
CONNECT = ROOT / "docs" / "connect"


@dataclass(frozen=True, slots=True)
class Block:
    language: str
    text: str


def blocks(text: str) -> list[Block]:
    matches = re.findall(r"^```(\w*)\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)
    return [Block(language, content) for language, content in matches]


def parsed_yaml(text: str) -> Any:
    return yaml.safe_load(text)


@dataclass(frozen=True, kw_only=True)
class ConnectPage:
    """
    A page that connects one product. HOST and KEY are placeholders for the gateway's address and a Tollhouse key.
    """

    name: str
    text: str

    @property
    def facts(self) -> Mapping[str, str]:
        """Return the table at the top as a mapping from its first column to its second, with what pages leave out."""
        return {"send to": "`http://HOST:4318`", "key": "`Authorization: KEY`", **self.stated_facts}

    @property
    def stated_facts(self) -> Mapping[str, str]:
        head = self.text.partition("\n## ")[0]
        return dict(re.findall(r"^\| ([a-z ]+) \| (.*) \|$", head, re.MULTILINE))

    @property
    def address(self) -> str:
        return self.facts["send to"].strip("`")

    @property
    def lock_files(self) -> list[str]:
        """Return the lock files that pin the product's version, as the evidence page lists them."""
        return re.findall(r"`(tests/clients/[\w/.]+)`", _evidence().get(self.name, ("", ""))[0])

    @property
    def payloads(self) -> list[Path]:
        """Return the sample payloads that the evidence page lists, or the first case of the format with a call."""
        if self.name in _evidence():
            return [ROOT / path for path in re.findall(r"`([^`]+)`", _evidence()[self.name][1])]
        folder = ROOT / "tests/cases/gateway" / self.facts["source"].strip("`")
        cases = [path for path in sorted(folder.glob("*.expected.json")) if '"inference"' in path.read_text()]
        names = [path.name.removesuffix(".expected.json") for path in cases[:1]]
        return [
            path
            for name in names
            for path in (folder / f"{name}.json", folder / f"{name}.ndjson")
            if path.exists()
        ]

    def blocks(self, language: str = "") -> list[Block]:
        """Return the code blocks of the section "Settings"."""
        settings = self.text.partition("\n## Settings\n")[2].partition("\n## ")[0]
        return [block for block in blocks(settings) if not language or block.language == language]

    def block(self, language: str, *, url: str, key: str) -> str:
        """Return the first code block of a language, with the gateway's address and the key filled in."""
        return self.blocks(language)[0].text.replace("http://HOST:4318", url).replace("KEY", key)

    def environment(self, *, url: str, key: str) -> dict[str, str]:
        """Return the environment variables that the page's dotenv blocks set."""
        lines = [line for block in self.blocks("dotenv") for line in block.text.splitlines()]
        pairs = (line.split("=", 1) for line in lines)
        return {name: value.replace("http://HOST:4318", url).replace("KEY", key) for name, value in pairs}


@cache
def _evidence() -> dict[str, tuple[str, str]]:
    """Return the lock files and the payloads of each page of docs/connect, from the evidence page."""
    text = (ROOT / "tests/EVIDENCE.md").read_text()
    rows = re.findall(
        r"^\| \[[^]]+\]\(\.\./docs/connect/([\w-]+)\.md\) \| (.*?) \| (.*?) \|$", text, re.MULTILINE
    )
    return {name: (locks, payloads) for name, locks, payloads in rows}


def connect_page(name: str) -> ConnectPage:
    return ConnectPage(name=name, text=(CONNECT / f"{name}.md").read_text())


def connect_pages() -> list[ConnectPage]:
    """Return every page of docs/connect except the index."""
    return [connect_page(path.stem) for path in sorted(CONNECT.glob("*.md")) if path.stem != "index"]
