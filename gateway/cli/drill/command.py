"""
`tollhouse drill`: kills, a power cut, a full disk, an outage and a poison record, on a copy next to
the data directory.
"""

from __future__ import annotations

import random
import resource
import shutil
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path

import click

from gateway.cli import config_option, exit_with_message, load_config_or_exit
from gateway.cli.data_directory import require_data_directory
from gateway.cli.drill.server import MOST_HOLD_S, DrillFailed, DrillServer
from gateway.cli.drill.surroundings import (
    DrillReceiver,
    DrillTraffic,
    PowerCutDisk,
    PowerCutFailed,
    build_drill_request,
)
from gateway.cli.output import show_json, show_table
from spool.disks import nearest_existing_path

COLUMNS = ("fault", "rounds", "acknowledged", "lost", "duplicates", "recovery_s", "note")
KILLS = 5
CUTS = 5
OUTAGE_S = 5.0
FULL_S = 2.0
DRAIN_S = 90.0
SMALL_FILE = 4096


@dataclass(frozen=True, kw_only=True)
class DrillResult:
    """
    The result of one fault. `recovery_s` is the longest time in seconds until a record was accepted again.
    `note` says what was simulated, or why the fault was not tried.
    """

    fault: str
    rounds: int = 0
    acknowledged: int = 0
    lost: int = 0
    duplicates: int = 0
    recovery_s: float | None = None
    note: str = ""

    @property
    def has_passed(self) -> bool:
        return not self.lost and not self.duplicates


@dataclass(kw_only=True)
class DrillEnvironment:
    """The server under test, its traffic and its receiver, which every fault uses."""

    config: Path | None
    scratch: Path
    server: DrillServer
    receiver: DrillReceiver
    traffic: DrillTraffic
    hold_s: float

    def wait_until_delivered(self) -> None:
        """
        Wait until every acknowledged record is delivered, but at most DRAIN_S plus `spool.hold`. Records that
        are still missing then count as lost.
        """
        self.traffic.retry_unacknowledged()
        deadline = time.monotonic() + DRAIN_S + self.hold_s
        while time.monotonic() < deadline and self.receiver.names_not_received(
            self.traffic.acknowledged - {self.receiver.poison}
        ):
            time.sleep(0.1)

    def fault_result(
        self,
        fault: str,
        before: set[str],
        *,
        rounds: int = 1,
        recovery_s: float | None = None,
        note: str = "",
    ) -> DrillResult:
        new_acknowledged = self.traffic.acknowledged - before
        return DrillResult(
            fault=fault,
            rounds=rounds,
            acknowledged=len(new_acknowledged),
            lost=len(self.receiver.names_not_received(new_acknowledged - {self.receiver.poison})),
            duplicates=len(self.receiver.names_received_twice() & new_acknowledged),
            recovery_s=recovery_s,
            note=note,
        )


@click.command()
@config_option
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def drill(config: Path | None, as_json: bool) -> None:
    """
    Test a copy of this installation with faults.

    The faults are kills, a power cut, a full disk, an outage of the cost service and a poison record. Starts a
    separate server with this configuration in a new directory next to data_dir. It receives generated calls
    and delivers to one destination on loopback instead of your cost service and the destinations. Real data and
    real destinations are never touched, and the directory is deleted at the end. Takes one to two minutes.
    Exit code 1 if a record was lost or counted twice.
    """
    settings = load_config_or_exit(config)
    if config is None:
        require_data_directory(settings, config)
    beside = nearest_existing_path(settings.data_dir.absolute().parent)
    began = time.monotonic()
    try:
        scratch = Path(tempfile.mkdtemp(prefix=f"{settings.data_dir.name}-drill-", dir=beside))
    except OSError as error:
        exit_with_message(f"{beside}: {error.strerror}")
    receiver = DrillReceiver()
    server = DrillServer(config, scratch=scratch, receiver=receiver.url)
    site = DrillEnvironment(
        config=config,
        scratch=scratch,
        server=server,
        receiver=receiver,
        traffic=DrillTraffic(server),
        hold_s=min(settings.spool.hold, MOST_HOLD_S),
    )
    try:
        results = _run_all_faults(site, shows_progress=not as_json)
    except (DrillFailed, TimeoutError) as error:
        exit_with_message(f"the drill failed: {error}")
    finally:
        server.kill()
        receiver.close()
        shutil.rmtree(scratch, ignore_errors=True)
    passed = all(result.has_passed for result in results)
    if as_json:
        show_json({"drill": {"passed": passed, "faults": [asdict(result) for result in results]}})
    else:
        show_table([asdict(result) for result in results], COLUMNS)
        click.echo(
            f"\n{'nothing was lost or counted twice' if passed else 'NOT PASSED'}; "
            f"{time.monotonic() - began:.0f} s"
        )
    sys.exit(0 if passed else 1)


def _run_all_faults(environment: DrillEnvironment, *, shows_progress: bool) -> list[DrillResult]:
    environment.server.start()
    environment.traffic.send_and_measure_acknowledgement_s(build_drill_request(1))
    results = []
    for number, fault in enumerate(FAULTS, 1):
        if shows_progress:
            click.echo(f"{number}/{len(FAULTS)} {fault.__name__.replace('_', ' ')} ...", err=True)
        results.append(fault(environment))
    environment.server.stop()
    return results


