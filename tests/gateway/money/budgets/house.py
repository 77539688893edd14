"""
A test installation in memory: a log, its ledger, a registry that survives restarts, and the budget evaluator.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, TypeVar

from gateway.core.paths import page_link
from gateway.money.budgets.declared import BudgetTable, NewBudget, PlannedAmount, SpendBudget, ViewName
from gateway.money.budgets.evaluator import BudgetEvaluator, BudgetRun
from gateway.operations.list import declared_tables
from spool.ledger.ledger import Ledger
from spool.record import NS
from spool.registry.notices import Notification
from spool.registry.operators import Actor
from spool.registry.registry import Registry
from spool.registry.registry_rows import RegistryRows
from spool.registry.views import NewView, SavedView
from spool.sqlite.directory import REGISTRY
from spool.sqlite.in_memory import new_in_memory_ledger
from spool.sqlite.memory_log import MemoryDatabase
from spool.sqlite.registry import SqliteRegistry
from tests.spool.ledger_log import FakeClock, FakeLog, call

T = TypeVar("T")
ADA = Actor("ada@example.com", "local")
KNOWN = ("model", "team", "tag:service")
CHANNELS = ("costs", "oncall")


class Killed(Exception):
    """Raised to simulate the end of the process."""


class KillableStore(SqliteRegistry):
    def __init__(self) -> None:
        super().__init__(MemoryDatabase(REGISTRY))
        self.kill: str = ""

    async def change(self, work: Callable[[RegistryRows], T], *, is_long: bool = False) -> T:
        kill, self.kill = self.kill, ""

        def killed(registry_rows: RegistryRows) -> T:
            result = work(registry_rows)
            if kill == "before":
                raise Killed
            return result

        result = await super().change(killed)
        if kill == "after":
            raise Killed
        return result


def monthly(planned: Mapping[str, str]) -> dict[str, dict[str, PlannedAmount]]:
    """Return the planned limits of months, from amounts by first day."""
    return {"monthly": {day: PlannedAmount(amount=amount) for day, amount in planned.items()}}


class House:
    """
    An installation of a test. `restart` simulates a new process with the committed registry and the current ledger.
    """

    def __init__(self, *, at: float, max_owners: int = 10_000) -> None:
        self.clock = FakeClock(at)
        self.log = FakeLog()
        self.store = KillableStore()
        self.known: tuple[str, ...] = ("service",)
        self._rows = new_in_memory_ledger()
        self._max_owners = max_owners

    async def start(self) -> House:
        self.ledger = await Ledger(self._rows, clock=self.clock, tags=self.known).load()
        self.registry = await Registry.open(
            self.store, secret=b"s" * 32, clock=self.clock, declared=declared_tables()
        )
        self.registry.notices.channels = CHANNELS
        self.evaluator = BudgetEvaluator(
            self.registry,
            self.ledger,
            self.log,
            self.clock,
            max_owners=lambda: self._max_owners,
            link=lambda budget: page_link(
                "https://tollhouse.example/console/", "/budgets", {"open": [budget.id]}
            ),
        )
        return self

    restart = start

    async def view(self, filter: Mapping[str, tuple[str, ...]] | None = None, **fields: Any) -> SavedView:
        draft = NewView(
            **{"name": "search", "principal_dimension": "model", "filter": filter or {}, **fields}
        )
        return await self.registry.views.create(draft, known_dimensions=KNOWN, max_rows=100, actor=ADA)

    async def budget(self, view: SavedView, **fields: Any) -> SpendBudget:
        values = {
            "name": "Search", "view": ViewName(id=view.id), "default_amount": "100",
            "alerts": {"50": "Y", "80": "Y", "100": "Y"}, **fields,
        }  # fmt: skip
        return await self.registry.declared_table(BudgetTable).create(
            NewBudget(**values), known_dimensions=KNOWN, max_rows=100, actor=ADA
        )

    def spend(self, dollars: str, *, at: float | None = None, **fields: Any) -> None:
        """Add one call with this cost, now or at `at`."""
        start = int(self.clock.at if at is None else at)
        values = {"id": len(self.log.entries).to_bytes(16, "big"), "estimated_cost": dollars, **fields}
        self.log.add([call(start_time=start * NS, **values)], at=self.clock.at)

    async def evaluate(self) -> BudgetRun:
        return await self.evaluator.evaluate_all()

    async def notifications(self) -> list[Notification]:
        return await self.registry.notices.waiting_notifications()

    async def told(self, channel: str = "costs") -> list[tuple[str, str]]:
        """Return the kind and threshold of each notification of a channel, in order."""
        waiting = await self.notifications()
        return [
            (notification.notice.kind, notification.notice.fields["threshold"])
            for notification in waiting
            if notification.channel == channel
        ]
