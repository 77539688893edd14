"""No object of a lake contains text of prompts, or values of columns in `leave_out`."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from functools import cache
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from exporters.lake import ndjson
from exporters.lake.columns import COLUMNS, KEPT
from spool.record import Inference, Record, UsageMetric
from tests.exporters.spools import call
from tests.gateway.normalise.otlp.test_canary import (
    CANARY,
    add_canaries,
    add_free_canaries,
    cases,
    loaded,
    read,
)
from tests.integration.lake.lakes import House, opened, query
from tests.rounds import reduced, some

if sys.version_info >= (3, 14):
    from compression import zstd
else:
    from backports import zstd

KEPT_WORD = "kept-7b2c"
FORMATS = ("parquet", "ndjson")
OWNERS = ("user", "team", "session", "api_key", "device")


@cache
def planted() -> Sequence[Record]:
    """Return every OTLP case with planted content in every possible place, each record with its own id."""
    found: dict[bytes, Record] = {}
    for key, path in some([*cases()], every=3):
        for add in (add_canaries, add_free_canaries):
            for record in read(key, loaded(path, add)).records:
                if isinstance(record, Inference | UsageMetric):
                    found.setdefault(record.id, record)
    return tuple(found.values())


async def fill(house: House, lake: Path, records: Sequence[Record], **settings: object) -> None:
    async with house.forwarding(path=lake, batch_records=1000, **settings):
        await house.add(records)
        await house.until(queued=0)
        assert len(records) == (await house.terms())["delivered"]


def texts(lake: Path) -> Iterator[tuple[str, str]]:
    """Yield each object with all its readable text: name, bytes, rows, footers and statistics."""
    for path in sorted(path for path in lake.rglob("*") if path.is_file()):
        body = path.read_bytes()
        name = str(path.relative_to(lake))
        said = [name, body.decode(errors="replace")]
        if path.suffix == ".parquet":
            file = pq.ParquetFile(path)
            said += [str(file.read().to_pylist()), str(file.schema_arrow.metadata)]
            groups = (file.metadata.row_group(place) for place in range(file.num_row_groups))
            said += [str(group.to_dict()) for group in groups]
        elif path.suffix == ".zst":
            with zstd.open(path, "rb") as lines:
                said.append(lines.read().decode())
        yield name, "\n".join(said)


@pytest.mark.parametrize("format", (*FORMATS, "focus", "focus-parquet"))
async def test_no_word_of_a_prompt_is_in_a_lake(tmp_path: Path, format: str) -> None:
    """
    Data, footers, statistics and manifests contain no planted text. A permitted word proves that all of
    them were read.
    """
    lake = tmp_path / "lake"
    records = [*planted(), call(1, team=KEPT_WORD)]
    assert len(records) > reduced(100, by=2)
    async with opened(tmp_path / "data") as house:
        await fill(house, lake, records, format=format)
    found = dict(texts(lake))
    assert [] == [name for name, text in found.items() if CANARY in text]
    assert 1 == sum(KEPT_WORD in text for text in found.values())
    assert {".json", ".parquet" if "parquet" in format else ".zst"} == {Path(name).suffix for name in found}


@pytest.mark.parametrize("format", FORMATS)
async def test_what_is_left_out_is_in_no_object(tmp_path: Path, format: str) -> None:
    """Columns in `leave_out` are null in every row. Their values are in no footer, statistic or manifest."""
    lake = tmp_path / "lake"
    left_out = [name for name in COLUMNS if name not in KEPT]
    secret = call(1, **dict.fromkeys(OWNERS, KEPT_WORD), request_id=KEPT_WORD, tags={KEPT_WORD: KEPT_WORD})
    records = [*planted(), secret]
    async with opened(tmp_path / "data") as house:
        await fill(house, lake, records, format=format, leave_out=left_out)
    assert [] == [name for name, text in texts(lake) if KEPT_WORD in text]
    if format == "parquet":
        counts = ", ".join(f'count("{name}")' for name in left_out)
        assert [(len(records), *(0 for _ in left_out))] == query(lake, f"SELECT count(*), {counts} FROM lake")
    else:
        rows = [row for path in lake.rglob("*.zst") for row in ndjson.read_rows(path, left_out)]
        assert [(None,) * len(left_out)] * len(records) == rows


@pytest.mark.parametrize("format", FORMATS)
async def test_one_tag_is_left_out(tmp_path: Path, format: str) -> None:
    """
    If one tag is left out, its name and value are in no object of the lake. Other tags stay, and a row without
    other tags has none.
    """
    lake = tmp_path / "lake"
    records = [call(1, tags={KEPT_WORD: KEPT_WORD, "env": "prod"}), call(2, tags={KEPT_WORD: KEPT_WORD})]
    async with opened(tmp_path / "data") as house:
        await fill(house, lake, records, format=format, leave_out=(f"tags.{KEPT_WORD}",))
    assert [] == [name for name, text in texts(lake) if KEPT_WORD in text]
    if format == "parquet":
        assert [({"env": "prod"},), (None,)] == query(lake, "SELECT tags FROM lake ORDER BY number")
    else:
        rows = [row for path in lake.rglob("*.zst") for row in ndjson.read_rows(path, ["tags"])]
        assert [({"env": "prod"},), (None,)] == rows
