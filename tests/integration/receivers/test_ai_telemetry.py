"""
The endpoints of gateway formats and other products' protocols on a real server, with the payloads of tests/cases.
"""

from __future__ import annotations

import base64
import gzip
import hmac
import json
import logging
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from gateway.configuration.attribution import SourceSettings
from gateway.configuration.sections import Config
from gateway.configuration.values import ConfigError
from gateway.normalise.formats.list import FORMAT_NAMES
from spool.record import Inference
from spool.registry.scopes import INGEST, PING
from spool.settings import SpoolSettings
from tests.integration.conftest import ON_ONE_SERVER, Serve, Serving, file_contents
from tests.integration.payloads import json_span, json_traces
from tests.rounds import as_proof, part

CASES = Path(__file__).parents[2] / "cases" / "gateway"
PAYLOADS = sorted(path for path in CASES.rglob("*.*json") if ".expected." not in path.name)
FIRST_OF_EACH_FORMAT = {path.parent: path for path in reversed(PAYLOADS)}.values()
LITELLM = (CASES / "litellm/slp-batch-array.json").read_bytes()
LANGFUSE = (CASES / "langfuse/batch-create-update.json").read_bytes()
FIREHOSE = (CASES / "bedrock/cloudwatch-subscription-via-firehose.json").read_bytes()
DELIVERY = b'{"requestId": "r-1", "timestamp": 1, "records": [%b]}'
BOMB = b'{"data": "%b"}' % base64.b64encode(gzip.compress(bytes((64 << 20) + 1), 1))
OPENMETER = (CASES / "openmeter/cloudevent-single.json").read_bytes()
BROADCAST = (CASES / "openrouter/broadcast-claude-cache-write.json").read_bytes()
CANARY = "the-canary-sings"
HELICONE = (CASES / "helicone/webhook-enhanced.json").read_bytes()


def basic(key: str) -> dict[str, str]:
    return {"Authorization": "Basic " + base64.b64encode(f"pk-lf-anything:{key}".encode()).decode()}


def expected(path: Path) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = json.loads(path.with_name(path.stem + ".expected.json").read_bytes())[
        "records"
    ]
    return rows


# An answer with images has no id, so nothing in these payloads identifies the call.
WITHOUT_ID = {"log-hook-images"}


# `make test` sends one case of each format, because the conversion of each case is tested without a server.
@pytest.mark.parametrize(
    "path",
    part([*[path if path in FIRST_OF_EACH_FORMAT else as_proof(path) for path in PAYLOADS]], every=2),
    ids=lambda path: f"{path.parent.name}/{path.stem}",
)
async def test_every_case_is_accepted_by_named_and_by_recognized_format(serving: Serving, path: Path) -> None:
    """
    Each shared case is accepted at the address of its format, and at the address that recognizes formats. Sent
    twice, a call with an id is stored once.
    """
    named = await serving.send(f"/v1/ai-telemetry/{path.parent.name}", path.read_bytes())
    found = await serving.send("/v1/ai-telemetry", path.read_bytes())
    assert named.status in (200, 204, 207), named.body
    assert named.status == found.status
    assert "Tollhouse-Receipt" in named.headers
    calls = [row for row in expected(path) if row["kind"] == "inference"]
    times = 2 if path.stem in WITHOUT_ID else 1
    assert times * len(calls) == sum(isinstance(record, Inference) for record in await serving.records())


async def test_the_answer_counts(serving: Serving) -> None:
    """
    The answer to a request counts accepted, ignored and rejected items. A duplicate counts like a new call.
    """
    batch = json.loads(LITELLM)
    body = json.dumps([*batch, "nonsense", 5]).encode()
    for _ in range(2):
        answer = await serving.send("/v1/ai-telemetry/litellm", body)
        read = json.loads(answer.body)
        assert answer.status == 200
        assert read["format"] == "litellm"
        assert len(batch) == read["accepted"]
        assert read["ignored"] == 0
        assert [len(batch), len(batch) + 1] == [reject["item"] for reject in read["rejected"]]
        assert {"item", "reason", "message"} == set(read["rejected"][0])
        assert f"records={len(batch)}; ignored=0; rejected=2" in answer.headers["Tollhouse-Receipt"]


