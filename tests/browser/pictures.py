"""
Take the pictures of the documents: the console's overview of a synthetic month, in both themes.

    python -m tests.browser.pictures docs/images

`overview.digest` beside the pictures is a digest of the files that draw the page. tests/docs/test_pictures.py fails
if one of these files has changed since.
"""

from __future__ import annotations

import sys
import tempfile
from hashlib import sha256
from pathlib import Path

from playwright.sync_api import Browser, sync_playwright

from gateway.console.joining import imports_by_module, modules_in_import_order
from gateway.console.pages import load_console, minified_console_modules
from tests.acceptance.conftest import Tollhouse
from tests.browser.console import CHROMIUM, WIDE, Console, filled, launched

DIGEST = "overview.digest"


def digest() -> str:
    """
    Return a digest of the style sheet and of all modules that draw the overview. Fields of dialogs are not on it.
    """
    texts = {**minified_console_modules(), "style.css": load_console().assets["style.css"].body.decode()}
    files = sorted(
        {
            "style.css",
            *modules_in_import_order(
                imports_by_module(minified_console_modules()), ("app.mjs", "pages/overview.mjs")
            ),
        }
        - {"lib/resource_fields.mjs"}
    )
    return sha256("\0".join(f"{path}\0{texts[path]}" for path in files).encode()).hexdigest()


def main() -> None:
    if CHROMIUM is None:
        sys.exit("needs Chromium: install it, or set TOLLHOUSE_CHROMIUM to the path of one")
    to = Path(sys.argv[1])
    to.mkdir(parents=True, exist_ok=True)
    with (
        tempfile.TemporaryDirectory() as directory,
        sync_playwright() as playwright,
        launched(playwright) as browser,
    ):
        month = ("--days", "62", "--records", "46000", "--plant", "spike,missing-price,cost-gap,retry-storm")
        tollhouse = filled(Path(directory), *month)
        tollhouse.start()
        try:
            for theme in ("light", "dark"):
                _picture(browser, tollhouse, to, theme)
        finally:
            tollhouse.stop()
    (to / DIGEST).write_text(digest() + "\n")


def _picture(browser: Browser, tollhouse: Tollhouse, target: Path, theme: str) -> None:
    with browser.new_context(viewport=WIDE, color_scheme=theme, reduced_motion="reduce") as context:  # type: ignore[arg-type]
        console = Console(context, tollhouse)
        console.sign_in("viewer")
        console.open("/")
        console.page.get_by_role("button", name="live").wait_for()
        console.page.screenshot(path=target / f"overview-{theme}.png")


if __name__ == "__main__":
    main()
