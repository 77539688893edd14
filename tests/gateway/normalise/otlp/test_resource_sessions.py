"""
Sessions of resources: if calls name another session than their resource, the resource's session is reported
as well, because counters know only that one.
"""

from __future__ import annotations

from gateway.normalise import otlp
from gateway.normalise.outcome import ReadOptions
from tests.gateway.normalise.otlp.items import finished, log, read_logs
from tests.gateway.normalise.otlp.payloads import in_json, span, traces

WINDOW = {"service.name": "copilot-chat", "session.id": "window"}
CALL = {"gen_ai.operation.name": "chat", "gen_ai.request.model": "gpt-4o", "gen_ai.usage.input_tokens": 5}
CHAT = CALL | {"gen_ai.conversation.id": "chat"}


def test_of_spans() -> None:
    """
    The session of a resource is reported only for spans that are calls, and only if it differs from
    the call's session.
    """
    calls = traces(span(1, CHAT), span(2, CALL), scope="copilot-chat", resource=WINDOW)
    outcome = finished(otlp.normalise_otlp("traces", in_json(calls), json=True, options=ReadOptions()))
    assert ["chat", "window"] == [record.session for record in outcome.records]
    assert {("copilot_chat", "copilot-chat", "window")} == outcome.sessions.keys()
    same = traces(span(1, CALL), scope="copilot-chat", resource=WINDOW)
    assert (
        {}
        == finished(otlp.normalise_otlp("traces", in_json(same), json=True, options=ReadOptions())).sessions
    )


def test_of_log_records() -> None:
    """The conventions' log event is a call as well, so its resource's session is reported."""
    event = log(
        CHAT, event_name="gen_ai.client.inference.operation.details", scope="copilot-chat", resource=WINDOW
    )
    outcome = read_logs(event)
    assert ["chat"] == [record.session for record in outcome.records]
    assert {("copilot_chat", "copilot-chat", "window")} == outcome.sessions.keys()
