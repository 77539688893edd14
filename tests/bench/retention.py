"""
`python -m tests.bench.retention` measures how much a load costs while retention deletes as many records as arrive.

The log gets records, and hours later as many again: once alone, and once while the first ones are deleted. Only
the storage is measured, so the share of a whole server's cost is a fraction of the printed one.
"""

from __future__ import annotations

import asyncio
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from statistics import median

import click

from gateway.configuration.sections import Config
from gateway.service.assembly.storage import open_storage
from spool.clock import SystemClock
from spool.identity import RecordIdentity
from spool.log.protocols import RecordLog
from spool.log.values import Submission
from spool.record import AI_TELEMETRY
from spool.settings import SpoolSettings
from tests.acceptance.conftest import ROOT
from tests.bench.server.backlog import call

CLIENTS = 8
LATER_S = 86_400.0


class ShiftedClock(SystemClock):
    ahead_s = 0.0

    def now(self) -> float:
        return time.time() + self.ahead_s


@dataclass(frozen=True, kw_only=True)
class RetentionFigures:
    """
    Results of the second load: processor time per record, seconds on the clock, and number of deleted entries.
    """

    us: float
    seconds: float
    removed: int


def measured(directory: Path, records: int, size: int, *, retains: bool) -> RetentionFigures:
    return asyncio.run(_measured(directory, records, size, retains))


async def _measured(directory: Path, records: int, size: int, retains: bool) -> RetentionFigures:
    clock = ShiftedClock()
    settings = SpoolSettings(hold=0.0, late_window=0.0, retention=LATER_S / 2)
    async with open_storage(Config(data_dir=directory, spool=settings), clock=clock) as storage:
        await _load(storage.log, range(0, records, size))
        await storage.ledger.catch_up(storage.log)
        clock.ahead_s = LATER_S
        cpu, began = time.process_time(), time.perf_counter()
        retaining = asyncio.create_task(storage.log.run_retention()) if retains else None
        await _load(storage.log, range(records, 2 * records, size))
        removed = await retaining if retaining else 0
        cpu, seconds = time.process_time() - cpu, time.perf_counter() - began
    return RetentionFigures(us=cpu / records * 1e6, seconds=seconds, removed=removed)


async def _load(record_log: RecordLog, firsts: range) -> None:
    """Append requests of as many records as the step of `firsts`, by several clients at once."""
    remaining = iter(firsts)
    await asyncio.gather(*(_send(record_log, remaining, firsts.step) for _ in range(CLIENTS)))


async def _send(record_log: RecordLog, firsts: Iterator[int], size: int) -> None:
    for first in firsts:
        batch = [call(number, 5000, 0) for number in range(first, first + size)]
        identities = [RecordIdentity(record.id) for record in batch]
        await record_log.append_submission(
            Submission(topic=AI_TELEMETRY, received=size, records=batch, identities=identities)
        )


@click.command(context_settings={"help_option_names": ["-h", "--help"]})
@click.option(
    "--records", default=1_000_000, show_default=True, help="Records that are deleted, and that arrive."
)
@click.option("--size", default=100, show_default=True, help="Records per request.")
@click.option("--rounds", default=3, show_default=True)
def bench(records: int, size: int, rounds: int) -> None:
    """Print the processor time per arriving record, alone and while retention runs."""
    out = ROOT / "build/bench"
    out.mkdir(parents=True, exist_ok=True)
    found: dict[bool, list[RetentionFigures]] = {False: [], True: []}
    for _ in range(rounds):
        for retains, figures in found.items():
            with tempfile.TemporaryDirectory(dir=out) as directory:
                figures.append(measured(Path(directory), records, size, retains=retains))
    alone = median(one.us for one in found[False])
    click.echo("| retention | us a record | ratio | s | deleted entries |\n|---|---|---|---|---|")
    for retains, figures in found.items():
        us, seconds = median(one.us for one in figures), median(one.seconds for one in figures)
        click.echo(
            f"| {'yes' if retains else 'no'} | {us:.2f} | {us / alone:.3f} | {seconds:.1f} | {figures[0].removed} |"
        )


if __name__ == "__main__":
    bench(prog_name="python -m tests.bench.retention")
