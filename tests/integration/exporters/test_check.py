"""`tollhouse check` of the upstream and the destinations, over real sockets and files."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path

import pytest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceResponse

from exporters.check import check_destinations, check_streams
from exporters.service.paths import STREAMS
from exporters.settings import DestinationSettings, EventStream, UpstreamKey, UpstreamSettings
from gateway.normalise.billing import read_billing_file
from spool.clock import SystemClock
from spool.registry.scopes import INGEST, VALIDATE_BILLING_DROP
from tests.exporters.upstream import FakeUpstream, Reply

CLOCK = SystemClock()


@pytest.fixture
async def upstream() -> AsyncIterator[FakeUpstream]:
    async with FakeUpstream() as upstream:
        yield upstream


async def test_check_says_what_covers_what_and_what_answers(upstream: FakeUpstream) -> None:
    """
    An empty export shows whether OTLP streams are accepted. Other streams cannot be tried without
    leaving a trace.
    """
    upstream.judge = lambda request: (
        Reply(403, b"no scope for sec-1", "text/plain") if request.path == "/v1/metrics" else None
    )
    key = UpstreamKey(name="telemetry", secret_env="HOME", scopes=(INGEST,))
    settings = UpstreamSettings(base_url=upstream.url, keys=(key,))
    found = {one.stream: one for one in await check_streams(settings, clock=CLOCK)}
    assert found["traces"].status == "ok"
    assert found["traces"].key == "telemetry"
    assert found["traces"].published is False
    assert found["metrics"].status == "refused"
    assert found["metrics"].words == "403 no scope for sec-1"
    assert {"traces", "metrics"} == found.keys()
    assert {b""} == {request.body for request in upstream.requests}
    above = {one.stream for one in await check_streams(replace(settings, kind="tollhouse"), clock=CLOCK)}
    assert {"people-addresses", "people-erasures"} == above - found.keys()
    every = UpstreamKey(name="all", secret_env="HOME", scopes=tuple(one.scope for one in STREAMS.values()))
    found = {
        one.stream: one
        for one in await check_streams(UpstreamSettings(base_url=upstream.url, keys=(every,)), clock=CLOCK)
    }
    assert found["unit-cost"].status == "unverified"
    assert found["unit-cost"].key == "all"
    assert found["unit-cost"].published is True
    assert (
        f"{upstream.url}/unit-cost/v1/telemetry/{{kind}}/{{stream}}/{{operation}}" == found["unit-cost"].url
    )


async def test_check_knows_what_is_sent(upstream: FakeUpstream) -> None:
    """
    Mapped events need the key for unit cost. Streams that are never sent need no key. A stream with an empty
    path is parked.
    """
    key = UpstreamKey(name="cost", secret_env="HOME", scopes=("unit-cost_v1:manage_telemetry_records",))
    settings = UpstreamSettings(
        base_url=upstream.url, keys=(key,), events={"api_call": EventStream(stream="calls")}
    )
    found = {one.stream: one for one in await check_streams(settings, clock=CLOCK)}
    events = found["usage-events"]
    assert events.status == "unverified"
    assert events.key == "cost"
    assert found["unit-cost"].url == events.url
    assert "events of the types api_call become unit cost" in (events.words or "")
    assert {"traces", "metrics", "usage-events", "unit-cost"} == found.keys()
    unmapped = replace(settings, events={}, paths={"unit-cost": "", "traces": ""})
    found = {one.stream: one for one in await check_streams(unmapped, clock=CLOCK)}
    assert found["traces"].status == "unused"
    assert found["unit-cost"].status == "refused"
    ingest = UpstreamKey(name="t", secret_env="HOME", scopes=(INGEST,))
    telemetry = UpstreamSettings(ai_telemetry_url=upstream.url, keys=(ingest,))
    found = {one.stream: one for one in await check_streams(telemetry, clock=CLOCK)}
    assert {"traces": "ok", "metrics": "ok"} == {one.stream: one.status for one in found.values()}
    published = await check_streams(
        replace(settings, events={}, keys=()), clock=CLOCK, used_streams=["unit-cost"]
    )
    assert published[-1].stream == "unit-cost"
    assert published[-1].status == "refused"


@pytest.mark.parametrize(
    ("status", "found"), [(400, "unverified"), (401, "refused"), (404, "refused"), (429, "unavailable")]
)
async def test_check_says_what_an_answer_means_later(upstream: FakeUpstream, status: int, found: str) -> None:
    """
    `tollhouse check` states what an answer would mean for a delivery, for the upstream and for OTLP destinations: a
    refused key would park the route, a busy server would not.
    """
    upstream.judge = lambda request: Reply(status, b"no", "text/plain")
    key = UpstreamKey(name="telemetry", secret_env="HOME", scopes=(INGEST,))
    settings = UpstreamSettings(base_url=upstream.url, keys=(key,))
    streams = {one.stream: one.status for one in await check_streams(settings, clock=CLOCK)}
    collector = DestinationSettings(name="collector", type="otlp", url=f"{upstream.url}/secret")
    (destination,) = await check_destinations([collector], clock=CLOCK)
    assert streams["traces"] == found
    assert destination.status == found
    assert upstream.url == destination.to.rstrip("/")


VERDICT = b'{"connection": {"is_valid": false, "errors": ["no such month"]}}'


@pytest.mark.parametrize(
    ("reply", "found"),
    [
        (Reply(200, VERDICT, "application/json"), ("ok", None)),
        (Reply(400, b"no such month", "text/plain"), ("ok", None)),
        (Reply(200, b"{}", "application/json"), ("unavailable", "its response contains no verdict")),
        (Reply(403, b"no scope", "text/plain"), ("refused", "403 no scope")),
        (Reply(503, b"later", "text/plain"), ("unavailable", "503 later")),
    ],
)
async def test_check_validates_a_billing_file_with_its_key(
    upstream: FakeUpstream, reply: Reply, found: tuple[str, str | None]
) -> None:
    """
    The request to validate a billing file uses the key that covers it and the published address. An error
    about the file itself still proves that the file was validated.
    """
    upstream.judge = lambda request: reply
    key = UpstreamKey(name="billing", secret_env="HOME", scopes=(VALIDATE_BILLING_DROP,))
    settings = UpstreamSettings(base_url=upstream.url, keys=(key,))
    [*_, validation] = await check_streams(settings, clock=CLOCK)
    assert ("billing-validation", "billing", *found) == (
        validation.stream, validation.key, validation.status, validation.words,
    )  # fmt: skip
    [asked] = [request for request in upstream.requests if request.path not in ("/v1/traces", "/v1/metrics")]
    assert "/v2/connections/billing/external/validate_billing_drop" == asked.path
    assert not read_billing_file(asked.body).errors  # this gateway's rules accept the drop


async def test_check_tries_every_destination(upstream: FakeUpstream, tmp_path: Path) -> None:
    """
    The check writes a temporary file next to each file, sends an empty OTLP export, and tests a webhook's
    secret and root. It leaves nothing behind.
    """
    (tmp_path / "file").touch()
    destinations = [
        DestinationSettings(name="new", type="ndjson", path=tmp_path / "a" / "b" / "new.ndjson"),
        DestinationSettings(name="there", type="focus", path=tmp_path / "file"),
        DestinationSettings(name="directory", type="ndjson", path=tmp_path),
        DestinationSettings(name="below a file", type="focus", path=tmp_path / "file" / "x"),
        DestinationSettings(name="collector", type="otlp", url=upstream.url),
        DestinationSettings(name="nobody", type="otlp", url="http://127.0.0.1:1"),
        DestinationSettings(name="hook", type="webhook", url=upstream.url),
        DestinationSettings(name="no hook", type="webhook", url="http://127.0.0.1:1/path"),
        DestinationSettings(
            name="no secret", type="webhook", url=upstream.url, secret_file=tmp_path / "none"
        ),
    ]
    found = {each.name: each.status for each in await check_destinations(destinations, clock=CLOCK)}
    assert {
        "new": "ok", "there": "ok", "directory": "refused", "below a file": "refused", "collector": "ok",
        "nobody": "unavailable", "hook": "unverified", "no hook": "unavailable", "no secret": "refused",
    } == found  # fmt: skip
    assert ["file"] == [each.name for each in tmp_path.iterdir()]
    sent = [(each.path, each.body) for each in upstream.requests]
    assert [("/v1/traces", b""), ("/v1/metrics", b""), ("/", b"")] == sent


async def test_no_upstream_is_nothing_to_check() -> None:
    """If no base_url is set, `tollhouse check` has no stream to check."""
    assert [] == list(await check_streams(UpstreamSettings(), clock=CLOCK))


RECEIPT = {"Tollhouse-Receipt": "id=abc; records=0; ignored=1; rejected=0; durability=fsync"}


def rejection(words: str) -> Reply:
    answer = ExportTraceServiceResponse()
    answer.partial_success.rejected_spans = 1
    answer.partial_success.error_message = words
    return Reply(200, answer.SerializeToString(), headers=RECEIPT)


@pytest.mark.parametrize(
    ("replies", "send", "found"),
    [
        ([Reply()], False, ("ok", None)),
        (
            [Reply(), Reply()],
            True,
            ("ok", "the service accepted the test call and may count it as one call of zero tokens"),
        ),
        (
            [Reply(400, b"no", "text/plain"), Reply()],
            True,
            ("ok", "the service accepted the test call and may count it"),
        ),
        (
            [Reply(), Reply(400, b"no", "text/plain")],
            True,
            ("refused", "the service rejects the test call: 400 no"),
        ),
        ([Reply(), Reply(503)], True, ("unavailable", "503")),
        ([Reply(403, b"no scope", "text/plain")], True, ("refused", "403 no scope")),
        (
            [Reply(headers=RECEIPT), Reply(headers=RECEIPT)],
            False,
            ("ok", "does not count it (receipt abc there)"),
        ),
        (
            [Reply(headers=RECEIPT), rejection("no chain for sec-1")],
            False,
            ("refused", "the service responds with 200, but rejects the test call: no chain for [key]"),
        ),
    ],
)
async def test_check_sends_one_marked_call(
    upstream: FakeUpstream,
    monkeypatch: pytest.MonkeyPatch,
    replies: list[Reply],
    send: bool,
    found: tuple[str, str | None],
) -> None:
    """
    A Tollhouse always gets the marked call, because it never counts it. Other upstreams get it only with
    `send`. An empty export proves the key, and only a record proves that records are accepted. The upstream
    and a destination behave alike.
    """
    monkeypatch.setenv("CHECKED_SECRET", "sec-1")
    key = UpstreamKey(name="telemetry", secret_env="CHECKED_SECRET", scopes=(INGEST,))
    settings = UpstreamSettings(base_url=upstream.url, keys=(key,), paths={"metrics": ""})
    upstream.answers.extend(replies)
    traces = (await check_streams(settings, clock=CLOCK, send_call=send))[0]
    assert found[0] == traces.status
    assert (traces.words or "").endswith(found[1] or "") or (found[1] or "") in (traces.words or "")
    assert [b""] == [request.body for request in upstream.requests[:1]]
    assert [["746f6c6c686f75736520636865636b2e"]] * (len(replies) - 1) == [
        request.ids for request in upstream.requests[1:]
    ]
    upstream.requests.clear()
    upstream.answers.extend(replies)
    collector = DestinationSettings(name="collector", type="otlp", url=upstream.url, headers={"k": "sec-1"})
    (destination,) = await check_destinations([collector], clock=CLOCK, send_call=send)
    assert found[0] == destination.status
    assert (found[1] is None) == (destination.words is None)
    upstream.requests.clear()
    own = DestinationSettings(name="own", type="otlp", url=upstream.url, topics=("metrics", "traces"))
    await check_destinations([own], clock=CLOCK, send_call=True)
    assert [b"", b""] == [request.body for request in upstream.requests]
