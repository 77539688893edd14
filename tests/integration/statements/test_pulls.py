"""Pulls from every source, with a fake provider that pages, requires waits, reports late and fails."""

from __future__ import annotations

import asyncio
import json
from collections import defaultdict
from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack
from dataclasses import replace
from decimal import Decimal
from pathlib import Path

import pytest
import pytest_asyncio
from aiohttp import web
from aiohttp.test_utils import TestServer

from gateway.bills.statements.pull_requests import PULL_REQUESTS
from gateway.bills.statements.puller import PullState, StatementPuller
from gateway.bills.statements.sources.list import SOURCES
from gateway.configuration.sections import (
    PULLED_SOURCES,
    Config,
    ReconciliationSettings,
    StatementPullSettings,
)
from gateway.operations.list import declared_tables
from gateway.service.assembly.statements import LIMIT_WAIT_S, WAIT_S, build_statement_puller
from spool.engines import MEMORY, open_storage
from spool.errors import Invalid, NotThere
from spool.settings import SpoolSettings
from spool.statements import DAY_S, StatementStore, day_start
from spool.storage import Storage, StorageOptions
from tests.integration.statements.providers import (
    ACCOUNT,
    KEY,
    PAGE_DAYS,
    PROVIDERS,
    VALUE,
    Provider,
    expected,
)
from tests.moved_clock import MovedClock
from tests.rounds import IS_LONG, some
from tests.waiting import limited

DAYS = 3
NAME = "one"


