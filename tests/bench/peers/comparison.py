"""Compare every peer under the same load, and under the same kill."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from tests.bench.load.job import LoadFigures
from tests.bench.peers.peer import MakePeer
from tests.bench.server import meters
from tests.bench.server.rounds import Figures, RoundOptions, job_of, load_figures, measure, sink, start_load
from tests.bench.server.scenarios import Scenario, of_name

KILLED = "100x8"


@dataclass(frozen=True, kw_only=True)
class Survival:
    """Result of a run in which the server is killed. `unanswered` records do not count, whether stored or not."""

    peer: str
    acknowledged: int
    lost: int
    repeated: int
    unanswered: int
    ready_s: float = 0.0  # seconds from the restart after the kill until the peer is ready
    remark: str = ""

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


@dataclass
class Comparison:
    loads: list[Figures] = field(default_factory=list)
    survivals: list[Survival] = field(default_factory=list)
    absent: dict[str, str] = field(default_factory=dict)  # for each peer that is not compared, the reason

    def to_json(self) -> dict[str, Any]:
        return {
            "loads": [one.to_json() for one in self.loads],
            "survivals": [one.to_json() for one in self.survivals],
            "absent": self.absent,
        }


def under_load(name: str, make: MakePeer, scenario: Scenario, work: Path, options: RoundOptions) -> Figures:
    """Run one scenario on a new installation of a peer."""
    server_cores, load_cores = meters.cores_for(options.server_cores)
    with sink(load_cores) as upstream:
        peer = make(work / "peer", upstream.url, server_cores)
        try:
            return measure(scenario, name, peer.start(), upstream, work, options)
        finally:
            peer.stop()


def killed(name: str, make: MakePeer, work: Path, options: RoundOptions) -> Survival:
    """
    Kill a peer during a load while the upstream is down, restart it, then start the upstream.

    The senders retry until each request succeeds. Every record of a successful request must arrive.
    """
    server_cores, load_cores = meters.cores_for(options.server_cores)
    scenario = of_name(KILLED)
    with sink(load_cores) as upstream:
        upstream.behave(status=503, keep=True)
        peer = make(work / "peer", upstream.url, server_cores)
        try:
            running = peer.start()
            job = replace(job_of(scenario, running, work / "bodies", options.seconds), repeat=True)
            process = start_load(job, load_cores)
            assert process.stdout is not None
            process.stdout.readline()  # wait until a request is accepted
            time.sleep(options.seconds / 2)
            peer.kill()
            ready_s = peer.start().ready_s
            load = load_figures(process)
            upstream.behave(status=200)
            kept, remark = peer.kept(upstream, load.accepted * scenario.items)
            return replace(judge(name, load, scenario.items, kept), ready_s=ready_s, remark=remark)
        finally:
            peer.stop()


def judge(name: str, load: LoadFigures, items: int, kept: Mapping[str, int]) -> Survival:
    """Check that every record of an acknowledged request was stored exactly once."""
    acknowledged = load.accepted * items
    unknown = {f"{number:08d}" for number in load.unanswered}
    counts = [times for id, times in kept.items() if id[:8] not in unknown]
    return Survival(
        peer=name,
        acknowledged=acknowledged,
        lost=acknowledged - len(counts),
        repeated=sum(counts) - len(counts),
        unanswered=len(unknown) * items,
    )


def survivals_table(survivals: list[Survival]) -> str:
    lines = [
        "| peer | acknowledged | lost | repeated | start after the kill, s | remark |",
        "|---|---|---|---|---|---|",
    ]
    lines += [
        f"| {one.peer} | {one.acknowledged:,} | {one.lost:,} | {one.repeated:,} | {one.ready_s:.1f} | "
        f"{one.remark} |"
        for one in survivals
    ]
    return "\n".join(lines)
