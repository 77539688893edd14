"""The colours of names: stored once, spread evenly, the same for every process, and limited in number."""

from __future__ import annotations

import asyncio
from collections import Counter

import pytest

from spool.ledger.colours import COLOURS, NAME_COLOURS, colour_of_unstored_name
from spool.sql import colours as statements
from spool.storage import Storage

NAMES = [f"{n:032x}" for n in range(20)]  # digests


async def test_no_new_name_changes_an_earlier_one(storage: Storage) -> None:
    """
    The first eight names have eight colours, in their order. The ninth and the twentieth get the colour that
    the fewest names have, and change no earlier colour.
    """
    table = storage.small.open_table(NAME_COLOURS)
    assert {} == await table.known_colours("team", NAMES)
    first = await table.find_or_assign_colours("team", NAMES[:8])
    assert dict(zip(NAMES[:8], range(1, 9), strict=True)) == first
    for n in range(9, len(NAMES) + 1):
        found = await table.find_or_assign_colours("team", [NAMES[n - 1], *NAMES[:3]])
        assert {name: first[name] for name in NAMES[:3]} == {name: found[name] for name in NAMES[:3]}
    every = await table.find_or_assign_colours("team", list(reversed(NAMES)))
    assert first == {name: every[name] for name in first}
    assert {2, 3} == set(Counter(every.values()).values())
    assert every == await table.known_colours("team", NAMES)


async def test_dimensions_are_independent(storage: Storage) -> None:
    """The same name may have another colour in another dimension."""
    table = storage.small.open_table(NAME_COLOURS)
    await table.find_or_assign_colours("team", ["a", "search"])
    assert {"search": 1} == await table.find_or_assign_colours("user", ["search"])
    assert {"search": 2} == await table.find_or_assign_colours("team", ["search"])
    assert {} == await table.find_or_assign_colours("team", [])


async def test_two_processes_agree(storage: Storage) -> None:
    """Requests at the same time give a name one colour, and spread the names of a dimension evenly."""
    tables = [storage.small.open_table(NAME_COLOURS) for _ in range(2)]
    asked = [NAMES[:8], NAMES[4:12], NAMES[8:16], NAMES[12:20]]
    answers = await asyncio.gather(
        *(tables[n % 2].find_or_assign_colours("team", names) for n, names in enumerate(asked))
    )
    every = await tables[0].known_colours("team", NAMES)
    for answer in answers:
        assert answer == {name: every[name] for name in answer}
    assert {2, 3} == set(Counter(every.values()).values())
    assert COLOURS == len(set(every.values()))


async def test_further_names_follow_from_their_digest(
    storage: Storage, monkeypatch: pytest.MonkeyPatch
) -> None:
    """
    Above the limit of stored names, colours of further names are not stored and follow from the digest of the name.
    So every name still has one colour.
    """
    monkeypatch.setattr(statements, "MAX_NAMES", 10)
    table = storage.small.open_table(NAME_COLOURS)
    found = await table.find_or_assign_colours("team", NAMES)
    assert found == await table.find_or_assign_colours("team", NAMES)
    assert NAMES[:10] == list(await table.known_colours("team", NAMES))
    assert {name: colour_of_unstored_name(name) for name in NAMES[10:]} == {
        name: found[name] for name in NAMES[10:]
    }
    assert {1: 1} == Counter(
        (await table.find_or_assign_colours("user", NAMES[:1])).values()
    )  # another dimension has colours of its own


async def test_forgotten_names_are_new_names(storage: Storage) -> None:
    """Colours are deleted in every dimension, or all of them, and no other name changes its colour."""
    table = storage.small.open_table(NAME_COLOURS)
    first = await table.find_or_assign_colours("team", NAMES[:4])
    await table.find_or_assign_colours("user", NAMES[1:2])
    await table.forget_colours(NAMES[1:2])
    assert {} == await table.known_colours("user", NAMES)
    assert {name: first[name] for name in (NAMES[0], *NAMES[2:4])} == await table.known_colours("team", NAMES)
    await table.forget_colours([])
    assert 3 == len(await table.known_colours("team", NAMES))
    await table.forget_colours(None)
    assert {} == await table.known_colours("team", NAMES)
    assert {NAMES[5]: 1} == await table.find_or_assign_colours("team", NAMES[5:6])
