"""The writer number of a format identifies its bytes: any change of the bytes requires a new number."""

from __future__ import annotations

from pathlib import Path

import pytest

from exporters.lake.formats import FORMATS, new_delivery_files
from exporters.lake.names import DeliveryRange
from exporters.lake.partitions import FileFormat
from exporters.lake.tables import TABLES
from spool.log.values import LogEntry
from spool.record import AI_TELEMETRY, CURRENCY, NS, Correction, Inference, Record, UsageMetric
from tests.exporters.lake.records import NOON

ROWS = 5000  # enough rows for several parts, and for several batches of writes
# Digests of the bytes by format and writer number, as FORMATS lists them. Never change a line. For a new
# number, add a line.
GOLDEN = {
    ("parquet", 2): "825c16ea73b84311d47ddcef04493a4171bc3d6566df8148d2218ee09f55d9f1",
    ("ndjson", 2): "77efd41fae21beb0c7750843c40090dc4668a93f4d1db720e8a2693d1190d0ac",
    ("focus", 1): "a2587f17d155bab54240b306839e5e67f23fa0c99572188450a3b4f0805bdef1",
    ("focus-parquet", 2): "48d4e089a0f7a5df69feb2b65a98877f66885972fd04d431efd3d243b46a790d",
    ("focus", 2): "aa588d4517ac4ae4d42a1e7004141039b21d22c31a110ea3399d833f23089c72",
    ("parquet", 3): "2fccb7335a8167abe06889ab54b8013644e9f60f264477a0c1941456babf93e7",
    ("ndjson", 3): "8b9761882ba4b607d2de7e3dfe6637da12b1c88b77bde6620f341b4eb3e12f03",
    ("focus-parquet", 3): "e3a492d8e0929c0b487a8f8764b695d1803ee66d84c10c50d0bb0900dfe72b8e",
}


def _call(number: int) -> Inference:
    return Inference(
        id=number.to_bytes(16, "big"),
        source="test",
        request_id=f"request-{number}",
        start_time=NOON * NS + number * 1000,
        end_time=NOON * NS + number * 2000 if number % 3 else None,
        provider="openai",
        request_model=f"model-{number % 7}",
        input_tokens=number,
        output_tokens=number % 11 or None,
        cost=f"0.{number:027d}",
        cost_source="reported",
        status="ok" if number % 5 else "cached",
        user=f"ünïcode 🦔 {number % 13}",
        tags={"team": "search", "=cell": "=cmd()"} if number % 2 else {},
        meters={"web_searches": 3, "audio_seconds": "1.25"} if number % 4 == 0 else {},
        shadow=number % 17 == 0,
        run=f"run-{number % 5}",
    )


def _records() -> list[Record | None]:
    """Return rows of each kind, and one damaged number."""
    calls = [_call(number) for number in range(1, ROWS + 1)]
    correction = Correction(
        id=b"c" * 16,
        source="test",
        corrects=calls[0].id,
        before=calls[0],
        after=calls[1],
        reason="late_usage",
        known_at=(NOON + 60) * NS,
        start_time=NOON * NS,
    )
    tokens = UsageMetric(
        id=b"t" * 16, source="test", name="tokens", token_type="input", value=12, start_time=NOON * NS
    )
    money = UsageMetric(
        id=b"m" * 16, source="test", name="cost", value="1.5", unit=CURRENCY, start_time=NOON * NS
    )
    return [*calls, None, correction, tokens, money]


@pytest.mark.parametrize("format", FORMATS.values(), ids=lambda format: format.name)
def test_the_bytes_are_those_of_the_writer_number(format: FileFormat, tmp_path: Path) -> None:
    """
    If a setting, a column or a library changes the bytes, raise `writer` in exporters/lake/formats.py and add
    a row above.
    """
    entry = LogEntry(topic=AI_TELEMETRY, first=1, committed_at=NOON + 0.5, records=_records())
    series = DeliveryRange("lake", "3f9c1a2b", 1, entry.last)
    files = new_delivery_files(
        tmp_path, series, route="lake/ai-telemetry", format=format, leave_out=(), table=TABLES[AI_TELEMETRY]
    )
    for part in entry.split(1000):
        files.add_entry(part)
        while files.has_full_part:
            files.write_largest_part()
    (made,) = files.finish_and_describe().files
    assert GOLDEN.get((format.name, format.writer)) == made.sha256
