"""
FOCUS 1.x, the common cost and usage table of clouds and vendors, limited to AI.

A correction counts in the bill that contains it, and applies to the calls of its charge period. In AWS's
exports, marketplace charges have a billed cost of 0, so their effective cost is used. Otherwise, the
effective cost is the bill with commitment fees moved to the usage that they cover.
"""

from __future__ import annotations

from gateway.bills.statements import cloud_meters
from gateway.bills.statements.cells import CellFields, ReportSumCollector, credit_or_adjustment_kind
from gateway.bills.statements.source import DAY_S, CsvTable, ReportSource, bill_period
from gateway.bills.statements.sources import aws, azure, google
from gateway.bills.statements.values import (
    Damaged,
    Row,
    epoch_seconds,
    read_number_field,
    read_text_field,
    require_value,
)
from spool import providers
from spool.statements import CORRECTION, COVERED, PURCHASE, REFUND, UNUSED, RowAmounts

AI = "ai and machine learning"
_SELLERS = {
    "aws": "aws.bedrock",
    "amazon web services": "aws.bedrock",
    "microsoft": "azure.ai.openai",
    "microsoft azure": "azure.ai.openai",
    "azure": "azure.ai.openai",
    "google cloud": "gcp.vertex_ai",
    "google": "gcp.vertex_ai",
    "google cloud platform": "gcp.vertex_ai",
}
_FEE = "throughput"
_CATEGORIES = {"tax": "tax", "credit": "credit", "purchase": _FEE}
_CORRECTED = {"usage": CORRECTION, "adjustment": CORRECTION, "credit": REFUND}
_STATUSES = {"used": COVERED, "unused": UNUSED}


def _read_table(table: CsvTable, sum_collector: ReportSumCollector) -> None:
    for line, row in table.rows:
        with sum_collector.collect_row(f"line {line}", row):
            _add_row(row, sum_collector)


def _add_row(row: Row, sum_collector: ReportSumCollector) -> None:
    start = epoch_seconds(row, "chargeperiodstart")
    end = epoch_seconds(row, "chargeperiodend")
    bill = ""
    if read_text_field(row, "billingperiodstart") is not None:
        period = bill_period(epoch_seconds(row, "billingperiodstart"), epoch_seconds(row, "billingperiodend"))
        bill = period.name
        sum_collector.extend_span(period.start, period.end, bill)
    else:
        sum_collector.extend_span(start, end)
    account = read_text_field(row, "billingaccountid")
    if account is not None:
        sum_collector.accounts.add(account)
    provider = _billing_provider(row)
    if provider is None:
        return
    meter = (
        read_text_field(row, "skumeter")
        or read_text_field(row, "x_skumetername")
        or read_text_field(row, "chargedescription")
        or ""
    )
    meter_words = cloud_meters.split_words(meter)
    tier = cloud_meters.find_tier(meter_words) if meter_words else None
    bucket = CellFields(
        provider=provider,
        start=start,
        end=end,
        account=read_text_field(row, "subaccountid"),
        key=read_text_field(row, "x_apikey") or read_text_field(row, "resourceid"),
        model=read_text_field(row, "x_model")
        or _row_model(row, provider, meter)
        or read_text_field(row, "skuid"),
        tier=tier,
        region=read_text_field(row, "regionid"),
        batch=None if tier is None else tier == "batch",
        line_type=_line_type(row),
        invoice_id=read_text_field(row, "invoiceid"),
        commitment_id=read_text_field(row, "commitmentdiscountid"),
        bill=bill,
    )
    billed = read_number_field(row, "billedcost")
    effective = read_number_field(row, "effectivecost")
    currency = read_text_field(row, "billingcurrency")
    category = _charge_category(row)
    cost = require_value(billed, "billedcost")
    is_covered = bucket.commitment_id is not None
    if not cost and effective and provider == "aws.bedrock" and category == "usage" and not is_covered:
        cost = effective
    paid = RowAmounts(
        cost, read_number_field(row, "listcost"), read_number_field(row, "contractedcost"), effective
    )
    unit = read_text_field(row, "consumedunit") or read_text_field(row, "pricingunit") or ""
    kind = cloud_meters.token_kind(meter_words) if "token" in unit.lower() else None
    whole = (
        "cost"
        if not meter_words or "token" in unit.lower()
        else cloud_meters.non_token_kind(unit, meter_words) or "other"
    )
    if bucket.line_type in (CORRECTION, REFUND):
        sum_collector.add_amounts(bucket, kind or (whole if category == "usage" else REFUND), paid, currency)
        return
    if category != "usage":
        kind = (
            credit_or_adjustment_kind(cost)
            if category == "adjustment"
            else _CATEGORIES.get(category, "other")
        )
        sum_collector.add_amounts(bucket, kind, paid, currency)
        return
    if bucket.line_type == UNUSED:
        sum_collector.add_amounts(bucket, _FEE, paid, currency)
        return
    if kind is None:
        sum_collector.add_amounts(bucket, whole, paid, currency)
        return
    quantity = read_number_field(row, "consumedquantity")
    if quantity is None:
        quantity = read_number_field(row, "pricingquantity")
    size = cloud_meters.tokens_per_unit(unit)
    if size is None:
        raise Damaged("consumedunit does not state the number of tokens per unit")
    sum_collector.add_tokens(
        bucket,
        kind,
        cloud_meters.quantity_to_tokens(require_value(quantity, "consumedquantity"), size, cost, "quantity"),
    )
    sum_collector.add_amounts(bucket, kind, paid, currency)


def _charge_category(row: Row) -> str:
    return (read_text_field(row, "chargecategory") or "usage").lower()


def _line_type(row: Row) -> str | None:
    """
    Return the type of a line other than plain usage, tax or credit. Corrected taxes and fees keep their type.
    """
    category = _charge_category(row)
    is_correction = (read_text_field(row, "chargeclass") or "").lower() == "correction"
    if is_correction and category in _CORRECTED:
        return _CORRECTED[category]
    if category != "usage":
        return PURCHASE if category == "purchase" else None
    return _STATUSES.get((read_text_field(row, "commitmentdiscountstatus") or "").lower())


def _row_model(row: Row, provider: str, meter: str) -> str | None:
    """Return the model as the cloud's own report names it. A SKU id names only a kind of tokens."""
    if provider == aws.PROVIDER:
        return aws.parse_model(
            read_text_field(row, "resourceid"),
            read_text_field(row, "servicename"),
            read_text_field(row, "x_usagetype") or meter,
        )
    if provider == azure.PROVIDER:
        return azure.parse_model(meter)
    return google.parse_model(meter) if provider == "gcp.vertex_ai" else None


def _billing_provider(row: Row) -> str | None:
    names = ("serviceprovidername", "providername", "invoiceissuername", "publishername")
    provider_name = next(
        (name for column in names if (name := read_text_field(row, column)) is not None), None
    )
    if provider_name is None:
        raise Damaged("ProviderName is missing")
    cloud = _SELLERS.get(provider_name.lower())
    if cloud is not None:
        return cloud if (read_text_field(row, "servicecategory") or "").lower() == AI else None
    return providers.canonical_provider_name(provider_name)


FOCUS = ReportSource(
    name="focus",
    title="FOCUS 1.x",
    settle_s=3 * DAY_S,
    in_parts=True,
    is_table=lambda table: table.has_columns("chargeperiodstart", "billedcost", "chargecategory"),
    read_table=_read_table,
)
