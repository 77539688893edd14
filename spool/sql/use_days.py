from __future__ import annotations

from collections.abc import Collection, Sequence
from datetime import date, timedelta
from functools import partial
from typing import Any

from spool.devices.use_days import KEPT_DAYS, OWN_ROWS_DAYS, SUMMED, HeardSlots, UseDay
from spool.sql.columns import RowColumns, insert_sql, select_sql
from spool.sql.connection import SqlConnection, SqlTransactions

_DAY = RowColumns(UseDay)
_KEY = ("day", "device", "assistant", "team")
_COUNTS = tuple(name for name in _DAY.names if name not in _KEY)
_DELETE = "DELETE FROM {schema}.use_days"
_DELETE_DAY = f"{_DELETE} WHERE day = :day AND device = :device AND assistant = :assistant"
_ADD = (
    f"{insert_sql('use_days', _DAY.names)} ON CONFLICT ({', '.join(_KEY)}) DO UPDATE SET "
    f"{', '.join(f'{name} = use_days.{name} + excluded.{name}' for name in _COUNTS)}"
)
_LOSSES = """
    SELECT max(day), device, assistant, team, CAST(sum(used) AS bigint), CAST(sum(lost) AS bigint),
           CAST(sum(lost_calls) AS bigint)
      FROM {schema}.use_days WHERE lost > 0 AND day BETWEEN :first AND :last
  GROUP BY device, assistant, team ORDER BY device, assistant, team"""
_HEARD = """
    SELECT d.device, d.assistant, max(d.team), min(d.day), CAST(sum(d.used - d.lost) AS bigint)
      FROM {schema}.use_days d
      JOIN (SELECT device, assistant, min(day) AS first FROM {schema}.use_days
             WHERE device > :after AND device <= :last AND day >= :first GROUP BY device, assistant) f
        ON f.device = d.device AND f.assistant = d.assistant AND d.day > f.first
     WHERE d.device > :after AND d.device <= :last
  GROUP BY d.device, d.assistant ORDER BY d.device, d.assistant"""
# the last device of a piece of rows. The empty name of sums comes before all devices.
_LAST_OF_PIECE = """
    SELECT coalesce(
        (SELECT device FROM {schema}.use_days WHERE device > :after ORDER BY device LIMIT 1 OFFSET :rows),
        (SELECT max(device) FROM {schema}.use_days WHERE device > :after))"""
ROWS_OF_PIECE = 20_000  # rows that a query reads at once, because other queries of SQLite wait meanwhile
_SELECT = select_sql("use_days", _DAY.names)
# locked in the order of the key, so that two processes cannot sum the same row
_LOCKED = f"ORDER BY {', '.join(_KEY)} {{for_update}}"
_OF_DEVICE = f"device = :device AND device <> :summed {_LOCKED}"
_OLD = f"day = :day AND lost = 0 AND device <> :summed {_LOCKED}"
_OLD_DAYS = """
    SELECT DISTINCT day FROM {schema}.use_days WHERE day < :before AND lost = 0 AND device <> :summed ORDER BY day"""
_DEVICES = "SELECT DISTINCT device FROM {schema}.use_days WHERE device <> :summed ORDER BY device"


class SqlUseDays:
    def __init__(self, transactions: SqlTransactions) -> None:
        self._transactions = transactions

    async def replace_days(self, days: Sequence[UseDay]) -> None:
        rows = [_DAY.stored_values(each) for each in sorted(days, key=lambda each: (each.day, each.device))]
        keys = [{name: row[name] for name in ("day", "device", "assistant")} for row in rows]

        def replace_rows(on: SqlConnection) -> None:
            on.run_each(_DELETE_DAY, keys)
            on.run_each(_ADD, rows)

        await self._transactions.transaction(replace_rows)

    async def losses_between(self, first: str, last: str) -> Sequence[UseDay]:
        rows = await self._transactions.read(lambda on: on.all(_LOSSES, first=first, last=last))
        return [_DAY.read_row(row) for row in rows]

    async def heard_slots_since(self, first: str) -> Sequence[HeardSlots]:
        found: list[HeardSlots] = []
        after: str | None = SUMMED
        while after is not None:
            after, rows = await self._transactions.read(partial(_read_piece_of_heard_slots, first, after))
            found += [
                HeardSlots(device=device, assistant=assistant, team=team, since=since, heard=heard)
                for device, assistant, team, since, heard in rows
            ]
        return found

    async def sum_devices(self, devices: Collection[str]) -> None:
        for device in devices:
            await self._transactions.transaction(
                lambda on, id=device: _sum_rows(on, _OF_DEVICE, device=id)  # type: ignore[misc]
            )

    async def sum_and_delete_old_days(self, today: str, known_devices: Collection[str]) -> None:
        before, kept = (
            (date.fromisoformat(today) - timedelta(days=days)).isoformat()
            for days in (OWN_ROWS_DAYS, KEPT_DAYS)
        )
        await self._transactions.transaction(lambda on: on.run(f"{_DELETE} WHERE day < :kept", kept=kept))
        read = self._transactions.read
        for (day,) in await read(lambda on: on.all(_OLD_DAYS, before=before, summed=SUMMED)):
            await self._transactions.transaction(
                lambda on, day=day: _sum_rows(on, _OLD, day=day)  # type: ignore[misc]
            )
        stored = await read(lambda on: on.all(_DEVICES, summed=SUMMED))
        await self.sum_devices({device for (device,) in stored}.difference(known_devices))


def _read_piece_of_heard_slots(
    first: str, after: str, on: SqlConnection
) -> tuple[str | None, Sequence[tuple[Any, ...]]]:
    """Return the last device of a piece, or None after the last piece, and the heard slots of its devices."""
    [(last,)] = on.all(_LAST_OF_PIECE, after=after, rows=ROWS_OF_PIECE)
    return last, [] if last is None else on.all(_HEARD, first=first, after=after, last=last)


def _sum_rows(on: SqlConnection, condition: str, **values: str) -> None:
    """Add the rows that fulfil a condition to the sums of their teams."""
    rows = [_DAY.read_row(row) for row in on.all(f"{_SELECT} WHERE {condition}", **values, summed=SUMMED)]
    on.run_each(
        f"{_DELETE_DAY} AND team = :team", [{name: getattr(row, name) for name in _KEY} for row in rows]
    )
    on.run_each(_ADD, [{**_DAY.stored_values(row), "device": SUMMED} for row in rows])
