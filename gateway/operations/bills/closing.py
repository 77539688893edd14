"""Handlers of the operator API for invoices and closed months of provider bills."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from hashlib import blake2b
from typing import Annotated, Any

import msgspec
from msgspec import UNSET, UnsetType

from gateway.bills.billed import closing
from gateway.bills.billed.biller import RULES, BilledCostCalculator
from gateway.bills.billed.closing import Invoice, MonthFigures
from gateway.bills.months import CalendarMonth
from gateway.bills.reconciliation.accuracy import month_accuracy
from gateway.core.errors import REPAIR_RETRY_S, Refusal
from gateway.core.fields import one_field_answer
from gateway.http.lists import Filter, ListDefinition, MemoryRows, Sort
from gateway.http.requests import Result
from gateway.operations.answers import IdOfItem
from gateway.operations.holders.operators import MoneyServices
from gateway.operations.requests.address import operator_call
from gateway.operations.requests.requests import OperatorRequest, RequestBody
from spool import money, providers
from spool.errors import Invalid, NotAllowed
from spool.record import utc_iso
from spool.registry.field_notes import example, words
from spool.registry.permission_sets import MODIFY_BILLING, VIEW_COSTS
from spool.registry.registry import Registry

PREVIEW = ("provider", "month")
_ID_BYTES = 12  # bytes of a digest that identifies an invoice


class BilledInvoice(RequestBody):
    """A provider's invoice for a month."""

    provider: Annotated[str, words("The provider, such as `openai`.")]
    month: Annotated[str, words("The month of the invoice, such as `2026-10`.")]
    number: Annotated[str, words("The number of the invoice.")]
    total: Annotated[str | int, words("The total amount.")]
    tax: Annotated[str | int | None, words("The part of the total that no bill states, such as tax.")] = None
    account: Annotated[str | None, words("The account of the invoice at the provider.")] = None
    issued: Annotated[str | None, words("The day on which the invoice was issued.")] = None
    lines: Annotated[int | None, words("The number of lines that the provider rounded to cents.")] = None
    currency: Annotated[str | None, words("The ISO 4217 code of the amounts; default: USD.")] = None


class MonthClosing(RequestBody):
    """A request to close the month of a provider."""

    provider: Annotated[str, words("The provider, such as `openai`.")]
    month: Annotated[str, words("The month to close, such as `2026-10`.")]
    accept: Annotated[
        bool,
        words(
            "Whether to close the month in spite of an unexplained difference or of days that are not final."
        ),
    ] = False


Row = Mapping[str, Any]

INVOICES: ListDefinition[Row] = ListDefinition(
    root="billed_invoices",
    show=dict,
    identity=Sort(value=lambda row: str(row["id"])),
    sorts={
        "month": Sort(value=lambda row: str(row["month"])),
        "provider": Sort(value=lambda row: str(row["provider"])),
        "number": Sort(value=lambda row: str(row["number"])),
    },
    default_sort=("month", "desc"),
    filters={
        "provider": Filter(values=lambda row: (row["provider"],)),
        "month": Filter(values=lambda row: (row["month"],)),
    },
)
CLOSED_MONTHS: ListDefinition[Row] = ListDefinition(
    root="closed_months",
    show=dict,
    identity=Sort(value=lambda row: closing.closed_month_id(row["provider"], row["month"])),
    sorts={
        "month": Sort(value=lambda row: str(row["month"])),
        "provider": Sort(value=lambda row: str(row["provider"])),
    },
    default_sort=("month", "desc"),
    filters={
        "provider": Filter(values=lambda row: (row["provider"],)),
        "month": Filter(values=lambda row: (row["month"],)),
    },
)


class BilledInvoiceItem(msgspec.Struct, kw_only=True):
    id: Annotated[str, words("The id of the invoice."), example("e8659d9ae9fa38b2ff2acc52")]
    provider: Annotated[str, words("The provider, such as `openai`."), example("openai")]
    month: Annotated[str, words("The month, such as `2026-11`."), example("2026-10")]
    number: Annotated[str, words("The number of the invoice."), example("INV-1042")]
    account: Annotated[
        str | None, words("The account of the invoice at the provider, or null."), example(None)
    ]
    issued: Annotated[str | None, words("The day on which the invoice was issued."), example("2026-11-02")]
    currency: Annotated[str, words("The currency of the amounts."), example("USD")]
    total: Annotated[str, words("The total amount."), example("52.3")]
    tax: Annotated[str, words("The part of the total that no bill states, such as tax."), example("0")]
    lines: Annotated[int, words("The number of lines that the provider rounded to cents."), example(1)]
    added_at: Annotated[str, words("When the invoice was added."), example("2026-11-27T01:45:26.211Z")]
    added_by: Annotated[str, words("Who added the invoice."), example("ada@example.com")]


