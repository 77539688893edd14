"""Traps of the other gateways, one payload each: what their documents say and their cases do not show."""

from __future__ import annotations

import base64
import gzip
import json
from typing import Any

import pytest

from gateway.errors import Refusal
from gateway.normalise import formats
from gateway.normalise.formats.unfolding import MAX_PIECE, MAX_WHOLE
from gateway.normalise.options import Options
from gateway.normalise.outcome import IMPLAUSIBLE, MALFORMED, MERGED, NOT_AI
from spool.identity import digest, of_event
from spool.record import rfc3339
from tests.gateway.formats.payloads import case, one, read, run

# -- kong --------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("block", ["ai-proxy", "ai-proxy-advanced"])
def test_kong_older_blocks_take_the_requests_id(block: str):
    """Before `proxy` the block bore the plugin's name."""
    line = case("kong", "http-log-bedrock-unpriced")
    line["ai"] = {block: line["ai"]["proxy"]}
    record = one(None, line)
    assert line["request"]["id"] == record.request_id
    assert "plugin" not in record.tags
    assert digest(5, "kong", record.request_id) == record.id


def test_kong_plain_requests_on_the_same_logger_are_no_calls():
    """They have no `ai`, or a block of a plugin that called nobody."""
    line = case("kong", "http-log-bedrock-unpriced")
    del line["ai"]
    guarded = line | {"ai": {"ai-prompt-guard": {"meta": {}}, "proxy": {"meta": {"request_model": "x"}}}}
    outcome = read(None, [line, guarded, line | {"ai": []}])
    assert ([], {NOT_AI: 3}) == (outcome.records, dict(outcome.ignored))


def test_kong_errors_carry_their_status():
    """And are no cache hits, whatever the block says."""
    line = case("kong", "http-log-batch-priced-and-cache-hit")[1]
    record = one("kong", line | {"response": {"status": 503}})
    assert ("error", "503", "0") == (record.status, record.error_type, record.cost)


def test_kong_two_calls_of_one_line_are_split():
    """The books see the second one."""
    outcome = read("kong", case("kong", "http-log-two-llm-blocks"))
    assert (1, 1, 2) == (outcome.received, outcome.split, len(outcome.records))


def test_kong_two_proxies_of_one_line_are_named_alike_in_any_order():
    """The newest name takes the request's id, wherever it stands; the others are told apart by theirs."""
    line = case("kong", "http-log-bedrock-unpriced")
    block = line["ai"]["proxy"]
    line["ai"] = {"ai-proxy": block, "ai-rag-injector": block, "ai-proxy-advanced": block}
    request_id = line["request"]["id"]
    expected = {request_id, f"{request_id}:ai-proxy", f"{request_id}:ai-rag-injector"}
    for blocks in (line["ai"], dict(reversed(line["ai"].items()))):
        records = read("kong", line | {"ai": blocks}).records
        assert expected == {record.request_id for record in records}
        assert "plugin" not in next(record.tags for record in records if record.request_id == request_id)


def test_kong_writes_an_empty_list_as_an_object():
    """As Lua does: no target was tried, and the call is kept, with the operation of its path."""
    line = case("kong", "http-log-two-llm-blocks")
    for block in line["ai"].values():
        block["tried_targets"] = {}
    assert ["generate_content"] * 2 == [record.operation for record in read(None, line).records]


def test_kong_counted_in_the_singular_once():
    """Version 3.7 and today's documentation: `prompt_token` and `completion_token`."""
    line = case("kong", "http-log-bedrock-unpriced")
    line["ai"]["ai-proxy"] = line["ai"].pop("proxy")
    line["ai"]["ai-proxy"]["usage"] = {"prompt_token": 28, "completion_token": 20, "total_tokens": 48, "cost": 0.0038}
    record = one("kong", line)
    assert (28, 20, "0.0038") == (record.input_tokens, record.output_tokens, record.cost)


def test_kong_unspecified_stands_for_nothing():
    """It is written where a request was answered before its model was known; the answer's model tells the provider."""
    line = case("kong", "http-log-bedrock-unpriced")
    proxy = line["ai"]["proxy"]
    proxy["meta"] |= {"provider_name": "UNSPECIFIED", "request_model": "UNSPECIFIED", "response_model": "gpt-4o"}
    record = one("kong", line)
    assert ("openai", None, "gpt-4o") == (record.provider, record.request_model, record.response_model)
    proxy["meta"]["response_model"] = "UNSPECIFIED"
    proxy["usage"] = {"prompt_tokens": 0, "completion_tokens": 0, "total_tokens": 0, "cost": 0}
    assert {NOT_AI: 1} == dict(read("kong", line).ignored)


