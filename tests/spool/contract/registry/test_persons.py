"""People with several names in a registry: links, splits and deletions, in any order and over restarts."""

from __future__ import annotations

import random
from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from itertools import chain

import pytest

from spool.errors import Invalid, NotAllowed, NotThere
from spool.people import KEEP, hash_address_with_key
from spool.registry.operators import Actor
from spool.registry.registry import Registry
from spool.registry.tables.persons import MAX_LINKED, LinkedPerson, ReportedForms
from spool.sql.registry import SqlRegistryRows
from tests.spool.contract.conftest import RegistryOpener
from tests.spool.kept import audit_rows

ROOT = Actor("root@example.com", "local")
# texts, and hashes, which have another form in the table; some texts look like this form
NAMES = ("a", "#b", "=c", "#AAAAAAAAAAAAAAAAAAAAAA", f"email:{255:032x}", f"email:{'fffefdfc' * 4}", "g", "h")

pytestmark = pytest.mark.rule


def linked(registry: Registry) -> list[tuple[str, ...]]:
    """Return the names of each person with several names, as the seam of all queries has them."""
    return sorted(
        tuple(map(registry.people.recorded_name_or_hash, names)) for names in registry.people.persons.links
    )


async def link(registry: Registry, *people: Sequence[str], label: str = "", most: int = 1000) -> int:
    stated = [LinkedPerson(names=(*names,), label=label) for names in people]
    return await registry.persons.link_names(stated, max_names=most, actor=ROOT)


class ByHand:
    """The names of each person, computed in the simplest way."""

    def __init__(self) -> None:
        self.people: list[list[str]] = []

    def link(self, names: Sequence[str]) -> None:
        joined = dict.fromkeys(chain.from_iterable((*self._of(name), name) for name in names))
        self._drop(joined)
        self.people.append([*joined])

    def split(self, name: str) -> bool:
        rest = [each for each in self._of(name) if each != name]
        self._drop((name, *rest))
        self.people += [rest] if len(rest) > 1 else []
        return bool(rest)

    def forget(self, names: Iterable[str]) -> int:
        gone = {tuple(own) for name in names if (own := self._of(name))}
        self._drop(chain.from_iterable(gone))
        return len(gone)

    def _of(self, name: str) -> list[str]:
        return next((own for own in self.people if name in own), [])

    def _drop(self, names: Iterable[str]) -> None:
        dropped = set(names)
        self.people = [own for own in self.people if dropped.isdisjoint(own)]


@pytest.mark.one_engine
@pytest.mark.every_engine
async def test_links_in_any_order_are_the_same_after_a_restart(open_registry: RegistryOpener) -> None:
    """Random links, splits and deletions, with restarts in between, against lists that are made by hand."""
    chance = random.Random(80)
    registry, by_hand = await open_registry(), ByHand()
    for _ in range(40):
        names = chance.sample(NAMES, chance.randint(2, 4))
        match chance.choice(("link", "link", "split", "forget", "restart")):
            case "link":
                by_hand.link(names)
                assert await link(registry, names) == sum(map(len, by_hand.people))
            case "split" if by_hand.split(names[0]):
                await registry.persons.unlink_name(names[0], actor=ROOT)
            case "split":
                with pytest.raises(NotThere, match="linked with no other name"):
                    await registry.persons.unlink_name(names[0], actor=ROOT)
            case "forget":
                assert by_hand.forget(names[:2]) == await registry.persons.delete_people(
                    names[:2], actor=ROOT
                )
            case _:
                await registry.close()
                registry = await open_registry()
        assert sorted(map(tuple, by_hand.people)) == linked(registry)


@pytest.mark.one_engine
@pytest.mark.every_engine
async def test_another_gateway_knows_each_change(open_registry: RegistryOpener) -> None:
    """
    Another gateway knows each change of links. Gateways change links in turns, even before they know the newest
    changes, and all have the same in the end.
    """
    registry = await open_registry()
    if not registry.is_shared:
        pytest.skip("one process owns the files")
    chance, by_hand = random.Random(8), ByHand()
    gateways = [registry, await open_registry()]
    for _ in range(30):
        gateway = chance.choice(gateways)
        names = chance.sample(NAMES, chance.randint(2, 3))
        if chance.random() < 0.7:
            by_hand.link(names)
            assert await link(gateway, names) == sum(map(len, by_hand.people))
        else:
            assert by_hand.forget(names[:1]) == await gateway.persons.delete_people(names[:1], actor=ROOT)
        if chance.random() < 0.5:
            for each in gateways:
                await each.catch_up()
                assert sorted(map(tuple, by_hand.people)) == linked(each)
    await link(registry, ("a", "b"))
    await gateways[1].catch_up()
    assert gateways[1].people.person_identity("a") == gateways[1].people.person_identity("b")


