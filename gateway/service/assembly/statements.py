"""
Creates the service that fetches provider bills. It uses the HTTP client of destinations, and reads keys from
their files for each request.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import AsyncExitStack
from typing import Any

from exporters.errors import Misconfigured, Rejected, Retryable, SendError
from exporters.http.allowed_addresses import check_address_allowed
from exporters.http.client import ClientSettings, HttpClient
from exporters.secret_source import SecretSource
from gateway.bills.plans.declared import PlanTable
from gateway.bills.statements.puller import PullFailed, StatementPuller
from gateway.configuration.sections import Config, StatementPullSettings
from gateway.core.first_use import import_in_thread
from spool.clock import Clock
from spool.errors import NotThere
from spool.statements import StatementStore

FORBIDDEN, NOT_FOUND, TOO_MANY_REQUESTS = 403, 404, 429
WAIT_S = 5.0  # seconds to wait if the provider's error names no time to retry
# Seconds to wait if the provider answers 429 and names no time to retry. Such limits are usually per minute.
LIMIT_WAIT_S = 60.0


def build_statement_puller(
    table: StatementStore,
    clock: Clock,
    config: Callable[[], Config],
    stack: AsyncExitStack,
    *,
    plans: PlanTable | None = None,
    sleep: Callable[[float], Awaitable[object]] = asyncio.sleep,
) -> StatementPuller:
    # The client has no time limit of its own, because a reload may change the setting that limits
    # the response time.
    client = HttpClient(
        ClientSettings(compression="none", timeout_s=0, check=check_address_allowed), clock=clock
    )
    stack.push_async_callback(client.close)

    async def fetch_page(
        pull_settings: StatementPullSettings,
        url: str,
        headers: Callable[[str], Mapping[str, str]],
        body: bytes | None,
    ) -> bytes:
        settings = config().reconciliation
        try:
            key = SecretSource(
                f"reconciliation.pull {pull_settings.name}: key_file", file=pull_settings.key_file
            ).value()
        except Misconfigured as error:
            raise PullFailed(str(error), retry_after_s=None) from error
        try:
            async with asyncio.timeout(settings.pull_timeout):
                answer = await client.send(
                    url,
                    body or b"",
                    method="GET" if body is None else "POST",
                    content_type="application/json",
                    headers=headers(key),
                    max_answer_bytes=settings.max_page_bytes + 1,
                    secrets=secret_texts(key, headers(key)),
                )
        except TimeoutError as error:
            message = f"no response within {settings.pull_timeout:g} s (reconciliation.pull_timeout)"
            raise PullFailed(message, retry_after_s=WAIT_S) from error
        except SendError as error:
            wait_s = retry_wait_s(error)
            if wait_s is not None:
                raise PullFailed(str(error), retry_after_s=wait_s) from error
            advice = "; check that it is an admin key" if isinstance(error, Misconfigured | Rejected) else ""
            raise PullFailed(
                f"{error}{advice}", retry_after_s=None, is_absent=error.status == NOT_FOUND
            ) from error
        if len(answer.body) > settings.max_page_bytes:
            message = (
                f"a page has more than {settings.max_page_bytes} bytes; raise reconciliation.max_page_bytes"
            )
            raise PullFailed(message, retry_after_s=None)
        return answer.body

    async def keep_seats(pull_settings: StatementPullSettings, pages: Sequence[Any]) -> str:
        if plans is None:
            raise NotThere("this server stores no plans")
        await import_in_thread("gateway.bills.plans.seat_lists")
        from gateway.bills.plans import seat_lists

        return await seat_lists.update_plan_seats(plans, pull_settings, pages, now=clock.now())

    return StatementPuller(
        table, clock, lambda: config().reconciliation, fetch_page, keep_seats=keep_seats, sleep=sleep
    )


def secret_texts(key: str, headers: Mapping[str, str]) -> list[str]:
    """
    Return the texts to hide in a provider's response, which may repeat them: the key, and the form of the key
    that the request contains.
    """
    return [key, headers.get("Authorization", "").partition(" ")[2] or key]


def retry_wait_s(error: SendError) -> float | None:
    """Return the seconds after which the same request may succeed, or None if it would fail again."""
    if isinstance(error, Retryable):
        unsaid_s = LIMIT_WAIT_S if error.status == TOO_MANY_REQUESTS else WAIT_S
        return error.retry_after_s or unsaid_s
    # A 403 usually means a refused key, which stays refused. But GitHub also answers 403 after too many
    # requests, usually with a time to retry.
    if isinstance(error, Misconfigured) and error.status == FORBIDDEN:
        if error.retry_after_s is not None:
            return error.retry_after_s or WAIT_S
        if "rate limit" in str(error).lower():
            return LIMIT_WAIT_S
    return None
