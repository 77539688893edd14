"""
Pulls reports with admin keys. What can be kept by itself, a page of whole days or all pages of a day, is kept
before more is asked for.

How far a pull came is kept, too, so that one that was killed goes on where it was. What is asked for twice is
kept once, because a statement replaces.
"""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from hashlib import sha256
from typing import Any, Final, Protocol
from urllib.parse import quote, urlencode

from gateway.bills.statements.importing import ReportFile, ReportReader, open_document
from gateway.bills.statements.pull_requests import PULL_REQUESTS, PullRequest, Query
from gateway.bills.statements.source import Document
from gateway.bills.statements.sources.list import SOURCES
from gateway.service.configuration.sections import SEAT_SOURCES, ReconciliationSettings, StatementPullSettings
from gateway.service.first_use import imported
from spool.clock import Clock
from spool.errors import Invalid, NotAllowed, NotThere, SpoolError
from spool.registry.operators import Actor
from spool.statements import DAY_S, Statements, day_of, day_text

PULLER: Final = Actor("statement pull", "")
LOOK_EVERY_S = 60.0
RETRY_S = 900.0  # after a failure without Retry-After
LONGEST_WAIT_S = 60.0  # within one pull; a longer one is for the next look
MOST_RETRIES = 5
LONGEST_PAUSE_S = float(DAY_S)  # until a failed pull is tried again, whatever the provider names
LONGEST_CURSOR = 4096  # characters of a page's name: more does not go into an address
STATES = NEVER, RUNNING, DONE, FAILED = "never", "running", "done", "failed"

_log = logging.getLogger(__name__)


class PullFailed(Exception):
    """
    No page came. `retry_after_s`: when the provider wants to be asked again; None: it would say the same.

    `is_absent`: there is nothing at this address.
    """

    def __init__(self, message: str, *, retry_after_s: float | None, is_absent: bool = False) -> None:
        super().__init__(message)
        self.retry_after_s = retry_after_s
        self.is_absent = is_absent


class Fetch(Protocol):
    """
    Asks for a page with the key of a pull, by a POST if there is a `body`. PullFailed without a page; no
    message holds the key.
    """

    async def __call__(
        self,
        pull: StatementPullSettings,
        url: str,
        headers: Callable[[str], Mapping[str, str]],
        body: bytes | None,
    ) -> bytes: ...


# Makes the pages of a list the seats of the plan of a pull, and says what is worth saying.
KeepSeats = Callable[[StatementPullSettings, Sequence[Any]], Awaitable[str]]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Page:
    file: ReportFile
    document: Document


