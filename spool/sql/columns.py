"""Table columns for the fields of a row class, and statements for whole rows."""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, fields
from operator import attrgetter
from typing import Any, Generic, TypeVar

from spool.errors import RowDamaged

Row = TypeVar("Row")


@dataclass(frozen=True, slots=True)
class ColumnForm:
    """How a field's values are stored in its column. None is stored as NULL."""

    write: Callable[[Any], Any]
    read: Callable[[Any], Any]


JSON = ColumnForm(json.dumps, json.loads)
JSON_TUPLE = ColumnForm(json.dumps, lambda text: tuple(json.loads(text)))
_PLAIN: Mapping[str, ColumnForm] = {}


class RowColumns(Generic[Row]):
    """
    The columns of a row class, without the fields in `without`. `forms`: the fields that are stored in
    another form. Booleans are converted for engines that store numbers.
    """

    def __init__(
        self, row: type[Row], *, forms: Mapping[str, ColumnForm] = _PLAIN, without: Collection[str] = ()
    ) -> None:
        own_fields = [field for field in fields(row) if field.name not in without]  # type: ignore[arg-type]
        self.names = tuple(field.name for field in own_fields)
        self._row = row
        self._values = attrgetter(*self.names)
        truths = [(field.name, bool) for field in own_fields if field.type in ("bool", bool)]
        self._writes = [(name, form.write) for name, form in forms.items()]
        self._reads = [*truths, *((name, form.read) for name, form in forms.items())]

    def stored_values(self, row: Row) -> dict[str, Any]:
        values = dict(zip(self.names, self._values(row), strict=True))
        for name, write in self._writes:
            value = values[name]
            if value is not None:
                values[name] = write(value)
        return values

    def read_row(self, kept: Sequence[Any], **others: Any) -> Row:
        """Return a row object. `kept`: its columns' values. `others`: values that other tables store."""
        return self._row(**self.read_fields(kept), **others)

    def read_fields(self, kept: Sequence[Any]) -> dict[str, Any]:
        values = dict(zip(self.names, kept, strict=True))
        for name, read in self._reads:
            value = values[name]
            if value is not None:
                try:
                    values[name] = read(value)
                except (TypeError, ValueError) as error:
                    raise RowDamaged(f"stored {self._row.__name__}.{name} cannot be read: {error}") from error
        return values


# -- statements that read or write whole rows, built from their column names ---------------------------------


def select_sql(table: str, names: Sequence[str]) -> str:
    """Return a SELECT statement for these columns, to which a condition can be appended."""
    return f"SELECT {', '.join(names)} FROM {{schema}}.{table}"


def insert_sql(table: str, names: Sequence[str]) -> str:
    values = ", ".join(f":{name}" for name in names)
    return f"INSERT INTO {{schema}}.{table} ({', '.join(names)}) VALUES ({values})"


def upsert_sql(table: str, names: Sequence[str], *key: str) -> str:
    changed = ", ".join(f"{name} = excluded.{name}" for name in names if name not in key)
    return f"{insert_sql(table, names)} ON CONFLICT ({', '.join(key)}) DO UPDATE SET {changed}"


def update_sql(table: str, names: Sequence[str], *key: str) -> str:
    changed = ", ".join(f"{name} = :{name}" for name in names)
    equal = " AND ".join(f"{name} = :{name}" for name in key)
    return f"UPDATE {{schema}}.{table} SET {changed} WHERE {equal}"
