"""
AI costs as FOCUS rows (CSV). Pure.

There is a row per hour, or day, and set of dimensions. Every mandatory column is included; an empty field is
null, times are UTC, and numbers are plain decimals. Other columns have the prefix `x_`. Values that Tollhouse
does not know, such as commitments, are null or left out, never guessed.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from decimal import Context, Decimal, localcontext
from functools import partial
from itertools import chain, groupby
from typing import Any, Final, NamedTuple

from exporters.batch import map_with_pauses
from spool import money
from spool.ledger.repricing import LinesOf, SumLine, join_price_lines, row_price_lines
from spool.ledger.sums import COUNTS, Dimensions, HourlySums, Measures, start_hour_or_arrival_hour
from spool.log.values import LogEntry
from spool.meters import METERS, quantity_from_millionths
from spool.printable import csv_lines
from spool.providers import provider_display_name
from spool.record import CURRENCY, Correction, Record, UsageMetric

# The first column must be a text: the repair of a file takes a valid JSON last line as complete, such as a
# number that was cut.
_ALL = (
    "BillingAccountId", "BilledCost", "BillingAccountName", "BillingCurrency", "BillingPeriodEnd",
    "BillingPeriodStart", "ChargeCategory", "ChargeClass", "ChargeDescription", "ChargeFrequency",
    "ChargePeriodEnd", "ChargePeriodStart", "ConsumedQuantity", "ConsumedUnit", "ContractedCost",
    "EffectiveCost", "HostProviderName", "InvoiceIssuerName", "ListCost", "PricingCategory",
    "PricingCurrency", "PricingQuantity", "PricingUnit", "ProviderName", "PublisherName", "RegionId",
    "RegionName", "ResourceId", "ResourceName", "ResourceType", "ServiceCategory", "ServiceName",
    "ServiceProviderName", "ServiceSubcategory", "SkuId", "SkuMeter", "SubAccountId", "SubAccountName",
    "Tags", "x_CacheReadTokens", "x_CacheWriteTokens", "x_CacheWriteOneHourTokens", "x_Calls",
    "x_Corrects", "x_CostSource", "x_InputTokens", "x_OutputTokens", "x_Records",
)  # fmt: skip
_SINCE_1_3 = ("HostProviderName", "ServiceProviderName")
_UNTIL_1_3 = ("ProviderName", "PublisherName")
COLUMNS = tuple(name for name in _ALL if name not in _SINCE_1_3)
_NOW = tuple(name for name in _ALL if name not in _UNTIL_1_3)
# The columns of each version, without those for invoices, contracts, shared costs, credentials and SKU
# prices, which Tollhouse does not know. Version 1.5 is a draft that renames no column.
VERSIONS: Mapping[str, Sequence[str]] = {"1.2": COLUMNS, "1.3": _ALL, "1.4": _NOW, "1.5": _NOW}
VERSION = "1.2"
# The columns of exports by command, which have an invoice, unlike files that are written while calls arrive.
EXPORTED: Mapping[str, Sequence[str]] = {
    version: sorted((*names, "InvoiceId"), key=lambda name: name.startswith("x_"))
    for version, names in VERSIONS.items()
}
ACCOUNT = "tollhouse"  # account in the rows, because no report names the billed account
UNKNOWN = "Unknown"
COUNTED = tuple(name for name in COUNTS if name != "reasoning_tokens")
EXACT = Context(prec=100)
HOUR = timedelta(hours=1)
TAGS = ("user", "api_key", "device", "source", "status")
_COSTS: Final = ("BilledCost", "ContractedCost", "EffectiveCost", "ListCost")
_TOTALS: Final = (
    "x_CacheReadTokens",
    "x_CacheWriteTokens",
    "x_CacheWriteOneHourTokens",
    "x_Calls",
    "x_InputTokens",
    "x_OutputTokens",
)
# Units of meters. Other meters count pieces, which FOCUS calls requests.
_UNITS: Final = {
    "tokens": "Tokens",
    "seconds": "Seconds",
    "images": "Images",
    "pixels": "Pixels",
    "characters": "Characters",
    "pages": "Pages",
    "results": "Results",
}
_REQUESTS: Final = "Requests"


@dataclass(frozen=True, slots=True, kw_only=True)
class Charge:
    """The charge of one hour, or of a period of `length`. Money is decimal text."""

    start: datetime
    cost: str
    list_cost: str | None
    provider: str | None
    model: str | None
    team: str | None
    tags: Mapping[str, str] = field(default_factory=dict)
    cost_source: str | None = None
    currency: str = CURRENCY
    region: str | None = None
    calls: int = 0
    input_tokens: int = 0
    output_tokens: int = 0
    cache_read_tokens: int = 0
    cache_write_tokens: int = 0
    cache_write_1h_tokens: int = 0
    numbers: str = ""  # numbers of the charge's records, "" if it is made from sums
    corrects: str = ""  # id of the record that a correction changes
    # when a change of usage in a past month became known
    billed_in: datetime | None = None
    length: timedelta = HOUR
    invoice: str = ""

    lines: tuple[SumLine, ...] = ()  # price lines that add up to the cost; each becomes a row

    @property
    def quantity_and_unit(self) -> tuple[int, str]:
        """Return a charge's quantity and its unit: tokens, or calls for usage without tokens."""
        tokens = self.input_tokens + self.output_tokens
        return (tokens, "Tokens") if tokens else (self.calls, "Requests")


