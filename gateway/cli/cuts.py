"""
Files into request bodies: at most 512 items and 4 MiB each, cut at the same places every time.

Lines are read as they come, however long the file; a document or an array is read whole. What a file holds is not
looked into beyond where its items end.
"""

from __future__ import annotations

import gzip
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import IO, Final, NamedTuple, cast

from gateway.errors import BadPayload
from gateway.normalise.formats import payload
from gateway.normalise.formats.recognise import format_of

MAX_ITEMS: Final = 512
MAX_BYTES: Final = 4 * 1024 * 1024
MAX_DOCUMENT: Final = 64 * 1024 * 1024  # what a gateway takes in one request by default

SUFFIXES: Final = (".json", ".ndjson", ".jsonl", ".log", ".json.gz", ".ndjson.gz", ".jsonl.gz", ".log.gz")
_PEEK: Final = 64 * 1024


class Body(NamedTuple):
    content: bytes
    items: int


def files(named: Iterable[str]) -> Iterator[str]:
    """Files as they are named, and what a directory holds in order of its names; `-` is the standard input."""
    for name in named:
        path = Path(name)
        if name != "-" and path.is_dir():
            found = (inner for inner in path.rglob("*") if inner.is_file() and inner.name.endswith(SUFFIXES))
            hidden = (
                inner for inner in found if not any(part.startswith(".") for part in inner.relative_to(path).parts)
            )
            yield from sorted(map(str, hidden))
        else:
            yield name


def opened(raw: IO[bytes]) -> IO[bytes]:
    """The content of a file that may be gzipped, told by its first bytes."""
    head = raw.read(2)
    raw.seek(0)
    return cast(IO[bytes], gzip.GzipFile(fileobj=raw)) if head == payload.GZIP_MAGIC else raw


def bodies(content: IO[bytes]) -> Iterator[Body]:
    """The request bodies of one file; BadPayload when it is no JSON, EOFError or OSError when it cannot be read."""
    first = _first_line(content)
    start = first.removeprefix(b"\xef\xbb\xbf").strip()
    if start[:1] == b"{" and payload.peek(start):
        return _packed(_lines(start, content), b"\n")
    whole = first + content.read(MAX_DOCUMENT + 1 - len(first))
    if len(whole) > MAX_DOCUMENT:
        raise BadPayload("one document of more than 64 MiB cannot be sent: cut it into lines")
    items = list(payload.items(whole))
    if start[:1] == b"{":  # one document over several lines, or lines of which the first is broken
        return _packed(items, b"\n") if len(items) > 1 else iter((Body(whole, 1),))
    return _packed(items, b",")


def _first_line(content: IO[bytes]) -> bytes:
    """Up to the end of the first line that is not blank."""
    read = b""
    while line := content.readline(MAX_DOCUMENT):
        read += line
        if line.strip():
            break
    return read


def _lines(first: bytes, content: IO[bytes]) -> Iterator[bytes]:
    yield first
    for line in content:
        if stripped := line.strip():
            yield stripped


def _packed(items: Iterable[payload.Raw], between: bytes) -> Iterator[Body]:
    """Items in as few bodies as the bounds allow; an OTLP request is a body of its own."""
    packed: list[bytes] = []
    size = 0
    for item in items:
        content = bytes(item)
        alone = _is_otlp(content)
        if packed and (alone or len(packed) >= MAX_ITEMS or size + len(content) > MAX_BYTES):
            yield _joined(packed, between)
            packed, size = [], 0
        if alone:
            yield Body(content, 1)
            continue
        packed.append(content)
        size += len(content) + 1
    if packed:
        yield _joined(packed, between)


def _joined(items: list[bytes], between: bytes) -> Body:
    content = between.join(items)
    return Body(b"[" + content + b"]" if between == b"," else content, len(items))


def _is_otlp(content: bytes) -> bool:
    if b'"resource' not in content[:_PEEK]:
        return False
    return (format_of(payload.peek(content)) or "").startswith("otlp/")
