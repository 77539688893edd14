"""The newest calls that a person with restricted access may see, and the cached search for them."""

from __future__ import annotations

from typing import cast

import pytest

from spool.ledger.own_records import NewestSliceCalls
from spool.log.protocols import RecordLog
from spool.record import Inference, Record
from tests.spool.ledger_log import FakeClock, FakeLog, call


class Searched:
    """Searches for the calls of team `own`. `checked` are the ids of the calls that each search checked."""

    def __init__(self) -> None:
        self.log = FakeLog()
        self.own_records = NewestSliceCalls(cast(RecordLog, self.log), FakeClock())
        self.checked: list[int] = []

    def add(self, *ids: int, team: str = "own") -> None:
        self.log.add([call(id=id.to_bytes(16), team=team) for id in ids])

    async def newest(self) -> list[int]:
        self.checked = []
        found = await self.own_records.newest_calls("own", self._is_own, dimensions=None, max_records=9)
        return [int.from_bytes(each.unpack_record().id) for each in found]

    def _is_own(self, record: Record) -> bool:
        assert isinstance(record, Inference)
        self.checked.append(int.from_bytes(record.id))
        return record.team == "own"


@pytest.fixture
def searched() -> Searched:
    return Searched()


async def test_each_call_is_checked_once(searched: Searched) -> None:
    """A later search checks only the calls since the earlier one, and returns the earlier ones as well."""
    searched.add(1, 2)
    searched.add(3, team="other")
    assert [2, 1] == await searched.newest()
    searched.add(4)
    assert [4, 2, 1] == await searched.newest()
    assert [4] == searched.checked


async def test_a_replaced_log_is_searched_from_its_start(searched: Searched) -> None:
    """If the log was replaced by a shorter one, calls of the old log are no longer shown."""
    searched.add(1, 2, 3)
    assert [3, 2, 1] == await searched.newest()
    searched.log.entries = []
    searched.add(7)
    assert [7] == await searched.newest()
