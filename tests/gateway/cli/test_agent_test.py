"""The words of `tollhouse agent test`: each cause has a reason and a repair that a person understands."""

from __future__ import annotations

import pytest

from gateway.cli import agent_delivery
from gateway.cli.agent_test import _OF_WAY, _exit_code, _show_results
from gateway.devices.fleet.assistant_states import BAD, SETTINGS
from gateway.devices.fleet.heartbeat_facts import CAUSES

Result = agent_delivery.DeliveryResult


def printed(capsys: pytest.CaptureFixture[str], *results: Result) -> list[str]:
    _show_results(results)
    return capsys.readouterr().out.splitlines()


def test_what_arrives_needs_no_repair(capsys: pytest.CaptureFixture[str]) -> None:
    lines = printed(capsys, Result("codex", True), Result("copilot", True))
    assert [["ASSISTANT", "ARRIVES", "REASON"], ["codex", "yes", "-"], ["copilot", "yes", "-"]] == [
        line.split() for line in lines
    ]


def test_two_assistants_of_one_cause_have_one_advice(capsys: pytest.CaptureFixture[str]) -> None:
    lacks = Result("codex", False, "not_configured", "no_policy")
    lines = printed(capsys, lacks, lacks._replace(assistant="copilot"))
    assert ["codex      no       was never set up", "copilot    no       was never set up"] == lines[1:3]
    [advice] = lines[3:]
    assert "`tollhouse agent setup`" in advice


@pytest.mark.parametrize(
    ("cause", "words"),
    [(state, cause) for state, causes in CAUSES.items() if SETTINGS[state] in BAD for cause in ("", *causes)]
    + [(cause, words) for cause in _OF_WAY for words in ("", "status 503")],
)
def test_each_cause_has_a_reason_and_a_repair(
    capsys: pytest.CaptureFixture[str], cause: str, words: str
) -> None:
    _, line, advice = printed(capsys, Result("codex", False, cause, words))
    assert line.startswith("codex      no       ")
    assert "_" not in line and "False" not in line
    assert ("(status 503)" in line) == (words == "status 503")
    assert advice.endswith(".")


def test_causes_of_the_gateway_have_exit_codes() -> None:
    """An MDM can tell a refusal from a machine that is offline, and both from a wrong setting."""
    codes = {cause: _exit_code(Result("codex", False, cause)) for cause in _OF_WAY}
    of_network = dict.fromkeys(("no_answer", "dns", "tls", "busy"), 4)
    assert of_network | {"refused": 3, "not_enrolled": 3} == {
        cause: code for cause, code in codes.items() if code != 1
    }
    assert (0, 1) == (_exit_code(Result("codex", True)), _exit_code(Result("codex", False, "overridden")))
