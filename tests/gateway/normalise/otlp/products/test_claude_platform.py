"""The spans that the Claude API exports by itself: which of them is the call, and what it counts."""

from __future__ import annotations

from itertools import permutations
from typing import Any

import pytest

from gateway.normalise.outcome import MERGED, NOT_AI, TEST_SPAN, ReadOutcome
from spool.record import Inference
from tests.gateway.normalise.otlp.payloads import (
    ENCODINGS,
    in_json,
    in_protobuf,
    normalised,
    only,
    span,
    traces,
)

SCOPE, SDK = "com.anthropic.claude-platform", "com.anthropic.sdk.python"
CHAT = {
    "gen_ai.operation.name": "chat",
    "gen_ai.provider.name": "anthropic",
    "gen_ai.request.model": "claude-sonnet-4-5",
}
MESSAGE = {"gen_ai.response.id": "msg_01"}
SESSION = {"anthropic.session.id": "sesn_01", "gen_ai.conversation.id": "sthr_01"}
IN, OUT = "gen_ai.usage.input_tokens", "gen_ai.usage.output_tokens"
COMPACTED = {"anthropic.usage.compaction.input_tokens": 5000, "anthropic.usage.compaction.output_tokens": 700}
FAILED = {"status": {"code": 2}}


def counts(read: int, written: int) -> dict[str, int]:
    return {IN: read, OUT: written}


def request(number: int, attributes: dict[str, Any], **changes: Any) -> dict[str, Any]:
    return span(number, {**CHAT, **attributes}, name="anthropic.messages.create", kind=2, **changes)


def run(number: int, attributes: dict[str, Any], *, parent: int, **changes: Any) -> dict[str, Any]:
    """Create the span of a model run inside a request or a turn."""
    return span(number, {**CHAT, **attributes}, name="anthropic.run", kind=1, parent=parent, **changes)


def turn(number: int, attributes: dict[str, Any], **changes: Any) -> dict[str, Any]:
    ended = {"gen_ai.operation.name": "invoke_agent", "anthropic.session.turn.stop_reason": "end_turn"}
    return span(number, {**ended, **attributes}, name="anthropic.session.turn", kind=1, **changes)


def outcome_of(*spans: dict[str, Any], scope: str = SCOPE) -> ReadOutcome:
    return normalised(traces(*spans, scope=scope, resource={"service.name": "claude-platform"}))


def counted(outcome: ReadOutcome) -> list[tuple[int | None, int | None]]:
    found = [record for record in outcome.records if isinstance(record, Inference)]
    return [(record.input_tokens, record.output_tokens) for record in found]


def ids(outcome: ReadOutcome) -> list[str | None]:
    return [record.request_id for record in outcome.records if isinstance(record, Inference)]


@pytest.mark.parametrize(
    ("own", "runs"),
    [
        (counts(30, 9), [counts(10, 4), counts(20, 5)]),
        (counts(30, 9), [{}, {}]),
        ({}, [counts(10, 4), counts(20, 5)]),
        ({}, [counts(30, 9), {}]),
        (counts(30, 9), []),
    ],
)
def test_a_request_is_one_call_whatever_its_model_runs_state(
    own: dict[str, Any], runs: list[dict[str, Any]]
) -> None:
    """A request with server tools runs the model several times. Usage is on the request, on its runs, or on both."""
    spans = [request(1, {**MESSAGE, **own}), *(run(n, one, parent=1) for n, one in enumerate(runs, 2))]
    for order in permutations(spans):
        outcome = outcome_of(*order)
        assert [(30, 9)] == counted(outcome)
        assert ["msg_01"] == ids(outcome)
        assert outcome.ignored[MERGED] == len(runs)


def test_the_call_of_an_sdk_around_it_is_the_same_call() -> None:
    client = traces(request(1, {**MESSAGE, **counts(30, 9)}), scope=SDK, resource={"service.name": "app"})
    server = traces(
        request(2, {**MESSAGE, **counts(30, 9)}, parent=1),
        run(3, counts(10, 4), parent=2),
        run(4, counts(20, 5), parent=2),
        scope=SCOPE,
    )
    payload = {"resourceSpans": client["resourceSpans"] + server["resourceSpans"]}
    assert [(30, 9)] == counted(normalised(payload))


