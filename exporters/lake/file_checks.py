"""Comparison of a file with its manifest: its end, or every byte. Pure, and slow."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from hashlib import file_digest
from pathlib import Path
from typing import Any, Final

from exporters.lake.formats import FORMATS
from exporters.lake.manifest import LakeFile, LakeManifest
from exporters.lake.partitions import FileFormat
from exporters.lake.tables import LakeSumsByDay, table_for_route
from spool import money
from spool.record import CURRENCY

_COUNTED: Final = ("number", "at", "counted", "calls", "spend")
_CHARGED: Final = ("BilledCost", "BillingCurrency", "x_Calls", "x_InputTokens", "x_OutputTokens")
_TOKENS: Final = ("input_tokens", "output_tokens")


def find_file_format(name: str) -> FileFormat | None:
    return next(
        (file_format for file_format in FORMATS.values() if name.endswith(f".{file_format.ending}")), None
    )


def footer_difference(
    format: FileFormat, end: bytes, lake_manifest: LakeManifest, file: LakeFile
) -> str | None:
    try:
        metadata = format.read_footer(end)
    except ValueError as error:
        return str(error)
    expected = {
        "route": lake_manifest.route,
        "edition": lake_manifest.edition,
        "first": str(lake_manifest.first),
        "last": str(lake_manifest.last),
        "digest": lake_manifest.digest,
    }
    for name, value in expected.items():
        if metadata.get(f"tollhouse.{name}") != value:
            return f"the {name} in its footer differs from its manifest"
    # formats without a row count pass
    if int(metadata.get("rows", file.rows)) != file.rows:
        return f"it has {metadata['rows']} rows, but its manifest says {file.rows}"
    least = int(metadata.get("least", lake_manifest.first))
    highest = int(metadata.get("most", lake_manifest.last))
    if lake_manifest.imported is None and (least < lake_manifest.first or highest > lake_manifest.last):
        return (
            f"its numbers are {least} to {highest}, but its manifest says "
            f"{lake_manifest.first} to {lake_manifest.last}"
        )
    return None


def data_difference(
    format: FileFormat,
    path: Path,
    lake_manifest: LakeManifest,
    file: LakeFile,
    sums_by_day: LakeSumsByDay | None = None,
) -> str | None:
    """Return how a file's data differ from the manifest, or None. Its rows are added to `sums_by_day`."""
    with path.open("rb") as opened:
        if file_digest(opened, "sha256").hexdigest() != file.sha256:
            return "its SHA-256 differs from its manifest"
    try:
        rows = (
            format.read_rows(path, _CHARGED)
            if format.is_focus
            else _read_summed_row_values(format, path, lake_manifest)
        )
        sums = _sum_charges(rows) if format.is_focus else _sum_rows(rows, lake_manifest, sums_by_day)
    except ValueError as error:
        return str(error)
    for name, value in sums.items():
        if value != getattr(file, name):
            return f"its {name} are {value}, but its manifest says {getattr(file, name)}"
    return None


def _read_summed_row_values(
    format: FileFormat, path: Path, lake_manifest: LakeManifest
) -> Iterator[tuple[Any, ...]]:
    """
    Yield the values of each row that a manifest's sums include. Tokens are None if their column is left out.
    """
    if "input_tokens" in table_for_route(lake_manifest.route).columns:
        yield from format.read_rows(path, (*_COUNTED, *_TOKENS))
    else:
        for row in format.read_rows(path, _COUNTED):
            yield *row, None, None


def _sum_rows(
    rows: Iterator[tuple[Any, ...]], lake_manifest: LakeManifest, sums_by_day: LakeSumsByDay | None
) -> Mapping[str, object]:
    """
    Return the sums of rows, as a manifest has them. Raises ValueError for a repeated number, or for one
    outside the delivery.
    """
    numbers: set[int] = set()
    count = calls = spend = given_tokens = made_tokens = 0
    for number, at, counted, its_calls, its_spend, input_tokens, output in rows:
        count += 1
        if number is not None:
            numbers.add(number)
        if lake_manifest.imported is None and not lake_manifest.first <= (number or 0) <= lake_manifest.last:
            raise ValueError(f"the number {number} does not belong to its delivery")
        if counted:
            units = _money_units(its_spend)
            calls += its_calls
            spend += units
            given_tokens += input_tokens or 0
            made_tokens += output or 0
            if sums_by_day is not None and number is not None:
                sums_by_day.add_to_day(at, its_calls, units, input_tokens or 0, output or 0)
    if lake_manifest.imported is None and len(numbers) != count:
        raise ValueError(f"{count - len(numbers)} record numbers are repeated")
    return {
        "rows": count,
        "calls": calls,
        "spend": money.units_to_text(spend),
        "input_tokens": given_tokens,
        "output_tokens": made_tokens,
    }


def _sum_charges(rows: Iterator[tuple[Any, ...]]) -> Mapping[str, object]:
    count = calls = spend = given_tokens = made_tokens = 0
    for cost, currency, its_calls, input_tokens, output in rows:
        count += 1
        calls += int(its_calls)
        spend += _money_units(cost) if currency == CURRENCY else 0
        given_tokens += int(input_tokens)
        made_tokens += int(output)
    return {
        "rows": count,
        "calls": calls,
        "spend": money.units_to_text(spend),
        "input_tokens": given_tokens,
        "output_tokens": made_tokens,
    }


def _money_units(spend: Any) -> int:
    if spend is None:
        return 0
    return money.text_to_units(spend if isinstance(spend, str) else f"{spend:f}")
