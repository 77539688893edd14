"""Encodings that the first bytes of an unreadable body show, for error messages."""

from __future__ import annotations

import re

# first bytes -> coding that a receiver inflates if the header Content-Encoding names it
_CODINGS = ((b"\x1f\x8b", "gzip"), (b"\x28\xb5\x2f\xfd", "zstd"))
_UNSUPPORTED_CODINGS = (
    (b"\xff\x06\x00\x00sNaPpY", "snappy"),
    (b"\x04\x22\x4d\x18", "lz4"),
    (b"BZh", "bzip2"),
    (b"\xfd7zXZ", "xz"),
)
_UTF_16 = (b"\xff\xfe", b"\xfe\xff", b"{\x00", b"\x00{", b"[\x00", b"\x00[")
_BASE64 = re.compile(rb"[A-Za-z0-9+/]{24,}={0,2}")
_LOOKED_AT = 64


def describe_foreign_encoding(body: bytes) -> str:
    """Return which encoding the first bytes of an unreadable body show and what to do, or ""."""
    for sign, name in _CODINGS:
        if body.startswith(sign):
            return _compressed(name)
    if body[:1] == b"x" and len(body) > 1 and int.from_bytes(body[:2]) % 31 == 0:
        return _compressed("deflate")
    for sign, name in _UNSUPPORTED_CODINGS:
        if body.startswith(sign):
            return (
                f"the body is compressed with {name}; compress it with gzip, deflate or zstd, or not at all"
            )
    start = body[:_LOOKED_AT].strip()
    if body.startswith(_UTF_16):
        return "the body is UTF-16; send UTF-8"
    if start.startswith(b'"'):
        return "the body is a JSON text; send the object itself, encoded as JSON once"
    if start.startswith(b"%7B"):
        return "the body is URL-encoded; send the JSON itself"
    if start.startswith(b"<"):
        return "the body is XML or HTML; send JSON"
    if _BASE64.fullmatch(start):
        return "the body is base64; send the bytes themselves"
    return ""


def _compressed(name: str) -> str:
    return (
        f"the body is compressed with {name}; send Content-Encoding: {name}. If the header is there, the body is "
        "compressed twice; compress it once"
    )
