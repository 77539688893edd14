"""
Search of everything that a storage has for names of an erased person. It reads the rows of all tables, and knows no
table, so it also finds a name in a place that an erasure does not know.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Protocol

import msgspec

from spool.erasure import rename_words
from spool.log.entries import codec


class VisitRows(Protocol):
    """Call `visit` with the table and the values of each stored row, on another thread."""

    async def __call__(self, visit: Callable[[str, Sequence[object]], None]) -> None: ...


@dataclass(frozen=True, kw_only=True)
class NamesFound:
    """`searched_bytes`: size of all values, decompressed. `rows`: the number of rows with a name by table."""

    searched_bytes: int = 0
    rows: Mapping[str, int] = field(default_factory=dict)


NO_NAMES = NamesFound()


async def search_for_names(visit_rows: VisitRows, name_of: Callable[[str], str]) -> NamesFound:
    """Search all rows for the names that `name_of` changes, alone or as a word of a text."""
    searched_bytes = 0
    found = Counter[str]()

    @lru_cache(maxsize=65536)
    def has_name(text: str) -> bool:
        return name_of(text) != text or rename_words(text, name_of) != text

    def search_row(table: str, values: Sequence[object]) -> None:
        nonlocal searched_bytes
        is_named = False
        for text in _texts_in(values):
            searched_bytes += len(text)
            is_named = is_named or has_name(text)
        found[table] += is_named

    await visit_rows(search_row)
    return NamesFound(
        searched_bytes=searched_bytes, rows={table: n for table, n in sorted(found.items()) if n}
    )


def _texts_in(value: object) -> Iterator[str]:
    if isinstance(value, str):
        yield value
        if value[:1] in ("{", "["):  # a name with a space is only found as a whole text
            yield from _texts_in_document(value)
    elif isinstance(value, bytes | memoryview):
        yield from _texts_in_bytes(codec.decompress_if_compressed(bytes(value)))
    elif isinstance(value, Mapping):
        for name, each in value.items():
            yield from _texts_in(name)
            yield from _texts_in(each)
    elif isinstance(value, Sequence):
        for each in value:
            yield from _texts_in(each)


def _texts_in_document(text: str) -> Iterator[str]:
    try:
        document = json.loads(text)
    except (ValueError, RecursionError):
        return
    yield from _texts_in(document)


def _texts_in_bytes(data: bytes) -> Iterator[str]:
    try:
        unpacked = msgspec.msgpack.decode(data)
    except codec.NO_RECORD:
        unpacked = data.decode(errors="replace")
    yield from _texts_in(unpacked)
