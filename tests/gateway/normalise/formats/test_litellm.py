"""LiteLLM: special cases of the logging payload, spend rows, and the old payload with only text values."""

from __future__ import annotations

import json
import time
from typing import Any

import pytest

from gateway.normalise import any_format
from gateway.normalise.formats import litellm
from gateway.normalise.outcome import IMPLAUSIBLE, MALFORMED, NOT_AI, ReadOptions
from gateway.normalise.payload.literal import read_python_literal
from gateway.normalise.reading.tokens import Usage
from spool.identity import dedup_key_of_parts
from spool.record import rfc3339
from tests.gateway.normalise.formats.payloads import assert_balanced, case, one, read, run
from tests.gateway.normalise.otlp.payloads import only, span, traces
from tests.gateway.normalise.outcomes import inferences

CALL_ID = "31aec259-5224-4903-ad2a-91ade65c0987"


@pytest.fixture
def event() -> dict[str, Any]:
    payload: dict[str, Any] = case("litellm", "slp-batch-array")[0]
    return payload


@pytest.fixture
def row() -> dict[str, Any]:
    payload: dict[str, Any] = case("litellm", "spend-log-rows")[0]
    return payload


def identity(payload: dict[str, Any]) -> bytes:
    return one("litellm", payload).id


def test_one_broken_member_of_512_is_rejected_alone(event: dict[str, Any]) -> None:
    """
    Of 512 events, only the broken one is rejected, with position, reason and field. The other 511 are stored,
    and the event loop gets turns between slices.
    """
    events: list[Any] = [event | {"id": f"chatcmpl-{number:024d}"} for number in range(512)]
    events[300] = event | {"prompt_tokens": "CANARY"}
    (outcome, _), turns = run(
        any_format.normalise_body("litellm", json.dumps(events).encode(), options=ReadOptions())
    )
    assert_balanced(outcome)
    assert 511 == len(outcome.records)
    assert [(300, MALFORMED, "prompt_tokens is not a number")] == outcome.rejects
    assert turns >= 3


def test_a_member_that_is_no_json_is_rejected_alone(event: dict[str, Any]) -> None:
    """Only the element that is not JSON is rejected, because the array is split at its commas."""
    good = json.dumps(event).encode()
    outcome = read("litellm", b"[" + good + b', {"id": }, ' + good + b"]")
    assert len(outcome.records) == 2
    assert [reject.item for reject in outcome.rejects] == [1]


def test_null_members_are_passed_over(event: dict[str, Any]) -> None:
    """Nulls in an array of LiteLLM's queue are skipped."""
    outcome = read(None, [None, event, None])
    assert len(outcome.records) == 1
    assert dict(outcome.ignored) == {NOT_AI: 2}
    assert outcome.rejects == []


def test_members_of_another_shape_are_rejected_alone(event: dict[str, Any]) -> None:
    outcome = read("litellm", [3, event, "text", []])
    assert len(outcome.records) == 1
    assert [reject.item for reject in outcome.rejects] == [0, 2, 3]


def test_nan_and_lone_surrogates_cost_nothing(event: dict[str, Any]) -> None:
    """
    Python writes NaN and lone surrogates, which JSON forbids. They are repaired in their own event, and costs
    keep their digits.
    """
    odd = json.dumps(event | {"response_time": float("nan"), "end_user": "\ud800"}).encode()
    record = one("litellm", b"[" + odd + b"]")
    assert "0.00024839999999999997" == record.cost
    assert "\ufffd" == record.tags["end_user"]


@pytest.mark.parametrize("field", ["prompt_tokens", "completion_tokens", "response_cost"])
def test_figures_below_zero_are_never_billed(event: dict[str, Any], field: str) -> None:
    outcome = read("litellm", event | {field: -3})
    assert [(0, IMPLAUSIBLE, f"{field} is negative")] == outcome.rejects


def test_a_price_of_zero_is_no_price_but_for_hits_and_failures(event: dict[str, Any]) -> None:
    """LiteLLM writes 0 for a model without a price, so 0 is a price only for cache hits and failures."""
    assert one("litellm", event | {"response_cost": 0.0}).cost is None
    assert "0" == one("litellm", event | {"response_cost": 0.0, "cache_hit": True}).cost
    assert "0" == one("litellm", event | {"response_cost": 0.0, "status": "failure"}).cost
    untokened = {"metadata": {}, "response": {}, "prompt_tokens": 0, "completion_tokens": 0}
    assert "0" == one("litellm", event | untokened | {"response_cost": 0}).cost