def test_a_failed_request_is_one_failure() -> None:
    """
    If a run of the model failed inside an answered request, it is a part of that request and no separate call. A
    run inside a failed request is also a part of it, so there is one failure.
    """
    failure = {"error.type": "overloaded_error"}
    outcome = outcome_of(request(1, failure, **FAILED), run(2, failure, parent=1, **FAILED))
    assert ["error"] == [record.status for record in outcome.records if isinstance(record, Inference)]
    answered = outcome_of(
        request(1, counts(30, 9)), run(2, failure, parent=1, **FAILED), run(3, counts(30, 9), parent=1)
    )
    assert [(30, 9)] == counted(answered)
    assert ["ok"] == [record.status for record in answered.records if isinstance(record, Inference)]


def test_each_model_run_of_a_turn_is_a_call() -> None:
    """A turn of a session repeats the sum of its runs, which may arrive in other requests, so it never counts."""
    runs = run(3, counts(10, 4), parent=2), run(4, counts(20, 5), parent=2)
    outcome = outcome_of(turn(2, {**SESSION, **counts(30, 9), "gen_ai.agent.name": "scout"}), *runs)
    assert [(10, 4), (20, 5)] == counted(outcome)
    assert ["sesn_01"] * 2 == [record.session for record in outcome.records]
    assert ["scout"] * 2 == [record.tags["agent"] for record in outcome.records]
    assert {NOT_AI: 1} == outcome_of(turn(2, {**CHAT, **counts(30, 9)})).ignored
    assert [(10, 4), (20, 5)] == counted(outcome_of(*runs))


def test_workspace_and_organization_are_tags_of_the_call() -> None:
    """Organization and workspace become tags of the call, for the API and for the SDKs."""
    own = {"anthropic.organization.id": "org-1", "anthropic.workspace.id": "wrkspc_1"}
    for scope in (SCOPE, SDK):
        record = only(traces(request(1, {**own, **counts(1, 2)}), scope=scope))
        assert {"organization": "org-1", "workspace": "wrkspc_1"} == record.tags


@pytest.mark.parametrize("encoding", ENCODINGS)
def test_the_test_span_is_a_test_and_never_a_call(encoding: str) -> None:
    for attributes in ({}, {**CHAT, **MESSAGE, **counts(1, 2)}):
        payload = traces(span(1, attributes, name="anthropic.test"), scope=SCOPE)
        body = in_json(payload) if encoding == "json" else in_protobuf(payload)
        outcome = normalised(body, encoding=encoding)
        assert ([], {TEST_SPAN: 1}) == (outcome.records, outcome.ignored)


def test_an_applications_span_of_that_name_is_no_test() -> None:
    payload = traces(span(1, {**CHAT, **counts(1, 2)}, name="anthropic.test"), scope="app")
    assert [(1, 2)] == counted(normalised(payload))


@pytest.mark.parametrize("scope", [SCOPE, SDK])
def test_other_requests_are_no_calls(scope: str) -> None:
    """
    A request that only counts tokens is no call, although its span names a model. The same holds if it fails. It is
    not listed as unrecognized either.
    """
    asked = {name: CHAT[name] for name in ("gen_ai.provider.name", "gen_ai.request.model")}
    for changes in ({}, FAILED):
        outcome = outcome_of(span(1, asked, name="anthropic.messages.count_tokens", **changes), scope=scope)
        assert ([], {NOT_AI: 1}) == (outcome.records, outcome.ignored)


@pytest.mark.parametrize("scope", [SCOPE, SDK])
def test_compactions_are_added(scope: str) -> None:
    """
    Tokens of a compaction are added to the counts of the call, because they are billed in addition to the usage of
    the message, which leaves them out. An impossible count of a compaction is ignored.
    """
    assert [(5600, 900)] == counted(outcome_of(request(1, {**counts(600, 200), **COMPACTED}), scope=scope))
    assert [(5000, 700)] == counted(outcome_of(request(1, COMPACTED), scope=scope))
    for bad in (-5, 10**15, "many", True):
        hostile = {**counts(600, 200), "anthropic.usage.compaction.input_tokens": bad}
        assert [(600, 200)] == counted(outcome_of(request(1, hostile), scope=scope))
    assert [(600, 200)] == counted(outcome_of(request(1, {**counts(600, 200), **COMPACTED}), scope="app"))
