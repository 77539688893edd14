"""The budget verdicts for one device: rows of the verdict table that name the device or its person."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence

from gateway.core.errors import Refusal
from gateway.devices.own_verdicts import MOST, OwnVerdict, OwnVerdicts
from gateway.money.budgets.verdicts import (
    ACTING,
    OVER,
    VALID_S,
    BudgetVerdict,
    BudgetVerdictBoard,
    BudgetVerdicts,
    parse_time_s,
)
from spool.devices.device import ENROLLED, Device
from spool.ledger.dimensions import TAG
from spool.people import USER, People
from spool.record import utc_iso

DEVICE = "device"
_OWN = frozenset({DEVICE, USER})  # a verdict concerns a device only if it names this device or its person
# labels of a device that become fields of a record; all others become tags
_FIELDS = frozenset({"team", USER})


class DeviceVerdicts:
    """
    Selects the budget verdicts for each device. `interval_s` returns the seconds between two heartbeats.
    """

    def __init__(self, board: BudgetVerdictBoard, people: People, interval_s: Callable[[], float]) -> None:
        self._board = board
        self._people = people
        self._interval_s = interval_s
        # verdict table and links of people from which `_rows` was made
        self._indexed: tuple[object, ...] = ()
        self._rows: Mapping[tuple[str, str], Sequence[BudgetVerdict]] = {}

    async def verdicts_for_device(self, device: Device, *, has_amounts: bool) -> OwnVerdicts | None:
        """
        Return the verdicts for an enrolled device, with amounts if `has_amounts`. Return None for a device
        that is not enrolled, or while the totals are being counted again.
        """
        if device.state != ENROLLED:
            return None
        try:
            table = await self._board.current_table(ACTING)
        except Refusal:
            return None
        links = self._people.persons.version
        if not (self._indexed and self._indexed[0] is table and self._indexed[1] == links):
            self._rows = await asyncio.to_thread(self._rows_by_owner, table)
            self._indexed = table, links
        rows = self._matching_rows(self._common_dimensions(device))
        until = parse_time_s(table.as_of) + max(VALID_S, 2 * self._interval_s())
        return OwnVerdicts(
            valid_until=utc_iso(until),
            rows=[_own_verdict(row, has_amounts=has_amounts) for row in rows[:MOST]],
        )

    def _rows_by_owner(self, table: BudgetVerdicts) -> Mapping[tuple[str, str], Sequence[BudgetVerdict]]:
        """
        Index the rows by dimension (device or user) and value, without rows that sum several devices or
        people.
        """
        found = defaultdict[tuple[str, str], list[BudgetVerdict]](list)
        for row in table.rows:
            for dimension in _OWN & row.match.include.keys():
                owners = {self._person_identity(dimension, value) for value in row.match.include[dimension]}
                if len(owners) == 1:
                    found[dimension, owners.pop()].append(row)
        return found

    def _common_dimensions(self, device: Device) -> Mapping[str, str]:
        """
        Return the values of dimensions that all calls of a device share. The person comes only from a label
        that an operator set, because a device could claim to be anybody's.
        """
        labels = {
            name if name in _FIELDS else f"{TAG}{name}": value for name, value in device.all_labels.items()
        }
        person = device.operator_labels.get(USER, "")
        known = {**labels, USER: person, DEVICE: device.id}
        return {name: self._person_identity(name, value) for name, value in known.items() if value}

    def _matching_rows(self, known: Mapping[str, str]) -> Sequence[BudgetVerdict]:
        named = {id(row): row for own in _OWN & known.keys() for row in self._rows.get((own, known[own]), ())}
        rows = [row for row in named.values() if self._row_matches(row, known)]
        return sorted(rows, key=lambda row: (row.state != OVER, row.budget))

    def _row_matches(self, row: BudgetVerdict, known: Mapping[str, str]) -> bool:
        def has_value(name: str, values: Sequence[str]) -> bool:
            return known[name] in [self._person_identity(name, value) for value in values]

        include, exclude = row.match.include, row.match.exclude
        if not {*include, *exclude} <= known.keys():
            return False
        return all(has_value(*each) for each in include.items()) and not any(
            has_value(*each) for each in exclude.items()
        )

    def _person_identity(self, dimension: str, value: str) -> str:
        return self._people.person_identity(value) if dimension == USER and value else value


def _own_verdict(row: BudgetVerdict, *, has_amounts: bool) -> OwnVerdict:
    amounts = {"spent": row.spent, "limit": row.limit, "currency": row.currency} if has_amounts else {}
    return OwnVerdict(name=row.name, state=row.state, resets_at=row.resets_at, **amounts)
