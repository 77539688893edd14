"""
Linked names of people in memory, in about 28 bytes per name. A change costs the same with a million names as
with few.

All names are in one byte array, and hash tables map each name to its person's position.
"""

from __future__ import annotations

import re
from array import array
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import NamedTuple

MAX_NAMES = 127  # maximum names of one person
_PARTS = 256  # tables of hashes: a change lets only one of them grow, so no change takes long
_FREE, _LEFT = 0, 1  # marks of a slot that was never used, and of a slot whose name was removed
_MARKS = 254  # number of different marks for slots with a name; a mark is a part of the name's hash
_REMOVED = 128  # added to a person's number of names when the person is removed
_HASH = re.compile("email:([0-9a-f]{32})")
_UUID = re.compile("[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")
_HASH_TAG, _UUID_TAG = 0, 1  # first bytes of packed names
_TEXT_TAG = 2  # the first byte of a packed text is this plus the high byte of its size


class _Table(NamedTuple):
    """
    A hash table with open addressing. `marks`: one byte of each name's hash. `places`: the position of each
    name's person.
    """

    marks: bytearray
    places: array[int]


class LinkedNames:
    """
    People, each with all of their names. `identity` returns the same text for every name of a person.

    One thread may make changes while others read.
    """

    def __init__(
        self, identity: Callable[[str], str], people: Iterable[Sequence[str]] = (), *, size: int = 0
    ) -> None:
        self._identity = identity
        self._people = bytearray()  # for each person: the number of names, and the packed names
        self._tables = [_empty_table(size // _PARTS) for _ in range(_PARTS)]
        self._used = [0] * _PARTS  # slots that are in use or were used
        self._removed_bytes = 0
        for names in people:
            self._add_person(names)

    def __bool__(self) -> bool:
        return self._removed_bytes < len(self._people)

    def __iter__(self) -> Iterator[tuple[str, ...]]:
        place = 0
        while place < len(self._people):
            names, end = self._read_names_and_end(place)
            if self._people[place] < _REMOVED:
                yield names
            place = end

    def all_names_of_person(self, identity: str) -> tuple[str, ...]:
        """Return all names of the person who has this name, or () if the name is linked with no other."""
        if not self._people:
            return ()
        number = hash(identity)
        marks, places = self._tables[number % _PARTS]
        mark, slot = _mark_byte_and_slot(number, len(marks))
        while found := marks[slot]:
            if found == mark:
                names, _ = self._read_names_and_end(places[slot])
                if identity in map(self._identity, names):
                    return names
            slot = slot + 1 if slot + 1 < len(marks) else 0
        return ()

    def with_changes(self, removed: Iterable[Sequence[str]], added: Iterable[Sequence[str]]) -> LinkedNames:
        """
        Return the people after a change. It is this object, or a new one if most of its memory was unused.
        """
        gone = {place for names in removed for place in self._find_offset_of_linked_names(names)}
        for names in added:
            self._add_person(names)
        for place in gone:
            self._remove_person(place)
        if self._removed_bytes * 2 <= max(len(self._people), 1 << 16):
            return self
        return LinkedNames(self._identity, self, size=sum(self._used))

    def _add_person(self, names: Sequence[str]) -> None:
        assert len(names) <= MAX_NAMES
        numbers = [hash(self._identity(name)) for name in names]
        # Enlarge all tables before storing the first name, because enlarging reads whole people and stores
        # their names.
        for number in numbers:
            part = number % _PARTS
            if (self._used[part] + len(names)) * 5 > len(self._tables[part].marks) * 4:
                self._enlarge_table(part, len(names))
        place = len(self._people)
        self._people += bytes((len(names),)) + b"".join(map(_pack_name, names))
        for number in numbers:
            self._used[number % _PARTS] += 1
            _insert_person_offset(self._tables[number % _PARTS], number, place)

    def _enlarge_table(self, table_index: int, added_names: int) -> None:
        marks, places = self._tables[table_index]
        people = {place for mark, place in zip(marks, places, strict=True) if mark > _LEFT}
        numbers = [
            (number, place)
            for place in people
            for name in self._read_names_and_end(place)[0]
            if (number := hash(self._identity(name))) % _PARTS == table_index
        ]
        larger = _empty_table(len(numbers) + added_names)
        for number, place in numbers:
            _insert_person_offset(larger, number, place)
        self._tables[table_index], self._used[table_index] = larger, len(numbers)

    def _remove_person(self, person_offset: int) -> None:
        names, end = self._read_names_and_end(person_offset)
        for name in names:
            number = hash(self._identity(name))
            marks, places = self._tables[number % _PARTS]
            mark, slot = _mark_byte_and_slot(number, len(marks))
            while found := marks[slot]:
                if found == mark and places[slot] == person_offset:
                    marks[slot] = _LEFT
                    break
                slot = slot + 1 if slot + 1 < len(marks) else 0
        self._people[person_offset] += _REMOVED
        self._removed_bytes += end - person_offset

    def _find_offset_of_linked_names(self, linked_names: Sequence[str]) -> Iterator[int]:
        number = hash(self._identity(linked_names[0]))
        marks, places = self._tables[number % _PARTS]
        mark, slot = _mark_byte_and_slot(number, len(marks))
        while found := marks[slot]:
            if found == mark and self._read_names_and_end(places[slot])[0] == tuple(linked_names):
                yield places[slot]
                return
            slot = slot + 1 if slot + 1 < len(marks) else 0

    def _read_names_and_end(self, person_offset: int) -> tuple[tuple[str, ...], int]:
        people = self._people
        names = []
        count = people[person_offset] % _REMOVED
        person_offset += 1
        for _ in range(count):
            tag = people[person_offset]
            if tag == _HASH_TAG:
                names.append(f"email:{people[person_offset + 1 : person_offset + 17].hex()}")
                person_offset += 17
            elif tag == _UUID_TAG:
                digits = people[person_offset + 1 : person_offset + 17].hex()
                names.append(f"{digits[:8]}-{digits[8:12]}-{digits[12:16]}-{digits[16:20]}-{digits[20:]}")
                person_offset += 17
            else:
                begin, person_offset = (
                    person_offset + 2,
                    person_offset + 2 + ((tag - _TEXT_TAG) << 8) + people[person_offset + 1],
                )
                names.append(people[begin:person_offset].decode("utf-8", "surrogatepass"))
        return tuple(names), person_offset


def _empty_table(name_count: int) -> _Table:
    size = name_count * 3 // 2 + 4
    return _Table(bytearray(size), array("I", bytes(4 * size)))


def _mark_byte_and_slot(name_hash: int, slot_count: int) -> tuple[int, int]:
    return 2 + (name_hash >> 8) % _MARKS, (name_hash >> 16) % slot_count


def _insert_person_offset(table: _Table, name_hash: int, person_offset: int) -> None:
    marks, places = table
    mark, slot = _mark_byte_and_slot(name_hash, len(marks))
    while marks[slot] > _LEFT:
        slot = slot + 1 if slot + 1 < len(marks) else 0
    places[slot] = person_offset
    marks[slot] = mark  # written last, because other threads read the slot


def _pack_name(name: str) -> bytes:
    if match := _HASH.fullmatch(name):
        return bytes((_HASH_TAG,)) + bytes.fromhex(match[1])
    if _UUID.fullmatch(name):
        return bytes((_UUID_TAG,)) + bytes.fromhex(name.replace("-", ""))
    text = name.encode("utf-8", "surrogatepass")
    return bytes((_TEXT_TAG + (len(text) >> 8), len(text) & 255)) + text
