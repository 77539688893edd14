"""Rows of the reference tables, each explained once: repeated rows become a link to the first ones."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

_MIN_ROWS = 3  # fewer rows are repeated, because a link is no shorter


class FieldRow(NamedTuple):
    """A parameter, a field or an option. `notes` may differ between two rows that mean the same, such as "required"."""

    name: str
    kind: str
    notes: str
    meaning: str

    def __str__(self) -> str:
        kind = ", ".join(filter(None, (self.kind, self.notes)))
        return f"| `{self.name}` | {kind} | {self.meaning} |"

    def is_below(self, above: FieldRow) -> bool:
        return self.name.startswith((f"{above.name}.", f"{above.name}[]"))


@dataclass(frozen=True, slots=True)
class ShownAt:
    """The place of an operation or a command in the reference: its page, its heading and its anchor."""

    page: str
    heading: str = ""
    anchor: str = ""

    def link_from(self, page: str) -> str:
        file = "" if self.page == page else f"{self.page}.md"
        return f"[{self.heading}]({file}#{self.anchor})"


@dataclass(slots=True)
class ShownTable:
    """The rows that the pages show so far, with the operation that shows them."""

    _objects: dict[tuple[FieldRow, ...], tuple[str, ShownAt]] = field(default_factory=dict)
    _tables: list[tuple[dict[FieldRow, FieldRow], ShownAt]] = field(default_factory=list)
    _answers: dict[Any, ShownAt] = field(default_factory=dict)

    def fold_objects(self, rows: Sequence[FieldRow], at: ShownAt) -> Iterator[FieldRow]:
        """Yield the rows. The fields of an object that is shown elsewhere become a link."""
        while rows:
            row, *rows = rows
            below, here = _rows_below(row, rows), (row.name, at)
            known = self._objects.setdefault(below, here) if len(below) >= _MIN_ROWS else here
            if known == here:
                yield row
            else:
                yield row._replace(meaning=_with_link(row.meaning, *known, at.page))
                rows = rows[len(below) :]

    def fold_table(self, rows: Sequence[FieldRow], at: ShownAt) -> tuple[list[FieldRow], str]:
        """Return the rows that no earlier table has, and a sentence that links the others."""
        table = {row._replace(notes=""): row for row in rows}
        known, place = max(
            self._tables,
            key=lambda each: len(table.keys() & each[0].keys()),
            default=(dict[FieldRow, FieldRow](), at),
        )
        repeated = {row for plain, row in table.items() if plain in known and row.notes != "required"}
        if len(repeated) < _MIN_ROWS:
            self._tables.append((table, at))
            return list(rows), ""
        is_same = repeated <= set(known.values())
        change = "" if is_same else ", all optional here"
        names = ", ".join(f"`{row.name}`" for row in rows if row in repeated and "." not in row.name)
        kept = [row for row in rows if row not in repeated]
        self._tables.append(({row._replace(notes=""): row for row in kept}, at))
        return kept, f"As in {place.link_from(at.page)}{change}: {names}."

    def example_like(self, answer: Any, at: ShownAt) -> ShownAt | None:
        """Return the operation whose example shows an object of the same form, or None if this is the first."""
        known = self._answers.setdefault(_form(_content(answer)), at)
        return known if known != at else None


def _content(answer: Any) -> Any:
    """Return the object in an answer that names it, or in a list of one item."""
    if isinstance(answer, dict | list) and len(answer) == 1:
        return _content(next(iter(answer.values() if isinstance(answer, dict) else answer)))
    return answer


def _form(value: Any) -> Any:
    """Return the names of the fields of a JSON value at every depth."""
    if isinstance(value, dict):
        return tuple((name, _form(item)) for name, item in value.items())
    return tuple(map(_form, value)) if isinstance(value, list) else None


def _rows_below(row: FieldRow, rows: Sequence[FieldRow]) -> tuple[FieldRow, ...]:
    """Return the rows of the fields of `row`, which follow it, with names relative to it."""
    count = next((number for number, each in enumerate(rows) if not each.is_below(row)), len(rows))
    return tuple(each._replace(name=each.name[len(row.name) :].removeprefix("[]")) for each in rows[:count])


def _with_link(meaning: str, name: str, shown: ShownAt, page: str) -> str:
    text = meaning.replace(", each with the fields below.", ".").replace(", with the fields below.", ".")
    return f"{text} Its fields: `{name}` of {shown.link_from(page)}."
