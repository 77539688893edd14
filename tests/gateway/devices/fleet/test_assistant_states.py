"""The state of an assistant: the agent's claim counts only where no call that arrived says otherwise."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest

from gateway.devices.agent.assistants import ASSISTANTS
from gateway.devices.fleet.assistant_states import (
    AssistantEvidence,
    assistant_states_of_device,
    assistant_states_valid_until,
    state_cause_setting_and_use,
    updated_remembered_evidence_json,
)
from gateway.devices.fleet.heartbeat_facts import CAUSES
from gateway.devices.fleet.uses import RECENT_S
from gateway.normalise import assistants
from gateway.normalise.assistants import assistant_of_source
from spool.devices.device import Device
from spool.record import utc_iso

NOW = 1_800_000_000.0  # 08:00
DAY, HOUR, MINUTE = 86_400.0, 3600.0, 60.0

CASES: list[tuple[str, str, float | None, float | None, tuple[str, str, str]]] = [
    # claim and cause; seconds since the first unheard use, and since the newest call; state, cause and use
    ("reporting", "", None, None, ("unused", "", "none")),
    ("reporting", "", 71 * MINUTE, None, ("unreachable", "no_record", "losing")),
    ("reporting", "", 70 * MINUTE, None, ("unused", "", "waiting")),
    ("reporting", "", 71 * MINUTE, 72 * MINUTE, ("reporting", "", "heard")),
    ("reporting", "", 71 * MINUTE, 74 * MINUTE, ("unreachable", "no_record", "losing")),
    ("reporting", "", 30 * MINUTE, DAY, ("reporting", "", "waiting")),
    ("unused", "", None, RECENT_S, ("reporting", "", "heard")),
    ("unused", "", None, RECENT_S + 1, ("unused", "", "none")),
    ("unused", "", 30 * DAY, 31 * DAY, ("unreachable", "no_record", "losing")),
    ("unreachable", "backlog", None, DAY, ("unreachable", "backlog", "delayed")),
    ("unreachable", "tls", None, None, ("unreachable", "tls", "delayed")),
    ("unreachable", "", None, None, ("unreachable", "no_record", "losing")),
    ("unreachable", "agent_down", 1.0, DAY, ("unreachable", "agent_down", "losing")),
    ("unreachable", "agent_down", None, MINUTE, ("reporting", "", "heard")),
    ("not_installed", "", None, None, ("not_installed", "", "none")),
    ("not_installed", "", None, DAY, ("reporting", "", "heard")),
    ("telemetry_off", "settings", None, 2 * DAY, ("telemetry_off", "settings", "heard")),
    ("telemetry_off", "settings", None, HOUR / 2, ("reporting", "", "heard")),
    ("overridden", "other_endpoint", 1.0, None, ("overridden", "other_endpoint", "losing")),
    ("overridden", "other_endpoint", 71 * MINUTE, 80 * MINUTE, ("overridden", "other_endpoint", "losing")),
    ("overridden", "other_endpoint", 10 * MINUTE, HOUR / 2, ("reporting", "", "waiting")),
    ("not_configured", "no_policy", None, None, ("not_configured", "no_policy", "none")),
    ("unknown", "malformed", None, None, ("unknown", "malformed", "none")),
    ("", "", None, MINUTE, ("reporting", "", "heard")),
    ("", "", None, 15 * DAY, ("unknown", "no_agent", "unseen")),
]
SINCE = NOW - HOUR  # the settings of all cases hold for an hour


@pytest.mark.parametrize(("claim", "cause", "unheard", "newest", "expected"), CASES)
def test_the_table(
    claim: str, cause: str, unheard: float | None, newest: float | None, expected: tuple[str, str, str]
) -> None:
    evidence = AssistantEvidence(
        claim=claim,
        cause=cause,
        newest=None if newest is None else NOW - newest,
        since=SINCE,
        unheard=None if unheard is None else NOW - unheard,
    )
    state, found_cause, _, use = state_cause_setting_and_use(evidence, moment=NOW)
    assert expected == (state, found_cause, use)


@pytest.mark.parametrize(
    ("claim", "use", "newest", "expected"),
    [
        ("unused", "losing", MINUTE, ("unreachable", "no_record", "losing")),
        ("unused", "waiting", DAY, ("reporting", "", "waiting")),
        ("unused", "heard", DAY, ("reporting", "", "heard")),
        ("unused", "none", None, ("unused", "", "none")),
        ("overridden", "losing", MINUTE, ("overridden", "", "losing")),
        ("overridden", "heard", DAY, ("overridden", "", "heard")),
        ("overridden", "heard", MINUTE, ("reporting", "", "heard")),
        ("unused", "unseen", DAY, ("reporting", "", "heard")),
        ("unused", "unseen", DAY + 1, ("unseen", "", "unseen")),
        ("unused", "unseen", None, ("unseen", "", "unseen")),
        ("overridden", "unseen", DAY, ("overridden", "", "heard")),
    ],
)
def test_an_agent_that_states_the_use_knows_better(
    claim: str, use: str, newest: float | None, expected: tuple[str, str, str]
) -> None:
    """
    If an agent states the use of an assistant, the first use without a call by the hours of heartbeats decides
    nothing.
    """
    for unheard in (None, NOW - 3 * HOUR):
        evidence = AssistantEvidence(
            claim=claim,
            use=use,
            newest=None if newest is None else NOW - newest,
            since=SINCE,
            unheard=unheard,
        )
        state, cause, _, found = state_cause_setting_and_use(evidence, moment=NOW)
        assert expected == (state, cause, found)


@pytest.mark.parametrize(
    ("newest", "claim", "expected"),
    [
        (None, "unused", ("unseen", "direct", "unseen")),
        (DAY, "unused", ("unreachable", "no_record", "losing")),
        (MINUTE, "unused", ("reporting", "", "heard")),
        (None, "overridden", ("overridden", "", "losing")),
        (None, "not_installed", ("unreachable", "no_record", "losing")),
    ],
)
def test_an_assistant_that_sends_to_the_gateway(
    newest: float | None, claim: str, expected: tuple[str, str, str]
) -> None:
    """Until a call names the device, calls may arrive without one. Then the hours of use and calls decide."""
    evidence = AssistantEvidence(
        claim=claim,
        newest=None if newest is None else NOW - newest,
        since=SINCE,
        unheard=NOW - 71 * MINUTE,
        is_direct=True,
    )
    state, cause, _, use = state_cause_setting_and_use(evidence, moment=NOW)
    assert expected == (state, cause, use)
    unused = state_cause_setting_and_use(evidence._replace(unheard=None), moment=NOW)
    assert "unseen" not in unused


@pytest.mark.parametrize(
    ("claim", "use", "newest", "refused", "expected"),
    [
        ("reporting", "heard", DAY, True, ("unreachable", "disk_full", "losing")),
        ("reporting", "heard", DAY, False, ("unknown", "disk_full", "heard")),
        ("unused", "waiting", None, True, ("unreachable", "disk_full", "losing")),
        ("unused", "none", None, True, ("unknown", "disk_full", "none")),
        ("unused", "", 14 * DAY, True, ("unreachable", "disk_full", "losing")),
        ("unused", "", 14 * DAY + 1, True, ("unknown", "disk_full", "none")),
        ("unused", "losing", None, False, ("unknown", "disk_full", "losing")),
        ("unknown", "heard", None, True, ("unreachable", "disk_full", "losing")),
        ("overridden", "losing", None, True, ("overridden", "", "losing")),
        ("overridden", "heard", None, True, ("unreachable", "disk_full", "losing")),
        ("not_installed", "", None, True, ("not_installed", "", "none")),
        ("", "", DAY, True, ("unreachable", "disk_full", "losing")),
        ("", "", DAY, False, ("unknown", "disk_full", "heard")),
    ],
)
def test_an_agent_without_space(
    claim: str, use: str, newest: float | None, refused: bool, expected: tuple[str, str, str]
) -> None:
    """After a refusal, every assistant used in 14 days loses its calls. Before, and for the others, nobody knows."""
    evidence = AssistantEvidence(
        claim=claim,
        use=use,
        newest=None if newest is None else NOW - newest,
        since=NOW,
        is_full=True,
        has_refused=refused,
    )
    state, cause, _, found = state_cause_setting_and_use(evidence, moment=NOW)
    assert expected == (state, cause, found)
    direct = evidence._replace(is_direct=True)
    assert "disk_full" not in state_cause_setting_and_use(direct, moment=NOW)


def test_without_calls_no_claim_makes_an_assistant_reporting() -> None:
    """Every claim and cause that an agent can send, with and without a use."""
    for claim, causes in CAUSES.items():
        for cause in ("", *causes):
            for unheard in (None, NOW - 31 * DAY, NOW - DAY, NOW):
                evidence = AssistantEvidence(claim=claim, cause=cause, unheard=unheard)
                assert "reporting" != state_cause_setting_and_use(evidence, moment=NOW)[0]


class Laptop:
    """A device that reports one assistant over time. Times are seconds after NOW."""

    def __init__(self, **fields: Any) -> None:
        self.device = Device(id="laptop", enrolled_at=NOW, enrolled_by="f", last_seen=NOW, **fields)

    def beat(
        self, moment: float, state: str = "unused", *, used: float | None = None, cause: str = ""
    ) -> str:
        """Send a heartbeat, as an agent does that rounds the time of a use. Return the state."""
        claim = {"state": state, **({"cause": cause} if cause else {})}
        if used is not None:
            claim["used_at"] = utc_iso(int((NOW + used) // HOUR * HOUR)) or ""
        heartbeat = json.dumps({"assistants": {"codex": claim}}).encode()
        now = NOW + moment
        uses = updated_remembered_evidence_json(self.device, heartbeat, now=now)
        self.device = replace(self.device, heartbeat=heartbeat, uses=uses, last_seen=now, last_heartbeat=now)
        return self.state(moment)

    def call(self, ended: float) -> None:
        self.device = replace(self.device, newest_calls={"codex": NOW + ended})

    def state(self, moment: float) -> str:
        [found] = assistant_states_of_device(self.device, moment=NOW + moment)
        return found.use if found.use in ("losing", "delayed") else found.state


def test_further_uses_do_not_postpone_a_loss() -> None:
    """The grace runs from the first use without a call, and the loss lasts until a call or a repair."""
    laptop = Laptop()
    laptop.beat(0)
    laptop.call(10 * MINUTE)
    states = [laptop.beat(at * MINUTE, used=at * MINUTE) for at in (15, 65, 100, 125, 140, 200, 600)]
    assert ["reporting"] * 4 + ["losing"] * 3 == states
    # neither a pause nor age ends the state "losing"
    assert "losing" == laptop.beat(20 * DAY, used=10 * HOUR)
    laptop.call(20 * DAY)
    assert "reporting" == laptop.state(20 * DAY)


def test_a_bad_setting_is_found_at_once() -> None:
    """The policy is removed after the last call at 08:10, while the assistant is still used."""
    laptop = Laptop()
    laptop.beat(0)
    laptop.call(10 * MINUTE)
    states = [
        laptop.beat(at * MINUTE, "not_configured", used=at * MINUTE, cause="no_policy")
        for at in (30, 59, 61, 132, 240, 432)
    ]
    assert ["not_configured"] * 2 + ["losing"] * 4 == states
    # a repair of the settings ends the state "losing"
    assert "reporting" == laptop.beat(440 * MINUTE, used=435 * MINUTE)
    states = [laptop.beat(at * MINUTE, used=at * MINUTE) for at in (481, 549, 551)]
    assert ["reporting", "reporting", "losing"] == states


def test_a_call_disproves_a_bad_setting() -> None:
    """A terminal has its own variables, which no file shows. Calls that arrive win over the probe."""
    laptop = Laptop()
    laptop.call(-MINUTE)
    assert "overridden" == laptop.beat(0, "overridden", cause="environment")
    laptop.call(HOUR)
    assert "reporting" == laptop.beat(HOUR, "overridden", used=HOUR, cause="environment")
    assert "reporting" == laptop.beat(2 * HOUR + 1, "overridden", used=2 * HOUR, cause="environment")
    assert "losing" == laptop.beat(4 * HOUR, "overridden", used=2 * HOUR, cause="environment")


@pytest.mark.parametrize("offset_s", [-2 * HOUR, 0.0, 2 * HOUR])
def test_clocks_are_corrected_both_ways(offset_s: float) -> None:
    """A clock that is ahead makes no use too new, and one that is behind hides no loss."""
    laptop = Laptop(clock_offset_s=offset_s)
    laptop.beat(0)
    laptop.call(HOUR / 2)
    assert "reporting" == laptop.beat(HOUR, used=HOUR / 2 + offset_s)
    assert "losing" == laptop.beat(3 * HOUR + 1, used=1.5 * HOUR + offset_s)


class Sender(Laptop):
    """A laptop whose agent states the hour of the newest call that it stores, and how many calls still wait."""

    def state_calls(
        self, moment: float, heard: float, *, waiting: int | None = 0, offset_s: float = 0.0
    ) -> str:
        is_moved = offset_s != (self.device.clock_offset_s or 0.0)
        self.device = replace(self.device, clock_offset_s=offset_s)
        stated = utc_iso((NOW + heard + offset_s) // HOUR * HOUR)
        claim = {"state": "reporting", "use": "heard", "heard_at": stated}
        spool = {} if waiting is None else {"spool": {"records": waiting}}
        heartbeat = json.dumps({"assistants": {"codex": claim}, **spool}).encode()
        uses = updated_remembered_evidence_json(
            self.device, heartbeat, now=NOW + moment, is_clock_moved=is_moved
        )
        self.device = replace(self.device, heartbeat=heartbeat, uses=uses)
        return self.state(moment)

    def cause(self, moment: float) -> str:
        [found] = assistant_states_of_device(self.device, moment=NOW + moment)
        return found.cause


def sender(*, newest: float = 10 * MINUTE) -> Sender:
    """Return a laptop at 08:15, with a call at 08:10 that arrived."""
    laptop = Sender()
    laptop.call(newest)
    assert "reporting" == laptop.state_calls(15 * MINUTE, newest)
    return laptop


def test_a_call_that_the_agent_sent_and_that_did_not_arrive_is_a_loss() -> None:
    """
    A call that the agent stated counts as lost ten minutes later, until a later call arrives. Neither a waiting
    call nor its age ends the loss.
    """
    laptop = sender()
    assert "reporting" == laptop.state_calls(65 * MINUTE, 62 * MINUTE)
    assert "reporting" == laptop.state(75 * MINUTE)
    assert "losing" == laptop.state(75 * MINUTE + 1)
    assert "not_forwarded" == laptop.cause(75 * MINUTE + 1)
    assert "losing" == laptop.state_calls(80 * MINUTE, 62 * MINUTE, waiting=3)
    assert "losing" == laptop.state_calls(20 * DAY, 62 * MINUTE)
    laptop.call(20 * DAY)
    assert "reporting" == laptop.state_calls(20 * DAY + HOUR, 20 * DAY)
    assert 20 * DAY + RECENT_S == assistant_states_valid_until(laptop.device, moment=NOW + 20 * DAY) - NOW


def test_a_call_from_before_the_enrolment_is_no_loss() -> None:
    """
    A call from before the enrolment went elsewhere and is no loss. The first report may leave out the newest call,
    because records wait at another gateway.
    """
    laptop = Sender()
    assert "unused" == laptop.state_calls(0, -2 * HOUR, waiting=3)
    assert "unused" == laptop.state_calls(MINUTE, -2 * HOUR)
    assert "unused" == laptop.state(HOUR)


def test_a_clock_that_was_set_while_calls_waited_makes_no_loss() -> None:
    """
    Setting the clock while calls wait makes no loss. The hour that the agent states next is of the earlier clock,
    so it seems to be of a later call.
    """
    ahead, ended = 2 * HOUR, 62 * MINUTE
    laptop = Sender()
    laptop.call(10 * MINUTE)
    laptop.state_calls(15 * MINUTE, 10 * MINUTE, offset_s=ahead)
    laptop.state_calls(20 * MINUTE, 10 * MINUTE, offset_s=ahead)
    laptop.call(ended)
    laptop.state_calls(4 * HOUR, ended + ahead, waiting=3)
    assert "reporting" == laptop.state_calls(4 * HOUR + MINUTE, ended + ahead)
    assert "reporting" == laptop.state(5 * HOUR)


@pytest.mark.parametrize("waiting", [1, None])
def test_calls_that_wait_or_may_wait_are_not_lost(waiting: int | None) -> None:
    """While calls still wait at the agent, nothing is lost; when none waits any more, missing calls are judged."""
    laptop = sender()
    laptop.state_calls(65 * MINUTE, 62 * MINUTE, waiting=waiting)
    assert "reporting" == laptop.state_calls(3 * HOUR, 62 * MINUTE, waiting=waiting)
    laptop.state_calls(3 * HOUR + MINUTE, 62 * MINUTE)
    assert "losing" == laptop.state(3 * HOUR + 12 * MINUTE)


def test_calls_from_before_the_first_heartbeat_prove_no_loss() -> None:
    """
    Calls from before the first heartbeat prove no loss: a device that was deleted or reset has no calls here,
    although its agent may still state one.
    """
    laptop = Sender()
    laptop.state_calls(65 * MINUTE, 62 * MINUTE)
    assert "unused" == laptop.state_calls(20 * HOUR, 62 * MINUTE)
    laptop.state_calls(21 * HOUR, 21 * HOUR)
    assert "losing" == laptop.state(22 * HOUR)


@pytest.mark.parametrize("offset_s", [-3 * HOUR, -20 * MINUTE, 20 * MINUTE, 3 * HOUR])
def test_a_clock_that_is_set_loses_no_call(offset_s: float) -> None:
    """
    Setting the clock loses no call: the call ended before, and its time was corrected by the offset of that time.
    """
    laptop = sender()
    laptop.call(59 * MINUTE)  # the hour that the agent states is by the clock from before or after it was set
    laptop.state_calls(65 * MINUTE, 59 * MINUTE, offset_s=offset_s)
    assert "reporting" == laptop.state_calls(2 * HOUR, 59 * MINUTE, offset_s=offset_s)
    # the agent keeps only the latest hour of a use
    back = laptop.state_calls(2 * HOUR + 1, 59 * MINUTE + offset_s)
    assert "reporting" == back == laptop.state_calls(3 * HOUR, 59 * MINUTE + offset_s)


def test_uses_before_the_enrolment_do_not_count() -> None:
    laptop = Laptop()
    laptop.beat(0, used=-10 * DAY)
    assert "unused" == laptop.beat(2 * HOUR, used=-10 * DAY)


def test_assistants_are_those_of_the_agent_and_of_the_calls() -> None:
    laptop = Laptop()
    laptop.beat(0)
    device = replace(laptop.device, newest_calls={"claude-code": NOW, "": NOW})
    assert [("claude-code", "reporting"), ("codex", "unused")] == [
        (each.name, each.state) for each in assistant_states_of_device(device, moment=NOW)
    ]


def test_every_assistant_that_can_be_set_up_has_its_sources() -> None:
    """
    Each assistant of `agent setup` and `agent policy` has a line in the table of sources; a new assistant needs one
    as well.
    """
    for assistant in ASSISTANTS.values():
        assert {assistant.name} == {assistant_of_source(source) for source in assistant.sources}
    assert {*ASSISTANTS, "opencode"} == set(assistants.ASSISTANTS)


def test_opencode_reports_with_a_library_of_others() -> None:
    assert "opencode" == assistant_of_source("vercel_ai", "opencode") == assistant_of_source("opencode")
    assert (
        None
        is assistant_of_source("vercel_ai", "shop")
        is assistant_of_source("vercel_ai")
        is assistant_of_source("litellm")
    )
