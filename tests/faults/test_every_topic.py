"""Ends of every kind while all topics are sent: kill, orderly stop, takeover. Every topic survives them."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from spool.engines import POSTGRES, SQLITE
from spool.record import AI_TELEMETRY
from tests.faults.conftest import Sites
from tests.faults.every_topic import DESTINATIONS, EveryTopic
from tests.faults.scenarios import Trial
from tests.faults.site import FaultSite
from tests.spool.postgres_cluster import Schema, storage_table

ENDS = {
    "killed": FaultSite.kill,
    "stopped": lambda site: site.tollhouse.stop(),
    "taken over": FaultSite.take_over,
}
ENDED = 5  # number of times that each installation's server is killed, stopped or taken over


@pytest.mark.proof
@pytest.mark.fault("F51")
@pytest.mark.parametrize("engine", [SQLITE, POSTGRES])
def test_every_end_under_load_of_every_topic(
    trial: Trial, sites: Sites, engine: str, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    """
    However the server ends, each acknowledged report exists once, and its idempotency key still belongs to
    its body. Each acknowledged call is stored once. The accounting agrees.
    """
    for number, rng in enumerate(trial.rounds(short=1, full=50)):
        storage = _storage(request, tmp_path / f"database-{number}") if engine == POSTGRES else ""
        spool = 'max_bytes = "1GiB"' if storage else ""
        site = sites(rng, spool=spool, storage=storage, more=DESTINATIONS)
        others = EveryTopic(rng, site.tollhouse)
        for _ in range(ENDED):
            if site.tollhouse.process is None:
                site.start()
            with site.oracle.load(site.url, senders=2, pause_s=0.0), others.load(site.url):
                others.wait_until_taken()
                time.sleep(rng.uniform(0.0, 0.8))
                ENDS[rng.choice([*ENDS])](site)
        began = time.monotonic()
        if site.tollhouse.process is None:
            site.start()
        recovery_s = site.heal(since=began)
        verdicts = [others.judge(site.url), site.judge(site.oracle.acknowledged, topic=AI_TELEMETRY)]
        for verdict in verdicts:
            trial.count(
                acknowledged=verdict.acknowledged,
                lost=len(verdict.lost),
                duplicates=len(verdict.duplicates),
                recovery_s=recovery_s,
            )
        print(*[line for line in site.tollhouse.log if '"level":"error"' in line], sep="\n")
        for verdict in verdicts:
            assert verdict.acknowledged
            verdict.check()
        kept = len({record["request_id"] for record in site.tollhouse.records()})
        assert kept == site.tollhouse.json("spool", "verify")["topics"]["ai-telemetry"]["accepted"]
        site.tollhouse.stop()


def _storage(request: pytest.FixtureRequest, folder: Path) -> str:
    folder.mkdir()
    schema: Schema = request.getfixturevalue("unmade_schemas")()
    return storage_table(folder, dsn=schema.dsn, schema=schema.name)
