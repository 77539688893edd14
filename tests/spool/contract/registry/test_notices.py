"""Notices: stored for each channel with their subject, before any attempt to send them."""

from __future__ import annotations

from dataclasses import replace

import pytest

import spool.registry.notices as notices
from spool.errors import Invalid, NotThere
from spool.listing import ListQuery, SortField
from spool.registry.insights import Finding, InsightDraft
from spool.registry.notices import (
    FAILED,
    KEPT_S,
    MAX_FIELDS,
    MAX_TITLE,
    MAX_WAITING,
    SENT,
    WAITING,
    ChannelCounts,
    InsightSubscription,
    Notice,
    add_notices,
    check_notice,
    insight_severity,
)
from spool.registry.operators import Actor
from spool.registry.registry import Registry
from spool.registry.registry_rows import RegistryRows
from tests.moved_clock import MovedClock
from tests.spool.contract.conftest import RegistryOpener

ADA = Actor("ada@example.com", "local")
pytestmark = pytest.mark.rule
NOTICE = Notice(
    id="bgt_1",
    kind="budget.threshold_crossed",
    title="Search spent 80 %",
    at=1_000.0,
    text="Search spent $80 of $100.",
    fields={"budget": "Search", "spent": "80.00"},
    severity="critical",
    link="https://gateway.example/console",
    thread="budget 1 2026-11",
)


@pytest.mark.one_engine
@pytest.mark.every_engine
async def test_a_notice_is_stored_for_each_channel(open_registry: RegistryOpener) -> None:
    """A notice is stored for each channel, in the order of the channel. All its fields survive a restart."""
    registry = await open_registry()
    await registry.notices.add([NOTICE, replace(NOTICE, id="a")], ["mail", "chat"])
    await registry.close()
    waiting = await (await open_registry()).notices.waiting_notifications()
    assert [("chat", 1, "bgt_1"), ("chat", 2, "a"), ("mail", 1, "bgt_1"), ("mail", 2, "a")] == [
        (each.channel, each.number, each.notice.id) for each in waiting
    ]
    assert NOTICE == waiting[0].notice
    assert {WAITING} == {each.state for each in waiting}


@pytest.mark.one_engine
@pytest.mark.every_engine
async def test_a_notice_that_is_known_changes_nothing(registry: Registry) -> None:
    """A notice is known if it was added before or twice in one change. Another channel still gets it."""
    await registry.notices.add([NOTICE, NOTICE], ["mail"])
    await registry.notices.add([replace(NOTICE, title="other words")], ["mail", "chat"])
    assert [("chat", "other words"), ("mail", NOTICE.title)] == [
        (each.channel, each.notice.title) for each in await registry.notices.waiting_notifications()
    ]


@pytest.mark.every_engine
async def test_failed_change_sends_no_notice(registry: Registry) -> None:
    """
    A notice and the change that it reports are stored in one transaction, so a failed change sends nothing.
    """

    def fail(registry_rows: RegistryRows) -> None:
        add_notices(registry_rows, [NOTICE], ["mail"])
        raise ValueError

    with pytest.raises(ValueError):
        await registry._changes.change_rows(fail)
    assert [] == await registry.notices.waiting_notifications()


async def test_too_many_that_wait(registry: Registry) -> None:
    """
    At the limit, the next notice fails at once and states the reason, so it is not lost silently. Other
    channels are not affected.
    """
    await registry.notices.add(
        [replace(NOTICE, id=str(number)) for number in range(MAX_WAITING + 1)], ["mail"]
    )
    await registry.notices.add([NOTICE], ["chat"])
    assert MAX_WAITING + 1 == len(await registry.notices.waiting_notifications())
    [over] = await registry.notices.finished_notifications()
    assert over.channel == "mail"
    assert str(MAX_WAITING) == over.notice.id
    assert over.state == FAILED
    assert "already wait for this channel" in over.error


