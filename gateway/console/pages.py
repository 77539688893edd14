"""
The console's page and files. The operator address serves them to anybody; reading data needs a sign-in.

The files are read once, without comments and indentation, and are also stored compressed. Modules are joined.
A path changes with the content of all files.
"""

from __future__ import annotations

import gzip
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache, cached_property
from hashlib import blake2b
from pathlib import Path

from aiohttp import web

from gateway.console.joining import join_script_modules
from gateway.core.paths import CONSOLE

_STATIC = Path(__file__).parent / "static"
_MEDIA = {".html": "text/html", ".css": "text/css", ".svg": "image/svg+xml", ".woff2": "font/woff2"}
_COMPRESSED = frozenset({"font/woff2"})
_OWN = (".mjs", ".css")
_VENDOR = "vendor/"
# Matches comments on their own lines. The line breaks stay, so that an error names the line of the source file.
_COMMENT = re.compile(r"^[ ]*(/\*.*?\*/|//[^\n]*)$", re.DOTALL | re.MULTILINE)
# Matches comments after a statement. No text of a page looks like such a comment.
_END_COMMENT = re.compile(r"(?<=[;,{]) // [^\n`<]*$", re.MULTILINE)
# Removing indentation is safe, because templates also drop it from texts that span several lines.
_INDENTATION = re.compile(r"^[ ]+", re.MULTILINE)
_INDEX = "index.html"
_VERSION = "{version}"
_POLICY = "; ".join(
    (
        "default-src 'none'",
        "script-src 'self'",
        "style-src 'self'",
        "font-src 'self'",
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
    """
    A file of the console. `gzipped_body` is the body as gzip, with the same bytes in every process, or None for a
    file that is compressed already.
    """

    body: bytes
    media: str

    @cached_property
    def gzipped_body(self) -> bytes | None:
        return None if self.media in _COMPRESSED else gzip.compress(self.body, mtime=0)

    @property
    def size(self) -> int:
        """Return the bytes that a browser loads."""
        return len(self.gzipped_body or self.body)


@dataclass(frozen=True)
class Console:
    """
    The page and its files. `version` is a hash over all files, so browsers may cache them for ever and still
    get a new release at once.
    """

    index: bytes
    version: str
    assets: Mapping[str, Asset]


@cache
def load_console() -> Console:
    assets = dict(_find_assets(_STATIC))
    index = assets.pop(_INDEX).body
    digest = blake2b(digest_size=8)
    for path, asset in sorted(assets.items()):
        digest.update(path.encode() + b"\0" + asset.body)
    version = digest.hexdigest()
    return Console(index.decode().replace(_VERSION, version).encode(), version, assets)


@cache
def minified_console_modules() -> dict[str, str]:
    return {path: _minify_unless_vendored(path, text) for path, text in _script_source_by_path().items()}


def _script_source_by_path() -> dict[str, str]:
    return {path.relative_to(_STATIC).as_posix(): path.read_text() for path in _STATIC.rglob("*.mjs")}


def _find_assets(folder: Path) -> Iterator[tuple[str, Asset]]:
    for path in folder.rglob("*"):
        media = _MEDIA.get(path.suffix)
        if media is not None:
            name = path.relative_to(folder).as_posix()
            body = path.read_bytes()
            if media not in _COMPRESSED:
                body = _minify_unless_vendored(name, body.decode()).encode()
            yield name, Asset(body, media)
    for name, (script, source_map) in join_script_modules(
        minified_console_modules(), _script_source_by_path()
    ).items():
        yield name, Asset(script.encode(), "text/javascript")
        yield f"{name}.map", Asset(source_map.encode(), "application/json")


def _minify_unless_vendored(path: str, text: str) -> str:
    if not path.endswith(_OWN) or path.startswith(_VENDOR):
        return text
    return _INDENTATION.sub("", _strip_script_comments(text))


def _strip_script_comments(text: str) -> str:
    alone = _COMMENT.sub(lambda comment: "\n" * comment[0].count("\n"), text)
    return _END_COMMENT.sub("", alone)


async def serve_index(_: web.Request) -> web.Response:
    """Return the page. Browsers must not cache it, so a new release is visible at once."""
    headers = {**_HEADERS, "Cache-Control": "no-store"}
    return web.Response(body=load_console().index, content_type="text/html", charset="utf-8", headers=headers)


async def serve_demo_index(_: web.Request) -> web.Response:
    """Return the page of the demo month, with links to the console's files in the folder above."""
    headers = {**_HEADERS, "Cache-Control": "no-store"}
    body = load_console().index.replace(b'"files/', b'"../files/')
    return web.Response(body=body, content_type="text/html", charset="utf-8", headers=headers)


async def redirect_to_slash(_: web.Request) -> web.Response:
    """
    Redirect to the address with a slash, which the page's relative file addresses need. The redirect is
    relative as well, because a proxy may add a path in front.
    """
    location = CONSOLE.rpartition("/")[2] + "/"
    return web.Response(status=308, headers={"Location": location})


async def serve_file(request: web.Request) -> web.Response:
    """
    Return a file of the page. Browsers may cache it for ever, because its path changes with its content.
    Returns 404 for a file of another release.
    """
    found = load_console().assets.get(request.match_info["path"])
    if found is None or request.match_info["version"] != load_console().version:
        return web.Response(
            status=404,
            text="There is no such file. Reload the page: Tollhouse may have been upgraded.",
            headers=_HEADERS,
        )
    headers = {**_HEADERS, "Cache-Control": "public, max-age=31536000, immutable"}
    body, packed = found.body, found.gzipped_body
    if packed is None:
        return web.Response(body=body, content_type=found.media, headers=headers)
    headers["Vary"] = "Accept-Encoding"
    if "gzip" in request.headers.get("Accept-Encoding", ""):
        headers["Content-Encoding"], body = "gzip", packed
    return web.Response(body=body, content_type=found.media, charset="utf-8", headers=headers)
