"""SQL of the rows that count: those of files and of open rows, with the newest change of each instead of it. Pure."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from spool.ledger.files.engine import quoted
from spool.ledger.files.folder import DELTA, FactFile, FileSums
from spool.ledger.files.row import Fact, units_of_amount
from spool.ledger.sums import DAY_S

_SUMMED: Final = (
    "1",
    "calls",
    " + ".join(f"coalesce({name}, 0)::HUGEINT" for name in Fact._fields if name.endswith("_tokens")),
    "coalesce(took_ms, 0)",
    *(
        f"coalesce({name}_{part}, 0)"
        for name in ("cost", "reported", "estimated")
        for part in ("nano", "rest")
    ),
)
# A call that was taken back and counted again may have changes at two days.
_DAY: Final = f"{{0}}.start // {DAY_S}"
# the summed values of one row, and of all rows of a file; `file_sums` reads both
VALUES: Final = ", ".join(_SUMMED)
NO_SUMS: Final = (0,) * len(_SUMMED)
SUMS: Final = ", ".join(f"coalesce(sum({value}), 0)" for value in _SUMMED)


@dataclass(frozen=True, kw_only=True)
class OpenRows:
    """Tables with the rows, and the changes, of records that no file has. Those from `below` on do not count."""

    rows: str
    changes: str
    below: int
    changed_days: Collection[int] = ()


def sql_of_current_rows(
    folder: Path, files: Mapping[str, FactFile], open_rows: OpenRows | None = None
) -> str:
    """
    Return SQL of the rows of files and open rows as their changes left them.

    A change is a row with the number of the row that it replaces, on the same day. Of several, that of the highest seq
    counts. A row that is `gone` counts no more.
    """
    changed = [name for name, file in files.items() if file.kind == DELTA]
    days = _changed_days(files, open_rows)
    changes = [f"SELECT * FROM {sql_of_files(folder, changed)}"] if changed else []
    if open_rows is not None and open_rows.changed_days:
        changes.append(f"SELECT * FROM {open_rows.changes} WHERE seq < {open_rows.below}")
    whole, touched = list[str](), list[str]()
    for name in sorted(files.keys() - set(changed), key=lambda name: files[name].numbers):
        file = files[name]
        (touched if _is_touched(file, days) else whole).append(name)
    parts = [f"SELECT * FROM {sql_of_files(folder, whole)}"] if whole else []
    replaced = [f"SELECT * FROM {sql_of_files(folder, touched)}"] if touched else []
    if open_rows is not None:
        of_open = f"SELECT * FROM {open_rows.rows} WHERE number < {open_rows.below}"
        (replaced if changes else parts).append(of_open)
    if changes:
        all_changes = " UNION ALL BY NAME ".join(changes)
        if replaced:
            rows = " UNION ALL BY NAME ".join(replaced)
            match = f"r.number = c.number AND {_DAY.format('r')} = {_DAY.format('c')}"
            parts.append(f"SELECT r.* FROM ({rows}) r ANTI JOIN ({all_changes}) c ON {match}")
        newest = f"row_number() OVER (PARTITION BY number, {_DAY.format('each')} ORDER BY seq DESC) = 1"
        parts.append(
            f"SELECT * EXCLUDE (seq, gone) FROM (SELECT * FROM ({all_changes}) each QUALIFY {newest}) WHERE NOT gone"
        )
    return f"({' UNION ALL BY NAME '.join(parts)})"


def unchanged_files(files: Mapping[str, FactFile], open_rows: OpenRows) -> Sequence[str]:
    """Return the files whose rows all count as they are."""
    days = _changed_days(files, open_rows)
    return [name for name, file in files.items() if file.kind != DELTA and not _is_touched(file, days)]


def _changed_days(files: Mapping[str, FactFile], open_rows: OpenRows | None) -> set[int]:
    of_open = () if open_rows is None else open_rows.changed_days
    return {file.since for file in files.values() if file.kind == DELTA}.union(of_open)


def _is_touched(file: FactFile, changed_days: Iterable[int]) -> bool:
    return any(file.since <= day < file.until for day in changed_days)


def sql_of_files(folder: Path, names: Iterable[str]) -> str:
    """Return SQL that reads the rows of files, one file after the other."""
    listed = ", ".join(quoted(folder / name) for name in names)
    return f"read_parquet([{listed}], union_by_name = true)"


def file_sums(values: Sequence[int]) -> FileSums:
    rows, calls, tokens, took_ms, *limbs = map(int, values)
    cost, reported, estimated = (str(units_of_amount((limbs[at], limbs[at + 1]))) for at in (0, 2, 4))
    return FileSums(rows, calls, tokens, took_ms, cost, reported, estimated)


def add_sums(parts: Iterable[FileSums]) -> FileSums:
    parts = list(parts)
    return FileSums(
        sum(part.rows for part in parts),
        sum(part.calls for part in parts),
        sum(part.tokens for part in parts),
        sum(part.took_ms for part in parts),
        str(sum(int(part.cost) for part in parts)),
        str(sum(int(part.reported) for part in parts)),
        str(sum(int(part.estimated) for part in parts)),
    )


def day_of(start: int) -> int:
    return start // DAY_S * DAY_S