@pytest.mark.proves(
    "A team's or a model's name adds mail headers, mentions people in a chat, or controls a terminal"
)
def test_words_that_others_chose_are_cut() -> None:
    """
    In texts that other people choose, a line break cannot start a header, a link must lead to a web page, and
    the length is limited.
    """
    names = {str(number): "x" * 1_000 for number in range(100)}
    found = check_notice(
        replace(
            NOTICE, title="a\r\nBcc: b" + "x" * 999, text="one\ntwo\x00", link="javascript:x", fields=names
        )
    )
    assert found.title.startswith("a  Bcc: bx") and MAX_TITLE == len(found.title)
    assert found.text == "one\ntwo"
    assert found.link == ""
    assert MAX_FIELDS == len(found.fields) and {256} == {len(value) for value in found.fields.values()}


@pytest.mark.parametrize("wrong", [{"id": "a b"}, {"id": ""}, {"kind": "Budget"}, {"severity": "high"}])
def test_what_a_notice_must_have(wrong: dict[str, str]) -> None:
    """A notice requires an id that fits a header, and a kind and severity that receivers know."""
    with pytest.raises(Invalid):
        check_notice(replace(NOTICE, **wrong))  # type: ignore[arg-type]


@pytest.mark.one_engine
@pytest.mark.every_engine
async def test_result_of_a_notification_is_stored(open_registry: RegistryOpener, clock: MovedClock) -> None:
    """
    The result of a notification survives a restart and counts for its channel. A notification that no longer
    waits is unchanged.
    """
    registry = await open_registry()
    await registry.notices.add([replace(NOTICE, id=id) for id in "abcd"], ["mail"])
    a, b, c, d = await registry.notices.waiting_notifications()
    await registry.notices.store_changed_notifications(
        [replace(d, attempts=2, not_before=5.5, reached=("x@y",), message=4)]
    )
    await registry.notices.store_changed_notifications(
        [replace(a, state=SENT), replace(b, state=FAILED, error="no"), replace(c, state=SENT)]
    )
    await registry.notices.store_changed_notifications([replace(a, state=FAILED)])
    await registry.close()
    again = (await open_registry()).notices
    assert [
        replace(d, attempts=2, not_before=5.5, reached=("x@y",), message=4)
    ] == await again.waiting_notifications()
    assert [("a", SENT, ""), ("b", FAILED, "no"), ("c", SENT, "")] == [
        (each.notice.id, each.state, each.error) for each in await again.finished_notifications()
    ]
    assert {clock.now()} == {each.settled for each in await again.finished_notifications()}
    assert {"mail": ChannelCounts(waiting=1, sent=2, failed=1)} == await again.channel_counts()


async def test_changes_of_what_waits_are_noticed(open_registry: RegistryOpener) -> None:
    """
    Each channel has a number that grows when a notification is added, sent or retried. Other changes of the
    registry do not change it.
    """
    table = (registry := await open_registry()).notices
    seen = [await table.notification_change_count("mail")]
    await table.add([NOTICE], ["mail"])
    seen.append(await table.notification_change_count("mail"))
    [waiting] = await table.waiting_notifications()
    await table.retry_notifications([waiting.id], actor=ADA)
    seen.append(await table.notification_change_count("mail"))
    await table.store_changed_notifications([replace(waiting, state=SENT)])
    seen.append(await table.notification_change_count("mail"))
    assert sorted(set(seen)) == seen
    await table.add([NOTICE], ["chat"])
    await registry.insights.create(InsightDraft(title="x"), actor=ADA)
    assert seen[-1] == await table.notification_change_count("mail")


