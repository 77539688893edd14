"""
The console: one page and its files, served to anybody who reaches the operator's side; the data needs a sign-in.

The files are read once, without comments and indentation, are also kept packed, and are served under a path that
changes with their content.
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

from aiohttp import web

from gateway.service.mounts import CONSOLE

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
_POLICY = "; ".join(
    (
        "default-src 'none'",
        "script-src 'self'",
        "style-src 'self'",
        "img-src 'self' data:",
        "connect-src 'self'",
        "base-uri 'none'",
        "form-action 'self'",
        "frame-ancestors 'none'",
        "require-trusted-types-for 'script'",
        "trusted-types 'none'",
    )
)
_HEADERS = {
    "Content-Security-Policy": _POLICY,
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "X-Frame-Options": "DENY",
}


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


async def index(_: web.Request) -> web.Response:
    """The page. Never kept, so a new release is seen at once."""
    headers = {**_HEADERS, "Cache-Control": "no-store"}
    return web.Response(body=console().index, content_type="text/html", charset="utf-8", headers=headers)


async def demo_index(_: web.Request) -> web.Response:
    """The page of a demo month: the same files, one folder below."""
    headers = {**_HEADERS, "Cache-Control": "no-store"}
    body = console().index.replace(b'"files/', b'"../files/')
    return web.Response(body=body, content_type="text/html", charset="utf-8", headers=headers)


async def without_slash(_: web.Request) -> web.Response:
    """Its files have relative addresses, which need the slash. Relative itself, for a proxy's path before it."""
    location = CONSOLE.rpartition("/")[2] + "/"
    return web.Response(status=308, headers={"Location": location})


async def file(request: web.Request) -> web.Response:
    """A file of the page; kept for ever, as its path changes with its content. 404 for one of another release."""
    found = console().assets.get(request.match_info["path"])
    if found is None or request.match_info["version"] != console().version:
        return web.Response(status=404, text="no such file", headers=_HEADERS)
    headers = {**_HEADERS, "Cache-Control": "public, max-age=31536000, immutable", "Vary": "Accept-Encoding"}
    body = found.body
    if "gzip" in request.headers.get("Accept-Encoding", ""):
        headers["Content-Encoding"], body = "gzip", found.packed
    return web.Response(body=body, content_type=found.media, charset="utf-8", headers=headers)
