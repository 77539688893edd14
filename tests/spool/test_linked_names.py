"""Linked names in memory: after any changes, every name has the names of its person."""

from __future__ import annotations

import itertools
import random
import uuid
from collections.abc import Sequence

from spool.linked_names import LinkedNames
from spool.people import People, hash_address_with_key
from tests.rounds import IS_LONG

PEOPLE = People.for_installation(b"s" * 32)


def random_name(chance: random.Random, number: int) -> str:
    return chance.choice(
        (
            hash_address_with_key(b"k" * 32, f"{number}@example.com"),
            str(uuid.UUID(int=chance.getrandbits(128))),
            f"login-{number}",
            f"email:{number}",
            f"größe-{number}-" + "x" * chance.randrange(180),
            f"\ud800{number}",
        )
    )


def test_names_are_found_after_any_changes() -> None:
    """People are added, replaced and removed, until memory was cleared several times."""
    chance = random.Random(80)
    links, known = LinkedNames(PEOPLE.identity_of_name), dict[int, tuple[str, ...]]()
    objects = {id(links): links}
    gone: set[str] = set()
    for number in range(6000 if IS_LONG else 2000):
        removed: list[Sequence[str]] = []
        if known and chance.random() < 0.4:
            removed = [known.pop(each) for each in chance.sample(sorted(known), min(len(known), 2))]
            gone.update(name for names in removed for name in names)
        kept = removed[0][:1] if removed and chance.random() < 0.5 else ()
        known[number] = (
            *kept,
            *(random_name(chance, 10 * number + place) for place in range(chance.randint(2, 5))),
        )
        links = links.with_changes(removed, [known[number]])
        objects[id(links)] = links
    assert len(objects) > 1, "memory is cleared"
    assert sorted(known.values()) == sorted(links)
    for names in known.values():
        for name in names:
            assert names == links.all_names_of_person(
                PEOPLE.identity_of_name(name.upper() if name.isascii() else name)
            )
    for name in gone.difference(*known.values()):
        assert () == links.all_names_of_person(PEOPLE.identity_of_name(name))


def test_a_table_grows_between_names_of_one_person() -> None:
    """All names are in one table, because their hashes agree in the digits that choose it."""
    names = (name for name in map(str, itertools.count()) if not hash(PEOPLE.identity_of_name(name)) % 256)
    people = [tuple(itertools.islice(names, 4)) for _ in range(60)]
    links = LinkedNames(PEOPLE.identity_of_name)
    for person in people:
        links = links.with_changes([], [person])
        assert links.all_names_of_person(PEOPLE.identity_of_name(person[-1])) == person
    for person in people:
        links = links.with_changes([person], [])
        assert not any(links.all_names_of_person(PEOPLE.identity_of_name(name)) for name in person)


def test_nothing_is_linked_after_the_last_removal() -> None:
    links = LinkedNames(PEOPLE.identity_of_name, [("a", "b")])
    assert links
    links = links.with_changes([("a", "b")], [])
    assert not links and [] == list(links) and () == links.all_names_of_person("a")
    assert links is links.with_changes([("a", "b")], []), "nobody has these names"
