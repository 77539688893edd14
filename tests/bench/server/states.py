"""One round of one target in a new installation, including drains, starts and idling."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from tests.bench.server import backlog, meters, profiles, targets
from tests.bench.server.rounds import Figures, LoadSink, Readings, RoundOptions, measure, sink
from tests.bench.server.scenarios import Scenario
from tests.bench.server.targets import Running

DRAIN_DELAY_S = 0.02
DRAIN_PATIENCE_S = 60.0  # limit in seconds; a refused route waits before it retries


def start(
    scenario: Scenario, target: str, running: Running, upstream: LoadSink, options: RoundOptions
) -> Figures:
    """Measure the duration and memory of a start."""
    return Figures(
        scenario=scenario.name, target=target, ready_s=running.ready_s, peak_mib=meters.peak_mib(running.pid)
    )


def drain(
    scenario: Scenario, target: str, running: Running, upstream: LoadSink, options: RoundOptions
) -> Figures:
    """Measure from the return of the upstream, which responds after DRAIN_DELAY_S, until no record waits."""
    assert scenario.backlog is not None
    before = Readings(running, upstream)
    began = time.perf_counter()
    upstream.behave(status=200, delay_s=DRAIN_DELAY_S)
    arrived, last = upstream.wait(scenario.backlog, patience_s=DRAIN_PATIENCE_S)
    after = Readings(running, upstream)
    return Figures(
        scenario=scenario.name,
        target=target,
        records=arrived,
        delivered_per_s=arrived / (last - began),
        cpu_us=(after.cpu - before.cpu) / max(arrived, 1) * 1e6,
        written_bytes=(after.written - before.written) / max(arrived, 1),
        peak_mib=meters.peak_mib(running.pid),
        ready_s=running.ready_s,
        undelivered=scenario.backlog - arrived,
    )


def idle(
    scenario: Scenario, target: str, running: Running, upstream: LoadSink, options: RoundOptions
) -> Figures:
    """Measure processor time and bytes per second of a server that receives nothing."""
    time.sleep(options.warm_up)
    before = Readings(running, upstream)
    time.sleep(options.seconds)
    after = Readings(running, upstream)
    seconds = after.at - before.at
    return Figures(
        scenario=scenario.name,
        target=target,
        cpu_us=(after.cpu - before.cpu) / seconds * 1e6,
        written_bytes=(after.written - before.written) / seconds,
        peak_mib=meters.peak_mib(running.pid),
        ready_s=running.ready_s,
    )


STATES = {"start": start, "drain": drain, "idle": idle}


def play(
    scenario: Scenario,
    target: str,
    work: Path,
    options: RoundOptions,
    prepare: Callable[[Path], object] | None = None,
) -> Figures:
    """Run one round of one target with new processes and directories."""
    server_cores, load_cores = meters.cores_for(options.server_cores)

    slow_profile = None
    if options.profile is not None and profiles.sampler() is None:
        options.profile.mkdir(parents=True, exist_ok=True)
        slow_profile = (options.profile / f"{scenario.name}-{target}.prof").absolute()
        options = replace(options, profile=None)

    def prepared(directory: Path) -> None:
        if scenario.backlog:
            backlog.fill(directory, scenario.backlog)
        if prepare is not None:
            prepare(directory)

    with sink(load_cores) as upstream:
        if scenario.backlog is not None:
            upstream.behave(status=503)
        if target == "yardstick":
            with targets.yardstick(cores=server_cores) as running:
                return measure(scenario, target, running, upstream, work, options)
        installation = targets.tollhouse(
            work / "installation",
            upstream.url,
            name=target,
            cores=server_cores,
            grpc=scenario.is_grpc,
            prepare=prepared,
            profile=slow_profile,
            keys=scenario.keys,
        )
        with installation as running:
            if scenario.kind in STATES:
                return STATES[scenario.kind](scenario, target, running, upstream, options)
            return measure(scenario, target, running, upstream, work, options)