class DayCounts(msgspec.Struct, kw_only=True):
    open: Annotated[int | UnsetType, words("The number of days without a bill."), example(27)] = UNSET
    closed: Annotated[int | UnsetType, words("The number of days with a final bill."), example(4)] = UNSET
    provisional: Annotated[
        int | UnsetType, words("The number of days whose bill may still change."), example(1)
    ] = UNSET
    invoiced: Annotated[int | UnsetType, words("The number of days in a closed month."), example(31)] = UNSET


class UnallocatedAmount(msgspec.Struct, kw_only=True):
    charge: Annotated[
        str, words("The charge that the amount is for, such as tokens or storage."), example("other")
    ]
    model: Annotated[str | None, words("The model in the bill, or null."), example(None)]
    api_key: Annotated[str | None, words("The key in the bill, or null."), example(None)]
    region: Annotated[str | None, words("The region in the bill, or null."), example(None)]
    amount: Annotated[str, words("The amount of money."), example("0.11")]


class MonthAccuracy(msgspec.Struct, kw_only=True):
    provider: Annotated[str, words("The provider, such as `openai`."), example("openai")]
    month: Annotated[str, words("The month, such as `2026-11`."), example("2026-10")]
    billed: Annotated[str, words("The cost by the provider's bills."), example("46.29345335")]
    invoiced: Annotated[str, words("The total of the invoices in US dollars."), example("52.3")]
    tax: Annotated[str, words("The tax on the invoices that no bill states."), example("0")]
    rounding: Annotated[
        str,
        words("The invoices minus the bills and the tax, if rounding of lines explains it; else 0."),
        example("0"),
    ]
    difference: Annotated[
        str, words("The invoices minus the bills, the tax and the rounding."), example("6.00654665")
    ]
    by_charge: Annotated[
        dict[str, str],
        words("Amounts by charge."),
        example(
            {
                "other": "0.11",
                "rounding": "0.00000000000000000000000001",
                "usage": "46.18345334999999999999999999",
            }
        ),
    ]
    by_reason: Annotated[dict[str, str], words("Unallocated amounts by reason."), example({"other": "0.11"})]
    days: Annotated[DayCounts, words("The number of days by state of the bill.")]
    invoices: Annotated[list[str], words("The numbers of the invoices."), example(["INV-1042"])]
    counted: Annotated[
        str | None,
        words("The counted cost of the compared days. Null without a compared bill with amounts."),
        example("45.90112345"),
    ]
    error: Annotated[
        str | None,
        words("The sum of the unexplained differences by day and model, without their signs."),
        example("0.28122"),
    ]
    error_percent: Annotated[
        str | None, words("The error as a percentage of the billed cost."), example("0.61")
    ]
    token_coverage: Annotated[
        str | None, words("The percentage of the billed tokens that are counted."), example("99.32")
    ]
    money_coverage: Annotated[
        str | None, words("The percentage of the billed cost that is counted."), example("99.15")
    ]
    sentence: Annotated[
        str | None,
        words("The billed and the counted cost with its error."),
        example("October 2026, openai: $46.29 billed, $45.90 ± $0.28 counted"),
    ]
    failed_calls: Annotated[int | None, words("The number of calls that failed."), example(12)]
    aborted_calls: Annotated[int | None, words("The number of calls without all token counts."), example(3)]
    unpriced_calls: Annotated[
        int | None, words("The number of calls with tokens and without a price."), example(0)
    ]


class CheckedMonth(MonthAccuracy, kw_only=True):
    problems: Annotated[
        list[str],
        words("The problems that were found with the month."),
        example(
            [
                ("the invoices total $52.3, but the bills total $46.29345335; $6.00654665 is unexplained"),
                "27 days have no bill",
            ]
        ),
    ]
    largest_unallocated: Annotated[
        list[UnallocatedAmount], words("The largest amounts that belong to no call.")
    ]
    restated: Annotated[
        dict[str, str], words("Changes of this month since it was closed, by day."), example({})
    ]


class ClosedMonthItem(MonthAccuracy, kw_only=True):
    accepted: Annotated[bool, words("Whether the month was closed in spite of problems."), example(True)]
    rules: Annotated[int, words("The version of the rules for dividing bills."), example(5)]
    layers: Annotated[
        dict[str, Any],
        words("Whether tax and credits are divided by the usage of the month."),
        example({"credits": False, "tax": True}),
    ]
    closed_at: Annotated[str, words("When the month was closed."), example("2026-11-27T01:45:26.809Z")]
    closed_by: Annotated[str, words("Who closed the month."), example("ada@example.com")]


