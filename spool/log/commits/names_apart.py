"""
Names of records of earlier commits: a report told them after the record was kept. An engine that reads known
ids from the records at a start keeps these beside them, as facts, until they are in a stored run.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

import msgspec

from spool.log.commits.following import NewIds, pack_new_ids, unpack_ids
from spool.log.entries.codec import NO_RECORD

FIRST, AFTER = "names ", "names!"  # every fact of these is between them


class _Names(msgspec.Struct, array_like=True):
    at: float
    ids: bytes


_names = msgspec.msgpack.Decoder(_Names)


def fact_of(number: int) -> str:
    """The fact with the names of one commit, in the order of the numbers."""
    return f"{FIRST}{number:020}"


def number_of(fact: str) -> int:
    return int(fact.removeprefix(FIRST))


def pack_names(at: float, names: Iterable[tuple[int, int, int]]) -> bytes:
    """Ids, places and hours of a commit at a time, at least one."""
    ids, places, hours = zip(*names, strict=True)
    return msgspec.msgpack.encode(_Names(at, pack_new_ids(NewIds(ids, places, hours))))


def unpack_names(data: bytes) -> tuple[float, NewIds]:
    """Return the time of their commit and the names; ValueError if the bytes changed."""
    try:
        names = _names.decode(data)
    except NO_RECORD as error:
        raise ValueError(f"the names of a commit are damaged: {error}") from error
    return names.at, unpack_ids(names.ids)


def names_in(facts: Mapping[str, bytes]) -> Iterator[tuple[int, int, int]]:
    """Ids, places and hours of all names among some facts."""
    for name in sorted(facts):
        if FIRST <= name < AFTER:
            yield from zip(*unpack_names(facts[name])[1], strict=True)