def csv_header(columns: Sequence[str] = COLUMNS) -> bytes:
    return csv_lines([columns]).encode()


def charge_lines(
    charges: Iterable[Charge], *, account: str = ACCOUNT, columns: Sequence[str] = COLUMNS
) -> bytes:
    rows = (charge_rows(charge, account=account) for charge in charges)
    return encode_csv_rows(chain.from_iterable(rows), columns=columns)


def encode_csv_rows(rows: Iterable[Mapping[str, str]], *, columns: Sequence[str] = COLUMNS) -> bytes:
    return csv_lines([row[name] for name in columns] for row in rows).encode()


def charge_rows(charge: Charge, *, account: str) -> list[dict[str, str]]:
    row = charge_row(charge, account=account)
    return list(split_focus_row_by_price(row, charge.lines)) if charge.lines else [row]


def charge_row(charge: Charge, *, account: str) -> dict[str, str]:
    """
    Return the FOCUS row of a charge. "" is null.

    Money paid back for a call is a credit without usage. A change of usage in a past month is a correction,
    billed when it became known. In the current month it is usage, perhaps negative.
    """
    month = charge.billed_in or _month_start(charge.start)
    quantity, unit = charge.quantity_and_unit
    is_change = bool(charge.corrects) or quantity < 0 or not charge.calls
    is_credit = Decimal(charge.cost) < 0 and not is_change
    provider = provider_display_name(charge.provider) if charge.provider else UNKNOWN
    model = charge.model or ""
    return {
        "BilledCost": charge.cost,
        "BillingAccountId": account,
        "BillingAccountName": "",
        "BillingCurrency": charge.currency,
        "BillingPeriodEnd": time_text(month_after(month)),
        "BillingPeriodStart": time_text(month),
        "ChargeCategory": "Credit" if is_credit else "Usage",
        "ChargeClass": "Correction" if charge.billed_in else "",
        "ChargeDescription": f"AI usage of {model or 'an unknown model'}",
        "ChargeFrequency": "One-Time" if is_credit else "Usage-Based",
        "ChargePeriodEnd": time_text(charge.start + charge.length),
        "ChargePeriodStart": time_text(charge.start),
        "ConsumedQuantity": "" if is_credit or not quantity else str(quantity),
        "ConsumedUnit": "" if is_credit or not quantity else unit,
        "ContractedCost": charge.cost,
        "EffectiveCost": charge.cost,
        "HostProviderName": provider,  # no report states who hosts the models
        "InvoiceId": charge.invoice,
        "InvoiceIssuerName": provider,
        "ListCost": charge.cost if charge.list_cost is None or is_credit else charge.list_cost,
        "PricingCategory": "" if is_credit else "Standard",
        "PricingCurrency": charge.currency,
        "PricingQuantity": "" if is_credit else str(quantity),
        "PricingUnit": "" if is_credit else unit,
        "ProviderName": provider,
        "PublisherName": provider,
        "RegionId": charge.region or "",
        "RegionName": charge.region or "",
        "ResourceId": model,
        "ResourceName": model,
        "ResourceType": "Model" if model else "",
        "ServiceCategory": "AI and Machine Learning",
        "ServiceName": f"{provider} API",
        "ServiceProviderName": provider,
        "ServiceSubcategory": "Generative AI",
        "SkuId": f"{charge.provider}/{model}" if charge.provider and model else "",
        "SkuMeter": "" if is_credit or not (charge.provider and model) else unit,
        "SubAccountId": charge.team or "",
        "SubAccountName": charge.team or "",
        "Tags": json.dumps(dict(charge.tags), sort_keys=True, ensure_ascii=False) if charge.tags else "",
        "x_CacheReadTokens": str(charge.cache_read_tokens),
        "x_CacheWriteTokens": str(charge.cache_write_tokens),
        "x_CacheWriteOneHourTokens": str(charge.cache_write_1h_tokens),
        "x_Calls": str(charge.calls),
        "x_Corrects": charge.corrects,
        "x_CostSource": charge.cost_source or "",
        "x_InputTokens": str(charge.input_tokens),
        "x_OutputTokens": str(charge.output_tokens),
        "x_Records": charge.numbers,
    }


