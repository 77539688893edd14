"""Remembered groups of files change no answer, and go with their files."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from spool.ledger.files.remembered import RememberedParts
from spool.ledger.files.writer import FactWriter
from spool.ledger.queries import CostQuery, CostRow
from tests.rounds import examples
from tests.spool.ledger.files.changing import ENTRIES, NAME, log_with_name, renaming_below
from tests.spool.ledger.files.histories import DAY, random_query
from tests.spool.ledger.files.test_files import ALL, small_log
from tests.spool.ledger.files.writing import open_writer
from tests.spool.ledger_log import BEGIN


def answers(writer: FactWriter, queries: list[CostQuery], remembered: RememberedParts) -> list[list[CostRow]]:
    snapshot = writer.snapshot()
    snapshot._remembered = remembered
    try:
        return [snapshot.costs(query) for query in queries]
    finally:
        snapshot.close()


@pytest.mark.proof
@pytest.mark.parametrize("seed", range(examples(40)))
def test_remembering_changes_no_answer(seed: int, tmp_path: Path) -> None:
    """With late reports, recalculations, merges and an erasure, after which no remembered group has the name."""
    chance, log, writer = random.Random(seed), log_with_name(seed), open_writer(tmp_path)
    queries = [ALL, random_query(chance), random_query(chance)]
    queries.append(CostQuery(since=ALL.since, until=ALL.until, granularity="total", group_by=["user"]))
    remembered = writer._remembered
    for entry in log.entries:
        writer.add_entries([entry])
        if chance.random() < 0.6:
            writer.write_parts()
        if chance.random() < 0.3:
            writer.merge_next(BEGIN + 100 * DAY)
        assert answers(writer, queries, remembered) == answers(writer, queries, RememberedParts(0))
        assert {name for _, name in remembered._groups} <= writer.manifest.files.keys()
    writer.write_parts()
    had = answers(writer, queries, remembered)
    assert writer.rename_people(renaming_below(log.lowest_open_number()))
    assert NAME not in repr(remembered._groups)
    assert answers(writer, queries[:1], remembered) == had[:1]
    writer.close()
    assert len(log.entries) == ENTRIES


def test_remembered_files_are_not_read(tmp_path: Path) -> None:
    """Only new files are, and those that lost their place to others."""
    writer, log = open_writer(tmp_path), small_log(6)
    remembered = writer._remembered
    for entry in log.entries[:5]:
        writer.add_entries([entry])
        writer.write_parts()
    [before] = answers(writer, [ALL], remembered)
    for path in tmp_path.glob("*.parquet"):
        path.rename(path.with_suffix(".aside"))
    assert answers(writer, [ALL], remembered) == [before]
    writer.add_entries(log.entries[5:])
    writer.write_parts()
    [after] = answers(writer, [ALL], remembered)
    assert sum(row.calls for row in after) == 18
    for path in tmp_path.glob("*.aside"):
        path.rename(path.with_suffix(".parquet"))
    small = RememberedParts(4)  # two files of one group each
    assert answers(writer, [ALL, ALL], small) == [after, after]
    assert len(small._groups) == 2
    writer.close()
