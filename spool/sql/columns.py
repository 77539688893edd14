"""The columns of a table, made from the fields of its rows' class."""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, fields
from operator import attrgetter
from typing import Any, Generic, TypeVar

Row = TypeVar("Row")


@dataclass(frozen=True, slots=True)
class Form:
    """How a field is kept that is not a plain value. None stays None."""

    write: Callable[[Any], Any]
    read: Callable[[Any], Any]


JSON = Form(json.dumps, json.loads)
JSON_TUPLE = Form(json.dumps, lambda text: tuple(json.loads(text)))
_PLAIN: Mapping[str, Form] = {}


class Columns(Generic[Row]):
    """
    Columns named as the fields of a dataclass, in their order, but for those in `without`.

    `forms` has the fields that are kept otherwise. A truth is read as one, whatever the engine keeps.
    """

    def __init__(
        self, row: type[Row], *, forms: Mapping[str, Form] = _PLAIN, without: Collection[str] = ()
    ) -> None:
        kept = [field for field in fields(row) if field.name not in without]  # type: ignore[arg-type]
        self.names = tuple(field.name for field in kept)
        self._row = row
        self._values = attrgetter(*self.names)
        truths = [(field.name, bool) for field in kept if field.type in ("bool", bool)]
        self._writes = [(name, form.write) for name, form in forms.items()]
        self._reads = [*truths, *((name, form.read) for name, form in forms.items())]

    def values(self, row: Row) -> dict[str, Any]:
        """The values of a row as they are kept, by column."""
        values = dict(zip(self.names, self._values(row), strict=True))
        for name, write in self._writes:
            value = values[name]
            if value is not None:
                values[name] = write(value)
        return values

    def read(self, kept: Sequence[Any], **others: Any) -> Row:
        """A row from the values of its columns in their order, and from fields that other tables keep."""
        return self._row(**self.fields(kept), **others)

    def fields(self, kept: Sequence[Any]) -> dict[str, Any]:
        """The fields of a row, by name, from the values of its columns in their order."""
        values = dict(zip(self.names, kept, strict=True))
        for name, read in self._reads:
            value = values[name]
            if value is not None:
                values[name] = read(value)
        return values
