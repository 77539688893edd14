"""
An error in one item of a background loop costs only that item. Each test injects an error into the first item of a
loop; the next item is done, and a state names the failed item.
"""

from __future__ import annotations

import asyncio
import random
from dataclasses import replace
from types import SimpleNamespace
from typing import Any, cast

import msgspec
import pytest

from exporters.service.device_sync import DeviceSync
from exporters.service.people_above import UpstreamPeopleExchange
from gateway.bills.billed import biller as biller_module
from gateway.bills.billed.biller import BilledCostCalculator
from gateway.bills.billed.row_book import ConnectionCostUpdater, RowSources
from gateway.bills.enforcers.reader import EnforcerReader
from gateway.bills.months import CalendarMonth
from gateway.configuration.sections import DeviceSettings, UnitCostPublication
from gateway.devices.lifecycle import DeviceLifecycle
from gateway.intake import merge_window
from gateway.intake.merge_window import ReportMergeWindow
from gateway.intake.publisher import UnitCostPublisher
from gateway.money.budgets.evaluator import BudgetEvaluator
from gateway.money.budgets.figures import BudgetLedger
from gateway.people.authentication.oidc.sign_ins import ProviderSignIns
from gateway.service.assembly import background
from spool import erasing
from spool.devices.device import ENROLLED
from spool.devices.table import DeviceTable
from spool.ledger.comparing import LedgerMender
from spool.loops import FailedItems, failure_reason
from spool.registry.tables.enforcers import EnforcerReading
from spool.sqlite.devices import SqliteDevices
from spool.sqlite.directory import SPOOL
from spool.sqlite.memory_log import MemoryDatabase
from tests.exporters.spools import StoppedClock
from tests.gateway.bills.billed.test_biller import FIRST, World, line
from tests.gateway.bills.enforcers.world import ENFORCER, NOVEMBER
from tests.gateway.devices.test_noted_states import drawn
from tests.gateway.intake.test_waiting_counters import Running
from tests.gateway.money.budgets.house import House
from tests.moved_clock import MovedClock


def fail(*_: object) -> None:
    """Fail as a deep document does. This error is neither a ValueError nor an error of the storage."""
    raise RecursionError


class Once:
    """A function that fails for `broken`, and notes its other arguments."""

    def __init__(self, broken: object) -> None:
        self.broken = broken
        self.done: list[Any] = []

    async def __call__(self, item: Any, *_: object, **__: object) -> int:
        if item == self.broken:
            fail()
        self.done.append(item)
        return 1


def logged_items(caplog: pytest.LogCaptureFixture) -> list[tuple[str, str]]:
    """Return the action and the item of each error in the log."""
    return [
        (record.__dict__["action"], record.__dict__.get("item", ""))
        for record in caplog.records
        if record.levelname == "ERROR"
    ]


def failed_names(failed_items: FailedItems) -> list[tuple[str, str]]:
    return [(failed.task, failed.item) for failed in failed_items.all()]


async def test_an_enforcer_with_deep_lists_stops_no_other(caplog: pytest.LogCaptureFixture) -> None:
    """Its state has the reason and the time of the next attempt, so it is not asked in each turn."""
    house = await House(at=NOVEMBER).start()
    deep, sound = (replace(ENFORCER, name=name, type="openrouter", base_url="") for name in ("deep", "sound"))
    asked: list[str] = []

    async def fetch(enforcer: Any, url: str, headers: Any) -> bytes:
        asked.append(enforcer.name)
        return b"[" * 3_000_000 if enforcer.name == "deep" else b'{"data": []}'

    reader = EnforcerReader(house.registry.enforcers, house.clock, lambda: [deep, sound], fetch)
    await reader.read_due()
    await reader.read_due()
    assert ["deep", "sound"] == asked
    of_deep, of_sound = await reader.statuses()
    assert "the answer is no JSON" == of_deep.state.reason
    assert of_deep.state.next_at > house.clock.now()
    assert (NOVEMBER, "") == (of_sound.state.last_success, of_sound.state.reason)
    await reader.read_enforcer("deep")  # a person who reads it now gets its state, and no error of the server


async def test_an_enforcer_whose_type_has_a_defect_stops_no_other(monkeypatch: pytest.MonkeyPatch) -> None:
    house = await House(at=NOVEMBER).start()
    broken, sound = (replace(ENFORCER, name=name) for name in ("broken", "sound"))
    reader = EnforcerReader(house.registry.enforcers, house.clock, lambda: [broken, sound], cast("Any", None))
    read = Once("broken")

    async def fetch_reading(enforcer: Any, now: float) -> Any:
        await read(enforcer.name)
        return EnforcerReading(at=now, limits=())

    monkeypatch.setattr(reader, "_fetch_reading", fetch_reading)
    await reader.read_due()
    assert ["sound"] == read.done
    [state, _] = [status.state for status in await reader.statuses()]
    assert "an internal error; see the log: RecursionError" == state.reason


