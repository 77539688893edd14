"""Compression with gzip. Its header contains no time, so a repeated request has equal bytes."""

from __future__ import annotations

from isal import igzip

MIN_BYTES = 1024  # smaller bodies are not compressed
# level that takes a ninth of the time of level 6, for bodies a few per cent larger
_LEVEL = 1


def gzip_body(body: bytes) -> bytes:
    packed: bytes = igzip.compress(body, compresslevel=_LEVEL, mtime=0)
    return packed
