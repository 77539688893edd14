"""Notifications over real sockets with a real registry, and a clock that tests move."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path

import orjson
import pytest

from exporters.notifications.notifier import GIVE_UP_S, PARKED_S, Notifier
from exporters.settings import NotifySettings
from spool.registry.notices import FAILED, FAILING, PARKED, RUNNING, SENT, ChannelState
from spool.registry.operators import Actor
from spool.registry.registry import Registry
from spool.sqlite.registry import SqliteRegistry
from tests.exporters.notifications.examples import NOW, SECRET, notice, settings
from tests.exporters.upstream import FakeUpstream, Reply
from tests.integration.exporters.notifications.receivers import verified
from tests.moved_clock import MovedClock
from tests.waiting import limited, until

ADA = Actor("ada@example.com", "local")


class Telling:
    """A registry and the channels that send its notifications. `restart` opens both again."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self.clock = MovedClock(NOW)
        self._channels: tuple[NotifySettings, ...] = ()

    async def start(self, *channels: NotifySettings) -> None:
        self._channels = channels or self._channels
        store = await SqliteRegistry.open(self._directory)
        self.registry = await Registry.open(store, secret=b"i" * 32, clock=self.clock)
        self.notices = self.registry.notices
        self.notifier = Notifier(self.notices, self._channels, self.clock)

    async def stop(self) -> None:
        await self.notifier.close()
        await self.registry.close()

    async def restart(self) -> None:
        await self.stop()
        await self.start()

    async def tell(self, *ids: str, channel: str = "one") -> None:
        await self.notices.add([notice(id, at=self.clock.now()) for id in ids], [channel])

    async def send_for(self, seconds: float, *, step: float = 60.0) -> None:
        """Move the clock in steps and send what becomes due."""
        for _ in range(int(seconds // step)):
            await self.notifier.send_due()
            self.clock.move(step)
        await self.notifier.send_due()

    async def state(self) -> ChannelState:
        [state] = await self.notifier.channel_states()
        return state


@pytest.fixture
async def telling(tmp_path: Path) -> AsyncIterator[Telling]:
    one = Telling(tmp_path)
    yield one
    await one.stop()


@pytest.fixture
async def receiver() -> AsyncIterator[FakeUpstream]:
    async with FakeUpstream() as receiver:
        yield receiver


@pytest.fixture
def hook(tmp_path: Path, receiver: FakeUpstream) -> NotifySettings:
    (tmp_path / "secret").write_text(SECRET)
    return settings(url=f"{receiver.url}/hook", secret_file=tmp_path / "secret")


async def test_a_webhook_is_signed_and_says_everything(
    telling: Telling, receiver: FakeUpstream, hook: NotifySettings
) -> None:
    """The receiver verifies the signature. Each notification is a separate request, in order."""
    await telling.start(hook)
    said = notice("a", text="more", fields={"spent": "80.00"}, link="https://example.com/", thread="t")
    await telling.notices.add([said, notice("b")], ["one"])
    await telling.notifier.send_due()
    first, second = map(verified, receiver.accepted)
    assert {
        "type": "budget.threshold_crossed",
        "timestamp": "2026-09-21T14:13:20.000Z",
        "data": {
            "id": "a",
            "title": "title of a",
            "text": "more",
            "fields": {"spent": "80.00"},
            "severity": "warning",
            "link": "https://example.com/",
            "thread": "t",
        },
    } == first
    assert "b" == second["data"]["id"]
    assert ["a", "b"] == [request.headers["webhook-id"] for request in receiver.accepted]
    assert [SENT, SENT] == [each.state for each in await telling.notices.finished_notifications()]


async def test_a_receiver_that_is_down_is_known_after_a_restart(
    telling: Telling, receiver: FakeUpstream, hook: NotifySettings
) -> None:
    """
    A channel is down after 15 minutes of failures, at once if a critical notice waits, and no longer once a message
    arrived. A restart forgets none of it.
    """
    receiver.answers.extend([Reply(500)] * 100)
    await telling.start(hook)
    await telling.tell("a", "b")
    await telling.send_for(840)
    assert not (await telling.state()).needs_operator(telling.clock.now())
    await telling.restart()
    state = await telling.state()
    assert (FAILING, NOW, 0) == (state.state, state.failing_since, state.critical)
    assert "500" in state.reason
    await telling.notices.add([notice("c", severity="critical", at=telling.clock.now())], ["one"])
    assert (await telling.state()).needs_operator(telling.clock.now())
    telling.clock.move(60)
    assert (await telling.state()).needs_operator(telling.clock.now())
    receiver.answers.clear()
    await telling.send_for(3600)
    state = await telling.state()
    assert (RUNNING, None, 0) == (state.state, state.failing_since, state.critical)
    assert not state.needs_operator(telling.clock.now())


async def test_a_receiver_that_is_down_for_an_hour_gets_every_notice_once(
    telling: Telling, receiver: FakeUpstream, hook: NotifySettings
) -> None:
    """Notifications arrive in order under their own ids, even with restarts in between."""
    await telling.start(hook)
    receiver.judge = lambda request: Reply(503)
    ids = [str(number) for number in range(6)]
    for id in ids:
        await telling.tell(id)
        await telling.send_for(600)
        await telling.restart()
    assert [] == receiver.accepted
    assert (
        6 <= len(receiver.requests) < 60
    )  # there are few attempts, because the waits between them get longer
    receiver.judge = lambda request: None
    await telling.send_for(3600)
    assert ids == [request.headers["webhook-id"] for request in receiver.accepted]
    assert {SENT} == {each.state for each in await telling.notices.finished_notifications()}
    state = await telling.state()
    assert state.state == RUNNING
    assert state.reason == ""
    assert state.counts.sent == 6


async def test_no_answer_and_a_kill_repeat_the_same_id(
    telling: Telling, receiver: FakeUpstream, hook: NotifySettings
) -> None:
    """After a lost answer, and after a kill while sending, the repeat has the same id."""
    await telling.start(hook)
    receiver.answers.append(Reply(drop=True))
    await telling.tell("a")
    await telling.notifier.send_due()
    receiver.answers.append(Reply(delay_s=5))
    telling.clock.move(60)
    ended = asyncio.create_task(telling.notifier.send_due())
    await receiver.until(lambda: len(receiver.requests) == 2)
    ended.cancel()
    await asyncio.gather(ended, return_exceptions=True)
    await telling.restart()
    await telling.notifier.send_due()
    assert ["a"] * 3 == [request.headers["webhook-id"] for request in receiver.requests]
    assert [SENT] == [each.state for each in await telling.notices.finished_notifications()]


async def test_what_fails_for_a_day_is_given_up(
    telling: Telling, receiver: FakeUpstream, hook: NotifySettings
) -> None:
    """
    Notifications that waited a day fail. Later ones keep waiting. An operator can send a failed one again.
    """
    await telling.start(hook)
    receiver.judge = lambda request: Reply(500, b"broken", "text/plain")
    await telling.tell("a", "b")
    await telling.notifier.send_due()
    await telling.send_for(GIVE_UP_S / 2, step=1800)
    await telling.tell("c")
    await telling.send_for(GIVE_UP_S / 2 + 3600, step=1800)
    assert [("a", FAILED), ("b", FAILED)] == [
        (each.notice.id, each.state) for each in await telling.notices.finished_notifications()
    ]
    assert "500 broken" == (await telling.notices.find("one:a")).error
    state = await telling.state()
    assert state.state == FAILING
    assert state.counts.waiting == 1
    assert state.counts.failed == 2
    receiver.judge = lambda request: None
    assert 2 == await telling.notices.retry_notifications(["one:a", "one:b"], actor=ADA)
    await telling.send_for(3600)
    assert ["c", "a", "b"] == [request.headers["webhook-id"] for request in receiver.accepted]


@pytest.mark.parametrize("status", [401, 403, 404, 410, 302])
async def test_a_wrong_address_or_secret_parks_the_channel(
    telling: Telling, receiver: FakeUpstream, hook: NotifySettings, status: int
) -> None:
    """
    If the address or the secret is wrong, no notification is given up, however long it takes. The channel
    tries every minute, and at once when the secret changes.
    """
    await telling.start(hook)
    receiver.judge = lambda request: Reply(status, b"no", "text/plain")
    await telling.tell("a", "b")
    await telling.send_for(2 * GIVE_UP_S, step=3600)
    assert 49 == len(receiver.requests)
    state = await telling.state()
    assert state.state == PARKED
    assert state.reason.startswith(f"{status} no")
    assert state.counts.waiting == 2
    receiver.judge = lambda request: None
    await telling.notifier.send_due()
    assert 49 == len(receiver.requests)
    assert hook.secret_file is not None
    hook.secret_file.write_text(SECRET + "\n")
    await telling.notifier.send_due()
    assert ["a", "b"] == [request.headers["webhook-id"] for request in receiver.accepted]
    assert PARKED_S < 3600


async def test_a_secret_that_cannot_be_read_parks_and_shows_nothing(
    telling: Telling, receiver: FakeUpstream, hook: NotifySettings
) -> None:
    assert hook.secret_file is not None
    hook.secret_file.write_text("hunter2hunter2")
    await telling.start(hook)
    await telling.tell("a")
    await telling.notifier.send_due()
    state = await telling.state()
    assert state.state == PARKED
    assert receiver.requests == []
    assert "whsec_" in state.reason and "hunter2" not in state.reason


async def test_a_notice_that_is_refused_does_not_hold_up_the_others(
    telling: Telling, receiver: FakeUpstream, hook: NotifySettings
) -> None:
    """The receiver rejects the notification, so it fails at once with the receiver's answer."""
    await telling.start(hook)
    receiver.judge = lambda request: (
        Reply(422, b"no", "text/plain") if request.headers["webhook-id"] == "a" else None
    )
    await telling.tell("a", "b")
    await telling.notifier.send_due()
    assert [("a", FAILED, "422 no"), ("b", SENT, "")] == [
        (each.notice.id, each.state, each.error) for each in await telling.notices.finished_notifications()
    ]


async def test_a_chat_gets_one_message_for_notices_that_come_together(
    telling: Telling, receiver: FakeUpstream, tmp_path: Path
) -> None:
    """
    A chat gets one message for notifications that wait together. The address comes from a file and is never
    shown. After too many requests, the receiver's retry time is used.
    """
    (tmp_path / "address").write_text(f"{receiver.url}/services/T0/B0/s3cret\n")
    await telling.start(settings("slack", url_file=tmp_path / "address", group_wait=30.0))
    receiver.answers += [Reply(429, b"slow down", headers={"Retry-After": "120"})]
    await telling.tell("a", "b")
    await telling.notifier.send_due()
    assert [] == receiver.requests
    await telling.send_for(30, step=10)
    assert 1 == len(receiver.requests) and "s3cret" not in (await telling.state()).reason
    await telling.tell("c")
    await telling.send_for(110, step=10)
    assert 1 == len(receiver.requests)
    await telling.send_for(60, step=10)
    first, repeat, other = (orjson.loads(request.body)["text"] for request in receiver.requests)
    assert first == repeat and "title of a" in first and "title of b" in first and "title of c" not in first
    assert "title of c" in other and "/services/T0/B0/s3cret" == receiver.requests[0].path


async def test_a_group_that_is_refused_is_sent_one_by_one(telling: Telling, receiver: FakeUpstream) -> None:
    """Messages of a refused group are sent singly, so that one bad notification does not fail the others."""
    await telling.start(settings("slack", url=receiver.url))
    receiver.judge = lambda request: Reply(400, b"invalid_payload") if b"title of b" in request.body else None
    await telling.tell("a", "b", "c")
    await telling.notifier.send_due()
    assert [("a", SENT), ("b", FAILED), ("c", SENT)] == [
        (each.notice.id, each.state) for each in await telling.notices.finished_notifications()
    ]


async def test_teams_gets_a_card_and_a_removed_workflow_parks(
    telling: Telling, receiver: FakeUpstream, tmp_path: Path
) -> None:
    """
    Teams gets one card for notifications that wait together. The address is a secret and is in no reason. A
    removed workflow pauses the channel.
    """
    (tmp_path / "address").write_text(f"{receiver.url}/workflows/s3cret")
    await telling.start(settings("teams", url_file=tmp_path / "address"))
    await telling.tell("a", "b")
    receiver.answers.append(Reply(404, body=b"no workflow at /workflows/s3cret"))
    await telling.notifier.send_due()
    state = await telling.state()
    assert PARKED == state.state and receiver.url not in state.reason
    receiver.judge = lambda request: Reply(202)
    await telling.send_for(PARKED_S)
    [request] = receiver.accepted
    body = orjson.loads(request.raw)
    assert request.path == "/workflows/s3cret"
    assert body["type"] == "message"
    [attachment] = body["attachments"]
    assert "application/vnd.microsoft.card.adaptive" == attachment["contentType"]
    titles = [block["text"] for block in attachment["content"]["body"] if block.get("weight")]
    assert ["title of a", "title of b"] == titles
    assert [SENT, SENT] == [each.state for each in await telling.notices.finished_notifications()]


async def test_pagerduty_gets_an_event_for_each_notice(
    telling: Telling, receiver: FakeUpstream, tmp_path: Path
) -> None:
    """
    PagerDuty gets an event for each notification. After too many requests, the channel tries again. A key
    with another format parks the channel and is never sent.
    """
    (tmp_path / "key").write_text("not-a-key")
    url = f"{receiver.url}/v2/enqueue"
    await telling.start(settings("pagerduty", url=url, secret_file=tmp_path / "key"))
    await telling.notices.add([notice("a", thread="t", link="https://a/b", text="why")], ["one"])
    await telling.notifier.send_due()
    assert (await telling.state()).state == PARKED
    assert (await telling.state()).reason == "the integration key must have 32 letters and digits"
    assert [] == receiver.requests
    (tmp_path / "key").write_text("0123456789abcdef0123456789abcdef")
    receiver.answers.append(Reply(429, headers={"Retry-After": "5"}))
    receiver.judge = lambda request: Reply(202)
    await telling.send_for(120)
    first, second = map(orjson.loads, (request.raw for request in receiver.requests))
    assert first == second
    assert first["routing_key"] == "0123456789abcdef0123456789abcdef"
    assert first["event_action"] == "trigger"
    assert {
        "summary": "title of a",
        "source": "tollhouse",
        "severity": "warning",
        "timestamp": "2026-09-21T14:13:20.000Z",
        "class": "budget.threshold_crossed",
        "custom_details": {"text": "why"},
    } == first["payload"]
    assert [{"href": "https://a/b", "text": "Open in Tollhouse"}] == first["links"]


async def test_an_alertmanager_gets_alerts_under_its_token(
    telling: Telling, receiver: FakeUpstream, tmp_path: Path
) -> None:
    (tmp_path / "token").write_text("t0ken")
    await telling.start(settings("alertmanager", url=f"{receiver.url}/am/", secret_file=tmp_path / "token"))
    await telling.tell("a")
    await telling.notifier.send_due()
    [request] = receiver.accepted
    [alert] = orjson.loads(request.body)
    assert request.path == "/am/api/v2/alerts"
    assert request.headers["authorization"] == "Bearer t0ken"
    assert "title of a" == alert["annotations"]["summary"]


async def test_a_slow_channel_delays_no_other(
    telling: Telling, receiver: FakeUpstream, hook: NotifySettings
) -> None:
    """While one receiver does not respond, another gets its notification."""
    async with FakeUpstream() as fast:
        await telling.start(hook, settings("slack", url=fast.url, name="fast"))
        receiver.judge = lambda request: Reply(delay_s=600)
        await telling.tell("a")
        await telling.tell("b", channel="fast")

        async def one_is_sent() -> None:
            await until(telling.notices.finished_notifications)

        await run_until(telling, one_is_sent)
        assert ["one:a"] == [each.id for each in await telling.notices.waiting_notifications()]


async def test_notifications_for_a_removed_channel_wait_until_it_returns(
    telling: Telling, receiver: FakeUpstream, hook: NotifySettings
) -> None:
    """
    Notifications for a removed channel are stored and shown. They are sent when the channel is configured
    again, even with another address.
    """
    await telling.start(hook)
    receiver.judge = lambda request: Reply(404) if request.path == "/hook" else None
    await telling.tell("a")
    await telling.notifier.send_due()
    await telling.notifier.close()
    telling.notifier.set_configured_channels(())
    [state] = await telling.notifier.channel_states()
    assert state.name == "one"
    assert state.state == "removed"
    assert state.counts.waiting == 1
    assert () == telling.notices.channels
    moved = settings(url=f"{receiver.url}/new", secret_file=hook.secret_file)

    async def move() -> None:
        telling.notifier.set_configured_channels([moved])
        await receiver.until(lambda: len(receiver.accepted) == 1)

    await run_until(telling, move)
    assert "/new" == receiver.accepted[0].path


async def run_until(telling: Telling, condition: Callable[[], Awaitable[None]]) -> None:
    """Run the tasks of all channels until the condition holds."""
    task = asyncio.create_task(telling.notifier.run())
    try:
        async with limited():
            await condition()
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