def test_a_failed_deployment_and_its_fallback_are_two_calls(event: dict[str, Any]) -> None:
    """
    A failed attempt and its fallback are two calls. They share the call id and the trace, so neither is
    a dedup key.
    """
    failed = event | {
        "id": event["litellm_call_id"],
        "status": "failure",
        "response": {},
        "prompt_tokens": 0,
        "completion_tokens": 0,
        "error_information": {"error_class": "RateLimitError", "error_message": "CANARY"},
    }
    outcome = read("litellm", [failed, event])
    assert ["error", "ok"] == [record.status for record in inferences(outcome)]
    assert 2 == len({record.id for record in outcome.records})


def test_the_response_id_is_the_identity_whatever_reports_it(
    event: dict[str, Any], row: dict[str, Any]
) -> None:
    """The event and the spend row of one call have the same dedup key (rule 2)."""
    assert dedup_key_of_parts(2, event["id"]) == identity(event) == identity(row)


@pytest.mark.parametrize(
    "more",
    [
        {"call_type": "aembedding", "litellm_call_id": CALL_ID},
        {"call_type": "aembedding", "litellm_call_id": None},
        {"call_type": "aspeech", "litellm_call_id": None},
        {"status": "failure", "litellm_call_id": None},
        {"status": "failure"},
    ],
)
def test_a_call_id_in_place_of_a_response_id_is_shared(event: dict[str, Any], more: dict[str, Any]) -> None:
    """
    Embeddings and failures have a UUID in place of the response id, so rule 3 applies, with both
    neighboring time steps.
    """
    outcome = read("litellm", event | {"id": CALL_ID} | more)
    assert [2] == [len(found.lookups) for found in outcome.identities]


@pytest.mark.parametrize(
    "more", [{}, {"litellm_call_id": None}, {"litellm_call_id": None, "call_type": "arerank"}]
)
def test_a_uuid_of_the_provider_is_a_response_id(event: dict[str, Any], more: dict[str, Any]) -> None:
    """Perplexity's response ids are UUIDs. Rule 2 applies, as for spans of the same call."""
    assert dedup_key_of_parts(2, CALL_ID) == identity(event | {"id": CALL_ID} | more)


def test_a_hit_in_the_gateways_cache_is_its_own_call(event: dict[str, Any]) -> None:
    """
    A cache hit is a separate call. Its id only starts with the first call's id, so rule 5 applies to
    the complete id.
    """
    hit = event | {"id": event["id"] + "_cache_hit1795158584.59", "cache_hit": True}
    assert dedup_key_of_parts(5, "litellm", hit["id"]) == identity(hit)


def names(payload: dict[str, Any]) -> tuple[bytes, ...]:
    (found,) = read("litellm", payload).identities
    return found.also


REQUEST_ID = "req_011CSHoEeqs5C35K2UUqR7Fy"


@pytest.mark.parametrize(
    "headers",
    [
        {"llm_provider-request-id": REQUEST_ID},
        {"llm_provider-x-request-id": REQUEST_ID},
        {"request-id": REQUEST_ID},
        {"llm_provider-x-amzn-requestid": REQUEST_ID},
        {"llm_provider-x-ms-request-id": REQUEST_ID},
    ],
)
def test_the_providers_request_id_is_a_name_of_a_call_without_its_response_id(
    event: dict[str, Any], headers: dict[str, str]
) -> None:
    """
    LiteLLM makes up the id of a Claude response in OpenAI's format. A call with the provider's own response id
    needs no other name, and a response from the cache is another call.
    """
    stated = event | {"hidden_params": {"additional_headers": headers}}
    made_up = stated | {"id": f"chatcmpl-{CALL_ID}"}
    assert (dedup_key_of_parts(2, REQUEST_ID),) == names(made_up)
    assert () == names(stated | {"id": "chatcmpl-CmQ0v2a8s3b9x7y5z1w4"})
    assert () == names(made_up | {"cache_hit": True})


def test_a_failure_is_known_by_the_providers_request_id(event: dict[str, Any], row: dict[str, Any]) -> None:
    """A failure has no response id. Rows of the spend log state the request id in another place."""
    failed = {"id": CALL_ID, "litellm_call_id": CALL_ID, "status": "failure", "response": {}}
    raw = {"additional_headers": {"request-id": REQUEST_ID, "x-request-id": REQUEST_ID}}
    stated = {"error_class": "InternalServerError", "error_provider_request_id": REQUEST_ID}
    of_row = {"request_id": CALL_ID, "status": "failure", "metadata": {"error_information": stated}}
    for payload in (
        event | failed | {"hidden_params": raw},
        event | failed | {"hidden_params": {}, "error_information": stated},
        row | of_row,
    ):
        assert 1 == names(payload).count(dedup_key_of_parts(2, REQUEST_ID))


