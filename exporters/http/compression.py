"""The gzip header contains no time, so a repeated request has the same bytes."""

from __future__ import annotations

from isal import igzip

MIN_BYTES = 1024  # smaller bodies are not compressed
# a ninth of level 6's time, and a few per cent larger
_LEVEL = 1


def gzip_body(body: bytes) -> bytes:
    packed: bytes = igzip.compress(body, compresslevel=_LEVEL, mtime=0)
    return packed