def test_kong_falls_back_to_the_consumers_own_id():
    """And takes whom it authenticated for the key."""
    line = case("kong", "http-log-bedrock-unpriced")
    line["consumer"] = {"username": None, "custom_id": "c-7"}
    assert "c-7" == one("kong", line).user


# -- portkey -----------------------------------------------------------------------------------------------------------


def test_portkey_cents_may_be_text():
    """They become dollars with every digit."""
    row = case("portkey", "analytics-row")
    assert "0.0001234567" == one("portkey", row | {"cost": "0.01234567"}).cost
    assert one("portkey", row | {"cost": 0}).cost is None
    assert "0.0012345678901234567890123456789" == one("portkey", row | {"cost": "0.12345678901234567890123456789"}).cost


@pytest.mark.parametrize("cost", ["1e99999999", "1e-99999999", "1E+15"])
def test_portkey_cents_that_cannot_be_are_rejected(cost: str):
    """Whatever their exponent, and they cost only their own row."""
    row = json.dumps(case("portkey", "analytics-row"))
    outcome = read("portkey", f"{row}\n{row.replace('1.65', cost)}".encode())
    assert (1, [IMPLAUSIBLE]) == (len(outcome.records), [reject.reason for reject in outcome.rejects])


@pytest.mark.parametrize(("said", "status", "cost"), [("semantic HIT", "cached", "0"), ("miss", "ok", None)])
def test_portkey_hits_are_in_a_word(said: str, status: str, cost: str | None):
    """0 cents of a hit are its cost; of a call they are no price."""
    record = one("portkey", case("portkey", "analytics-row") | {"cache_status": said, "cost": 0})
    assert (status, cost) == (record.status, record.cost)


def test_portkey_failures_by_flag_and_by_status():
    """A flag without a status names no type."""
    row = case("portkey", "analytics-row")
    assert "429" == one("portkey", row | {"response_status_code": 429.0, "is_success": 0.0}).error_type
    assert "_OTHER" == one("portkey", row | {"response_status_code": None, "is_success": 0.0}).error_type


def test_portkey_metadata_may_be_json_text_or_uneven_lists():
    """A value without a name is nobody's."""
    row = case("portkey", "analytics-row") | {"user_id": None, "_user": None}
    record = one("portkey", row | {"metadata": json.dumps({"_user": "u", "_environment": "dev", "a": 1})})
    assert ("u", {"environment": "dev", "a": "1"}) == (record.user, record.tags)
    uneven = one("portkey", row | {"metadata": {"key": ["a", None, "b"], "value": ["1", "2"]}})
    assert {"a": "1", "environment": "production"} == uneven.tags


def test_portkey_lines_may_hold_what_a_file_holds():
    """Their own figures come first; where they have none, those of the answer count."""
    line = case("portkey", "log-file") | case("portkey", "analytics-row")
    assert (150, "gpt-4") == (one(None, line).input_tokens, one(None, line).request_model)
    del line["_id"]
    record = one(None, line | dict.fromkeys(("ai_org", "ai_model", "req_units", "res_units")))
    assert (line["id"], 9, "gpt-3.5-turbo") == (record.request_id, record.input_tokens, record.request_model)


def test_portkey_log_files_count_anthropics_cache():
    """Raw Anthropic bodies leave it out of the input; the response id is the identity."""
    file = case("portkey", "log-file")
    file["response"]["body"] = {
        "id": "msg_01AbCdEfGhIjKlMnOpQrStUv",
        "model": "claude-sonnet-4-5",
        "usage": {
            "input_tokens": 21,
            "output_tokens": 3,
            "cache_read_input_tokens": 15093,
            "cache_creation_input_tokens": 9,
        },
    }
    record = one(None, file)
    assert (15123, 15093, 9) == (record.input_tokens, record.cache_read_tokens, record.cache_write_tokens)
    assert digest(2, "msg_01AbCdEfGhIjKlMnOpQrStUv") == record.id


def test_portkey_log_files_never_name_a_masked_key():
    """Neither the key of the caller nor that of the provider."""
    outcome = read("portkey", case("portkey", "log-file"))
    assert "****" not in repr(outcome.records)


# -- bedrock -----------------------------------------------------------------------------------------------------------


def bedrock_record(**changes: Any) -> dict[str, Any]:
    record: dict[str, Any] = case("bedrock", "converse-stream") | changes
    return record


def subscription(*records: Any, kind: str = "DATA_MESSAGE") -> dict[str, Any]:
    events = [
        {"id": str(n), "timestamp": 1, "message": r if isinstance(r, str) else json.dumps(r)}
        for n, r in enumerate(records)
    ]
    return {"messageType": kind, "logGroup": "bedrock", "logStream": "s", "logEvents": events}