async def test_by_hand(registry: Registry) -> None:
    """
    By hand, failed and discarded notifications can be sent again after the others, but sent ones never. Each change
    has an audit row.
    """
    table = registry.notices
    await table.add([replace(NOTICE, id=id) for id in "abcd"], ["mail"])
    a, b, c, d = await table.waiting_notifications()
    await table.store_changed_notifications(
        [replace(a, state=SENT), replace(b, state=FAILED, error="no", attempts=9, reached=("x@y",))]
    )
    await table.store_changed_notifications([replace(c, not_before=99.0, attempts=1)])
    assert 1 == await table.discard_notifications([d.id, a.id], actor=ADA)
    assert 3 == await table.retry_notifications([a.id, b.id, c.id, d.id], actor=ADA)
    assert [("c", 1, 0.0, ()), ("b", 0, 0.0, ("x@y",)), ("d", 0, 0.0, ())] == [
        (each.notice.id, each.attempts, each.not_before, each.reached)
        for each in await table.waiting_notifications()
    ]
    with pytest.raises(NotThere):
        await table.retry_notifications([c.id, "mail:nobody"], actor=ADA)
    assert c.id == (await table.add_test_notice(replace(NOTICE, id="c"), "mail", actor=ADA)).id
    rows = await registry.audit_page(ListQuery(sort=SortField("id"), order="asc", identity="id", limit=50))
    assert [
        ("notification.discard", "mail", {"count": 1, "notices": ["d"]}),
        ("notification.retry", "mail", {"count": 3, "notices": ["b", "c", "d"]}),
        ("notification.test", "mail", {"notice": "c"}),
    ] == [(row.action, row.target, row.after) for row in rows.rows]


