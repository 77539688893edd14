"""Records, links, splits, erasures and restarts in any order change no sum except those by user."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import pytest

from gateway.configuration.sections import Config
from spool.people import ERASED
from tests.integration.conftest import Serve
from tests.integration.operations.people.test_privacy import allow, erased
from tests.integration.receivers.test_people_chain import restart
from tests.integration.receivers.test_second_names import storage_of as storage_of
from tests.integration.test_linked_names import (
    NAMES,
    STATED,
    Lines,
    added,
    lines,
    sent,
    sent_pairs,
    whole,
    world_of,
)
from tests.integration.test_one_identity import World, checked
from tests.rounds import part

STEPS = ("link", "link", "link", "split", "erase", "record", "record", "restart")


@dataclass
class Oracle:
    """What each name spent, the linked names, and what erased people spent. `people` have the shown name first."""

    spent: dict[str, tuple[int, Any]]
    people: list[list[str]] = field(default_factory=list)
    erased: list[tuple[int, Any]] = field(default_factory=list)

    def person(self, name: str) -> list[str]:
        return next((own for own in self.people if name in own), [name])

    def link(self, names: list[str]) -> None:
        joined = list(dict.fromkeys(each for name in names for each in self.person(name)))
        self.people = [own for own in self.people if not {*own} & {*joined}] + [joined]

    def split(self, name: str) -> None:
        own = self.person(name)
        self.people = [each for each in self.people if each is not own]
        self.people.append([each for each in own if each != name])

    def erase(self, name: str) -> None:
        own = self.person(name)
        self.people = [each for each in self.people if each is not own]
        self.erased += [self.spent.pop(each) for each in own]

    def lines(self) -> Lines:
        shown: dict[str | None, list[tuple[int, Any]]] = {ERASED: self.erased} if self.erased else {}
        for name, spent in self.spent.items():
            shown.setdefault(self.person(name)[0], []).append(spent)
        return {name: added(found) for name, found in shown.items()}


async def persons(world: World) -> tuple[Any, Any]:
    """Return people, and names that calls state together, with their conflicts."""
    listed = checked(await world.ask("GET", "/people"))["people"]
    return listed, checked(await world.ask("GET", "/people/stated"))["stated_names"]


@pytest.mark.proof
@pytest.mark.parametrize("seed", part(range(2), every=2))
async def test_no_order_of_steps_changes_a_sum(
    serve: Serve, storage_of: tuple[Config, Callable[[], Iterator[bytes]]], seed: int
) -> None:
    """
    No order of links, splits, erasures and restarts changes a sum, on each engine: after each step each person has
    the sum of all names, and sums by every other dimension stay equal to the last digit. The erased people have one
    line. A restart changes no person and no conflict.
    """
    chance = random.Random(seed)
    world = await world_of(serve, storage_of[0])
    await allow(world)
    await sent_pairs(world, STATED)
    await sent(world, chance, [*NAMES, *chance.choices(NAMES, k=30)])
    oracle = Oracle({name or "": spent for name, spent in (await lines(world)).items()})
    before = await whole(world)
    for step in [*chance.sample(STEPS, len(STEPS)), "erase", "restart"]:
        name = chance.choice(sorted(oracle.spent))
        if step == "link":
            names = [name, *chance.sample(sorted(oracle.spent), 2)]
            checked(await world.ask("POST", "/people", {"people": [{"users": names}]}))
            oracle.link(names)
        elif step == "split":
            split = await world.ask("POST", "/people/split", {"user": name})
            assert (404 if oracle.person(name) == [name] else 200) == split.status
            oracle.split(name)
        elif step == "erase":
            await erased(world, name)
            oracle.erase(name)
        elif step == "record":
            _, cost = added([*oracle.lines().values()])
            await sent(world, chance, [name])
            calls, own = oracle.spent[name]
            before = await whole(world)
            _, more = added([*(await lines(world)).values()])
            oracle.spent[name] = calls + 1, own + more - cost
        else:
            found = await persons(world)
            await restart(world.serving)
            assert found == await persons(world)
        assert oracle.lines() == await lines(world), step
        assert before == await whole(world), step
