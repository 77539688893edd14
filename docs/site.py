"""A hook that adds Markdown copies of the pages and `llms.txt` to the site, and ranks pages in its search."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

_SEARCH: dict[str, dict[str, object]] = {
    "decisions/": {"exclude": True},
    "connect/": {"boost": 0.4},
    "connect/index.md": {"boost": 1.0},
    "develop/": {"boost": 0.1},
    "alternatives.md": {"boost": 0.3},
    "reference/": {"boost": 0.3},
}
_nav: Any = None
_PARAGRAPH = re.compile(r"^(?![#|!<`>-])\S.*(?:\n\S.*)*", re.MULTILINE)
_LINK = re.compile(r"\[([^\]]*)\]\([^)]*\)")


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    """Rank guides above reference pages, and hide decisions from the search."""
    for folder, rule in _SEARCH.items():
        if page.file.src_uri.startswith(folder):
            page.meta["search"] = dict(rule)
    return markdown


def on_nav(nav: Any, **_: Any) -> None:
    """Remember the navigation, because `on_post_build` does not receive it."""
    global _nav
    _nav = nav


def on_post_build(config: Any, **_: Any) -> None:
    site = Path(config["site_dir"])
    lines = [f"# {config['site_name']}", "", f"> {config['site_description']}", ""]
    loose = [item for item in _nav.items if item.is_page]
    sections = [("Begin", loose), *((item.title, _pages(item)) for item in _nav.items if item.is_section)]
    for title, pages in sections:
        lines += [f"## {title}", ""]
        for page in pages:
            text = Path(page.file.abs_src_path).read_text()
            copy = site / page.file.src_uri
            copy.parent.mkdir(parents=True, exist_ok=True)
            copy.write_text(text)
            lines.append(f"- [{page.title}]({page.file.src_uri}): {_summary(text)}")
        lines.append("")
    (site / "llms.txt").write_text("\n".join(lines))


def _pages(section: Any) -> Iterator[Any]:
    for item in section.children:
        if item.is_section:
            yield from _pages(item)
        else:
            yield item


def _summary(text: str) -> str:
    """Return the first sentence of the page's first paragraph, without links and emphasis."""
    found = _PARAGRAPH.search(text)
    paragraph = " ".join(found[0].split()) if found else ""
    plain = _LINK.sub(r"\1", paragraph).replace("**", "")
    return re.split(r"(?<=[.?]) (?=[A-Z])", plain, maxsplit=1)[0]
