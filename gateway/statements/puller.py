"""
Pulls reports with admin keys, page by page: each page is kept before the next one is asked for.

How far a pull came is kept, too, so that one that was killed goes on where it was. A page that is asked for twice is
kept once, because a statement replaces.
"""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Protocol
from urllib.parse import urlencode

from gateway.configuration.sections import ReconciliationSettings, StatementPullSettings
from gateway.statements.importing import ReportFile, read_reports
from gateway.statements.pull_requests import PULL_REQUESTS, PullRequest
from spool.clock import Clock
from spool.errors import NotAllowed, NotThere
from spool.registry.operators import Actor
from spool.statements.protocols import Statements
from spool.statements.rules import day_of, day_text
from spool.statements.values import DAY_S

PULLER: Final = Actor("statement pull", "")
LOOK_EVERY_S = 60.0
RETRY_S = 900.0  # after a failure that tells no time
LONGEST_WAIT_S = 60.0  # within one pull; a longer one is for the next look
MOST_RETRIES = 5
MOST_PAGES = 1000
NEVER, RUNNING, DONE, FAILED = "never", "running", "done", "failed"

_log = logging.getLogger(__name__)


class PullFailed(Exception):
    """No page came. `retry_after_s`: when the provider wants to be asked again; None: it would say the same."""

    def __init__(self, message: str, *, retry_after_s: float | None) -> None:
        super().__init__(message)
        self.retry_after_s = retry_after_s


class Fetch(Protocol):
    """Asks for a page with the key of a pull. PullFailed without one; no message holds the key."""

    async def __call__(
        self, pull: StatementPullSettings, url: str, headers: Callable[[str], Mapping[str, str]]
    ) -> bytes: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class PullState:
    """A pull as operators see it; times in epoch seconds."""

    name: str
    source: str
    state: str
    reason: str
    pulled_to: str | None
    last_success: float | None
    next_at: float | None


