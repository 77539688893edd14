"""
AWS reports, limited to Bedrock: lines of a Cost and Usage Report (CUR 2.0, and legacy CUR in both spellings)
and answers of Cost Explorer.

Marketplace models are services of their own ("Claude Sonnet 4.6 (Amazon Bedrock Edition)"), so a line is
identified by its service, usage type and resource. Three generations of names with different units are in use
at the same time.
"""

from __future__ import annotations

import re
from dataclasses import replace
from decimal import Decimal
from typing import NamedTuple

from gateway.bills.statements import cloud_meters
from gateway.bills.statements.cells import CellFields, ReportSumCollector
from gateway.bills.statements.source import DAY_S, CsvTable, ReportSource, StatementDocument, bill_period
from gateway.bills.statements.values import (
    Row,
    epoch_seconds,
    first_number,
    nested_object,
    object_list,
    parse_object_text,
    read_number_field,
    read_text_field,
    require_value,
)
from spool.statements import COVERED, EXACT, PURCHASE, REFUND, UNUSED, RowAmounts, sum_amounts

PROVIDER = "aws.bedrock"
_EDITION = "(Amazon Bedrock Edition)"
_MARKETPLACE = "MP:"
_RESERVED = ("ProvisionedThroughput", "ModelUnits", "Reserved", "TPM")
_REGION = re.compile(r"^(EU|[A-Z]{2,4}\d)-")
# Prefix of a usage type -> name of the region as calls report it.
_REGIONS = {
    "USE1": "us-east-1", "USE2": "us-east-2", "USW1": "us-west-1", "USW2": "us-west-2", "UGE1": "us-gov-east-1",
    "UGW1": "us-gov-west-1", "CAN1": "ca-central-1", "CAN2": "ca-west-1", "SAE1": "sa-east-1", "EU": "eu-west-1",
    "EUW1": "eu-west-1", "EUW2": "eu-west-2", "EUW3": "eu-west-3", "EUC1": "eu-central-1", "EUC2": "eu-central-2",
    "EUN1": "eu-north-1", "EUS1": "eu-south-1", "EUS2": "eu-south-2", "APN1": "ap-northeast-1",
    "APN2": "ap-northeast-2", "APN3": "ap-northeast-3", "APS1": "ap-southeast-1", "APS2": "ap-southeast-2",
    "APS3": "ap-south-1", "APS4": "ap-southeast-3", "MES1": "me-south-1", "MEC1": "me-central-1",
    "AFS1": "af-south-1", "ILC1": "il-central-1",
}  # fmt: skip
_MODEL_ARN = re.compile(r":(?:foundation-model|inference-profile|custom-model|provisioned-model)/(.+)$")
_CLASSIC = re.compile(
    r"^(?:[A-Z]{2,4}\d-)?(.+?)-(?:mantle-)?(?:cache-(?:read|write)-)?(?:input|output)-token", re.IGNORECASE
)
_DISCOUNT, _FEE = "discount", "throughput"
_TYPES = {
    "Tax": "tax",
    "Credit": "credit",
    "Refund": REFUND,
    "EdpDiscount": _DISCOUNT,
    "PrivateRateDiscount": _DISCOUNT,
    "BundledDiscount": _DISCOUNT,
    "RIFee": _FEE,
    "Fee": _FEE,
    "SavingsPlanRecurringFee": _FEE,
    "SavingsPlanUpfrontFee": _FEE,
}
# line type that cancels the on-demand cost of usage that a savings plan covers
_NEGATION = "SavingsPlanNegation"
_COVERED = {
    "DiscountedUsage": ("reservation_net_effective_cost", "reservation_effective_cost"),
    "SavingsPlanCoveredUsage": (
        "savings_plan_net_savings_plan_effective_cost",
        "savings_plan_savings_plan_effective_cost",
    ),
}
_COMMITMENTS = (
    "reservation_reservation_a_r_n",
    "reservation_reservation_arn",
    "savings_plan_savings_plan_a_r_n",
    "savings_plan_savings_plan_arn",
)
_NOTHING = Decimal(0)


def _is_bedrock(*names: str | None) -> bool:
    folded = " ".join(name for name in names if name).lower()
    return "bedrock" in folded or (_MARKETPLACE.lower() in folded and "token" in folded)


class _UsageLine(NamedTuple):
    """Usage of one type: quantity, unit and cost."""

    type: str
    quantity: Decimal | None
    unit: str
    paid: RowAmounts
    currency: str | None


