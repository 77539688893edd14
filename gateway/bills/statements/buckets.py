"""Reports as pages of buckets of time, each with its results: OpenAI's and Anthropic's."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import NamedTuple

from gateway.bills.statements.cells import Cells
from gateway.bills.statements.source import Document
from gateway.bills.statements.values import Row, moment, objects

Add = Callable[[Row, int, int], None]  # a result, with the start and the end of its bucket


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
