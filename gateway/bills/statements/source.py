"""
Declarations of report sources, and the reader of reports made of pages and time buckets (OpenAI, Anthropic).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

from gateway.bills.statements.cells import ReportSumCollector
from gateway.bills.statements.values import Damaged, Row, epoch_seconds, object_list
from spool.bounded_reading import BoundedLines
from spool.errors import Invalid
from spool.statements import bill_name, days_of_bill

HOUR_S, DAY_S = 3600, 86400
# a function that adds a result, with the start and the end of its bucket
Add = Callable[[Row, int, int], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class StatementDocument:
    """A JSON document. For JSON lines, `root` is an iterable of the lines' values."""

    root: Any

    def root_object(self) -> Row:
        return self.root if isinstance(self.root, dict) else {}

    def pages(self) -> Iterator[Row]:
        """Return the API pages in the document, which is one page or a list of pages."""
        is_one = isinstance(self.root, dict) or not isinstance(self.root, Iterable)
        for page in [self.root] if is_one else self.root:
            if isinstance(page, dict):
                yield page


@dataclass(frozen=True, slots=True, kw_only=True)
class CsvTable:
    """
    Rows of a CSV file. `columns` are lowercase. `rows` can be read only once. `lines` holds the underlying
    stream, which the opener closes.
    """

    columns: tuple[str, ...]
    rows: Iterable[tuple[int, Row]]  # line number and cells of each row
    lines: BoundedLines | None = None

    def has_columns(self, *names: str) -> bool:
        return set(names) <= set(self.columns)


@dataclass(frozen=True, slots=True, kw_only=True)
class ReportSource:
    """
    A kind of report. `is_document` and `is_table` recognize it; `read_document` and `read_table` read
    it into cells.

    The figures of a bucket count as final `settle_s` after its end. `in_parts`: files that are imported
    together are parts of one report. Otherwise each file is a report, and a later file replaces an earlier
    one.
    """

    name: str
    title: str
    settle_s: int
    in_parts: bool = False
    is_document: Callable[[StatementDocument], bool] | None = None
    read_document: Callable[[StatementDocument, ReportSumCollector], None] | None = None
    is_table: Callable[[CsvTable], bool] | None = None
    read_table: Callable[[CsvTable, ReportSumCollector], None] | None = None


class BillPeriod(NamedTuple):
    """The period of a bill, in epoch seconds, and its name."""

    start: int
    end: int
    name: str


def bill_period(start: int, end: int) -> BillPeriod:
    """Return the period of a bill. Raises Damaged if it cannot be one."""
    try:
        return BillPeriod(start, end, bill_name(start, end))
    except Invalid as error:
        raise Damaged(str(error)) from error


def cover_row(sum_collector: ReportSumCollector, period: BillPeriod | None, start: int, end: int) -> str:
    """
    Extend the days that the report covers by those of a row, and return the name of its bill. A row from outside the
    period of its bill covers the first day of the period. A period of another time zone has the UTC days of its name.
    """
    if period is None:
        sum_collector.extend_span(start, end)
        return ""
    if not period.start <= start < period.end:
        start, end = period.start, period.start + 1
    after = days_of_bill(period.name)[1] + DAY_S
    start = min(start, after - 1)
    sum_collector.extend_span(start, max(start + 1, min(end, after)), period.name)
    return period.name


class BucketFieldNames(NamedTuple):
    """The names of the fields that state the start and the end of a bucket in a provider's report."""

    start: str
    end: str


def buckets_with_results(document: StatementDocument) -> Iterator[tuple[Row, Row]]:
    """
    Yield each bucket with each of its results, for recognition. Anything else in the document is skipped.
    """
    for page in document.pages():
        for bucket in page.get("data") or ():
            if isinstance(bucket, dict):
                yield from (
                    (bucket, result) for result in bucket.get("results") or () if isinstance(result, dict)
                )


def read_results(
    document: StatementDocument,
    bucket_field_names: BucketFieldNames,
    sum_collector: ReportSumCollector,
    add: Add,
) -> None:
    """
    Add every result in the document to the cells. A bucket without results still counts as covered. A damaged
    bucket or result does not affect the others.
    """
    for number, page in enumerate(document.pages(), start=1):
        for bucket_number, bucket in enumerate(object_list(page.get("data"), "data"), start=1):
            where = f"page {number}, bucket {bucket_number}"
            results = object_list(None, "results")
            with sum_collector.collect_row(where):
                sum_collector.cover_bucket(
                    epoch_seconds(bucket, bucket_field_names.start),
                    epoch_seconds(bucket, bucket_field_names.end),
                )
                results = object_list(bucket.get("results"), "results")
            for result_number, result in enumerate(results, start=1):
                content = (bucket.get(bucket_field_names.start), bucket.get(bucket_field_names.end), result)
                with sum_collector.collect_row(
                    f"{where}, result {result_number}", content, is_identical_row_repeat=True
                ):
                    add(
                        result,
                        epoch_seconds(bucket, bucket_field_names.start),
                        epoch_seconds(bucket, bucket_field_names.end),
                    )
