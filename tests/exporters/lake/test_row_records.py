"""A row of any format is read back as the record from which it was made."""

from __future__ import annotations

import tempfile
from decimal import Decimal
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from exporters.lake.columns import COLUMNS, COUNT, TEXT, row_of_record
from exporters.lake.formats import FORMATS
from exporters.lake.partitions import FileFormat
from exporters.lake.past.records import READ, build_past_record
from spool.deliveries.protocols import PastRecord
from spool.meters import quantity_from_millionths, quantity_in_millionths
from spool.record import TOKEN_UNIT, Correction, Inference, Record, UsageMetric, decimal_text
from tests.exporters.lake.records import NOON, RECORDS
from tests.rounds import examples

AT = NOON + 0.5


# Fields without a column. The first two would show a sender's names.
NOT_IN_ROWS = {"sender_key", "also", "reverses_number"}


def test_every_field_of_a_record_has_a_column() -> None:
    """A field that a row lacks is lost when a record is read back."""
    fields = {*Inference.__struct_fields__, *UsageMetric.__struct_fields__}
    assert NOT_IN_ROWS == fields - {*COLUMNS, "meter"}  # `meter` is the only key of `meters`


def _us(time_ns: int | None) -> int | None:
    return None if time_ns is None else time_ns // 1000 * 1000


def _amount(text: str | None) -> str | None:
    return None if text is None else decimal_text(Decimal(text))


def kept_of(record: Record) -> Record:
    """
    Return the record in the form in which a row can store it: times in whole microseconds, amounts and
    quantities in their shortest form.
    """
    assert isinstance(record, Inference | UsageMetric)
    times = {"start_time": _us(record.start_time), "end_time": _us(record.end_time)}
    if isinstance(record, Inference):
        meters = {
            name: quantity_from_millionths(quantity_in_millionths(quantity))
            for name, quantity in record.meters.items()
        }
        amounts = {"cost": _amount(record.cost), "estimated_cost": _amount(record.estimated_cost)}
        return replace(record, **times, **amounts, meters=meters)
    value = record.value if record.unit == TOKEN_UNIT else _amount(str(record.value))
    return replace(record, **times, value=value)


@pytest.mark.parametrize(
    "format", [each for each in FORMATS.values() if not each.is_focus], ids=lambda format: format.name
)
@settings(max_examples=examples(60), deadline=None)
@given(records=st.lists(RECORDS, min_size=1, max_size=20))
def test_a_record_is_read_back(format: FileFormat, records: list[Record]) -> None:
    """
    A record is read back from a row with its number, its commit time and every field that has a column. A
    correction is not read back as a record.
    """
    rows = [
        row_of_record(each, number=n, committed_at=AT, log_edition="3f9c1a2b")
        for n, each in enumerate(records, 1)
    ]
    with tempfile.TemporaryDirectory() as directory:
        path = Path(directory) / f"file.{format.ending}"
        file = format.open(path, COLUMNS)
        file.add_rows([row.values for row in rows])
        file.write_group()
        file.close({})
        found = list(map(build_past_record, format.read_rows(path, READ)))
    expected = [
        None if isinstance(each, Correction) else PastRecord(n, AT, kept_of(each))
        for n, each in enumerate(records, 1)
    ]
    assert expected == found


@pytest.mark.proves("columns of the data lake")
@pytest.mark.parametrize(
    "format", [each for each in FORMATS.values() if not each.is_focus], ids=lambda format: format.name
)
def test_columns_that_an_older_file_lacks_are_empty(format: FileFormat, tmp_path: Path) -> None:
    path = tmp_path / f"file.{format.ending}"
    file = format.open(path, {"id": TEXT, "calls": COUNT})
    file.add_rows([("1", 1), ("2", 1)])
    file.write_group()
    file.close({})
    assert [(None, "2", 1)] == list(format.read_rows(path, ["run", "id", "calls"], skip=1))
