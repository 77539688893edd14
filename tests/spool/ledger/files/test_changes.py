"""
Late reports, recalculations, an erasure, other tags and a rebuild, in random orders and with kills: each row is that of
a count by hand.
"""

from __future__ import annotations

import random
import signal
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from spool.cost_kinds import ESTIMATED
from spool.ledger.files import layout as layouts
from spool.ledger.files.folder import MANIFEST, PREPARED
from spool.ledger.files.row import units_of_amount
from spool.ledger.files.writer import FactWriter
from tests.rounds import IS_LONG, examples, part
from tests.spool.ledger.files.changing import (
    LISTED_LATER,
    NAME,
    Plan,
    manifest_of,
    named_rows,
    renamed,
    write_plan,
)
from tests.spool.ledger.files.histories import DAY, opened_prices
from tests.spool.ledger.files.test_files import ALL, calls_of, code_of_killed
from tests.spool.ledger.files.test_recalculations import amounts_by_hand
from tests.spool.ledger.files.writing import HASHER, open_writer
from tests.spool.ledger_log import BEGIN, FakeLog, call

KILLS = 300 if IS_LONG else 1


def known(text: str | None) -> str | None:
    return None if text in ("", "(other)") else text


def check_by_hand(plan: Plan, folder: Path) -> None:
    """Compare the rows of calls with a count by hand, and all values with those of a log that had it all at once."""
    log, rows = renamed(plan.log, plan.erased_below), named_rows(folder)
    found = {}
    for number, row in rows.items():
        if row["kind"] == "call":
            cost, estimated = [
                units_of_amount((row.get(f"{name}_nano"), row.get(f"{name}_rest")))
                for name in ("cost", "estimated")
            ]
            source = row["cost_source"]
            amounts = source, cost, cost if source == ESTIMATED else estimated
            found[number] = row.get("user"), row.get("team"), row.get("tag:zone"), amounts
    assert found == {
        number: (state.user, known(state.team), known(state.tags.get("zone")), amounts)
        for number, (state, amounts) in amounts_by_hand(log).items()
    }
    manifest = manifest_of(folder)
    assert (manifest.series, (folder / PREPARED).exists(), manifest.has_copies) == (1, False, False)
    assert {path.name for path in folder.glob("*.parquet")} == set(manifest.files)
    writer = FactWriter(folder.with_name("at-once"), HASHER, opened_prices, listed=LISTED_LATER)
    writer.add_entries(log.entries)
    writer.write_parts()
    counts = writer.manifest.missed, writer.manifest.absurd
    writer.close()
    assert named_rows(folder.with_name("at-once")) == rows
    assert (manifest.missed, manifest.absurd) == counts


@pytest.mark.parametrize("seed", part(range(examples(60)), every=6))
def test_changes_in_any_order(seed: int, tmp_path: Path) -> None:
    plan = Plan.of(seed)
    write_plan(plan, tmp_path / "facts", random.Random(seed)).close()
    check_by_hand(plan, tmp_path / "facts")
    if plan.erased_before == len(plan.log.entries) - 1:
        states = [row for number, row in named_rows(tmp_path / "facts").items() if number < plan.erased_below]
        assert NAME not in repr(states)


@pytest.mark.proof
def test_kills_between_changes(tmp_path: Path) -> None:
    """Nothing is lost, counted twice, or to be done by hand."""
    chance, kills, seed = random.Random(), 0, 0
    while kills < KILLS:
        plan, folder, seed = Plan.of(seed), tmp_path / f"killed-{seed}" / "facts", seed + 1
        command = [sys.executable, "-m", "tests.spool.ledger.files.changing", str(seed - 1), str(folder)]
        code = -signal.SIGKILL
        while code:
            code = code_of_killed(command, folder, chance.randrange(8) if kills < KILLS else None)
            kills += code != 0
        check_by_hand(plan, folder)


def test_a_newly_listed_tag_gets_a_column(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Rows without records keep the tags that they had. The earlier totals count until the others have their reach."""
    monkeypatch.setattr(layouts, "MAX_TAG_COLUMNS", 10)
    log = FakeLog()
    tags = {f"tag-{n}": "x" for n in range(9)}
    log.add([call(tags={**tags, "ticket": "a", "zone": "z"})])
    log.add([call(tags={**tags, "ticket": "b"})])
    writer = open_writer(tmp_path)
    for entry in log.entries:
        writer.add_entries([entry])
        writer.write_parts()
    assert not writer.lacks_listed_tag
    writer.close()
    writer = FactWriter(tmp_path, HASHER, opened_prices, listed=("tag-8", "tag-0"))
    assert writer.lacks_listed_tag
    prepared = FactWriter(tmp_path, HASHER, opened_prices, listed=("tag-8", "tag-0"), earlier=writer)
    with pytest.raises(ValueError, match="do not have the records"):
        prepared.count_from_now_on()
    prepared.close()
    snapshot = writer.snapshot()
    while writer.merge_next(BEGIN + 100 * DAY):  # the snapshot's files stay when another generation is opened
        pass
    prepared = FactWriter(tmp_path, HASHER, opened_prices, listed=("tag-8", "tag-0"), earlier=writer)
    prepared.add_entries(log.entries[1:])
    assert calls_of(writer) == 2
    prepared.count_from_now_on()
    assert sum(row.calls for row in snapshot.costs(ALL)) == 2  # its files stay
    snapshot.close()
    writer.close()
    assert not prepared.lacks_listed_tag
    prepared.close()
    rows = named_rows(tmp_path)
    assert "tag:tag-8" not in rows[1]
    assert (rows[1]["tag:tag-0"], rows[2]["tag:tag-8"]) == ("x", "x")
    assert {path.name for path in tmp_path.glob("*.json")} == {MANIFEST}


def test_a_copied_row_keeps_the_names_of_its_meters(tmp_path: Path) -> None:
    """Also if the second generation has not heard of them, and hears of others afterwards."""
    log = FakeLog()
    for name in ("audio_seconds", "web_searches", "input_audio_tokens"):
        log.add([call(meters={name: 2}, charges={name[:3].upper(): "3"}, cost_source="reported")])
    writer = open_writer(tmp_path)
    writer.add_entries(log.entries[:1])
    prepared = FactWriter(tmp_path, HASHER, opened_prices, earlier=writer)
    writer.add_entries(log.entries[1:])
    first, second, third = log.entries
    prepared.add_entries([first, replace(second, records=[None]), third])
    prepared.count_from_now_on()
    writer.close()
    assert prepared.manifest.damaged == 1
    prepared.close()
    rows = named_rows(tmp_path)
    assert [rows[1]["meter:audio_seconds"], rows[2]["meter:web_searches"], rows[2]["WEB nano"]] == [
        2_000_000,
        2_000_000,
        3 * 10**9,
    ]
    assert "meter:input_audio_tokens" not in rows[2]
    assert "INP nano" not in rows[2]