class House:
    """One storage and one provider. A new puller works as after a restart."""

    def __init__(
        self, provider: Provider, storage: Storage, clock: MovedClock, config: Config, stack: AsyncExitStack
    ) -> None:
        self.provider, self.storage, self.clock, self.config, self.stack = (
            provider,
            storage,
            clock,
            config,
            stack,
        )
        self.slept: list[float] = []

    def puller(self) -> StatementPuller:
        async def sleep(seconds: float) -> None:
            self.slept.append(seconds)

        assert self.storage.registry is not None
        table = self.storage.registry.statements
        return build_statement_puller(table, self.clock, lambda: self.config, self.stack, sleep=sleep)

    def set(self, **settings: object) -> None:
        self.config = Config(reconciliation=replace(self.config.reconciliation, **settings))  # type: ignore[arg-type]

    async def pull(self) -> PullState:
        puller = self.puller()
        await puller.pull_statements(NAME)
        [state] = await puller.pull_states()
        return state

    @property
    def statements(self) -> StatementStore:
        assert self.storage.registry is not None
        return self.storage.registry.statements

    @property
    def days(self) -> int:
        """Return the number of days in a pull."""
        return self.provider.answers_days or DAYS

    @property
    def requests(self) -> int:
        """Return the number of requests in a whole pull."""
        return DAYS * self.provider.requests_a_day or -(-DAYS // PAGE_DAYS) if self.days == DAYS else 1

    def expected(self) -> Mapping[int, Decimal]:
        return expected(self.days, self.clock.now(), self.provider.amounts)

    async def kept(self) -> Mapping[int, Decimal]:
        """Return the stored amount of each day."""
        found: dict[int, Decimal] = defaultdict(Decimal)
        for row in await self.statements.statement_rows(provider=None, start=0, end=2**40):
            if row.unit == self.provider.unit:
                found[row.start] += row.amount
        return found


@pytest_asyncio.fixture(params=PROVIDERS)
async def house(tmp_path: Path, request: pytest.FixtureRequest) -> AsyncIterator[House]:
    clock, provider = MovedClock(), PROVIDERS[request.param]()
    provider.today = day_start(int(clock.now()))
    key = tmp_path / "key"
    key.write_text(KEY)
    async with AsyncExitStack() as stack:
        server = TestServer(provider.application())
        await server.start_server()
        stack.push_async_callback(server.close)
        options = StorageOptions(
            declared=declared_tables(), settings=SpoolSettings(hold=0), clock=clock, directory=tmp_path
        )
        storage = await open_storage(options, engine=MEMORY)
        stack.push_async_callback(storage.close)
        pull = StatementPullSettings(
            name=NAME, source=provider.source, key_file=key, base_url=f"{server.make_url('/')}", days=DAYS,
            account=ACCOUNT,
        )  # fmt: skip
        config = Config(reconciliation=ReconciliationSettings(pull=(pull,)))
        yield House(provider, storage, clock, config, stack)


async def test_all_pages_are_pulled(house: House) -> None:
    """Each past day is stored once. The next pull fetches the days again and replaces restated ones."""
    state = await house.pull()
    assert state.state == "done"
    assert state.reason == ""
    assert house.clock.now() == state.last_success
    assert house.requests == len(house.provider.asked)
    assert house.expected() == await house.kept()
    house.provider.amounts = {house.provider.today - DAY_S: VALUE + 7}
    await house.pull()
    assert house.expected() == await house.kept()


async def test_a_day_that_is_nothing_any_more(house: House) -> None:
    """
    If a provider now reports nothing for a day, the pull fails if the day was final, and its stored rows are removed
    when that is accepted. LiteLLM is an exception, because it may have deleted its logs.
    """
    await house.pull()
    before = await house.kept()
    house.provider.amounts = {house.provider.today - 2 * DAY_S: 0}
    puller = house.puller()
    await puller.pull_statements(NAME)
    [state] = await puller.pull_states()
    if state.state == "failed":
        assert "would become 0. Import the whole report" in state.reason and "--replace" in state.reason
        assert before == await house.kept()
        refused_at = house.clock.now()
        house.clock.move(DAY_S / 4)
        await puller.pull_statements(NAME)
        assert [refused_at] == [each.refused_since for each in await puller.pull_states()]
        house.clock.move(-DAY_S / 4)
    await puller.pull_statements(NAME, replace=True)
    [state] = await puller.pull_states()
    assert (state.state, state.refused_since) == ("done", None)
    wanted = dict(house.expected())
    if house.provider.source == "litellm_spend_logs":
        wanted[house.provider.today - 2 * DAY_S] = Decimal(VALUE)
    assert {day: amount for day, amount in wanted.items() if amount} == await house.kept()


async def test_killed_pull_continues_after_the_stored_part(house: House) -> None:
    """
    After a kill on the second page, or within the second day, the next pull continues after the stored part.
    Every day counts once.
    """
    provider = house.provider
    done = provider.requests_a_day or house.requests - 1
    provider.hang_at = done + (2 if provider.requests_a_day else 1)
    pulling = asyncio.create_task(house.puller().pull_statements(NAME))
    async with limited():
        await provider.hung.wait()
    pulling.cancel()
    await asyncio.gather(pulling, return_exceptions=True)
    assert (done > 0) == bool(await house.kept())
    assert set(await house.kept()) < set(house.expected())
    await house.pull()
    assert house.expected() == await house.kept()
    assert provider.hang_at + house.requests - done == len(provider.asked)


async def test_rate_limit_is_respected(house: House) -> None:
    """
    A short wait happens within the pull. A long one ends the pull, which later continues from the same place
    and never too early.
    """
    provider, last = house.provider, house.requests + 1
    provider.faults = {
        1: web.Response(status=429, headers={"Retry-After": "7"}),
        # GitHub answers like this if a rate limit is exceeded
        last: web.Response(status=403, headers={"Retry-After": "3600"}),
    }
    puller = house.puller()
    await puller.pull_due()
    [state] = await puller.pull_states()
    assert house.slept == [7.0]
    assert state.state == "failed"
    assert house.clock.now() + 3600 == state.next_at
    assert "admin key" not in state.reason
    await puller.pull_due()
    assert last == len(provider.asked)
    house.clock.move(3600)
    await puller.pull_due()
    [state] = await puller.pull_states()
    assert state.state == "done"
    assert house.expected() == await house.kept()
    assert (2 if house.requests > 1 else 3) == provider.asked.count(provider.asked[0])


@pytest.mark.parametrize(
    ("headers", "words", "wait_s"),
    [
        ({"X-RateLimit-Remaining": "0", "X-RateLimit-Reset": "1"}, "API rate limit exceeded", WAIT_S),
        ({"X-RateLimit-Remaining": "12"}, "You have exceeded a secondary rate limit", LIMIT_WAIT_S),
    ],
)
async def test_too_many_requests_are_no_refused_key(
    house: House, headers: dict[str, str], words: str, wait_s: float
) -> None:
    """
    GitHub answers a rate limit with 403, which does not always have a time to retry. The key must not be
    reported as refused.
    """
    house.provider.faults = {
        1: web.Response(status=403, headers=headers, text=json.dumps({"message": words}))
    }
    await house.pull()
    assert house.slept == [wait_s]
    assert house.expected() == await house.kept()


async def test_days_come_late_and_settle(house: House) -> None:
    """
    The newest days are open and are fetched again. They become final after the provider's settling time.
    """
    provider, today = house.provider, house.provider.today
    provider.amounts = {today - DAY_S: VALUE - 13}
    await house.pull()
    settled = {info.end for info in await house.statements.statements() if info.settled}
    assert max(settled, default=0) <= house.clock.now() - provider.settle_s
    assert not {info.end for info in await house.statements.statements() if not info.settled} - {today}
    provider.amounts = {}
    house.clock.move(provider.settle_s)
    provider.today = day_start(int(house.clock.now()))
    await house.pull()
    assert expected(house.days, today).items() <= (await house.kept()).items()
    settled = {day for info in await house.statements.statements() if info.settled
               for day in range(info.start, info.end, DAY_S)}  # fmt: skip
    assert today - DAY_S in settled
    assert max(settled) + DAY_S <= house.clock.now() - provider.settle_s


EMPTY: dict[str, list[object]] = {"data": [], "usageItems": [], "usageEvents": []}
FAULTS = {
    "refused key": (
        401,
        json.dumps({"error": {"message": f"wrong key {KEY}"}}),
        "wrong key [key]; check that it is an admin key",
    ),
    "no page": (200, "[]", "not a page"),
    "no JSON": (200, "<html>", "not JSON"),
    "no rows": (200, "{}", "it has no list"),
    "no report": (
        200,
        '{"data": [5], "usageItems": [5], "usageEvents": [5], "pagination": {"hasNextPage": false}}',
        "not a report",
    ),
    "too large": (200, json.dumps({**EMPTY, "more": "x" * 70_000}), "max_page_bytes"),
    "an ended cursor": (400, "the cursor belongs to another query", "another query"),
}


async def test_failed_pull_states_its_reason(house: House) -> None:
    """
    If a pull fails, the reason quotes the provider without the key. Stored rows stay, and the next pull
    starts at the first page. Each source has every third fault, and in proofs all of them.
    """
    await house.pull()
    house.set(max_page_bytes=64 * 1024)
    provider = house.provider
    place = 0 if IS_LONG else [*PROVIDERS].index(provider.source) % 3
    for fault, (status, text, words) in some([*FAULTS.items()][place:], every=3):
        asked = len(provider.asked)
        provider.faults = {asked + house.requests: web.Response(status=status, text=text)}
        state = await house.pull()
        assert state.state == "failed", (fault, state.reason)
        assert words in state.reason, (fault, state.reason)
        assert KEY not in state.reason
        assert house.clock.now() < (state.next_at or 0) <= house.clock.now() + 900
        assert house.expected() == await house.kept()
        assert "done" == (await house.pull()).state
        assert asked + 2 * house.requests == len(provider.asked)


async def test_no_redirect_is_followed(house: House) -> None:
    """A pull follows no redirect, because it could send the key to somebody else."""
    house.provider.faults = {1: web.Response(status=302, headers={"Location": "/elsewhere"})}
    state = await house.pull()
    assert "does not follow redirects" in state.reason
    assert 1 == len(house.provider.asked)
    assert {} == await house.kept()


async def test_an_answer_that_does_not_come(house: House) -> None:
    """
    If a provider does not answer, the request is repeated after the timeout. Then the failure is reported.
    """
    house.set(pull_timeout=0.01)
    house.provider.is_silent = True
    state = await house.pull()
    assert "no response within 0.01 s (reconciliation.pull_timeout)" in state.reason
    assert [5.0] * 4 == house.slept


async def test_pages_are_bounded(house: House) -> None:
    provider = house.provider
    most = provider.requests_a_day // len(provider.paths) or house.requests
    house.set(max_pages=most)
    assert "done" == (await house.pull()).state
    if most > 1:
        house.set(max_pages=most - 1)
        assert "reconciliation.max_pages" in (await house.pull()).reason


@pytest.mark.parametrize("house", ["github_copilot"], indirect=True)
async def test_a_report_that_is_not_there(house: House) -> None:
    """If one of a provider's two reports does not exist, the pull succeeds. If both are missing, it fails."""
    provider = house.provider
    provider.gone = {"ai_credit"}  # type: ignore[attr-defined]
    assert "done" == (await house.pull()).state
    assert {Decimal(VALUE - 100)} == set((await house.kept()).values())
    provider.gone = {"ai_credit", "premium_request"}  # type: ignore[attr-defined]
    state = await house.pull()
    assert state.state == "failed"
    assert "404" in state.reason
    assert {Decimal(VALUE - 100)} == set((await house.kept()).values())


@pytest.mark.parametrize("house", ["openai_costs"], indirect=True)
async def test_a_pull_that_cannot_be(house: House) -> None:
    """A pull of an unknown name is refused. If the key file is unreadable, no request is sent."""
    with pytest.raises(NotThere):
        await house.puller().pull_statements("other")
    pull = house.config.reconciliation.pull[0]
    assert pull.key_file is not None
    pull.key_file.unlink()
    assert "key_file" in (await house.pull()).reason
    assert [] == house.provider.asked


@pytest.mark.parametrize("house", ["anthropic_costs"], indirect=True)
async def test_a_name_that_was_another_pulls(house: House) -> None:
    """
    If the source under a name changes, the pull restarts at once, without the progress and waiting time of
    the other source.
    """
    [pull] = house.config.reconciliation.pull
    house.set(pull=(replace(pull, source="openai_costs"),))
    assert "failed" == (await house.pull()).state
    house.set(pull=(pull,))
    puller = house.puller()
    assert ["never"] == [state.state for state in await puller.pull_states()]
    await puller.pull_due()
    assert ["done"] == [state.state for state in await puller.pull_states()]
    assert house.expected() == await house.kept()


ONE = pytest.mark.parametrize("house", ["openai_costs"], indirect=True)


@ONE
async def test_a_command_and_the_schedule_at_once(house: House) -> None:
    """
    If a command and the schedule start a pull at once, the second waits for its turn and finds that
    nothing is due.
    """
    puller = house.puller()
    await asyncio.gather(puller.pull_statements(NAME), puller.pull_due())
    assert house.requests == len(house.provider.asked)


@ONE
async def test_a_pull_that_a_command_began_and_a_kill_ended(house: House) -> None:
    """
    If a command began a pull and was killed, the pull is due again at once, even if an earlier pull had set a later
    time.
    """
    await house.pull()
    house.provider.hang_at = house.requests + 2
    pulling = asyncio.create_task(house.puller().pull_statements(NAME))
    async with limited():
        await house.provider.hung.wait()
    pulling.cancel()
    await asyncio.gather(pulling, return_exceptions=True)
    puller = house.puller()
    await puller.pull_due()
    assert ["done"] == [state.state for state in await puller.pull_states()]


@ONE
async def test_a_clock_that_was_ahead(house: House) -> None:
    """
    If the clock was ahead for a while, the stored time of the next pull may be further away than any
    interval. Such a pull is due at once.
    """
    house.clock.move(100 * DAY_S)
    await house.pull()
    house.clock.move(-100 * DAY_S)
    house.provider.asked.clear()
    await house.puller().pull_due()
    assert house.requests == len(house.provider.asked)


@ONE
async def test_pull_for_another_account_starts_without_stored_progress(house: House) -> None:
    """
    If a pull is configured for another account, it begins anew: stored progress of the former account does not
    count.
    """
    house.provider.faults = {house.requests: web.Response(status=503)} | {
        house.requests + n: web.Response(status=503) for n in range(1, 9)
    }
    assert "failed" == (await house.pull()).state
    [pull] = house.config.reconciliation.pull
    house.set(pull=(replace(pull, account="another"),))
    house.provider.faults.clear()
    house.provider.asked.clear()
    assert "done" == (await house.pull()).state
    assert house.requests == len(house.provider.asked)


@ONE
async def test_an_error_of_our_own_costs_no_other_pull(house: House) -> None:
    """
    An internal error is reported without its text, retried after a pause, and does not stop other pulls.
    """
    [pull] = house.config.reconciliation.pull
    house.set(pull=(replace(pull, name="bad", base_url="http://user:word@127.0.0.1:1"), pull))
    puller = house.puller()
    await puller.pull_due()
    bad, good = await puller.pull_states()
    assert bad.state == "failed"
    assert good.state == "done"
    assert "an internal error; see the log: ValueError" == bad.reason
    assert (bad.next_at or 0) > house.clock.now()


@pytest.mark.parametrize("house", PROVIDERS, indirect=True)
async def test_key_repeated_by_an_answer_is_removed(house: House) -> None:
    """
    If a provider's answer repeats the key, the key is removed in every form in which the request sent it.
    """
    request = PULL_REQUESTS[house.provider.source]
    for written in {KEY, *request.headers(KEY).values()} - {"2023-06-01"}:
        house.provider.faults = {
            len(house.provider.asked) + 1: web.Response(status=400, text=f"no: {written}")
        }
        reason = (await house.pull()).reason
        credential = written.rpartition(" ")[2]
        assert "no: " in reason
        assert (credential in reason) == (credential == "application/vnd.github+json")


async def test_a_limit_that_names_no_time_is_one_of_a_minute(house: House) -> None:
    """
    If a provider limits requests without saying when to retry, the pull waits a minute. Cursor, for example, allows
    20 requests per minute and states no time.
    """
    house.provider.faults = {1: web.Response(status=429)}
    await house.pull()
    assert house.slept == [LIMIT_WAIT_S]
    assert house.expected() == await house.kept()


@pytest.mark.parametrize(
    "page",
    [{}, {"pagination": {}}, {"pagination": {"hasNextPage": 1}}, {"pagination": {"hasNextPage": True}}],
)
async def test_cursor_page_without_a_last_page_mark_fails_the_pull(page: Mapping[str, object]) -> None:
    """
    If a page of Cursor does not say whether it is the last one, the pull fails. Treating the page as the last would
    make an incomplete day look complete.
    """
    with pytest.raises(Invalid):
        PULL_REQUESTS["cursor_usage_events"].next_page(page)


@ONE
async def test_no_part_of_a_key_is_reported(house: House) -> None:
    """No part of a key is reported, even if the quoted text is cut in the middle of the key."""
    for length in range(480, 501, 4):
        house.provider.faults = {
            len(house.provider.asked) + 1: web.Response(status=400, text="x" * length + KEY)
        }
        assert KEY[:2] not in (await house.pull()).reason.replace("[key]", "")


@ONE
async def test_the_name_of_a_page_is_bounded(house: House) -> None:
    """
    The name of a next page that a provider states is limited in length, because it becomes a part of an address.
    """
    page = {"data": [], "has_more": True, "next_page": "n" * 4097}
    house.provider.faults = {1: web.json_response(page)}
    assert "more than 4096 characters" in (await house.pull()).reason


@pytest.mark.parametrize(
    "page",
    [
        {"has_more": "true"},
        {"has_more": 1},
        {"has_more": None},
        {"has_more": True},
        {"has_more": True, "next_page": 2},
    ],
)
async def test_answer_without_a_last_page_mark_fails_the_pull(page: Mapping[str, object]) -> None:
    """
    If an answer does not say whether it is the last page, the pull fails. Treating it as the last would make an
    incomplete day look complete.
    """
    for name in ("openai_usage", "anthropic_analytics_costs"):
        with pytest.raises(Invalid):
            PULL_REQUESTS[name].next_page(page)
        assert PULL_REQUESTS[name].next_page({"next_page": "x"}) is None


async def test_every_pull_that_can_be_configured_is_known() -> None:
    """
    Every pull that can be configured is known: the settings, the requests and the fake providers name the same
    sources.
    """
    assert set(PULLED_SOURCES) == set(PULL_REQUESTS) == set(PROVIDERS)
    assert set(PULLED_SOURCES) <= set(SOURCES)
    assert {name: provider.settle_s for name, provider in PROVIDERS.items()} == {
        name: SOURCES[name].settle_s for name in PROVIDERS
    }
