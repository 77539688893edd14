"""
What reading a file may take of memory, whatever the file is: rows and texts have a most, and of JSON the size of
what it becomes is computed before.
"""

from __future__ import annotations

import re
from array import array
from collections.abc import Iterator
from typing import IO, Final

from spool.errors import Invalid

MAX_ROW: Final = 1024 * 1024  # characters of a row
MAX_ROWS: Final = 5_000_000  # of a file
MAX_DECODED: Final = 160 * 1024 * 1024  # bytes of JSON, with what becomes of it
_SMALL: Final = 256 * 1024  # bytes of JSON that may become what they like
# Of objects of Python that JSON becomes: what each value takes with its place, and a mapping or a list besides.
_VALUE_BYTES, _MAPPING_BYTES, _LIST_BYTES = 88, 232, 88
# Texts with such a character have two or four bytes for each of theirs.
_WIDE = re.compile(rb"[\xc4-\xef]|\\u")
_WIDEST = re.compile(rb"[\xf0-\xf4]|\\u[dD][89a-fA-F]")


def check_json(name: str, content: bytes | bytearray) -> None:
    """Invalid for JSON that would take more than MAX_DECODED, as long lists of nothing do before they are long."""
    if len(content) < _SMALL:
        return
    values = content.count(b",") + content.count(b"{") + content.count(b"[")
    kinds = content.count(b"{") * _MAPPING_BYTES + content.count(b"[") * _LIST_BYTES
    width = 4 if _WIDEST.search(content) else 2 if _WIDE.search(content) else 1
    if values * _VALUE_BYTES + kinds + (1 + width) * len(content) > MAX_DECODED:
        raise too_large(name)


def too_large(name: str) -> Invalid:
    return Invalid(
        f"{name} would take more than {MAX_DECODED // 1024**2} MiB of memory as one document: give a shorter span, "
        "several files, or a line of JSON for each entry"
    )


class BoundedLines:
    """
    The lines of a text, of which a row of CSV may take several. Call `end_row` after each row. Invalid, with the
    number of the line, where a row goes on beyond MAX_ROW.
    """

    def __init__(self, name: str, text: IO[str]) -> None:
        self._name = name
        self._text = text
        self._taken = 0
        self.number = 0

    def __iter__(self) -> Iterator[str]:
        return self

    def __next__(self) -> str:
        line = self._text.readline(MAX_ROW + 1)
        if not line:
            raise StopIteration
        self.number += 1
        self._taken += len(line)
        if self._taken > MAX_ROW:
            raise Invalid(f"{self._name}: the row of line {self.number} has more than {MAX_ROW} characters")
        return line

    def end_row(self) -> None:
        self._taken = 0


class KnownDigests:
    """
    Digests of rows, of 8 bytes each: as a set of Python they would take six times as much. Invalid where
    there are more than MAX_ROWS.
    """

    def __init__(self) -> None:
        self._slots = array("Q", bytes(8 << 12))
        self._count = 0

    def add(self, digest: bytes) -> bool:
        """Add a digest; True if it was known."""
        if self._count * 3 >= len(self._slots) * 2:
            self._grow()
        value = int.from_bytes(digest, "little") or 1  # 0 is a free slot
        place = self._place(value)
        if self._slots[place] == value:
            return True
        self._slots[place] = value
        self._count += 1
        return False

    def _place(self, value: int) -> int:
        """Return the slot of a value, or the free one where it belongs."""
        slots, mask = self._slots, len(self._slots) - 1
        place = value & mask
        while slots[place] and slots[place] != value:
            place = (place + 1) & mask
        return place

    def _grow(self) -> None:
        if self._count > MAX_ROWS:
            raise Invalid(f"the report has more than {MAX_ROWS} different rows: import a shorter span")
        before = self._slots
        self._slots = array("Q", bytes(16 * len(before)))
        for value in before:
            if value:
                self._slots[self._place(value)] = value
