"""What handlers of money work with: the ledger, budgets, savings, bills and definitions of allocation."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import TYPE_CHECKING, Protocol

from gateway.http.holders.installation import WithRegistry
from gateway.intake.prices import PriceBook
from gateway.money.allocation.declared import AllocationTable
from gateway.money.allocation.language import Limits
from gateway.money.allocation.published import Published
from gateway.money.allocation.publishing import Publishing
from gateway.service.configuration.sections import (
    AllocationSettings,
    CurrencySettings,
    ReconciliationSettings,
)
from gateway.service.errors import Refusal
from gateway.service.first_use import Once
from spool.listing import MOST_KNOWN

if TYPE_CHECKING:
    from gateway.bills.billed.biller import Biller
    from gateway.bills.billed.row_book import RowBook
    from gateway.bills.reconciliation.reconciler import Reconciler
    from gateway.bills.statements.puller import StatementPuller
    from gateway.intake.billing_connections import BillingConnections
    from gateway.money.budgets.evaluator import BudgetEvaluator
    from gateway.money.recommendations.adviser import Adviser
    from spool.billing import BillingPlan
    from spool.ledger.ledger import Ledger
    from spool.log.protocols import Log
    from spool.streams import StreamReader


KNOWN_FOR_S = 5.0


class Billing(Protocol):
    """AI cost as billing drops: what a span comes to, and sending it."""

    async def preview(self, since: datetime, until: datetime) -> BillingPlan: ...

    async def push(self, since: datetime, until: datetime) -> BillingPlan: ...


@dataclass(kw_only=True)
class MoneyServices(WithRegistry):
    """
    `log` is what the ledger counts, `prices` the book to price sums again. What the registry keeps is None
    while it is damaged.
    """

    ledger: Ledger
    log: Log
    billing: Billing
    billing_connections: BillingConnections
    prices: Callable[[], PriceBook] = PriceBook.load
    streams: StreamReader | None = None
    adviser: Once[Adviser] | None = None
    reconciler: Once[Reconciler] | None = None
    biller: Once[Biller] | None = None
    row_book: Once[RowBook] | None = None
    statement_puller: Once[StatementPuller] | None = None
    reconciliation: Callable[[], ReconciliationSettings] = ReconciliationSettings
    budgets: Once[BudgetEvaluator] | None = None
    allocation: Callable[[], AllocationSettings] = AllocationSettings
    currency: Callable[[], CurrencySettings] = CurrencySettings
    published: Published = field(init=False, repr=False)
    publishing: Publishing | None = field(init=False, repr=False)
    _known: Mapping[str, Sequence[str]] = field(init=False, repr=False, default_factory=dict)
    _known_at: float | None = field(init=False, repr=False, default=None)

    def __post_init__(self) -> None:
        self.published = Published(self.ledger)
        self.publishing = self._publishing()

    def require_adviser(self) -> Adviser:
        """Return the service that looks for savings. Refusal 503 while the registry, which keeps them, is damaged."""
        self.require_registry()
        if self.adviser is None:
            raise Refusal(503, "no_recommendations", "savings are not looked for here")
        return self.adviser()

    def require_reconciler(self) -> Reconciler:
        """
        Return the service that compares bills. Refusal 503 while the registry, which keeps the
        statements, is damaged.
        """
        self.require_registry()
        if self.reconciler is None:
            raise Refusal(503, "no_reconciliation", "statements are not kept here")
        return self.reconciler()

    async def known_values(self) -> Mapping[str, Sequence[str]]:
        """Return the values of each cost dimension, as of some seconds ago; none for a dimension with too many."""
        now = self.clock.monotonic()
        if self._known_at is None or now - self._known_at > KNOWN_FOR_S:
            found = {name: await self.ledger.values(name) for name in self.ledger.dimensions()}
            self._known = {name: each if len(each) <= MOST_KNOWN else () for name, each in found.items()}
            self._known_at = now
        return self._known

    def sums_changed(self) -> None:
        """Let what is read from the ledger be read again: it was counted or priced anew."""
        if self.budgets is not None and self.budgets.made is not None:
            self.budgets.made.wake()

    def require_budgets(self) -> BudgetEvaluator:
        """Return the service that evaluates budgets. Refusal 503 while the registry, which keeps them, is damaged."""
        self.require_registry()
        if self.budgets is None:
            raise Refusal(503, "no_budgets", "budgets are not evaluated here")
        return self.budgets()

    def require_publishing(self) -> Publishing:
        """
        Return the service that publishes definitions of allocation. Refusal 503 while the registry, which
        keeps them, is damaged.
        """
        self.require_registry()
        if self.publishing is None:
            raise Refusal(503, "no_allocation", "definitions are not published here")
        return self.publishing

    def _publishing(self) -> Publishing | None:
        if self.registry is None:
            return None
        return Publishing(
            self.registry.table(AllocationTable),
            self.ledger,
            self.published,
            limits=self.allocation_limits,
            max_versions=lambda: self.allocation().max_versions,
            max_jobs=lambda: self.allocation().max_jobs,
            changed=self.sums_changed,
        )

    def allocation_limits(self) -> Limits:
        """Return the limits of a definition: its bytes, dimensions and rules."""
        section = self.allocation()
        return Limits(
            max_bytes=section.max_definition_bytes,
            max_dimensions=section.max_dimensions,
            max_rules=section.max_rules,
        )
