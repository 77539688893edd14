"""
A process that fills a topic and kills itself: `victim DATA ADDRESS PLACE [plain]`; plain disables
transactions. PLACE is one of PLACES, or the number of delivery steps before the kill.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Awaitable, Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

from aiokafka import AIOKafkaProducer

from spool.record import AI_TELEMETRY
from tests.exporters.spools import calls
from tests.integration.lake.lakes import ROUTE, opened
from tests.integration.lake.victim import die

RECORDS = 95
WAITS = 5
# The process is killed in the second delivery before the named step, or at the "end", after all deliveries.
PLACES = ("mark", "begin", "commit", "settle", "end")


async def main(data: Path, address: str, wanted: str, *, transactions: bool = True) -> None:
    async with opened(data) as house:
        if house.storage.log.lowest_open_number(AI_TELEMETRY) == 1:
            await house.add(calls(1, RECORDS, cost="0.1", cost_source="reported"))
        deliveries: Any = house.storage.deliveries
        steps_left = int(wanted) if wanted.isdigit() else -1
        is_second = ROUTE in (await house.storage.log.books()).routes and bool(await house.terms())

        def step() -> None:
            nonlocal steps_left
            steps_left -= 1
            die("step" if steps_left == 0 else "", "step")

        def armed(name: str, method: Callable[..., Awaitable[Any]]) -> Callable[..., Awaitable[Any]]:
            async def wrapped(*arguments: Any, **options: Any) -> Any:
                nonlocal is_second
                die(name if is_second else "", wanted)
                step()
                result = await method(*arguments, **options)
                step()
                is_second = is_second or name == "settle"
                return result

            return wrapped

        deliveries.store_delivery_mark = armed("mark", deliveries.store_delivery_mark)
        deliveries.store_settlement = armed("settle", deliveries.store_settlement)
        producer: Any = AIOKafkaProducer
        producer.begin_transaction = armed("begin", producer.begin_transaction)
        producer.commit_transaction = armed("commit", producer.commit_transaction)
        async with house.forwarding(type="kafka", url=address, tls=False, transactions=transactions):
            for _ in range(WAITS):  # several waits, because the broker may be restarting
                with suppress(TimeoutError):
                    await house.until(name=ROUTE, queued=0)
                    break
            else:
                raise TimeoutError("not all is delivered")
    print("done", flush=True)


if __name__ == "__main__":
    asyncio.run(main(Path(sys.argv[1]), sys.argv[2], sys.argv[3], transactions="plain" not in sys.argv))