@pytest.mark.parametrize("id", [CALL_ID, "req_7", "", None, 7, {"a": 1}])
def test_other_ids_in_the_headers_are_no_names(event: dict[str, Any], id: object) -> None:
    """Servers repeat the x-request-id of their callers, so only the form of the provider's own ids counts."""
    headers = {"llm_provider-x-request-id": id, "llm_provider-request-id": id}
    made_up = event | {"id": f"chatcmpl-{CALL_ID}", "hidden_params": {"additional_headers": headers}}
    assert () == names(made_up)
    assert () == names(made_up | {"hidden_params": {"additional_headers": id}})
    assert () == names(made_up | {"hidden_params": id})


def test_an_alias_stamped_over_the_response_model_is_none(event: dict[str, Any]) -> None:
    """
    LiteLLM may write its alias as the response model. The alias is then not stored, unless it is also
    the requested model.
    """
    aliased = event | {"model_group": "fast", "response": {"model": "fast"}}
    assert one("litellm", aliased).response_model is None
    assert "gpt-4o-mini" == one("litellm", event).response_model


@pytest.mark.parametrize(
    ("call_type", "expected"),
    [
        ("acompletion", "chat"),
        ("anthropic_messages", "chat"),
        ("aresponses", "chat"),
        ("atext_completion", "text_completion"),
        ("aembedding", "embeddings"),
        ("aimage_generation", "image_generation"),
        ("atranscription", "transcription"),
        ("aspeech", "speech"),
        ("aanthropic_messages", "chat"),
        ("agenerate_content_stream", "generate_content"),
        ("litellm.completion", "chat"),
        ("arerank", None),
        (7, None),
    ],
)
def test_operations_by_call_type(event: dict[str, Any], call_type: object, expected: str | None) -> None:
    """The call type gives the operation, under OpenTelemetry's name if there is one."""
    assert expected == one("litellm", event | {"call_type": call_type}).operation


def test_a_usage_object_of_details_alone_is_openais(event: dict[str, Any]) -> None:
    """
    A usage object with only details is read as OpenAI's, because the totals are next to it. Both names for
    cache writes are read, and the name inside the details has priority.
    """
    event["metadata"]["usage_object"] = {
        "prompt_tokens_details": {"cached_tokens": 1, "cache_creation_tokens": 2},
        "cache_creation_input_tokens": 3,
    }
    record = one("litellm", event)
    assert record.cache_read_tokens == 1
    assert record.cache_write_tokens == 2
    assert event["prompt_tokens"] == record.input_tokens


DETAILS: dict[str, Any] = {
    "prompt_tokens_details": {"cached_tokens": 1024},
    "completion_tokens_details": {"reasoning_tokens": 7},
}


def test_an_older_payload_has_its_usage_object_in_the_answer(event: dict[str, Any]) -> None:
    """
    An older payload has its usage object inside the answer, where it may also be text, a list or missing.
    """
    del event["metadata"]["usage_object"]
    answer = event["response"] | {"usage": {"prompt_tokens": 1320, "completion_tokens": 212, **DETAILS}}
    record = one("litellm", event | {"response": answer})
    assert record.input_tokens == 1320
    assert record.cache_read_tokens == 1024
    assert record.reasoning_tokens == 7
    answers: list[Any] = ["redacted-by-litellm", [], {"usage": None}, {"usage": 7}, {"usage": []}, None]
    for odd in answers:
        record = one("litellm", event | {"response": odd})
        assert record.input_tokens == 1320
        assert record.cache_read_tokens is None


@pytest.mark.parametrize("usage", [None, {}, "None"])
def test_an_older_spend_row_has_its_details_apart_from_the_totals(row: dict[str, Any], usage: object) -> None:
    """An older spend row has its token details in a separate member, next to the totals."""
    row["metadata"] = json.dumps({"usage_object": usage, "additional_usage_values": DETAILS})
    record = one("litellm", row)
    assert record.input_tokens == 1320
    assert record.cache_read_tokens == 1024
    assert record.reasoning_tokens == 7


