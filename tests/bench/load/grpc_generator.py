"""
The same load by gRPC: `python -m tests.bench.load.grpc_generator` reads a LoadJob and writes LoadFigures.

Every client has its own connection. Bodies are prepared bytes, so nothing is serialised here.
"""

from __future__ import annotations

import asyncio
import sys
import time
from typing import Any

import grpc.aio

from tests.bench.load.job import LoadFigures, LoadJob, quantiles

METHOD = "/opentelemetry.proto.collector.trace.v1.TraceService/Export"
COMPRESSION = {"": grpc.Compression.NoCompression, "gzip": grpc.Compression.Gzip}
ANSWER_S = 60.0


async def run(job: LoadJob) -> LoadFigures:
    """Run the load until its time is over and every request is answered."""
    figures = LoadFigures()
    latencies: list[float] = []
    metadata = tuple((name.lower(), value) for name, value in job.headers.items())
    own_connection = (("grpc.use_local_subchannel_pool", 1), ("grpc.max_receive_message_length", -1))
    began = time.perf_counter()
    end = began + job.seconds

    async def client() -> None:
        async with grpc.aio.insecure_channel(
            job.url, own_connection, COMPRESSION[job.compression]
        ) as channel:
            export: Any = channel.unary_unary(METHOD)
            while (begun := time.perf_counter()) < end:
                number = job.first + figures.sent
                if job.rate:
                    due = began + figures.sent / job.rate
                    if due >= end:
                        return
                    figures.sent += 1
                    await asyncio.sleep(due - begun)
                    begun = due
                else:
                    figures.sent += 1
                try:
                    await export(job.body(number), timeout=ANSWER_S, metadata=metadata)
                except grpc.aio.AioRpcError as error:
                    figures.refuse(error.code().name)
                else:
                    latencies.append(time.perf_counter() - begun)
                    figures.accepted += 1

    await asyncio.gather(*(client() for _ in range(job.clients)))
    figures.seconds = time.perf_counter() - began
    figures.cpu_seconds = time.process_time()
    figures.latencies_ms = quantiles(latencies)
    return figures


if __name__ == "__main__":
    print(asyncio.run(run(LoadJob.from_json(sys.stdin.read()))).to_json(), flush=True)
