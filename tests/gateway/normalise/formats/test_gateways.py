"""
Special cases of the other gateways, one payload each, from their documentation. The example cases do
not cover them.
"""

from __future__ import annotations

import json
from typing import Any

import pytest

from gateway.core.errors import BadPayload
from gateway.normalise.formats.list import FORMAT_NAMES
from gateway.normalise.outcome import IMPLAUSIBLE, MALFORMED, NOT_AI, UNRECOGNISED_AI, ReadOptions
from spool.identity import dedup_key_of_cloud_event, dedup_key_of_parts
from spool.record import UsageMetric, rfc3339
from tests.gateway.normalise.formats.payloads import case, one, read
from tests.gateway.normalise.outcomes import inferences


@pytest.mark.parametrize("block", ["ai-proxy", "ai-proxy-advanced"])
def test_kong_older_blocks_get_the_request_id(block: str) -> None:
    """
    In older Kong versions, the block has the plugin's name instead of `proxy`. It still gets the request's id.
    """
    line = case("kong", "http-log-bedrock-unpriced")
    line["ai"] = {block: line["ai"]["proxy"]}
    record = one(None, line)
    assert line["request"]["id"] == record.request_id
    assert "plugin" not in record.tags
    assert dedup_key_of_parts(5, "kong", record.request_id) == record.id


def test_kong_a_bad_block_costs_no_other() -> None:
    """Only the bad block of a line is rejected. The other call is counted, and the accounting balances."""
    line = case("kong", "http-log-bedrock-unpriced")
    good = line["ai"]["proxy"]
    line["ai"] = {"proxy": good | {"usage": good["usage"] | {"prompt_tokens": -1}}, "ai-llm-as-judge": good}
    outcome = read("kong", line)
    (record,) = inferences(outcome)
    assert f"{line['request']['id']}:ai-llm-as-judge" == record.request_id
    assert [(0, IMPLAUSIBLE)] == [(reject.item, reject.reason) for reject in outcome.rejects]
    assert outcome.received == 1
    assert outcome.split == 1


def test_kong_plain_requests_on_the_same_logger_are_no_calls() -> None:
    """Lines of plain requests have no `ai`, or a block of a plugin that made no call."""
    line = case("kong", "http-log-bedrock-unpriced")
    del line["ai"]
    guarded = line | {"ai": {"ai-prompt-guard": {"meta": {}}, "proxy": {"meta": {"request_model": "x"}}}}
    outcome = read(None, [line, guarded, line | {"ai": []}])
    assert outcome.records == []
    assert dict(outcome.ignored) == {NOT_AI: 3}


def test_kong_errors_carry_their_status() -> None:
    """A Kong error has its HTTP status as type and is not a cache hit, even if the block says so."""
    line = case("kong", "http-log-batch-priced-and-cache-hit")[1]
    record = one("kong", line | {"response": {"status": 503}})
    assert record.status == "error"
    assert record.error_type == "503"
    assert record.cost == "0"


def test_kong_two_calls_of_one_line_are_split() -> None:
    """If one line has two calls, the accounting counts the second call as split."""
    outcome = read("kong", case("kong", "http-log-two-llm-blocks"))
    assert outcome.received == 1
    assert outcome.split == 1
    assert len(outcome.records) == 2


@pytest.mark.timeout(120)
def test_kong_objects_in_json_text_are_read_once_for_all_blocks() -> None:
    """JSON text of a line is decoded once for all blocks, because a line may have thousands of blocks."""
    line = case("kong", "http-log-two-llm-blocks")
    block = line["ai"]["ai-llm-as-judge"]
    consumer = json.dumps({"username": "alice", "padding": "\ud83d" * 250_000})
    outcome = read("kong", line | {"consumer": consumer, "ai": {str(n): block for n in range(1000)}})
    assert ["alice"] * 1000 == [record.user for record in outcome.records]