def test_a_tool_call_with_a_tool_for_a_model_is_none(event: dict[str, Any]) -> None:
    """An MCP tool call names the tool as its model and is reported by the same callback. It is not a call."""
    untokened = {"metadata": {}, "response": {}, "prompt_tokens": 0, "completion_tokens": 0}
    tool = event | untokened | {"call_type": "call_mcp_tool", "model": "MCP: search"}
    assert {NOT_AI: 1} == dict(read("litellm", tool | {"response_cost": 0}).ignored)


def test_spend_metadata_fills_and_tags(event: dict[str, Any]) -> None:
    """
    The metadata of a spend row fills empty fields and gives tags. It names the end user, but the
    authenticated user has priority.
    """
    event["metadata"] |= {
        "user_api_key_end_user_id": None,
        "spend_logs_metadata": {"user": "end", "team": "t", "ticket": 7, "prompt": "CANARY"},
    }
    record = one("litellm", event | {"end_user": None})
    assert record.user == "user-0007"
    assert record.team == "team-0001"
    assert {"env": "prod", "feature": "triage", "ticket": "7", "end_user": "end"} == record.tags


def test_session_of_a_client_is_read_from_nested_metadata(event: dict[str, Any]) -> None:
    """
    A client's session is deeper in the metadata. There, `session_id` has priority over the session of the request.
    """
    assert "sess-0001" == one("litellm", event | {"session_id": ""}).session
    assert "other" == one("litellm", event | {"session_id": "other"}).session


CLAUDE_CODE = {"device_id": "d" * 64, "account_uuid": "acc-1", "session_id": "5c9d"}


@pytest.mark.parametrize(
    "end_user", [json.dumps(CLAUDE_CODE), "user_" + "d" * 64 + "_account_acc-1_session_5c9d"]
)
def test_claude_code_names_its_session_in_the_end_user(event: dict[str, Any], end_user: str) -> None:
    """
    In the end user, Claude Code writes session, installation and account. The user is the account, not
    the whole text.
    """
    event["metadata"] |= {"requester_metadata": {}, "user_api_key_user_id": None}
    record = one("litellm", event | {"session_id": None, "end_user": end_user})
    assert record.user == "acc-1"
    assert record.session == "5c9d"
    unnamed = end_user.replace("acc-1", "")
    assert "d" * 64 == one("litellm", event | {"session_id": None, "end_user": unnamed}).user


def test_claude_code_names_its_session_in_a_header(event: dict[str, Any], row: dict[str, Any]) -> None:
    """
    Claude Code names its session in a header, which the proxy stores in the metadata, as JSON text in spend
    rows. It overrides a trace id in the session field.
    """
    headers = {"x-claude-code-session-id": "5c9d", "x-api-key": "CANARY"}
    event["metadata"] |= {"requester_metadata": {}, "requester_custom_headers": headers}
    assert "5c9d" == one("litellm", event | {"session_id": None}).session
    row["metadata"] = json.dumps({"requester_custom_headers": headers})
    assert "5c9d" == one("litellm", row | {"session_id": row["request_id"]}).session


def test_claude_code_names_its_agents_in_headers(event: dict[str, Any], row: dict[str, Any]) -> None:
    """Payload, spend row and span have the run of the agent, and the run that started it."""
    for agent, parent in ((None, None), ("a01", None), ("ac4", "a01")):
        stated = {"session": "5c9d", "agent": agent, "parent-agent": parent}
        headers = {f"x-claude-code-{name}-id": value for name, value in stated.items() if value}
        metadata = {"requester_custom_headers": headers}
        written = {
            "gen_ai.operation.name": "anthropic_messages",
            "gen_ai.request.model": "claude-sonnet-5",
            "gen_ai.usage.input_tokens": 9,
            "metadata.requester_custom_headers": str(headers),
        }
        for record in (
            one("litellm", event | {"metadata": event["metadata"] | metadata}),
            one("litellm", row | {"metadata": json.dumps(metadata)}),
            only(traces(span(1, written), scope="litellm")),
        ):
            assert (agent, parent) == (record.run, record.parent_run)


@pytest.mark.parametrize(("tier", "expected"), [("flex", "flex"), ("default", None), (None, None), (7, None)])
def test_a_tier_with_prices_of_its_own_is_a_tag(
    event: dict[str, Any], tier: object, expected: str | None
) -> None:
    """
    A tier with a separate price becomes a tag. It is in the usage object for Anthropic, and in the
    answer for OpenAI.
    """
    answer = event["response"] | {"service_tier": tier}
    assert expected == one("litellm", event | {"response": answer}).tags.get("service_tier")
    event["metadata"]["usage_object"] |= {"service_tier": tier}
    assert expected == one("litellm", event).tags.get("service_tier")


