"""
Pulls of reports with admin keys. Each complete part (a page of whole days, or all pages of a day) is stored before
the next request.

The progress of a pull is stored as well, so a killed pull continues at the same place. A repeated request does no
harm, because a statement replaces the stored days.
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
from gateway.bills.statements.pull_requests import PULL_REQUESTS, Query, ReportRequest
from gateway.bills.statements.source import StatementDocument
from gateway.bills.statements.sources.list import SOURCES
from gateway.configuration.sections import SEAT_SOURCES, ReconciliationSettings, StatementPullSettings
from gateway.core.first_use import import_in_thread
from spool.clock import Clock
from spool.errors import Invalid, NotAllowed, NotThere, SpoolError, WouldRemove
from spool.loops import failure_logger, failure_reason, for_each_item, repeat
from spool.registry.operators import Actor
from spool.statements import DAY_S, PULL, StatementStore, day_start, day_text

PULLER: Final = Actor("statement pull", "")
LOOK_EVERY_S = 60.0
RETRY_S = 900.0  # minimum seconds to wait after a failed request to a provider
# longest wait within one pull; a longer wait ends the pull, and a later check continues it
LONGEST_WAIT_S = 60.0
MOST_RETRIES = 5
# longest wait after a failed pull, even if the provider requests a longer wait
LONGEST_PAUSE_S = float(DAY_S)
LONGEST_CURSOR = 4096  # maximum characters of a page cursor; a pull with a longer cursor fails
REFUSED_SINCE = "refused_since"  # a member of a pull's stored progress
STATES = NEVER, RUNNING, DONE, FAILED = "never", "running", "done", "failed"

_log = logging.getLogger(__name__)


class PullFailed(Exception):
    """
    Raised if a page cannot be fetched. `retry_after_s` is the wait before a retry may help; None means that a
    retry would fail the same way.

    `is_absent`: this address does not exist at the provider.
    """

    def __init__(self, message: str, *, retry_after_s: float | None, is_absent: bool = False) -> None:
        super().__init__(message)
        self.retry_after_s = retry_after_s
        self.is_absent = is_absent


class FetchReport(Protocol):
    """
    Fetches one page with a pull's key, by POST if there is a `body`. Raises PullFailed if no page arrives;
    messages never contain the key.
    """

    async def __call__(
        self,
        pull_settings: StatementPullSettings,
        url: str,
        headers: Callable[[str], Mapping[str, str]],
        body: bytes | None,
    ) -> bytes: ...


# Updates the seats of the pull's plan from the pages of a list; returns a message for operators, or "".
KeepSeats = Callable[[StatementPullSettings, Sequence[Any]], Awaitable[str]]


@dataclass(frozen=True, slots=True, kw_only=True)
class _PulledPage:
    file: ReportFile
    document: StatementDocument


@dataclass(frozen=True, slots=True, kw_only=True)
class PullState:
    """
    The state of a pull, as operators see it. Times are epoch seconds. `refused_since`: when its reports were first
    refused, because they would remove final figures.
    """

    name: str
    source: str
    account: str
    every: float
    state: str
    reason: str
    pulled_to: str | None
    last_success: float | None
    next_at: float | None
    refused_since: float | None = None


class StatementPuller:
    """
    Runs all configured pulls, one at a time. `settings` is called before each check, so a reload takes effect.
    """

    def __init__(
        self,
        table: StatementStore,
        clock: Clock,
        settings: Callable[[], ReconciliationSettings],
        fetch: FetchReport,
        *,
        keep_seats: KeepSeats | None = None,
        sleep: Callable[[float], Awaitable[object]] = asyncio.sleep,
    ) -> None:
        """`keep_seats` stores seat lists. Without it, a pull of seats fails."""
        self._keep_seats = keep_seats
        self._table = table
        self._clock = clock
        self._settings = settings
        self._fetch = fetch
        self._sleep = sleep
        self._turn = asyncio.Lock()
        self._replaces = False  # whether the running pull may remove final figures

    @property
    def names(self) -> list[str]:
        return [pull.name for pull in self._settings().pull]

    def check_exists(self, name: str) -> None:
        self._require_pull(name)

    async def run(self) -> None:
        """Check for due pulls until cancelled, and run them."""
        await repeat(
            self.pull_due,
            every_s=LOOK_EVERY_S,
            failed="pulling statements failed; the next check tries again",
            action="statements_not_pulled",
        )

    async def pull_due(self) -> None:
        """
        Run the due pulls one after the other. Each pull is checked again before it starts, because a command
        may have run it or a reload removed it.
        """
        # the state of a pull cannot be stored while the storage fails
        log = failure_logger("a pull of statements waits for the storage", action="pull_failed")
        await for_each_item(self.names, self._pull_if_due, log)

    async def _pull_if_due(self, name: str) -> None:
        async with self._turn:
            pull = self._find_pull(name)
            if pull is not None and _is_due(await self._stored_progress(pull), pull, self._clock.now()):
                await self._run_pull(pull)

    async def pull_states(self) -> Sequence[PullState]:
        return [_pull_state(pull, await self._stored_progress(pull)) for pull in self._settings().pull]

    async def pull_statements(self, name: str, *, replace: bool = False) -> None:
        """
        Run a pull now, which may remove final figures if `replace`. A failure is stored in the pull's state, and the
        next pull continues from there.
        """
        async with self._turn:
            self._replaces = replace
            try:
                await self._run_pull(self._require_pull(name))
            finally:
                self._replaces = False

    async def _run_pull(self, pull_settings: StatementPullSettings) -> None:
        progress = await self._stored_progress(pull_settings)
        extra = {"action": "pull_failed", "pull": pull_settings.name}
        try:
            await self._pull_report_spans(pull_settings, progress)
        except (PullFailed, NotAllowed) as error:
            hint = error.retry_after_s if isinstance(error, PullFailed) else None
            is_refused = isinstance(error, WouldRemove)
            await self._store_failure(pull_settings, progress, str(error), hint, is_refused=is_refused)
            _log.warning("pulling a statement failed: %s", error, extra=extra)
        except SpoolError:  # the progress up to this page is already stored
            raise
        except Exception as error:  # noqa: BLE001 - a defect costs no other pull
            await self._store_failure(pull_settings, progress, failure_reason(error), None)
            _log.exception("pulling a statement failed with an internal error", extra=extra)

    async def _store_failure(
        self,
        pull_settings: StatementPullSettings,
        progress: dict[str, Any],
        reason: str,
        retry_after_s: float | None,
        *,
        is_refused: bool = False,
    ) -> None:
        # Without a time to retry, start over, because the cursor may have expired and would fail again.
        if retry_after_s is None:
            progress.update(cursor="", day=0)
        waiting = min(max(retry_after_s or 0.0, RETRY_S), LONGEST_PAUSE_S)
        if is_refused:
            progress.setdefault(REFUSED_SINCE, self._clock.now())
        failed = {**progress, "state": FAILED, "reason": reason, "next_at": self._clock.now() + waiting}
        await self._table.store_pull_state(pull_settings.name, failed)

    async def _stored_progress(self, pull_settings: StatementPullSettings) -> dict[str, Any]:
        progress = dict(await self._table.read_pull_state(pull_settings.name) or {})
        return progress if progress.get("asks") == _request_digest(pull_settings) else {}

    async def _pull_report_spans(
        self, pull_settings: StatementPullSettings, progress: dict[str, Any]
    ) -> None:
        """
        Request all time spans, one after the other. `progress` is updated in place, even if an error is
        raised.
        """
        if pull_settings.source in SEAT_SOURCES:
            await self._pull_seats(pull_settings, progress)
            return
        request = PULL_REQUESTS[pull_settings.source]
        end = day_start(int(self._clock.now()))
        if not _can_continue_pull(progress, end):
            start = end - (request.days or pull_settings.days) * DAY_S
            progress.update(
                asks=_request_digest(pull_settings),
                start=start,
                end=end,
                day=start,
                cursor="",
                damaged=0,
                named="",
            )
        progress.update(state=RUNNING, reason="")
        while progress["day"] < progress["end"]:
            until = min(progress["day"] + request.span_days * DAY_S, progress["end"])
            await self._pull_span(pull_settings, request, progress, (progress["day"], until))
            progress.update(day=until, cursor="")
            if until < progress["end"]:
                await self._table.store_pull_state(pull_settings.name, progress)
        now = self._clock.now()
        damaged = progress["damaged"]
        progress.pop(REFUSED_SINCE, None)
        progress.update(
            state=DONE,
            reason=f"{damaged} rows cannot be read: {progress['named']}" if damaged else "",
            last_success=now,
            next_at=now + pull_settings.every,
            pulled_to=day_text(progress["end"] - DAY_S),
        )
        await self._table.store_pull_state(pull_settings.name, progress)

    async def _pull_seats(self, pull_settings: StatementPullSettings, progress: dict[str, Any]) -> None:
        """Fetch all pages of a seat list. No seat changes before the last page has arrived."""
        await import_in_thread("gateway.bills.statements.seat_pulls")
        from gateway.bills.statements import seat_pulls

        request = seat_pulls.SEAT_REQUESTS[pull_settings.source]
        base = (pull_settings.base_url or request.base_url).rstrip("/")

        async def fetch_seat_page(path: str, query: Query) -> bytes:
            return await self._fetch_with_retries(pull_settings, base + path, query, request.headers)

        page_limit = self._settings().max_pages
        try:
            pages = await seat_pulls.fetch_all_pages(
                request, pull_settings.account, fetch_seat_page, max_pages=page_limit
            )
            if self._keep_seats is None:
                raise NotAllowed("this installation stores no plans")
            message = await self._keep_seats(pull_settings, pages)
        except (Invalid, NotThere) as error:
            raise PullFailed(str(error), retry_after_s=None) from error
        now = self._clock.now()
        done = {"asks": _request_digest(pull_settings), "state": DONE, "reason": message, "last_success": now}
        progress.update(done, next_at=now + pull_settings.every, pulled_to=day_text(day_start(int(now))))
        await self._table.store_pull_state(pull_settings.name, progress)

    async def _pull_span(
        self,
        pull_settings: StatementPullSettings,
        request: ReportRequest,
        progress: dict[str, Any],
        span: tuple[int, int],
    ) -> None:
        reader = self._new_reader(pull_settings, span)
        absent = 0
        if request.empty_days_are_unbilled and not request.whole_pages:
            reader.extend_span(*span)
        for path in request.paths:
            base = (pull_settings.base_url or request.base_url).rstrip("/")
            url = base + path.format(account=quote(pull_settings.account, safe=""))
            cursor = progress["cursor"]
            try:
                async for page, following in self._fetch_pages(pull_settings, request, (url, span), cursor):
                    await asyncio.to_thread(_add_page, reader, page)
                    if request.whole_pages:
                        await self._store_report(pull_settings, reader, progress)
                        reader = self._new_reader(pull_settings, span)
                        if following is not None:
                            progress["cursor"] = following
                            await self._table.store_pull_state(pull_settings.name, progress)
            except PullFailed as error:
                absent += 1
                if not error.is_absent or absent == len(request.paths):
                    raise
        if not request.whole_pages:
            await self._store_report(pull_settings, reader, progress)

    async def _fetch_pages(
        self,
        pull_settings: StatementPullSettings,
        request: ReportRequest,
        url_and_span: tuple[str, tuple[int, int]],
        cursor: str,
    ) -> AsyncIterator[tuple[_PulledPage, str | None]]:
        (url, span), page_limit = url_and_span, self._settings().max_pages
        for _ in range(page_limit):
            query = [*request.query(*span), *([("page", cursor)] if cursor else [])]
            content = await self._fetch_with_retries(
                pull_settings, url, query, request.headers, uses_post=request.posts
            )
            file = ReportFile(name=f"pull {pull_settings.name}", content=content, read_at=self._clock.now())
            page = await asyncio.to_thread(_open_page, file, request)
            following = request.next_page(page.document.root_object())
            if following is not None and following == cursor:
                raise PullFailed("the cursor of the next page is that of the same page", retry_after_s=None)
            if following is not None and len(following) > LONGEST_CURSOR:
                message = f"the cursor of the next page has more than {LONGEST_CURSOR} characters"
                raise PullFailed(message, retry_after_s=None)
            yield page, following
            if following is None:
                return
            cursor = following
        raise PullFailed(
            f"the report has more than {page_limit} pages (reconciliation.max_pages); raise the setting, or "
            "import an export instead",
            retry_after_s=None,
        )

    async def _fetch_with_retries(
        self,
        pull_settings: StatementPullSettings,
        url: str,
        query: Query,
        headers: Callable[[str], Mapping[str, str]],
        *,
        uses_post: bool = False,
    ) -> bytes:
        body: bytes | None = None
        if uses_post:
            body = json.dumps({name: int(number) for name, number in query}).encode()
        elif query:
            url = f"{url}?{urlencode(query)}"
        for attempt in range(MOST_RETRIES):
            try:
                return await self._fetch(pull_settings, url, headers, body)
            except PullFailed as error:
                waiting = error.retry_after_s
                if waiting is None or waiting > LONGEST_WAIT_S or attempt + 1 == MOST_RETRIES:
                    raise
                await self._sleep(waiting)
        raise AssertionError("unreachable: the last attempt raises its error")

    def _new_reader(self, pull_settings: StatementPullSettings, span: tuple[int, int]) -> ReportReader:
        return ReportReader(
            SOURCES[pull_settings.source], max_unpacked_bytes=self._settings().max_rows, asked=span
        )

    async def _store_report(
        self, pull_settings: StatementPullSettings, reader: ReportReader, progress: dict[str, Any]
    ) -> None:
        report = reader.build_report(account=pull_settings.account or None, settle_s=self._settings().settle)
        if report.statement is not None:
            await self._table.import_statement(
                report.statement,
                actor=PULLER,
                way=PULL,
                replace=self._replaces,
                keep_replaced_s=self._settings().keep_replaced,
            )
        if report.repeated:
            extra = {"pull": pull_settings.name, "rows": report.repeated, "first": report.repeated_named[0]}
            _log.warning("pages of a statement overlap; repeated rows are counted once", extra=extra)
        progress["damaged"] += report.damaged
        progress["named"] = progress["named"] or next(iter(report.named), "")

    def _find_pull(self, name: str) -> StatementPullSettings | None:
        return next((pull for pull in self._settings().pull if pull.name == name), None)

    def _require_pull(self, name: str) -> StatementPullSettings:
        pull = self._find_pull(name)
        if pull is None:
            raise NotThere(f"there is no [[reconciliation.pull]] named {name!r}")
        return pull


def _is_due(progress: Mapping[str, Any], pull_settings: StatementPullSettings, now: float) -> bool:
    """
    Return whether to pull now: the time has come, the last pull was interrupted, or the next time is too far
    ahead, because the clock was wrong.
    """
    next_at = float(progress.get("next_at") or 0)
    return progress.get("state") == RUNNING or not 0 < next_at - now <= max(
        pull_settings.every, LONGEST_PAUSE_S
    )


def _request_digest(pull_settings: StatementPullSettings) -> str:
    """Return a digest of source, account and address. If it changes, the pull starts from the beginning."""
    return sha256(
        json.dumps([pull_settings.source, pull_settings.account, pull_settings.base_url]).encode()
    ).hexdigest()


def _can_continue_pull(progress: Mapping[str, Any], today: int) -> bool:
    if progress.get("state") not in (RUNNING, FAILED) or "damaged" not in progress:
        return False
    if progress["end"] > today:  # ignore progress that was stored while the system clock was ahead
        return False
    return bool(progress.get("cursor")) or progress.get("day", 0) > progress["start"]


def _open_page(file: ReportFile, request: ReportRequest) -> _PulledPage:
    document = open_document(file)
    if not isinstance(document.root_object().get(request.rows_in), list):
        raise PullFailed(
            f"the answer is not a page of the report: it has no list {request.rows_in}", retry_after_s=None
        )
    return _PulledPage(file=file, document=document)


def _add_page(reader: ReportReader, page: _PulledPage) -> None:
    reader.read_document_and_count_cells(page.file, page.document)


def _pull_state(pull_settings: StatementPullSettings, progress: Mapping[str, Any]) -> PullState:
    return PullState(
        name=pull_settings.name,
        source=pull_settings.source,
        account=pull_settings.account,
        every=pull_settings.every,
        state=str(progress.get("state", NEVER)),
        reason=str(progress.get("reason", "")),
        pulled_to=progress.get("pulled_to"),
        last_success=progress.get("last_success"),
        next_at=progress.get("next_at"),
        refused_since=progress.get(REFUSED_SINCE),
    )
