"""
Whole conversations of made-up clients, sent to one gateway in random order.

Each call has several signals from up to four reporters, split into requests, merged and repeated, with
pauses, stops and kills in between. The gateway's records must equal the truth, whatever the order.
docs/promises/ordering.md lists the exceptions, and the plan says where they occur.

TOLLHOUSE_ORDER_SEED repeats a run, and 0 draws a new seed. `make proofs` runs for minutes.
"""

from __future__ import annotations

import asyncio
import random
from collections import defaultdict
from collections.abc import Sequence
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from tests.integration.order.dealt.conversation import Truth, request_of
from tests.integration.order.dealt.judging import Judged, judge
from tests.integration.order.dealt.plan import KILL, STOP, Plan, dealt
from tests.integration.order.dealt.shared_gateways import SharedGateways
from tests.integration.order.running import HOLD_S, SEED, WINDOW_S, Gateway, Row
from tests.rounds import IS_LONG, part
from tests.spool.contract.disk import killed

# Number of plans per engine. Each plan has a new log.
PLANS = {"in memory": 8, "on disk": 4, "on PostgreSQL": 1}
if IS_LONG:
    PLANS = {"in memory": 5000, "on disk": 300, "on PostgreSQL": 100}


class DealtGateway(Gateway):
    """A gateway that may be killed, and whose result is judged at the end."""

    def __init__(self, directory: Path | None) -> None:
        super().__init__(directory)
        self._left: list[Any] = []

    async def kill(self) -> None:
        """Start a new process on a copy of the files as they are now."""
        if self._directory is not None:
            self._left.append(self._spool)
            copy = self._directory.with_name(f"killed-{len(self._left)}")
            self._directory = killed(self._directory, copy)
            await self.start()

    async def judged(self) -> Judged:
        self._clock.move(WINDOW_S + 1)
        await self._window.release_due_reports()
        for _ in range(2):
            await self.pass_time(HOLD_S + 1)
        self._clock.move(HOLD_S + 1)
        judged = await judge(self._spool.log, self._clock)
        for one in (*self._left, self._spool):
            await one.close()
        return judged


async def told(plan: Plan, gateway: DealtGateway | SharedGateways) -> Judged:
    await gateway.start()
    for step in plan.steps:
        request = request_of(step.items, as_protobuf=step.as_protobuf)
        if step.is_cut_off:  # the request is stored, but its answer is lost
            await gateway.take(request)
            await gateway.kill()
        await gateway.take(request)
        if step.then == STOP:
            await gateway.restart()
        elif step.then == KILL:
            await gateway.kill()
        await gateway.pass_time(step.pause_s)
    return await gateway.judged()


def expected(plan: Plan) -> dict[str, Truth]:
    """Return by model the true sums, plus what counts once more by an exception of docs/promises/ordering.md."""
    sums: defaultdict[str, Truth] = defaultdict(Truth)
    for one in plan.conversations:
        for model, truth in one.truth.items():
            sums[model] = sums[model].plus(truth)
    for one in plan.apart():
        (model,) = one.truth
        sums[model] = sums[model].plus(one.again)
    return dict(sums)


def kept(rows: Sequence[Row]) -> dict[str, Truth]:
    """Return by model the sums of all records that count."""
    sums: defaultdict[str, Truth] = defaultdict(Truth)
    failed: dict[str, bool] = {}  # whether a call failed, by the id of the call
    for row in rows:
        if row["shadow"]:
            continue
        if row["kind"] == "usage_metric":
            sums[row["model"]] = sums[row["model"]].plus(Truth(counted=int(row["value"])))
            continue
        model = row["request_model"] or row["response_model"]
        names = ("input_tokens", "output_tokens", "cache_read_tokens", "reasoning_tokens")
        counts = {name: row[name] or 0 for name in names}
        is_call = row["kind"] == "inference"  # a correction has differences instead of totals
        is_taken_back = row.get("reason") == "same_call"
        call = row["id" if is_call else "corrects"]
        had_failed, failed[call] = failed.get(call, False), row["status"] == "error" and not is_taken_back
        told = Truth(
            calls=is_call - is_taken_back,
            failures=failed[call] - had_failed,
            cost=Decimal(row["cost"] or 0),
            **counts,
        )
        sums[model] = sums[model].plus(told)
    return {model: truth for model, truth in sums.items() if truth != Truth()}


def compared(truth: dict[str, Truth], plan: Plan) -> dict[str, dict[str, int | Decimal]]:
    """
    Select comparable values. Parts that only some reports state are compared only if all reports arrived in
    time and the reporters never vary.
    """
    parts = {"cache_read_tokens", "reasoning_tokens", "cost"}
    return {
        model: {
            name: n
            for name, n in vars(one).items()
            if name not in parts or (plan.all_open and not model.startswith("toll-1"))
        }
        for model, one in truth.items()
    }


@pytest.mark.parametrize("where", part([*PLANS], every=len(PLANS)))
def test_stored_sums_and_ledger_sums_are_true(
    where: str, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    """
    For each plan and model, calls, failures, tokens, costs and counter tokens are true, and the ledger has
    the same sums.
    """
    for number in range(PLANS[where]):
        name = f"{SEED} {where} {number}"
        plan = dealt(random.Random(name))
        print(
            f"TOLLHOUSE_ORDER_SEED={SEED}, {where}, plan {number}: {[one.name for one in plan.conversations]}"
        )
        gateway: DealtGateway | SharedGateways
        if where == "on disk":
            gateway = DealtGateway(tmp_path / f"{number}" / "data")
        elif where == "in memory":
            gateway = DealtGateway(None)
        else:
            gateway = SharedGateways(request.getfixturevalue("new_schema")())
        rows, sums = asyncio.run(told(plan, gateway))
        check(plan, rows, sums, name)


def check(plan: Plan, rows: Sequence[Row], sums: tuple[int, int, int], name: str) -> None:
    truth = expected(plan)
    assert compared(truth, plan) == compared(kept(rows), plan), name
    assert sums == (
        sum(one.calls for one in truth.values()),
        sum(one.input_tokens + one.counted for one in truth.values()),
        sum(one.output_tokens for one in truth.values()),
    ), name
