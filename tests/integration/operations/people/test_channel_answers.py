"""
Only people who may change channels see a receiver's answer to a notification, because a channel may lead to hosts
that other people cannot reach.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from gateway.money.insights.detector_facts import InsightFacts
from gateway.money.insights.detectors.service import channel_down
from spool.registry.notices import FAILED, PARKED, ChannelCounts, ChannelState
from tests.exporters.notifications.examples import NOW, notice
from tests.integration.operations.people.test_sign_in import signed_in
from tests.integration.operations.server import OperatorServer, operator_server

SAID = "root:x:0:0 of an inner service"


answers = pytest.mark.parametrize(
    ("error", "status"),
    [
        (f"403 {SAID}", "403"),
        (f"550 {SAID}", "550"),
        (f"ada@example.com: 450 {SAID}; bob@example.com: 550 {SAID}", "ada@example.com: 450"),
        (f"no answer: {SAID}", "no answer"),
        (
            "the integration key must have 32 letters and digits",
            "the integration key must have 32 letters and digits",
        ),
    ],
)


@pytest.mark.proves("An account creates a channel into the network behind Tollhouse, or reads its answers")
@answers
async def test_members_see_the_status_of_an_answer_and_no_word(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: str, status: str
) -> None:
    """People who may change channels, and the operator socket, also see the text of the answer."""

    async def channels() -> list[ChannelState]:
        return [parked(error)]

    async with operator_server(tmp_path) as server:
        monkeypatch.setattr(server.services.installation, "channels", channels)
        notices = server.registry.notices
        await notices.add([notice("n1")], ["one"])
        await notices.store_changed_notifications(
            [replace(each, state=FAILED, error=error) for each in await notices.waiting_notifications()]
        )
        for role, expected in (("viewer", status), ("operator", status), ("admin", error)):
            assert {expected} == await seen(server, await signed_in(server, role, f"{role}@example.com"))
        found = await server.ask("GET", "/notifications/one:n1")
    assert error == found.payload["notification"]["error"]


@answers
def test_an_insight_has_the_status_of_an_answer_and_no_word(error: str, status: str) -> None:
    """Everybody who may view costs reads insights, and other channels send them."""
    [finding] = channel_down(InsightFacts(now=NOW, channels=[parked(error)]))
    assert status in finding.draft.description
    assert SAID not in finding.draft.description


def parked(reason: str) -> ChannelState:
    return ChannelState(
        name="one",
        type="webhook",
        state=PARKED,
        reason=reason,
        insights="info",
        counts=ChannelCounts(),
        oldest=None,
    )


async def seen(server: OperatorServer, headers: dict[str, str]) -> set[Any]:
    paths = ("/notifications", "/notifications/one:n1", "/notification-channels")
    listed, shown, stated = [(await server.over_http("GET", path, headers=headers)).payload for path in paths]
    return {
        listed["notifications"][0]["error"],
        shown["notification"]["error"],
        stated["notification_channels"][0]["reason"],
    }
