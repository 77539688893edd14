"""
Examples of all that people create: budgets, a channel, a scheduled report, a price, a contract, an annotation
and a billing connection. So each page of the console has content.
"""

from __future__ import annotations

from datetime import UTC, datetime
from decimal import Decimal

from gateway.bills.contracts.declared import ContractTable, ContractTerm, NewContract, price_terms
from gateway.intake.prices import PriceBook
from gateway.money.budgets.declared import BudgetTable, NewBudget, ViewName
from gateway.operations.money.annotations import AnnotationTable, NewAnnotation
from gateway.operations.money.own_prices import NewPrice, PriceTable, price_overrides
from gateway.operations.money.reports.declared import NewScheduledReport, ScheduledReportTable
from gateway.service.demo.month import DAY_S
from gateway.service.demo.note import CHANNEL
from gateway.service.demo.samples import ACTOR, MOST
from spool.ledger.dimensions import TOTAL
from spool.ledger.ledger import Ledger
from spool.ledger.queries import CostQuery, next_full_hour
from spool.log.protocols import ReadableLog
from spool.registry.connections import ConnectionDraft
from spool.registry.registry import Registry
from spool.registry.tables.kept_channels import ChannelFields
from spool.registry.views import NewView

# Team -> monthly budget as a multiple of what the team has spent in the running month. One team is over its budget.
BUDGETS = {"search": Decimal("0.8"), "support": Decimal("1.6"), "engineering": Decimal(3)}
# Prepaid units of a model, and the price of a unit as a multiple of what the model costs in 30 days. So about two
# thirds of the units are used.
CAPACITY_MODEL, CAPACITY_UNITS, CAPACITY_PRICE = "gemini-2.5-flash", 2, Decimal("0.75")
_LEAST = Decimal("0.01")


async def add_examples(
    registry: Registry, ledger: Ledger, log: ReadableLog, book: PriceBook, *, end: int
) -> None:
    draft = ChannelFields(name=CHANNEL, type="webhook", url="https://chat.example.com/planted")
    registry.kept_channels.seal = lambda *_: ""
    await registry.kept_channels.create(draft, None, max_rows=MOST, actor=ACTOR)
    await _add_budgets(registry, ledger, end)
    view = NewView(name="All teams", filter={}, principal_dimension="team")
    shown = await registry.views.create(
        view, known_dimensions=ledger.dimensions(), max_rows=MOST, actor=ACTOR
    )
    report = NewScheduledReport(name="Weekly costs", view=shown.id, channels=(CHANNEL,))
    await registry.declared_table(ScheduledReportTable).create(report, owner="", max_rows=MOST, actor=ACTOR)
    price = NewPrice(model="acme-small-*", provider="acme", input="0.4", output="1.2")
    await registry.declared_table(PriceTable).create(price, max_rows=MOST, actor=ACTOR)
    await _add_contract(registry, ledger, end)
    terms = PriceBook(book.card, price_overrides(registry), price_terms(registry))
    await ledger.reprice(log, terms, since=_start_of_month_of(end))
    day = datetime.fromtimestamp(end - 9 * DAY_S, UTC).date().isoformat()
    note = NewAnnotation(day=day, text="The new search page was released")
    await registry.declared_table(AnnotationTable).create(note, max_rows=MOST, actor=ACTOR)
    connection = ConnectionDraft(name="Planted invoices", cloud_provider="acme")
    await registry.connections.create(connection, max_rows=MOST, actor=ACTOR)


async def _add_budgets(registry: Registry, ledger: Ledger, end: int) -> None:
    spent = await _cost_by(ledger, _start_of_month_of(end), end, "team")
    for team, factor in BUDGETS.items():
        view = NewView(name=team.title(), filter={"team": (team,)}, principal_dimension="user")
        made = await registry.views.create(
            view, known_dimensions=ledger.dimensions(), max_rows=MOST, actor=ACTOR
        )
        amount = _at_least_minimum(spent.get(team, Decimal(0)) * factor)
        budget = NewBudget(
            name=f"{team} a month",
            view=ViewName(id=made.id),
            default_amount=str(amount),
            alerts={"80": "Y", "100": "Y"},
        )
        await registry.declared_table(BudgetTable).create(
            budget, known_dimensions=ledger.dimensions(), max_rows=MOST, actor=ACTOR
        )


async def _add_contract(registry: Registry, ledger: Ledger, end: int) -> None:
    since = datetime.fromtimestamp(end - 30 * DAY_S, UTC).replace(minute=0, second=0, microsecond=0)
    spent = (await _cost_by(ledger, since, end, "model")).get(CAPACITY_MODEL, Decimal(0))
    capacity = ContractTerm(
        kind="capacity",
        models=(CAPACITY_MODEL,),
        unit="gsu",
        number=str(CAPACITY_UNITS),
        price=str(_at_least_minimum(spent * CAPACITY_PRICE)),
        per="month",
    )
    contract = NewContract(
        name="Gemini throughput",
        provider="gcp.gemini",
        since=_start_of_month_of(end).date().isoformat(),
        terms=(capacity,),
    )
    await registry.declared_table(ContractTable).create(contract, max_rows=MOST, actor=ACTOR)


async def _cost_by(ledger: Ledger, since: datetime, end: int, dimension: str) -> dict[str | None, Decimal]:
    query = CostQuery(
        since=since, until=next_full_hour(end), granularity=TOTAL, group_by=[dimension], measures=("cost",)
    )
    return {row.group[0]: Decimal(row.cost) for row in await ledger.costs(query)}


def _start_of_month_of(end: int) -> datetime:
    return datetime.fromtimestamp(end, UTC).replace(day=1, hour=0, minute=0, second=0, microsecond=0)


def _at_least_minimum(amount: Decimal) -> Decimal:
    return max(_LEAST, amount.quantize(_LEAST))