@dataclass(frozen=True, slots=True, kw_only=True)
class PullState:
    """A pull as operators see it; times in epoch seconds."""

    name: str
    source: str
    account: str
    every: float
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
        keep_seats: KeepSeats | None = None,
        sleep: Callable[[float], Awaitable[object]] = asyncio.sleep,
    ) -> None:
        """`keep_seats` takes the pages of a list of seats; without it such a pull fails."""
        self._keep_seats = keep_seats
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
                _log.exception(
                    "statements are pulled at the next look", extra={"action": "statements_not_pulled"}
                )
            await asyncio.sleep(LOOK_EVERY_S)

    async def pull_due(self) -> None:
        """Pull what is due when its turn comes: a command may have pulled it meanwhile, or a reload taken it away."""
        for name in self.names:
            async with self._turn:
                pull = self._found(name)
                if pull is not None and _is_due(await self._kept(pull), pull, self._clock.now()):
                    await self._pull(pull)

    async def states(self) -> Sequence[PullState]:
        return [_shown(pull, await self._kept(pull)) for pull in self._settings().pull]

    async def pull(self, name: str) -> None:
        """Pull now. What fails is in the state of the pull, and the next one goes on where this one came to."""
        async with self._turn:
            await self._pull(self._pull_named(name))

    async def _pull(self, pull: StatementPullSettings) -> None:
        kept = await self._kept(pull)
        extra = {"action": "pull_failed", "pull": pull.name}
        try:
            await self._walk(pull, kept)
        except (PullFailed, NotAllowed) as error:
            hint = error.retry_after_s if isinstance(error, PullFailed) else None
            await self._fail(pull, kept, str(error), hint)
            _log.warning("a statement was not pulled: %s", error, extra=extra)
        except SpoolError:  # how far it came is kept
            raise
        except Exception as error:  # noqa: BLE001 - a defect costs no other pull
            await self._fail(
                pull, kept, f"an error in Tollhouse, which its log has: {type(error).__name__}", None
            )
            _log.exception("a statement was not pulled", extra=extra)

    async def _fail(
        self, pull: StatementPullSettings, kept: dict[str, Any], reason: str, retry_after_s: float | None
    ) -> None:
        if retry_after_s is None:  # the same page would fail again, for a cursor may have ended: begin anew
            kept.update(cursor="", day=0)
        waiting = min(max(retry_after_s or 0.0, RETRY_S), LONGEST_PAUSE_S)
        failed = {**kept, "state": FAILED, "reason": reason, "next_at": self._clock.now() + waiting}
        await self._table.keep_pull_state(pull.name, failed)

    async def _kept(self, pull: StatementPullSettings) -> dict[str, Any]:
        """Return the stored progress of a pull; none if it asked for another report, account or address before."""
        kept = dict(await self._table.pull_state(pull.name) or {})
        return kept if kept.get("asks") == _asks(pull) else {}

    async def _walk(self, pull: StatementPullSettings, kept: dict[str, Any]) -> None:
        """Ask for span after span. `kept` is how far it came, also when it ends with an error."""
        if pull.source in SEAT_SOURCES:
            await self._pull_seats(pull, kept)
            return
        request = PULL_REQUESTS[pull.source]
        end = day_of(int(self._clock.now()))
        if not _goes_on(kept, end):
            start = end - (request.days or pull.days) * DAY_S
            kept.update(asks=_asks(pull), start=start, end=end, day=start, cursor="", damaged=0, named="")
        kept.update(state=RUNNING, reason="")
        while kept["day"] < kept["end"]:
            until = min(kept["day"] + request.span_days * DAY_S, kept["end"])
            await self._span(pull, request, kept, (kept["day"], until))
            kept.update(day=until, cursor="")
            if until < kept["end"]:
                await self._table.keep_pull_state(pull.name, kept)
        now = self._clock.now()
        damaged = kept["damaged"]
        kept.update(
            state=DONE,
            reason=f"{damaged} rows cannot be read: {kept['named']}" if damaged else "",
            last_success=now,
            next_at=now + pull.every,
            pulled_to=day_text(kept["end"] - DAY_S),
        )
        await self._table.keep_pull_state(pull.name, kept)

    async def _pull_seats(self, pull: StatementPullSettings, kept: dict[str, Any]) -> None:
        """Ask for all pages of a list of seats; nothing of it is kept before the last one is there."""
        seat_pulls = await imported("gateway.bills.statements.seat_pulls")
        request = seat_pulls.SEAT_REQUESTS[pull.source]
        base = (pull.base_url or request.base_url).rstrip("/")

        async def ask(path: str, query: Query) -> bytes:
            return await self._fetch_patiently(pull, base + path, query, request.headers)

        most = self._settings().max_pages
        try:
            pages = await seat_pulls.all_pages(request, pull.account, ask, most=most)
            if self._keep_seats is None:
                raise NotAllowed("no plans are kept here")
            told = await self._keep_seats(pull, pages)
        except (Invalid, NotThere) as error:
            raise PullFailed(str(error), retry_after_s=None) from error
        now = self._clock.now()
        done = {"asks": _asks(pull), "state": DONE, "reason": told, "last_success": now}
        kept.update(done, next_at=now + pull.every, pulled_to=day_text(day_of(int(now))))
        await self._table.keep_pull_state(pull.name, kept)

    async def _span(
        self, pull: StatementPullSettings, request: PullRequest, kept: dict[str, Any], asked: tuple[int, int]
    ) -> None:
        """Keep what the provider says of some days: each page by itself, or all pages together."""
        reader = self._reader(pull, asked)
        absent = 0
        if request.tells_nothing_used and not request.whole_pages:
            reader.cover(*asked)
        for path in request.paths:
            base = (pull.base_url or request.base_url).rstrip("/")
            url = base + path.format(account=quote(pull.account, safe=""))
            cursor = kept["cursor"]
            try:
                async for page, following in self._pages(pull, request, (url, asked), cursor):
                    await asyncio.to_thread(_add, reader, page)
                    if request.whole_pages:
                        await self._keep(pull, reader, kept)
                        reader = self._reader(pull, asked)
                        if following is not None:
                            kept["cursor"] = following
                            await self._table.keep_pull_state(pull.name, kept)
            except PullFailed as error:
                absent += 1
                if not error.is_absent or absent == len(request.paths):
                    raise
        if not request.whole_pages:
            await self._keep(pull, reader, kept)

    async def _pages(
        self,
        pull: StatementPullSettings,
        request: PullRequest,
        asked: tuple[str, tuple[int, int]],
        cursor: str,
    ) -> AsyncIterator[tuple[_Page, str | None]]:
        """Page after page, each with the cursor of the next one."""
        (url, span), most = asked, self._settings().max_pages
        for _ in range(most):
            query = [*request.query(*span), *([("page", cursor)] if cursor else [])]
            content = await self._fetch_patiently(pull, url, query, request.headers, posts=request.posts)
            file = ReportFile(name=f"pull {pull.name}", content=content, read_at=self._clock.now())
            page = await asyncio.to_thread(_opened, file, request)
            following = request.next_page(page.document.page())
            if following is not None and following == cursor:
                raise PullFailed("the next page is the same page again", retry_after_s=None)
            if following is not None and len(following) > LONGEST_CURSOR:
                words = f"the name of the next page has more than {LONGEST_CURSOR} characters"
                raise PullFailed(words, retry_after_s=None)
            yield page, following
            if following is None:
                return
            cursor = following
        raise PullFailed(
            f"there are more than {most} pages (reconciliation.max_pages): raise it, or import an export "
            "instead",
            retry_after_s=None,
        )

    async def _fetch_patiently(
        self,
        pull: StatementPullSettings,
        url: str,
        query: Query,
        headers: Callable[[str], Mapping[str, str]],
        *,
        posts: bool = False,
    ) -> bytes:
        """A page; asked for again after the time that the provider names."""
        body: bytes | None = None
        if posts:
            body = json.dumps({name: int(number) for name, number in query}).encode()
        elif query:
            url = f"{url}?{urlencode(query)}"
        for attempt in range(MOST_RETRIES):
            try:
                return await self._fetch(pull, url, headers, body)
            except PullFailed as error:
                waiting = error.retry_after_s
                if waiting is None or waiting > LONGEST_WAIT_S or attempt + 1 == MOST_RETRIES:
                    raise
                await self._sleep(waiting)
        raise AssertionError("the last attempt raises")

    def _reader(self, pull: StatementPullSettings, asked: tuple[int, int]) -> ReportReader:
        return ReportReader(SOURCES[pull.source], most=self._settings().max_rows, asked=asked)

    async def _keep(self, pull: StatementPullSettings, reader: ReportReader, kept: dict[str, Any]) -> None:
        report = reader.report(account=pull.account or None, settle_s=self._settings().settle)
        if report.statement is not None:
            await self._table.put(report.statement, actor=PULLER)
        if report.repeated:
            extra = {"pull": pull.name, "rows": report.repeated, "first": report.repeated_named[0]}
            _log.warning("pages of a statement overlap: rows that came again are counted once", extra=extra)
        kept["damaged"] += report.damaged
        kept["named"] = kept["named"] or next(iter(report.named), "")

    def _found(self, name: str) -> StatementPullSettings | None:
        return next((pull for pull in self._settings().pull if pull.name == name), None)

    def _pull_named(self, name: str) -> StatementPullSettings:
        found = self._found(name)
        if found is None:
            raise NotThere(f"there is no [[reconciliation.pull]] named {name!r}")
        return found