def test_kong_two_proxies_of_one_line_are_named_alike_in_any_order() -> None:
    """
    If a line has two proxy blocks, the block with the newest name gets the request's id, in any order. Other
    blocks have separate ids.
    """
    line = case("kong", "http-log-bedrock-unpriced")
    block = line["ai"]["proxy"]
    line["ai"] = {"ai-proxy": block, "ai-rag-injector": block, "ai-proxy-advanced": block}
    request_id = line["request"]["id"]
    expected = {request_id, f"{request_id}:ai-proxy", f"{request_id}:ai-rag-injector"}
    for blocks in (line["ai"], dict(reversed(line["ai"].items()))):
        records = inferences(read("kong", line | {"ai": blocks}))
        assert expected == {record.request_id for record in records}
        assert "plugin" not in next(record.tags for record in records if record.request_id == request_id)


def test_kong_writes_an_empty_list_as_an_object() -> None:
    """Lua writes an empty list as an object. The call is stored, with the operation of its path."""
    line = case("kong", "http-log-two-llm-blocks")
    for block in line["ai"].values():
        block["tried_targets"] = {}
    assert ["generate_content"] * 2 == [record.operation for record in inferences(read(None, line))]


def test_kong_counted_in_the_singular_once() -> None:
    """
    Kong 3.7 and its documentation write `prompt_token` and `completion_token` in the singular. They count once.
    """
    line = case("kong", "http-log-bedrock-unpriced")
    line["ai"]["ai-proxy"] = line["ai"].pop("proxy")
    line["ai"]["ai-proxy"]["usage"] = {
        "prompt_token": 28,
        "completion_token": 20,
        "total_tokens": 48,
        "cost": 0.0038,
    }
    record = one("kong", line)
    assert record.input_tokens == 28
    assert record.output_tokens == 20
    assert record.cost == "0.0038"


def test_kong_did_not_name_its_first_plugin() -> None:
    """Kong 3.6 has `meta` and `usage` without the name of a plugin."""
    line = case("kong", "http-log-bedrock-unpriced")
    block = line["ai"]["proxy"]
    del block["tried_targets"]
    first = line | {"ai": {"meta": block["meta"], "usage": block["usage"], "payload": {"request": "CANARY"}}}
    assert one(None, line) == one(None, first)


def test_kong_unspecified_states_no_provider() -> None:
    """
    Kong writes UNSPECIFIED if a request was answered before its model was known. The answer's model
    gives the provider.
    """
    line = case("kong", "http-log-bedrock-unpriced")
    proxy = line["ai"]["proxy"]
    proxy["meta"] |= {
        "provider_name": "UNSPECIFIED",
        "request_model": "UNSPECIFIED",
        "response_model": "gpt-4o",
    }
    record = one("kong", line)
    assert record.provider == "openai"
    assert record.request_model is None
    assert record.response_model == "gpt-4o"
    proxy["meta"]["response_model"] = "UNSPECIFIED"
    proxy["usage"] = {"prompt_tokens": 0, "completion_tokens": 0, "total_tokens": 0, "cost": 0}
    assert {NOT_AI: 1} == dict(read("kong", line).ignored)


def test_kong_falls_back_to_the_consumers_own_id() -> None:
    """
    If nothing else names the user, the user is the id of Kong's consumer, because the consumer
    authenticated the request.
    """
    line = case("kong", "http-log-bedrock-unpriced")
    line["consumer"] = {"username": None, "custom_id": "c-7"}
    assert "c-7" == one("kong", line).user


CACHED = {"prompt_tokens": 5000, "completion_tokens": 40, "total_tokens": 5040}


