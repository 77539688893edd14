"""
A failing item of a background task costs only itself. So each endless loop is a call of `spool.loops.repeat`, and
each turn over items uses `for_each_item` or `FailedItems.work_on`.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from functools import cache
from pathlib import Path

from tests.test_layers import ROOT, modules

PACKAGES = ("spool", "exporters", "gateway")
# Commands run until they have printed a result or a person stops them.
COMMANDS = ("gateway/cli/", "gateway/console/")
ONE = "one item"
# By the turn of each loop: the functions that call the helper for items, or ONE.
TURNS = {
    "exporters/device_reporter.py wait_and_send_report": ONE,
    "exporters/forwarder.py check_all": "check_all",
    "exporters/forwarder.py send_until_handed_over": ONE,
    "exporters/lake/watch.py wait_and_check": ONE,
    "exporters/notifications/notifier.py self._send_if_due": ONE,
    "exporters/notifications/notifier.py send_until_channels_change": ONE,
    "exporters/notifications/notifier.py self._table.delete_old": ONE,
    "exporters/service/billing_sync.py send_and_wait": ONE,
    "exporters/service/container_metrics.py send_and_wait": ONE,  # `_attempt_send` guards each stream
    "exporters/service/device_sync.py self._send_and_wait": ONE,  # `_send_device` guards each device
    "exporters/service/people_above.py send_addresses": ONE,
    "exporters/service/people_above.py follow_and_wait": ONE,  # `_try_request_and_return_wait_s` guards each order
    "gateway/bills/billed/biller.py self.recalculate_changed_months": "recalculate_changed_months",
    "gateway/bills/billed/row_book.py self.recalculate_changed_months": "recalculate_changed_months",
    "gateway/bills/enforcers/reader.py self.read_due": "read_due",
    "gateway/bills/statements/puller.py self.pull_due": "pull_due",
    "gateway/core/kept_counts.py self.store_pending": ONE,
    "gateway/devices/fleet/use_days.py self.store_changed_days": "store_changed_days",
    "gateway/devices/fleet/use_days.py self.sum_old_days": ONE,
    "gateway/devices/lifecycle.py self.store_changed_states": "store_changed_states",
    "gateway/devices/lifecycle.py wait_and_clean_up": "end_keys_of_left_devices",
    "gateway/http/listening/tls.py wait_and_reload": ONE,
    "gateway/intake/merge_window.py wait_and_release": ONE,  # `_store_released_reports` guards each call
    "gateway/intake/publisher.py self.publish_due": "publish_due",
    "gateway/intake/shadows.py self._delete_old_senders": ONE,
    "gateway/intake/shadows.py self.forget_old_callers": ONE,
    "gateway/intake/waiting_counters.py self._wait_and_record": "_record_groups_or_each_alone",
    "gateway/money/allocation/publishing.py put_next_change_in_force": "load_versions_in_force",
    "gateway/money/allocation/publishing.py run_waiting_jobs": "run_waiting_jobs",
    "gateway/money/budgets/evaluator.py self._evaluate_and_wait": "_read_all_figures",
    "gateway/money/insights/inspector.py inspect_if_due": ONE,  # `run_detectors` guards each detector
    "gateway/money/recommendations/adviser.py self.find_and_store_savings": "find_and_store_savings",
    "gateway/monitoring/memory.py wait_and_collect": ONE,
    "gateway/monitoring/metrics.py measure": ONE,
    "gateway/monitoring/sender_hours.py store_running_hour": ONE,
    "gateway/monitoring/spend.py self.read_totals": ONE,
    "gateway/operations/money/reports/sender.py self.send_due": "send_due",
    "gateway/operations/money/work_links/declared.py apply_links_and_wait": ONE,
    "gateway/people/authentication/access.py self.store_uses": ONE,
    "gateway/people/authentication/oidc/sign_ins.py self.end_unconfirmed_sessions": "end_unconfirmed_sessions",
    "gateway/service/app.py run_once": ONE,
    "gateway/service/assembly/background.py delete_expired_files": ONE,
    "gateway/service/assembly/background.py delete_old_data": "delete_old_data",
    "gateway/service/assembly/demo.py note_heartbeats": ONE,
    "gateway/service/assembly/money.py look_for_bills": ONE,
    "gateway/service/assembly/parts.py use_changed_prices": ONE,
    "gateway/service/handover.py accept_successor": ONE,
    "spool/erasing.py partial(continue_due_erasures, storage, clock, revoke_device)": "continue_due_erasures",
    "spool/ledger/comparing.py compare_if_due": "compare_and_repair",
    "spool/ledger/ledger.py track": ONE,
    "spool/ledger/ledger.py wait_and_make_rollup": ONE,
    "spool/postgres/leases.py self._renew_and_wait": ONE,
    "spool/postgres/registry/follower.py turn": ONE,
    "spool/sqlite/log/recovery_notes.py write_note_after_change": ONE,
}
# Loops that wait, but are no loops of a task: by function, why they end or what guards them.
NO_TASKS = {
    "exporters/clickhouse/exporter.py write_delivery": "ends with the delivery",
    "exporters/device_reporter.py _wait_for_change": "ends with the wait",
    "exporters/kafka/exporter.py _encode_messages": "ends with the delivery",
    "exporters/lake/exporter.py write_entries_to_files": "ends with the delivery",
    "exporters/notifications/notifier.py send_due_and_return_next_time": "ends when nothing is due",
    "exporters/otlp/spans.py _append_entry": "ends with the entry",
    "exporters/pace.py _wait_for_more": "ends with the wait",
    "exporters/pace.py first_unsendable_number_changes": "yields to the route, which starts again after an error",
    "exporters/pace.py wait_and_take_units": "ends with the wait",
    "exporters/route_loop.py _run_worker": "guards each delivery",
    "gateway/http/event_streams.py _send_until_end": "serves one request",
    "gateway/money/budgets/evaluator.py _wait_until_due": "ends with the wait",
    "gateway/money/budgets/verdicts.py wait_for_newer_table": "serves one request",
    "gateway/monitoring/service_manager.py feed_watchdog": "must end with the server",
    "gateway/monitoring/service_manager.py request_more_start_time": "ends with the start",
    "gateway/service/app.py _open_when_there_is_room": "ends with the start",
    "gateway/service/assembly/money.py evaluate_budgets": "ends with the first budget",
    "gateway/service/assembly/money.py run_cost_updater_when_needed": "ends with the first connection",
    "gateway/service/assembly/money.py wait_until_configured": "ends with the configuration",
    "spool/devices/table.py _write_all": "writes what callers wait for",
    "spool/leases.py _wait_until_held": "ends with the lease",
    "spool/leases.py run_while_leased": "runs a task, whose supervisor starts it again",
    "spool/ledger/ledger.py _count_closed_records": "ends with the newest record",
    "spool/ledger/ledger.py count_until_cancelled": "guards each attempt to count",
    "spool/ledger/own_records.py _extend_cached_search": "serves one request",
    "spool/log/commits/writer.py _commit_until_closed": "the writer of the log, which alone may end the process",
    "spool/log/watermarks.py watermark_changes": "yields to a task",
    "spool/postgres/devices.py _commit_and_retry": "serves one commit",
    "spool/postgres/leases.py _renew_within_time": "ends with the renewal",
    "spool/postgres/log/commits.py _try_until_committed": "serves one commit",
    "spool/postgres/log/upkeep.py _follow_until_closed": "guards each attempt to follow",
    "spool/postgres/migrations.py migrate_schema": "ends with the migration",
    "spool/postgres/transfer/unfinished.py run_and_report_standby_wait": "ends with the copy",
    "spool/turns/fair_turns.py wait_for_turn": "ends with the turn",
}
WAITS = ("sleep", "wait", "shield", "rest")


@cache
def functions() -> dict[str, list[ast.AsyncFunctionDef]]:
    """Return the asynchronous functions of the product's servers, by file."""
    found = {}
    for package in PACKAGES:
        for path in modules(package):
            name = str(path.relative_to(ROOT))
            if not name.startswith(COMMANDS) and name != "spool/loops.py":
                found[name] = parsed(path)
    return found


