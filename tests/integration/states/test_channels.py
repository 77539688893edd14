"""A channel that sends nothing is named with the same words and numbers in every face."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from pathlib import Path

import pytest

from exporters.notifications.notifier import Notifier
from exporters.settings import NotifySettings
from gateway.configuration.sections import Config
from spool.registry.notices import (
    CHANNEL_STATES,
    CRITICAL,
    FAILING,
    FAILING_TOO_LONG_S,
    PARKED,
    REMOVED,
    RUNNING,
    WARNING,
    ChannelCounts,
    ChannelState,
)
from spool.settings import SpoolSettings
from tests.exporters.notifications.examples import NOW, SECRET, notice
from tests.integration.conftest import Serve
from tests.integration.states.conftest import Faces, faces_of
from tests.moved_clock import MovedClock
from tests.rounds import part

ERROR = "the receiver answered 500"


def channel(state: str, **fields: float | int | None) -> ChannelState:
    made = ChannelState(
        name="desk",
        type="webhook",
        state=state,
        reason="",
        insights="info",
        counts=ChannelCounts(),
        oldest=None,
    )
    return replace(made, **fields)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("down", "known"),
    [
        *[(state == PARKED, channel(state)) for state in CHANNEL_STATES],
        # the notice is sent in a moment, so the channel has no problem
        (False, channel(RUNNING, critical=2)),
        (True, channel(FAILING, critical=1, failing_since=NOW)),
        (True, channel(REMOVED, critical=1)),
        (False, channel(FAILING, failing_since=NOW - FAILING_TOO_LONG_S + 1)),
        (True, channel(FAILING, failing_since=NOW - FAILING_TOO_LONG_S)),
    ],
)
def test_when_a_channel_is_down(down: bool, known: ChannelState) -> None:
    assert down == known.needs_operator(NOW)


@pytest.mark.parametrize(
    ("failing_s", "critical", "down"),
    part(
        [
            (None, 0, False),
            (60.0, 0, False),
            (60.0, 2, True),
            (FAILING_TOO_LONG_S, 0, True),
            (7200.0, 1, True),
        ],
        every=2,
    ),
)
async def test_every_face_names_a_failing_channel(
    serve: Serve,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    failing_s: float | None,
    critical: int,
    down: bool,
) -> None:
    # the stored attempts are those of an earlier process
    monkeypatch.setattr(Notifier, "run", _sends_nothing)
    faces = await _with_waiting(serve, tmp_path, failing_s, critical)
    title = "The channel desk sends no notifications"
    numbers = f"6 notices wait{f', {critical} of them critical' if critical else ''}"

    [shown] = (await faces.api("/notification-channels"))["notification_channels"]
    [printed] = (await faces.printed("notifications", "channels", "list"))["notification_channels"]
    assert shown == printed
    assert (FAILING if failing_s else RUNNING, 6, critical) == (
        shown["state"],
        shown["waiting"],
        shown["critical"],
    )
    assert (failing_s is None) == (shown["failing_since"] is None)

    causes = [cause for cause in await faces.attention() if cause["kind"] == "channel"]
    problems = [each for each in await faces.doctor() if title in each["words"]]
    metrics = await faces.metrics()
    insights = [insight for insight in await faces.insights() if insight.title == title]
    assert down == bool(metrics["tollhouse_notification_channel_down", (("channel", "desk"),)])
    assert metrics["tollhouse_notifications_waiting", (("channel", "desk"),)] == 6
    assert [down] * 3 == [bool(causes), bool(problems), bool(insights)]
    if down:
        [cause], [problem], [insight] = causes, problems, insights
        assert ("critical", title) == (cause["severity"], cause["title"])
        assert f"{title}: {ERROR}. {numbers}." in cause["text"]
        assert ("problem", cause["text"]) == (problem["status"], problem["words"])
        assert cause["text"] in insight.description
        [merged] = [each for each in await faces.attention() if each["title"] == title]
        assert insight.id == merged["insight"]


async def _sends_nothing(_: Notifier) -> None:
    await asyncio.Event().wait()


async def _with_waiting(serve: Serve, tmp_path: Path, failing_s: float | None, critical: int) -> Faces:
    """Start a server whose storage has six waiting notices that were tried, as after a restart."""
    (tmp_path / "secret").write_text(SECRET)
    desk = NotifySettings(
        name="desk", type="webhook", url="http://127.0.0.1:1/", secret_file=tmp_path / "secret"
    )
    config = Config(spool=SpoolSettings(hold=0, counter_wait=0), notify=(desk,))
    server = await serve(config=config, clock=MovedClock(NOW))
    notices = server.app.services.operators.installation.require_registry().notices
    severities = [CRITICAL if number < critical else WARNING for number in range(6)]
    made = [notice(f"n{number}", severity=severity) for number, severity in enumerate(severities)]
    await notices.add(made, ["desk"])
    since = None if failing_s is None else NOW - failing_s
    waiting = [each for each in await notices.waiting_notifications() if each.channel == "desk"]
    await notices.store_changed_notifications(
        [replace(each, failing_since=since, attempts=1, error=ERROR if since else "") for each in waiting]
    )
    return await faces_of(server, tmp_path / "data-0")
