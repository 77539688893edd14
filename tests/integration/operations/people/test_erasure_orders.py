"""Links, splits and erasures in any order change no sum except those by user."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator

import pytest

from gateway.configuration.sections import Config
from spool.people import ERASED
from tests.integration.conftest import Serve
from tests.integration.operations.people.test_privacy import allow, erased
from tests.integration.receivers.test_second_names import storage_of as storage_of
from tests.integration.test_linked_names import NAMES, added, lines, sent, whole, world_of
from tests.integration.test_one_identity import checked

STEPS = ("link", "split", "erase", "link", "split", "link")


@pytest.mark.parametrize("seed", range(2))
async def test_no_order_of_link_split_and_erase_changes_a_sum(
    serve: Serve, storage_of: tuple[Config, Callable[[], Iterator[bytes]]], seed: int
) -> None:
    """
    On each engine, sums by every other dimension stay equal to the last digit after each step, and so does the sum of
    all users. The erased people have one line.
    """
    chance = random.Random(seed)
    world = await world_of(serve, storage_of[0])
    await allow(world)
    await sent(world, chance, [*NAMES, *chance.choices(NAMES, k=30)])
    before, total = await whole(world), added([*(await lines(world)).values()])
    known, erasures = list(NAMES), 0
    for step in [*chance.sample(STEPS, len(STEPS)), "erase"]:
        name = chance.choice(known)
        if step == "link":
            users = [world.people.hash_address(each) for each in chance.sample(known, 2)]
            checked(await world.ask("POST", "/people", {"people": [{"users": users}]}))
        elif step == "split":
            await world.ask("POST", "/people/split", {"user": name})  # refused if the name has no link
        else:
            own = world.serving.app.services.storage.ledger.people
            assert own is not None
            gone = {each.casefold() for each in own.linked_names(name)}
            await erased(world, name)
            known = [
                each for each in known
                if each != name and not gone & {each, world.people.hash_address(each)}
            ]  # fmt: skip
            erasures += 1
        found = await lines(world)
        assert before == await whole(world), step
        assert total == added([*found.values()]), step
        assert (ERASED in found) == (erasures > 0), step
    assert erasures == 2