def packed(value: Any, *, zipped: bool = True) -> str:
    body = value if isinstance(value, bytes) else json.dumps(value).encode()
    return base64.b64encode(gzip.compress(body) if zipped else body).decode()


def firehose(*data: str) -> dict[str, Any]:
    return {"requestId": "r-1", "timestamp": 1, "records": [{"data": one} for one in data]}


def test_bedrock_in_every_wrapper_is_the_same_call():
    """Bare, a subscription, a Lambda's, Firehose's of lines, and Firehose's of a subscription."""
    record = bedrock_record()
    lines = json.dumps(record).encode() + b"\n"
    wrapped = [
        record,
        [record],
        subscription(record),
        {"awslogs": {"data": packed(subscription(record))}},
        firehose(packed(lines, zipped=False)),
        firehose(packed(lines)),
        firehose(packed(subscription(record))),
    ]
    assert {digest(2, record["requestId"])} == {one(None, body).id for body in wrapped}


def test_bedrock_control_messages_are_passed_over():
    """CloudWatch asks whether somebody is there; the answer is a 2xx like any other."""
    probe = subscription("CWL CONTROL MESSAGE: Checking health of destination Firehose.", kind="CONTROL_MESSAGE")
    outcome = read(None, firehose(packed(probe), packed(subscription(bedrock_record()))))
    assert (1, {NOT_AI: 1}) == (len(outcome.records), dict(outcome.ignored))


def test_bedrock_bad_data_costs_only_itself():
    """No base64, no gzip, no JSON, no text: four rejects that name their place, and the good one is kept."""
    good = packed(subscription(bedrock_record(), "not json"))
    body = firehose("*", packed(b"x", zipped=False), base64.b64encode(b"\x1f\x8bzz").decode(), good)
    body["records"].append({"data": 7})
    outcome = read("bedrock", body)
    assert 1 == len(outcome.records)
    assert [0, 1, 2, 4, 5] == [reject.item for reject in outcome.rejects]
    assert {MALFORMED} == {reject.reason for reject in outcome.rejects}
    assert outcome.rejects[0].message.startswith("records[0].data")


def test_bedrock_records_may_stand_without_anything_between_them():
    """Firehose puts records one behind the other, and so do the files that CloudWatch writes."""
    record = case("bedrock", "converse-stream")
    run = json.dumps(record) + json.dumps(record | {"requestId": "another-request-of-the-same-run"})
    packed = base64.b64encode(gzip.compress(run.encode())).decode()
    for body in (run.encode(), {"requestId": "r", "timestamp": 1, "records": [{"data": packed}]}):
        assert 2 == len(read(None, body).records)


