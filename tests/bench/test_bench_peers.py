"""The comparison with other servers judges correctly and names unavailable peers."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner

from tests.bench.load.job import LoadFigures
from tests.bench.peers import available
from tests.bench.peers.__main__ import peers
from tests.bench.peers.comparison import judge, killed
from tests.bench.peers.peer import TollhousePeer
from tests.bench.server.rounds import RoundOptions

pytestmark = pytest.mark.bench


def test_a_kill_loses_nothing_that_was_acknowledged(tmp_path: Path) -> None:
    """
    The load continues during the kill, and every record of an acknowledged request arrives exactly once.
    """
    survival = killed("tollhouse", TollhousePeer, tmp_path, RoundOptions(seconds=1.0))
    assert survival.acknowledged > 0
    assert survival.lost == 0
    assert survival.repeated == 0
    assert survival.unanswered == 0


def test_a_loss_and_a_repetition_are_seen() -> None:
    """
    Of four acknowledged records one is missing and one is stored twice. A request without a response
    does not count.
    """
    record = "{:08d}{:016d}".format
    kept = {record(1, 0): 1, record(1, 1): 2, record(2, 0): 1, record(3, 0): 2}
    survival = judge("", LoadFigures(sent=3, accepted=2, unanswered=[3]), 2, kept)
    assert survival.acknowledged == 4
    assert survival.lost == 1
    assert survival.repeated == 1
    assert survival.unanswered == 2


def test_what_cannot_be_had_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without Go there is no collector, and the report gives the reason."""
    monkeypatch.setattr(available, "COLLECTOR", tmp_path / "otelcol")
    monkeypatch.setenv("PATH", str(tmp_path))
    words = [
        "100x2",
        "--peer",
        "collector, fsync",
        "--no-kill",
        "--seconds",
        "0.2",
        "--out",
        str(tmp_path / "out"),
    ]
    done = CliRunner().invoke(peers, words)
    assert 0 == done.exit_code, done.output
    assert "collector, fsync: not compared, Go is not installed" in done.output