async def test_many_people_are_written_in_portions(
    registry: Registry, monkeypatch: pytest.MonkeyPatch
) -> None:
    """
    Many names are written in portions. A statement for each name takes long, and PostgreSQL ends a transaction that
    computes for two seconds.
    """
    sizes, run_each = list[int](), SqlRegistryRows._write_each

    def measured(rows: SqlRegistryRows, statement: str, values: Sequence[Mapping[str, object]]) -> None:
        sizes.append(len(values))
        run_each(rows, statement, values)

    monkeypatch.setattr(SqlRegistryRows, "_write_each", measured)
    assert 1200 == await link(registry, *((f"a{n}", f"b{n}") for n in range(600)), most=2000)
    assert [250, 250, 100, 250, 250, 100, 1] == sizes
    assert 600 == await registry.persons.delete_people(None, actor=ROOT)
    assert [] == linked(registry) and [] == list(await registry.persons.all())


async def test_every_form_of_a_linked_address_names_the_person(registry: Registry) -> None:
    """An address, its hash, an account and a login are one person. `privacy.emails` may change afterwards."""
    people = registry.people
    hashed = people.hash_address("ann@example.com")
    await link(registry, (hashed, "uuid-1", "ann"))
    for name in ("Ann@Example.com", hashed, "uuid-1", "ann"):
        assert {hashed, "uuid-1", "ann"} <= set(people.all_recorded_names(name)), name
        assert people.person_identity("ann") == people.person_identity(name)
        assert {"user": people.all_recorded_names(name)} == people.expand_filter({"user": (name,)})
        assert people.linked_names(name) == (hashed, "uuid-1", "ann")
    assert [hashed, hashed, hashed, "bob"] == [
        people.shown_name(each) for each in ("uuid-1", "ann@example.com", "ann", "bob")
    ]
    assert ("ann",) == people.expand_filter({"team": ("ann",)})["team"]
    registry.set_email_policy("drop")
    assert not people.is_left_out_of_new_records("ann@example.com") and people.is_left_out_of_new_records(
        "bob@example.com"
    )
    registry.set_email_policy(KEEP)
    await link(registry, ("bob@example.com", "bob"))
    assert "bob@example.com" == people.shown_name("bob")
    registry.set_email_policy("hash")
    assert people.hash_address("bob@example.com") == people.shown_name("bob")


async def test_who_watches_links_hears_each_change(registry: Registry) -> None:
    """A change of a label alone changes no link."""
    changes: list[list[tuple[str, ...]]] = []
    registry.people.persons.add_watcher(lambda: changes.append(linked(registry)))
    await link(registry, ("a", "b"))
    await link(registry, ("a",), label="Ann")
    await registry.persons.unlink_name("b", actor=ROOT)
    assert [[("a", "b")], []] == changes
    assert [LinkedPerson(names=("a",), label="Ann")] == list(await registry.persons.all())


async def test_audit_rows_have_names_of_records_and_no_label(registry: Registry) -> None:
    address = "ann@example.com"
    await link(registry, ("a", "b", registry.people.hash_address(address)), label="Ann Lee")
    await registry.persons.unlink_name("b", actor=ROOT)
    await registry.persons.unlink_name(address, actor=ROOT)
    await registry.persons.delete_people(None, actor=ROOT)
    rows = [row for row in await audit_rows(registry) if row.action.startswith("person.")]
    assert {"person.link", "person.split", "person.forget"} == {row.action for row in rows}
    assert "Ann Lee" not in str(rows) and address not in str(rows) and "'b'" in str(rows)


async def test_names_are_bounded(registry: Registry) -> None:
    """
    The table of people has at most `most` names, and a person at most MAX_LINKED. A link beyond either limit
    changes nothing.
    """
    many = [f"n{number}" for number in range(MAX_LINKED)]
    assert MAX_LINKED == await link(registry, many, most=MAX_LINKED)
    with pytest.raises(NotAllowed, match=f"{MAX_LINKED + 1} names"):
        await link(registry, ("n1", "further"), most=1000)
    with pytest.raises(NotAllowed, match=f"privacy.max_names = {MAX_LINKED}"):
        await link(registry, ("a", "b"), most=MAX_LINKED)
    assert MAX_LINKED == await link(registry, ("n1", "n2"), label="Ann", most=1)
    assert [tuple(many)] == linked(registry)
    for wrong in ((), ("a",)):
        with pytest.raises(Invalid, match="needs two names"):
            await link(registry, wrong)
    with pytest.raises(Invalid, match="several people"):
        await link(registry, ("a", "(other)"))
    with pytest.raises(Invalid, match="printable"):
        await link(registry, ("a", "b\n\x00c"))


KEYS = [bytes([number]) * 32 for number in range(1, 9)]