@pytest.mark.parametrize(
    ("provider", "usage", "expected"),
    [
        ("anthropic", {"cache_read_input_tokens": 2028, "cache_creation_input_tokens": 288}, 7316),
        ("bedrock", {"cache_read_input_tokens": 2028, "cache_creation_input_tokens": 288}, 7316),
        ("anthropic", {"prompt_tokens_details": {"cached_tokens": 2028}}, 5000),
        ("openai", {"prompt_tokens_details": {"cached_tokens": 2028}}, 5000),
        ("deepseek", {"cache_read_input_tokens": 2028}, 5000),
    ],
)
def test_kong_passes_on_anthropics_input_without_the_cache(
    provider: str, usage: dict[str, Any], expected: int
) -> None:
    """Anthropic's own cache fields show that the input excludes cached tokens."""
    line = case("kong", "http-log-bedrock-unpriced")
    block = line["ai"]["proxy"]
    block["meta"] |= {"provider_name": provider}
    block["usage"] = CACHED | usage
    assert expected == one("kong", line).input_tokens


def test_portkey_a_hook_before_the_request_is_no_call() -> None:
    """
    Portkey's hook before the request gives no record, because the hook after the request reports the call.
    """
    hook = case("portkey", "log-hook-claude")
    before = hook | {"response": {"json": {}, "text": "", "statusCode": None}}
    outcome = read(None, [before, hook])
    assert [hook["response"]["json"]["id"]] == [record.request_id for record in inferences(outcome)]


def test_portkey_hook_reports_failures_and_streams() -> None:
    """
    Portkey's hook also reports failures and streams. Without a JSON answer, the HTTP status gives the outcome.
    """
    hook = case("portkey", "log-hook-claude")
    failed = one(None, hook | {"response": {"json": {"error": {"message": "CANARY"}}, "statusCode": 429}})
    assert failed.status == "error"
    assert failed.error_type == "429"
    assert failed.input_tokens is None
    assert "ok" == one(None, hook | {"response": {"json": None, "statusCode": 200}}).status


def test_portkey_a_hook_with_the_providers_own_body() -> None:
    """If a Portkey request goes to Anthropic's address, its answer has Anthropic's format."""
    hook = case("portkey", "log-hook-claude") | {"requestType": "messages"}
    hook["response"]["json"]["usage"] = {
        "input_tokens": 12,
        "output_tokens": 40,
        "cache_read_input_tokens": 2028,
    }
    record = one(None, hook)
    assert record.operation == "chat"
    assert record.input_tokens == 2040
    assert record.cache_read_tokens == 2028


def test_the_amount_that_xai_charged_is_the_cost_at_each_gateway_with_its_body() -> None:
    """The provider's amount is stronger than a gateway's estimate. A cached answer repeats it, and costs nothing."""
    usage = {"prompt_tokens": 32, "completion_tokens": 9, "total_tokens": 41, "cost_in_usd_ticks": 37_756_000}
    body = {"id": "chatcmpl-1", "model": "grok-4", "usage": usage}
    hook = case("portkey", "log-hook-claude")
    hook["response"]["json"] = body
    webhook = {
        "request_id": "r",
        "request_body": {"model": "grok-4"},
        "response_body": body,
        "model": "grok-4",
    }
    row = {"databricks_request_id": "d", "request": {"model": "grok-4"}, "response": body}
    for sent, format in ((hook, "portkey"), (webhook, "helicone"), (row, "databricks")):
        assert "0.0037756" == one(format, sent).cost, format
    file = {"metrics": {"cost": 1}, "request": {"body": {"model": "grok-4"}, "url": "/v1/chat/completions"}}
    answer = {"body": body, "status": 200}
    assert "0.0037756" == one("portkey", file | {"response": answer}).cost
    cached = answer | {"headers": {"x-portkey-cache-status": "HIT"}}
    assert "0.01" == one("portkey", file | {"response": cached}).cost


def test_portkey_cents_may_be_text() -> None:
    """Cents become dollars without losing a digit."""
    row = case("portkey", "analytics-row")
    assert "0.0001234567" == one("portkey", row | {"cost": "0.01234567"}).cost
    assert one("portkey", row | {"cost": 0}).cost is None
    assert (
        "0.0012345678901234567890123456789"
        == one("portkey", row | {"cost": "0.12345678901234567890123456789"}).cost
    )


