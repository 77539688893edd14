"""
FOCUS files of a data lake: a delivery's hourly charges, one file per day. Pure.

Charges add up over files. `x_Records` has the record numbers. Digest and numbers come from the records, so a
repeated delivery is recognized.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from itertools import groupby
from pathlib import Path
from typing import Any, Final

from exporters.focus import charges as focus
from exporters.focus.charges import Charge, ChargeSums
from exporters.lake import manifest
from exporters.lake.columns import COUNT, MONEY, TAGS, TIME, WORD, LakeRow
from exporters.lake.names import DeliveryRange
from exporters.lake.partitions import GROUP_ROWS, DeliveryFiles, FileFormat, LakeFileSums, footer_metadata
from spool import money
from spool.log.values import LogEntry
from spool.record import CURRENCY

_MOST_MONEY: Final = 10**11 * money.UNIT  # limit of an amount, as for other money
_COSTS: Final = ("BilledCost", "ContractedCost", "EffectiveCost", "ListCost")
_TIMES: Final = ("BillingPeriodEnd", "BillingPeriodStart", "ChargePeriodEnd", "ChargePeriodStart")
_COUNTS: Final = (
    "ConsumedQuantity",
    "PricingQuantity",
    "x_CacheReadTokens",
    "x_CacheWriteTokens",
    "x_CacheWriteOneHourTokens",
    "x_Calls",
    "x_InputTokens",
    "x_OutputTokens",
)
TYPES: Final[Mapping[str, str]] = {
    **dict.fromkeys(focus.COLUMNS, WORD),
    **dict.fromkeys(_COSTS, MONEY),
    **dict.fromkeys(_TIMES, TIME),
    **dict.fromkeys(_COUNTS, COUNT),
    "Tags": TAGS,
}
_MODELS: Final = frozenset({"request_model", "response_model", "model"})


class FocusFiles(DeliveryFiles):
    """The files of a delivery with its charges as rows."""

    focus = focus.VERSION

    def __init__(
        self,
        directory: Path,
        delivery_range: DeliveryRange,
        *,
        route: str,
        format: FileFormat,
        leave_out: Sequence[str] = (),
        **others: Any,
    ) -> None:
        super().__init__(directory, delivery_range, route=route, format=format, leave_out=leave_out, **others)
        self._charges = ChargeSums(_field_remover(leave_out) if leave_out else None)
        self._has_types = format.name == "focus-parquet"  # the other format has only texts

    def add_entry(self, entry: LogEntry) -> None:
        super().add_entry(entry)
        self._charges.add_records(entry, range(len(entry.records)))

    def _collect_rows(self, rows: Sequence[LakeRow]) -> None:
        """Only count the records, because the files contain charges instead."""
        if rows:
            self._sums.add_rows([row.values for row in rows])

    def _finish_files(self, digest: str) -> list[manifest.LakeFile]:
        self._charges.add_charges(self._charges.summed_rows())
        days = groupby(self._charges.sorted_charges(), lambda charge: charge.start.date().isoformat())
        return [self._write_file(date, list(charges), digest) for date, charges in days]

    def _write_file(self, date: str, charges: Sequence[Charge], digest: str) -> manifest.LakeFile:
        path = self._directory / f"{date}.{self._format.ending}"
        file = self._format.open(path, TYPES)
        for start in range(0, len(charges), GROUP_ROWS):
            file.add_rows([self._charge_values(charge) for charge in charges[start : start + GROUP_ROWS]])
            file.write_group()
        file.close(
            footer_metadata(self._series, route=self._route, digest=digest) | {"focus.version": self.focus}
        )
        return self._describe_file(date, path, _sum_charges(charges))

    def _charge_values(self, charge: Charge) -> tuple[Any, ...]:
        charge = replace(charge, numbers=f"{self._series.first}-{self._series.last}")
        row = focus.charge_row(charge, account=focus.ACCOUNT)
        if not self._has_types:
            return tuple(row[name] for name in TYPES)
        return tuple(_parse_value(type, row[name]) for name, type in TYPES.items())


def _parse_value(type: str, text: str) -> Any:
    if not text:
        return None
    if type == MONEY:
        units = money.text_to_units(text)
        return units if -_MOST_MONEY < units < _MOST_MONEY else None
    if type == TIME:
        return int(datetime.fromisoformat(text).timestamp()) * 1_000_000
    if type == COUNT:
        return int(text)
    return list(json.loads(text).items()) if type == TAGS else text


def _sum_charges(charges: Iterable[Charge]) -> LakeFileSums:
    """Return the sums of charges for a manifest. `spend`: only dollars."""
    sums = LakeFileSums()
    for charge in charges:
        at = int(charge.start.timestamp()) * 1_000_000
        sums.rows += 1
        sums.calls += charge.calls
        sums.spend += money.text_to_units(charge.cost) if charge.currency == CURRENCY else 0
        sums.input_tokens += charge.input_tokens
        sums.output_tokens += charge.output_tokens
        sums.first_at = at if sums.first_at is None else min(sums.first_at, at)
        sums.last_at = max(sums.last_at, at)
    return sums


def _field_remover(left_out: Collection[str]) -> Callable[[Charge], Charge]:
    nothing: dict[str, Any] = {
        name: None for name in ("provider", "team", "region", "cost_source") if name in left_out
    }
    if _MODELS & set(left_out):
        nothing["model"] = None

    def remove_fields(charge: Charge) -> Charge:
        tags = {name: value for name, value in charge.tags.items() if name not in left_out}
        return replace(charge, tags=tags, **nothing)

    return remove_fields