@ON_ONE_SERVER
async def test_every_item_malformed_is_400(one_server: Serving) -> None:
    """If no item of a request is readable, the answer is 400 and nothing is accepted."""
    answer = await one_server.send("/v1/ai-telemetry/litellm", b'["nonsense", 5]')
    assert answer.status == 400
    assert json.loads(answer.body)["error"]["type"] == "bad_payload"
    assert "Tollhouse-Receipt" not in answer.headers


@ON_ONE_SERVER
async def test_an_unknown_format_is_404_and_names_the_known(one_server: Serving) -> None:
    """An unknown format gets a 404, whose message suggests the likely one."""
    answer = await one_server.send("/v1/ai-telemetry/litelm", LITELLM)
    error = json.loads(answer.body)["error"]
    assert answer.status == 404
    assert error["type"] == "unknown_format"
    for name in FORMAT_NAMES:
        assert name in error["message"]


NO_FORMAT: Sequence[bytes] = [b"", b"hello", b"{", b"\xff\xfe", b"[" * 100_000, b'{"a": 1}']


@ON_ONE_SERVER
async def test_payload_of_no_known_format_is_400(one_server: Serving) -> None:
    """
    If no format can read a payload, the answer is a 400 and never a 500. After a 500, senders would repeat
    the same bytes.
    """
    for body in NO_FORMAT:
        answer = await one_server.send("/v1/ai-telemetry", body)
        assert answer.status == 400, body
        assert json.loads(answer.body)["error"]["type"] == "bad_payload", body


@ON_ONE_SERVER
@pytest.mark.parametrize("name", part([name for name in FORMAT_NAMES if "/" not in name], every=3))
async def test_no_format_turns_bad_bytes_into_a_500(one_server: Serving, name: str) -> None:
    """Invalid bytes are the sender's 4xx at every named endpoint."""
    for body in (b"", b"hello", b"\xff\xfe", b"[" * 100_000, b'{"batch":[' * 1000, b"[[],{},null,1]"):
        answer = await one_server.send(f"/v1/ai-telemetry/{name}", body)
        assert answer.status in (200, 204, 207, 400), (body[:20], answer.body)


@pytest.mark.parametrize("path", ["/v1/ai-telemetry", "/v1/ai-telemetry/litellm"])
async def test_put_and_patch_mean_the_same_as_post(serving: Serving, path: str) -> None:
    """OpenRouter and Kong let their users choose the method. A repeat with another method is a duplicate."""
    for method in ("POST", "PUT", "PATCH"):
        answer = await serving.send(path, LITELLM, method=method)
        assert 200 == answer.status
    assert len(json.loads(LITELLM)) == len(await serving.records())


@pytest.mark.parametrize("method", part(["POST", "PUT"], every=2))
@pytest.mark.parametrize(
    "path", ["/v1/ai-telemetry", "/v1/ai-telemetry/openrouter", "/v1/ai-telemetry/otlp/traces"]
)
async def test_openrouter_tries_its_destination_out_and_then_broadcasts(
    serving: Serving, path: str, method: str
) -> None:
    """
    The user chooses the webhook's address and method. OpenRouter's test request has no spans and expects a 2xx.
    """
    trial = {"X-Test-Connection": "true"}
    answer = await serving.send(path, b'{"resourceSpans": []}', method=method, headers=trial)
    assert answer.status == 200
    assert json.loads(answer.body)["accepted"] == 0
    answer = await serving.send(path, BROADCAST, method=method)
    assert answer.status == 200
    assert json.loads(answer.body)["accepted"] == 1
    assert ["openrouter"] == [record.source for record in await serving.records()]


@ON_ONE_SERVER
async def test_other_methods_are_405_in_the_plain_form(one_server: Serving) -> None:
    """Other methods answer 405. The error has a stable, machine-readable type."""
    answer = await one_server.send("/v1/ai-telemetry", b"", method="GET")
    assert answer.status == 405
    assert answer.headers["Allow"] == "POST, PUT, PATCH"
    assert "method_not_allowed" == json.loads(answer.body)["error"]["type"]


