"""A log in memory that ledger tests fill directly, and the recount that their sums must equal."""

from __future__ import annotations

import asyncio
import pickle
from collections import defaultdict
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass, replace
from decimal import Context, Decimal, localcontext
from typing import Any, Self

from gateway.intake.prices import PriceBook
from spool.ledger.repricing import Pricer
from spool.ledger.token_sums import TokenSum
from spool.log.values import LogEntry
from spool.record import NS, Correction, Inference, Record

HOUR = 3600
BEGIN = 1_790_000_000 // 86400 * 86400  # midnight (UTC) of the day on which the tests' calls begin


@dataclass
class FakeClock:
    at: float = BEGIN

    def now(self) -> float:
        return self.at

    def monotonic(self) -> float:
        return self.at


class FakePrices:
    """Base of price books that tests write. A ledger can store them and open them again."""

    def may_have_two_prices(self, total: TokenSum) -> bool:
        return False

    def encode_rate_card_and_overrides(self) -> tuple[bytes, bytes]:
        return b"", pickle.dumps(self)


def opened(card: bytes, own: bytes) -> Pricer:
    """Open a stored price book again."""
    book: Pricer = PriceBook.decode_rate_card_and_overrides(card, own) if card else pickle.loads(own)
    return book


class FakeLog:
    """The readers' part of a log: numbered entries, closed at once."""

    def __init__(self) -> None:
        self.entries: list[LogEntry] = []
        self._grown = asyncio.Event()
        self._read = asyncio.Event()
        self._read_upto = 0
        self._numbers: dict[bytes, int] = {}
        self._given = 1  # lower record numbers belong to the other log

    def add(self, records: Sequence[Record | None], *, at: float = BEGIN) -> None:
        entry = LogEntry(
            topic="ai-telemetry", first=self.lowest_open_number(), committed_at=at, records=list(records)
        )
        for number, record in enumerate(records, start=entry.first):
            if isinstance(record, Correction):
                record.corrects_number = self._numbers.get(record.corrects)
            elif isinstance(record, Inference):
                self._numbers[record.id] = number
        self.entries.append(entry)
        self._grown.set()

    @classmethod
    def of(cls, other: FakeLog, *, upto: int) -> Self:
        """Return a log with the first entries of another log."""
        log = cls()
        log.entries = other.entries[:upto]
        log._given = other.lowest_open_number()
        return log

    def forget_below(self, number: int) -> None:
        """Delete whole entries from the oldest end, as retention does."""
        self.entries = [entry for entry in self.entries if entry.last >= number]

    def lowest_open_number(self, topic: str = "ai-telemetry") -> int:
        return self.entries[-1].last + 1 if self.entries else 1

    def next_number(self, topic: str = "ai-telemetry") -> int:
        return self.lowest_open_number(topic)

    async def newest_number(self, topic: str) -> int:
        return max(self.lowest_open_number(topic), self._given)

    async def read(
        self, topic: str, first_number: int, last_number: int, **options: Any
    ) -> Sequence[LogEntry]:
        found = []
        for entry in self.entries:
            low, high = max(first_number, entry.first), min(last_number, entry.last)
            if low <= high:
                cut = entry.records[low - entry.first : high - entry.first + 1]
                found.append(replace(entry, first=low, records=cut))
        self._read_upto = max(self._read_upto, last_number)
        self._read.set()
        return found

    async def watermark_changes(self, topic: str) -> AsyncIterator[int]:
        while True:
            self._grown.clear()
            yield self.lowest_open_number()
            await self._grown.wait()

    async def wait_read(self, number: int) -> None:
        """Wait until a reader has requested this number."""
        while self._read_upto < number:
            self._read.clear()
            await self._read.wait()


def call(**fields: Any) -> Inference:
    values: dict[str, Any] = {
        "id": b"\0" * 16,
        "source": "litellm",
        "provider": "openai",
        "request_model": "gpt-4o",
        "start_time": BEGIN * NS,
        "input_tokens": 100,
        "output_tokens": 10,
        "estimated_cost": "0.00035",
        "cost_source": "estimated",
    }
    return Inference(**{**values, **fields})


Group = tuple[Any, ...]


def recount(log: FakeLog, *dimensions: str) -> dict[Group, tuple[int, int, int, Decimal, Decimal]]:
    """
    Return calls, input and output tokens, counted cost and saved money by (hour, dimensions...), by brute force.
    """
    totals: dict[Group, list[Any]] = defaultdict(lambda: [0, 0, 0, Decimal(0), Decimal(0)])
    with localcontext(Context(prec=60)):
        for entry in log.entries:
            for record in entry.records:
                if isinstance(record, Inference):
                    changes = [(record, 1)]
                elif isinstance(record, Correction):
                    changes = [(record.after, 1), (record.before, -1)]
                else:
                    continue
                for each, sign in changes:
                    if not each.shadow:
                        _count(totals, entry, each, sign, dimensions)
    return {group: tuple(values) for group, values in totals.items()}


def _count(
    totals: dict[Group, list[Any]], entry: LogEntry, record: Inference, sign: int, dimensions: Sequence[str]
) -> None:
    seconds = entry.committed_at if record.start_time is None else record.start_time // NS
    group = (int(seconds) // HOUR * HOUR, *(_value(record, name) for name in dimensions))
    counted = {"reported": record.cost, "estimated": record.estimated_cost}.get(record.cost_source)
    cached = record.status == "cached"
    totals[group][0] += sign
    totals[group][1] += sign * (record.input_tokens or 0)
    totals[group][2] += sign * (record.output_tokens or 0)
    totals[group][3] += sign * Decimal(0 if cached or counted is None else counted)
    totals[group][4] += sign * Decimal(record.estimated_cost or 0) if cached else 0


def recount_meter(log: FakeLog, meter: str, *dimensions: str) -> dict[Group, Decimal]:
    """
    Return the quantity of a meter by (hour, dimensions...), without calls that a gateway's cache answered,
    by brute force.
    """
    totals: dict[Group, Decimal] = defaultdict(Decimal)
    for entry in log.entries:
        for record in entry.records:
            if isinstance(record, Inference) and not record.shadow and record.status != "cached":
                seconds = entry.committed_at if record.start_time is None else record.start_time // NS
                group = (int(seconds) // HOUR * HOUR, *(_value(record, name) for name in dimensions))
                totals[group] += Decimal(record.meters.get(meter, 0))
    return {group: quantity for group, quantity in totals.items() if quantity}


def _value(record: Inference, name: str) -> str | None:
    if name == "model":
        return record.response_model or record.request_model
    if name == "sender":
        return record.sender_key
    return record.tags.get("service") if name == "tag:service" else getattr(record, name)