def split_by_currency(charge: Charge, amounts_by_foreign_currency: Mapping[str, str]) -> list[Charge]:
    """Return one charge per currency. Only the first has the usage."""
    if not amounts_by_foreign_currency:
        return [charge]
    of_each = [(CURRENCY, charge.cost)] if Decimal(charge.cost) else []
    of_each += sorted(amounts_by_foreign_currency.items())
    nothing: dict[str, Any] = {**dict.fromkeys(COUNTED, 0), "list_cost": None}
    return [
        replace(charge, currency=currency, cost=cost, **({"list_cost": None} if not index else nothing))
        for index, (currency, cost) in enumerate(of_each)
    ]


DIMENSIONS = ("provider", "model", "team", "cost_source", "region", *TAGS)


class ChargeSums:
    """
    Sums of charges by hour and exported dimensions, without duplicates stored for reference.

    A correction is a charge of its own with the id of the changed record. `hide`: removes what the file must
    not contain. With `price_lines`, calls without price lines are separate charges.
    """

    def __init__(
        self, hide: Callable[[Charge], Charge] | None = None, *, price_lines: LinesOf | None = None
    ) -> None:
        self._hide = hide
        self._price_lines = price_lines
        self._sums: dict[_CorrectionKey, HourlySums] = defaultdict(HourlySums)
        self._charges: dict[tuple[object, ...], Charge] = {}

    def add_records(self, entry: LogEntry, places: Sequence[int]) -> None:
        for separate_key, group in groupby(
            places, lambda index: _correction_key(entry.records[index], entry.committed_at)
        ):
            chosen = list(group)
            records = [entry.records[index] for index in chosen]
            self._sums[separate_key].add_entries(
                [replace(entry, first=entry.first + chosen[0], records=records)]
            )

    def summed_rows(self) -> Iterator[_SummedRow]:
        for separate_key, sums in self._sums.items():
            for row in sums.hourly_rows():
                yield separate_key, *row

    def add_charges(self, rows: Iterable[_SummedRow]) -> None:
        for separate_key, hour, key, row in rows:
            meters = self._sums[separate_key].meters.get(hour, {}).get(key) or {}
            whole = _charge_from_sums(hour, key, row)
            if self._price_lines is not None and separate_key == _CorrectionKey():
                whole = replace(whole, lines=row_price_lines(self._price_lines, hour, key, row, meters))
            for charge in split_by_currency(whole, _amounts_by_foreign_currency(meters) if meters else {}):
                charge = charge if self._hide is None else self._hide(charge)
                self._add_charge(separate_key, hour, charge)

    def _add_charge(self, correction_key: _CorrectionKey, hour: int, charge: Charge) -> None:
        charges = self._charges
        shown = (charge.provider, charge.model, charge.team, charge.cost_source, charge.region)
        has_lines = bool(charge.lines)
        key = (*correction_key, hour, charge.currency, has_lines, *shown, *sorted(charge.tags.items()))
        separated = replace(charge, corrects=correction_key.corrects, billed_in=correction_key.billed_in)
        charges[key] = _add_charges(charges[key], separated) if key in charges else separated
        if correction_key.corrects and is_empty(charges[key]):
            del charges[key]

    def sorted_charges(self) -> list[Charge]:
        """Return the charges by time, provider, model, currency and corrected record."""
        return sorted(
            self._charges.values(),
            key=lambda charge: (
                charge.start,
                charge.provider or "",
                charge.model or "",
                charge.currency,
                charge.corrects,
            ),
        )


async def sum_charges(entries: Sequence[LogEntry], price_lines: LinesOf | None = None) -> list[Charge]:
    sums = ChargeSums(price_lines=price_lines)
    for entry in entries:
        await map_with_pauses(range(len(entry.records)), partial(sums.add_records, entry))
    await map_with_pauses(list(sums.summed_rows()), sums.add_charges)
    return sums.sorted_charges()


class _CorrectionKey(NamedTuple):
    """
    The parts of a charge's key besides the dimensions: the corrected record's id, and the month in which a
    late change is billed. Both are empty for calls.
    """

    corrects: str = ""
    billed_in: datetime | None = None


