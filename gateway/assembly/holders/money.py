"""Makes what handlers of money work with. What pulls and asks is imported when it is first asked."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from exporters.service.billing_sync import BillingSync
from gateway.assembly.money import adviser, biller, budget_evaluator, reconciler, row_book
from gateway.assembly.parts import Assembler
from gateway.first_use import Once
from gateway.http.holders.installation import Urls
from gateway.http.holders.money import MoneyServices
from gateway.intake.prices import PriceBook

if TYPE_CHECKING:
    from gateway.statements.puller import StatementPuller


def money_services(parts: Assembler, billing: BillingSync, urls: Callable[[], Urls]) -> MoneyServices:
    storage = parts.storage
    clock = parts.clock

    return MoneyServices(
        registry=storage.registry,
        registry_problem=storage.registry_problem,
        clock=clock,
        ledger=storage.ledger,
        log=storage.log,
        streams=storage.streams,
        billing=billing,
        billing_connections=parts.billing_connections,
        prices=lambda: PriceBook.load(parts.config.prices),
        adviser=adviser(storage, clock, lambda: parts.config),
        reconciler=reconciler(storage, clock, lambda: parts.config),
        biller=biller(storage, clock, lambda: parts.config),
        row_book=row_book(storage, clock, lambda: parts.config, parts.billing_connections),
        statement_puller=pulled_statements(parts),
        reconciliation=lambda: parts.config.reconciliation,
        budgets=budget_evaluator(storage, clock, lambda: parts.config, urls),
        allocation=lambda: parts.config.allocation,
        currency=lambda: parts.config.currency,
    )


def pulled_statements(parts: Assembler) -> Once[StatementPuller] | None:
    """None while the registry, which keeps statements, is damaged."""
    registry = parts.storage.registry
    if registry is None:
        return None

    def make() -> StatementPuller:
        from gateway.assembly.statements import statement_puller

        config, plans = lambda: parts.config, registry.plans
        return statement_puller(registry.statements, parts.clock, config, parts.stack, plans=plans)

    return Once(make)
