"""
If the power is cut at any moment, every acknowledged call is stored once, and Tollhouse starts without help.

One process runs under a recorder of its writes. The test then constructs its directory as cuts at chosen
points of the trace would have left it, and starts Tollhouse on each. SIGKILL cannot show this, because the
kernel keeps written data.
"""

from __future__ import annotations

import random
import shutil
import subprocess
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from spool.sqlite.damage.notes import MARKER
from tests.acceptance.payloads import post
from tests.faults.conftest import Sites
from tests.faults.powercut.replay import (
    Disk,
    Inventory,
    at_most_one_change,
    changes,
    inventory,
    is_kept,
    restore,
)
from tests.faults.scenarios import Trial
from tests.faults.site import FaultSite, Verdict
from tests.rounds import IS_LONG, as_proof

CUTS = 30 if IS_LONG else 2  # number of simulated power cuts per run
SALVAGE_CUTS = 20 if IS_LONG else 3
MUTANT_CUTS = 100  # maximum number of simulated cuts per run of a mutant, within which its defect must show
LOAD_S = 1.5
# pause of a sender between requests; the more is written, the longer each simulated cut takes
PAUSE_S = 0.01 if IS_LONG else 0.03
API_KEY = "th_" + "power-cut" * 5
API_KEY_FILE = """
api_key_file = "{path}"
"""