class CloseMonthAnswer(msgspec.Struct, kw_only=True):
    closed_month: Annotated[ClosedMonthItem, words("The closed month, with the fields below.")]
    month_closing: Annotated[CheckedMonth, words("The result of the check before the month is closed.")]


class MonthOfProvider(msgspec.Struct, kw_only=True):
    provider: Annotated[str, words("The provider, such as `openai`."), example("openai")]
    month: Annotated[str, words("The month, such as `2026-11`."), example("2026-10")]


@operator_call(
    "GET",
    "/billed-invoices",
    VIEW_COSTS,
    "List invoices of providers",
    lists=INVOICES,
    item=BilledInvoiceItem,
)
async def list_invoices(request: OperatorRequest[MoneyServices, None]) -> Result:
    stored = request.registry.billed_invoices.all()
    rows: list[Row] = [{"id": id, **body} for id, body in stored.items()]
    return await request.list_page(INVOICES, MemoryRows(rows))


@operator_call(
    "POST",
    "/billed-invoices",
    MODIFY_BILLING,
    "Add an invoice of a provider",
    answers=one_field_answer(
        "OneBilledInvoice",
        billed_invoice=Annotated[BilledInvoiceItem, words("The invoice, with the fields below.")],
    ),
)
async def add_invoice(request: OperatorRequest[MoneyServices, BilledInvoice]) -> Result:
    """Store an invoice. A closed month accepts no invoice; reopen the month first."""
    invoice = closing.parse_invoice(msgspec.structs.asdict(request.body))
    registry = request.registry
    _check_month_open(registry, invoice.provider, invoice.month)
    if len(_invoices_of_month(registry, invoice.provider, invoice.month)) >= closing.MAX_INVOICES:
        raise NotAllowed(f"a provider can have at most {closing.MAX_INVOICES} invoices per month")
    id = _invoice_id(invoice)
    body = {
        **closing.invoice_document(invoice),
        "added_at": utc_iso(request.now()),
        "added_by": request.actor.name,
    }
    await registry.billed_invoices.add(id, body, actor=request.actor, action="billed_invoice.add")
    return {"billed_invoice": {"id": id, **body}}


@operator_call(
    "DELETE",
    "/billed-invoices/{id}",
    MODIFY_BILLING,
    "Delete an invoice",
    answers=one_field_answer(
        "DeleteInvoiceAnswer", billed_invoice=Annotated[IdOfItem, words("The deleted invoice.")]
    ),
)
async def delete_invoice(request: OperatorRequest[MoneyServices, None]) -> Result:
    registry = request.registry
    id = request.path_parameter("id")
    body = registry.billed_invoices.all().get(id)
    if body is not None:
        _check_month_open(registry, body["provider"], body["month"])
    await registry.billed_invoices.remove(id, actor=request.actor, action="billed_invoice.delete")
    return {"billed_invoice": {"id": id}}


@operator_call(
    "GET",
    "/month-closing",
    VIEW_COSTS,
    "Preview the closing of a month of bills",
    required=PREVIEW,
    in_turn=True,
    answers=one_field_answer(
        "OneMonthClosing",
        month_closing=Annotated[CheckedMonth, words("The result of the check of the month.")],
    ),
)
async def preview_closing(request: OperatorRequest[MoneyServices, None]) -> Result:
    """
    Return the sums of a month's bills by charge, compared with its invoices, and how exactly the month is counted.
    Nothing is closed.
    """
    query = request.http.query
    provider = _canonical_provider(query.get("provider", ""))
    if not provider:
        raise Invalid("provider is required, such as provider=openai")
    month = _parse_month(query.get("month", ""))
    invoices = _invoices_of_month(request.registry, provider, month.name)
    figures = await _require_biller(request.services).recalculate_figures(month, provider, invoices)
    return {
        "month_closing": {
            **_describe_figures(figures),
            **await _reconcile_month_and_describe_accuracy(request.services, month, provider),
        }
    }


@operator_call(
    "GET",
    "/closed-months",
    VIEW_COSTS,
    "List closed months of bills",
    lists=CLOSED_MONTHS,
    item=ClosedMonthItem,
)
async def list_closed_months(request: OperatorRequest[MoneyServices, None]) -> Result:
    rows = list(request.registry.closed_months.all().values())
    return await request.list_page(CLOSED_MONTHS, MemoryRows(rows))