@pytest.mark.parametrize("cost", ["1e99999999", "1e-99999999", "1E+15"])
def test_portkey_cents_that_cannot_be_are_rejected(cost: str) -> None:
    """An impossible exponent rejects only its own row."""
    row = json.dumps(case("portkey", "analytics-row"))
    outcome = read("portkey", f"{row}\n{row.replace('1.65', cost)}".encode())
    assert len(outcome.records) == 1
    assert [reject.reason for reject in outcome.rejects] == [IMPLAUSIBLE]


@pytest.mark.parametrize(("said", "status", "cost"), [("semantic HIT", "cached", "0"), ("miss", "ok", None)])
def test_portkey_hits_are_in_a_word(said: str, status: str, cost: str | None) -> None:
    """
    Portkey states a cache hit as a word. For a hit, 0 cents is the cost. For a call, 0 cents
    means an unknown price.
    """
    record = one("portkey", case("portkey", "analytics-row") | {"cache_status": said, "cost": 0})
    assert record.status == status
    assert record.cost == cost


def test_portkey_failures_by_flag_and_by_status() -> None:
    """Failures are recognized by a flag and by the status. A flag without a status gives no error type."""
    row = case("portkey", "analytics-row")
    assert "429" == one("portkey", row | {"response_status_code": 429.0, "is_success": 0.0}).error_type
    assert "_OTHER" == one("portkey", row | {"response_status_code": None, "is_success": 0.0}).error_type


def test_portkey_metadata_may_be_json_text_or_uneven_lists() -> None:
    """
    Portkey's metadata may be JSON text, or two lists of names and values of different length. A value without
    a name is dropped.
    """
    row = case("portkey", "analytics-row") | {"user_id": None, "_user": None}
    record = one("portkey", row | {"metadata": json.dumps({"_user": "u", "_environment": "dev", "a": 1})})
    assert record.user == "u"
    assert record.tags == {"environment": "dev", "a": "1"}
    uneven = one("portkey", row | {"metadata": {"key": ["a", None, "b"], "value": ["1", "2"]}})
    assert {"a": "1", "environment": "production"} == uneven.tags


def test_portkey_lines_may_hold_what_a_file_holds() -> None:
    """
    A row may also have the content of a log file. The row's own values have priority over those of the answer.
    """
    line = case("portkey", "log-file") | case("portkey", "analytics-row")
    assert one(None, line).input_tokens == 150
    assert one(None, line).request_model == "gpt-4"
    del line["_id"]
    record = one(None, line | dict.fromkeys(("ai_org", "ai_model", "req_units", "res_units")))
    assert line["id"] == record.request_id
    assert record.input_tokens == 9
    assert record.request_model == "gpt-3.5-turbo"


def test_portkey_rows_of_the_store_have_dotted_columns() -> None:
    """Rows of Portkey's store have columns with dotted names. An unknown model counts as null."""
    row = case("portkey", "analytics-row")
    facts = row.pop("metadata")
    dotted = row | {"metadata.key": facts["key"], "metadata.value": facts["value"]}
    assert one(None, row | {"metadata": facts}) == one(None, dotted)
    assert None is one("portkey", dotted | {"ai_model": "NA"}).request_model


def test_portkey_log_files_may_hold_their_row() -> None:
    """
    A Portkey log file may contain its analytics row, which has the price. If bodies are not logged, the row
    is the only source, and its time is a JavaScript date string.
    """
    file, row = case("portkey", "log-file"), case("portkey", "analytics-row")
    file |= {"metrics": row, "created_at": "Wed Aug 28 2024 10:30:45 GMT+0000 (Coordinated Universal Time)"}
    record = one(None, file)
    assert record.input_tokens == 9
    assert record.cost == "0.0165"
    assert rfc3339(record.start_time) == "2024-08-28T10:30:45.123Z"
    del file["request"]["body"], file["response"]["body"]
    assert one("portkey", row) == one(None, file)


