"""Cells of one report. A damaged row adds no amounts; it is listed and counted. Pure."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from decimal import Decimal
from hashlib import blake2b

import msgspec

from gateway.bills.statements.values import Damaged, storable_amount
from spool.bounded_reading import KnownDigests
from spool.errors import Invalid
from spool.statements import (
    DAY_S,
    LEAST_DAY_S,
    MOST_DAY_S,
    REQUESTS,
    SEAT,
    SEATS,
    TOKENS,
    USD,
    RowAmounts,
    StatementRow,
    day_of_bucket,
    day_starts,
)

MOST_NAMED = 20  # maximum damaged rows listed by name; all other damaged rows are only counted
_NOTHING = Decimal(0)
_KEY = os.urandom(16)  # secret key of the digests, so that nobody can craft a report whose digests collide


@dataclass(frozen=True, slots=True, kw_only=True)
class CellFields:
    """
    Fields that the cells of one row share. `open` means that the report itself says that the figures may
    still change.
    """

    provider: str
    start: int
    end: int
    account: str | None = None
    key: str | None = None
    model: str | None = None
    tier: str | None = None
    region: str | None = None
    batch: bool | None = None
    open: bool = False
    line_type: str | None = None
    invoice_id: str | None = None
    line_id: str | None = None
    commitment_id: str | None = None
    context: int | None = None
    bill: str = ""


_Cell = tuple[CellFields, str, str, str | None]  # key of a sum of bill rows: bucket, unit, kind and currency


@dataclass(kw_only=True)
class ReportSumCollector:
    """
    The sums of one report by its dimensions. `covers` are the days that the report covers, by bill.
    `accounts` and `refreshed_at` are filled if the report states them.

    More than `most` different cells raise Invalid. `asked` is the span requested from the provider. Rows
    outside it are ignored, so an answer never replaces days that were not requested.

    `repeated` counts repeated rows, which are summed only once. `equal` counts identical rows without an id.
    They are all summed, because the report does not say whether they are repeats.
    """

    most: int
    asked: tuple[int, int] | None = None
    covers: dict[str, tuple[int, int]] = field(default_factory=dict)
    refreshed_at: int | None = None
    accounts: set[str] = field(default_factory=set)
    read: int = 0
    damaged: int = 0
    named: list[str] = field(default_factory=list)
    repeated: int = 0
    repeated_named: list[str] = field(default_factory=list)
    equal: int = 0
    _hours: dict[int, set[tuple[int, int]]] = field(default_factory=dict)  # short buckets by day
    _seen: KnownDigests = field(default_factory=KnownDigests)
    _cells: dict[_Cell, RowAmounts] = field(default_factory=dict)
    _row: list[tuple[_Cell, RowAmounts]] = field(default_factory=list)

    @contextmanager
    def collect_row(
        self, row_position: str, content: object = None, *, is_identical_row_repeat: bool = False
    ) -> Iterator[None]:
        """
        Collect the cells of one row in a `with` block. If the block raises Damaged, the row is counted as
        damaged.

        `content` is the row's content, used to recognize repeats, or None if the row has no amounts. Set
        `is_identical_row_repeat` if the row has an id or is the only row of its bucket and group. Then an
        identical row is a repeat and is not summed again.
        """
        self._row = []
        try:
            yield
        except Damaged as error:
            self.damaged += 1
            if len(self.named) < MOST_NAMED:
                self.named.append(f"{row_position}: {error}")
            return
        self.read += 1
        if content is not None and self._row and self._mark_seen(content):
            if is_identical_row_repeat:
                self.repeated += 1
                if len(self.repeated_named) < MOST_NAMED:
                    self.repeated_named.append(row_position)
                return
            self.equal += 1
        for cell, amounts in self._row:
            self._cells[cell] = self._cells[cell].plus(amounts) if cell in self._cells else amounts
        if len(self._cells) > self.most:
            raise Invalid(
                f"the report has more than {self.most} different combinations of day, key, model and so on "
                "(reconciliation.max_rows); "
                "import a shorter span"
            )

    def _mark_seen(self, content: object) -> bool:
        return self._seen.add_and_return_whether_known(
            blake2b(msgspec.json.encode(content), digest_size=8, key=_KEY).digest()
        )

    def extend_span(self, start: int, end: int, bill: str = "") -> None:
        """
        Extend the days that the report covers, of one bill if it has a name. A day of another time zone covers the
        day with its date. Raises Damaged if the span is empty.
        """
        if start >= end:
            raise Damaged("a bucket ends before it starts")
        if self.asked is not None:
            start, end = max(start, self.asked[0]), min(end, self.asked[1])
            if start >= end:
                return
        first = day_of_bucket(start, end)
        after = first + DAY_S if LEAST_DAY_S <= end - start <= MOST_DAY_S else -(-end // DAY_S) * DAY_S
        covered = self.covers.get(bill, (first, after))
        self.covers[bill] = min(first, covered[0]), max(after, covered[1])

    def cover_bucket(self, start: int, end: int) -> None:
        """Extend the days that the report covers by a bucket. A day without all of its hours is covered in part."""
        self.extend_span(start, end)
        if end - start < LEAST_DAY_S:
            for day in day_starts(start, end):
                self._hours.setdefault(day, set()).add((max(start, day), min(end, day + DAY_S)))

    @property
    def days_in_part(self) -> frozenset[int]:
        return frozenset(
            day for day, buckets in self._hours.items() if sum(end - start for start, end in buckets) < DAY_S
        )

    def add_tokens(self, cell_fields: CellFields, kind: str, amount: Decimal | None) -> None:
        self._add_amounts(cell_fields, (TOKENS, kind, None), RowAmounts(amount or _NOTHING))

    def add_seats(self, cell_fields: CellFields, amount: Decimal | None) -> None:
        self._add_amounts(cell_fields, (SEATS, SEAT, None), RowAmounts(amount or _NOTHING))

    def add_requests(self, cell_fields: CellFields, amount: Decimal | None) -> None:
        self._add_amounts(cell_fields, (REQUESTS, "request", None), RowAmounts(amount or _NOTHING))

    def add_money(
        self, cell_fields: CellFields, kind: str, amount: Decimal | None, currency: str | None = "USD"
    ) -> None:
        self.add_amounts(cell_fields, kind, RowAmounts(amount or _NOTHING), currency)

    def add_amounts(
        self, cell_fields: CellFields, kind: str, amounts: RowAmounts, currency: str | None
    ) -> None:
        """
        Add an amount as billed, at list price, at negotiated price, and with prepaid fees spread over the
        usage that they cover.
        """
        code = (currency or "USD").upper()
        if not (len(code) == 3 and code.isascii() and code.isalpha()):
            raise Damaged("the currency is not a code of three letters")
        unit = USD if code == "USD" else code.lower()
        self._add_amounts(cell_fields, (unit, kind, code), amounts)

    def to_statement_rows(self, source: str, *, settled_until: float) -> tuple[StatementRow, ...]:
        """Return all cells as rows. A row is marked as not final if its bucket ends after `settled_until`."""
        return tuple(
            StatementRow(
                source=source,
                provider=bucket.provider,
                account=bucket.account,
                key=bucket.key,
                model=bucket.model,
                start=bucket.start,
                end=bucket.end,
                unit=unit,
                kind=kind,
                currency=currency,
                tier=bucket.tier,
                region=bucket.region,
                batch=bucket.batch,
                settled=not bucket.open and bucket.end <= settled_until,
                line_type=bucket.line_type,
                invoice_id=bucket.invoice_id,
                line_id=bucket.line_id,
                commitment_id=bucket.commitment_id,
                context=bucket.context,
                bill=bucket.bill,
                **amounts.map_amounts(_rounded_or_none)._asdict(),
            )
            for (bucket, unit, kind, currency), amounts in self._cells.items()
        )

    def _add_amounts(
        self, cell_fields: CellFields, amount_key: tuple[str, str, str | None], amounts: RowAmounts
    ) -> None:
        if cell_fields.start >= cell_fields.end:
            raise Damaged("a bucket ends before it starts")
        if self.asked is not None:
            if any(cell_fields.start < edge < cell_fields.end for edge in self.asked):
                raise Damaged("the row covers a longer time than was requested")
            if not self.asked[0] <= cell_fields.start < self.asked[1]:
                return
        if any(amounts):
            self._row.append(((cell_fields, *amount_key), amounts))


def _rounded_or_none(amount: Decimal | None) -> Decimal | None:
    return None if amount is None else storable_amount(amount)


def credit_or_adjustment_kind(amount: Decimal) -> str:
    """Return an adjustment's kind: "credit", or "adjustment" if it raises the cost."""
    return "adjustment" if amount > 0 else "credit"
