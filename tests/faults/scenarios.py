"""Fault scenarios by name, and the row of each in the table of `make proofs PART=faults`."""

from __future__ import annotations

import os
import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from tests.rounds import IS_LONG

SEED = os.environ.get("TOLLHOUSE_SEED", "")

SCENARIOS = {
    "F1": "SIGKILL at random points under load",
    "F2": "power cut: unsynced writes are lost or torn",
    "F3": "killed between the upstream's 2xx and our own commit",
    "F4": "killed or cut off during recovery",
    "F5": "disk full while writing, then free space again",
    "F6": "disk full at start",
    "F7": "quota, inodes, errors of fsync",
    "F8": "read-only, lost, network and memory mounts",
    "F9": "bit flips, truncated and zeroed pages, in files and WALs",
    "F10": "damaged header of a database",
    "F11": "a second process on the same directory",
    "F12": "upstream down for long at full rate, then back",
    "F13": "408, 429, 5xx, no answer, slow answers, resets",
    "F14": "upstream key disabled or without scope, then repaired",
    "F15": "one record that the upstream rejects, in a batch",
    "F16": "partial success",
    "F17": "one key floods, or holds requests open",
    "F18": "the queue on disk is full",
    "F19": "flood of duplicates",
    "F20": "the clock jumps",
    "F21": "SIGTERM and SIGHUP under load",
    "F22": "downgrade with a filled queue",
    "F23": "compressed bombs, floods of items, slow connections",
    "F24": "a reader that holds the log open",
    "F25": "secrets rotate while records wait",
    "F26": "devices revoked, enrolled at once, claimed twice",
    "F27": "a blocked event loop, a dead writer, a failing task",
    "F28": "soak at twice the expected rate with random faults",
    "F29": "several gateways: any of them killed or stopped at random",
    "F30": "several gateways: the primary killed, the standby promoted",
    "F31": "several gateways: the database down, then back",
    "F32": "several gateways: the database hangs",
    "F33": "several gateways: the standby gone, then back",
    "F34": "several gateways: no standby configured, then one again",
    "F35": "several gateways: a transaction is left open",
    "F36": "several gateways: too many connections",
    "F37": "several gateways: the database's disk full, then free space",
    "F38": "several gateways: bodies, accounting rows and ids damaged",
    "F39": "several gateways: a pooler killed, then back",
    "F40": "several gateways: the old primary keeps running",
    "F41": "several gateways: a standby that lags takes over",
    "A2": "several gateways: deliveries without a standby, then one takes over",
    "A9": "several gateways: standby names change under load",
    "A10": "several gateways: a deletion without a standby, then one takes over",
    "F46": "several gateways: waiting calls vanish in a takeover",
    "F47": "several gateways: a crash, then waiting calls vanish",
    "F48": "several gateways: no standby named, then calls vanish",
    "F49": "one key floods during a fault, while another key sends",
    "F50": "a data lake: killed at any point of writing files",
    "F51": "every topic: killed, stopped and taken over under load",
}


@dataclass
class FaultRow:
    """
    Results of the tests of one scenario. `duplicates` are records that a destination counts more than once.
    """

    rounds: int = 0
    acknowledged: int = 0
    lost: int = 0
    duplicates: int = 0
    recovery_s: float | None = None  # longest time until a new record was delivered
    # results of the scenario's tests: passed, failed or skipped
    outcomes: set[str] = field(default_factory=set)


class Trial:
    """One test of a scenario. It chooses the seeds of its rounds and adds to the scenario's row."""

    def __init__(self, name: str, row: FaultRow) -> None:
        self.name = name
        self.row = row

    def rounds(self, *, short: int, full: int, failed: Sequence[int] = ()) -> Iterator[random.Random]:
        """
        Yield a random source per round: first the seeds in `failed` (regressions), then `short` seeds that
        are the same in every run, or `full` new seeds.

        `TOLLHOUSE_SEED` replays one round. pytest shows the printed seeds of a failed test.
        """
        chance = random.SystemRandom() if IS_LONG else random.Random(self.name)
        drawn = (chance.randrange(2**32) for _ in range(full if IS_LONG else short))
        for seed in [int(SEED)] if SEED else [*failed, *drawn]:
            print(f"{self.name}: TOLLHOUSE_SEED={seed}")
            self.row.rounds += 1
            yield random.Random(seed)

    def count(
        self, *, acknowledged: int = 0, lost: int = 0, duplicates: int = 0, recovery_s: float | None = None
    ) -> None:
        """Add to the scenario's row. The row keeps the longest recovery."""
        self.row.acknowledged += acknowledged
        self.row.lost += lost
        self.row.duplicates += duplicates
        if recovery_s is not None:
            self.row.recovery_s = max(recovery_s, self.row.recovery_s or 0.0)


def table(rows: dict[str, FaultRow]) -> Iterator[str]:
    """Yield the lines of the table. A long run also lists scenarios without tests."""
    yield f"{'':4} {'scenario':56} {'rounds':>6} {'acknowledged':>12} {'lost':>5} {'dupl.':>5} {'recovery':>9}  result"
    for name, title in SCENARIOS.items():
        row = rows.get(name)
        if row is None:
            if IS_LONG:
                yield f"{name:4} {title:56} {'not run':>6}"
            continue
        recovery = "" if row.recovery_s is None else f"{row.recovery_s:.1f} s"
        counts = f"{row.rounds:6} {row.acknowledged:12} {row.lost:5} {row.duplicates:5} {recovery:>9}"
        yield f"{name:4} {title:56} {counts}  {', '.join(sorted(row.outcomes))}"