def test_portkey_log_files_count_anthropics_cache() -> None:
    """
    Anthropic's raw bodies in Portkey's log files exclude cached tokens from the input. The response id is
    the dedup key.
    """
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
    assert record.input_tokens == 15123
    assert record.cache_read_tokens == 15093
    assert record.cache_write_tokens == 9
    assert dedup_key_of_parts(2, "msg_01AbCdEfGhIjKlMnOpQrStUv") == record.id


def test_portkey_log_files_never_name_a_masked_key() -> None:
    """
    Masked keys in Portkey's log files are never used as names, neither the caller's key nor the provider's key.
    """
    outcome = read("portkey", case("portkey", "log-file"))
    assert "****" not in repr(outcome.records)


def test_cloudflare_pages_lists_and_lines_are_alike() -> None:
    """Cloudflare's pages, lists and lines give the same calls. An empty page is recognized as well."""
    entry = case("cloudflare", "log-single-failed")
    lines = b"\n".join(json.dumps(entry | {"id": str(n)}).encode() for n in range(2))
    assert 2 == len(read(None, lines).records)
    assert 2 == len(read(None, {"result": [entry, entry | {"id": "x"}], "success": True}).records)
    assert 0 == read(None, {"result": [], "result_info": {"count": 0}, "success": True}).received


def test_cloudflare_prices_and_types() -> None:
    """
    For a Cloudflare call, a price of 0 is unknown. Without a path, the request type decides about the
    operation. A failure without a status has no type.
    """
    entry = case("cloudflare", "logs-list")["result"][0]
    record = one("cloudflare", entry | {"cost": 0, "path": None, "request_type": "embedding"})
    assert record.cost is None
    assert record.operation == "embeddings"
    assert "_OTHER" == one("cloudflare", entry | {"success": False, "status_code": 0}).error_type


@pytest.mark.parametrize("success", [True, None])
def test_cloudflare_statuses_of_400_or_more_are_errors(success: bool | None) -> None:
    """A Cloudflare status of 400 or more is an error and no cache hit, whatever the success flag says."""
    entry = case("cloudflare", "logs-list")["result"][1]
    record = one("cloudflare", entry | {"success": success, "status_code": 502})
    assert record.status == "error"
    assert record.error_type == "502"


def test_envoy_where_nobody_answered() -> None:
    """
    If no backend answered, Envoy writes code 0, as a number or as text. This is an error, and its type is
    the response flags.
    """
    line = case("envoy_ai_gateway", "access-log-line")
    assert (
        "UF,URX"
        == one("envoy_ai_gateway", line | {"response_code": 0, "response_flags": "UF,URX"}).error_type
    )
    assert "_OTHER" == one("envoy_ai_gateway", line | {"response_code": "0"}).error_type


def test_envoy_numbers_may_be_text() -> None:
    """Envoy's numbers may be text. A dash means an unknown value."""
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
    assert record.input_tokens == 15
    assert record.output_tokens is None
    assert record.cache_read_tokens == 12
    assert record.status == "ok"
    assert record.request_model == "gpt-4o-mini"
    assert record.session == "s-1"
    assert rfc3339(record.end_time) == "2025-08-30T16:51:39.42Z"


