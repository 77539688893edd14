"""
Makes what looks at money: adviser, budgets and the comparison with bills. None of them while the registry, which keeps
them, is damaged.
"""

from __future__ import annotations

from collections.abc import Callable

from gateway.budgets.evaluator import BudgetEvaluator
from gateway.configuration.sections import Config, KeyOwner
from gateway.http.services import Urls
from gateway.intake.prices import PriceBook
from gateway.mounts import page_link
from gateway.recommendations.adviser import Adviser
from gateway.recommendations.gathering import Sources
from gateway.reconciliation.comparing import Tolerance
from gateway.reconciliation.gathering import StatementSources
from gateway.reconciliation.matching import Owner
from gateway.reconciliation.reconciler import Reconciler
from spool import providers
from spool.clock import Clock
from spool.storage import Storage


def adviser(storage: Storage, clock: Clock, config: Callable[[], Config]) -> Adviser | None:
    """Who looks for savings."""
    if storage.registry is None:
        return None
    sources = Sources(ledger=storage.ledger, log=storage.log, prices=lambda: PriceBook.load(config().prices))
    return Adviser(sources, storage.registry.recommendations, clock)


def reconciler(storage: Storage, clock: Clock, config: Callable[[], Config]) -> Reconciler | None:
    """Who compares what providers billed with what was counted."""
    if storage.registry is None:
        return None
    sources = StatementSources(
        ledger=storage.ledger,
        log=storage.log,
        prices=lambda: PriceBook.load(config().prices),
        statements=storage.registry.statements,
        owners=lambda: [_owner(each) for each in config().reconciliation.owner],
        tolerance=lambda: Tolerance(
            money=config().reconciliation.tolerance_money, tokens=config().reconciliation.tolerance_tokens
        ),
    )
    return Reconciler(sources, clock)


def _owner(given: KeyOwner) -> Owner:
    return Owner(
        provider=providers.canonical(given.provider),
        billed=given.billed,
        api_key=given.api_key,
        team=given.team,
        source=given.source,
    )


def budget_evaluator(
    storage: Storage, clock: Clock, config: Callable[[], Config], urls: Callable[[], Urls]
) -> BudgetEvaluator | None:
    """What evaluates budgets; its notices lead to the console."""
    if storage.registry is None:
        return None
    return BudgetEvaluator(
        storage.registry,
        storage.ledger,
        storage.log,
        clock,
        max_owners=lambda: config().budgets.max_owners,
        link=lambda budget: page_link(urls().shared, "/budgets", {"open": [budget.id]}),
    )