def test_secret_in_place_of_a_key_hash_is_dropped(event: dict[str, Any]) -> None:
    """If the place of a key hash contains a secret, it is dropped, even if there is no alias."""
    event["metadata"] |= {"user_api_key_alias": None, "user_api_key_hash": "sk-1234567890abcdef"}
    assert one("litellm", event).api_key is None


@pytest.mark.parametrize("metadata", [None, "", "text", 7, [], {}])
def test_metadata_of_another_shape_costs_no_call(event: dict[str, Any], metadata: object) -> None:
    assert 1320 == one("litellm", event | {"metadata": metadata}).input_tokens


def test_a_spend_row_of_an_older_version_has_naive_times(row: dict[str, Any]) -> None:
    """In spend rows of an older version, times have no zone and are UTC, and a cache hit is text."""
    record = one(None, row | {"startTime": "2026-11-20 07:09:42.098113", "cache_hit": "True", "spend": 0.0})
    assert rfc3339(record.start_time) == "2026-11-20T07:09:42.098113Z"
    assert record.status == "cached"
    assert record.cost == "0"


def test_a_failed_spend_row_names_its_error(row: dict[str, Any]) -> None:
    """The error of a failed spend row is read from the JSON text of its metadata."""
    metadata = json.dumps({"error_information": {"error_class": "Timeout", "error_message": "CANARY"}})
    record = one("litellm", row | {"status": "failure", "metadata": metadata})
    assert record.status == "error"
    assert record.error_type == "Timeout"


def test_free_text_is_never_an_error_type(event: dict[str, Any]) -> None:
    """Free text is never an error type, because it may quote a prompt."""
    failed = event | {
        "status": "failure",
        "error_information": {"error_class": "you said: CANARY", "error_code": "429"},
    }
    assert "429" == one("litellm", failed).error_type


def test_older_versions_are_recognised_too(event: dict[str, Any], row: dict[str, Any]) -> None:
    """
    Payloads of older versions are recognized, although they have neither a provider nor LiteLLM's call id.
    """
    for payload in (event, row):
        older = {name: payload[name] for name in payload.keys() - {"litellm_call_id", "custom_llm_provider"}}
        record = one(None, [older])
        assert record.provider == "openai"
        assert record.input_tokens == 1320
        assert record.cache_read_tokens == 1024


def old_payload() -> dict[str, str]:
    """Create the payload of `generic_api_use_v1`. All its values are Python's text forms."""
    usage = (
        "Usage(completion_tokens=20, prompt_tokens=1310, total_tokens=1330, completion_tokens_details="
        "CompletionTokensDetailsWrapper(audio_tokens=None, reasoning_tokens=5), prompt_tokens_details="
        "PromptTokensDetailsWrapper(audio_tokens=None, cached_tokens=1024))"
    )
    metadata = (
        "{'user_api_key_alias': 'alpha', 'user_api_key_user_id': 'u1', 'user_api_key_team_id': 't1', "
        "'headers': {'authorization': 'CANARY'}, 'auth': UserAPIKeyAuth(token='CANARY')}"
    )
    return {
        "id": "chatcmpl-Lab0076Zq7cVQ2k1",
        "call_type": "acompletion",
        "cache_hit": "None",
        "startTime": "2025-03-04 10:11:12.123456",
        "endTime": "2025-03-04 10:11:13.5",
        "model": "gpt-4o-mini",
        "user": "end",
        "modelParameters": "{'temperature': 0.2}",
        "messages": "[{'role': 'user', 'content': 'CANARY'}]",
        "response": "ModelResponse(id='chatcmpl-1', choices=['CANARY'])",
        "usage": usage,
        "metadata": metadata,
        "cost": "2.8e-05",
    }


def test_the_old_payload_is_read_out_of_its_text() -> None:
    """
    The old payload is recognized without a format name. Numbers, key and team are read from Python's text forms.
    """
    record = one(None, [old_payload()])
    assert record.input_tokens == 1310
    assert record.output_tokens == 20
    assert record.cache_read_tokens == 1024
    assert record.reasoning_tokens == 5
    assert record.cost == "0.000028"
    assert record.provider == "openai"
    assert record.operation == "chat"
    assert record.request_model == "gpt-4o-mini"
    assert record.user == "u1"
    assert record.team == "t1"
    assert record.api_key == "alpha"
    assert record.tags == {"end_user": "end"}
    assert "2025-03-04T10:11:12.123456Z" == rfc3339(record.start_time)


