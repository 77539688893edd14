"""When a channel may send: quiet hours, the digest, grouping and order."""

from __future__ import annotations

from datetime import datetime
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from exporters.notifications.schedule import MAX_GROUP, build_schedule, next_notifications_and_send_time
from spool.registry.notices import CRITICAL, INFO, TEST, WARNING, Notification
from tests.exporters.notifications.examples import NOW, settings, waiting

BERLIN = ZoneInfo("Europe/Berlin")
NIGHT = {"quiet_hours": "22:00-07:00", "time_zone": "Europe/Berlin"}


def at(text: str, zone: ZoneInfo = BERLIN) -> float:
    return datetime.fromisoformat(text).replace(tzinfo=zone).timestamp()


@pytest.mark.parametrize(
    ("now", "until"),
    [
        ("2026-09-21 21:59:59", None),
        ("2026-09-21 22:00:00", "2026-09-22 07:00:00"),
        ("2026-09-22 06:59:59", "2026-09-22 07:00:00"),
        ("2026-09-22 07:00:00", None),
        # on this night the clock is set back, so the day has 25 hours
        ("2026-10-24 23:00:00", "2026-10-25 07:00:00"),
        # on this night the clock is set forward, so the day has 23 hours
        ("2027-03-27 23:00:00", "2027-03-28 07:00:00"),
    ],
)
def test_quiet_hours_are_wall_clock_times(now: str, until: str | None) -> None:
    """
    A warning waits for the end of the night, even when clocks change. A critical notice and a test do not wait.
    """
    schedule = build_schedule(settings(**NIGHT), groups=True)
    assert (at(until) if until else 0.0) == schedule.held_until(waiting(1), at(now))
    for free in (waiting(1, severity=CRITICAL), waiting(1, kind=TEST)):
        assert 0.0 == schedule.held_until(free, at(now))


def test_quiet_hours_within_a_day() -> None:
    schedule = build_schedule(settings(quiet_hours="12:00-14:00"), groups=True)
    utc = ZoneInfo("UTC")
    assert at("2026-09-21 14:00", utc) == schedule.held_until(waiting(1), at("2026-09-21 13:00", utc))
    assert 0.0 == schedule.held_until(waiting(1), at("2026-09-21 15:00", utc))


def test_the_digest_holds_what_is_not_urgent() -> None:
    """Notices of severity info leave at the first digest after their creation."""
    schedule = build_schedule(settings(digest="08:00", time_zone="Europe/Berlin"), groups=True)
    made = at("2026-09-21 08:00:00")
    info, warning = (waiting(1, severity=severity, at=made) for severity in (INFO, WARNING))
    assert at("2026-09-22 08:00") == schedule.held_until(info, at("2026-09-21 20:00"))
    assert 0.0 == schedule.held_until(info, at("2026-09-22 08:00"))
    assert 0.0 == schedule.held_until(warning, made)


def test_a_digest_within_quiet_hours_leaves_at_their_end() -> None:
    schedule = build_schedule(settings(digest="06:00", **NIGHT), groups=True)
    info = waiting(1, severity=INFO, at=at("2026-09-21 20:00"))
    assert at("2026-09-22 07:00") == schedule.held_until(info, at("2026-09-22 06:00"))


def test_notices_leave_together_after_the_wait() -> None:
    """A group has at most MAX_GROUP notices and never a test. Without groups, each notice leaves at once."""
    queue = [waiting(number, at=NOW + number) for number in range(MAX_GROUP + 5)]
    queue.insert(1, waiting(100, kind=TEST, at=NOW))
    together = build_schedule(settings(group_wait=30.0), groups=True)
    message, due = next_notifications_and_send_time(queue, together, now=NOW + 5)
    assert [queue[0], *queue[2 : MAX_GROUP + 1]] == message
    assert due == NOW + 30
    assert ([queue[1]], 0.0) == next_notifications_and_send_time(queue[1:], together, now=NOW)
    alone = build_schedule(settings(group_wait=30.0), groups=False)
    assert ([queue[0]], 0.0) == next_notifications_and_send_time(queue, alone, now=NOW)


def test_tried_message_keeps_its_place_and_content() -> None:
    """A message that was tried keeps its place and content while it waits for its retry."""
    begun = [waiting(2, message=2, not_before=NOW + 50), waiting(3, message=2, not_before=NOW + 50)]
    queue = [waiting(1), *begun, waiting(4)]
    assert (begun, NOW + 50) == next_notifications_and_send_time(
        queue, build_schedule(settings(), groups=True), now=NOW
    )


def test_what_some_recipients_have_is_not_joined_by_what_others_have() -> None:
    """
    A message must leave out the recipients that already have it, so only notices with the same
    recipients are joined.
    """
    first, second = (
        waiting(1),
        Notification(notice=waiting(2).notice, channel="one", number=2, reached=("a@b",)),
    )
    assert [first] == next_notifications_and_send_time(
        [first, second], build_schedule(settings(), groups=True), now=NOW
    )[0]


def test_a_clock_that_was_set_back_delays_nothing() -> None:
    later = waiting(1, at=NOW + 9_999)
    assert ([later], 0.0) == next_notifications_and_send_time(
        [later], build_schedule(settings(group_wait=30.0), groups=True), now=NOW
    )


NOTIFICATIONS = st.lists(
    st.builds(
        waiting,
        st.integers(1, 50),
        severity=st.sampled_from([INFO, WARNING, CRITICAL]),
        kind=st.sampled_from(["insight.opened", TEST]),
        at=st.floats(NOW - 200_000, NOW + 1000),
    ),
    max_size=30,
    unique_by=lambda each: each.number,
)


QUIET = st.sampled_from(["", "22:00-07:00", "00:00-23:59"])


@given(NOTIFICATIONS, st.booleans(), QUIET, st.sampled_from(["", "08:00"]))
def test_everything_leaves_once(queue: list[Notification], groups: bool, quiet: str, digest: str) -> None:
    """
    All notices leave within two days, each in exactly one message. At each time that the schedule names,
    there is a message to send.
    """
    schedule = build_schedule(settings(quiet_hours=quiet, digest=digest, group_wait=30.0), groups=groups)
    queue = sorted(queue, key=lambda each: each.number)
    now, left = NOW, list(queue)
    while left:
        message, due = next_notifications_and_send_time(left, schedule, now=now)
        assert due <= NOW + 2 * 86_400
        if due > now:
            now = due
            continue
        assert message
        left = [each for each in left if each not in message]
    assert ((), float("inf")) == next_notifications_and_send_time(left, schedule, now=now)