def run_kill_drill(environment: DrillEnvironment) -> DrillResult:
    """Kill the server under load. `recovery_s` is measured from the start of the next process."""
    before = set(environment.traffic.acknowledged)
    slowest = 0.0
    for _ in range(KILLS):
        with environment.traffic.sending_continuously():
            time.sleep(random.uniform(0.3, 1.0))
            environment.server.kill()
        began = time.monotonic()
        environment.server.start()
        environment.traffic.send_and_measure_acknowledgement_s(build_drill_request(1))
        slowest = max(slowest, time.monotonic() - began)
    environment.wait_until_delivered()
    return environment.fault_result("kill -9", before, rounds=KILLS, recovery_s=slowest)


def run_power_cut_drill(environment: DrillEnvironment) -> DrillResult:
    """
    Cut the power of a separate file system under load. `recovery_s` is measured from the start of the next process.
    """
    try:
        disk = PowerCutDisk(environment.scratch)
    except PowerCutFailed as error:
        return DrillResult(fault="power cut", note=f"not tried: {error}")
    server = DrillServer(environment.config, scratch=disk.directory, receiver=environment.receiver.url)
    cut_site = replace(environment, server=server, traffic=DrillTraffic(server))
    try:
        return _cut_power(cut_site, disk)
    except PowerCutFailed as error:
        return DrillResult(fault="power cut", note=f"not tried: {error}")
    finally:
        server.kill()
        disk.unmount()


def _cut_power(environment: DrillEnvironment, disk: PowerCutDisk) -> DrillResult:
    environment.server.start()
    environment.traffic.send_and_measure_acknowledgement_s(build_drill_request(1))
    slowest = 0.0
    for _ in range(CUTS):
        with environment.traffic.sending_continuously():
            time.sleep(random.uniform(0.3, 1.0))
            # While a file system shuts down, a flush may report success for data that are already lost. A real cut
            # stops the server as well, so it acknowledges none of them.
            environment.server.suspend_process()
            disk.cut_power()
            environment.server.kill()
        disk.unmount()
        disk.mount()
        began = time.monotonic()
        environment.server.start()
        environment.traffic.send_and_measure_acknowledgement_s(build_drill_request(1))
        slowest = max(slowest, time.monotonic() - began)
    environment.wait_until_delivered()
    note = "ext4 in an image file next to data_dir, shut down without a flush"
    return environment.fault_result("power cut", set(), rounds=CUTS, recovery_s=slowest, note=note)


def run_full_disk_drill(environment: DrillEnvironment) -> DrillResult:
    """Limit the server's files to a small size, so that every write to the log fails as on a full disk."""
    before = set(environment.traffic.acknowledged)
    refused = environment.traffic.refused
    if not hasattr(resource, "prlimit"):
        return DrillResult(
            fault="full disk", note="not tried: this system cannot limit the file size of a process"
        )
    unbounded = resource.prlimit(environment.server.pid, resource.RLIMIT_FSIZE)
    with environment.traffic.sending_continuously():
        time.sleep(0.5)
        resource.prlimit(environment.server.pid, resource.RLIMIT_FSIZE, (SMALL_FILE, unbounded[1]))
        time.sleep(FULL_S)
        resource.prlimit(environment.server.pid, resource.RLIMIT_FSIZE, unbounded)
        recovery_s = environment.traffic.send_and_measure_acknowledgement_s(build_drill_request(1))
        time.sleep(0.5)
    environment.wait_until_delivered()
    waited = environment.traffic.refused - refused
    note = f"simulated: no file could grow for {FULL_S:.0f} s; {waited} requests were told to retry later"
    return environment.fault_result("full disk", before, recovery_s=recovery_s, note=note)


def run_outage_drill(environment: DrillEnvironment) -> DrillResult:
    """Let the destination answer 503. Recovery ends when all waiting records have arrived."""
    before = set(environment.traffic.acknowledged)
    environment.receiver.is_down = True
    with environment.traffic.sending_continuously():
        time.sleep(OUTAGE_S)
    environment.receiver.is_down = False
    began = time.monotonic()
    environment.wait_until_delivered()
    note = (
        f"{OUTAGE_S:.0f} s of 503; recovery lasts until all records arrived, including {environment.hold_s:g} s "
        "of spool.hold"
    )
    return environment.fault_result(
        "cost service outage", before, recovery_s=time.monotonic() - began, note=note
    )


def run_poison_record_drill(environment: DrillEnvironment) -> DrillResult:
    """Send one record that the destination always rejects, together with others."""
    before = set(environment.traffic.acknowledged)
    calls = build_drill_request(50)
    environment.receiver.poison = calls.names[17]
    began = time.monotonic()
    environment.traffic.send_and_measure_acknowledgement_s(calls)
    environment.wait_until_delivered()
    recovery_s = time.monotonic() - began
    note = (
        f"1 of 50 was rejected; recovery lasts until the others arrived, including {environment.hold_s:g} s of "
        "spool.hold"
    )
    return environment.fault_result("poison record", before, recovery_s=recovery_s, note=note)


FAULTS: Sequence[Callable[[DrillEnvironment], DrillResult]] = (
    run_kill_drill,
    run_power_cut_drill,
    run_full_disk_drill,
    run_outage_drill,
    run_poison_record_drill,
)