def test_the_old_payloads_usage_may_be_a_dict() -> None:
    """
    The usage of the old payload may be a dict. The metadata may be a dict as well, if all its values are literals.
    """
    old = old_payload() | {
        "usage": "{'completion_tokens': 2, 'prompt_tokens': 3, 'prompt_tokens_details': {'cached_tokens': 1}}",
        "metadata": "{'user_api_key_hash': 'abc', 'user_api_key_team_alias': 'search', 'x': None}",
    }
    record = one("litellm", old)
    assert record.input_tokens == 3
    assert record.output_tokens == 2
    assert record.cache_read_tokens == 1
    assert record.api_key == "abc"
    assert record.team == "search"


def test_the_old_payload_is_read_at_its_outermost_names() -> None:
    """
    Key and team are read only from the outermost names of the old payload, because the caller's own metadata
    is nested deeper.
    """
    forged = (
        "{'requester_metadata': {'user_api_key_team_id': 'CANARY', 'note': \"it's } 'user_api_key_alias': "
        "'CANARY'\"}, "
        "'tags': ['user_api_key_alias', 'CANARY'], 'at': datetime.datetime(2025, 3, 4), "
    )
    record = one(None, old_payload() | {"metadata": forged + old_payload()["metadata"][1:]})
    assert record.team == "t1"
    assert record.api_key == "alpha"
    assert record.user == "u1"


@pytest.mark.parametrize(
    "unit", ["{'a': ", "Usage(", "prompt_tokens_details=X(", "'", "\\'", '"\\', "a.", "(]", "a=", ","]
)
def test_what_looks_like_python_and_is_not_costs_no_time(unit: str) -> None:
    """
    Text that resembles Python's form but is not valid is given up in one pass, however deep or incomplete it is.
    """
    begin = time.process_time()
    read_python_literal("'" + unit * (65_536 // len(unit)), Usage)
    read_python_literal(unit * (65_536 // len(unit)), Usage)
    assert time.process_time() - begin < 0.5


def test_parameters_that_are_no_text_make_it_no_old_payload(event: dict[str, Any]) -> None:
    """
    A payload with parameters that are an object is not the old payload. Other LiteLLM callbacks write such an
    object under the same name.
    """
    assert 1320 == one("litellm", event | {"modelParameters": {"temperature": 0.2}}).input_tokens


def test_response_id_of_the_responses_api_is_stored_whole(event: dict[str, Any]) -> None:
    """A response id of the Responses API is stored whole, although it is a long encrypted text."""
    long = "resp_" + "bGl0ZWxsbTpjdXN0b20" * 20
    assert long == one("litellm", event | {"id": long}).request_id


def test_event_without_an_id_is_identified_by_its_call_id(event: dict[str, Any]) -> None:
    """
    An event without its own id is identified by the call id together with tokens and time, because several
    attempts share the call id.
    """
    (found,) = read("litellm", event | {"id": None, "session_id": ""}).identities
    assert found.certain
    assert litellm.NAME == "litellm"


@pytest.mark.parametrize(
    "stated",
    [
        {"response": {"data": [{"url": "x"}, {"b64_json": "y"}]}},
        {"response": json.dumps({"data": [{"url": "x"}, {"url": "y"}]})},
        {"response": {"data": [{"url": "x"}, {"url": "y"}]}, "model_parameters": {"n": 3}},
        {"response": "redacted-by-litellm", "model_parameters": {"n": 2}},
        {"response": {}, "model_parameters": {"n": 2}, "prompt_tokens": 0, "completion_tokens": 0},
        {"model_parameters": {"n": "2"}},
    ],
)
def test_images_without_usage_are_counted(stated: dict[str, Any], event: dict[str, Any]) -> None:
    """An image call without usage made the images of its response, or else those that the caller asked for."""
    about = ("response", "model_parameters", "metadata", "prompt_tokens", "completion_tokens")
    base = {name: value for name, value in event.items() if name not in about}
    call = base | {"call_type": "aimage_generation", "model": "dall-e-3", "status": "success"} | stated
    record = inferences(read("litellm", call))[0]
    assert {"output_images": 2} == record.meters
    failed = inferences(read("litellm", call | {"status": "failure", "response": {}}))[0]
    assert failed.meters == {}
    chat = inferences(read("litellm", call | {"call_type": "acompletion", "response": {}}))[0]
    assert chat.meters == {}
