"""Links in the documents: every relative link leads to an existing file, and every anchor to a heading."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"
FENCE = re.compile(r"^( *)(```+|~~~+).*?^\1\2", re.MULTILINE | re.DOTALL)
CODE = re.compile(r"(`+)(?:(?!\1).)+?\1")
LINK = re.compile(r"!?\[(?:[^\[\]]|\[[^\]]*\])*\]\(<?([^)<>\s]+)>?(?:\s+\"[^\"]*\")?\)")
SOURCE = re.compile(r"<(?:img|source|a)\b[^>]*?\b(?:src|srcset|href)=\"([^\"]+)\"")
HEADING = re.compile(r"^#{1,6} +(.+?) *#*$", re.MULTILINE)
ELSEWHERE = re.compile(r"^(?:[a-z][a-z0-9+.-]*:|//)")


def documents() -> list[Path]:
    """Return every Markdown file of the project, including files that are not committed yet."""
    command = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard", "*.md"]
    listed = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    if listed.returncode:  # git fails in a release archive, which is no repository
        return sorted([*ROOT.glob("*.md"), *DOCS.rglob("*.md")])
    return sorted(path for name in listed.stdout.split("\0") if name and (path := ROOT / name).exists())


def prose(path: Path) -> str:
    return FENCE.sub("", path.read_text())


def slug(heading: str, *, joins: bool) -> str:
    """
    Return a heading's anchor. With `joins`, several spaces become one dash, as on
    the site. Without it, the anchor is that of GitHub.
    """
    text = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading).replace("`", "")
    text = re.sub(r"[^\w\s-]", "", text).strip().lower()
    return re.sub(r"[-\s]+" if joins else r"\s", "-", text)


@cache
def anchors(path: Path) -> frozenset[str]:
    """Return the anchors of all headings. Repeated headings are numbered."""
    joins = DOCS in path.parents
    counts: dict[str, int] = {}
    for heading in HEADING.findall(prose(path)):
        name = slug(heading, joins=joins)
        counts[name] = counts.get(name, -1) + 1
        if counts[name]:
            counts[f"{name}{'_' if joins else '-'}{counts[name]}"] = 0
    return frozenset(counts)


def broken(path: Path) -> Iterator[str]:
    text = CODE.sub("", prose(path))
    for target in [*LINK.findall(text), *SOURCE.findall(text)]:
        if ELSEWHERE.match(target):
            continue
        name, _, anchor = target.partition("#")
        file = (path.parent / name).resolve() if name else path
        if not file.exists() or (name.endswith("/") and not file.is_dir()):
            yield f"{target}: there is no such file"
        elif DOCS in path.parents and DOCS not in (file, *file.parents):
            yield f"{target}: the site has no such page"
        elif anchor and file.suffix == ".md" and anchor not in anchors(file):
            yield f"{target}: there is no such heading"


@pytest.mark.parametrize("path", documents(), ids=lambda path: str(path.relative_to(ROOT)))
def test_every_link_leads_somewhere(path: Path) -> None:
    assert [] == list(broken(path))


def test_a_link_that_leads_nowhere_is_found(tmp_path: Path) -> None:
    """
    The check finds a missing file, and a missing heading on the same or on another page. It ignores
    links in code.
    """
    (tmp_path / "other.md").write_text("# Other `code` page\n")
    page = tmp_path / "page.md"
    page.write_text(
        "# Page\n[a](other.md#other-code-page) [b](#page) [c](https://example.com/x.md#y) `[d](gone.md)`\n"
        '```\n[e](gone.md)\n```\n[f](gone.md) [g](other.md#gone) [h](#gone) <img src="gone.png">\n'
    )
    assert ["gone.md", "other.md#gone", "#gone", "gone.png"] == [each.split(": ")[0] for each in broken(page)]


def test_the_site_counts_its_warnings() -> None:
    """`mkdocs build --strict` counts logged warnings, so `--quiet` would hide broken links."""
    (line,) = (line for line in (ROOT / "docs/docs.mk").read_text().splitlines() if "mkdocs build" in line)
    assert "--strict" in line and "--quiet" not in line.partition("  #")[0]
    assert (
        "warn" == dict(re.findall(r"^  (\w+): (\w+)", (ROOT / "mkdocs.yml").read_text(), re.M))["not_found"]
    )
