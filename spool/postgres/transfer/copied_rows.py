"""Rows of a copy as the tables in PostgreSQL have them, where they are otherwise than those of the source."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Any
from uuid import UUID

from spool.errors import EntryUnreadable
from spool.ledger import money
from spool.ledger.sums import COUNTS, LATENCY, MONEY, Dimensions
from spool.log import duplicates, runs
from spool.log.amendments import amended
from spool.log.books import Terms
from spool.log.commits.following import NewIds, of_topics, pack_new_ids
from spool.log.duplicates import DuplicateIndex
from spool.log.entries import codec
from spool.log.entries.codec import EntryBody
from spool.log.partial_reports import PartialReport, kind_of, version_of
from spool.log.runs import NO_IDS, IdRun
from spool.postgres.ledger import digest_of, stored, tag_values
from spool.postgres.log.entries import code
from spool.record import NS, Inference

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


# -- the newest ids ------------------------------------------------------------------------------------------


class NewestIds:
    """
    `through`: by topic, up to which number ids are in runs. `apart`: ids, places and hours of names that are
    kept beside the records. `amendments` and `id_runs`: rows of those tables.
    """

    def __init__(
        self,
        secret: bytes,
        through: Mapping[str, int],
        apart: Iterable[tuple[int, int, int]],
        amendments: Iterable[Mapping[str, Any]],
        id_runs: Iterable[Mapping[str, Any]],
    ) -> None:
        self._index = DuplicateIndex(secret, window_s=0.0, max_ids=1)
        self._index.load(_read_runs(id_runs), 0.0)
        self._through = through
        self._apart = list(apart)
        self._known: set[int] = set()
        self._fields: dict[tuple[str, int], dict[str, Any]] = {}
        for row in amendments:
            topic = row["topic"]
            number = row["number"]
            if number > through.get(topic, 0):
                with suppress(EntryUnreadable):  # as it first came
                    self._fields[topic, number] = codec.check_fields(
                        topic, number, row["checksum"], row["fields"]
                    )
        self._found: defaultdict[str, dict[int, list[tuple[int, int, int]]]] = defaultdict(dict)

    def read(self, entry: Mapping[str, Any]) -> None:
        """The ids of an entry's records; of one that cannot be read nothing is known."""
        topic = entry["topic"]
        first = entry["first"]
        count = entry["count"]
        if first + count - 1 <= self._through.get(topic, 0) or entry["damaged"]:
            return
        body = EntryBody(entry["version"], entry["checksum"], entry["body"])
        try:
            raws, _ = codec.stored_raws(body, topic, first, count)
            records = map(codec.record, raws)
            for number, record in enumerate(records, first):
                if number > self._through.get(topic, 0):
                    fields = self._fields.get((topic, number))
                    if fields and isinstance(record, Inference):
                        record = amended(record, fields)
                    self._add(topic, number, duplicates.known_under(record, int(entry["committed_at"] * NS)))
        except EntryUnreadable:
            return

    def _add(self, topic: str, number: int, names: Iterable[tuple[bytes, int]]) -> None:
        found = self._found[topic].setdefault(number, [])
        for name, hour in names:
            id = self._index.id_of(name)
            if id not in self._known and not self._index.is_in_runs(id, hour):
                self._known.add(id)
                found.append((id, duplicates.place(topic, number), hour))

    def take(self, terms: Iterable[Terms]) -> bytes:
        """Pack the ids that a commit made known, as its row has them."""
        found: list[tuple[int, int, int]] = []
        for one in terms:
            of_topic = self._found.get(one.topic)
            if of_topic:
                for number in range(one.first, one.first + one.accepted):
                    found += of_topic.pop(number, ())
        return _packed(found)

    def rest(self) -> bytes:
        """
        Pack the ids of commits that were carried forward already, and the names stored apart from their records.
        """
        found = [one for of_topic in self._found.values() for ids in of_topic.values() for one in ids]
        return _packed(found + [name for name in self._apart if name[0] not in self._known])


def _read_runs(rows: Iterable[Mapping[str, Any]]) -> Iterator[IdRun]:
    """A damaged one is left out, as at a start."""
    for row in rows:
        ids = runs.unpacked(row["ids"], row["checksum"])
        yield IdRun(row["id"], row["hour"], row["arrived_at"], ids or NO_IDS)


def _packed(found: list[tuple[int, int, int]]) -> bytes:
    ids, places, hours = zip(*found, strict=True) if found else ((), (), ())
    return pack_new_ids(NewIds(ids, places, hours))
