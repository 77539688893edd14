"""
The meters that each source reports.

A provider's answers are taken from Helicone's cases and embedded in the payload of every other source.
`python -m tests.gateway.intake.meter_matrix` prints the table of docs/money/meters.md.
"""

from __future__ import annotations

import asyncio
import json
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gateway.cli.explain import explain_payload
from gateway.configuration.sections import Config
from spool.meters import METERS

ROOT = Path(__file__).parents[2] / "cases"
AT = "2026-11-20T10:00:00Z"
Body = dict[str, Any]
Made = tuple[Any, str | None]  # a payload and its format (None for OTLP)


@dataclass(frozen=True, kw_only=True)
class Answer:
    """
    A provider's request and answer. `wanted` has the expected meters, which the case of the same name states and
    which are worked out by hand.
    """

    name: str
    asked: Body
    answered: Body
    provider: str
    wanted: Mapping[str, Any]

    @property
    def meters(self) -> Mapping[str, int | str]:
        return self.wanted["meters"] or {}

    @property
    def model(self) -> str:
        found: str = self.answered.get("model") or self.answered.get("modelVersion") or self.asked["model"]
        return found


def answers() -> Iterator[Answer]:
    for case in sorted((ROOT / "gateway" / "helicone").glob("*.expected.json")):
        expected = json.loads(case.read_text())
        if "priced" in expected:
            event = json.loads(case.with_name(case.name.replace(".expected", "")).read_text())
            [wanted] = expected["priced"].values()
            [record] = expected["records"]
            yield Answer(
                name=case.name.removesuffix(".expected.json"),
                asked=json.loads(event["request_body"]),
                answered=json.loads(event["response_body"]),
                provider=record["provider"],
                wanted=wanted,
            )


# -- payloads of each source -------------------------------------------------------------------------------


def _portkey_hook(answer: Answer) -> Made:
    return {
        "provider": answer.provider, "requestType": "chatComplete", "request": {"json": answer.asked, "headers": {}},
        "response": {"json": answer.answered, "statusCode": 200}, "metadata": {},
    }, "portkey"  # fmt: skip


def _portkey_file(answer: Answer) -> Made:
    config = json.dumps({"provider": answer.provider})
    return {
        "_id": "046b73bd-87da-4c0f-b716-2906d5f3f000", "created_at": AT,
        "request": {
            "url": "https://example.com/v1", "body": answer.asked, "portkeyHeaders": {"x-portkey-config": config},
        },
        "response": {"status": 200, "body": answer.answered},
    }, "portkey"  # fmt: skip


def _vertex(answer: Answer) -> Made:
    return {
        "logging_time": AT, "request_id": 98765432101234569, "model": answer.model,
        "api_method": "generateContent", "full_request": answer.asked, "full_response": answer.answered,
    }, "vertex"  # fmt: skip


def _databricks(answer: Answer) -> Made:
    return [{
        "databricks_request_id": "58db0e4d-2fc8-4861-976c-bc1228a16642", "request_time": AT, "status_code": 200,
        "request": json.dumps(answer.asked), "response": json.dumps(answer.answered),
    }], "databricks"  # fmt: skip


def _litellm(answer: Answer) -> Made:
    usage = answer.answered.get("usage") or {}
    return [{
        "id": "chatcmpl-0a1b2c3d4e5f60718293", "litellm_call_id": "c1", "call_type": "acompletion",
        "status": "success", "custom_llm_provider": answer.provider, "startTime": 1795168800.0,
        "endTime": 1795168802.5, "model": answer.model, "model_parameters": answer.asked,
        "metadata": {"usage_object": usage}, "response": answer.answered,
    }], "litellm"  # fmt: skip


def _kong(answer: Answer) -> Made:
    meta = {"provider_name": answer.provider, "request_model": answer.model}
    return {
        "request": {"id": "a" * 32, "uri": "/v1/chat/completions"}, "response": {"status": 200},
        "started_at": 1795168800000, "latencies": {"request": 10},
        "ai": {"proxy": {"meta": meta, "usage": answer.answered["usage"]}},
    }, "kong"  # fmt: skip


def _openmeter(answer: Answer) -> Made:
    data = {"model": answer.model, **answer.answered["usage"]}
    return {
        "specversion": "1.0", "type": "litellm_tokens", "id": "chatcmpl-om-1", "time": AT, "subject": "user",
        "source": "litellm-proxy", "data": data,
    }, "openmeter"  # fmt: skip


def _langfuse(answer: Answer) -> Made:
    body = {
        "id": "dfd27be0-df04-4af5-b8f1-872581bb0001", "traceId": "597853ad-1a0a-44d8-bce1-1fa6d9720001",
        "model": answer.model, "startTime": AT, "endTime": AT, "usageDetails": answer.answered["usage"],
    }  # fmt: skip
    event = {"id": "9c12600e-10bd-412f-9a65-0979a1650001", "type": "generation-create", "timestamp": AT}
    return {"batch": [{**event, "body": body}]}, "langfuse"


def _bedrock(answer: Answer) -> Made:
    return {
        "schemaType": "ModelInvocationLog", "schemaVersion": "1.0", "timestamp": AT, "requestId": "r-1",
        "operation": "InvokeModel", "modelId": answer.model, "input": {}, "output": {"outputBodyJson": answer.answered},
    }, "bedrock"  # fmt: skip