@operator_call("POST", "/closed-months", MODIFY_BILLING, "Close a month of bills", answers=CloseMonthAnswer)
async def close_month(request: OperatorRequest[MoneyServices, MonthClosing]) -> Result:
    """
    Close a finished month. Its amounts no longer change. Each later change is stored as an entry on the day
    on which it is found.
    """
    registry = request.registry
    body_fields = request.body
    provider = _canonical_provider(body_fields.provider)
    month = _parse_month(body_fields.month)
    if month.end > request.now():
        raise Invalid(f"{month.name} is not over; it can be closed from {utc_iso(month.end)}")
    _check_month_open(registry, provider, month.name)
    invoices = _invoices_of_month(registry, provider, month.name)
    if not invoices:
        raise Invalid(f"{provider} has no invoice of {month.name}; add the invoice first")

    accuracy = await _reconcile_month_and_describe_accuracy(request.services, month, provider)

    async def store_month_closing(figures: MonthFigures) -> None:
        if not figures.by_charge:
            raise Invalid(f"there is no bill of {provider} for {month.name}; import it first")
        problems = figures.problems()
        if problems and not body_fields.accept:
            raise NotAllowed(f"{'; '.join(problems)}; to close the month anyway, set accept")
        body = {
            **closing.figures_document(figures),
            **accuracy,
            "accepted": bool(problems),
            "rules": RULES,
            "layers": asdict(_require_biller(request.services).layers()),
            "closed_at": utc_iso(request.now()),
            "closed_by": request.actor.name,
        }
        id = closing.closed_month_id(provider, month.name)
        await registry.closed_months.add(id, body, actor=request.actor, action="closed_month.close")

    figures = await _require_biller(request.services).close_month(
        month, provider, invoices, store_month_closing
    )
    request.services.request_budget_evaluation()
    described = {**_describe_figures(figures), **accuracy}
    return {
        "closed_month": registry.closed_months.all()[closing.closed_month_id(provider, month.name)],
        "month_closing": described,
    }


@operator_call(
    "DELETE",
    "/closed-months/{provider}/{month}",
    MODIFY_BILLING,
    "Reopen a closed month of bills",
    answers=one_field_answer(
        "ReopenMonthAnswer", closed_month=Annotated[MonthOfProvider, words("The reopened month.")]
    ),
)
async def reopen_month(request: OperatorRequest[MoneyServices, None]) -> Result:
    """
    Reopen a closed month. Its correction entries are deleted, because the month itself gets the changes.
    """
    registry = request.registry
    provider = _canonical_provider(request.path_parameter("provider"))
    month = _parse_month(request.path_parameter("month"))
    id = closing.closed_month_id(provider, month.name)

    async def delete_month_closing() -> None:
        await registry.closed_months.remove(id, actor=request.actor, action="closed_month.reopen")

    await _require_biller(request.services).reopen_month(month, delete_month_closing)
    request.services.request_budget_evaluation()
    return {"closed_month": {"provider": provider, "month": month.name}}


async def _reconcile_month_and_describe_accuracy(
    services: MoneyServices, month: CalendarMonth, provider: str
) -> Mapping[str, Any]:
    found = (await services.require_reconciler().reconcile(month, provider)).providers
    return month_accuracy(month.name, found[0] if found else None)


def _describe_figures(figures: MonthFigures) -> dict[str, Any]:
    largest = [
        {
            "charge": billed_sum.charge,
            "model": billed_sum.dimensions.model or None,
            "api_key": billed_sum.dimensions.api_key or None,
            "region": billed_sum.dimensions.region or None,
            "amount": money.units_to_text(billed_sum.amount),
        }
        for billed_sum in figures.largest
    ]
    restated = {day: money.units_to_text(amount) for day, amount in sorted(figures.restated.items())}
    return {
        **closing.figures_document(figures),
        "problems": figures.problems(),
        "largest_unallocated": largest,
        "restated": restated,
    }


def _check_month_open(registry: Registry, provider: str, month: str) -> None:
    if closing.closed_month_id(provider, month) in registry.closed_months.all():
        raise NotAllowed(f"{month} of {provider} is closed; reopen it first")


def _invoices_of_month(registry: Registry, provider: str, month: str) -> Sequence[Invoice]:
    stored = registry.billed_invoices.all().values()
    invoices = [
        closing.parse_invoice(invoice)
        for invoice in stored
        if (invoice["provider"], invoice["month"]) == (provider, month)
    ]
    return sorted(invoices, key=lambda invoice: invoice.number)


def _invoice_id(invoice: Invoice) -> str:
    return blake2b(invoice.id.encode(), digest_size=_ID_BYTES).hexdigest()


def _canonical_provider(text: str) -> str:
    return providers.canonical_provider_name(text)


def _parse_month(text: str) -> CalendarMonth:
    return CalendarMonth.of(closing.parse_month_name(text))


def _require_biller(services: MoneyServices) -> BilledCostCalculator:
    if services.biller is None:
        message = "bills cannot be read while the registry is damaged"
        raise Refusal(503, "registry_damaged", message, retry_after_s=REPAIR_RETRY_S)
    return services.biller()
