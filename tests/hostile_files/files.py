"""Small files, mostly, that would take gigabytes of memory if they were read completely."""

from __future__ import annotations

import gzip
import zipfile
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

MIB = 1024 * 1024
FOCUS = (
    "ChargePeriodStart", "ChargePeriodEnd", "ChargeCategory", "BilledCost", "BillingCurrency", "ProviderName",
    "ServiceCategory", "ServiceName", "ResourceId", "SubAccountId",
)  # fmt: skip
HEAD = ",".join(FOCUS).encode() + b"\n"
LINE = (
    b"2026-08-01T00:00:00Z,2026-08-02T00:00:00Z,Usage,1.5,USD,AWS,AI and Machine Learning,Amazon Bedrock,a,b"
)


def table(path: Path, columns: Mapping[str, Any], **options: Any) -> None:
    import pyarrow as pa
    from pyarrow import parquet

    parquet.write_table(pa.table(dict(columns)), path, **options)


def texts(path: Path, count: int, length: int, **options: Any) -> None:
    """Write FOCUS columns in which every row has the same long text."""
    import pyarrow as pa

    text = "x" * length
    one = pa.array([text])
    columns = {name: pa.DictionaryArray.from_arrays(pa.array([0] * count, pa.int32()), one) for name in FOCUS}
    table(path, columns, **options)


def alike(path: Path) -> None:
    """Write rows that share one stored text of a megabyte. The file has 2.9 KiB."""
    texts(path, 2_000, MIB, compression="zstd")


def one_cell(path: Path) -> None:
    """Write one text of 200 MiB in a separate page."""
    import pyarrow as pa

    columns = {name: pa.array(["x" * (200 * MIB if place == 0 else 1)]) for place, name in enumerate(FOCUS)}
    table(path, columns, compression="zstd", use_dictionary=False)


def prefixes(path: Path) -> None:
    """Write values that each repeat the value before, which their encoding stores in a few bytes."""
    import pyarrow as pa

    columns = {name: pa.array(["x" * 64 * 1024] * 4_000) for name in FOCUS}
    encoding = dict.fromkeys(FOCUS, "DELTA_BYTE_ARRAY")
    table(path, columns, use_dictionary=False, column_encoding=encoding, compression="zstd")


def many_rows(path: Path) -> None:
    """Write twenty million empty rows in some kilobytes."""
    import pyarrow as pa

    nothing = pa.nulls(20_000_000, pa.string())
    table(path, dict.fromkeys(FOCUS, nothing), compression="zstd")


def many_columns(path: Path) -> None:
    import pyarrow as pa

    names = [*FOCUS, *(f"x_{place}" for place in range(20_000))]
    table(path, {name: pa.array(["a"]) for name in names})


def many_groups(path: Path) -> None:
    import pyarrow as pa

    table(path, {name: pa.array(["1"] * 20_000) for name in FOCUS}, row_group_size=1)


def nested(path: Path) -> None:
    """Write lists within lists, a million items per row."""
    import pyarrow as pa

    inner = pa.array([[[0] * 1_000] * 1_000] * 200)
    table(path, {**{name: pa.array(["1"] * 200) for name in FOCUS}, "tags": inner}, compression="zstd")


def footer(path: Path) -> None:
    """Write a file whose last bytes claim two gigabytes of metadata."""
    path.write_bytes(b"PAR1" + bytes(1000) + (2**31 - 1).to_bytes(4, "little") + b"PAR1")


def lying(path: Path) -> None:
    """Write `one_cell` with metadata that claim a small size."""
    one_cell(path)
    content = path.read_bytes()
    size = 200 * MIB
    for value in range(size, size + 64):
        content = content.replace(_varint(value), _varint(1000 << 14 | 1)[: len(_varint(value))])
    path.write_bytes(content)


def _varint(value: int) -> bytes:
    value <<= 1  # write the value in Thrift's zigzag encoding
    found = bytearray()
    while value > 0x7F:
        found.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*found, value])


def written(*pieces: bytes) -> Callable[[Path], None]:
    return lambda path: _write(path, iter(pieces))


def _write(path: Path, pieces: Iterator[bytes]) -> None:
    with path.open("wb") as file:
        file.writelines(pieces)


