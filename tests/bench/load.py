"""A load generator that costs little: prepared protobuf bodies over raw keep-alive sockets."""

from __future__ import annotations

import asyncio
import itertools
import time
from dataclasses import dataclass
from urllib.parse import urlsplit

from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

RUN = b"@@run@@@"  # stands in every response id; replaced by a number, so that every request holds new calls


@dataclass(frozen=True)
class LoadFigures:
    requests: int
    spans: int
    seconds: float
    p50_ms: float
    p99_ms: float
    refused: int

    @property
    def spans_per_s(self) -> float:
        return self.spans / self.seconds


def body(spans: int) -> bytes:
    """A request with GenAI spans of 15 attributes, as an SDK exports them."""
    message = ExportTraceServiceRequest()
    group = message.resource_spans.add()
    service = group.resource.attributes.add(key="service.name")
    service.value.string_value = "shop"
    scope = group.scope_spans.add()
    scope.scope.name = "opentelemetry.instrumentation.openai_v2"
    for number in range(spans):
        span = scope.spans.add(name="chat gpt-4o", kind=3)
        span.trace_id = number.to_bytes(16, "big")[:-1] + b"\1"
        span.span_id = b"\1" + number.to_bytes(7, "big")
        span.start_time_unix_nano = time.time_ns()
        span.end_time_unix_nano = span.start_time_unix_nano + 900_000_000
        texts = {
            "gen_ai.operation.name": "chat",
            "gen_ai.provider.name": "openai",
            "gen_ai.request.model": "gpt-4o",
            "gen_ai.response.model": "gpt-4o-2024-08-06",
            "gen_ai.response.id": f"chatcmpl-{RUN.decode()}{number:016d}",
            "gen_ai.conversation.id": f"conversation-{number % 10}",
            "gen_ai.output.type": "text",
            "server.address": "api.openai.com",
            "user.id": f"user-{number % 50}",
        }
        numbers = {
            "gen_ai.usage.input_tokens": 1200 + number,
            "gen_ai.usage.output_tokens": 80,
            "gen_ai.usage.cache_read.input_tokens": 1024,
            "gen_ai.request.max_tokens": 512,
            "gen_ai.request.choice.count": 1,
            "server.port": 443,
        }
        for key, text in texts.items():
            span.attributes.add(key=key).value.string_value = text
        for key, value in numbers.items():
            span.attributes.add(key=key).value.int_value = value
    return message.SerializeToString()


async def drive(url: str, key: str, *, spans: int, connections: int, seconds: float, run: int = 0) -> LoadFigures:
    """Closed loop: every connection sends its next request when it has the answer."""
    template = body(spans)
    numbers = itertools.count(run * 1_000_000)
    latencies: list[float] = []
    refused = 0
    target = urlsplit(url)
    head = (
        f"POST /v1/traces HTTP/1.1\r\nHost: {target.netloc}\r\nAuthorization: {key}\r\n"
        f"Content-Type: application/x-protobuf\r\nContent-Length: {len(template)}\r\n\r\n"
    ).encode()
    end = time.perf_counter() + seconds

    async def sender() -> None:
        nonlocal refused
        reader, writer = await asyncio.open_connection(target.hostname, target.port)
        while (begun := time.perf_counter()) < end:
            writer.write(head + template.replace(RUN, b"%08d" % next(numbers)))
            answer = await reader.readuntil(b"\r\n\r\n")
            length = next(
                (int(line[15:]) for line in answer.split(b"\r\n") if line.lower().startswith(b"content-length:")), 0
            )
            if length:
                await reader.readexactly(length)
            latencies.append(time.perf_counter() - begun)
            refused += not answer.startswith(b"HTTP/1.1 200")
        writer.close()
        await writer.wait_closed()

    begun = time.perf_counter()
    await asyncio.gather(*(sender() for _ in range(connections)))
    elapsed = time.perf_counter() - begun
    latencies.sort()
    return LoadFigures(
        requests=len(latencies),
        spans=len(latencies) * spans,
        seconds=elapsed,
        p50_ms=latencies[len(latencies) // 2] * 1000,
        p99_ms=latencies[int(len(latencies) * 0.99)] * 1000,
        refused=refused,
    )