def reported(registry: Registry, address: str, *keys: bytes) -> ReportedForms:
    """Return what a sender with these keys reports about an address."""
    return ReportedForms(
        registry.people.recorded_name_or_hash(address), [hash_address_with_key(key, address) for key in keys]
    )


async def report(
    registry: Registry,
    *addresses: ReportedForms,
    sender: str = "laptop",
    most: int = 1000,
    most_conflicts: int = 9,
) -> int:
    return await registry.persons.link_address_forms(
        addresses, sender=sender, max_names=most, max_conflicts=most_conflicts, actor=ROOT
    )


async def conflicts(registry: Registry) -> set[tuple[str, ...]]:
    return {tuple(each.names) for each in await registry.persons.conflicts() if each.state == "open"}


async def actions(registry: Registry, word: str) -> int:
    return len([row for row in await audit_rows(registry) if row.action == word])


@pytest.mark.one_engine
@pytest.mark.every_engine
async def test_hashes_of_one_address_are_joined_once(open_registry: RegistryOpener) -> None:
    """
    The hashes of one address are joined once: a repeat writes nothing, names that an operator took apart stay
    apart, and limits hold for each person.
    """
    registry, ann = await open_registry(), "ann@example.com"
    laptop, site = KEYS[:2]
    ours, from_laptop, from_site = (
        registry.people.recorded_name_or_hash(ann),
        hash_address_with_key(laptop, ann),
        hash_address_with_key(site, " ANN@example.com "),
    )
    assert 3 == len({ours, from_laptop, from_site})
    assert 0 == await report(registry, reported(registry, ann, laptop))
    assert 0 == await report(registry, reported(registry, ann, laptop, site))
    assert 0 == await report(registry, reported(registry, ann, site), reported(registry, ann, laptop))
    await registry.close()
    registry = await open_registry()
    assert [(ours, from_laptop, from_site)] == linked(registry)
    assert 2 == await actions(registry, "person.join")
    await registry.persons.unlink_name(from_laptop, actor=ROOT)
    assert 0 == await report(registry, reported(registry, ann, laptop, site))
    assert [(ours, from_site)] == linked(registry)
    await link(registry, (ours, from_laptop))
    assert 3 == len(registry.people.linked_names(ann))
    many = [bytes([number]) * 32 for number in range(MAX_LINKED)]
    assert 1 == await report(registry, reported(registry, ann, *many))
    assert [(ours, from_site, from_laptop)] == linked(registry)
    assert set() == await conflicts(registry)


@pytest.mark.one_engine
@pytest.mark.every_engine
async def test_a_report_never_joins_two_people(open_registry: RegistryOpener) -> None:
    """
    Random reports in any order, some of which state a hash of somebody else, among links of operators: who was apart
    before a report is apart after it, and each hash of somebody else is a conflict, until an operator decides.
    """
    registry, chance = await open_registry(), random.Random(2)
    addresses = [f"p{number}@example.com" for number in range(6)]
    for number in range(4):
        await link(registry, (registry.people.recorded_name_or_hash(addresses[number]), f"login-{number}"))
    forms = [hash_address_with_key(key, address) for key in KEYS[:4] for address in addresses]
    identity = registry.people.person_identity
    names = [*addresses, *forms, *(f"login-{number}" for number in range(4))]
    for _ in range(30):
        address, key = chance.choice(addresses), chance.choice(KEYS[:4])
        stated = reported(registry, address, key)
        if chance.random() < 0.4:  # as if the sender had found two addresses with one hash
            stated = stated._replace(hashes=[chance.choice(forms)])
        before = {name: identity(name) for name in names}
        linked_before = {name for name in names if len(registry.people.linked_names(name)) > 1}
        is_of_other = any(name in linked_before and before[name] != before[address] for name in stated.hashes)
        assert 0 == await report(registry, stated, most_conflicts=100)
        for one in linked_before:
            for other in linked_before:
                assert (before[one] == before[other]) == (identity(one) == identity(other)), (one, other)
        if is_of_other:
            assert (stated.name, *stated.hashes) in await conflicts(registry)
            assert identity(stated.name) != identity(stated.hashes[0])
    found = list(await registry.persons.conflicts())
    assert len(found) > 2 and len(found) == await actions(registry, "conflict.report")
    decide = partial(registry.persons.decide_conflict, max_names=1000, actor=ROOT)
    await decide(found[0].id, is_accepted=True)
    await decide(found[1].id, is_accepted=False)
    assert identity(found[0].names[0]) == identity(found[0].names[1])
    await registry.close()
    registry = await open_registry()
    assert found[0].id not in {each.id for each in await registry.persons.conflicts()}
    assert 0 == await report(registry, ReportedForms(found[1].names[0], [found[1].names[1]]))
    assert tuple(found[1].names) not in await conflicts(registry), "an operator decided already"
    with pytest.raises(NotThere, match="no conflict"):
        await registry.persons.decide_conflict(found[0].id, is_accepted=True, max_names=1000, actor=ROOT)


