"""Memory limits for reading files with untrusted content."""

from __future__ import annotations

import csv
import io
import re
from array import array
from collections.abc import Iterator, Mapping, Sequence
from itertools import chain
from typing import IO, Final

from spool.errors import Invalid

MAX_ROW: Final = 1024 * 1024  # characters
MAX_ROWS: Final = 5_000_000  # maximum rows per file
MAX_TABLE_ROWS: Final = 100_000  # rows of a table of people or machines
SEPARATORS: Final = (",", ";", "\t")  # column separators that spreadsheets write
# bytes of a JSON text with its objects
MAX_DECODED: Final = 160 * 1024 * 1024
_SMALL: Final = 256 * 1024  # shorter JSON texts are not checked
# Memory of a value with its pointer in a container, of a mapping, and of a list.
_VALUE_BYTES, _MAPPING_BYTES, _LIST_BYTES = 88, 232, 88
# If a text contains such a character, Python stores two or four bytes per character.
_WIDE = re.compile(rb"[\xc4-\xef]|\\u")
_MATCH_BYTES: Final = 4  # a match that begins in a piece may have this many bytes in the next one
_PIECE: Final = 64 * 1024
_WIDEST = re.compile(rb"[\xf0-\xf4]|\\u[dD][89a-fA-F]")


def check_json(name: str, content: bytes | bytearray) -> None:
    """
    Raise Invalid if decoding the JSON could need more than MAX_DECODED bytes, by an estimate from its text.

    The length is not enough: a short text, such as a list of empty lists, can become large objects.
    """
    if len(content) < _SMALL:
        return
    values = content.count(b",") + content.count(b"{") + content.count(b"[")
    kinds = content.count(b"{") * _MAPPING_BYTES + content.count(b"[") * _LIST_BYTES
    width = 4 if _contains(_WIDEST, content) else 2 if _contains(_WIDE, content) else 1
    if values * _VALUE_BYTES + kinds + (1 + width) * len(content) > MAX_DECODED:
        raise too_large_error(name)


def _contains(pattern: re.Pattern[bytes], content: bytes | bytearray) -> bool:
    """Search in pieces, because no other thread runs during one search, and a search of megabytes takes long."""
    begins = range(0, len(content), _PIECE)
    return any(pattern.search(content, begin, begin + _PIECE + _MATCH_BYTES) for begin in begins)


def too_large_error(name: str) -> Invalid:
    return Invalid(
        f"{name} would take more than {MAX_DECODED // 1024**2} MiB of memory as one document. Use a "
        "shorter time range, several files, or one line of JSON per entry"
    )


class BoundedLines:
    """
    The lines of a CSV text, with a limit on the characters of one row, which may have several lines.

    The reader calls `start_counting_next_row` after each row. Raises Invalid with the line number if a row exceeds
    MAX_ROW.
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
            raise Invalid(f"{self._name}: the row at line {self.number} has more than {MAX_ROW} characters")
        return line

    def start_counting_next_row(self) -> None:
        self._taken = 0


def table_rows(name: str, content: bytes, separators: Sequence[str]) -> Iterator[tuple[int, list[str]]]:
    """
    Yield the rows of a CSV table in UTF-8 with their line numbers. The first line decides which of
    `separators` is used.

    Raises Invalid beyond MAX_TABLE_ROWS rows, UnicodeDecodeError, or csv.Error.
    """
    lines = BoundedLines(name, io.TextIOWrapper(io.BytesIO(content), "utf-8-sig", newline=""))
    first = next(lines, "")
    rows = csv.reader(chain([first], lines), strict=True, delimiter=max(separators, key=first.count))
    for count, row in enumerate(rows):
        lines.start_counting_next_row()
        if count > MAX_TABLE_ROWS:
            raise Invalid(
                f"{name} has more than {MAX_TABLE_ROWS} rows; remove rows of people or machines that left"
            )
        yield rows.line_num, row


def column_index_by_field(head: Sequence[str], names: Mapping[str, Sequence[str]]) -> dict[str, int | None]:
    """
    Return the column index of each field, None if it has no column. `names`: the accepted headings of each
    field, the preferred one first.

    Only letters and digits of headings count: "Created at", "created_at" and "createdAt" are equal.
    """
    columns = [comparable_column_name(cell) for cell in head]
    return {
        field: next(
            (columns.index(name) for name in map(comparable_column_name, wanted) if name in columns), None
        )
        for field, wanted in names.items()
    }


def comparable_column_name(column: str) -> str:
    return "".join(filter(str.isalnum, column.lower()))


class KnownDigests:
    """
    A set of row digests, to detect repeated rows. It uses 8 bytes per digest, a sixth of a Python set's
    memory.

    Raises Invalid if more than MAX_ROWS digests are added.
    """

    def __init__(self) -> None:
        self._slots = array("Q", bytes(8 << 12))
        self._count = 0

    def add_and_return_whether_known(self, digest: bytes) -> bool:
        """Add a digest. Return whether the set already contained it."""
        if self._count * 3 >= len(self._slots) * 2:
            self._double_slots()
        # 0 marks a free slot, so a digest of 0 is stored as 1
        value = int.from_bytes(digest, "little") or 1
        slot = self._find_slot(value)
        if self._slots[slot] == value:
            return True
        self._slots[slot] = value
        self._count += 1
        return False

    def _find_slot(self, value: int) -> int:
        slots, mask = self._slots, len(self._slots) - 1
        slot = value & mask
        while slots[slot] and slots[slot] != value:
            slot = (slot + 1) & mask
        return slot

    def _double_slots(self) -> None:
        if self._count > MAX_ROWS:
            raise Invalid(f"the report has more than {MAX_ROWS} different rows. Import a shorter time range")
        before = self._slots
        self._slots = array("Q", bytes(16 * len(before)))
        for value in before:
            if value:
                self._slots[self._find_slot(value)] = value
