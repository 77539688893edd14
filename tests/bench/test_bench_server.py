"""
Every kind of load is accepted and delivered, and every figure is present. `make bench` measures the figures.
"""

from __future__ import annotations

import pstats
from collections.abc import Iterator
from dataclasses import replace
from http.server import BaseHTTPRequestHandler
from itertools import count
from pathlib import Path
from urllib.error import HTTPError

import pytest

from tests.bench.server import meters, profiles, scenarios, targets
from tests.bench.server.rounds import Figures, LoadSink, RoundOptions, measure, sink
from tests.bench.server.states import play
from tests.bench.server.table import table
from tests.bench.server.targets import Running
from tests.clients.loopback import Loopback

pytestmark = pytest.mark.bench

LOADS = (
    "100x4", "10x4-json-gzip", "1x8-zstd", "1x8@100", "10x2-grpc", "10x2-grpc-gzip", "litellm-30x2", "events-10x2",
    "counters-10x2", "heartbeats-1x4", "trees-14x2", "mixed-24x2", "unfamiliar-10x2", "fleet-10x2",
    "real-10x2", "conversations-10x2",
)  # fmt: skip
# Starting a load generator takes longer than its load, so only one test changes this to have a warm-up.
OPTIONS = RoundOptions(seconds=0.3, warm_up=0, counts_commits=False)
firsts = count(0, 100_000)


@pytest.fixture(scope="module")
def upstream() -> Iterator[LoadSink]:
    with sink(meters.cores_for(1)[1]) as running:
        yield running


@pytest.fixture(scope="module")
def tollhouse(tmp_path_factory: pytest.TempPathFactory, upstream: LoadSink) -> Iterator[Running]:
    directory = tmp_path_factory.mktemp("bench")
    with targets.tollhouse(directory, upstream.url, cores=meters.cores_for(1)[0], grpc=True) as running:
        yield running


@pytest.mark.parametrize("name", LOADS)
def test_a_load_is_accepted_and_delivered(
    name: str, tollhouse: Running, upstream: LoadSink, tmp_path: Path
) -> None:
    scenario = scenarios.of_name(name)
    figures = measure(scenario, "tollhouse", tollhouse, upstream, tmp_path, OPTIONS, next(firsts))
    assert figures.refused == {}
    assert figures.broken == 0
    assert figures.undelivered == 0
    assert figures.records > 0
    assert (
        figures.cpu_us > 0 or scenario.rate
    )  # the processor time may be 0, because the process clock is too coarse for a few requests
    assert scenario.name in table([figures])


def test_commits_are_counted(tollhouse: Running, upstream: LoadSink, tmp_path: Path) -> None:
    """
    Requests of a lone sender share no commit. Records of the warm-up are delivered, but do not count in the
    figures.
    """
    scenario = scenarios.of_name("10x1")
    figures = measure(
        scenario,
        "tollhouse",
        tollhouse,
        upstream,
        tmp_path,
        replace(OPTIONS, warm_up=0.1, counts_commits=True),
        next(firsts),
    )
    assert figures.commits == pytest.approx(0.1)
    assert figures.undelivered == 0


@pytest.mark.parametrize(("name", "status"), [("1x2@20", "401"), ("1x2-grpc@20", "UNAUTHENTICATED")])
def test_refusals_are_counted(
    name: str, status: str, tollhouse: Running, upstream: LoadSink, tmp_path: Path
) -> None:
    """Under an unknown key every request is refused, and the table shows it."""
    stranger = replace(tollhouse, headers={"Authorization": "unknown"})
    figures = measure(
        scenarios.of_name(name), "tollhouse", stranger, upstream, tmp_path, OPTIONS, next(firsts)
    )
    assert figures.records == 0
    assert list(figures.refused) == [status]
    assert f"{figures.refused[status]} refused" in table([figures])


@pytest.mark.parametrize("name", ["100x4", "10x4-json-gzip", "1x8-zstd", "10x2-grpc"])
def test_yardstick_accepts_the_same_load(
    name: str, yardstick: Running, upstream: LoadSink, tmp_path: Path
) -> None:
    scenario = scenarios.of_name(name)
    figures = measure(scenario, "yardstick", yardstick, upstream, tmp_path, OPTIONS)
    assert figures.refused == {}
    assert figures.broken == 0
    assert figures.records > 0


@pytest.fixture(scope="module")
def yardstick() -> Iterator[Running]:
    with targets.yardstick(cores=meters.cores_for(1)[0]) as running:
        yield running