async def test_otlp_is_accepted_at_the_address_of_formats(serving: Serving) -> None:
    """The address for formats also accepts OTLP, because `otlp/traces` is a format like any other."""
    body = next(path for path in PAYLOADS if path.name == "otel-span.json").read_bytes()
    answer = await serving.send("/v1/ai-telemetry/otlp/traces", body)
    assert answer.status == 200
    assert json.loads(answer.body)["format"] == "otlp/traces"


async def test_langfuse_answers_207_under_basic(serving: Serving) -> None:
    """
    With Basic authentication, Langfuse's address answers 207. The password is the Tollhouse key, and the answer has
    the id of every event.
    """
    answer = await serving.send("/api/public/ingestion", LANGFUSE, headers=basic(serving.key))
    read = json.loads(answer.body)
    ids = [event["id"] for event in json.loads(LANGFUSE)["batch"]]
    assert answer.status == 207
    assert [event["id"] for event in read["successes"]] == ids
    assert read["errors"] == []
    assert "Tollhouse-Receipt" in answer.headers


BAD_BASIC: Sequence[str] = [
    "Basic %%%",
    "Basic \u00e9",
    "Basic /w==",
    "Basic " + base64.b64encode(b"nocolon").decode(),
    "Basic dTp3cm9uZw==",
]


async def test_langfuse_refuses_bad_basic(serving: Serving) -> None:
    """Every kind of invalid Basic header answers 401."""
    for value in BAD_BASIC:
        for path in ("/api/public/ingestion", "/api/public/otel/v1/traces"):
            assert 401 == (await serving.send(path, LANGFUSE, headers={"Authorization": value})).status


async def test_langfuse_health_and_projects_reveal_nothing(serving: Serving) -> None:
    """Health needs no key. Projects needs one, and its answer is the same for every key."""
    health = await serving.send("/api/public/health", b"", None, method="GET", key=None)
    assert health.status == 200
    assert json.loads(health.body)["status"] == "OK"
    assert 401 == (await serving.send("/api/public/projects", b"", None, method="GET", key=None)).status
    answers = [
        await serving.send("/api/public/projects", b"", None, method="GET", headers=basic(key))
        for key in (serving.key, await serving.make_key("another one", scopes=[INGEST]))
    ]
    assert [200, 200] == [answer.status for answer in answers]
    assert answers[0].body == answers[1].body
    assert {"id", "name"} <= set(json.loads(answers[0].body)["data"][0])


async def test_langfuse_otlp_accepts_basic_authentication(serving: Serving) -> None:
    """Newer Langfuse SDKs send OTLP to a Langfuse address, with Basic authentication."""
    answer = await serving.send("/api/public/otel/v1/traces", b"{}", headers=basic(serving.key))
    assert answer.status == 200
    assert answer.body == b"{}"


@pytest.mark.parametrize("path", ["/api/otel/v1/traces", "/opentelemetry/v1/traces", "/api/v1/traces"])
async def test_sdks_of_other_products_send_to_their_own_address(serving: Serving, path: str) -> None:
    """LangWatch, HoneyHive and Keywords AI add a path of their own to the endpoint, and send a Bearer token."""
    how = {"Authorization": f"Bearer {serving.key}", "X-Auth-Token": serving.key}
    answer = await serving.send(path, b"{}", headers=how)
    assert (answer.status, answer.body) == (200, b"{}")
    wrong = await serving.send(path, b"{}", headers={"Authorization": "Bearer wrong"})
    assert wrong.status == 401


async def test_firehose_gets_its_request_id_back(serving: Serving) -> None:
    """
    Firehose sends the key in its own header. It would repeat forever if the answer lacked its request id.
    """
    request_id = json.loads(FIREHOSE)["requestId"]
    headers = {
        "X-Amz-Firehose-Access-Key": serving.key,
        "X-Amz-Firehose-Request-Id": request_id,
        "Content-Encoding": "gzip",
    }
    answer = await serving.send(
        "/v1/ai-telemetry/bedrock", gzip.compress(FIREHOSE), headers=headers, key=None
    )
    read = json.loads(answer.body)
    assert answer.status == 200
    assert read["requestId"] == request_id
    assert type(read["timestamp"]) is int
    headers["X-Amz-Firehose-Access-Key"] = "th_wrong"
    answer = await serving.send(
        "/v1/ai-telemetry/bedrock", gzip.compress(FIREHOSE), headers=headers, key=None
    )
    read = json.loads(answer.body)
    assert answer.status == 401
    assert read["requestId"] == request_id
    assert read["errorMessage"]


