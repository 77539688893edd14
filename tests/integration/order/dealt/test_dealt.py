"""
Whole conversations of made-up clients, dealt to one gateway: several signals of each call from up to four
reporters, cut into requests, merged, repeated, with pauses, stops and kills between them. What the gateway
keeps is what is true of the calls, whatever the order; docs/ordering.md has the exceptions, and the plan says
where they are met.

TOLLHOUSE_ORDER_SEED repeats a run, 0 draws a new one; TOLLHOUSE_FAULTS=full deals for minutes.
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
from tests.rounds import IS_LONG
from tests.spool.contract.disk import killed

# How many plans; each is of a fresh log.
PLANS = {"in memory": 80, "on disk": 4, "on PostgreSQL": 1}
if IS_LONG:
    PLANS = {"in memory": 5000, "on disk": 300, "on PostgreSQL": 100}


class DealtGateway(Gateway):
    """Which may be killed, and is judged at the end."""

    def __init__(self, directory: Path | None) -> None:
        super().__init__(directory)
        self._left: list[Any] = []

    async def kill(self) -> None:
        """What is on disk at this moment is what a new process finds."""
        if self._directory is not None:
            self._left.append(self._spool)
            copy = self._directory.with_name(f"killed-{len(self._left)}")
            self._directory = killed(self._directory, copy)
            await self.start()

    async def judged(self) -> Judged:
        self._clock.move(WINDOW_S + 1)
        await self._window.release()
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
        if step.is_cut_off:  # it is kept, and its answer is lost
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
    """By model, what is true, and what is told once more by an exception of docs/ordering.md."""
    sums: defaultdict[str, Truth] = defaultdict(Truth)
    for one in plan.conversations:
        for model, truth in one.truth.items():
            sums[model] = sums[model].plus(truth)
    for one in plan.apart():
        (model,) = one.truth
        sums[model] = sums[model].plus(one.again)
    return dict(sums)


def kept(rows: Sequence[Row]) -> dict[str, Truth]:
    """By model, what the records that count add up to."""
    sums: defaultdict[str, Truth] = defaultdict(Truth)
    for row in rows:
        if row["shadow"]:
            continue
        if row["kind"] == "usage_metric":
            sums[row["model"]] = sums[row["model"]].plus(Truth(counted=int(row["value"])))
            continue
        model = row["request_model"] or row["response_model"]
        names = ("input_tokens", "output_tokens", "cache_read_tokens", "reasoning_tokens")
        counts = {name: row[name] or 0 for name in names}
        is_call = row["kind"] == "inference"  # a correction has differences
        told = Truth(
            calls=int(is_call),
            failures=int(is_call and row["status"] == "error"),
            cost=Decimal(row["cost"] or 0),
            **counts,
        )
        sums[model] = sums[model].plus(told)
    return {model: truth for model, truth in sums.items() if truth != Truth()}


def compared(truth: dict[str, Truth], plan: Plan) -> dict[str, dict[str, int | Decimal]]:
    """
    Parts that only some reports state are compared where all came in time, and the reporters are always the same.
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


@pytest.mark.parametrize("where", PLANS)
def test_what_is_kept_is_what_is_true(where: str, request: pytest.FixtureRequest, tmp_path: Path) -> None:
    """
    Of each plan, by model: calls, failures, tokens, costs, what counters alone tell; and the ledger adds
    up the same.
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