def _token_kind(usage_type: str) -> str | None:
    meter_words = cloud_meters.split_words(usage_type)
    return cloud_meters.token_kind(meter_words) if {"token", "tokens"} & set(meter_words) else None


def _is_non_token_service_usage(usage_type: str) -> bool:
    return cloud_meters.service_kind(cloud_meters.split_words(usage_type)) is not None


def _non_token_kind(usage: _UsageLine) -> str:
    meter_words = cloud_meters.split_words(usage.type)
    return cloud_meters.non_token_kind(usage.unit, meter_words) or "other"


def _add_usage_amounts(sum_collector: ReportSumCollector, cell_fields: CellFields, usage: _UsageLine) -> None:
    kind = _token_kind(usage.type)
    if kind is None:
        is_reserved = any(word in usage.type for word in _RESERVED) and not _is_non_token_service_usage(
            usage.type
        )
        kind = _FEE if is_reserved else _non_token_kind(usage)
        sum_collector.add_amounts(cell_fields, kind, usage.paid, usage.currency)
        return
    is_marketplace = _MARKETPLACE in usage.type
    if kind == "cache_write" and is_marketplace:
        kind = "cache_write_5m"
    if usage.quantity is not None:
        size = cloud_meters.tokens_per_unit(usage.unit) or (1_000_000 if is_marketplace else 1000)
        cost = usage.paid.amount
        tokens = cloud_meters.quantity_to_tokens(usage.quantity, size, cost, "line_item_usage_amount")
        sum_collector.add_tokens(cell_fields, kind, tokens)
    sum_collector.add_amounts(cell_fields, kind, usage.paid, usage.currency)


def parse_region(usage_type: str) -> str | None:
    """
    Return the region's name as calls use it, the bill's prefix if the name is unknown, or None without a
    prefix. `global` stands for global endpoints.
    """
    if "global" in cloud_meters.split_words(usage_type):
        return "global"
    match = _REGION.match(usage_type)
    return _REGIONS.get(match[1], match[1]) if match else None


def parse_model(resource: str | None, service: str | None, usage_type: str) -> str | None:
    """Return the model named by the resource, else by the service, else by the usage type."""
    match = _MODEL_ARN.search(resource or "")
    if match is not None:
        return match[1]
    if service is not None and _EDITION in service:
        return service.replace(_EDITION, "").strip()
    classic = None if _MARKETPLACE in usage_type else _CLASSIC.match(usage_type)
    return classic[1].removesuffix("-mantle") if classic else None


def _read_table(table: CsvTable, sum_collector: ReportSumCollector) -> None:
    for line, row in table.rows:
        with sum_collector.collect_row(
            f"line {line}", row, is_identical_row_repeat=bool(row.get("identity_line_item_id"))
        ):
            _add_line(row, sum_collector)


def _add_line(row: Row, sum_collector: ReportSumCollector) -> None:
    usage_type = read_text_field(row, "line_item_usage_type") or ""
    resource = read_text_field(row, "line_item_resource_id")
    service = _product_name(row)
    bill = ""
    if read_text_field(row, "bill_billing_period_start_date") is not None:
        period = bill_period(
            epoch_seconds(row, "bill_billing_period_start_date"),
            epoch_seconds(row, "bill_billing_period_end_date"),
        )
        bill = period.name
        sum_collector.extend_span(period.start, period.end, bill)
    payer = read_text_field(row, "bill_payer_account_id")
    if payer is not None:
        sum_collector.accounts.add(payer)
    if not _is_bedrock(read_text_field(row, "line_item_product_code"), service, usage_type, resource):
        return
    start = epoch_seconds(row, "line_item_usage_start_date")
    end = epoch_seconds(row, "line_item_usage_end_date")
    end = max(end, start + 1)
    if not bill:
        sum_collector.extend_span(start, end)
    type = read_text_field(row, "line_item_line_item_type") or "Usage"
    is_refund = type == "Refund" or read_text_field(row, "bill_bill_type") == "Refund"
    tier = cloud_meters.find_tier(cloud_meters.split_words(usage_type))
    bucket = CellFields(
        provider=PROVIDER,
        start=start,
        end=end,
        account=read_text_field(row, "line_item_usage_account_id"),
        key=read_text_field(row, "line_item_iam_principal"),
        model=parse_model(resource, service, usage_type),
        tier=tier,
        region=parse_region(usage_type),
        batch=tier == "batch",
        invoice_id=read_text_field(row, "bill_invoice_id"),
        commitment_id=next((id for name in _COMMITMENTS if (id := read_text_field(row, name))), None),
        bill=bill,
    )
    if is_refund:
        _add_refund(row, bucket, usage_type, sum_collector)
    elif type in _TYPES or ("Discount" in type and type not in _COVERED):
        _add_fee(row, _TYPES.get(type, _DISCOUNT), bucket, sum_collector)
    else:
        _add_usage(row, type, bucket, usage_type, sum_collector)


