"""Invoices, and months of bills that are closed."""

from __future__ import annotations

from gateway.addresses.operator_call import call
from gateway.operator.billing import closing
from spool.registry.permission_sets import MODIFY_BILLING, VIEW_COSTS

ROWS = (
    call("GET", "/billed-invoices", VIEW_COSTS, closing.list_invoices, "List the invoices of providers",
         lists=closing.INVOICES),
    call("POST", "/billed-invoices", MODIFY_BILLING, closing.add_invoice, "Add an invoice of a provider",
         takes=closing.BilledInvoice),
    call("DELETE", "/billed-invoices/{id}", MODIFY_BILLING, closing.delete_invoice, "Forget an invoice"),
    call("GET", "/month-closing", VIEW_COSTS, closing.preview_closing, "What closing a month of bills would find",
         required=closing.PREVIEW, in_turn=True),
    call("GET", "/closed-months", VIEW_COSTS, closing.list_closed_months, "List the months of bills that are closed",
         lists=closing.CLOSED_MONTHS),
    call("POST", "/closed-months", MODIFY_BILLING, closing.close_month, "Close a month of bills",
         takes=closing.MonthClosing),
    call("DELETE", "/closed-months/{provider}/{month}", MODIFY_BILLING, closing.reopen_month,
         "Let a closed month of bills change again"),
)  # fmt: skip
