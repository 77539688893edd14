"""
The third-party container images in our samples and our image. They need a digest, because a tag may change.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from pathlib import Path

ROOT = Path(__file__).parents[1]
OWN = "tollhouse"
_NAMED = re.compile(r"^\s*(?:FROM|-?\s*image:)\s+\"?([^\s\"{]+)\"?(?:\s+AS\s+\w+)?\s*$", re.MULTILINE)
_DIGEST = re.compile(r"@sha256:[0-9a-f]{64}$")


def images(root: Path = ROOT) -> Sequence[str]:
    return sorted(set(_named(root / "deploy")))


def without_digest(root: Path = ROOT) -> Sequence[str]:
    """Return the image references that have only a tag."""
    return [image for image in images(root) if not _DIGEST.search(image)]


def _named(deploy: Path) -> Iterator[str]:
    for file in (deploy / "container" / "Containerfile", *sorted(deploy.rglob("*.yaml"))):
        for image in _NAMED.findall(file.read_text("utf-8")):
            if image.partition(":")[0].partition("@")[0] != OWN:
                yield image
