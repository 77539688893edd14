"""
Scheduled reports of views by mail and chat: each date is sent once, and each reader gets only the calls that
they may see.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio
from click.testing import CliRunner

from exporters.notifications.notifier import Notifier
from gateway.cli import main
from gateway.operations.list import declared_tables
from gateway.operations.money.costs.scheduled_reports import make_report_sender
from gateway.operations.money.reports.declared import ScheduledReportTable
from gateway.operations.money.reports.sender import ReportSender
from spool.engines import SQLITE
from spool.ledger.work import unit_number_from_name_or_digest
from spool.registry.notices import SENT
from spool.registry.operators import VIEWER, Actor
from spool.registry.registry import Registry
from spool.registry.roles import IS, LIMITED, NewRole, RoleFilter, RoleLimits
from spool.sqlite.registry import SqliteRegistry
from tests.exporters.notifications.examples import SECRET, settings
from tests.exporters.upstream import FakeUpstream, Reply
from tests.integration.exporters.notifications.receivers import Mailbox, mail_server
from tests.integration.operations.people.test_sign_in import PASSWORD, signed_in
from tests.integration.operations.server import ADA, OperatorServer, operator_server
from tests.moved_clock import MovedClock
from tests.spool.contract.examples import add, call, counted_from

FRIDAY = datetime(2026, 9, 18, 12, tzinfo=UTC).timestamp()
MONDAY = datetime(
    2026, 9, 21, 6, 30, tzinfo=UTC
).timestamp()  # this time is Monday, half past eight in Berlin
ROOT = Actor("root@example.com", "local")
LEAD = "lead@example.com"
SETS = ("view_costs", "modify_views_and_budgets")
# Each row has team, day, model and cost.
SPENT = (
    ("search", "2026-09-08", "gpt", "10"),
    ("search", "2026-09-15", "gpt", "10"),
    ("search", "2026-09-17", "o3", "30"),
    ("checkout", "2026-09-16", "gpt", "2"),
)


class Reporting:
    """An operator server with channels to a mailbox, a chat and a webhook."""

    def __init__(self, server: OperatorServer, mailbox: Mailbox, chat: FakeUpstream, directory: Path) -> None:
        self.server, self.mailbox, self.chat = server, mailbox, chat
        (directory / "secret").write_text(SECRET)
        channels = (
            settings("email", name="mail", server=f"127.0.0.1:{mailbox.port}", tls="none",
                     sender="tollhouse@example.com", to=("finance@example.com",), quiet_hours="00:00-23:59"),
            settings("teams", name="chat", url=chat.url),
            settings("alertmanager", name="alerts", url=chat.url),
        )  # fmt: skip
        self.notifier = Notifier(server.registry.notices, channels, server.clock)
        self.sender = make_report_sender(server.services)

    async def create(self, **fields: Any) -> Any:
        body = {"name": "weekly", "view": "all", "channels": ["mail"], "time_zone": "Europe/Berlin", **fields}
        answer = await self.server.ask("POST", "/scheduled-reports", body)
        return answer.payload["scheduled_report"] if answer.status == 201 else answer.error

    async def mails(self) -> dict[str, str]:
        """Return the received mails by recipient."""
        await self.notifier.send_due()
        mails = [(", ".join(to), mail, mail.get_body(("plain",))) for to, mail in self.mailbox.mails]
        return {to: f"{mail['Subject']}\n{text and text.get_content()}" for to, mail, text in mails}


@pytest_asyncio.fixture
async def reporting(tmp_path: Path) -> AsyncIterator[Reporting]:
    clock = MovedClock(FRIDAY)
    async with (
        FakeUpstream() as chat,
        mail_server(Mailbox()) as mailbox,
        operator_server(tmp_path, engine=SQLITE, clock=clock) as server,
    ):
        chat.judge = lambda request: Reply(202)
        records = [
            call(number, at=datetime.fromisoformat(f"{day}T12:00+00:00").timestamp(), request_model=model, team=team,
                 cost=cost, cost_source="reported")
            for number, (team, day, model, cost) in enumerate(SPENT)
        ]  # fmt: skip
        await add(server.services.spool.log, counted_from("2026-08-01"), *records)
        view = {"name": "all", "filter": {}, "principal_dimension": "team"}
        assert 201 == (await server.ask("POST", "/views", view)).status
        made = Reporting(server, mailbox, chat, tmp_path)
        yield made
        await made.notifier.close()


async def test_weekly_report_is_sent_once_despite_restarts_and_two_gateways(
    reporting: Reporting, tmp_path: Path
) -> None:
    """
    A weekly report is not sent early. It is sent exactly once despite two senders at once, a later sender
    and quiet hours.
    """
    server = reporting.server
    made = await reporting.create(channels=["mail", "chat"])
    assert made["next"] == "2026-09-21T06:00:00.000Z"
    assert made["last"] is None
    assert 0 == await reporting.sender.send_due()
    server.clock.move(MONDAY - FRIDAY)
    twins = [make_report_sender(server.services) for _ in range(2)]
    assert 1 == sum(await asyncio.gather(*(each.send_due() for each in twins)))
    # this registry stands for another gateway with an old copy of the schedule
    store = await SqliteRegistry.open(tmp_path)
    other = await Registry.open(store, secret=b"i" * 32, clock=server.clock, declared=declared_tables())
    [kept] = other.declared_table(ScheduledReportTable).all()
    assert not await other.declared_table(ScheduledReportTable).store_notices_once(
        kept, kept.last_due_at(MONDAY), [], ""
    )
    await other.close()
    mails = await reporting.mails()
    assert ["finance@example.com"] == list(mails)
    assert 1 == len(reporting.mailbox.mails) == len(reporting.chat.accepted)
    assert 0 == await reporting.sender.send_due()
    assert (
        "[Tollhouse] AI costs of all, 14 to 20 September 2026: $42.00 (+320 %)\n"
        "AI costs of all, 14 to 20 September 2026: $42.00 (+320 %)\n\n"
        "14 to 20 Sep against 7 to 13 Sep: "
        "$32.00 more: search +$30.00, because it used other models or kinds of tokens "
        "($181,818.18 a million tokens at the earlier prices, before $90,909.09); checkout +$2.00, which is new.\n\n"
        "Mon 14 Sep  $0.00\nTue 15 Sep  ███████ $10.00\nWed 16 Sep  ██ $2.00\nThu 17 Sep  ████████████████████ $30.00\n"
        "Fri 18 Sep  $0.00\nSat 19 Sep  $0.00\nSun 20 Sep  $0.00\n\n"
        "Top 2 by team\n- search: $40.00 (95 %)\n- checkout: $2.00 (5 %)\n"
    ) in mails["finance@example.com"]
    shown = (await server.ask("GET", "/scheduled-reports/weekly")).payload["scheduled_report"]
    assert shown["next"] == "2026-09-28T06:00:00.000Z"
    assert shown["last"] == "2026-09-21T06:00:00.000Z"
    assert {SENT} == {each.state for each in await server.registry.notices.finished_notifications()}


async def test_a_report_that_was_sent_can_be_edited(reporting: Reporting) -> None:
    """
    A scheduled report that was sent meanwhile can still be edited with the version that was shown before. A second
    edit with this version is refused.
    """
    server = reporting.server
    made = await reporting.create()
    server.clock.move(MONDAY - FRIDAY)
    assert 1 == await reporting.sender.send_due()
    edits = [{"name": name, "version": made["version"]} for name in ("renamed", "again")]
    path = f"/scheduled-reports/{made['id']}"
    assert [200, 409] == [(await server.ask("PATCH", path, edit)).status for edit in edits]


async def test_amounts_without_a_rate_are_named(reporting: Reporting) -> None:
    """A scheduled report lists amounts without a rate below its sums, summed over all groups."""
    at = datetime(2026, 9, 16, 12, tzinfo=UTC).timestamp()
    charged = [
        call(10 + n, at=at, team=team, charges={"CHF": "1.5"}, cost_source="reported")
        for n, team in enumerate(("search", "checkout"))
    ]
    await add(reporting.server.services.spool.log, *charged)
    await reporting.create()
    reporting.server.clock.move(MONDAY - FRIDAY)
    await reporting.sender.send_due()
    [mail] = (await reporting.mails()).values()
    assert "20 September 2026: $42.00 (+320 %)" in mail
    assert "3 CHF are not in these sums: no rate to USD is known (docs/money/currencies.md)." in mail


async def test_a_title_shows_no_amount_for_an_unknown_cost(reporting: Reporting) -> None:
    """If no call of the view has a price, the title says so instead of $0.00."""
    server = reporting.server
    at = datetime(2026, 9, 16, 12, tzinfo=UTC).timestamp()
    await add(server.services.spool.log, call(10, at=at, team="labs", request_model="own"))
    for name, teams in (("unknown", ["labs"]), ("partly known", ["labs", "checkout"])):
        view = {"name": name, "filter": {"team": teams}, "principal_dimension": "team"}
        assert 201 == (await server.ask("POST", "/views", view)).status
        await reporting.create(name=name, view=name)
    server.clock.move(MONDAY - FRIDAY)
    titles = [
        (await server.ask("GET", f"/scheduled-reports/{name}/preview")).payload["preview"]["title"]
        for name in ("unknown", "partly%20known")
    ]
    assert titles[0].startswith("AI costs of unknown, 14 to 20 September 2026: no price")
    assert titles[1].startswith("AI costs of partly known, 14 to 20 September 2026: $2.00")


async def test_money_that_a_report_cannot_compare_is_refused(reporting: Reporting) -> None:
    """
    A report of a view whose costs it cannot compare is refused. The cost type of a view may change after the report
    was made. Then the report is not sent and shows the problem.
    """
    server = reporting.server
    view = {"name": "paid", "filter": {}, "principal_dimension": "team", "cost_type": "paid_cost"}
    assert 201 == (await server.ask("POST", "/views", view)).status
    problem = "reports compare real_cost or billed costs, not paid_cost; use a view with another cost_type"
    assert (400, "invalid", f"view: {problem}") == await reporting.create(view="paid")
    await reporting.create()
    assert 200 == (await server.ask("PATCH", "/views/all", {"cost_type": "paid_cost"})).status
    server.clock.move(MONDAY - FRIDAY)
    await reporting.sender.send_due()
    assert not await reporting.mails()
    shown = (await server.ask("GET", "/scheduled-reports/weekly")).payload["scheduled_report"]
    assert problem in shown["problem"]


async def test_each_person_gets_the_calls_that_he_may_see(reporting: Reporting) -> None:
    """
    Each person gets the report with the calls that their current role shows. A person whose account was removed
    gets nothing, and the report says so.
    """
    server = reporting.server
    operators, roles = server.registry.operators, server.registry.roles
    for email, role in ((LEAD, "none"), ("cfo@example.com", VIEWER), ("gone@example.com", VIEWER)):
        await operators.add(email, role=role, password=PASSWORD, actor=ROOT)
    limited = RoleFilter(dimension="team", values=("checkout",), mode=IS)
    await roles.create(
        NewRole(name="lead", data_access=LIMITED, filters=(limited,), permission_sets=SETS[:1], members=(LEAD,)),
        known_dimensions=server.services.money.ledger.dimensions(), limits=RoleLimits(), actor=ROOT,
    )  # fmt: skip
    await reporting.create(people=[LEAD, "cfo@example.com", "gone@example.com"])
    await operators.remove("gone@example.com", actor=ROOT)
    server.clock.move(MONDAY - FRIDAY)
    await reporting.sender.send_due()
    mails = await reporting.mails()
    assert {LEAD, "cfo@example.com"} == set(mails)
    assert "$2.00" in mails[LEAD] and "search" not in mails[LEAD] and "$42.00" not in mails[LEAD]
    assert "$42.00 (+320 %)" in mails["cfo@example.com"]
    [report] = server.registry.declared_table(ScheduledReportTable).all()
    assert "not sent: gone@example.com has no account" == report.problem


async def test_a_limited_person_makes_his_own_and_sees_no_other(reporting: Reporting) -> None:
    """
    A limited person previews a report with only their own calls, cannot see other reports, and cannot send
    to other people.
    """
    server = reporting.server
    await reporting.create()
    server.clock.move(MONDAY - FRIDAY)
    limited = RoleFilter(dimension="team", values=("checkout",), mode=IS)
    await server.registry.roles.create(
        NewRole(name="lead", data_access=LIMITED, filters=(limited,), permission_sets=SETS, members=(LEAD,)),
        known_dimensions=server.services.money.ledger.dimensions(), limits=RoleLimits(), actor=ROOT,
    )  # fmt: skip
    view = {"name": "mine", "filter": {"team": ["checkout"]}, "principal_dimension": "team"}
    assert 201 == (await server.ask("POST", "/views", view)).status
    headers = await signed_in(server, "none", LEAD)
    seen = await server.over_http("GET", "/scheduled-reports", headers=headers)
    assert [] == seen.payload["scheduled_reports"]
    body = {"name": "own", "view": "mine", "channels": ["mail"], "people": [LEAD]}
    for wrong in ({**body, "view": "all"}, {**body, "people": [ADA]}):
        assert (
            400 <= (await server.over_http("POST", "/scheduled-reports", wrong, headers=headers)).status < 404
        )
    made = await server.over_http("POST", "/scheduled-reports", body, headers=headers)
    assert made.status == 201
    assert made.payload["scheduled_report"]["owner"] == LEAD
    preview = await server.over_http("GET", "/scheduled-reports/own/preview", headers=headers)
    assert "AI costs of mine, 14 to 20 September 2026: $2.00" == preview.payload["preview"]["title"]
    foreign = await server.over_http("GET", "/scheduled-reports/weekly/preview", headers=headers)
    assert 404 == foreign.status


async def test_what_cannot_be_sent_is_refused(reporting: Reporting) -> None:
    """A report that cannot be sent is refused. The message names the field and says what to do."""

    async def refused(**fields: Any) -> str:
        status, _, message = await reporting.create(**fields)
        assert status in (400, 409)
        return str(message)

    assert "channels: alerts accepts only alerts. Use a mail channel, a chat channel or a webhook" == (
        await refused(channels=["alerts"])
    )
    assert "Use one of: mail, chat, alerts" in await refused(channels=["nowhere"])
    assert "view: no view has this id or name" == await refused(view="none")
    assert "day must be 1 to 7 for every week (1 is Monday)" == await refused(day=8)
    assert "day must be 1 to 28 for every month" == await refused(every="month", day=29)
    assert 'at must be a time of day such as "08:00"' == await refused(at="8")
    assert "time_zone must be the name of a time zone, such as Europe/Berlin" == await refused(
        time_zone="Mars"
    )
    assert "people receive reports by e-mail, so channels must include a channel of type email" == (
        await refused(channels=["chat"], people=[ADA])
    )
    assert f"people: {ADA} has no account, so it is unknown which calls they may see" == await refused(
        people=[ADA]
    )


async def test_one_is_sent_now_by_command(reporting: Reporting, tmp_path: Path) -> None:
    """
    The command `send` sends a scheduled report now, and does not change its schedule. A report of a whole month is
    titled with the month's name.
    """

    async def run(*words: str) -> str:
        data = ["--data", str(tmp_path)]
        result = await asyncio.to_thread(CliRunner().invoke, main, ["scheduled-reports", *words, *data])
        assert 0 == result.exit_code, result.output
        return result.output

    await run(
        "create", "--name", "monthly", "--view", "all", "--channel", "chat", "--every", "month", "--day", "2"
    )
    assert "AI costs of all, August 2026: $0.00\n" in await run("preview", "monthly")
    assert "sending; see the state with tollhouse notifications show chat:report-" in await run(
        "send", "monthly"
    )
    await reporting.notifier.send_due()
    assert "August 2026" in json.dumps(json.loads(reporting.chat.accepted[0].raw))
    assert "2026-10-02T08:00:00.000Z" in await run("show", "monthly", "--json")
    await run("delete", "monthly")
    assert "monthly" not in await run("list")


async def test_a_report_of_a_repository(reporting: Reporting) -> None:
    """The view of a report may filter by repository. A repository that is no longer listed is named instead of sums."""
    server = reporting.server
    at = datetime(2026, 9, 16, 12, tzinfo=UTC).timestamp()
    shop = call(100, at=at, team="search", cost="7", cost_source="reported", tags={"repository": "acme/shop"})
    await add(server.services.spool.log, shop)
    view = {"name": "shop", "filter": {"repository": ["acme/shop"]}, "principal_dimension": "team"}
    assert 201 == (await server.ask("POST", "/views", view)).status
    await reporting.create(name="of shop", view="shop")
    server.clock.move(MONDAY - FRIDAY)
    preview = (await server.ask("GET", "/scheduled-reports/of%20shop/preview")).payload["preview"]
    assert "AI costs of shop, 14 to 20 September 2026: $7.00" in preview["title"]
    number = unit_number_from_name_or_digest("repository", "acme/shop")
    await server.storage.ledger._change_rows(lambda rows: rows.merge_units_into_other("repository", [number]))
    refused = await server.ask("GET", "/scheduled-reports/of%20shop/preview")
    assert 400 <= refused.status < 500
    assert "acme/shop is no longer listed" in refused.payload["error"]["message"]


async def test_a_report_that_fails_stops_no_other_and_says_so(
    reporting: Reporting, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is still due: its state has the problem, what needs attention names it, and a later attempt sends it."""
    server, sender = reporting.server, reporting.sender
    for name in ("broken", "sound"):
        await reporting.create(name=name)
    server.clock.move(MONDAY - FRIDAY)
    build_notice = ReportSender.build_notice
    is_broken = True

    async def fail_for_broken(self: ReportSender, report: Any, *arguments: Any, **options: Any) -> Any:
        if report.name == "broken" and is_broken:
            raise RecursionError
        return await build_notice(self, report, *arguments, **options)

    monkeypatch.setattr(ReportSender, "build_notice", fail_for_broken)
    assert 1 == await sender.send_due()
    shown = (await server.ask("GET", "/scheduled-reports/broken")).payload["scheduled_report"]
    assert "not sent yet: an internal error; see the log: RecursionError" == shown["problem"]
    causes = (await server.ask("GET", "/attention")).payload["attention"]["causes"]
    assert ["Scheduled reports: broken failed"] == [
        cause["title"] for cause in causes if cause["kind"] == "task"
    ]
    assert 0 == await sender.send_due()
    is_broken = False
    sender.failed_items._waiting_until.clear()  # the time of the next attempt has come
    assert 1 == await sender.send_due()
    shown = (await server.ask("GET", "/scheduled-reports/broken")).payload["scheduled_report"]
    assert shown["problem"] is None
