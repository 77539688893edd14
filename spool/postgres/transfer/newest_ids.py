"""
The known ids that are in no stored run, read from the records that have them: an engine with files keeps them
nowhere else, and here they stand in the rows of their commits.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from typing import Any

from spool.errors import EntryUnreadable
from spool.log import duplicates, runs
from spool.log.amendments import amended
from spool.log.books import Terms
from spool.log.commits.following import NewIds, pack_new_ids
from spool.log.duplicates import DuplicateIndex
from spool.log.entries import codec
from spool.log.entries.codec import EntryBody
from spool.log.runs import NO_IDS, IdRun
from spool.record import NS, Inference


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
