"""Makes what asks for final costs: its HTTP client is that of the destinations, its keys are files, read again."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack

from exporters.errors import PutOff, Retryable, SendError
from exporters.http.client import Client, ClientSettings
from exporters.http.reach import check_reach
from exporters.secret_source import SecretSource
from gateway.configuration.sections import Config, SellerSettings
from gateway.final_costs.puller import AskingFailed, FinalCostPuller, NotKnownYet
from gateway.intake.prices import PriceBook
from spool.clock import Clock
from spool.log.protocols import Log
from spool.statements.protocols import Statements

NOT_FOUND = 404
WAIT_S = 5.0  # where the seller tells no time


def final_cost_puller(
    log: Log,
    table: Statements,
    clock: Clock,
    config: Callable[[], Config],
    stack: AsyncExitStack,
    prices: Callable[[], PriceBook],
    *,
    sleep: Callable[[float], Awaitable[object]] = asyncio.sleep,
) -> FinalCostPuller:
    # The time of an answer is bounded by a setting that a reload may change.
    client = Client(ClientSettings(compression="none", timeout_s=0, check=check_reach), clock=clock)
    stack.push_async_callback(client.close)

    async def ask(seller: SellerSettings, url: str) -> bytes:
        settings = config().final_costs
        try:
            key = SecretSource(f"final_costs.seller {seller.name}: key_file", file=seller.key_file).value()
            async with asyncio.timeout(settings.timeout):
                answer = await client.send(
                    url,
                    b"",
                    method="GET",
                    content_type="application/json",
                    headers={"Authorization": f"Bearer {key}"},
                    max_answer_bytes=settings.max_answer_bytes + 1,
                    secrets=(key,),
                )
        except TimeoutError as error:
            words = f"no answer within {settings.timeout:g} s (final_costs.timeout)"
            raise AskingFailed(words, retry_after_s=WAIT_S) from error
        except SendError as error:
            if error.status == NOT_FOUND:
                raise NotKnownYet from error
            raise AskingFailed(f"{seller.name}: {error}", retry_after_s=_waits_s(error)) from error
        if len(answer.body) > settings.max_answer_bytes:
            limit = f"{settings.max_answer_bytes} bytes (final_costs.max_answer_bytes)"
            words = f"an answer has more than {limit}: raise it"
            raise AskingFailed(words, retry_after_s=None)
        return answer.body

    return FinalCostPuller(log, table, clock, lambda: config().final_costs, ask, prices, sleep=sleep)


def _waits_s(error: SendError) -> float | None:
    """Return the seconds after which the seller may answer; None if it would refuse again."""
    if isinstance(error, Retryable):
        return error.retry_after_s or WAIT_S
    return error.retry_after_s if isinstance(error, PutOff) else None
