"""Changes of several tables in one transaction: all of them or none, and memory as stored."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from gateway.money.budgets.declared import BudgetTable, NewBudget, ViewName
from spool.errors import Invalid, NotAllowed
from spool.registry.keys import ApiKey
from spool.registry.operators import Actor
from spool.registry.registry import Registry
from spool.registry.scopes import SEND_AI_TELEMETRY
from spool.registry.views import NewView, SavedView
from tests.spool.contract.conftest import RegistryOpener
from tests.spool.kept import audit_rows

ADA = Actor("ada@example.com", "local")


async def view_and_budget(draft: Registry, name: str = "Search") -> SavedView:
    view = await draft.views.create(
        NewView(name=name, filter={}, principal_dimension="team"),
        max_rows=9,
        known_dimensions=["team"],
        actor=ADA,
    )
    body = NewBudget(name="Monthly", view=ViewName(id=view.id), default_amount="5")
    await draft.declared_table(BudgetTable).create(body, max_rows=9, actor=ADA)
    return view


def names(registry: Registry) -> tuple[list[str], list[str]]:
    views = [view.name for view in registry.views.all()]
    return views, [budget.view_id for budget in registry.declared_table(BudgetTable).all()]


@pytest.mark.one_engine
async def test_both_tables_are_changed_and_shown(open_registry: RegistryOpener) -> None:
    registry = await open_registry()
    view = await registry.run_on_draft(view_and_budget, lambda _: True)
    assert (["Search"], [view.id]) == names(registry)
    assert ["view.create", "budget.create"] == [row.action for row in await audit_rows(registry)]
    registry = await open_registry()
    assert (["Search"], [view.id]) == names(registry)


@pytest.mark.one_engine
async def test_work_may_compute_between_two_statements(registry: Registry) -> None:
    """
    Checking a large set of changes takes seconds. The database does not end the transaction meanwhile, although its
    statements are that far apart.
    """

    async def slow(draft: Registry) -> None:
        await view_and_budget(draft)
        time.sleep(2.5)  # longer than a pause of other transactions may be
        await view_and_budget(draft, "Find")

    await registry.run_on_draft(slow, lambda _: True)
    assert ["Find", "Search"] == sorted(names(registry)[0])


@pytest.mark.one_engine
async def test_an_error_after_the_first_table_undoes_it(registry: Registry) -> None:
    async def half(draft: Registry) -> None:
        await draft.views.create(
            NewView(name="A", filter={}, principal_dimension="team"),
            max_rows=9,
            known_dimensions=["team"],
            actor=ADA,
        )
        raise Invalid("the budget is wrong")

    with pytest.raises(Invalid, match="the budget is wrong"):
        await registry.run_on_draft(half, lambda _: True)
    assert ([], []) == names(registry)
    assert [] == await audit_rows(registry)


@pytest.mark.one_engine
async def test_a_rejected_result_undoes_everything_and_is_returned(registry: Registry) -> None:
    view = await registry.run_on_draft(view_and_budget, lambda _: False)
    assert "Search" == view.name
    assert ([], []) == names(registry)
    assert [] == await audit_rows(registry)


@pytest.mark.one_engine
async def test_a_draft_follows_its_own_changes(registry: Registry) -> None:
    """
    A draft is checked against the changes of its own transaction: a name that the same transaction used is taken,
    and a deleted view is gone.
    """

    async def work(draft: Registry) -> str:
        view = await view_and_budget(draft)
        with pytest.raises(NotAllowed, match="already exists"):
            await view_and_budget(draft)
        with pytest.raises(NotAllowed, match="budgets use this view"):
            await draft.views.delete(view.id, actor=ADA)
        [budget] = draft.declared_table(BudgetTable).all()
        await draft.declared_table(BudgetTable).delete(budget.id, actor=ADA)
        await draft.views.delete(view.id, actor=ADA)
        return (await view_and_budget(draft)).id

    id = await registry.run_on_draft(work, lambda _: True)
    assert (["Search"], [id]) == names(registry)


async def test_a_key_that_is_created_together_opens_at_once(registry: Registry) -> None:
    async def work(draft: Registry) -> tuple[ApiKey, str]:
        return await draft.keys.create(name="sender", use_cases=[SEND_AI_TELEMETRY], actor=ADA)

    key, secret = await registry.run_on_draft(work, lambda _: True)
    assert key == registry.keys.find_by_secret(secret)

    async def end(draft: Registry) -> None:
        await draft.keys.delete("sender", confirm="sender", actor=ADA)

    await registry.run_on_draft(end, lambda _: True)
    assert registry.keys.find_by_secret(secret) is None
    assert registry.keys.is_known_or_ended_secret(secret)


@pytest.mark.one_engine
async def test_a_cancelled_caller_leaves_memory_as_stored(registry: Registry) -> None:
    running = asyncio.create_task(registry.run_on_draft(view_and_budget, lambda _: True))
    await asyncio.sleep(0)
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)
    await registry.run_on_draft(nothing, lambda _: True)
    assert ["Search"] == names(registry)[0]


async def nothing(draft: Registry) -> Any:
    return None


@pytest.mark.one_engine
async def test_a_waiting_method_is_refused(registry: Registry) -> None:
    """
    A coroutine that waits for something within a transaction would hold the transaction, so it ends with an error
    and changes nothing.
    """

    async def waits(draft: Registry) -> None:
        await view_and_budget(draft)
        await asyncio.sleep(0)

    with pytest.raises(RuntimeError, match="waits"):
        await registry.run_on_draft(waits, lambda _: True)
    assert ([], []) == names(registry)


KILLED = """
import asyncio, itertools, os, signal, sqlite3, sys
from pathlib import Path
from gateway.money.budgets.declared import BudgetTable
from spool.clock import SteadyClock
from spool.registry.file_owners import DeclaringFile
from spool.registry.registry import Registry
from spool.registry.scopes import SEND_AI_TELEMETRY
from spool.sql.registry import SqlRegistryRows
from spool.sqlite.registry import SqliteRegistry
from tests.spool.contract.registry.test_together import ADA, view_and_budget