def repeated(head: bytes, piece: bytes, count: int, end: bytes = b"") -> Callable[[Path], None]:
    """Return a writer that repeats a piece, a megabyte at once."""

    def make(path: Path) -> None:
        at_once = max(1, MIB // len(piece))
        rounds, rest = divmod(count, at_once)
        _write(path, iter((head, *([piece * at_once] * rounds), piece * rest, end)))

    return make


def packed(make: Callable[[Path], None]) -> Callable[[Path], None]:
    def made(path: Path) -> None:
        make(path)
        plain = path.read_bytes()
        path.write_bytes(gzip.compress(plain, 1))

    return made


def zipped(name: str, piece: bytes, count: int) -> Callable[[Path], None]:
    def make(path: Path) -> None:
        with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive, archive.open(name, "w") as file:
            for _ in range(count):
                file.write(piece)

    return make


def cells(path: Path) -> None:
    """Write distinct rows up to the limit, with the longest texts that Tollhouse stores."""
    with path.open("wb") as file:
        file.write(HEAD)
        for place in range(100_000):
            text = f"{place:0>298}"
            file.write(LINE[:-3] + f"{text},{text[::-1]}\n".encode())


def different_rows(path: Path) -> None:
    """Write millions of rows that are added up to one and differ only in a column that Tollhouse ignores."""
    with path.open("wb") as file:
        file.write(HEAD.rstrip(b"\n") + b",x\n")
        for start in range(0, 3_000_000, 10_000):
            file.write(b"".join(b"%b,%d\n" % (LINE, place) for place in range(start, start + 10_000)))


REPORTS: dict[str, Callable[[Path], None]] = {
    "parquet-alike": alike,
    "parquet-one-cell": one_cell,
    "parquet-prefixes": prefixes,
    "parquet-many-rows": many_rows,
    "parquet-many-columns": many_columns,
    "parquet-many-groups": many_groups,
    "parquet-nested": nested,
    "parquet-footer": footer,
    "parquet-lying": lying,
    "csv-one-line": repeated(HEAD, b"x", 16 * MIB),
    "csv-one-row": repeated(HEAD + b'"', b"x\n", 16 * MIB),
    "csv-cells": repeated(HEAD, b",", 64 * MIB),
    "csv-quotes": repeated(HEAD + b'"', b'""', 32 * MIB, b'"\n'),
    "csv-columns": repeated(b"", b"a,", 8 * MIB, b"\n" + LINE),
    "csv-lines-of-a-row": repeated(HEAD, b'"a\n",', 16 * MIB),
    "csv-nothing": repeated(HEAD, b"\x00", 64 * MIB),
    "csv-wide": written(HEAD, "\U0001f600".encode() * 8 * MIB),
    "csv-wide-rows": repeated(HEAD, LINE + ",\U0001f600\n".encode(), 25 * MIB // (len(LINE) + 6)),
    "csv-packed": packed(repeated(HEAD, LINE + b"\n", 16 * MIB)),
    "csv-cells-that-differ": cells,
    "csv-rows-that-differ": different_rows,
    "json-lists": repeated(b'{"object":"page","data":[', b"[],", 40 * MIB, b"[]]}"),
    "json-objects": repeated(b'{"object":"page","data":[', b"{},", 40 * MIB, b"{}]}"),
    "json-numbers": repeated(b'{"object":"page","data":[', b"1.5,", 30 * MIB, b"1]}"),
    "json-deep": repeated(b"", b"[", 16 * MIB),
    "json-text": written(b'{"object":"page","data":"', b"x" * 200 * MIB, "\U0001f600".encode(), b'"}'),
    "json-number": repeated(b'{"object":"page","data":[', b"9", 32 * MIB, b"]}"),
    "json-lines": repeated(b"", b"{}\n", 60 * MIB),
    "json-packed": packed(repeated(b'{"object":"page","data":[', b"[],", 80 * MIB, b"[]]}")),
}  # fmt: skip


def snappy(head: bytes, piece: bytes, count: int) -> Callable[[Path], None]:
    """Return a writer of a remote write body: one Snappy block that repeats a piece of at most 60 bytes."""

    def make(path: Path) -> None:
        size = len(head) + len(piece) * count
        block = bytearray()
        while size > 0x7F:
            block.append(size & 0x7F | 0x80)
            size >>= 7
        block.append(size)
        for text in (head, piece):
            if text:
                block += bytes([(len(text) - 1) << 2]) + text
        left = len(piece) * (count - 1)
        while left:
            length = min(64, left)
            block += bytes([(length - 1) << 2 | 2]) + len(piece).to_bytes(2, "little")
            left -= length
        path.write_bytes(block)

    return make


LAUGHS = b"a: &a [x,x,x,x,x,x,x,x,x]\n" + b"".join(
    b"%c: &%c [%b]\n" % (place, place, b",".join([b"*%c" % (place - 1)] * 9)) for place in b"bcdefghi"
)
CUBE = b"<Cube time='2026-01-02'><Cube currency='USD' rate='1.5'/></Cube>"

# Files by the way in which Tollhouse receives them, and by name.
FILES: Mapping[str, Mapping[str, Callable[[Path], None]]] = {
    "report": REPORTS,
    "page": {
        "lists": repeated(b'{"data":[', b"[],", 10 * MIB, b"[]]}"),
        "texts": repeated(b'{"data":[', b'"\xf0\x9f\x98\x80",', 4 * MIB, b'""]}'),
        "lines": repeated(b"", b"{}\n", 10 * MIB),
    },
    "seats": {
        "rows": repeated(b"user\n", b"a\n", 4 * MIB),
        "columns": repeated(b"user", b",", 8 * MIB - 10),
        "objects": repeated(b'{"seats":[', b"{},", 2 * MIB, b"{}]}"),
        "large": repeated(b"user\n", b"a\n", 64 * MIB),
    },
    "machines": {
        "rows": repeated(b"serial\n", b"a\n", 15 * MIB),
        "columns": repeated(b"serial", b",", 32 * MIB - 10),
        "cells": repeated(b"serial,", b"\xf0\x9f\x98\x80,\n", 5 * MIB),
        "large": repeated(b"serial\n", b"a\n", 64 * MIB),
    },
    "names": {"rows": repeated(b"", b"a,b\n", 2 * MIB), "one-line": repeated(b"", b"a", 64 * MIB)},
    "people": {
        "rows": repeated(b"", b"a@b.c,d\n", 8 * MIB),
        "one-line": repeated(b"", b"a", 256 * MIB),
        "one-row": repeated(b'"', b"a\n", 64 * MIB),
    },
    "rates": {
        "packed": zipped("rates.csv", b"Date,USD\n" * MIB, 100),
        "own": repeated(b"date,currency,usd\n", b"2026-01-02,EUR,1\n", 980_000),
        "xml": repeated(b"<x>", CUBE, 200_000, b"</x>"),
        "columns": repeated(b"Date,USD", b",X", 8 * MIB - 10),
    },
    "container": {
        "parquet": alike,
        "array": repeated(b"[", b"1,", 30 * MIB, b"1]"),
        "packed": packed(repeated(b"[", b"{},", 80 * MIB, b"{}]")),
        "line": packed(repeated(b'{"labels":"', b"x", 200 * MIB, b'"}')),
        "lines": packed(repeated(b"", b"{}\n", 8 * MIB)),
    },
    "remote_write": {
        "samples": snappy(b"", b"\x12\x00", 32 * MIB),
        "series": snappy(b"", b"\x0a\x00", 2 * MIB),
        "one-series": snappy(b"\x0a\x80\x80\x80\x1e", b"\x12\x00", 30 * MIB),
        "large": snappy(b"", b"\x0a\x00", 100 * MIB),
    },
    "remote_write_2": {"symbols": snappy(b"", b"\x22\x01a", 20 * MIB)},
    "sent": {
        "blanks": repeated(b"x", b"\n", 60 * MIB),
        "array": repeated(b"[", b"1,", 4 * MIB, b"1]"),
        "lines-of-arrays": repeated(b"{}\n[", b"1,", 4 * MIB, b"1]\n"),
        "documents": repeated(b"{\n}", b"{}", 4 * MIB),
        "packed": packed(repeated(b"", b"x", 1024 * MIB)),
    },
    "definition": {
        "laughs": written(LAUGHS),
        "lists": repeated(b"Dimensions: ", b"[", 120_000),
        "entries": repeated(b"Dimensions:\n", b"- a\n", 32_000),
    },
}  # fmt: skip
# A short run reads only these files: for each kind, a file that once took the most memory and is now
# quick to read.
SHORT = (
    "report/parquet-alike", "report/csv-one-line", "report/csv-lines-of-a-row", "seats/rows", "container/parquet",
    "remote_write/one-series", "definition/laughs",
)  # fmt: skip