def test_bedrock_bombs_are_rejected_before_they_unfold():
    """One that can never pass costs only itself; a delivery with too much of it is refused as a whole."""
    bomb = base64.b64encode(gzip.compress(bytes(MAX_PIECE + 1), 1)).decode()
    outcome = read("bedrock", firehose(bomb, packed(bedrock_record())))
    assert (1, 1) == (len(outcome.records), len(outcome.rejects))
    assert "unfolds to more than" in outcome.rejects[0].message
    with pytest.raises(Refusal) as refused:
        read("bedrock", [firehose(bomb)] * (MAX_WHOLE // MAX_PIECE + 1))
    assert (413, "body_too_large") == (refused.value.status, refused.value.type)


def test_bedrock_tells_what_it_holds_beside_the_body():
    """So that the doors count it with the bytes of all requests, and can refuse it."""
    held: list[int] = []
    line = json.dumps(bedrock_record()).encode()
    body = json.dumps(firehose(packed(line), packed(line, zipped=False))).encode()
    run(formats.normalise("bedrock", body, options=Options(), hold=held.append))
    assert [len(line)] * 2 == held


def test_bedrock_arns_errors_and_embeddings():
    """A profile's ARN is its last part; an error has a code and no tokens; Titan embeds."""
    arn = "arn:aws:bedrock:us-east-1:123456789012:application-inference-profile/abc123"
    assert "abc123" == one("bedrock", bedrock_record(modelId=arn)).request_model
    failed = one("bedrock", bedrock_record(errorCode="ThrottlingException", input={}, output={}))
    assert ("error", "ThrottlingException", None) == (failed.status, failed.error_type, failed.input_tokens)
    titan = bedrock_record(operation="InvokeModel", modelId="amazon.titan-embed-text-v2:0")
    assert "embeddings" == one("bedrock", titan).operation


def test_bedrock_null_entries_are_passed_over():
    """Wherever they stand: they are no calls, and nothing to complain of."""
    wrapped = subscription(bedrock_record())
    wrapped["logEvents"].append(None)
    outcome = read("bedrock", {"requestId": "r", "timestamp": 1, "records": [None, {"data": packed(wrapped)}]})
    assert (1, {NOT_AI: 2}, []) == (len(outcome.records), dict(outcome.ignored), outcome.rejects)


@pytest.mark.parametrize("said", ["", "-", None])
def test_bedrock_codes_that_stand_for_nothing_are_no_error(said: Any):
    """An empty text is null."""
    assert "ok" == one("bedrock", bedrock_record(errorCode=said)).status


def test_bedrock_whose_principal_is_unknown_has_the_callers_user():
    """The metadata of the request names it."""
    record = one(
        "bedrock", bedrock_record(identity=None, requestMetadata={"userId": "u", "sessionId": "s", "x": {"a": 1}})
    )
    assert ("u", "s", {}) == (record.user, record.session, record.tags)


# -- cloudflare, envoy, helicone ---------------------------------------------------------------------------------------


def test_cloudflare_pages_lists_and_lines_are_alike():
    """An empty page is understood, too."""
    entry = case("cloudflare", "log-single-failed")
    lines = b"\n".join(json.dumps(entry | {"id": str(n)}).encode() for n in range(2))
    assert 2 == len(read(None, lines).records)
    assert 2 == len(read(None, {"result": [entry, entry | {"id": "x"}], "success": True}).records)
    assert 0 == read(None, {"result": [], "result_info": {"count": 0}, "success": True}).received


def test_cloudflare_prices_and_types():
    """0 of a call is no price; without a path the request's type tells; a failure without a status is of no type."""
    entry = case("cloudflare", "logs-list")["result"][0]
    record = one("cloudflare", entry | {"cost": 0, "path": None, "request_type": "embedding"})
    assert (None, "embeddings") == (record.cost, record.operation)
    assert "_OTHER" == one("cloudflare", entry | {"success": False, "status_code": 0}).error_type


@pytest.mark.parametrize("success", [True, None])
def test_cloudflare_statuses_of_400_or_more_are_errors(success: bool | None):
    """Whatever the flag says, and a cached answer is none then."""
    entry = case("cloudflare", "logs-list")["result"][1]
    record = one("cloudflare", entry | {"success": success, "status_code": 502})
    assert ("error", "502") == (record.status, record.error_type)


def test_envoy_where_nobody_answered():
    """Code 0 is an error of the flags' type, also when the code is text."""
    line = case("envoy_ai_gateway", "access-log-line")
    assert "UF,URX" == one("envoy_ai_gateway", line | {"response_code": 0, "response_flags": "UF,URX"}).error_type
    assert "_OTHER" == one("envoy_ai_gateway", line | {"response_code": "0"}).error_type


def test_envoy_numbers_may_be_text():
    """And what is unknown a dash."""
    line = case("envoy_ai_gateway", "access-log-line") | {
        "gen_ai.usage.input_tokens": "15",
        "gen_ai.usage.output_tokens": "-",
        "duration": "1526",
        "response_code": "200",
        "gen_ai.usage.cached_input_tokens": "12",
        "gen_ai.request.model_override": "-",
        "session.id": "s-1",
    }
    record = one(None, line)
    assert (15, None, 12, "ok") == (record.input_tokens, record.output_tokens, record.cache_read_tokens, record.status)
    assert ("gpt-4o-mini", "s-1", "2025-08-30T16:51:39.42Z") == (
        record.request_model,
        record.session,
        rfc3339(record.end_time),
    )


def test_envoys_first_versions_had_keys_of_their_own():
    """What the documents of that time wrote under `genai_*` is the same call."""
    line = case("envoy_ai_gateway", "access-log-line")
    old = {
        "genai_backend_name": line.pop("gen_ai.provider.name"),
        "genai_model_name": line.pop("gen_ai.request.model"),
        "genai_model_name_override": line.pop("gen_ai.request.model_override"),
        "genai_tokens_input": line.pop("gen_ai.usage.input_tokens"),
        "genai_tokens_output": line.pop("gen_ai.usage.output_tokens"),
    }
    assert one(None, case("envoy_ai_gateway", "access-log-line")) == one(None, line | old)
    assert "gpt-4o" == one(None, line | old | {"genai_model_name_override": "gpt-4o"}).request_model


def test_envoy_lines_without_a_model_are_no_calls():
    """Also when a filter wrote token counts of zero on them."""
    line = case("envoy_ai_gateway", "access-log-line")
    models = [name for name in line if name.startswith("gen_ai.") and "model" in name]
    assert [] == read("envoy_ai_gateway", line | dict.fromkeys(models, "-")).records


def test_envoy_lines_may_hold_the_answers_model_alone():
    """It tells the provider where the backend is a path."""
    line = case("envoy_ai_gateway", "access-log-line") | {
        "gen_ai.request.model": "-",
        "gen_ai.response.model": "gpt-4o",
    }
    record = one("envoy_ai_gateway", line)
    assert ("openai", None, "gpt-4o") == (record.provider, record.request_model, record.response_model)


def test_envoys_request_id_is_the_callers_choice():
    """So two calls that share it are told apart by their tokens and time; rule 3."""
    line = case("envoy_ai_gateway", "access-log-line")
    outcome = read("envoy_ai_gateway", [line, line | {"gen_ai.usage.output_tokens": 8}])
    assert 2 == len({record.id for record in outcome.records})
    assert [2, 2] == [len(found.lookups) for found in outcome.identities]


def test_helicone_truncated_bodies_tell_nothing():
    """A body that was cut is no JSON; the call has a model all the same."""
    hook = case("helicone", "webhook-standard-json-bodies")
    record = one("helicone", hook | {"response_body": hook["response_body"][:60]})
    assert ("gpt-4o-mini", None, None) == (record.request_model, record.input_tokens, record.response_model)


def test_helicone_bodies_may_be_objects_of_anthropic():
    """The cache is not in Anthropic's input, nor in the webhook's count of it; 0 is no price."""
    body = {
        "id": "msg_01AbCdEfGhIjKlMnOpQrStUv",
        "model": "claude-sonnet-4-5",
        "usage": {"input_tokens": 20000, "output_tokens": 3, "cache_read_input_tokens": 500},
    }
    hook = {
        "request_id": "r",
        "request_body": {"model": "claude-sonnet-4-5"},
        "response_body": body,
        "provider": "ANTHROPIC",
        "metadata": {"promptTokens": 20000, "completionTokens": 3, "cost": 0},
    }
    record = one(None, hook)
    assert ("anthropic", 20500, 500, None) == (
        record.provider,
        record.input_tokens,
        record.cache_read_tokens,
        record.cost,
    )


def test_helicone_without_a_time_is_known_by_its_own_id():
    """A short response id repeats on local servers, and only a time would tell such calls apart."""
    record = one("helicone", case("helicone", "webhook-standard-json-bodies"))
    assert digest(5, "helicone", record.request_id) == record.id


# -- bifrost, apisix, higress, agentgateway ----------------------------------------------------------------------------


def test_bifrost_errors_and_several_calls():
    """Each span of the kind is a call; the span's own ids are the identity, as in its OTLP."""
    trace = case("bifrost", "trace-offset-times")
    span = trace["Spans"][2]
    failed = span | {
        "SpanID": "aaaaaaaaaaaaaaaa",
        "Status": "error",
        "Attributes": span["Attributes"] | {"error.type": "timeout"},
    }
    outcome = read(None, trace | {"Spans": [*trace["Spans"], failed, None, 3]})
    assert (6, {NOT_AI: 4}) == (outcome.received, dict(outcome.ignored))
    assert ["ok", "error"] == [record.status for record in outcome.records]
    assert digest(4, trace["TraceID"], "aaaaaaaaaaaaaaaa") == outcome.records[1].id


def test_bifrost_bad_spans_cost_no_other():
    """A trace is one message, and each of its spans an item."""
    trace = case("bifrost", "trace-offset-times")
    span = trace["Spans"][2]
    bad = span | {"SpanID": "b", "Attributes": span["Attributes"] | {"gen_ai.usage.prompt_tokens": -1}}
    outcome = read(None, trace | {"Spans": [bad, span]})
    assert [span["SpanID"]] == [record.span_id for record in outcome.records]
    assert [(0, IMPLAUSIBLE)] == [(reject.item, reject.reason) for reject in outcome.rejects]


@pytest.mark.parametrize(
    "names",
    [
        (
            "input_tokens",
            "output_tokens",
            "cache_read.input_tokens",
            "cache_creation.input_tokens",
            "reasoning.output_tokens",
        ),
        (
            "prompt_tokens",
            "completion_tokens",
            "prompt_token_details.cached_read_tokens",
            "prompt_token_details.cached_write_tokens",
            "completion_token_details.reasoning_tokens",
        ),
    ],
)
def test_bifrost_counts_under_newer_and_older_names(names: tuple[str, ...]):
    """Its releases renamed them; what a call cost does not depend on the release."""
    trace = case("bifrost", "trace-offset-times")
    usage = {f"gen_ai.usage.{name}": number for name, number in zip(names, (100, 50, 20, 10, 5), strict=True)}
    older = {"gen_ai.request.model": "gpt-4o-mini", "gen_ai.virtual_key_name": "vk"}
    trace["Spans"] = [trace["Spans"][2] | {"Name": "llm.call", "Attributes": usage | older}]
    record = one(None, trace)
    assert (100, 50, 20, 10, 5) == (
        record.input_tokens,
        record.output_tokens,
        record.cache_read_tokens,
        record.cache_write_tokens,
        record.reasoning_tokens,
    )
    assert ("vk", None) == (record.api_key, record.operation)


def test_bifrost_without_a_call_is_none():
    """A trace of plugins and health checks."""
    assert {NOT_AI: 1} == dict(read("bifrost", case("bifrost", "trace-offset-times") | {"Spans": None}).ignored)


def test_apisix_entries_without_a_model_are_no_calls():
    """The summary's defaults are empty text and "0"."""
    entry = case("apisix", "http-logger-summary")[0]
    empty = dict.fromkeys(entry["llm_summary"], "") | {"prompt_tokens": "0", "completion_tokens": "0"}
    outcome = read("apisix", [entry | {"llm_summary": empty}, {k: v for k, v in entry.items() if k != "llm_summary"}])
    assert {NOT_AI: 2} == dict(outcome.ignored)


def test_apisix_names_the_end_user_beside_the_consumer():
    """And both ids of the way the request took."""
    entry = case("apisix", "http-logger-summary")[0]
    entry["llm_summary"]["end_user_id"] = "end"
    record = one("apisix", entry | {"service_id": "svc", "response": {"status": 401}})
    assert ("consumer-a", "401") == (record.user, record.error_type)
    assert {"route": "ai-route", "service": "svc", "end_user": "end"} == record.tags


def test_higress_details_are_json_in_json():
    """Three times text; a dash is no call."""
    line = case("higress", "access-log-ai-log")
    log = json.loads(line["ai_log"]) | {
        "input_token_details": json.dumps({"cached_tokens": "4"}),
        "output_token_details": '{"reasoning_tokens": 60}',
        "consumer": "c-1",
    }
    outcome = read(None, [line | {"ai_log": json.dumps(log)}, line | {"ai_log": "-"}])
    (record,) = outcome.records
    assert (4, 60, "c-1") == (record.cache_read_tokens, record.reasoning_tokens, record.user)
    assert {NOT_AI: 1} == dict(outcome.ignored)


def higress_line(outside: dict[str, Any] | None = None, **inside: Any) -> dict[str, Any]:
    line = case("higress", "access-log-ai-log")
    return line | {"ai_log": json.dumps(json.loads(line["ai_log"]) | inside)} | (outside or {})


def test_higress_lines_name_their_trace_and_consumer_beside_the_ai_log():
    """Its default format has the trace; the consumer stands outside where the operator asked for that."""
    record = one(None, higress_line({"trace_id": "463ac35c9f6413ad48485a3953bb6124", "consumer": "c-1"}))
    assert ("463ac35c9f6413ad48485a3953bb6124", "c-1") == (record.trace_id, record.user)
    unnamed = one(None, higress_line({"trace_id": "-", "consumer": "-"}))
    assert (None, None) == (unnamed.trace_id, unnamed.user)


def test_higress_calls_are_known_by_the_providers_response_id():
    """An SDK reports the same id; a short one is nobody's own, and the request's is the caller's choice."""
    response_id = "chatcmpl-9Ri1u4Va0IOdj525McVFHn6RZJU9I"
    assert digest(2, response_id) == one(None, higress_line(chat_id=response_id)).id
    assert one(None, higress_line()).id == one(None, higress_line(chat_id="chatcmpl-7")).id


def test_higress_answers_out_of_its_own_cache_are_cached():
    """Unless the call failed."""
    assert "cached" == one(None, higress_line(cache_status="hit")).status
    assert "ok" == one(None, higress_line(cache_status="miss")).status
    assert "error" == one(None, higress_line({"response_code": "503"}, cache_status="hit")).status


def test_agentgateways_time_is_the_end():
    """The duration leads back, whatever its unit."""
    line = case("agentgateway", "json-log-line")
    starts = {
        took: rfc3339(one("agentgateway", line | {"duration": took}).start_time) for took in ("1.25s", "250us", "0ms")
    }
    assert {
        "1.25s": "2026-02-11T10:00:00Z",
        "250us": "2026-02-11T10:00:01.24975Z",
        "0ms": "2026-02-11T10:00:01.25Z",
    } == starts


def test_agentgateway_before_august_2026_counted_without_the_cache():
    """Which shows only where the input is smaller than its cache."""
    line = case("agentgateway", "json-log-line") | {
        "gen_ai.usage.input_tokens": 50,
        "gen_ai.usage.cache_read.input_tokens": 40,
        "gen_ai.usage.cache_creation.input_tokens": 20,
        "http.status": 500,
    }
    record = one("agentgateway", line)
    assert (110, "500") == (record.input_tokens, record.error_type)


def test_agentgateway_mcp_lines_are_no_calls():
    """They have the same scope, and no model."""
    line = {
        "scope": "request",
        "gateway": "g",
        "route": "r",
        "time": "2026-02-11T10:00:01Z",
        "mcp.method": "tools/call",
    }
    assert {NOT_AI: 1} == dict(read(None, line).ignored)


# -- vertex, azure, openmeter, openrouter ------------------------------------------------------------------------------


def test_vertex_columns_may_be_text_and_times_bigquerys():
    """The id keeps every digit, written as a number or as text."""
    row = case("vertex", "bigquery-row-thoughts")
    exported = row | {
        "logging_time": "2025-09-02 10:14:50.313000 UTC",
        "request_id": "98765432101234567890",
        "full_request": json.dumps(row["full_request"]),
        "full_response": json.dumps(row["full_response"]),
        "otel_log": json.dumps(row["otel_log"]),
    }
    record = one(None, exported)
    assert ("98765432101234567890", 2152, 844, "search") == (
        record.request_id,
        record.input_tokens,
        record.reasoning_tokens,
        record.team,
    )
    assert "4bf92f3577b34da6a3ce929d0e0e4736" == record.trace_id


def test_vertex_ids_in_exponent_form_are_shared_by_others():
    """Their last digits are lost: the text is kept, and the identity looks at tokens and time too."""
    body = json.dumps(case("vertex", "bigquery-row-thoughts")).replace("98765432101234567", "9.8765432E+16").encode()
    outcome = read(None, body)
    assert ["9.8765432E+16"] == [getattr(record, "request_id", None) for record in outcome.records]
    assert [2] == [len(found.lookups) for found in outcome.identities]


@pytest.mark.parametrize("written", ["-9876543210123456789", "98765432101234567.0", "123456789012345678901234567890"])
def test_vertex_ids_stay_as_they_are_written(written: str):
    """Whatever number a column holds."""
    body = json.dumps(case("vertex", "bigquery-row-thoughts")).replace("98765432101234567", written).encode()
    assert written == one(None, body).request_id


@pytest.mark.parametrize("resource", ["models/", "publishers/google/models/", "projects/p/publishers/google/models/"])
def test_vertex_models_may_be_named_as_resources(resource: str):
    """Their last part is the model."""
    row = case("vertex", "bigquery-row-thoughts")
    assert "gemini-2.5-pro" == one(None, row | {"model": resource + "gemini-2.5-pro"}).request_model


@pytest.mark.parametrize(
    ("answer", "error_type"),
    [
        ({"error": {"code": 429, "status": "RESOURCE_EXHAUSTED", "message": "CANARY"}}, "RESOURCE_EXHAUSTED"),
        ({"error": {"code": 429, "message": "CANARY"}}, "429"),
        ({"type": "error", "error": {"type": "overloaded_error", "message": "CANARY"}}, "overloaded_error"),
    ],
)
@pytest.mark.parametrize("write", [dict, json.dumps, lambda answer: "\n " + json.dumps(answer)])
def test_vertex_answers_may_be_errors(answer: Any, error_type: str, write: Any):
    """Google's own and those of its partners, as objects and as text."""
    record = one(None, case("vertex", "bigquery-row-thoughts") | {"full_response": write(answer)})
    assert ("error", error_type, None) == (record.status, record.error_type, record.input_tokens)


def test_vertex_partner_models_count_in_their_own_way():
    """Anthropic's answer stands in the same column; the provider is still Vertex."""
    row = case("vertex", "bigquery-row-thoughts") | {
        "api_method": "streamRawPredict",
        "model": "publishers/anthropic/models/claude-sonnet-4-5",
        "full_response": {
            "id": "msg_vrtx_01AbCdEfGhIjKlMnOpQr",
            "model": "claude-sonnet-4-5@20250929",
            "usage": {"input_tokens": 1, "output_tokens": 2, "cache_read_input_tokens": 40},
        },
    }
    record = one("vertex", row)
    assert ("gcp.vertex_ai", "chat", "claude-sonnet-4-5", 41) == (
        record.provider,
        record.operation,
        record.request_model,
        record.input_tokens,
    )


def test_azure_rows_of_messages_belong_to_the_row_with_figures():
    """In any order, as an Event Hub sends them; seven digits of a second are no hindrance."""
    rows = case("azure_apim", "llm-log-rows")
    outcome = read(None, {"records": rows[::-1]})
    assert (3, 1, {MERGED: 2}) == (outcome.received, len(outcome.records), dict(outcome.ignored))
    assert "2025-11-04T09:12:33.456789Z" == rfc3339(outcome.records[0].start_time)


def test_azure_rows_with_figures_are_calls_without_a_deployment():
    """Models of other providers have none; a row that has neither is a piece of a message."""
    header, *messages = case("azure_apim", "llm-log-rows")
    record = one("azure_apim", header | {"DeploymentName": "", "ModelName": "claude-sonnet-4-5"})
    assert (None, "claude-sonnet-4-5", 1320) == (record.request_model, record.response_model, record.input_tokens)
    assert {MERGED: 2} == dict(read("azure_apim", messages).ignored)


def test_azure_numbers_may_be_text_and_a_long_response_id_is_the_identity():
    """A short one could be anybody's."""
    row = case("azure_apim", "llm-log-rows")[0]
    long = row | {
        "PromptTokens": "1320",
        "RequestId": "chatcmpl-9Ri1u4Va0IOdj525McVFHn6RZJU9I",
        "OperationName": "Embeddings_Create",
    }
    record = one("azure_apim", long)
    assert (1320, "embeddings", digest(2, long["RequestId"])) == (record.input_tokens, record.operation, record.id)
    assert digest(5, "azure_apim", row["CorrelationId"]) == one("azure_apim", row).id


def test_openmeter_events_are_known_by_source_and_id():
    """Alone, in an array, with numbers as text; other events are passed over here."""
    event = case("openmeter", "cloudevent-single")
    event["data"]["prompt_tokens"] = "1320"
    other = event | {"id": "2", "data": {"tokens": 5, "type": "input"}}
    outcome = read(None, [event, other, other | {"data": {"model": "x"}}, other | {"data": "text"}])
    assert {NOT_AI: 3} == dict(outcome.ignored)
    assert [of_event("litellm-proxy", event["id"])] == [record.id for record in outcome.records]


def test_openrouter_stats_that_were_cancelled():
    """Are errors; a price of 0 is real for free models; the native counts are billed."""
    stats = case("openrouter", "generation-stats")
    stats["data"] |= {"cancelled": True, "total_cost": 0, "tokens_prompt": 99}
    record = one(None, stats)
    assert ("error", "cancelled", "0", 10) == (record.status, record.error_type, record.cost, record.input_tokens)
    assert digest(2, stats["data"]["id"]) == record.id


def test_otlp_is_taken_under_any_name():
    """OpenRouter, Cloudflare and others push it to the address they were given."""
    span = case("cloudflare", "otel-span")
    assert 1 == len(read("portkey", span).records) == len(read("otlp/traces", span).records)


def test_a_name_that_is_no_format_is_refused():
    """So is a body that shows none."""
    for format, body in (("smoke", {"id": 1}), (None, {"id": 1}), (None, [])):
        with pytest.raises(formats.BadPayload):
            read(format, body)


@pytest.mark.parametrize("format", [name for name in formats.FORMATS if "/" not in name])
@pytest.mark.parametrize("item", [{}, {"data": None, "metadata": [], "usage": 3}, None])
def test_items_of_an_unknown_shape_are_passed_over(format: str, item: Any):
    """They yield no record, and no error; Langfuse's stand in a batch."""
    outcome = read(format, {"batch": [item, item]} if format == "langfuse" else [item, item])
    assert (2, [], []) == (outcome.received, outcome.records, outcome.rejects)


@pytest.mark.parametrize(
    ("format", "name", "path"),
    [
        ("kong", "http-log-bedrock-unpriced", ("ai", "proxy", "usage", "prompt_tokens")),
        ("bedrock", "converse-stream", ("input", "inputTokenCount")),
        ("cloudflare", "log-single-failed", ("tokens_in",)),
        ("portkey", "analytics-row", ("req_units",)),
        ("openmeter", "cloudevent-single", ("data", "prompt_tokens")),
        ("agentgateway", "json-log-line", ("gen_ai.usage.input_tokens",)),
    ],
)
@pytest.mark.parametrize(("value", "reason"), [(-1, IMPLAUSIBLE), (1.5, IMPLAUSIBLE), ("CANARY", MALFORMED)])
def test_counts_that_cannot_be_are_rejected_by_name(
    format: str, name: str, path: tuple[str, ...], value: Any, reason: str
):
    """Never negative, never a fraction, and never the value in the message."""
    payload = inner = case(format, name)
    for step in path[:-1]:
        inner = inner[step]
    inner[path[-1]] = value
    outcome = read(format, payload)
    assert [reason] == [reject.reason for reject in outcome.rejects]
    assert path[-1] in outcome.rejects[0].message
    assert "CANARY" not in outcome.rejects[0].message
