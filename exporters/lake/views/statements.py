"""The views over a lake: one text for every reader of SQL, from the columns of the table."""

from __future__ import annotations

from importlib.resources import files
from typing import Final

from exporters.lake.columns import COLUMNS
from exporters.lake.views.dialects import DIALECTS, Dialect
from exporters.lake.views.readers import check_readable, values_of
from exporters.settings import DestinationSettings

VIEWS: Final = ("lake", "once", "spend", "calls", "daily", "by_owner", "late", "focus")


def views_for(engine: str, settings: DestinationSettings) -> str:
    """
    Return VIEWS: `lake` (every row), `once` (each id once, which matters after a restore), `spend` (what counts),
    `calls` (with their corrections), `daily`, `by_owner`, `late` and `focus`; of a lake of charges `focus` alone.
    ValueError for files that the reader does not read.
    """
    dialect = DIALECTS[engine]
    check_readable(dialect, settings)
    values = values_of(dialect, settings)
    if settings.format.startswith("focus"):
        return _text("charges").format_map(values)
    return _text(engine).format_map(values) + _views(dialect)


def _text(name: str) -> str:
    return files(__package__).joinpath(f"{name}.sql").read_text("utf-8")


def _views(dialect: Dialect) -> str:
    column = {name: dialect.quoted(name) for name in (*COLUMNS, "date")}
    at = column["at"]
    known = f"coalesce({column['known_at']}, {column['committed_at']})"
    values = {
        **{f"c_{name}": quoted for name, quoted in column.items()},
        "columns": ", ".join(column.values()),
        "call_columns": ", ".join(_of_call(name, quoted) for name, quoted in column.items()),
        "usd": dialect.usd.format(column["spend"]),
        "day": dialect.day.format(at),
        "known_day": dialect.day.format(known),
        "hour": dialect.hour.format(at),
        "s": dialect.schema,
    }
    return _text("views").format_map(values)


def _of_call(name: str, quoted: str) -> str:
    if name != "spend":
        return f"c.{quoted}"
    return (
        f"CASE WHEN k.corrections IS NULL THEN c.{quoted} "
        f"ELSE coalesce(c.{quoted}, 0) + coalesce(k.changed, 0) END AS {quoted}"
    )
