"""FOCUS exports have exactly the columns that the specification names for their version."""

from __future__ import annotations

import asyncio
import csv
import io
from collections.abc import Sequence

import pytest

from exporters.focus import charges
from exporters.focus import rows as billed
from spool.log.values import LogEntry
from tests.exporters.focus.columns import PUBLISHED
from tests.exporters.test_focus import AT, RECORDS


def names(version: str, *, of_bills: bool) -> Sequence[str]:
    return billed.column_names(version) if of_bills else charges.EXPORTED[version]


def test_every_version_is_published() -> None:
    """
    Each FOCUS version has as many columns as the specification's table. Only the last version is a draft.
    """
    assert list(PUBLISHED) == list(charges.VERSIONS)
    assert [57, 65, 65, 68] == [len(columns) for columns in PUBLISHED.values()]


@pytest.mark.parametrize("of_bills", [False, True])
@pytest.mark.parametrize("version", PUBLISHED)
def test_columns_are_those_of_the_version(version: str, of_bills: bool) -> None:
    """
    Each exported column appears once. Mandatory columns always appear, and columns of other versions never.
    Tollhouse's own columns start with x_ and are last.
    """
    published, exported = PUBLISHED[version], names(version, of_bills=of_bills)
    own = [name for name in exported if name.startswith("x_")]
    assert len(set(exported)) == len(exported)
    assert [*exported][-len(own) :] == own
    assert set(exported) - set(own) <= set(published)
    assert {name for name, column in published.items() if column.is_mandatory} <= set(exported)


@pytest.mark.parametrize("version", PUBLISHED)
def test_what_may_not_be_null_has_a_value(version: str) -> None:
    """
    Columns that may not be null have a value in each row, even if a record leaves fields empty. The export of
    bills has its own tests.
    """
    columns = charges.EXPORTED[version]
    entry = LogEntry(topic="ai-telemetry", first=1, committed_at=AT + 60, records=RECORDS)
    found = asyncio.run(charges.sum_charges([entry]))
    text = (charges.csv_header(columns) + charges.charge_lines(found, columns=columns)).decode()
    rows = list(csv.DictReader(io.StringIO(text)))
    filled = {name for name, column in PUBLISHED[version].items() if not column.may_be_null}
    assert rows
    for row in rows:
        assert [] == [name for name in sorted(filled & set(row)) if not row[name]]
