"""A query that takes too long or needs too much memory is refused with advice, and the next one is answered."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from spool.errors import AskedTooMuch, LedgerLost
from spool.ledger.files.engine import EngineLimits, open_engine, within_limits
from spool.ledger.files.remembered import RememberedParts
from spool.settings import MIB
from spool.turns.question_limit import QuestionLimit
from tests.spool.ledger.files.test_files import ALL, calls_of, small_log
from tests.spool.ledger.files.writing import open_writer

LONG = "SELECT sum(a.range * b.range) FROM range(10000000) a, range(10000000) b"
LARGE = "SELECT count(DISTINCT repeat(range::VARCHAR, 9)) FROM range(2000000)"


def limit(seconds: float) -> QuestionLimit:
    return QuestionLimit(max_rows=10, until=time.monotonic() + seconds, max_time_s=seconds)


def test_a_statement_ends_at_its_time(tmp_path: Path) -> None:
    engine = open_engine(tmp_path)
    with (
        pytest.raises(AskedTooMuch, match=r"longer than 0.2 s \(answers.max_time\). Choose a shorter"),
        within_limits(engine, limit(0.2)),
    ):
        engine.execute(LONG).fetchall()
    with within_limits(engine, limit(600)):
        assert engine.execute("SELECT 1").fetchall() == [(1,)]
    engine.close()


def test_a_statement_without_enough_memory_is_refused(tmp_path: Path) -> None:
    engine = open_engine(tmp_path, EngineLimits(memory=20 * MIB, spill=MIB))
    with (
        pytest.raises(AskedTooMuch, match=r"more memory than one query may use. Choose a shorter"),
        within_limits(engine, None),
    ):
        engine.execute(LARGE).fetchall()
    assert engine.execute("SELECT 1").fetchall() == [(1,)]
    engine.close()


def test_answers_have_the_limits(tmp_path: Path) -> None:
    """Also if all of its statements end just before the time, and for a file that was deleted meanwhile."""
    writer = open_writer(tmp_path)
    writer._remembered = RememberedParts(0)
    writer.add_entries(small_log(2).entries)
    writer.write_parts()
    snapshot = writer.snapshot()
    with pytest.raises(AskedTooMuch, match="took longer than 0 s"):
        snapshot.costs(ALL, limit(0))
    assert sum(row.calls for row in snapshot.costs(ALL, limit(600))) == 6
    for path in tmp_path.glob("*.parquet"):
        path.rename(path.with_suffix(".aside"))
    with pytest.raises(LedgerLost):
        snapshot.costs(ALL)
    for path in tmp_path.glob("*.aside"):
        path.rename(path.with_suffix(".parquet"))
    snapshot.close()
    assert calls_of(writer) == 6
    writer.close()