def parsed(path: Path) -> list[ast.AsyncFunctionDef]:
    text = path.read_text()
    if "async def" not in text or not ("while " in text or "async for" in text or "repeat(" in text):
        return []
    return [node for node in ast.walk(ast.parse(text)) if isinstance(node, ast.AsyncFunctionDef)]


def called_name(call: ast.Call) -> str:
    function = call.func
    return function.attr if isinstance(function, ast.Attribute) else getattr(function, "id", "")


def waits(loop: ast.AST) -> bool:
    """Return whether a loop waits for a time or an event, as the loop of a task does."""
    awaited = (node.value for node in ast.walk(loop) if isinstance(node, ast.Await))
    names = (called_name(call) for call in awaited if isinstance(call, ast.Call))
    return any(name.lstrip("_").startswith(WAITS) for name in names)


def waiting_loops() -> Iterator[str]:
    for path, found in functions().items():
        for function in found:
            loops = [node for node in ast.walk(function) if isinstance(node, ast.While | ast.AsyncFor)]
            if any(map(waits, loops)):
                yield f"{path} {function.name}"


def repeated_turns() -> Iterator[str]:
    for path, found in functions().items():
        for function in found:
            for node in ast.walk(function):
                if isinstance(node, ast.Call) and called_name(node) == "repeat" and node.keywords:
                    yield f"{path} {ast.unparse(node.args[0])}"


def test_only_the_helper_loops_for_ever() -> None:
    """A new loop that waits uses `repeat`, or is named here with the reason why it ends."""
    assert set(NO_TASKS) == set(waiting_loops())


def test_each_turn_of_a_loop_is_named_with_its_helper() -> None:
    assert set(TURNS) == set(repeated_turns())


def test_turns_over_items_call_the_helper() -> None:
    missing = []
    for turn, name in TURNS.items():
        path = turn.partition(" ")[0]
        helpers = {
            called_name(node)
            for function in functions()[path]
            if function.name == name
            for node in ast.walk(function)
            if isinstance(node, ast.Call)
        }
        if name != ONE and not helpers & {"for_each_item", "work_on"}:
            missing.append(turn)
    assert [] == missing
