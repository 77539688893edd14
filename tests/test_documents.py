"""The paths, make targets, settings and tests that documents name exist, and pages list what they must."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from docs.generate.configuration import ConfigurationTable, tables
from tests.documents import parsed_yaml
from tests.faults.scenarios import SCENARIOS

ROOT = Path(__file__).parents[1]
DEVELOP = tuple(
    f"docs/develop/{name}.md"
    for name in (
        "begin-reading",
        "where-to-add",
        "add-a-source",
        "add-a-resource",
        "compiled-module",
        "tests",
    )
)
DOCUMENTS = ("ARCHITECTURE.md", "CONTRIBUTING.md", "README.md", "tests/EVIDENCE.md", *DEVELOP)
PATH = re.compile(r"`((?:gateway|exporters|spool|tests|docs)/[\w./-]+)`")
LINK = re.compile(r"\]\(([\w./-]+)\)")
NAMES = re.compile(r"`([\w/]+\.py)`\s+\(((?:`\w+`(?:, )?)+)\)")
PLACEHOLDERS = ("NAME", "CASE", "GROUP")
SETTING = re.compile(r"`\[{0,2}([a-z_]+(?:\.\w+)+)\]{0,2}(?: = [^`]*)?`")
FILES = (".sqlite", ".json", ".mjs", ".yaml", ".damaged")
# Words in pages that look like settings, and what they are.
NO_SETTINGS = {
    "server.address": "an attribute of the OpenTelemetry conventions",
    "spool.identity.call_identity": "a function",
    "storage.maxBytes": "a value of the Helm chart",
    "storage.objects.create": "a permission of Google Cloud",
    "upstream.held": "a field of a device",
}


@pytest.mark.parametrize("name", DOCUMENTS)
def test_paths_in_documents_exist(name: str) -> None:
    """A document names only modules and folders that exist. NAME, CASE and GROUP are placeholders."""
    text = (ROOT / name).read_text()
    named = {
        path
        for path in PATH.findall(text) + LINK.findall(text)
        if not any(word in path for word in PLACEHOLDERS)
    }
    assert set() == {
        path for path in named if not any((base / path).exists() for base in (ROOT, (ROOT / name).parent))
    }


def test_headings_and_code_blocks_have_empty_lines_before_them() -> None:
    """Without an empty line before it, a heading becomes part of the table or paragraph above."""
    joined = []
    for path in _pages():
        above, is_code = "", False
        for number, line in enumerate(path.read_text().splitlines(), 1):
            is_fence = line.lstrip().startswith("```")
            is_heading = re.match("#+ ", line) is not None
            is_joined = (is_fence or is_heading) and bool(above.strip())
            if not is_code and (is_joined or (is_heading and "](" in line)):
                joined.append(f"{path.relative_to(ROOT)}:{number}: {line}")
            is_code ^= is_fence
            above = line
    assert [] == joined


def _pages() -> Iterator[Path]:
    yield from ROOT.glob("*.md")
    yield from (ROOT / "docs").rglob("*.md")


def test_names_after_a_path_are_in_that_module() -> None:
    """If a page for developers writes `module.py` (`one`, `two`), that module defines these names."""
    for name in DOCUMENTS:
        for path, names in NAMES.findall((ROOT / name).read_text()):
            module = (ROOT / path).read_text()
            missing = [each for each in re.findall(r"`(\w+)`", names) if not _defines(module, each)]
            assert [] == missing, (name, path)


def _defines(module: str, name: str) -> bool:
    return bool(re.search(rf"^ *(?:(?:async )?def |class )?{name}\b *[(:=]", module, re.MULTILINE))


def test_settings_in_documents_exist() -> None:
    """Each `section.name` in a page is a setting, unless NO_SETTINGS says what else it is."""
    settings = {name for table in tables() for name in _names(table)}
    sections = {name.partition(".")[0] for name in settings if "." in name}
    named = {
        (str(page.relative_to(ROOT)), name)
        for page in [ROOT / "README.md", ROOT / "ARCHITECTURE.md", *(ROOT / "docs").rglob("*.md")]
        if not {"decisions", "reference"} & set(page.parts)
        for name in SETTING.findall(page.read_text())
        if name.partition(".")[0] in sections and not name.endswith(FILES)
    }
    assert set(NO_SETTINGS) == {name for _, name in named if name not in settings}, named


def _names(table: ConfigurationTable) -> Iterator[str]:
    """Yield the names of a section and of its settings, as documents write them."""
    section = table.header.strip("[]")
    yield section
    yield from (
        f"{part}.{key.name}" for key in table.keys for part in {section, section.replace(".NAME", "")}
    )


def test_make_targets_in_documents_exist() -> None:
    files = [ROOT / "Makefile", *(path for path in ROOT.glob("*/*.mk") if path.parent.name[0] != ".")]
    targets = {name for path in files for name in re.findall(r"^([a-z-]+):", path.read_text(), re.MULTILINE)}
    for name in DOCUMENTS:
        commands = re.findall(r"(?:^ {4}|`)make ([a-z-]+)", (ROOT / name).read_text(), re.MULTILINE)
        assert set() == set(commands) - targets, name


def pages(nav: object) -> set[str]:
    if isinstance(nav, str):
        return {nav}
    parts = nav.values() if isinstance(nav, dict) else nav if isinstance(nav, list) else ()
    return {page for part in parts for page in pages(part)}


def test_every_document_is_in_the_navigation() -> None:
    """Every page has a line in mkdocs.yml, because readers cannot find it otherwise. Decisions are exempt."""
    nav = parsed_yaml((ROOT / "mkdocs.yml").read_text())["nav"]
    docs = ROOT / "docs"
    there = {str(path.relative_to(docs)) for path in docs.rglob("*.md") if "decisions" not in path.parts}
    assert there == pages(nav)


def test_every_fault_scenario_is_in_the_evidence() -> None:
    """
    The evidence page lists each scenario under its name in the tests. The first pages state the right number.
    """
    rows = re.findall(r"^\| ([AF]\d+) \| (.*?) \|", (ROOT / "tests/EVIDENCE.md").read_text(), re.MULTILINE)
    assert SCENARIOS == {name: words for name, words in rows if name in SCENARIOS}
    for page in ("README.md", "docs/promises/reliability.md"):
        assert f"{len(SCENARIOS)} fault scenarios" in (ROOT / page).read_text(), page


@pytest.mark.proves("A dependency is replaced, or known to be unsafe")
@pytest.mark.parametrize("lock", sorted(path.name for path in (ROOT / "deploy/locks").glob("*.lock")))
def test_locks_have_hashes_and_name_no_index(lock: str) -> None:
    """Locks pin every package by hash, so it does not matter from which index pip installs."""
    text = (ROOT / "deploy/locks" / lock).read_text()
    pinned = re.findall(
        r"^[\w.\[\]-]+==\S+(?: ; [^\\\n]+)? \\\n    --hash=sha256:[0-9a-f]{64}", text, re.MULTILINE
    )
    stated = re.findall(r"^[a-zA-Z]", text, re.MULTILINE)
    assert pinned and len(stated) == len(pinned)
    assert "http" not in re.sub(r"^[\w.-]+==.*$|#.*$", "", text, flags=re.MULTILINE)


def test_every_decision_is_in_the_index() -> None:
    """The index is in the order of subjects, and states the title of each decision."""
    folder = ROOT / "docs/decisions"
    files = {path.name: path.read_text() for path in folder.glob("*.md") if path.name != "README.md"}
    listed = re.findall(r"^- \[(.*)\]\((.*)\)$", (folder / "README.md").read_text(), re.MULTILINE)
    assert sorted(files) == sorted(name for _, name in listed)
    assert {} == {name: title for title, name in listed if not files[name].startswith(f"# {title}\n")}


def test_code_names_decisions_that_exist() -> None:
    """Code names a decision by its file."""
    sources = [
        path
        for folder in ("gateway", "exporters", "spool", "tests")
        for path in (ROOT / folder).rglob("*.py")
    ]
    named = {
        name for path in sources for name in re.findall(r"docs/decisions/([\w-]+\.md)", path.read_text())
    }
    assert named
    assert [] == sorted(name for name in named if not (ROOT / "docs/decisions" / name).exists())


def test_make_run_says_what_it_does() -> None:
    """`make run` prints a line before each slow step, because a minute of silence looks like a fault."""
    dry = ["make", "--no-print-directory", "--dry-run", "--what-if=deploy/locks/requirements.lock", "run"]
    steps = subprocess.run(
        dry, cwd=ROOT, capture_output=True, text=True, check=True, timeout=300
    ).stdout.splitlines()
    slow = [place for place, step in enumerate(steps) if "-m pip " in step or "-m venv" in step]
    assert 3 == len(slow)
    assert all(steps[place - 1].startswith("echo ") for place in slow)
