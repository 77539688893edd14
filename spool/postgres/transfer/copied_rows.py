"""Rows of a copy as the tables in PostgreSQL have them, where they are otherwise than those of the source."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any
from uuid import UUID

from spool.ledger import money
from spool.ledger.sums import COUNTS, LATENCY, MONEY, Dimensions
from spool.log.commits.following import of_topics
from spool.log.expectations import version_of
from spool.log.partial_reports import PartialReport, kind_of
from spool.postgres.ledger.expressions import digest_of, stored, tag_values
from spool.postgres.log.entries import code

FIRST = {"shard": 0, "period": 1}  # of columns that a source does not have: the first ones get everything
_NOBODY = UUID(int=0)


def column_value(row: Mapping[str, Any], name: str, kind: str) -> Any:
    """A value as the column keeps it: truths are numbers there, and some texts are bytes here."""
    value = row[name] if name in row else FIRST[name]
    if kind == "boolean":
        return None if value is None else bool(value)
    if kind == "bytea" and isinstance(value, str):
        return value.encode()
    if kind == "smallint" and isinstance(value, str):
        return code(value)
    return value


def commit_row(
    id: int,
    at: float,
    ends: Sequence[int],
    closed: Mapping[str, int],
    terms: bytes,
    checksum: int,
    ids: bytes,
    *,
    entries: int,
    size: int,
    token: int,
) -> dict[str, Any]:
    """Make a commit row with its token, by which the node that made the commit recognises it."""
    return {
        "id": id,
        "token": token,
        "node": _NOBODY,
        "at": at,
        "next": ends,
        "closed": list(map(min, ends, of_topics(closed))),
        "durable": id,
        "entries": entries,
        "size": size,
        "checksum": checksum,
        "terms": terms,
        "ids": ids,
        "found": None,
    }


def partial_report_row(row: Mapping[str, Any]) -> dict[str, Any]:
    report = PartialReport(row["key"], row["at"], row["body"])
    return {**row, "kind": kind_of(report.key), "version": version_of(report)}


def ledger_key_row(row: Mapping[str, Any]) -> dict[str, Any]:
    dimensions = Dimensions(*(row[name] for name in Dimensions._fields))
    texts = {name: stored(value) for name, value in row.items()}
    return {**texts, "digest": digest_of(dimensions), "tag_values": tag_values(dimensions.tags)}


def ledger_sum_row(row: Mapping[str, Any]) -> dict[str, Any]:
    """Three limbs of nine decimals are one number here."""
    sums = {name: row[name] for name in ("start", "key", *COUNTS, *LATENCY)}
    for name in MONEY:
        sums[name] = money.text(money.joined(*(row[f"{name}_{limb}"] for limb in (1, 2, 3))))
    return sums


# Tables whose rows are otherwise than those of a source, by their name there.
MAKERS: Mapping[str, Callable[[Mapping[str, Any]], Mapping[str, Any]]] = {
    "pending": partial_report_row,
    "routes": lambda row: {**row, "named_at": 0.0},
    "devices": lambda row: {**row, "row_version": 1, "written_at": 0.0},
    "ledger_keys": ledger_key_row,
    "ledger_hours": ledger_sum_row,
    "ledger_days": ledger_sum_row,
}
