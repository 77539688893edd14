"""
The console's files: read once, without comments and indentation, also packed, and served under a path that changes
with their content.
"""

from __future__ import annotations

import gzip
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from hashlib import blake2b
from pathlib import Path
from posixpath import dirname, normpath

_STATIC = Path(__file__).parent / "static"
_MEDIA = {
    ".html": "text/html",
    ".mjs": "text/javascript",
    ".js": "text/javascript",
    ".css": "text/css",
    ".svg": "image/svg+xml",
}
_OWN = (".mjs", ".css")
# Comments that stand on lines of their own. Their lines stay, so that an error names the line of the source.
_COMMENT = re.compile(rb"^[ ]*(/\*.*?\*/|//[^\n]*)$", re.DOTALL | re.MULTILINE)
# Comments behind a statement. No text of a page looks like one.
_END_COMMENT = re.compile(rb"(?<=[;,{]) // [^\n`<]*$", re.MULTILINE)
# No text of several lines depends on it: templates drop it, too.
_INDENTATION = re.compile(rb"^[ ]+", re.MULTILINE)
_INDEX = "index.html"
_VERSION = "{version}"  # where the page names the folder of its files
_PRELOAD = "{preload}"  # where it names what every page needs, so that a browser asks for all of it at once
# What is drawn around every page, and the page that most people open first. What a click needs is imported then.
_AT_ONCE = ("app.mjs", "pages/overview.mjs")
_SHARED = ("lib/", "vendor/")
_IMPORTED = re.compile(rb'^(?:import|export) [^;]*?"(\.[^"]+)";$', re.MULTILINE)


@dataclass(frozen=True)
class Asset:
    """`packed` is the body as gzip; the same bytes in every process."""

    body: bytes
    packed: bytes
    media: str


@dataclass(frozen=True)
class Console:
    """`version` is a hash over all files, so a browser keeps them for ever and still sees a new release at once."""

    index: bytes
    version: str
    assets: Mapping[str, Asset]


@cache
def console() -> Console:
    """The page and the files that it loads."""
    assets = dict(_found(_STATIC))
    index = assets.pop(_INDEX).body
    digest = blake2b(digest_size=8)
    for path, asset in sorted(assets.items()):
        digest.update(path.encode() + b"\0" + asset.body)
    version = digest.hexdigest()
    links = "".join(
        f'<link rel="modulepreload" href="files/{_VERSION}/{path}">'
        for path in sorted(needed(assets, _AT_ONCE))
        if path.startswith(_SHARED)
    )
    page = index.decode().replace(_PRELOAD, links).replace(_VERSION, version)
    return Console(page.encode(), version, assets)


def needed(assets: Mapping[str, Asset], first: Iterable[str]) -> set[str]:
    """The paths of these modules and of all that they import, without what is imported later."""
    found: set[str] = set()
    ahead = list(first)
    while ahead:
        path = ahead.pop()
        if path in found:
            continue
        found.add(path)
        names = _IMPORTED.findall(assets[path].body)
        ahead += [normpath(f"{dirname(path)}/{name.decode()}").lstrip("/") for name in names]
    return found


def _found(folder: Path) -> Iterator[tuple[str, Asset]]:
    for path in folder.rglob("*"):
        media = _MEDIA.get(path.suffix)
        if media is not None:
            body = path.read_bytes()
            if path.suffix in _OWN and path.parent.name != "vendor":
                body = _INDENTATION.sub(b"", _without_comments(body))
            yield path.relative_to(folder).as_posix(), Asset(body, gzip.compress(body, mtime=0), media)


def _without_comments(body: bytes) -> bytes:
    alone = _COMMENT.sub(lambda comment: b"\n" * comment[0].count(b"\n"), body)
    return _END_COMMENT.sub(b"", alone)
