"""Databricks: provider and model of a call, and rows that report the same call."""

from __future__ import annotations

from typing import Any

import pytest

from tests.gateway.normalise.formats.payloads import one, read

HOSTED, PROVISIONED = "PAY_PER_TOKEN_FOUNDATION_MODEL", "PROVISIONED_THROUGHPUT_FOUNDATION_MODEL"
EXTERNAL = "EXTERNAL_FOUNDATION_MODEL"


def row(**fields: Any) -> dict[str, Any]:
    """Create a row of the AI Gateway's usage table."""
    return {
        "event_time": "2026-08-07T14:22:03Z", "endpoint_name": "coding-agents", "request_id": "r-1",
        "api_type": "mlflow/v1/chat/completions", "input_tokens": 10, "output_tokens": 5, **fields,
    }  # fmt: skip


@pytest.mark.parametrize(
    ("type", "name", "model", "expected"),
    [
        (HOSTED, "system.ai.gpt-oss-20b", "GPT OSS 20B", ("databricks", "system.ai.gpt-oss-20b")),
        (
            HOSTED,
            "system.ai.databricks-gte-large-en",
            "gte-large-en",
            ("databricks", "databricks-gte-large-en"),
        ),
        (
            PROVISIONED,
            "my-endpoint",
            "meta-llama-3.3-70b-instruct",
            ("databricks", "meta-llama-3.3-70b-instruct"),
        ),
        (EXTERNAL, "main.gateway.key", "claude-sonnet-4-5", ("anthropic", "claude-sonnet-4-5")),
        (EXTERNAL, "main.gateway.key", None, (None, None)),
        (None, None, None, (None, None)),
    ],
)
def test_a_destination_is_a_model_only_where_databricks_serves_it(
    type: str | None, name: str | None, model: str | None, expected: tuple[str | None, str | None]
) -> None:
    """
    If Databricks serves the model, the destination names it. Otherwise the destination is the name of a
    stored key. A title in `destination_model` is not a model name.
    """
    record = one(None, row(destination_type=type, destination_name=name, destination_model=model))
    assert expected == (record.provider, record.request_model)


def test_calls_of_one_request_differ_by_invocation_id() -> None:
    """Calls of one request differ by `invocation_id`. A repeated row is the same call."""
    rows = [row(invocation_id="i-1"), row(invocation_id="i-2"), row(invocation_id="i-1")]
    first, second, repeated = read(None, rows).identities
    assert first.id == repeated.id != second.id
    assert first.certain


def test_older_rows_have_only_the_id_of_the_request() -> None:
    """Older rows have only the id of the request, so tokens and time distinguish its calls."""
    first, second, repeated = read(None, [row(), row(input_tokens=11), row()]).identities
    assert first.id == repeated.id != second.id


def test_both_tables_of_model_serving_report_one_call() -> None:
    """
    Both tables of Model Serving report the same call. The usage table has the counts. The inference table has
    the answer, with the model and the cached tokens.
    """
    ids = {
        "databricks_request_id": "58db0e4d-2fc8-4861-976c-bc1228a16642",
        "request_time": "2026-07-04T19:40:26.829Z",
    }
    usage = {"prompt_tokens": 30, "completion_tokens": 4, "prompt_tokens_details": {"cached_tokens": 20}}
    answered = {
        "id": "chatcmpl-2f9c0e6e0d0f4a9f8a5b77d6f3f3b001",
        "model": "gpt-4o-2024-08-06",
        "usage": usage,
    }
    in_usage_table = ids | {"input_token_count": 30, "output_token_count": 4}
    in_inference_table = ids | {"response": answered}
    of_usage_table, of_inference_table = read(None, [in_usage_table, in_inference_table]).identities
    assert of_usage_table.id == of_inference_table.id
    record = one(None, in_inference_table)
    assert record.response_model == "gpt-4o-2024-08-06"
    assert record.input_tokens == 30
    assert record.cache_read_tokens == 20
    record = one(None, in_usage_table)
    assert record.response_model is None
    assert record.input_tokens == 30
    assert record.cache_read_tokens is None


def test_tags_of_the_request_go_before_those_of_the_endpoint() -> None:
    """Tags of the request have priority, and both kinds of tags may be JSON text."""
    tags = {"endpoint_tags": '{"team": "platform", "stage": "live"}', "request_tags": {"team": "search"}}
    record = one(None, row(**tags))
    assert record.team == "search"
    assert record.tags == {"stage": "live", "route": "coding-agents"}