async def test_what_is_over_is_forgotten_in_time(
    open_registry: RegistryOpener, clock: MovedClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """
    Finished notifications are deleted after KEPT_S, and the oldest beyond MAX_OVER. Waiting notifications stay.
    """
    table = (await open_registry()).notices
    await table.add([replace(NOTICE, id=id) for id in "abcde"], ["mail"])
    for each in (await table.waiting_notifications())[:4]:
        await table.store_changed_notifications([replace(each, state=SENT)])
        clock.move(1)
    monkeypatch.setattr(notices, "MAX_OVER", 3)
    await table.delete_old()
    assert ["b", "c", "d"] == [each.notice.id for each in await table.finished_notifications()]
    clock.move(KEPT_S - 3)
    await table.delete_old()
    assert ["c", "d"] == [each.notice.id for each in await table.finished_notifications()]
    assert ["e"] == [each.notice.id for each in await table.waiting_notifications()]
    assert 4 == (await table.channel_counts())["mail"].sent


async def test_channels_get_opened_insights_once(registry: Registry, clock: MovedClock) -> None:
    """
    Each channel gets the insights that it chose once, and again if an addressed insight returns. Insights by
    people are never sent.
    """
    registry.notices.subscriptions = (
        InsightSubscription(channel="all", severity="info"),
        InsightSubscription(channel="urgent", severity="critical"),
        InsightSubscription(channel="keys", severity="info", categories=("keys",)),
    )
    parked = Finding(key="x:1", draft=InsightDraft(title="parked", category="delivery"), newest=clock.now())
    idle = Finding(key="x:2", draft=InsightDraft(title="idle", category="keys", cost_impact="7"))
    await registry.insights.create(InsightDraft(title="by hand", category="delivery"), actor=ADA)
    for _ in range(2):
        await registry.insights.merge_findings([parked, idle], looked_for=["x"])
    told = [
        (each.channel, each.notice.title, each.notice.severity)
        for each in await registry.notices.waiting_notifications()
    ]
    assert [
        ("all", "parked", "critical"),
        ("all", "idle", "info"),
        ("keys", "idle", "info"),
        ("urgent", "parked", "critical"),
    ] == told
    [found] = [each for each in (await registry.notices.waiting_notifications()) if each.channel == "urgent"]
    clock.move(10)
    id = found.notice.thread.removeprefix("insight ")
    await registry.insights.change(id, status="addressed", actor=ADA)
    clock.move(10)
    await registry.insights.merge_findings([replace(parked, newest=clock.now())], looked_for=["x"])
    urgent = [
        each.notice for each in await registry.notices.waiting_notifications() if each.channel == "urgent"
    ]
    assert ["parked", "parked"] == [notice.title for notice in urgent]
    assert 2 == len({notice.id for notice in urgent}) and 1 == len({notice.thread for notice in urgent})


@pytest.mark.one_engine
@pytest.mark.every_engine
async def test_an_insight_that_becomes_more_severe_is_sent_again(
    registry: Registry, clock: MovedClock
) -> None:
    """
    An insight that becomes more severe is sent again, once per severity while it is open, with the list of that
    time, and not while people put it off. Without a stated severity, nothing is sent again.
    """
    registry.notices.subscriptions = (InsightSubscription(channel="mail", severity="warning"),)
    found = Finding(key="x:1", draft=InsightDraft(title="lost", category="keys"))

    async def look(severity: str, csv: str = "") -> None:
        clock.move(60)
        await registry.insights.merge_findings([replace(found, severity=severity, csv=csv)], looked_for=["x"])

    for severity in ("info", "warning", "info", "warning", "critical", "warning", "critical", ""):
        await look(severity, csv=f"id\n{severity}\n")
    sent = [each.notice for each in await registry.notices.waiting_notifications()]
    assert [("warning", "id\nwarning\n"), ("critical", "id\ncritical\n")] == [
        (notice.severity, notice.csv) for notice in sent
    ]
    assert 1 == len({notice.thread for notice in sent})
    [insight] = await registry.insights.detector_insights()
    assert "info" == insight_severity(insight)
    await registry.insights.change(insight.id, status="on_hold", actor=ADA)
    await look("critical")
    assert 2 == len(await registry.notices.waiting_notifications())


async def test_channels_of_a_view_get_its_anomalies_once(registry: Registry, clock: MovedClock) -> None:
    """
    A view's channels get its anomalies once, in addition to insights that they chose. A channel that left the
    configuration gets none.
    """
    registry.notices.channels = ("chat", "mail", "pager")
    registry.notices.subscriptions = (InsightSubscription(channel="mail", severity="info"),)
    spike = Finding(
        key="x:1",
        draft=InsightDraft(title="The view spent"),
        newest=clock.now(),
        channels=("chat", "mail", "gone"),
    )
    for _ in range(2):
        await registry.insights.merge_findings([spike], looked_for=["x"])
    waiting = await registry.notices.waiting_notifications()
    assert [("chat", "view.anomaly"), ("mail", "view.anomaly")] == [
        (each.channel, each.notice.kind) for each in waiting
    ]
    await registry.insights.change(
        waiting[0].notice.thread.removeprefix("insight "), status="addressed", actor=ADA
    )
    clock.move(60)
    await registry.insights.merge_findings([replace(spike, newest=clock.now())], looked_for=["x"])
    assert ["chat", "chat", "mail", "mail"] == [
        each.channel for each in await registry.notices.waiting_notifications()
    ]


async def test_a_name_that_no_channel_has_is_refused(open_registry: RegistryOpener) -> None:
    """The error for an unknown channel lists the existing channels."""
    notices_of = (await open_registry()).notices
    with pytest.raises(Invalid, match=r"notify: 'chat' is not a channel of .* none"):
        notices_of.check_channels("notify", ["chat"])
    notices_of.channels = ("chat", "mail")
    notices_of.check_channels("notify", ["mail", "chat"])
    with pytest.raises(Invalid, match="Use one of: chat, mail"):
        notices_of.check_channels("notify", ["mail", "pager"])


@pytest.mark.parametrize(
    ("category", "impact", "severity"),
    [
        ("delivery", "0", "critical"),
        ("reliability", "0", "warning"),
        ("keys", "99.99", "info"),
        ("keys", "100.00", "warning"),
        ("caching", "-100", "warning"),
    ],
)
async def test_how_severe_an_insight_is(
    registry: Registry, category: str, impact: str, severity: str
) -> None:
    made = await registry.insights.create(
        InsightDraft(title="x", category=category, cost_impact=impact), actor=ADA
    )
    assert severity == insight_severity(made)
