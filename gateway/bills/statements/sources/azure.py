"""
Azure's cost details, limited to Azure OpenAI and Foundry: one row per resource, meter and day.

The case of column names differs between agreements. Meter names follow no scheme, so single words are read. A
meter without a known token kind counts as money without tokens. The account is the resource, because the
report states no finer owner.
"""

from __future__ import annotations

import re
from dataclasses import replace
from decimal import Decimal

from gateway.bills.statements import cloud_meters
from gateway.bills.statements.cells import CellFields, ReportSumCollector, credit_or_adjustment_kind
from gateway.bills.statements.source import DAY_S, BillPeriod, CsvTable, ReportSource, bill_period, cover_row
from gateway.bills.statements.values import (
    Damaged,
    Row,
    epoch_seconds,
    read_number_field,
    read_text_field,
    require_value,
)
from spool.statements import EXACT, REFUND, RowAmounts

PROVIDER = "azure.ai.openai"
_SERVICES = ("openai", "foundry", "cognitive services", "cognitiveservices", "azure ai")
_CHARGES = {"refund": REFUND, "tax": "tax", "roundingadjustment": "rounding"}
_REGIONS = {
    "glbl": "global",
    "gl": "global",
    "global": "global",
    "dzone": "data_zone",
    "dz": "data_zone",
    "zone": "data_zone",
    "regnl": "regional",
    "rgnl": "regional",
    "regional": "regional",
}
# input tokens above which Azure bills a call under the meter of long contexts
_CONTEXTS = {"shortco": 0, "longco": 272_000}
_CAPACITY = frozenset({"provisioned", "ptu"})
# "image" is part of these names; in other meters it is a kind of token
_IMAGE_MODEL = re.compile(r"gpt[ -]image[ -][\d.]+([ -]mini)?")
# Words in the name of an Azure meter that are not part of the model's name.
_NO_MODEL = frozenset({
    *_REGIONS, "data", "batch", "flex", "pp", "priority", "cached", "cchd", "cd", "inp", "input", "inpt", "outp",
    "output", "opt", "outpt", "tokens", "token", "1m", "1k", "shortco", "longco", "aud", "audio", "img", "image",
    "cache", "read", "write",
})  # fmt: skip


def _read_table(table: CsvTable, sum_collector: ReportSumCollector) -> None:
    for line, row in table.rows:
        with sum_collector.collect_row(f"line {line}", row):
            _add_row(row, sum_collector)


def _add_row(row: Row, sum_collector: ReportSumCollector) -> None:
    start = epoch_seconds(row, "date")
    start -= start % DAY_S
    period = _bill_period(row)
    bill = cover_row(sum_collector, period, start, start + DAY_S)
    account = read_text_field(row, "billingaccountid")
    if account is not None:
        sum_collector.accounts.add(account)
    resource = read_text_field(row, "resourceid") or read_text_field(row, "instancename")
    meter = read_text_field(row, "metername") or ""
    if not _is_ai_service(row, resource):
        return
    meter_words = cloud_meters.split_words(meter)
    tier = cloud_meters.find_tier(meter_words)
    bucket = CellFields(
        provider=PROVIDER,
        start=start,
        end=start + DAY_S,
        account=resource,
        model=parse_model(meter),
        tier=tier,
        region=next((_REGIONS[word] for word in meter_words if word in _REGIONS), None),
        batch=tier == "batch",
        context=next((least for word, least in _CONTEXTS.items() if word in meter.lower()), None),
        invoice_id=read_text_field(row, "invoiceid"),
        commitment_id=read_text_field(row, "reservationid") or read_text_field(row, "benefitid"),
        bill=bill,
    )
    cost, currency, listed = _amount_currency_and_list_amount(row)
    paid = RowAmounts(cost, listed)
    charge = (read_text_field(row, "chargetype") or "usage").lower()
    rounding = read_number_field(row, "roundingadjustment")
    if rounding:
        sum_collector.add_money(bucket, "rounding", rounding, currency)
    unit = read_text_field(row, "unitofmeasure") or ""
    service = cloud_meters.service_kind(meter_words)
    is_reserved = service is None and ("hour" in unit.lower() or "ptu" in meter_words)
    kind = None if is_reserved or service else cloud_meters.token_kind(meter_words)
    if charge == REFUND:
        refunded = _refunded_time(row, start, period)
        if refunded is None:
            sum_collector.add_money(bucket, REFUND, cost, currency)
        else:
            refund = replace(bucket, line_type=REFUND, start=refunded[0], end=refunded[1])
            sum_collector.add_money(refund, kind or REFUND, cost, currency)
        return
    if charge != "usage":
        kind = (
            credit_or_adjustment_kind(cost) if charge == "adjustment" else _CHARGES.get(charge, "throughput")
        )
        sum_collector.add_amounts(bucket, kind, paid, currency)
        return
    if kind is None:
        usage_kind = cloud_meters.non_token_kind(unit, meter_words) or "other"
        sum_collector.add_amounts(bucket, "throughput" if is_reserved else usage_kind, paid, currency)
        return
    size = cloud_meters.tokens_per_unit(unit)
    if size is None:
        raise Damaged("unitofmeasure does not state the number of tokens per unit")
    quantity = require_value(read_number_field(row, "quantity"), "quantity")
    known = cost if currency in (None, "USD") else Decimal(0)
    sum_collector.add_tokens(bucket, kind, cloud_meters.quantity_to_tokens(quantity, size, known, "quantity"))
    sum_collector.add_amounts(bucket, kind, paid, currency)