async def test_a_month_that_fails_stops_no_other_month(monkeypatch: pytest.MonkeyPatch) -> None:
    world = await World().open()
    world.told.kept += [line("input", "1")]
    failed_items = FailedItems(world.clock)
    biller = BilledCostCalculator(world.biller._sources, world.clock, failed_items=failed_items)
    first = CalendarMonth.at(FIRST).previous
    recalculate = Once(first)
    monkeypatch.setattr(biller, "recalculate_month", recalculate)
    await biller.recalculate_changed_months()
    assert [CalendarMonth.at(FIRST)] == recalculate.done
    assert [("billed costs", first.name)] == failed_names(failed_items)


@pytest.mark.parametrize("step", ["build_bill", "divide_day"])
async def test_a_bill_that_fails_stops_no_other_provider(step: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its days stay as they were, its month is not closed, and the next recalculation takes it up."""
    world = await World().open()
    world.told.providers = ["anthropic", "openai"]
    world.told.kept += [line("input", "1"), msgspec.structs.replace(line("input", "2"), provider="anthropic")]
    month = CalendarMonth.at(FIRST)
    await world.biller.recalculate_month(month)
    world.told.kept += [line("input", "4"), msgspec.structs.replace(line("input", "8"), provider="anthropic")]
    original = getattr(biller_module, step)

    def fail_for_anthropic(first: Any, *others: Any, **named: Any) -> Any:
        if first.provider == "anthropic":
            fail()
        return original(first, *others, **named)

    monkeypatch.setattr(biller_module, step, fail_for_anthropic)
    with pytest.raises(RecursionError) as failed:
        await world.biller.recalculate_month(month)
    reason = failure_reason(failed.value)
    assert "an internal error; see the log: RecursionError, the bill of anthropic" == reason
    assert {("openai",): 5, ("anthropic",): 2} == await world.paid("billed_cost", "provider")
    stored: Any = Once(None)
    with pytest.raises(RecursionError):
        await world.biller.close_month(month, "anthropic", [], stored)
    assert [] == stored.done
    await world.biller.close_month(month, "openai", [], stored)
    assert 1 == len(stored.done)
    monkeypatch.setattr(biller_module, step, original)
    await world.biller.recalculate_month(month)
    assert {("openai",): 5, ("anthropic",): 10} == await world.paid("billed_cost", "provider")


async def test_a_month_of_a_connection_that_fails_stops_no_other(monkeypatch: pytest.MonkeyPatch) -> None:
    class Drops:
        last_drop_at_by_month = Once("torn")

        @staticmethod
        async def month_size(*_: object) -> int:
            return 1

    async def months(id: str) -> dict[str, float]:
        await Drops.last_drop_at_by_month(id)
        return {"2026-09": 1.0, "2026-10": 2.0}

    drops = SimpleNamespace(last_drop_at_by_month=months, month_size=Drops.month_size)
    connections = [SimpleNamespace(id=id, cloud_provider="aws") for id in ("torn", "sound")]
    clock = StoppedClock()
    failed_items = FailedItems(clock)
    sources = cast("RowSources", SimpleNamespace(drops=drops, connections=lambda: connections, usage=None))
    book = ConnectionCostUpdater(sources, clock, failed_items)
    recalculate = Once("2026-09")

    async def recalculate_month(rules: object, month: str, newest: float) -> int:
        return await recalculate(month)

    async def delete_nothing(names: object) -> int:
        return 0

    monkeypatch.setattr(book, "_recalculate_month", recalculate_month)
    monkeypatch.setattr(book, "_delete_other_connections", delete_nothing)
    monkeypatch.setattr(book, "_row_rules", lambda *_: None)
    assert 1 == await book.recalculate_changed_months()
    assert ["2026-10"] == recalculate.done
    assert [
        ("rows of billing connections", "torn"),
        ("costs of billing connections", "sound 2026-09"),
    ] == failed_names(failed_items)


async def test_a_published_stream_that_fails_stops_no_other(monkeypatch: pytest.MonkeyPatch) -> None:
    broken, sound = (UnitCostPublication(stream=name) for name in ("broken", "sound"))
    clock = StoppedClock()
    failed_items = FailedItems(clock)
    nothing = cast("Any", None)
    publisher = UnitCostPublisher(
        [broken, sound], ledger=nothing, intake=nothing, streams=nothing, known_streams=nothing, clock=clock,
        failed_items=failed_items,
    )  # fmt: skip
    publish = Once(broken)
    monkeypatch.setattr(publisher, "publish_changed_costs", publish)
    await publisher.publish_due()
    assert [sound] == publish.done
    assert [("published unit costs", "broken")] == failed_names(failed_items)


async def test_an_erasure_that_fails_stops_no_other(monkeypatch: pytest.MonkeyPatch) -> None:
    broken, sound = (SimpleNamespace(id=id, passes=0) for id in ("broken", "sound"))
    clock = StoppedClock()
    storage = SimpleNamespace(
        registry=SimpleNamespace(persons=SimpleNamespace(erasures=[broken, sound])),
        failed_items=FailedItems(clock),
    )
    finish = Once(broken)

    async def finish_erasure(_: object, __: object, erasure: object, *___: object) -> None:
        await finish(erasure)

    monkeypatch.setattr(erasing, "_finish_erasure", finish_erasure)
    await erasing.continue_due_erasures(cast("Any", storage), clock, cast("Any", None))
    assert [sound] == finish.done
    assert [("erasures", "broken")] == failed_names(storage.failed_items)


async def test_records_that_cannot_be_deleted_stop_no_other_retention() -> None:
    deleted = asyncio.Event()

    async def fail_to_delete() -> None:
        fail()

    async def delete_old_months() -> None:
        deleted.set()

    storage = SimpleNamespace(
        log=SimpleNamespace(run_retention=fail_to_delete), failed_items=FailedItems(StoppedClock())
    )
    connections = SimpleNamespace(delete_old_months=delete_old_months)
    task = asyncio.create_task(background._run_retention(cast("Any", storage), cast("Any", connections)))
    await deleted.wait()
    assert not task.done()
    assert [("retention", "records")] == failed_names(storage.failed_items)
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


async def test_a_budget_that_fails_stops_no_other_and_states_its_problem(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    house = await House(at=NOVEMBER).start()
    view = await house.view()
    broken, sound = [await house.budget(view, name=name) for name in ("broken", "sound")]
    read_figures = BudgetLedger.read_figures

    async def fail_for_broken(ledger: BudgetLedger, budget: Any, of_view: Any) -> Any:
        if budget.id == broken.id:
            fail()
        return await read_figures(ledger, budget, of_view)

    monkeypatch.setattr(BudgetLedger, "read_figures", fail_for_broken)
    evaluator: BudgetEvaluator = house.evaluator
    run = await evaluator.evaluate_all()
    assert (1, 1) == (run.evaluated, run.broken)
    assert "an internal error; see the log: RecursionError" == evaluator.figures[broken.id].problem
    assert evaluator.figures[sound.id].problem is None


async def test_a_device_that_fails_stops_no_other(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = MovedClock()
    table = await DeviceTable.open(SqliteDevices(MemoryDatabase(SPOOL)))
    lifecycle = DeviceLifecycle(table, settings=DeviceSettings(), clock=clock, secret=b"i" * 32)
    devices = [drawn(random.Random(number), f"device-{number}", clock.now()) for number in range(3)]
    for device in devices:
        table._put_in_memory(device.id, device)
    evaluated: list[str] = []
    machine_state = lifecycle.machine_state

    def fail_for_first(device: Any) -> Any:
        if device.id == devices[0].id:
            fail()
        evaluated.append(device.id)
        return machine_state(device)

    monkeypatch.setattr(lifecycle, "machine_state", fail_for_first)
    await lifecycle.store_changed_states()
    assert {device.id for device in devices[1:]} <= set(evaluated)
    await table.close()


async def test_a_call_that_cannot_be_merged_stops_no_other(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its reports wait again, so that nothing is lost."""
    monkeypatch.setattr(merge_window, "_sender_to_bearer", lambda sender: sender)
    calls = [
        SimpleNamespace(reports={name: None}, outcome=name, sender=None, pending=None) for name in ("a", "b")
    ]
    put_back: list[Any] = []
    store = Once("a")
    merger = SimpleNamespace(put_back_released_reports=put_back.append)
    intake = SimpleNamespace(store_outcome=store)
    window = ReportMergeWindow(cast("Any", None), cast("Any", intake), StoppedClock(), cast("Any", merger))
    waiting: Any = await window._store_released_reports(cast("Any", calls))
    assert calls[:1] == waiting
    assert ["b"] == store.done
    assert [calls[0]] == put_back


async def test_a_device_that_cannot_be_sent_stops_no_other(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = MovedClock()
    table = await DeviceTable.open(SqliteDevices(MemoryDatabase(SPOOL)))
    for number in range(3):
        device = drawn(random.Random(number), f"device-{number}", clock.now())
        table._put_in_memory(
            device.id, replace(device, state=ENROLLED, held=None, version=2, facts_version=2, sent_version=1)
        )
    sync = DeviceSync(table, cast("Any", None), clock=clock)
    devices = sync._due_devices(clock.monotonic())
    enrol = Once("device-0")

    async def enrol_device(device: Any) -> Any:
        await enrol(device.id)
        return replace(device, last_heartbeat=None)

    monkeypatch.setattr(sync, "_enrol_device", enrol_device)
    await asyncio.gather(*(sync._send_device(device) for device in devices))
    assert ["device-1", "device-2"] == sorted(enrol.done)
    held = {device.id: device.held for device in table.all() if device.held is not None}
    assert {"device-0": "an internal error; see the log: RecursionError"} == held
    await table.close()


async def test_an_order_of_the_tollhouse_above_that_fails_stops_no_other(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    broken, sound = (SimpleNamespace(id=id, passes=1, below=()) for id in ("broken", "sound"))
    persons = SimpleNamespace(erasures=[])
    erase = Once(broken)
    exchange = UpstreamPeopleExchange(
        cast("Any", SimpleNamespace(persons=SimpleNamespace())), cast("Any", persons),
        upstream=lambda: None, clock=StoppedClock(), installation="below", erase=cast("Any", erase),
    )  # fmt: skip
    confirmed: list[Any] = []

    async def confirm_and_fetch(done_ids: Any = ()) -> Any:
        confirmed.append(list(done_ids))
        persons.erasures[:] = erase.done
        return [broken, sound]

    monkeypatch.setattr(exchange, "_confirm_and_fetch_erasures", confirm_and_fetch)
    monkeypatch.setattr(exchange, "_is_erasure_done", lambda order: order in erase.done)
    await exchange._carry_out_erasure_orders()
    assert [sound] == erase.done
    assert [[], ["sound"]] == confirmed
    assert [("broken", "")] == logged_items(caplog)


async def test_a_session_that_cannot_be_checked_stops_no_other(caplog: pytest.LogCaptureFixture) -> None:
    broken, sound = (SimpleNamespace(digest=digest, refreshes=True) for digest in ("broken", "sound"))
    check = SimpleNamespace(due=0.0)

    async def live_sessions() -> Any:
        return [broken, sound]

    async def no_ends() -> Any:
        return {}

    recheck = Once(broken)
    sign_ins = SimpleNamespace(
        _operators=SimpleNamespace(live_sessions=live_sessions, check_claim_ends_by_session=no_ends),
        _checked={"broken": check, "sound": check},
        _clock=SimpleNamespace(monotonic=lambda: 1.0),
        _recheck_session=recheck,
    )
    await ProviderSignIns.end_unconfirmed_sessions(cast("Any", sign_ins))
    assert [sound] == recheck.done
    assert [("oidc_check", "broken")] == logged_items(caplog)


async def test_counters_that_cannot_be_recorded_stop_no_others(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    running = Running()
    await running.open()
    recorded: list[bytes] = []

    async def record(keys: Any) -> int:
        if b"broken" in keys:
            fail()
        recorded.extend(keys)
        return len(keys)

    monkeypatch.setattr(running.counters, "_record_groups_of_counters", record)
    assert 1 == await running.counters._record_groups_or_each_alone([b"broken", b"sound"])
    assert [b"sound"] == recorded
    assert ("release_put_off", b"broken".hex()) == logged_items(caplog)[-1]


async def test_a_period_that_cannot_be_repaired_stops_no_other(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """The comparison is stored as one that did not repair everything."""
    broken, sound = ("hour", 0), ("hour", 3600)
    compared = SimpleNamespace(
        is_done=True, is_incomplete=True, suspects={broken, sound}, missed=0, unexplained_differences=list
    )
    stored: list[Any] = []

    async def compare(*_: object, **__: object) -> Any:
        return compared

    async def store_comparison(_: object, **facts: Any) -> int:
        stored.append(facts["is_ledger_repaired"])
        return 0

    ledger = SimpleNamespace(
        compare_and_note_differences=compare, store_comparison_and_return_missed_count=store_comparison
    )
    mender = LedgerMender(ledger=cast("Any", ledger), log=cast("Any", None), clock=StoppedClock())
    repair = Once(broken)

    async def repair_period(_: object, period: Any) -> bool:
        return bool(await repair(period))

    monkeypatch.setattr(mender, "_try_repair_period", repair_period)
    await mender.compare_and_repair()
    assert [sound] == repair.done
    assert [False] == stored
    assert [("ledger_not_mended", str(broken))] == logged_items(caplog)