def test_envoys_first_versions_had_keys_of_their_own() -> None:
    """
    Envoy's first versions and their documentation used keys that start with `genai_`. They give the same call.
    """
    line = case("envoy_ai_gateway", "access-log-line")
    old = {
        "genai_backend_name": line.pop("gen_ai.provider.name"),
        "genai_model_name": line.pop("gen_ai.request.model"),
        "genai_model_name_override": line.pop("gen_ai.request.model_override"),
        "genai_tokens_input": line.pop("gen_ai.usage.input_tokens"),
        "genai_tokens_output": line.pop("gen_ai.usage.output_tokens"),
    }
    assert one(None, case("envoy_ai_gateway", "access-log-line")) == one(None, line | old)
    both = line | old | dict.fromkeys(case("envoy_ai_gateway", "access-log-line").keys() - line.keys(), "-")
    assert one(None, case("envoy_ai_gateway", "access-log-line")) == one(None, both)
    assert "gpt-4o" == one(None, line | old | {"genai_model_name_override": "gpt-4o"}).request_model


def test_envoy_lines_without_a_model_are_no_calls() -> None:
    """A line without a model is not a call, even if a filter added token counts of zero."""
    line = case("envoy_ai_gateway", "access-log-line")
    models = [name for name in line if name.startswith("gen_ai.") and "model" in name]
    assert [] == read("envoy_ai_gateway", line | dict.fromkeys(models, "-")).records


def test_envoy_lines_may_hold_the_answers_model_alone() -> None:
    """
    If an Envoy line has only the answer's model, the call has this model. If the backend is a path, the model
    also gives the provider.
    """
    line = case("envoy_ai_gateway", "access-log-line") | {
        "gen_ai.request.model": "-",
        "gen_ai.response.model": "gpt-4o",
    }
    record = one("envoy_ai_gateway", line)
    assert record.provider == "openai"
    assert record.request_model is None
    assert record.response_model == "gpt-4o"


def test_envoys_request_id_is_the_callers_choice() -> None:
    """Two calls may share a request id, so tokens and time also distinguish them (dedup rule 3)."""
    line = case("envoy_ai_gateway", "access-log-line")
    outcome = read("envoy_ai_gateway", [line, line | {"gen_ai.usage.output_tokens": 8}])
    assert 2 == len({record.id for record in outcome.records})
    assert [2, 2] == [len(found.lookups) for found in outcome.identities]


def test_helicone_truncated_body_leaves_only_webhook_fields() -> None:
    """
    A truncated body in Helicone's webhook is no JSON and tells nothing, but the webhook itself still
    names the model.
    """
    hook = case("helicone", "webhook-standard-json-bodies")
    record = one("helicone", hook | {"response_body": hook["response_body"][:60]})
    assert record.request_model == "gpt-4o-mini"
    assert record.input_tokens is None
    assert record.response_model is None


def test_helicone_bodies_may_be_objects_of_anthropic() -> None:
    """
    Helicone's bodies may be objects of Anthropic. Cached tokens are neither in Anthropic's input nor in the
    webhook's count. A cost of 0 is not a price.
    """
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
    assert record.provider == "anthropic"
    assert record.input_tokens == 20500
    assert record.cache_read_tokens == 500
    assert record.cost is None


def test_helicone_without_a_time_is_known_by_its_own_id() -> None:
    """
    A Helicone call without a time gets Helicone's own id. A short response id may repeat on local servers
    and, without a time, could not tell such calls apart.
    """
    record = one("helicone", case("helicone", "webhook-standard-json-bodies"))
    assert dedup_key_of_parts(5, "helicone", record.request_id) == record.id


def test_openmeter_events_are_known_by_source_and_id() -> None:
    """Events are sent as single objects or in an array, with numbers as text. Other events are ignored."""
    event = case("openmeter", "cloudevent-single")
    event["data"]["prompt_tokens"] = "1320"
    other = event | {"id": "2", "data": {"tokens": 5, "type": "input"}}
    outcome = read(None, [event, other, other | {"data": {"model": "x"}}, other | {"data": "text"}])
    assert {NOT_AI: 1, UNRECOGNISED_AI: 2} == dict(outcome.ignored)
    assert [dedup_key_of_cloud_event("litellm-proxy", event["id"])] == [
        record.id for record in outcome.records
    ]


