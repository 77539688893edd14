"""
The victim: one client that sends a request, waits for the response and pauses before the next. `python -m
tests.bench.fairness.steady` reads a LoadJob from standard input, and writes LoadFigures at the end.
"""

from __future__ import annotations

import select
import sys
import time
from urllib.parse import urlsplit

from tests.bench.load.generator import LoadClient
from tests.bench.load.job import LoadFigures, LoadJob, quantiles

ANSWER_S = 60.0


def run(job: LoadJob) -> LoadFigures:
    """Send one request after another until the job's time is over."""
    target = urlsplit(job.url)
    assert target.hostname is not None
    assert target.port is not None
    client = LoadClient((target.hostname, target.port))
    lines = "".join(f"{name}: {value}\r\n" for name, value in job.headers.items())
    head = f"{job.method} {job.path} HTTP/1.1\r\nHost: {target.netloc}\r\n{lines}Content-Length: ".encode()
    poll = select.poll()
    poll.register(client.connect(), select.POLLIN)
    figures, latencies = LoadFigures(), list[float]()
    began = time.perf_counter()
    while (begun := time.perf_counter()) < began + job.seconds:
        body = job.body(job.first + figures.sent)
        figures.sent += 1
        assert client.send(b"%b%d\r\n\r\n%b" % (head, len(body), body))
        status = ""
        while not status:
            assert poll.poll(ANSWER_S * 1000), "no answer"
            status = client.receive()
        if status.startswith("2"):
            latencies.append(time.perf_counter() - begun)
            figures.accepted += 1
        else:
            figures.refuse(status)
        time.sleep(job.pause_s)
    figures.seconds = time.perf_counter() - began
    figures.latencies_ms = quantiles(latencies)
    figures.each_ms = [seconds * 1000 for seconds in latencies]
    client.close()
    return figures


if __name__ == "__main__":
    print(run(LoadJob.from_json(sys.stdin.read())).to_json(), flush=True)