def test_the_server_without_the_flush(tmp_path: Path, upstream: LoadSink) -> None:
    """The cost of the flush is measured with a server that does everything except the flush."""
    cores = meters.cores_for(1)[0]
    with targets.tollhouse(tmp_path / "unflushed", upstream.url, name="unflushed", cores=cores) as running:
        figures = measure(
            scenarios.of_name("100x2"), "unflushed", running, upstream, tmp_path, OPTIONS, next(firsts)
        )
    assert figures.broken == 0
    assert figures.undelivered == 0
    assert figures.records > 0


def test_a_backlog_is_filled_waits_and_drains(tmp_path: Path) -> None:
    figures = play(scenarios.of_name("drain-10k"), "tollhouse", tmp_path, OPTIONS)
    assert figures.records == 10_000
    assert figures.undelivered == 0
    assert (figures.delivered_per_s or 0) > 0
    assert (figures.ready_s or 0) > 0


def test_a_profile_without_a_sampler(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without py-spy, the server is profiled by cProfile, and the file lists its functions."""
    monkeypatch.setattr(profiles, "sampler", lambda: None)
    options = replace(OPTIONS, profile=tmp_path / "profiles")
    play(scenarios.of_name("10x1"), "tollhouse", tmp_path / "work", options)
    stats = pstats.Stats(str(tmp_path / "profiles/10x1-tollhouse.prof"))
    assert any("gateway/" in file for file, _, _ in stats.stats)  # type: ignore[attr-defined]


def test_metrics_are_requested_again_after_a_503() -> None:
    """
    A server under load may refuse a scrape with 503, which is repeated. Any other failure is an error of the
    benchmark.
    """
    statuses = iter((503, 200, 500))

    class Busy(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(next(statuses))
            self.send_header("Retry-After", "0")
            self.end_headers()
            self.wfile.write(b'one{a="1"} 2\none{a="2"} 3\n')

        def log_message(self, *_: object) -> None:
            """Log nothing."""

    server = Loopback(Busy)
    try:
        assert {"one": 5.0} == meters.metrics(server.url)
        with pytest.raises(HTTPError, match="500"):
            meters.metrics(server.url)
    finally:
        server.close()


def test_every_listed_scenario_has_a_meaning() -> None:
    """
    Each listed scenario name parses into a scenario with the same name, and a seed if it is unfamiliar. Unsupported
    combinations are refused.
    """
    for name in scenarios.listed():
        assert name == scenarios.of_name(name).name.removesuffix(f"-seed{scenarios.SEED}")
    assert 7 == scenarios.of_name("unfamiliar-10x2-seed7").seed
    assert (1000, 256, "grpc", "gzip") == _read("1000x256-grpc-gzip")
    for name in (
        "100",
        "0x1",
        "1x0",
        "100x8-grpc-zstd",
        "events-10x2-grpc",
        "trees-7x1-json",
        "trees-6x1",
        "100x8+",
    ):
        with pytest.raises(ValueError, match="is not a scenario"):
            scenarios.of_name(name)


def _read(name: str) -> tuple[int, int, str, str]:
    scenario = scenarios.of_name(name)
    return scenario.items, scenario.clients, scenario.form, scenario.compression


def test_the_table_shows_medians_and_failures() -> None:
    """The benchmark's table has one line per scenario and target, with failures in the last column."""
    rounds = [Figures(scenario="1x1", target="tollhouse", accepted_per_s=rate) for rate in (1.0, 30.0, 2.0)]
    rounds[1].refused = {"503": 4}
    (line,) = table(rounds).splitlines()[2:]
    cells = [cell.strip() for cell in line.strip("|").split("|")]
    assert ["1x1", "tollhouse", "2"] == cells[:3]
    assert "4 refused" == cells[-1]


def test_a_load_is_sent_under_many_keys(upstream: LoadSink, tmp_path: Path) -> None:
    scenario = scenarios.of_name("real-10x4-3keys")
    cores = meters.cores_for(1)[0]
    installation = targets.tollhouse(tmp_path / "keys", upstream.url, cores=cores, keys=scenario.keys)
    with installation as running:
        assert 3 == len(set(running.keys))
        figures = measure(scenario, "tollhouse", running, upstream, tmp_path, OPTIONS, next(firsts))
    assert figures.refused == {}
    assert figures.broken == 0
    assert figures.undelivered == 0
    assert figures.records > 0
