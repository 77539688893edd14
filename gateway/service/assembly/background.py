"""
Background tasks of a server. Some run in every server, and others only in gateways, not in agents on laptops.

An agent leaves work that drains a battery, and all work about the organization's money, to its gateway.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

from gateway.core.first_use import LazyValue, import_in_thread
from gateway.devices.states import device_revoker
from gateway.intake.billing_connections import BillingConnections
from gateway.monitoring.memory import collect_garbage_when_idle
from gateway.monitoring.metrics import ProcessMetrics
from gateway.operations.money.reports.declared import ScheduledReportTable
from gateway.operations.money.work_links.declared import follow_links
from gateway.operations.services import Background, OperatorServices
from gateway.service.assembly.money import (
    evaluate_budgets,
    run_biller,
    run_cost_updater_when_needed,
    wait_until_configured,
)
from gateway.service.assembly.parts import ServicePartsBuilder
from spool.container_files.files import ContainerFiles
from spool.leases import Leases
from spool.loops import repeat
from spool.storage import Storage
from spool.turns.fair_turns import FairTurnScheduler

if TYPE_CHECKING:
    from gateway.bills.enforcers.reader import EnforcerReader
    from gateway.bills.statements.puller import StatementPuller

RETAIN_EVERY_S = 60.0
FIRST_ADVICE_S = 60.0
# seconds from the start to the first inspection; routes report their state only some time after a start
FIRST_INSPECTION_S = 30.0

Run = Callable[[], Coroutine[Any, Any, None]]


@dataclass(frozen=True, slots=True)
class Task:
    """
    A background task. If several gateways share a storage, only the holder of `lease` runs the task. Without
    a lease, every gateway runs it.
    """

    name: str
    run: Run
    lease: str = ""


def leased_task(name: str, run: Run) -> Task:
    return Task(name, run, lease=name)


def task_runners_by_name(tasks: Iterable[Task], leases: Leases) -> Background:
    """Return the tasks by name. A task with a lease waits until it gets the lease."""
    return {
        task.name: partial(leases.run_while_leased, task.lease, task.run) if task.lease else task.run
        for task in tasks
    }


def server_tasks(parts_builder: ServicePartsBuilder, operators: OperatorServices) -> Iterator[Task]:
    storage = parts_builder.storage
    if storage.is_shared:
        yield Task("reach of the ledger", lambda: storage.ledger.track_other_processes(storage.log))
    if parts_builder.late_reports is not None:
        yield Task("late reports", parts_builder.late_reports.run)
    if parts_builder.sender_fields is not None:
        yield Task("fields of senders", parts_builder.sender_fields.run)
    yield leased_task("retention", lambda: _run_retention(storage, parts_builder.billing_connections))
    yield leased_task("container files", lambda: _run_file_retention(storage.container_files, parts_builder))
    yield leased_task("ledger", lambda: storage.ledger.count_until_cancelled(storage.log))
    yield leased_task("rollups", storage.ledger.make_rollups_until_cancelled)
    if storage.registry is not None:
        yield leased_task("erasures", lambda: _run_erasures(parts_builder))
    yield Task("ledger beside the log", partial(_run_ledger_mender, parts_builder, operators), lease="ledger")


def gateway_tasks(
    parts_builder: ServicePartsBuilder,
    operators: OperatorServices,
    metrics: ProcessMetrics,
    scheduler: FairTurnScheduler,
) -> Iterator[Task]:
    yield Task("loop lag", partial(metrics.lag.measure_repeatedly, scheduler.wait_for_requests))
    questions = operators.installation.questions
    yield Task(
        "full rounds of the collector",
        partial(collect_garbage_when_idle, questions.wait_until_idle, scheduler.wait_for_requests),
    )
    if parts_builder.storage.registry is not None:
        yield from _registry_tasks(parts_builder, operators)


def _registry_tasks(parts_builder: ServicePartsBuilder, operators: OperatorServices) -> Iterator[Task]:
    """Yield the tasks that use stored documents. There are none while the registry is damaged."""
    from gateway.devices.fleet.use_days import UseDayRecorder  # an agent has no fleet

    money = operators.money
    registry = money.require_registry()
    if parts_builder.sign_ins is not None:
        yield Task("sign-in", parts_builder.sign_ins.run)
    if money.budgets is not None:
        yield Task("budgets", partial(evaluate_budgets, money.budgets, registry))
    if parts_builder.sender_hours is not None:
        yield Task("hours of senders", parts_builder.sender_hours.run)
    yield Task("definitions in force", money.require_definition_publisher().follow_publications)
    yield Task("links in the ledger", partial(follow_links, money.ledger, registry), lease="ledger")
    yield leased_task("insights", lambda: _run_insight_inspector(operators))
    if money.statement_puller is not None:
        yield leased_task("statements", partial(_run_statement_puller, money.statement_puller, parts_builder))
    if money.enforcer_reader is not None:
        yield leased_task("enforcers", partial(_run_enforcer_reader, money.enforcer_reader, parts_builder))
    if money.biller is not None:
        yield leased_task("billed money", partial(run_biller, money.biller, registry.statements))
    if money.row_book is not None:
        prices = parts_builder.config.container.price
        yield leased_task(
            "rows of connections",
            partial(run_cost_updater_when_needed, money.row_book, registry.connections_in_costs, prices),
        )
    yield leased_task("scheduled reports", lambda: _run_report_sender(operators))
    yield leased_task("recommendations", lambda: _run_recommendation_adviser(operators))
    if parts_builder.notifier is not None:
        yield leased_task("notifications", parts_builder.notifier.run)
    yield leased_task("publish jobs", money.require_definition_publisher().run)
    yield leased_task("devices", parts_builder.devices.clean_up_repeatedly)
    yield leased_task("states of devices", parts_builder.devices.store_changed_states_repeatedly)
    use_days = UseDayRecorder(parts_builder.devices, parts_builder.use_days)
    yield Task("days of assistants", use_days.store_repeatedly)
    yield leased_task("old days of assistants", use_days.sum_repeatedly)


async def _run_insight_inspector(operators: OperatorServices) -> None:
    await asyncio.sleep(FIRST_INSPECTION_S)
    await import_in_thread("gateway.operations.money.insights")
    from gateway.operations.money import insights

    await insights.make_insight_updater(operators).run()


async def _run_erasures(parts_builder: ServicePartsBuilder) -> None:
    await import_in_thread("spool.erasing")
    from spool import erasing

    await erasing.run_erasures_forever(parts_builder.storage, parts_builder.clock, device_revoker(""))


async def _run_ledger_mender(parts_builder: ServicePartsBuilder, operators: OperatorServices) -> None:
    await import_in_thread("spool.ledger.comparing")
    from spool.ledger import comparing as mending

    storage = parts_builder.storage
    changed = operators.money.request_budget_evaluation
    await mending.LedgerMender(
        ledger=storage.ledger, log=storage.log, clock=parts_builder.clock, changed=changed
    ).run()


async def _run_report_sender(operators: OperatorServices) -> None:
    await wait_until_configured(
        lambda: bool(operators.money.require_registry().declared_table(ScheduledReportTable).count())
    )
    await import_in_thread("gateway.operations.money.costs.scheduled_reports")
    from gateway.operations.money.costs import scheduled_reports as reports

    await reports.make_report_sender(operators).run()


async def _run_recommendation_adviser(operators: OperatorServices) -> None:
    await asyncio.sleep(FIRST_ADVICE_S)
    await import_in_thread("gateway.money.recommendations.adviser")
    await operators.money.require_adviser().run()


async def _run_statement_puller(
    puller: LazyValue[StatementPuller], parts_builder: ServicePartsBuilder
) -> None:
    await wait_until_configured(lambda: bool(parts_builder.config.reconciliation.pull))
    await import_in_thread("gateway.service.assembly.statements")
    await puller().run()


async def _run_enforcer_reader(reader: LazyValue[EnforcerReader], parts_builder: ServicePartsBuilder) -> None:
    await wait_until_configured(lambda: bool(parts_builder.config.enforcers))
    await import_in_thread("gateway.service.assembly.enforcers")
    await reader().run()


async def _run_file_retention(files: ContainerFiles, parts_builder: ServicePartsBuilder) -> None:
    async def delete_expired_files() -> None:
        await files.delete_expired(has_upstream=bool(parts_builder.config.upstream.base_url))

    await repeat(
        delete_expired_files,
        every_s=RETAIN_EVERY_S,
        failed="files of container metrics could not be deleted",
        action="files_not_removed",
    )


async def _run_retention(storage: Storage, connections: BillingConnections) -> None:
    steps: Mapping[str, Callable[[], Awaitable[object]]] = {
        "records": storage.log.run_retention,
        "billing rows": connections.delete_old_months,
    }

    async def delete_old_data() -> None:
        await storage.failed_items.work_on("retention", steps, lambda step: step())

    await repeat(
        delete_old_data,
        every_s=RETAIN_EVERY_S,
        failed="old data could not be deleted",
        action="retention_put_off",
    )