def test_openmeter_an_id_that_can_be_a_response_id_is_one() -> None:
    """
    If an OpenMeter event's id may be a response id, it is used as one, because LiteLLM's callback does so.
    The event's source and id also identify the call.
    """
    event = case("openmeter", "cloudevent-single") | {"id": "chatcmpl-0123456789abcdef"}
    (identity,) = read(None, event).identities
    assert dedup_key_of_parts(2, event["id"]) == identity.id
    assert (dedup_key_of_cloud_event("litellm-proxy", event["id"]),) == identity.lookups


@pytest.mark.parametrize(
    ("type", "expected"),
    [
        ("input", "input"),
        ("system", "input"),
        ("output", "output"),
        ("request", "input"),
        ("response", "output"),
    ],
)
def test_openmeters_standard_event_is_a_count(type: str, expected: str) -> None:
    """OpenMeter's standard event has one token count of one type, so it is a counter and not a call."""
    data = {"tokens": "123456", "model": "gpt4-turbo", "type": type}
    event = {
        "specversion": "1.0",
        "type": "prompt",
        "id": "00001",
        "source": "chat-app",
        "subject": "customer-1",
    }
    outcome = read(None, event | {"data": data}, options=ReadOptions(explain=True))
    (record,) = outcome.records
    assert isinstance(record, UsageMetric)
    assert record.model == "gpt4-turbo"
    assert record.token_type == expected
    assert record.value == 123_456
    assert record.user == "customer-1"
    assert {"service": "chat-app"} == record.tags
    assert dedup_key_of_cloud_event("chat-app", "00001") == record.id
    assert outcome.why is not None
    assert "data.tokens" == outcome.why[0]["value"]


@pytest.mark.parametrize("type", ["other", None])
def test_a_count_of_no_known_type_is_shown(type: str | None) -> None:
    """A count without a known token type is shown as unrecognized, because it cannot be added to any sum."""
    data = {"tokens": "123456", "model": "gpt4-turbo", "type": type}
    outcome = read(
        "openmeter", {"specversion": "1.0", "type": "prompt", "id": "00001", "source": "app", "data": data}
    )
    assert outcome.records == []
    assert dict(outcome.ignored) == {UNRECOGNISED_AI: 1}
    assert {"data.model", "data.tokens"} <= set(outcome.unrecognised[0])


def test_kongs_metering_events_are_kongs_counters() -> None:
    """
    Kong's metering events are counters. An event for a request and one for its response each report one
    number as text. Events that count requests have no tokens.
    """
    event = {"specversion": "1.0", "source": "kong-gw", "subject": "alice", "time": "2026-11-20T10:00:00Z"}
    data = {"model": "gpt-6-sol", "provider": "openai", "service_name": "chat"}
    pair = [
        event
        | {"id": "e1", "type": "kong.llm_request", "data": data | {"type": "request", "tokens": "1200"}},
        event | {"id": "e2", "type": "kong.llm_request", "data": data | {"type": "response", "tokens": "35"}},
        event | {"id": "e3", "type": "kong.api_request", "data": {"service_name": "chat"}},
    ]
    outcome = read("openmeter", pair)
    assert {NOT_AI: 1} == dict(outcome.ignored)
    assert [("kong", "input", 1200, "alice", "chat"), ("kong", "output", 35, "alice", "chat")] == [
        (one.source, one.token_type, one.value, one.user, one.tags["service"])
        for one in outcome.records
        if isinstance(one, UsageMetric)
    ]


def test_names_of_models_and_tokens_that_nothing_took_are_shown() -> None:
    """
    Names of models and tokens that no rule read are shown to the operator without values, in every format.
    Empty members are not listed.
    """
    line = {
        "started_at": 1,
        "latencies": {},
        "ai": {"new-plugin": {}},
        "usage": {"input_tokens": 5, "text": "CANARY"},
    }
    outcome = read("kong", [line, line | {"usage": {"input_tokens": 0, "model": ""}}])
    assert {UNRECOGNISED_AI: 1, NOT_AI: 1} == dict(outcome.ignored)
    assert [("usage.input_tokens", "ai", "latencies", "started_at", "usage")] == outcome.unrecognised