REFUSED_BY_FIREHOSE: Sequence[tuple[bytes, str, int]] = [
    (b"not gzip", "gzip", 400),
    (FIREHOSE, "br", 415),
    (b"{", "identity", 400),
    (DELIVERY % b'{"data": "*"}, {"data": 7}', "identity", 400),
    (DELIVERY % b", ".join([BOMB] * 5), "identity", 413),
]


async def test_firehose_reads_its_request_id_in_every_refusal(serving: Serving) -> None:
    """Every refusal of a Firehose request repeats its request id, even if the body was not read."""
    for body, coding, status in REFUSED_BY_FIREHOSE:
        headers = {
            "X-Amz-Firehose-Access-Key": serving.key,
            "X-Amz-Firehose-Request-Id": "r-1",
            "Content-Encoding": coding,
        }
        answer = await serving.send("/v1/ai-telemetry/bedrock", body, headers=headers, key=None)
        read = json.loads(answer.body)
        assert answer.status == status, (body, coding, status)
        assert read.keys() == {"requestId", "timestamp", "errorMessage"}, (body, coding, status)
        assert "r-1" == read["requestId"], (body, coding, status)


async def test_the_firehose_header_opens_no_other_endpoint(serving: Serving) -> None:
    """A product's own key header works only at that product's address."""
    headers = {"X-Amz-Firehose-Access-Key": serving.key}
    for path in ("/v1/ai-telemetry/litellm", "/v1/ai-telemetry", "/v1/traces", "/api/v1/events"):
        assert 401 == (await serving.send(path, b"{}", headers=headers, key=None)).status
    for path in ("/v1/ai-telemetry/litellm", "/v1/traces"):
        assert 401 == (await serving.send(path, b"{}", headers=basic(serving.key))).status


async def test_openmeter_accepts_bearer_and_answers_204(serving: Serving) -> None:
    """OpenMeter's SDKs can send only a bearer token and expect no content."""
    headers = {"Authorization": f"Bearer {serving.key}"}
    answer = await serving.send("/api/v1/events", OPENMETER, "application/cloudevents+json", headers=headers)
    assert answer.status == 204
    assert answer.body == b""
    assert "Tollhouse-Receipt" in answer.headers


async def test_helicone_finds_its_key_in_the_address(
    serving: Serving, caplog: pytest.LogCaptureFixture
) -> None:
    """Only a key that can do nothing but send works in the address. No log line contains the address."""
    caplog.set_level(logging.DEBUG)
    wide = await serving.make_key("can ping, too", scopes=[INGEST, PING])
    taken = await serving.send(f"/v1/ai-telemetry/helicone/{serving.key}", HELICONE, key=None)
    refused = await serving.send(f"/v1/ai-telemetry/helicone/{wide}", HELICONE, key=None)
    unknown = await serving.send("/v1/ai-telemetry/helicone/th_wrong", HELICONE, key=None)
    assert taken.status == 200
    assert refused.status == 403
    assert unknown.status == 401
    assert "key_too_wide" == json.loads(refused.body)["error"]["type"]
    logged = str([vars(record) for record in caplog.records])
    assert not [secret for secret in (serving.key, wide, "th_wrong") if secret in logged]


def signed(body: bytes, secret: str) -> dict[str, str]:
    return {"Helicone-Signature": hmac.new(secret.encode(), body, "sha256").hexdigest()}


def signing(file: Path) -> Config:
    return Config(spool=SpoolSettings(hold=0), sources={"helicone": SourceSettings(signing_secret_file=file)})


