"""Each call has the estimate of the newest recalculation that covers it and has a price."""

from __future__ import annotations

import random
from collections import Counter
from pathlib import Path
from zlib import compress, decompress

import msgspec
import pytest

from exporters.batch import build_batch_without_duplicates
from exporters.lake.columns import row_of_record
from gateway.intake.prices import PriceBook
from spool import money
from spool.cost_kinds import ESTIMATED, REPORTED, call_cost_source
from spool.deliveries.values import Delivery
from spool.errors import EntryUnreadable, LedgerLost
from spool.ledger.dimensions import TOTAL
from spool.ledger.files.engine import open_engine
from spool.ledger.files.folder import DELTA, FactFolder
from spool.ledger.files.row import units_of_amount
from spool.ledger.files.source import sql_of_current_rows
from spool.ledger.files.writer import FactWriter
from spool.ledger.queries import CostQuery
from spool.ledger.sums import MAX_MONEY, HourlySums
from spool.log.entries import codec
from spool.record import NS, Correction, Inference, RecalculationEntry, record_to_json
from tests.rounds import examples, part, some
from tests.spool.ledger.files.histories import DAY, LISTED, opened_prices, recalculation
from tests.spool.ledger.files.test_equal import states_by_hand
from tests.spool.ledger.files.test_files import ALL
from tests.spool.ledger.files.writing import HASHER, log_of, open_writer, write_all
from tests.spool.ledger_log import BEGIN, HOUR, FakeLog, call

Amounts = tuple[str, int, int]  # cost source, cost and estimate


def amounts_by_hand(log: FakeLog) -> dict[int, tuple[Inference, Amounts]]:
    """Return each call with its amounts after all recalculations, by record number."""
    made = [
        (number, record, opened_prices(decompress(record.price_list), record.own_prices))
        for entry in log.entries
        for number, record in enumerate(entry.records, entry.first)
        if isinstance(record, RecalculationEntry)
    ]
    found: dict[int, tuple[Inference, Amounts]] = {}
    for number, (at, stored) in states_by_hand(log).items():
        state = msgspec.structs.replace(stored, start_time=int(at) * NS)
        state.response_model = state.response_model or state.request_model
        for made_at, record, prices in made:
            estimate = prices.estimate_record(state)
            if estimate is None or money.text_to_units(estimate) > MAX_MONEY:
                continue
            if number < made_at and int(at) >= record.since:
                state.estimated_cost = estimate
                state.cost_source = REPORTED if state.cost_source == REPORTED else ESTIMATED
        source = call_cost_source(state)
        reported, estimated = [
            money.text_to_units(text or "0") for text in (state.cost, state.estimated_cost)
        ]
        found[number] = state, (source, {REPORTED: reported, ESTIMATED: estimated}.get(source, 0), estimated)
    return found


def stored_amounts(folder: Path) -> dict[int, Amounts]:
    engine = open_engine(folder)
    rows = engine.execute(
        "SELECT number, cost_source, cost_nano, cost_rest, estimated_nano, estimated_rest "
        f"FROM {sql_of_current_rows(folder.resolve(), FactFolder(folder).open().files)} WHERE kind = 'call'"
    ).fetchall()
    engine.close()
    found = {}
    for number, source, *limbs in rows:
        cost, estimated = units_of_amount((limbs[0], limbs[1])), units_of_amount((limbs[2], limbs[3]))
        found[number] = source, cost, cost if source == ESTIMATED else estimated
    return found


@pytest.mark.parametrize("seed", part(range(examples(60)), every=6))
def test_calls_have_the_newest_price(seed: int, tmp_path: Path) -> None:
    """In any order with late reports, parts and merges, and with sizes and hours that have two prices."""
    log, writer = log_of(seed, entries=6), open_writer(tmp_path)
    write_all(writer, log, random.Random(seed))
    want = amounts_by_hand(log)
    assert stored_amounts(tmp_path) == {number: amounts for number, (_, amounts) in want.items()}
    query = CostQuery(
        since=ALL.since,
        until=ALL.until,
        granularity=TOTAL,
        group_by=["session"],
        include={"provider": ("acme",)},  # counters have none
    )
    snapshot = writer.snapshot()
    estimates = Counter[str | None]()
    for state, (_, _, estimated) in want.values():
        if state.status != "cached" and state.provider is not None:
            digest = state.session and HASHER.digest_of_id("session", state.session)
            estimates[digest] += estimated
    found = {row.group[0]: money.text_to_units(row.estimated) for row in snapshot.costs(query)}
    snapshot.close()
    writer.close()
    assert {name: units for name, units in found.items() if units} == {
        name: units for name, units in estimates.items() if units
    }