class StatementPuller:
    """`settings` are asked before each look, so that a reload is taken over."""

    def __init__(
        self,
        table: Statements,
        clock: Clock,
        settings: Callable[[], ReconciliationSettings],
        fetch: Fetch,
        *,
        sleep: Callable[[float], Awaitable[object]] = asyncio.sleep,
    ) -> None:
        self._table = table
        self._clock = clock
        self._settings = settings
        self._fetch = fetch
        self._sleep = sleep
        self._turn = asyncio.Lock()

    @property
    def names(self) -> list[str]:
        return [pull.name for pull in self._settings().pull]

    def check(self, name: str) -> None:
        """NotThere if no pull has this name."""
        self._pull_named(name)

    async def run(self) -> None:
        """Pull what is due, again and again."""
        while True:
            try:
                await self.pull_due()
            except Exception:  # noqa: BLE001 - the supervised loop
                _log.exception("statements are pulled at the next look", extra={"action": "statements_not_pulled"})
            await asyncio.sleep(LOOK_EVERY_S)

    async def pull_due(self) -> None:
        for name in self.names:
            kept = await self._table.pull_state(name) or {}
            if self._clock.now() >= float(kept.get("next_at") or 0):
                await self.pull(name)

    async def states(self) -> Sequence[PullState]:
        return [_shown(pull, await self._table.pull_state(pull.name) or {}) for pull in self._settings().pull]

    async def pull(self, name: str) -> None:
        """Pull now. What fails is in the state of the pull, and the next one goes on where this one came to."""
        pull = self._pull_named(name)
        async with self._turn:
            kept = dict(await self._table.pull_state(name) or {})
            try:
                await self._walk(pull, kept)
            except (PullFailed, NotAllowed) as error:
                hint = error.retry_after_s if isinstance(error, PullFailed) else None
                if hint is None:  # the same page would fail again, for a cursor may have ended: begin anew
                    kept["cursor"] = ""
                waiting = max(hint or 0.0, RETRY_S)
                failed = {**kept, "state": FAILED, "reason": str(error), "next_at": self._clock.now() + waiting}
                await self._table.keep_pull_state(name, failed)
                _log.warning("a statement was not pulled: %s", error, extra={"action": "pull_failed", "pull": name})

    async def _walk(self, pull: StatementPullSettings, kept: dict[str, Any]) -> None:
        """Keep page after page. `kept` is how far it came, also when it ends with an error."""
        request = PULL_REQUESTS[pull.source]
        if kept.get("state") not in (RUNNING, FAILED) or not kept.get("cursor") or kept.get("source") != pull.source:
            end = day_of(int(self._clock.now()))
            kept.update(source=pull.source, start=end - pull.days * DAY_S, end=end, cursor="")
        kept.update(state=RUNNING, reason="")
        for _ in range(MOST_PAGES):
            content = await self._page(pull, request, kept)
            following = request.next_page(_decoded(content))
            damaged = await self._keep(pull, content)
            if following is None:
                now = self._clock.now()
                kept.update(
                    state=DONE, reason=damaged, cursor="", last_success=now, next_at=now + pull.every,
                    pulled_to=day_text(kept["end"] - DAY_S),
                )  # fmt: skip
                await self._table.keep_pull_state(pull.name, kept)
                return
            if following == kept["cursor"]:
                raise PullFailed("the next page is the same page again", retry_after_s=None)
            kept["cursor"] = following
            await self._table.keep_pull_state(pull.name, kept)
        kept["cursor"] = ""
        raise PullFailed(f"there are more than {MOST_PAGES} pages; set a smaller number of days", retry_after_s=None)

    async def _page(self, pull: StatementPullSettings, request: PullRequest, kept: Mapping[str, Any]) -> bytes:
        query = [*request.query(kept["start"], kept["end"])]
        if kept["cursor"]:
            query.append(("page", kept["cursor"]))
        url = f"{(pull.base_url or request.base_url).rstrip('/')}{request.path}?{urlencode(query)}"
        for attempt in range(MOST_RETRIES):
            try:
                return await self._fetch(pull, url, request.headers)
            except PullFailed as error:
                waiting = error.retry_after_s
                if waiting is None or waiting > LONGEST_WAIT_S or attempt + 1 == MOST_RETRIES:
                    raise
                await self._sleep(waiting)
        raise AssertionError("the last attempt raises")

    async def _keep(self, pull: StatementPullSettings, content: bytes) -> str:
        """The rows of a page; says what of it is damaged."""
        settings = self._settings()
        file = ReportFile(name=f"pull {pull.name}", content=content, read_at=self._clock.now())
        reports = await asyncio.to_thread(
            lambda: read_reports(
                [file],
                source=pull.source,
                account=pull.account or None,
                most=settings.max_rows,
                settle_s=settings.settle,
            )
        )
        for report in reports:
            if report.statement is not None:
                await self._table.put(report.statement, actor=PULLER)
        damaged = sum(report.damaged for report in reports)
        return f"{damaged} rows cannot be read: {reports[0].named[0]}" if damaged else ""

    def _pull_named(self, name: str) -> StatementPullSettings:
        found = next((pull for pull in self._settings().pull if pull.name == name), None)
        if found is None:
            raise NotThere(f"there is no [[reconciliation.pull]] named {name!r}")
        return found


def _decoded(content: bytes) -> Mapping[str, Any]:
    try:
        found = json.loads(content)
    except (ValueError, RecursionError) as error:
        raise PullFailed(f"the answer is no JSON: {error}", retry_after_s=None) from error
    if not isinstance(found, dict):
        raise PullFailed("the answer is no page", retry_after_s=None)
    return found


def _shown(pull: StatementPullSettings, kept: Mapping[str, Any]) -> PullState:
    return PullState(
        name=pull.name,
        source=pull.source,
        state=str(kept.get("state", NEVER)),
        reason=str(kept.get("reason", "")),
        pulled_to=kept.get("pulled_to"),
        last_success=kept.get("last_success"),
        next_at=kept.get("next_at"),
    )
