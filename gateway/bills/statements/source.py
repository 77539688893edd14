"""What a kind of report declares of itself; and reports as pages of buckets of time, OpenAI's and Anthropic's."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

from gateway.bills.statements.cells import Cells
from gateway.bills.statements.values import Row, moment, objects
from spool.bounded_reading import BoundedLines

HOUR_S, DAY_S = 3600, 86400
Add = Callable[[Row, int, int], None]  # a result, with the start and the end of its bucket


@dataclass(frozen=True, slots=True, kw_only=True)
class Document:
    """A JSON document; of JSON lines, what goes through them."""

    root: Any

    def page(self) -> Row:
        """Its object; empty if it is none."""
        return self.root if isinstance(self.root, dict) else {}

    def pages(self) -> Iterator[Row]:
        """The pages of an API that stand in it: one, or a list of them."""
        is_one = isinstance(self.root, dict) or not isinstance(self.root, Iterable)
        for each in [self.root] if is_one else self.root:
            if isinstance(each, dict):
                yield each


@dataclass(frozen=True, slots=True, kw_only=True)
class Table:
    """
    Rows of a CSV file. `columns` are in small letters; `rows` can be read once. `lines` keep what is read open, until
    whoever opened it closes it.
    """

    columns: tuple[str, ...]
    rows: Iterable[tuple[int, Row]]  # with the number of the line
    lines: BoundedLines | None = None

    def has(self, *names: str) -> bool:
        return set(names) <= set(self.columns)


@dataclass(frozen=True, slots=True, kw_only=True)
class ReportSource:
    """
    `is_document` and `is_table` recognise the report, `read_document` and `read_table` read it into cells.

    `settle_s` after the end of a bucket its figures are taken to be final. `in_parts`: files that are
    imported together are parts of one report; otherwise each is a report of its own, and the later one
    replaces the one before. `whole_days`: what the report covers is of whole days, whatever the times in it.
    """

    name: str
    title: str
    settle_s: int
    in_parts: bool = False
    whole_days: bool = True
    is_document: Callable[[Document], bool] | None = None
    read_document: Callable[[Document, Cells], None] | None = None
    is_table: Callable[[Table], bool] | None = None
    read_table: Callable[[Table, Cells], None] | None = None


class Edges(NamedTuple):
    """How a report names the start and the end of a bucket."""

    start: str
    end: str


def any_results(document: Document) -> Iterator[tuple[Row, Row]]:
    """Each bucket with each of its results, to recognise a report by: what is none of them is passed over."""
    for page in document.pages():
        for bucket in page.get("data") or ():
            if isinstance(bucket, dict):
                yield from (
                    (bucket, result) for result in bucket.get("results") or () if isinstance(result, dict)
                )


def read_results(document: Document, edges: Edges, cells: Cells, add: Add) -> None:
    """Add every result. A bucket without any is covered all the same; a damaged one or result is left out alone."""
    for number, page in enumerate(document.pages(), start=1):
        for place, bucket in enumerate(objects(page.get("data"), "data"), start=1):
            where = f"page {number}, bucket {place}"
            results = objects(None, "results")
            with cells.row(where):
                cells.cover(moment(bucket, edges.start), moment(bucket, edges.end))
                results = objects(bucket.get("results"), "results")
            for each, result in enumerate(results, start=1):
                said = (bucket.get(edges.start), bucket.get(edges.end), result)
                with cells.row(f"{where}, result {each}", said, once=True):
                    add(result, moment(bucket, edges.start), moment(bucket, edges.end))
