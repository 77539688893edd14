"""The pictures of the documents show the console as it is."""

from __future__ import annotations

from pathlib import Path

from tests.browser.pictures import DIGEST, digest

IMAGES = Path(__file__).parents[2] / "docs/images"


def test_the_pictures_are_of_this_console() -> None:
    """If a file that draws the overview has changed, `make screenshots` takes the pictures again."""
    assert (IMAGES / DIGEST).read_text().strip() == digest(), (
        "run `make screenshots`, and look at the pictures"
    )