@pytest.mark.parametrize(
    ("said", "cost", "byok"),
    [
        ({"is_byok": False, "total_cost": 0.0015, "upstream_inference_cost": 0.0012}, "0.0015", None),
        ({"is_byok": True, "total_cost": 0, "upstream_inference_cost": 0.0012}, "0.0012", "true"),
        ({"is_byok": True, "total_cost": 0.0001, "upstream_inference_cost": None}, "0.0001", "true"),
    ],
)
def test_openrouter_with_an_own_key_costs_what_the_provider_charged(
    said: dict[str, Any], cost: str, byok: str | None
) -> None:
    """
    With the customer's own key, the cost is what the provider charged, because OpenRouter's total is then 0
    or only its fee.
    """
    stats = case("openrouter", "generation-stats")
    record = one("openrouter", {"data": stats["data"] | said})
    assert record.cost == cost
    assert record.tags.get("byok") == byok


def test_openrouters_call_is_that_of_the_provider() -> None:
    """
    A call reported by OpenRouter and by the provider is one call, because the provider's long response id is
    a second dedup key.
    """
    data = case("openrouter", "generation-stats")["data"]
    (known,) = read("openrouter", {"data": data}).identities
    assert dedup_key_of_parts(2, data["id"]) == known.id
    assert (dedup_key_of_parts(2, data["upstream_id"]),) == known.also
    (short,) = read("openrouter", {"data": data | {"upstream_id": "chatcmpl-7"}}).identities
    assert () == short.also


def test_openrouter_stats_that_were_cancelled() -> None:
    """
    A cancelled OpenRouter call is an error. A price of 0 is real for free models, and native token
    counts are billed.
    """
    stats = case("openrouter", "generation-stats")
    stats["data"] |= {"cancelled": True, "total_cost": 0, "tokens_prompt": 99}
    record = one(None, stats)
    assert record.status == "error"
    assert record.error_type == "cancelled"
    assert record.cost == "0"
    assert record.input_tokens == 10
    assert dedup_key_of_parts(2, stats["data"]["id"]) == record.id


def test_otlp_is_accepted_under_any_name() -> None:
    """OpenRouter, Cloudflare and others push OTLP to any address that the user configures."""
    span = case("cloudflare", "otel-span")
    assert 1 == len(read("portkey", span).records) == len(read("otlp/traces", span).records)


def test_a_name_that_is_no_format_is_refused() -> None:
    """An unknown format name is refused, and so is a body of no known format."""
    for format, body in (("smoke", {"id": 1}), (None, {"id": 1}), (None, [])):
        with pytest.raises(BadPayload):
            read(format, body)


@pytest.mark.parametrize("format", [name for name in FORMAT_NAMES if "/" not in name])
@pytest.mark.parametrize("item", [{}, {"data": None, "metadata": [], "usage": 3}, None])
def test_items_of_an_unknown_shape_are_passed_over(format: str, item: Any) -> None:
    """
    Items of an unknown form give neither records nor rejects. For Langfuse, the items are inside a batch.
    """
    outcome = read(format, {"batch": [item, item]} if format == "langfuse" else [item, item])
    assert outcome.received == 2
    assert outcome.records == []
    assert outcome.rejects == []


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
) -> None:
    """An impossible count is rejected with a message that names its field but never its value."""
    payload = inner = case(format, name)
    for step in path[:-1]:
        inner = inner[step]
    inner[path[-1]] = value
    outcome = read(format, payload)
    assert [reason] == [reject.reason for reject in outcome.rejects]
    assert path[-1] in outcome.rejects[0].message
    assert "CANARY" not in outcome.rejects[0].message
