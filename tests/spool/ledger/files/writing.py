"""
Writes the facts of a random log until all of it is in files. It may be killed and started again:
python -m tests.spool.ledger.files.writing SEED ENTRIES FOLDER
"""

from __future__ import annotations

import random
import sys
from dataclasses import replace
from pathlib import Path

from spool.ledger.files.writer import FactWriter
from spool.ledger.work import WorkUnitHasher
from tests.spool.ledger.files.histories import DAY, LISTED, SPREAD, opened_prices, random_log
from tests.spool.ledger_log import BEGIN, FakeLog

HASHER = WorkUnitHasher(b"0" * 32)


def log_of(seed: int, *, entries: int = 12) -> FakeLog:
    return random_log(random.Random(seed), entries=entries, charges=True, recalculations=True)


def open_writer(folder: Path) -> FactWriter:
    return FactWriter(folder, HASHER, opened_prices, listed=LISTED)


def write_all(writer: FactWriter, log: FakeLog, chance: random.Random) -> None:
    """Write the rest of a log, in parts and merges at random places."""
    for entry in log.entries:
        if entry.last < writer.next_number:
            continue
        known = max(writer.next_number - entry.first, 0)
        writer.add_entries([replace(entry, first=entry.first + known, records=entry.records[known:])])
        if chance.random() < 0.4:
            writer.write_parts()
        if chance.random() < 0.3:
            writer.merge_next(BEGIN + chance.choice((SPREAD, 100 * DAY)))
    writer.write_parts()
    while writer.merge_next(BEGIN + 100 * DAY):
        pass


if __name__ == "__main__":
    seed, entries = map(int, sys.argv[1:3])
    write_all(open_writer(Path(sys.argv[3])), log_of(seed, entries=entries), random.Random())
