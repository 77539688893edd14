"""
The process that answers one question: the only module that imports DuckDB, which the extra `query` brings.

It reads a request from its input and writes a line of JSON with the names of the columns, one for each row, and
one at the end. Only the files of the lake are open to it: nothing is loaded from a network, nothing is written
but what does not fit into its memory, and only SELECT is taken.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from typing import Any, Final

import duckdb
import msgspec
import orjson

WRONG: Final = 2  # the exit code for a question that cannot be answered
THREADS: Final = 2
_AT_ONCE: Final = 1000
# Types that JSON has; all others are texts, money with all its digits.
_PLAIN: Final = frozenset(
    {
        "BOOLEAN",
        "TINYINT",
        "SMALLINT",
        "INTEGER",
        "BIGINT",
        "HUGEINT",
        "UTINYINT",
        "USMALLINT",
        "UINTEGER",
        "UBIGINT",
        "UHUGEINT",
        "DOUBLE",
        "FLOAT",
    }
)
_MOST_COUNT: Final = 2**63


class QueryRequest(msgspec.Struct, frozen=True, kw_only=True):
    """`views` are statements that make them; `directories` are all that may be read."""

    views: str
    text: str
    directories: list[str]
    scratch: str  # for what does not fit into memory
    scratch_mib: int
    memory_mib: int
    most_rows: int


def opened(request: QueryRequest) -> duckdb.DuckDBPyConnection:
    """A connection with the views, to which nothing else is open any more."""
    config = {"memory_limit": f"{request.memory_mib}MiB", "threads": THREADS}
    connection = duckdb.connect(config=config)
    for name, value in _closed(request).items():
        connection.execute(f"SET {name} = {value}")
    connection.execute(request.views)
    connection.execute("SET lock_configuration = true")
    return connection


def _closed(request: QueryRequest) -> dict[str, str]:
    directories = ", ".join(_text(each) for each in request.directories)
    return {
        "TimeZone": "'UTC'",
        "allowed_directories": f"[{directories}]",
        "temp_directory": _text(request.scratch),
        "max_temp_directory_size": f"'{request.scratch_mib}MiB'",
        "autoinstall_known_extensions": "false",
        "autoload_known_extensions": "false",
        "allow_community_extensions": "false",
        "enable_external_access": "false",
    }


def _text(value: str) -> str:
    quoted = value.replace("'", "''")
    return f"'{quoted}'"


def answered(connection: duckdb.DuckDBPyConnection, text: str) -> tuple[list[str], Iterator[tuple[Any, ...]]]:
    """Return the names of the columns, and the rows. ValueError for what is no single SELECT."""
    statements = connection.extract_statements(text)
    if [each.type for each in statements] != [duckdb.StatementType.SELECT]:
        raise ValueError("ask one question that begins with FROM, WITH or SELECT")
    question = statements[0].query.strip().rstrip(";")
    described = connection.execute(f"DESCRIBE {question}").fetchall()
    names = [str(name) for name, *_ in described]
    places = [f"c{place}" for place in range(len(names))]
    shown = [_shown(place, type) for place, (_, type, *_) in zip(places, described, strict=True)]
    # A line break ends a comment at the end of the question.
    asked = f"SELECT {', '.join(shown)} FROM ({question}\n) AS q({', '.join(places)})"
    return names, _rows(connection.execute(asked))


def _shown(place: str, type: str) -> str:
    return place if type in _PLAIN else f"CAST({place} AS VARCHAR)"


def _rows(result: duckdb.DuckDBPyConnection) -> Iterator[tuple[Any, ...]]:
    while some := result.fetchmany(_AT_ONCE):
        yield from [tuple(map(_in_json, row)) for row in some]


def _in_json(value: Any) -> Any:
    """A count that is too large for a number of JSON is a text."""
    is_large = isinstance(value, int) and abs(value) >= _MOST_COUNT
    return str(value) if is_large else value


def main() -> int:
    request = msgspec.json.decode(sys.stdin.buffer.read(), type=QueryRequest)
    try:
        _answer(request)
    except (duckdb.Error, ValueError) as error:
        sys.stderr.write(str(error).strip())
        sys.stderr.flush()
        return WRONG
    return 0


def _answer(request: QueryRequest) -> None:
    names, rows = answered(opened(request), request.text)
    _write(names)
    count = 0
    for row in rows:
        if count == request.most_rows:
            _write({"rows": count, "more": True})
            return
        _write(row)
        count += 1
    _write({"rows": count, "more": False})


def _write(line: object) -> None:
    sys.stdout.buffer.write(orjson.dumps(line, option=orjson.OPT_APPEND_NEWLINE))


if __name__ == "__main__":
    status = main()
    sys.stdout.flush()
    os._exit(status)  # what DuckDB holds need not be let go first