def _is_due(kept: Mapping[str, Any], pull: StatementPullSettings, now: float) -> bool:
    """Also if it was broken off, and if its time is further away than any pause: the clock was ahead."""
    next_at = float(kept.get("next_at") or 0)
    return kept.get("state") == RUNNING or not 0 < next_at - now <= max(pull.every, LONGEST_PAUSE_S)


def _asks(pull: StatementPullSettings) -> str:
    """Whom a pull asks, and for what: another account or address begins anew."""
    return sha256(json.dumps([pull.source, pull.account, pull.base_url]).encode()).hexdigest()


def _goes_on(kept: Mapping[str, Any], today: int) -> bool:
    """True if a pull that did not end has stored something and goes on behind it."""
    if kept.get("state") not in (RUNNING, FAILED) or "damaged" not in kept:
        return False
    if kept["end"] > today:  # the clock was ahead
        return False
    return bool(kept.get("cursor")) or kept.get("day", 0) > kept["start"]


def _opened(file: ReportFile, request: PullRequest) -> _Page:
    document = open_document(file)
    if not isinstance(document.page().get(request.rows_in), list):
        raise PullFailed(
            f"the answer is not a page of the report: it has no list {request.rows_in}", retry_after_s=None
        )
    return _Page(file=file, document=document)


def _add(reader: ReportReader, page: _Page) -> None:
    reader.add(page.file, page.document)


def _shown(pull: StatementPullSettings, kept: Mapping[str, Any]) -> PullState:
    return PullState(
        name=pull.name,
        source=pull.source,
        account=pull.account,
        every=pull.every,
        state=str(kept.get("state", NEVER)),
        reason=str(kept.get("reason", "")),
        pulled_to=kept.get("pulled_to"),
        last_success=kept.get("last_success"),
        next_at=kept.get("next_at"),
    )
