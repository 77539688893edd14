"""
Creates the services that read and audit enforcers. Requests use the HTTP client of destinations, and keys are read
from their files for each request.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from contextlib import AsyncExitStack
from datetime import UTC
from decimal import Decimal

from exporters.errors import Misconfigured, Rejected, SendError
from exporters.http.allowed_addresses import check_address_allowed
from exporters.http.client import ClientSettings, HttpClient
from exporters.secret_source import SecretSource
from gateway.bills.enforcers.auditing import AuditSources, EnforcerAuditor
from gateway.bills.enforcers.faults import MoneyBudget
from gateway.bills.enforcers.reader import EnforcerReader, FetchLimits, get_json
from gateway.bills.enforcers.types.list import TYPES
from gateway.bills.statements.puller import PullFailed
from gateway.configuration.sections import Config, EnforcerSettings
from gateway.core.first_use import LazyValue
from gateway.money.budgets.declared import COST, BudgetTable, SpendBudget
from gateway.money.budgets.evaluator import BudgetEvaluator
from gateway.money.budgets.periods import period_at
from gateway.service.assembly.statements import NOT_FOUND, retry_wait_s, secret_texts
from spool.clock import Clock
from spool.ledger.ledger import Ledger
from spool.record import CURRENCY
from spool.registry.registry import Registry


def build_enforcer_reader(
    registry: Registry, clock: Clock, config: Callable[[], Config], stack: AsyncExitStack
) -> EnforcerReader:
    fetch = _build_fetch(clock, config, stack)
    return EnforcerReader(registry.enforcers, clock, lambda: config().enforcers, fetch)


async def probe_enforcer_keys(config: Config, clock: Clock) -> Mapping[str, str]:
    """Send one request with the key of each enforcer. Return why it failed, or "", by name."""
    async with AsyncExitStack() as stack:
        fetch = _build_fetch(clock, lambda: config, stack)
        return {enforcer.name: await _key_problem(enforcer, fetch) for enforcer in config.enforcers}


async def _key_problem(enforcer: EnforcerSettings, fetch: FetchLimits) -> str:
    try:
        await get_json(enforcer, TYPES[enforcer.type].test, fetch)
    except PullFailed as error:
        return str(error)
    return ""


def _build_fetch(clock: Clock, config: Callable[[], Config], stack: AsyncExitStack) -> FetchLimits:
    client = HttpClient(
        ClientSettings(compression="none", timeout_s=0, check=check_address_allowed), clock=clock
    )
    stack.push_async_callback(client.close)

    async def fetch(
        enforcer: EnforcerSettings, url: str, headers: Callable[[str], Mapping[str, str]]
    ) -> bytes:
        settings = config().reconciliation
        try:
            key = SecretSource(f"enforcers {enforcer.name}: key_file", file=enforcer.key_file).value()
        except Misconfigured as error:
            raise PullFailed(str(error), retry_after_s=None) from error
        try:
            async with asyncio.timeout(settings.pull_timeout):
                answer = await client.send(
                    url,
                    b"",
                    method="GET",
                    content_type="application/json",
                    headers=headers(key),
                    max_answer_bytes=settings.max_page_bytes + 1,
                    secrets=secret_texts(key, headers(key)),
                )
        except TimeoutError as error:
            message = f"no response within {settings.pull_timeout:g} s (reconciliation.pull_timeout)"
            raise PullFailed(message, retry_after_s=None) from error
        except SendError as error:
            is_absent = error.status == NOT_FOUND
            refused = isinstance(error, Misconfigured | Rejected) and not is_absent
            advice = "; check the rights of the key" if refused else ""
            raise PullFailed(
                f"{error}{advice}", retry_after_s=retry_wait_s(error), is_absent=is_absent
            ) from error
        if len(answer.body) > settings.max_page_bytes:
            message = f"a page has more than {settings.max_page_bytes} bytes (reconciliation.max_page_bytes)"
            raise PullFailed(message, retry_after_s=None)
        return answer.body

    return fetch


def build_enforcer_auditor(
    registry: Registry,
    ledger: Ledger,
    clock: Clock,
    config: Callable[[], Config],
    evaluator: LazyValue[BudgetEvaluator] | None,
) -> EnforcerAuditor:
    async def most_delay_s_by_source() -> Mapping[str, float]:
        if evaluator is None:
            return {}
        measured = await evaluator().verdicts.remeasure_source_delays_if_due()
        hold_s = config().spool.hold
        return {source: delay.most_s + hold_s for source, delay in measured.items()}

    return EnforcerAuditor(
        AuditSources(
            table=registry.enforcers,
            ledger=ledger,
            clock=clock,
            settings=lambda: config().enforcers,
            delays=most_delay_s_by_source,
            budgets=lambda: budgets_comparable_with_enforcer_limits(registry, clock.now()),
        )
    )


def budgets_comparable_with_enforcer_limits(registry: Registry, now: float) -> Sequence[MoneyBudget]:
    """
    Return the budgets that can be compared with limits of other gateways (enforcers): in dollars and UTC,
    with an amount, for a view that excludes nothing.
    """
    found = []
    for budget in registry.declared_table(BudgetTable).all():
        view = registry.views.find(budget.view_id)
        amount = _current_amount(budget, now)
        is_plain = (budget.measure, budget.currency, budget.time_zone) == (COST, CURRENCY, "UTC")
        if view is None or view.exclude or amount is None or not is_plain or budget.cost_type_mask:
            continue
        found.append(
            MoneyBudget(
                name=budget.name,
                include=view.include,
                per=budget.per,
                granularity=budget.granularity,
                amount=amount,
            )
        )
    return found


def _current_amount(budget: SpendBudget, now: float) -> Decimal | None:
    planned = budget.amount_for_period(period_at(now, budget.granularity, UTC).first_day)
    return Decimal(planned) if planned else None
