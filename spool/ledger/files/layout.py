"""The columns of the files: those of `Fact`, and one for each tag, meter and currency by its place in a list."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any, Final

from spool.erasure import Renaming, rename_person_in_fields
from spool.ledger.dimensions import TAG
from spool.ledger.files.row import NO_AMOUNT, Fact, Row
from spool.ledger.work import TAGS as UNIT_TAGS
from spool.people import CallTime

MAX_TAG_COLUMNS: Final = 48
_COLUMNS: Final = frozenset(Fact._fields)
_OF_PEOPLE: Final = ("user", "team", "api_key")
_TEXTS: Final = frozenset({"kind", *Fact._fields[4:17]})


@dataclass(slots=True)
class Layout:
    """
    The names whose columns are a letter and their place, such as `t1`. An engine takes names that differ only
    in case for one name, so none is the name of a column. `listed` are tags that always have one.

    Lists only grow, so the columns of an earlier layout stay those of a later one.
    """

    tags: list[str]
    meters: list[str]
    currencies: list[str]
    listed: Sequence[str] = ()

    @classmethod
    def after(cls, earlier: Layout, listed: Sequence[str]) -> Layout:
        """Return the layout of a second generation, in which other tags are listed. Unlisted ones may lose theirs."""
        layout = cls([], [], [], listed)
        layout.add_names(earlier.tags, earlier.meters, earlier.currencies)
        return layout

    def columns(self) -> list[tuple[str, str]]:
        """Return the names and types of all columns."""
        fixed = [(name, _type_of(name)) for name in Fact._fields]
        tags = [(f"t{place}", "VARCHAR") for place in range(1, len(self.tags) + 1)]
        meters = [(f"m{place}", "BIGINT") for place in range(1, len(self.meters) + 1)]
        amounts = [
            (f"c{place}_{part}", "BIGINT")
            for place in range(1, len(self.currencies) + 1)
            for part in ("nano", "rest")
        ]
        return [*fixed, *tags, *meters, *amounts]

    def names(self) -> list[str]:
        return [name for name, _ in self.columns()]

    def columns_of_people(self) -> set[str]:
        """Return the columns that may name a person, as `spool.erasure` reads a record."""
        return {*_OF_PEOPLE, *self.columns_of_tags()}

    def rename_person(self, row: dict[str, Any], renaming: Renaming, call: CallTime) -> bool:
        """Replace erased names in a row by column. Return whether it changed."""
        tags = {tag: row[column] for place, tag in enumerate(self.tags, 1) if row.get(column := f"t{place}")}
        fields: dict[str, Any] = {**{name: row.get(name) for name in _OF_PEOPLE}, "tags": tags}
        is_changed = rename_person_in_fields(fields, renaming, call)
        row |= {name: fields[name] for name in _OF_PEOPLE if name in row}
        row |= {f"t{self.tags.index(tag) + 1}": value for tag, value in fields["tags"].items()}
        return is_changed

    def column(self, dimension: str) -> str:
        """Return SQL of a dimension's value, NULL if unknown."""
        if dimension in _COLUMNS:
            return f'"{dimension}"'
        tag = dimension.removeprefix(TAG)
        return f"t{self.tags.index(tag) + 1}" if tag in self.tags else "NULL::VARCHAR"

    def add_names_of(self, rows: Iterable[Row]) -> None:
        """Give new names a column. Tags beyond MAX_TAG_COLUMNS stay in the log."""
        tags, meters, currencies = set[str](), set[str](), set[str]()
        for row in rows:
            tags.update(row.tags)
            meters.update(row.meters)
            currencies.update(row.charges)
        self.add_names(tags, meters, currencies)

    def add_names(self, tags: Collection[str], meters: Collection[str], currencies: Collection[str]) -> None:
        reserved = [name for name in dict.fromkeys((*self.listed, *UNIT_TAGS)) if name not in self.tags]
        free = max(MAX_TAG_COLUMNS - len(self.tags) - len(reserved), 0)
        others = sorted(set(tags).difference(self.tags, reserved))
        self.tags += [name for name in reserved if name in tags] + others[:free]
        self.meters += sorted(set(meters).difference(self.meters))
        self.currencies += sorted(set(currencies).difference(self.currencies))

    def sql_of_rows_in(self, other: Layout, rows: str) -> str:
        """Return SQL that reads rows of this layout with the columns of another one that came after it."""
        nothing = ", ".join(f'NULL::{type} AS "{name}"' for name, type in self.columns())
        named = (
            ("t{}", self.tags, other.tags),
            ("m{}", self.meters, other.meters),
            ("c{}_nano", self.currencies, other.currencies),
            ("c{}_rest", self.currencies, other.currencies),
        )
        columns = [f'"{name}"' for name in Fact._fields] + [
            f"{column.format(own.index(name) + 1)} AS {column.format(place)}"
            for column, own, others in named
            for place, name in enumerate(others, 1)
            if name in own
        ]
        return (
            f"SELECT {', '.join(columns)} "
            f"FROM (SELECT * FROM {rows} UNION ALL BY NAME SELECT {nothing} WHERE false)"
        )

    def columns_of_tags(self) -> set[str]:
        return {f"t{place}" for place in range(1, len(self.tags) + 1)}

    def values(self, row: Row) -> tuple[Any, ...]:
        """Return the values of a row in the order of `columns`."""
        tags, meters, charges = row.tags, row.meters, row.charges
        return (
            *row.fact,
            *map(tags.get, self.tags),
            *map(meters.get, self.meters),
            *chain.from_iterable([charges.get(name, NO_AMOUNT) for name in self.currencies]),
        )


def _type_of(column: str) -> str:
    return "VARCHAR" if column in _TEXTS else "BIGINT[]" if column == "above" else "BIGINT"