def _bill_period(row: Row) -> BillPeriod | None:
    """Return the period of the bill, whose last day Azure states, or None if the row states none."""
    if read_text_field(row, "billingperiodstartdate") is None:
        return None
    last = epoch_seconds(row, "billingperiodenddate")
    return bill_period(epoch_seconds(row, "billingperiodstartdate"), last - last % DAY_S + DAY_S)


def _is_ai_service(row: Row, resource: str | None) -> bool:
    categories = [
        read_text_field(row, name) for name in ("metercategory", "metersubcategory", "consumedservice")
    ]
    names = " | ".join(label for label in (*categories, resource) if label)
    return any(service in names.lower() for service in _SERVICES)


def _refunded_time(row: Row, start: int, period: BillPeriod | None) -> tuple[int, int] | None:
    """
    Return the time of the refunded use: the service period, or a day outside the period of the bill. None if the row
    states neither.
    """
    if (
        read_text_field(row, "serviceperiodstartdate") is None
        or read_text_field(row, "serviceperiodenddate") is None
    ):
        is_of_bill = period is None or period.start <= start < period.end
        return None if is_of_bill else (start, start + DAY_S)
    start = epoch_seconds(row, "serviceperiodstartdate")
    last = epoch_seconds(row, "serviceperiodenddate")
    until = last - last % DAY_S + DAY_S
    if start >= until:
        raise Damaged("serviceperiodenddate is before serviceperiodstartdate")
    return start, until


def _amount_currency_and_list_amount(row: Row) -> tuple[Decimal, str | None, Decimal | None]:
    """
    Return the billed amount, its currency, and the amount at list prices. If the bill is in another currency
    but prices are in US dollars, all are in US dollars.
    """
    billing = (
        read_text_field(row, "billingcurrency")
        or read_text_field(row, "billingcurrencycode")
        or read_text_field(row, "currency")
    )
    cost = read_number_field(row, "costinbillingcurrency")
    if cost is None:
        cost = require_value(read_number_field(row, "cost"), "cost")
    in_prices = read_number_field(row, "costinpricingcurrency")
    if (
        billing not in (None, "USD")
        and read_text_field(row, "pricingcurrency") == "USD"
        and in_prices is not None
    ):
        return in_prices, "USD", read_number_field(row, "paygcostinusd")
    if billing not in (None, "USD") and read_text_field(row, "costinusd") is not None:
        in_dollars = require_value(read_number_field(row, "costinusd"), "costinusd")
        return EXACT.plus(in_dollars), "USD", read_number_field(row, "paygcostinusd")
    return cost, billing, read_number_field(row, "paygcostinbillingcurrency")


def parse_model(meter: str) -> str | None:
    """Return the model of a meter, or None for provisioned capacity, which serves any model."""
    if _CAPACITY.intersection(cloud_meters.split_words(meter)):
        return None
    if image_model := _IMAGE_MODEL.match(meter.lower()):
        return image_model[0].replace(" ", "-")
    model_words = [word for word in meter.replace("-", " ").split() if word.lower() not in _NO_MODEL]
    return "-".join(model_words).lower() or None


AZURE_COSTS = ReportSource(
    name="azure_costs",
    title="Azure cost details",
    settle_s=3 * DAY_S,
    in_parts=True,
    is_table=lambda table: (
        table.has_columns("metername", "date", "quantity") and not table.has_columns("chargeperiodstart")
    ),
    read_table=_read_table,
)