async def test_helicone_must_sign_what_it_sends(
    serve: Serve, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """With a signing secret, both the key in the address and the signature are required."""
    caplog.set_level(logging.DEBUG)
    file = tmp_path / "signing"
    file.write_text("the-signing-secret\n")
    server = await serve(config=signing(file))
    path, good = f"/v1/ai-telemetry/helicone/{server.key}", signed(HELICONE, "the-signing-secret")
    refused = [
        await server.send(path, HELICONE, key=None),
        await server.send(path, HELICONE, key=None, headers=signed(HELICONE, "another-secret")),
        await server.send(path, HELICONE + b" ", key=None, headers=good),
        await server.send(path, b"no JSON", key=None, headers=good),
    ]
    errors = [json.loads(answer.body)["error"] for answer in refused]
    assert [(401, "bad_signature")] * 4 == [
        (answer.status, error["type"]) for answer, error in zip(refused, errors, strict=True)
    ]
    assert [] == await server.records()
    assert "sources.helicone.signing_secret_file" in errors[0]["message"]
    unknown = await server.send("/v1/ai-telemetry/helicone/th_wrong", HELICONE, key=None, headers=good)
    assert unknown.status == 401
    assert json.loads(unknown.body)["error"]["type"] == "unknown_key"
    assert 200 == (await server.send(path, HELICONE, key=None, headers=good)).status
    assert 1 == len(await server.records())
    told = str([answer.body for answer in refused]) + str([vars(record) for record in caplog.records])
    assert "the-signing-secret" not in told and good["Helicone-Signature"] not in told


async def test_a_changed_signing_secret_counts_at_once(serve: Serve, tmp_path: Path) -> None:
    """
    The file of the signing secret is read again when it changes. While it is unreadable, the last
    secret stays valid.
    """
    file = tmp_path / "signing"
    file.write_text("the-first-secret")
    server = await serve(config=signing(file))

    async def status(secret: str) -> int:
        headers = signed(HELICONE, secret)
        return (
            await server.send(f"/v1/ai-telemetry/helicone/{server.key}", HELICONE, key=None, headers=headers)
        ).status

    assert 200 == await status("the-first-secret")
    file.write_text("the-second-secret")
    assert await status("the-first-secret") == 401
    assert await status("the-second-secret") == 200
    file.unlink()
    assert await status("the-first-secret") == 401
    assert await status("the-second-secret") == 200


@pytest.mark.parametrize("text", [None, "", "short", "two words of it"])
async def test_without_its_signing_secret_the_server_does_not_start(
    serve: Serve, tmp_path: Path, text: str | None
) -> None:
    """
    Without the file of its signing secret, the server does not start. Otherwise a missing file would disable
    the check of signatures.
    """
    file = tmp_path / "signing"
    if text is not None:
        file.write_text(text)
    with pytest.raises(ConfigError, match=r"sources\.helicone\.signing_secret_file"):
        await serve(config=signing(file))


@pytest.mark.proves("A prompt reaches the disk under an unexpected name")
async def test_no_prompt_is_stored_answered_or_logged(
    serving: Serving, caplog: pytest.LogCaptureFixture
) -> None:
    """
    Content from a sender is in no record, no answer and no log line, whether the request is accepted or refused.
    """
    caplog.set_level(logging.DEBUG)
    call = {**json.loads(LITELLM)[0], "messages": [{"role": "user", "content": CANARY}], "response": CANARY}
    prompt = [{"key": "gen_ai.input.messages", "value": {"stringValue": CANARY}}]
    span = json_span(attributes=[*json_span()["attributes"], *prompt])
    answers = [
        await serving.send(
            "/v1/ai-telemetry/litellm", json.dumps([call, {**call, "id": [CANARY]}, CANARY]).encode()
        ),
        await serving.send(
            "/v1/traces", json_traces(span, {**span, "name": [CANARY]}, {**span, "traceId": ""})
        ),
        await serving.send("/v1/traces", json_traces({**span, "spanId": CANARY})),
        await serving.send("/v1/traces", json_traces(span)[:-3] + CANARY.encode()),
    ]
    assert [200, 200, 400, 400] == [answer.status for answer in answers]
    assert len(await serving.records()) >= 2
    seen = str(await serving.records()) + str([vars(record) for record in caplog.records])
    assert CANARY not in seen + str([answer.body for answer in answers])
    for name, content in file_contents(serving.app.config.data_dir).items():
        assert CANARY.encode() not in content, name
