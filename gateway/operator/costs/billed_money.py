"""Billed money in reports: what can be asked of it, and what is told beside it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from gateway.first_use import imported
from gateway.http.holders.money import MoneyServices
from gateway.operator.requests import OperatorRequest
from spool.errors import Invalid
from spool.ledger.billed import COUNTED
from spool.ledger.queries import BILLED_TYPES, MISSING_IS_OF_BILLS, CostQuery
from spool.record import CURRENCY
from spool.registry.shared.texts import check_one_of

SHOWN = ["cost"]


def check_measures(parameters: Mapping[str, str], show: Sequence[str], top_by: str) -> list[str]:
    """Return what a report of billed money shows. Invalid for questions about calls or in other currencies."""
    cost_type = parameters["cost_type"]
    if set(show) - set(SHOWN) or top_by not in SHOWN or "unit" in parameters:
        raise Invalid(f"{cost_type} is money alone: show and top_by are cost, or ask for another cost_type")
    if parameters.get("currency", CURRENCY) != CURRENCY:
        raise Invalid(f"{cost_type} is in {CURRENCY}: leave currency out, or ask for another cost_type")
    return SHOWN


def check_missing(missing: str, cost_type: str) -> None:
    """Invalid unless it says what stands in for bills, in a question of billed money."""
    check_one_of("missing", missing, (COUNTED,))
    if cost_type not in BILLED_TYPES:
        raise Invalid(MISSING_IS_OF_BILLS)


async def told(request: OperatorRequest[MoneyServices, None], query: CostQuery) -> dict[str, object]:
    """Return how final the days of a question are, and for who sees all calls what the bills have beside them."""
    beside = await imported("gateway.billed.beside")
    found: dict[str, object] = await beside.billed_beside(
        request.whole_ledger, query, request.now(), states_alone=request.is_limited
    )
    return found
