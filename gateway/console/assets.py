"""The console's files: read once, served under a path that changes with their content."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from hashlib import blake2b
from importlib.resources import files
from importlib.resources.abc import Traversable

_MEDIA = {
    ".html": "text/html",
    ".mjs": "text/javascript",
    ".js": "text/javascript",
    ".css": "text/css",
    ".svg": "image/svg+xml",
}
_INDEX = "index.html"
_VERSION = "{version}"  # where the page names the folder of its files


@dataclass(frozen=True)
class Asset:
    body: bytes
    media: str


@dataclass(frozen=True)
class Console:
    """`version` is a hash over all files, so a browser keeps them for ever and still sees a new release at once."""

    index: bytes
    version: str
    assets: Mapping[str, Asset]


@cache
def console() -> Console:
    """The page and the files that it loads, as they lie in the package."""
    assets = dict(_found(files("gateway.console") / "static"))
    index = assets.pop(_INDEX).body
    digest = blake2b(digest_size=8)
    for path, asset in sorted(assets.items()):
        digest.update(path.encode() + b"\0" + asset.body)
    version = digest.hexdigest()
    return Console(index.replace(_VERSION.encode(), version.encode()), version, assets)


def _found(folder: Traversable, prefix: str = "") -> list[tuple[str, Asset]]:
    found = []
    for each in folder.iterdir():
        path = prefix + each.name
        if each.is_dir():
            found += _found(each, path + "/")
        elif (media := _MEDIA.get("." + each.name.rpartition(".")[2])) is not None:
            found.append((path, Asset(each.read_bytes(), media)))
    return found
