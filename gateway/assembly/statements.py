"""Makes what pulls statements: the HTTP client is that of the destinations, the keys are files that are read again."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from contextlib import AsyncExitStack

from exporters.errors import Misconfigured, Rejected, Retryable, SendError
from exporters.http.client import Client, ClientSettings
from exporters.secret_source import SecretSource
from gateway.configuration.sections import Config, StatementPullSettings
from gateway.statements.puller import PullFailed, StatementPuller
from spool.clock import Clock
from spool.storage import Storage

MAX_PAGE_BYTES = 32 * 1024 * 1024
WAIT_S = 5.0  # where the provider tells no time


def statement_puller(
    storage: Storage,
    clock: Clock,
    config: Callable[[], Config],
    stack: AsyncExitStack,
    *,
    sleep: Callable[[float], Awaitable[object]] = asyncio.sleep,
) -> StatementPuller | None:
    """None while the registry, which keeps statements, is damaged."""
    if storage.registry is None:
        return None
    client = Client(ClientSettings(compression="none"), clock=clock)
    stack.push_async_callback(client.close)

    async def fetch(pull: StatementPullSettings, url: str, headers: Callable[[str], Mapping[str, str]]) -> bytes:
        try:
            key = SecretSource(f"reconciliation.pull {pull.name}: key_file", file=pull.key_file).value()
        except Misconfigured as error:
            raise PullFailed(str(error), retry_after_s=None) from error
        try:
            answer = await client.send(
                url,
                b"",
                method="GET",
                content_type="application/json",
                headers=headers(key),
                max_answer_bytes=MAX_PAGE_BYTES,
            )
        except SendError as error:
            hint = (error.retry_after_s or WAIT_S) if isinstance(error, Retryable) else None
            words = str(error).replace(key, "[key]")
            advice = "; is it an admin key?" if isinstance(error, Misconfigured | Rejected) else ""
            raise PullFailed(f"{words}{advice}", retry_after_s=hint) from error
        if len(answer.body) >= MAX_PAGE_BYTES:
            raise PullFailed(f"a page has more than {MAX_PAGE_BYTES} bytes; set fewer days", retry_after_s=None)
        return answer.body

    return StatementPuller(storage.registry.statements, clock, lambda: config().reconciliation, fetch, sleep=sleep)
