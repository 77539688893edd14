"""
Writes the facts of a random log in which a person is erased, tags are listed and the totals are rebuilt, until all of
it is in files. It may be killed and started again: python -m tests.spool.ledger.files.changing SEED FOLDER
"""

from __future__ import annotations

import random
import sys
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from spool.erasure import Renaming, rename_person, time_of_stored_call
from spool.ledger.files.engine import open_engine
from spool.ledger.files.folder import MANIFEST, PREPARED, FactManifest, LocalStore
from spool.ledger.files.source import sql_of_current_rows
from spool.ledger.files.writer import FactWriter
from spool.log.values import LogEntry
from spool.people import END_USER, STORED_BEFORE, CallTime
from spool.record import AI_TELEMETRY, Inference, Record, pack_records, unpack_records
from tests.spool.ledger.files.histories import DAY, LISTED, opened_prices
from tests.spool.ledger.files.writing import HASHER, log_of
from tests.spool.ledger_log import BEGIN, FakeLog

NAME, PSEUDONYM = "quixote-4711", "erased:0123456789abcdef"
LISTED_LATER = ("ticket", "zone")
ENTRIES = 6


def log_with_name(seed: int) -> FakeLog:
    """Return a random log, with a name that stands nowhere else by chance."""
    log = log_of(seed, entries=ENTRIES)
    for entry in log.entries:
        for record in entry.records:
            for state in (getattr(record, "before", record), getattr(record, "after", record)):
                if getattr(state, "user", None) == "ada":
                    state.user = NAME  # type: ignore[union-attr]
                if isinstance(state, Inference) and state.tags.get("zone") == "b":
                    state.tags = {**state.tags, END_USER: NAME}
    return log


def renaming_below(number: int) -> Renaming:
    def pseudonym(name: str, call: CallTime) -> str:
        return PSEUDONYM if name == NAME and (call.number < number or call == STORED_BEFORE) else name

    return pseudonym


def renamed(log: FakeLog, below: int) -> FakeLog:
    """Return the log after the erasure renamed its records below a number."""
    found = FakeLog()
    for entry in log.entries:
        records: list[Record | None] = []
        for number, record in enumerate(entry.records, entry.first):
            if record is not None:
                [record] = unpack_records(pack_records([record]))
                rename_person(
                    record, renaming_below(below), time_of_stored_call(record, AI_TELEMETRY, number)
                )
            records.append(record)
        found.add(records, at=entry.committed_at)
    return found


@dataclass(frozen=True)
class Plan:
    """What happens before which entry. The rebuild finds no entries before `kept_from`, and `damaged` numbers."""

    log: FakeLog
    erased_before: int
    rebuilt_before: int
    kept_from: int
    damaged: frozenset[int]

    @classmethod
    def of(cls, seed: int) -> Plan:
        chance, log = random.Random(seed), log_with_name(seed)
        rebuilt = chance.randrange(1, ENTRIES)
        calls = [
            number
            for entry in log.entries[:rebuilt]
            for number, record in enumerate(entry.records, entry.first)
            if isinstance(record, Inference)
        ]
        damaged = frozenset(chance.sample(calls, k=min(2, len(calls))))
        return cls(log, chance.randrange(1, ENTRIES), rebuilt, chance.randrange(rebuilt + 1), damaged)

    @property
    def erased_below(self) -> int:
        return self.log.entries[self.erased_before].first

    def entries_for(self, reach: int, *, is_erased: bool, is_rebuild: bool) -> Sequence[LogEntry]:
        """Return the entries from a number on as a reader finds them."""
        log = renamed(self.log, self.erased_below) if is_erased else self.log
        found = []
        for place, entry in enumerate(log.entries):
            if entry.last < reach or (is_rebuild and place < self.kept_from):
                continue
            known = max(reach - entry.first, 0)
            records = list(entry.records)
            for number in self.damaged if is_rebuild else ():
                if entry.first <= number <= entry.last:
                    records[number - entry.first] = None
            found.append(replace(entry, first=entry.first + known, records=records[known:]))
        return found


def manifest_of(folder: Path, name: str = MANIFEST) -> FactManifest:
    return LocalStore(folder, name).read()


def prepare(folder: Path, writer: FactWriter) -> FactWriter:
    return FactWriter(folder, HASHER, opened_prices, listed=LISTED_LATER, earlier=writer)


def write_plan(plan: Plan, folder: Path, chance: random.Random) -> FactWriter:
    """Do all that the plan says, with parts and merges at random places. Begins where the files end."""
    first_of = {entry.first: place for place, entry in enumerate(plan.log.entries)}
    end = plan.log.lowest_open_number()
    is_rebuilt = manifest_of(folder).series > 0
    writer = FactWriter(folder, HASHER, opened_prices, listed=LISTED_LATER if is_rebuilt else LISTED)
    prepared = prepare(folder, writer) if (folder / PREPARED).exists() else None
    is_erased = writer.next_number > plan.erased_below
    while True:
        place = first_of.get(writer.next_number, -1)
        if place == plan.erased_before:
            for each in filter(None, (writer, prepared)):
                each.rename_people(renaming_below(plan.erased_below))
            is_erased = True
        at = writer.next_number
        if prepared is None and not is_rebuilt and at >= plan.log.entries[plan.rebuilt_before].first:
            prepared = prepare(folder, writer)
        if prepared is not None:
            entries = plan.entries_for(prepared.next_number, is_erased=is_erased, is_rebuild=True)
            below = [entry for entry in entries if entry.last < at][: chance.randint(1, 3)]
            prepared.add_entries(below)
            upkeep(prepared, chance)
            if prepared.next_number == at and chance.random() < 0.5:
                prepared.count_from_now_on()
                writer.close()
                writer, prepared, is_rebuilt = prepared, None, True
        if at < end and (prepared is None or chance.random() < 0.5):
            entries = plan.entries_for(at, is_erased=is_erased, is_rebuild=False)
            writer.add_entries(entries[:1])
            upkeep(writer, chance)
        elif at == end and is_rebuilt:
            break
    writer.write_parts()
    while writer.merge_next(BEGIN + 100 * DAY):
        pass
    return writer


def upkeep(writer: FactWriter, chance: random.Random) -> None:
    if chance.random() < 0.4:
        writer.write_parts()
    if chance.random() < 0.3:
        writer.merge_next(BEGIN + 100 * DAY)


def named_rows(folder: Path) -> dict[int, dict[str, Any]]:
    """Return every known value of every row by number, with the names of tags, meters and currencies."""
    manifest = manifest_of(folder)
    names = {f"t{place}": f"tag:{name}" for place, name in enumerate(manifest.tags, 1)}
    names |= {f"m{place}": f"meter:{name}" for place, name in enumerate(manifest.meters, 1)}
    for place, name in enumerate(manifest.currencies, 1):
        names |= {f"c{place}_{part}": f"{name} {part}" for part in ("nano", "rest")}
    engine = open_engine(folder)
    found = engine.execute(f"SELECT * FROM {sql_of_current_rows(folder.resolve(), manifest.files)}")
    columns = [names.get(column[0], column[0]) for column in found.description or ()]
    rows = [dict(zip(columns, values, strict=True)) for values in found.fetchall()]
    engine.close()
    known = {row["number"]: {name: value for name, value in row.items() if value is not None} for row in rows}
    assert len(known) == len(rows)
    return known


if __name__ == "__main__":
    write_plan(Plan.of(int(sys.argv[1])), Path(sys.argv[2]), random.Random())