def test_unchanged_prices_change_no_row(tmp_path: Path) -> None:
    """For each model, and for sizes beside each tier, by hour and processing mode."""
    book, records = PriceBook.load(), list[Inference | RecalculationEntry]()
    models = [(seller, model) for seller, each in book.card.providers.items() for model in each.models]
    for seller, model in some(models, every=5):
        quote = book.find_quote(seller, model.id, "", int(BEGIN * NS))
        edges = {above for above, _ in (*quote.tiers, *quote.parts) if above > 0}
        for size in (1000, *edges, *(edge + 1 for edge in edges)):
            for mode in ("", "batch", "flex"):
                one = call(
                    provider=seller,
                    request_model=model.id,
                    start_time=int((BEGIN + len(records) % 24 * HOUR) * NS),
                    input_tokens=size,
                    cache_write_1h_tokens=7,
                    tags={"service_tier": mode} if mode else {},
                    meters={"web_searches": 2} if len(records) % 9 == 0 else {},
                )
                book.price_record(one)
                records.append(one)
    assert sum(isinstance(one, Inference) and one.estimated_cost is not None for one in records) > 100
    card, own = book.encode_rate_card_and_overrides()
    made = RecalculationEntry(id=b"r" * 16, since=0, price_list=compress(card), own_prices=own)
    log = FakeLog()
    log.add([*records, made], at=BEGIN + DAY)
    writer = FactWriter(tmp_path, HASHER, PriceBook.decode_rate_card_and_overrides, listed=LISTED)
    writer.add_entries(log.entries)
    assert writer.manifest.recalculations
    assert DELTA not in {file.kind for file in writer.manifest.files.values()}
    writer.close()


def test_a_late_report_finds_the_prices_of_a_deleted_record(tmp_path: Path) -> None:
    """The files have the prices without the person who asked for them. Damage of them is found."""
    log, chance = FakeLog(), random.Random(1)
    one = call(input_tokens=100, output_tokens=0, estimated_cost="9", cost_source=ESTIMATED)
    log.add([one, recalculation(chance)])
    writer = open_writer(tmp_path)
    writer.add_entries(log.entries)
    writer.close()
    after = msgspec.structs.replace(one, input_tokens=200)
    log.add(
        [
            Correction(
                id=b"c" * 16,
                source="",
                corrects=one.id,
                reason="",
                known_at=0,
                start_time=0,
                before=one,
                after=after,
            )
        ]
    )
    writer = open_writer(tmp_path)
    writer.add_entries(log.entries[1:])
    writer.write_parts()
    writer.close()
    assert stored_amounts(tmp_path) == {1: amounts_by_hand(log)[1][1]}
    [path] = tmp_path.glob("prices-*")
    assert b"ada" not in path.read_bytes()
    path.write_bytes(path.read_bytes()[:-1])
    with pytest.raises(LedgerLost, match="damaged"):
        open_writer(tmp_path)


def test_nothing_else_counts_or_sends_a_recalculation() -> None:
    """It is a shadow, its JSON has no prices, and a build that does not know it counts it as damaged."""
    log, made = FakeLog(), recalculation(random.Random(1))
    log.add([call(), made])
    batch = build_batch_without_duplicates(
        Delivery(id=1, route="x", first=1, last=2, attempts=0, idempotency_key="k"), log.entries
    )
    assert (len(batch.records), batch.shadow, batch.damaged) == (1, 1, 0)
    sums = HourlySums()
    sums.add_entries(log.entries)
    assert (len(list(sums.hourly_rows())), sums.absurd, sums.damaged) == (1, 0, 0)
    names = {"kind", "id", "source", "since", "user", "start_time", "shadow"}
    assert record_to_json(made).keys() == names
    row = row_of_record(made, number=2, committed_at=BEGIN, log_edition="e").values
    assert not any(isinstance(value, bytes) for value in row)
    assert codec.decode_record(codec.encode_records([made])[1:]) == made
    with pytest.raises(EntryUnreadable):
        codec.decode_record(msgspec.msgpack.encode([99, made.id]))