def _span(answer: Answer, name: str, value: Any) -> Made:
    stated = {
        "gen_ai.operation.name": "chat", "gen_ai.provider.name": answer.provider,
        "gen_ai.request.model": answer.model, name: json.dumps(value),
    }  # fmt: skip
    span = {
        "traceId": "4bf92f3577b34da6a3ce929d0e0e4569", "spanId": "00f067aa0ba902b7", "name": "chat", "kind": 3,
        "startTimeUnixNano": "1795168800000000000", "endTimeUnixNano": "1795168801000000000",
        "attributes": [{"key": key, "value": {"stringValue": text}} for key, text in stated.items()],
    }  # fmt: skip
    return {"resourceSpans": [{"scopeSpans": [{"spans": [span]}]}]}, None


def _usage_of_span(answer: Answer) -> Made:
    usage = answer.answered.get("usage") or answer.answered["usageMetadata"]
    return _span(answer, "gen_ai.usage.raw", usage)


def _answer_of_span(answer: Answer) -> Made:
    return _span(answer, "output.value", answer.answered)


# -- answers that each source can carry -------------------------------------------------------------------


def _usage(answer: Answer) -> Body:
    found: Body = answer.answered.get("usage") or {}
    return found


def _of_openai(answer: Answer) -> bool:
    """Return whether the answer has OpenAI's shape, because LiteLLM passes on every answer in that shape."""
    return "usageMetadata" not in answer.answered


def _names_model(answer: Answer) -> bool:
    """
    Return whether the answer names the model. Only then is a row of an inference table a call, because its
    request names only an endpoint.
    """
    return "model" in answer.answered or "modelVersion" in answer.answered


def _of_vertex(answer: Answer) -> bool:
    return answer.provider.startswith("gcp.") or answer.provider in ("anthropic", "mistral_ai")


def _of_bedrock(answer: Answer) -> bool:
    """
    Return whether Bedrock's log has this answer. Mistral's answers have their own format there, and Nova
    Sonic has its own case.
    """
    return answer.provider == "mistral_ai" and _within_usage(answer)


def _within_usage(answer: Answer) -> bool:
    """Return whether the usage object states all meters, without the steps of the answer."""
    return bool(_usage(answer)) and "output" not in answer.answered


def _with_tokens(answer: Answer) -> bool:
    """
    Return whether the answer has input and output tokens, because an OpenMeter event is a call only with both.
    """
    return _within_usage(answer) and "total_tokens" in _usage(answer)


def _of_langfuse(answer: Answer) -> bool:
    """
    Return whether Langfuse can store the usage: it accepts numbers, and OpenAI's details under two names.
    """
    return not {"prompt_tokens_details", "input_tokens_details"}.isdisjoint(_usage(answer)) and _within_usage(
        answer
    )


def _or_gemini(answer: Answer) -> bool:
    """Return whether the usage states all meters. Gemini's usage does, unless the answer has web searches."""
    is_gemini = "usageMetadata" in answer.answered and "web_searches" not in answer.meters
    return is_gemini or _within_usage(answer)


OTLP = "OpenTelemetry"
PLACES: Mapping[str, tuple[str, Callable[[Answer], bool], Callable[[Answer], Made]]] = {
    "portkey, hook": ("portkey", lambda _: True, _portkey_hook),
    "portkey, file of a log": ("portkey", lambda _: True, _portkey_file),
    "vertex": ("vertex", _of_vertex, _vertex),
    "databricks, inference table": ("databricks", _names_model, _databricks),
    "litellm": ("litellm", _of_openai, _litellm),
    "kong": ("kong", _within_usage, _kong),
    "openmeter": ("openmeter", _with_tokens, _openmeter),
    "langfuse, usageDetails": ("langfuse", _of_langfuse, _langfuse),
    "bedrock": ("bedrock", _of_bedrock, _bedrock),
    "span, a usage object": (OTLP, _or_gemini, _usage_of_span),
    "span, a whole answer": (OTLP, _or_gemini, _answer_of_span),
}


_READ: dict[tuple[str, str], Body] = {}


def read(place: str, answer: Answer) -> Body:
    """
    Decode an answer within a source's payload; return the record with its meters and price lines.
    Results are cached.
    """
    if (place, answer.name) not in _READ:
        payload, format = PLACES[place][2](answer)
        found = asyncio.run(explain_payload(json.dumps(payload).encode(), format, Config(), why=True))
        _READ[place, answer.name] = found["records"][0] if found["records"] else {}
    return _READ[place, answer.name]


def told() -> Mapping[str, set[str]]:
    """Return the sources that report each meter, as found by the readers and the cases."""
    found: dict[str, set[str]] = defaultdict(set)
    for place, (source, has, _) in PLACES.items():
        for answer in answers():
            if has(answer):
                for name in read(place, answer).get("meters") or {}:
                    found[name].add(source)
    for case in ROOT.rglob("*.expected.json"):
        expected = json.loads(case.read_text())
        family, folder = case.parent.parent.name, case.parent.name
        source = OTLP if folder == "otel_genai" else f"{folder} (OTLP)" if family == "otlp" else folder
        for wanted in expected.get("priced", {}).values():
            for name in wanted["meters"] or ():
                found[name].add(source)
    return found


def table() -> str:
    """
    Return the table of docs/money/meters.md: a row for all meters with the same sources. Image meters for a size and a
    quality are left out, because `output_images` represents them.
    """
    found = told()
    meters_by_sources: dict[str, list[str]] = {}
    for name in METERS:
        if not name.startswith("output_images_"):
            sources = ", ".join(sorted(found[name], key=str.lower))
            meters_by_sources.setdefault(sources, []).append(f"`{name}`")
    lines = ["| meters | reported by |", "|---|---|"]
    lines += [f"| {', '.join(names)} | {sources} |" for sources, names in meters_by_sources.items()]
    return "\n".join(lines)


if __name__ == "__main__":
    print(table())
