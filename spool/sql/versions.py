"""
Files of schema/ by the versions that they belong to: what is added to both engines, or to one, stands there once.

`NAME.sqlite-12.postgres-3.sql` is part of version 12 of spool.sqlite and of version 3 of a PostgreSQL schema. The
name of a file for one engine has that one alone. A text has SQLite's types, BOOLEAN for truths, and tables as
`{schema}.NAME`. What was released stays as it is.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import cache
from importlib.resources import files

_FOLDER = files(__package__).joinpath("schema")


def files_by_version(engine: str) -> list[Sequence[str]]:
    """The names of the files of each version of an engine, from the first to the newest that has any."""
    of_engine = re.compile(rf"\.{engine}-(\d+)\.")
    found: dict[int, list[str]] = {}
    for name in sorted(file.name for file in _FOLDER.iterdir()):
        version = of_engine.search(name)
        if version:
            found.setdefault(int(version[1]), []).append(name)
    return [found.get(number, ()) for number in range(1, max(found, default=0) + 1)]


@cache
def text(name: str) -> str:
    return _FOLDER.joinpath(name).read_text("utf-8")