def _product_name(row: Row) -> str | None:
    product = read_text_field(row, "product_product_name") or read_text_field(row, "product_servicename")
    if product is not None or read_text_field(row, "product") is None:
        return product
    named = parse_object_text(row, "product")
    return read_text_field(named, "product_name") or read_text_field(named, "servicename")


def _cost_and_discount(row: Row) -> tuple[Decimal, Decimal]:
    cost = read_number_field(row, "line_item_unblended_cost")
    net = read_number_field(row, "line_item_net_unblended_cost")
    if net is None:
        return require_value(cost, "line_item_unblended_cost"), _NOTHING
    return (net, _NOTHING) if cost is None else (cost, EXACT.subtract(net, cost))


def _add_usage(
    row: Row, type: str, cell_fields: CellFields, usage_type: str, sum_collector: ReportSumCollector
) -> None:
    (cost, discount), currency = _cost_and_discount(row), read_text_field(row, "line_item_currency_code")
    net = read_number_field(row, "line_item_net_unblended_cost")
    quantity = read_number_field(row, "line_item_usage_amount")
    paid = RowAmounts(cost, read_number_field(row, "pricing_public_on_demand_cost"), net)
    if type == _NEGATION:
        quantity = None
        paid = RowAmounts(cost, _NOTHING, _NOTHING, _NOTHING)
    elif type in _COVERED:
        effective = first_number(row, *_COVERED[type])
        paid = RowAmounts(cost, paid.amount_list, net if cost else None, effective)
    if type == _NEGATION or type in _COVERED:
        cell_fields = replace(cell_fields, line_type=COVERED)
    unit = read_text_field(row, "pricing_unit") or ""
    _add_usage_amounts(sum_collector, cell_fields, _UsageLine(usage_type, quantity, unit, paid, currency))
    sum_collector.add_money(_with_model_only(cell_fields), _DISCOUNT, discount, currency)


def _with_model_only(cell_fields: CellFields) -> CellFields:
    # group the discount by model only, because it applies to all usage of the model, whichever line states it
    return replace(cell_fields, key=None, tier=None, region=None, batch=None, line_type=None)


def _add_fee(row: Row, kind: str, cell_fields: CellFields, sum_collector: ReportSumCollector) -> None:
    """
    Add a line that is not usage. In effective cost, a commitment's fee is part of the usage that it covers.
    So its purchase has no effective cost, and its unused part is a separate cell.
    """
    (cost, discount), currency = _cost_and_discount(row), read_text_field(row, "line_item_currency_code")
    fee_bucket = replace(cell_fields, line_id=read_text_field(row, "identity_line_item_id"))
    paid = EXACT.add(cost, discount)
    unused = _unused_commitment_fee(row, cell_fields) if kind == _FEE else None
    if unused is None:
        sum_collector.add_money(fee_bucket, kind, paid, currency)
        return
    purchase = replace(fee_bucket, line_type=PURCHASE)
    sum_collector.add_amounts(purchase, kind, RowAmounts(paid, amount_effective=_NOTHING), currency)
    unused_bucket = replace(cell_fields, line_type=UNUSED)
    sum_collector.add_amounts(unused_bucket, kind, RowAmounts(_NOTHING, amount_effective=unused), currency)


def _unused_commitment_fee(row: Row, cell_fields: CellFields) -> Decimal | None:
    type = read_text_field(row, "line_item_line_item_type")
    if type in ("Fee", "SavingsPlanUpfrontFee"):
        return None if cell_fields.commitment_id is None else _NOTHING
    if type == "SavingsPlanRecurringFee":
        whole = read_number_field(row, "savings_plan_total_commitment_to_date")
        used = read_number_field(row, "savings_plan_used_commitment")
        return None if whole is None or used is None else EXACT.subtract(whole, used)
    names = ("unused_amortized_upfront_fee_for_billing_period", "unused_recurring_fee")
    parts = [first_number(row, f"reservation_net_{name}", f"reservation_{name}") for name in names]
    return None if None in parts else sum_amounts(part for part in parts if part is not None)