_SummedRow = tuple[_CorrectionKey, int, Dimensions, Measures]


def _correction_key(record: Record | None, committed_at: float) -> _CorrectionKey:
    """
    Return the id of the record that a correction changes. For a change of usage in an ended month, also
    return the month in which it became known.
    """
    if isinstance(record, Correction):
        corrects = record.corrects.hex()
    elif isinstance(record, UsageMetric) and Decimal(record.value) < 0:
        corrects = ""
    else:
        return _CorrectionKey()
    used_in = _month_start(
        datetime.fromtimestamp(start_hour_or_arrival_hour(record.start_time, committed_at), UTC)
    )
    known_in = _month_start(datetime.fromtimestamp(committed_at, UTC))
    return _CorrectionKey(corrects, known_in if used_in < known_in else None)


def _amounts_by_foreign_currency(meters: Mapping[str, int]) -> Mapping[str, str]:
    from spool.currencies import charge_units_by_currency  # most charges have no meters

    return {
        currency: money.units_to_text(units)
        for currency, units in charge_units_by_currency(meters.items()).items()
    }


def _add_charges(first: Charge, second: Charge) -> Charge:
    lists = [charge.cost if charge.list_cost is None else charge.list_cost for charge in (first, second)]
    has_list_cost = first.list_cost is not None or second.list_cost is not None
    return replace(
        first,
        cost=_add_decimals(first.cost, second.cost),
        list_cost=_add_decimals(*lists) if has_list_cost else None,
        lines=join_price_lines(first.lines, second.lines),
        **{name: getattr(first, name) + getattr(second, name) for name in COUNTED},
    )


def is_empty(charge: Charge) -> bool:
    return not Decimal(charge.cost) and not any(getattr(charge, name) for name in COUNTED)


def _add_decimals(first: str, second: str) -> str:
    with localcontext(EXACT):
        return format(Decimal(first) + Decimal(second), "f")


def _charge_from_sums(hour: int, key: Dimensions, row: Measures) -> Charge:
    reported, estimated = row[len(COUNTS) : len(COUNTS) + 2]
    is_spend = key.status != "cached"
    cost = {"reported": reported, "estimated": estimated}.get(key.cost_source, 0) if is_spend else 0
    calls, input_tokens, output_tokens, cache_read, cache_write, _, cache_write_1h = row[: len(COUNTS)]
    return Charge(
        start=datetime.fromtimestamp(hour, UTC),
        cost=money.units_to_text(cost),
        list_cost=money.units_to_text(estimated) if estimated and is_spend else None,
        provider=key.provider,
        model=key.model,
        team=key.team,
        tags={name: value for name in TAGS if (value := getattr(key, name))},
        cost_source=key.cost_source,
        region=key.region,
        calls=calls,
        input_tokens=input_tokens,
        output_tokens=output_tokens,
        cache_read_tokens=cache_read,
        cache_write_tokens=cache_write,
        cache_write_1h_tokens=cache_write_1h,
    )


def _month_start(moment: datetime) -> datetime:
    return moment.astimezone(UTC).replace(day=1, hour=0, minute=0, second=0, microsecond=0)


def month_after(month: datetime) -> datetime:
    return (month + timedelta(days=32)).replace(day=1)


def time_text(moment: datetime) -> str:
    return moment.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def split_focus_row_by_price(
    row: Mapping[str, str], price_lines: Sequence[SumLine]
) -> Iterator[dict[str, str]]:
    """
    Yield a row per price line (a quantity with one price). Only the first has the totals of the calls.

    Lines come from the current price list, and are used only if they add up exactly to the recorded estimate.
    So reported costs, estimates by another price list, and corrections have no lines.
    """
    totals: Mapping[str, str] = {}
    for line in price_lines:
        quantity, unit = str(quantity_from_millionths(line.quantity)), focus_unit(line.meter)
        costs = dict.fromkeys(_COSTS, money.units_to_text(line.amount))
        of_line = {
            "ChargeDescription": f"{row['ChargeDescription']}: {line.meter}",
            "ConsumedQuantity": quantity,
            "ConsumedUnit": unit,
            "PricingQuantity": quantity,
            "PricingUnit": unit,
            "SkuMeter": line.meter if row["SkuMeter"] else "",
        }
        yield {**row, **costs, **of_line, **totals}
        totals = dict.fromkeys(_TOTALS, "0")


def focus_unit(meter: str) -> str:
    if meter in METERS:
        return _UNITS.get(METERS[meter].unit, _REQUESTS)
    return "Tokens" if meter.endswith("_tokens") else _REQUESTS