@pytest.mark.one_engine
@pytest.mark.every_engine
async def test_the_keys_of_a_sender_are_fixed_at_first_use(open_registry: RegistryOpener) -> None:
    """
    The first key of a device counts, and the first keys of a gateway, its own before those of others. A further key is
    a conflict, once, until an operator accepts it.
    """
    registry = await open_registry()

    async def accepted(sender: str, *keys: bytes, most: int) -> Sequence[bytes]:
        return await registry.persons.accepted_hash_keys(
            sender, keys, max_keys=most, max_conflicts=9, actor=ROOT
        )

    assert [KEYS[0]] == [*await accepted("device a", KEYS[0], most=1)]
    assert [] == [*await accepted("device a", KEYS[1], most=1)]
    assert [KEYS[0]] == [*await accepted("device a", KEYS[1], KEYS[0], most=1)]
    assert [KEYS[1]] == [*await accepted("device b", KEYS[1], most=1)]
    assert [KEYS[5], KEYS[6]] == [*await accepted("gateway", KEYS[4], KEYS[5], KEYS[6], most=2)]
    await registry.close()
    registry = await open_registry()
    assert [] == [*await accepted("device a", KEYS[1], most=1)]
    waiting = {each.sender: each for each in await registry.persons.conflicts()}
    assert {"device a", "gateway"} == {*waiting} and 2 == await actions(registry, "conflict.report")
    assert {"hash_key"} == {each.kind for each in waiting.values()}
    assert KEYS[1].hex() not in str(waiting), "the key itself is not stored"
    decide = partial(registry.persons.decide_conflict, max_names=9, actor=ROOT)
    await decide(waiting["device a"].id, is_accepted=True)
    await decide(waiting["gateway"].id, is_accepted=False)
    assert [KEYS[1]] == [*await accepted("device a", KEYS[1], most=1)]
    assert [KEYS[6]] == [*await accepted("gateway", KEYS[4], KEYS[6], most=2)]
    assert ["apart"] == [each.state for each in await registry.persons.conflicts()]


@pytest.mark.one_engine
@pytest.mark.every_engine
async def test_a_sender_has_only_its_share_of_the_room(open_registry: RegistryOpener) -> None:
    """
    A sender links made-up addresses until its share is used up. Others still have room, also for conflicts, and what
    is deleted makes room again.
    """
    registry = await open_registry()

    def made_up(start: int, count: int) -> list[ReportedForms]:
        return [
            reported(registry, f"n{number}@example.com", KEYS[0]) for number in range(start, start + count)
        ]

    assert 40 == await report(registry, *made_up(0, 50), sender="hostile", most=80)
    assert 10 == len(linked(registry)), "half of a quarter"
    assert 1 == await report(registry, *made_up(60, 1), sender="hostile", most=80)
    assert 0 == await report(
        registry, reported(registry, "ann@example.com", KEYS[1]), sender="honest", most=80
    )
    assert 11 == len(linked(registry))
    await registry.close()
    registry = await open_registry()
    assert 1 == await report(registry, *made_up(60, 1), sender="hostile", most=80)
    await registry.persons.delete_people(["n0@example.com", "n1@example.com"], actor=ROOT)
    await registry.persons.unlink_name(hash_address_with_key(KEYS[0], "n2@example.com"), actor=ROOT)
    assert 1 == await report(registry, *made_up(70, 4), sender="hostile", most=80)
    for number in range(20):
        await link(registry, (f"a{number}", registry.people.recorded_name_or_hash(f"c{number}@example.com")))
        stated = ReportedForms(registry.people.recorded_name_or_hash("n5@example.com"), [f"a{number}"])
        assert 0 == await report(registry, stated, sender="hostile")
    assert 5 == len(await conflicts(registry))
    await link(registry, ("b", registry.people.recorded_name_or_hash("bob@example.com")))
    stated = ReportedForms(registry.people.recorded_name_or_hash("ann@example.com"), ["b"])
    assert 0 == await report(registry, stated, sender="honest")
    assert 6 == len(await conflicts(registry))


async def test_an_address_that_records_keep_is_joined(registry: Registry) -> None:
    registry.set_email_policy(KEEP)
    people, hashed = registry.people, hash_address_with_key(KEYS[0], "ann@example.com")
    assert 0 == await report(registry, reported(registry, "ann@example.com", KEYS[0]))
    assert "ann@example.com" == people.shown_name(hashed)
    assert 0 == await report(registry, reported(registry, "ann@example.com", KEYS[0]))
    assert 1 == await actions(registry, "person.join")