directory = Path(sys.argv[1])


async def change(kill_at):
    left = itertools.count(1)

    def counted(self):
        if next(left) == kill_at:
            os.kill(os.getpid(), signal.SIGKILL)

    async def work(draft):
        await view_and_budget(draft)
        await draft.keys.create(name="sender", use_cases=[SEND_AI_TELEMETRY], actor=ADA)
        await draft.file_owners.store_owner(DeclaringFile(id="view x", set="a", file="views.yaml", line=1))

    store = await SqliteRegistry.open(directory)
    registry = await Registry.open(store, secret=b"s" * 32, clock=SteadyClock(), declared=[BudgetTable])
    SqlRegistryRows._prepare_write = counted
    await registry.run_on_draft(work, lambda _: True)
    await registry.close()


def stored():
    registry = sqlite3.connect(directory / "registry.sqlite")
    tables = ("documents", "audit", "keys")
    counts = [registry.execute(f"SELECT count(*) FROM {table}").fetchone()[0] for table in tables]
    registry.close()
    return counts


def started(kill_at):
    child = os.fork()
    if child == 0:
        asyncio.run(change(kill_at))
        os._exit(0)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


for kill_at in itertools.count(1):
    code = started(kill_at)
    if code == 0:
        break
    assert code == -signal.SIGKILL, code
    assert stored() == [0, 0, 0], (kill_at, stored())
print(kill_at - 1, stored())
"""


def test_a_killed_process_leaves_all_tables_as_before(tmp_path: Path) -> None:
    """
    A process that is killed leaves all tables as before. It is killed at each statement that writes, then one runs
    to its end.
    """
    words = [sys.executable, "-c", KILLED, str(tmp_path)]
    done = subprocess.run(words, capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stderr
    kills, _, counts = done.stdout.strip().partition(" ")
    assert int(kills) >= 7
    assert "[3, 3, 1]" == counts