def _add_refund(
    row: Row, cell_fields: CellFields, usage_type: str, sum_collector: ReportSumCollector
) -> None:
    """Add a refund under the kind of usage that it refunds. Token counts are not reduced."""
    cost, discount = _cost_and_discount(row)
    kind = _token_kind(usage_type) or REFUND
    refund = replace(cell_fields, line_type=REFUND, line_id=read_text_field(row, "identity_line_item_id"))
    paid = EXACT.add(cost, discount)
    sum_collector.add_money(refund, kind, paid, read_text_field(row, "line_item_currency_code"))


_METRICS = ("NetUnblendedCost", "UnblendedCost", "NetAmortizedCost", "AmortizedCost")
_AMORTIZED = {"NetUnblendedCost": "NetAmortizedCost", "UnblendedCost": "AmortizedCost"}


def _read_document(document: StatementDocument, sum_collector: ReportSumCollector) -> None:
    for number_, page in enumerate(document.pages(), start=1):
        names = [
            str(definition.get("Key", ""))
            for definition in object_list(page.get("GroupDefinitions"), "GroupDefinitions")
        ]
        for result_number, result in enumerate(
            object_list(page.get("ResultsByTime"), "ResultsByTime"), start=1
        ):
            where = f"page {number_}, result {result_number}"
            groups = object_list(None, "Groups")
            with sum_collector.collect_row(where):
                period = nested_object(result, "TimePeriod")
                sum_collector.cover_bucket(epoch_seconds(period, "Start"), epoch_seconds(period, "End"))
                groups = object_list(result.get("Groups"), "Groups")
            for group_number, group in enumerate(groups, start=1):
                with sum_collector.collect_row(
                    f"{where}, group {group_number}",
                    (names, result.get("TimePeriod"), group),
                    is_identical_row_repeat=True,
                ):
                    _add_group(
                        group,
                        names,
                        nested_object(result, "TimePeriod"),
                        result.get("Estimated") is True,
                        sum_collector,
                    )


def _add_group(
    group: Row, names: list[str], period: Row, is_estimated: bool, sum_collector: ReportSumCollector
) -> None:
    keys = group.get("Keys")
    group_values = dict(zip(names, map(str, keys), strict=False)) if isinstance(keys, list) else {}
    usage_type = group_values.get("USAGE_TYPE", "")
    service = group_values.get("SERVICE")
    if not _is_bedrock(usage_type, service):
        return
    metrics = nested_object(group, "Metrics")
    metric = next((name for name in _METRICS if name in metrics), "")
    money = nested_object(metrics, metric)
    effective = read_number_field(nested_object(metrics, _AMORTIZED.get(metric, "")), "Amount")
    quantity = nested_object(metrics, "UsageQuantity")
    tier = cloud_meters.find_tier(cloud_meters.split_words(usage_type)) if usage_type else None
    bucket = CellFields(
        provider=PROVIDER,
        start=epoch_seconds(period, "Start"),
        end=epoch_seconds(period, "End"),
        account=group_values.get("LINKED_ACCOUNT"),
        model=parse_model(None, service, usage_type),
        tier=tier,
        region=parse_region(usage_type),
        batch=None if tier is None else tier == "batch",
        open=is_estimated,
    )
    cost = require_value(read_number_field(money, "Amount"), "Metrics.UnblendedCost.Amount")
    paid = RowAmounts(cost, amount_effective=effective)
    currency = read_text_field(money, "Unit")
    if not usage_type:
        sum_collector.add_amounts(bucket, "cost", paid, currency)
        return
    amount = read_number_field(quantity, "Amount")
    unit = read_text_field(quantity, "Unit") or ""
    _add_usage_amounts(sum_collector, bucket, _UsageLine(usage_type, amount, unit, paid, currency))


AWS_CUR = ReportSource(
    name="aws_cur",
    title="AWS Cost and Usage Report",
    settle_s=3 * DAY_S,
    in_parts=True,
    is_table=lambda table: table.has_columns("line_item_usage_type", "line_item_usage_start_date"),
    read_table=_read_table,
)
AWS_COST_EXPLORER = ReportSource(
    name="aws_cost_explorer",
    title="AWS Cost Explorer",
    settle_s=3 * DAY_S,
    in_parts=True,
    is_document=lambda document: any("ResultsByTime" in page for page in document.pages()),
    read_document=_read_document,
)