@pytest.fixture(scope="session")
def recorder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Build the library that records writes."""
    compiler = shutil.which("cc") or shutil.which("gcc") or shutil.which("clang")
    if compiler is None:
        pytest.skip("power cuts need a C compiler (cc, gcc or clang) to build the recorder of writes")
    library = tmp_path_factory.mktemp("recorder") / "recorder.so"
    source = Path(__file__).with_name("powercut") / "recorder.c"
    subprocess.run(
        [compiler, "-shared", "-fPIC", "-O1", "-o", library, source, "-ldl", "-lpthread"], check=True
    )
    return library


@dataclass(frozen=True)
class TracedRun:
    """A recorded run that ended: the acknowledged calls and their positions in the trace."""

    site: FaultSite
    root: Path  # the directory whose writes are recorded
    before: Inventory  # content of `root` before the run
    trace: Path
    acknowledged: dict[str, int]
    keys: dict[str, int]  # a number for each key that was created during the run, by the key's secret

    def cuts(self, rng: random.Random, count: int) -> Iterator[Verdict]:
        """
        Construct the directory at `count` cuts, the first right after the first response. Start, drain
        and judge each.
        """
        recorded = list(changes(self.trace))
        for place in self._places(rng, count, [change.end for change in recorded]):
            print(f"cut at {place} of {recorded[-1].end}")
            disk = Disk(self.before)
            for change in recorded:
                if change.end <= place:
                    disk.change(change)
            left = disk.cut(rng)
            restore(left, self.root, self.trace.with_suffix(".attic"))
            yield self._judge(place)

    def _places(self, rng: random.Random, count: int, ends: list[int]) -> Iterator[int]:
        """
        Yield positions, most of them right after a response, when its promise must be on the disk. The rest
        follow a change.
        """
        answered = sorted(place for place in self.acknowledged.values() if place) or ends
        yield answered[0]
        for _ in range(count - 1):
            place = rng.choice(answered)
            # The place is at most the trace's end, because deliveries of the restarted servers count as later
            # than the end.
            yield min(ends[-1], rng.choice((place, place, place + rng.randrange(20_000), rng.choice(ends))))

    def _judge(self, place: int) -> Verdict:
        site = self.site
        site.upstream.rewind(place)
        site.start()
        site.heal()
        verdict = site.judge({name for name, at in self.acknowledged.items() if at <= place})
        for key, made in self.keys.items():
            if made <= place and post(site.url, site.oracle.make(1).body, key).status != 200:
                verdict.wrong.append("a key that was shown is not known")
        site.tollhouse.stop()
        return verdict


def run(
    sites: Sites,
    recorder: Path,
    tmp_path: Path,
    rng: random.Random,
    *,
    mutant: str = "",
    load_s: float = LOAD_S,
) -> TracedRun:
    """Record a first start and some load, then SIGKILL."""
    key_file = tmp_path / "api.key"
    key_file.write_text(API_KEY + "\n")
    site = sites(rng, server=API_KEY_FILE.format(path=key_file), key=API_KEY)
    root = site.tollhouse.directory
    before, trace = inventory(root), tmp_path / f"{root.name}.trace"
    site.oracle.place = site.upstream.place = lambda: trace.stat().st_size
    environment = {"LD_PRELOAD": str(recorder), "TRACE_ROOT": str(root), "TRACE_FILE": str(trace)}
    url = site.start(mutant=mutant, **environment)
    keys = {}
    with site.oracle.load(url, senders=3, pause_s=PAUSE_S):
        made = site.tollhouse.key("made under load")
        keys[made] = trace.stat().st_size
        time.sleep(load_s)
        site.kill()
    site.oracle.place = site.upstream.place = lambda: trace.stat().st_size + 1
    return TracedRun(site, root, before, trace, dict(site.oracle.places), keys)


def run_salvage(
    sites: Sites, recorder: Path, tmp_path: Path, rng: random.Random, *, mutant: str = ""
) -> TracedRun:
    """Record a start that salvages a fully readable spool which has sent nothing yet, then SIGKILL."""
    site = sites(rng)
    site.upstream.down()
    site.oracle.send_all(site.start(), 1000)
    site.until(lambda one: _queued(one, "archive/ai-telemetry") == 0, "the record file is written")
    site.kill()
    root = site.tollhouse.directory
    (root / "tollhouse-data" / MARKER).touch()
    before, trace = inventory(root), tmp_path / f"{root.name}.trace"
    site.start(mutant=mutant, LD_PRELOAD=str(recorder), TRACE_ROOT=str(root), TRACE_FILE=str(trace))
    site.kill()
    site.oracle.place = site.upstream.place = lambda: trace.stat().st_size + 1
    site.upstream.up()
    return TracedRun(site, root, before, trace, dict.fromkeys(site.oracle.acknowledged, 0), {})


def _queued(site: FaultSite, name: str) -> int:
    return next(int(route["queued"]) for route in site.route_states() if route["route"] == name)


@pytest.mark.proof
@pytest.mark.fault("F4")
def test_a_power_cut_within_a_salvage(trial: Trial, sites: Sites, recorder: Path, tmp_path: Path) -> None:
    """After a cut at any time, the next start salvages again or continues, and no readable record is lost."""
    for rng in trial.rounds(short=1, full=10):
        for verdict in run_salvage(sites, recorder, tmp_path, rng).cuts(rng, SALVAGE_CUTS):
            trial.count(
                acknowledged=verdict.acknowledged, lost=len(verdict.lost), duplicates=len(verdict.duplicates)
            )
            verdict.check()


@pytest.mark.proves("A 2xx means the record is on disk")
@pytest.mark.fault("F2")
def test_every_acknowledged_call_outlives_a_power_cut(
    trial: Trial, sites: Sites, recorder: Path, tmp_path: Path
) -> None:
    """The server starts after losing or tearing any unsynced writes, and no record is lost or duplicated."""
    for rng in trial.rounds(short=1, full=10):
        traced = run(sites, recorder, tmp_path, rng, load_s=rng.uniform(1, 4) if IS_LONG else 1.0)
        disk = Disk(traced.before)
        for change in changes(traced.trace):
            disk.change(change)
        there = {
            name: content
            for name, _, content in inventory(traced.root)
            if content is not None and is_kept(name)
        }
        # the process may be killed between its last change and the record of this change
        assert at_most_one_change(disk.whole(), there), disk.whole().keys() ^ there.keys()
        for verdict in traced.cuts(rng, CUTS):
            trial.count(
                acknowledged=verdict.acknowledged, lost=len(verdict.lost), duplicates=len(verdict.duplicates)
            )
            verdict.check()


@pytest.mark.parametrize(
    ("there", "is_one"),
    [
        ({"a": b"1", "b": b"2"}, True),
        ({"a": b"1", "b": b"3"}, True),  # the content of one file was changed
        ({"a": b"1"}, True),  # one file was removed
        ({"a": b"1", "b": b"2", "c": b""}, True),  # one file was created
        ({"b": b"1"}, True),  # one file was renamed over another
        ({"a": b"1", "c": b"2"}, True),  # one file was renamed
        ({"a": b"2", "b": b"3"}, False),
        ({"a": b"1", "c": b"3"}, False),  # one file was removed, and one was created
        ({"b": b"3"}, False),
        ({"c": b"1"}, False),  # one file was renamed, and one was removed
    ],
)
def test_the_change_of_a_kill_may_not_be_recorded(there: dict[str, bytes], is_one: bool) -> None:
    """
    The last change before a kill may be missing in the trace. A rename counts as one change of two names.
    """
    assert at_most_one_change({"a": b"1", "b": b"2"}, there) is is_one


# Per mutant: the broken promise, and whether the short round also checks that the tests detect it.
MUTANTS = {
    "synchronous_normal": True,
    "synchronous_off": False,
    "answer_before_commit": False,
    "no_directory_sync": False,
    "unsynced_secret": False,
    "unsynced_archive": False,
    "no_archive_directory_sync": False,
    "registry_not_durable": False,
}


@pytest.mark.proves("A 2xx means the record is on disk")
@pytest.mark.parametrize(
    "mutant", [name if is_short else as_proof(name) for name, is_short in MUTANTS.items()]
)
def test_a_broken_promise_is_seen(sites: Sites, recorder: Path, tmp_path: Path, mutant: str) -> None:
    """If Tollhouse flushes too little, some cut loses acknowledged records or breaks the start."""
    rng = random.Random(mutant)
    traced = run(sites, recorder, tmp_path, rng, mutant=mutant)
    # if a line of the record file is cut off, the judge raises ValueError
    with pytest.raises((AssertionError, ValueError)):
        for verdict in traced.cuts(rng, MUTANT_CUTS):
            verdict.check()


@pytest.mark.proof
@pytest.mark.timeout(900)
def test_a_marker_that_is_not_flushed_is_seen(sites: Sites, recorder: Path, tmp_path: Path) -> None:
    """If a salvage does not flush its marker, some cut breaks the next start or loses stored records."""
    rng = random.Random("unsynced_marker")
    traced = run_salvage(sites, recorder, tmp_path, rng, mutant="unsynced_marker")
    with pytest.raises((AssertionError, ValueError)):
        for verdict in traced.cuts(rng, MUTANT_CUTS * 2):
            verdict.check()
