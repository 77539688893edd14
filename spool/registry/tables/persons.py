"""
Names of people, in a private table: a name to show, and the names under which records contain the person.

E-mail addresses are as in records, by default a hash. Names to show are not in memory.
"""

from __future__ import annotations

from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from itertools import chain
from typing import Any, NamedTuple

from spool.erasure import Erasure, erasure_from_json, pseudonyms_by_digest
from spool.errors import Invalid, NotAllowed, NotThere, RowDamaged
from spool.ledger.sums import OTHER
from spool.linked_names import LinkedNames
from spool.people import ERASED, People, is_address_hash, is_pseudonym, names_of_erased
from spool.registry.changes import RegistryChangeWriter
from spool.registry.documents import split_into_portions
from spool.registry.following import DOCUMENTS, PERSON, ChangedRowId
from spool.registry.operators import Actor
from spool.registry.registry_rows import RegistryRows
from spool.registry.texts import check_text

# Kinds of documents. The id of a person is the first name. Each further name has a document that refers to it.
# All names in ids and bodies have a stored form, because a name with an e-mail hash then takes up half as much.
KIND, NAME, ERASURE, BELOW = PERSON, "name", "erasure", "erases_below"
SIZE = "names"  # kind and id of the document with the number of names
LIMIT = "privacy.max_names"
MAX_NAME = 200
MAX_LINKED = 100  # maximum names of one person, because a filter lists them all
_SHOWN = 100  # maximum names in one audit row


@dataclass(frozen=True, slots=True, kw_only=True)
class LinkedPerson:
    """
    A person with linked names. `names`: as in records; reports show the first. `label`: the name to show, or
    "".
    """

    names: tuple[str, ...]
    label: str = ""


class PersonTable:
    """
    The people with linked names. Audit rows have names as in records, never the names that the console shows.
    """

    announced_subjects: tuple[ChangedRowId, ...] = ((KIND, ""), (DOCUMENTS, ERASURE), (DOCUMENTS, BELOW))

    def __init__(self, change_writer: RegistryChangeWriter) -> None:
        self._changes = change_writer
        self._people = change_writer.people
        self.erasures: Sequence[Erasure] = ()  # oldest first
        # agents and gateways of lower levels that ask this Tollhouse for erasures
        self.below: frozenset[str] = frozenset()

    async def load(self) -> None:
        news = self._changes.news
        ids = None if news is None else news.changed_ids(KIND)
        self.erasures, self.below, links, change = await self._changes.read(
            lambda rows: (
                stored_erasures(rows),
                frozenset(rows.documents(BELOW)),
                *self._read_links(rows, ids),
            )
        )
        persons = self._people.persons
        persons.erased = pseudonyms_by_digest(self.erasures)
        erased = names_of_erased(
            [tuple(erasure.names.values()) for erasure in self.erasures if erasure.names]
        )
        if links is not persons.links or erased != persons.names_of_erased:
            persons.set_links(links, erased)
        persons.change_links(*change)

    def _read_links(
        self, registry_rows: RegistryRows, ids: Collection[str] | None
    ) -> tuple[LinkedNames, PeopleChange]:
        links, identity = self._people.persons.links, self._people.identity_of_name
        if ids is None:
            several = (person.names for person in read_people(registry_rows) if len(person.names) > 1)
            return LinkedNames(identity, several, size=_read_name_count(registry_rows)), PeopleChange((), ())
        firsts = list(map(_decode_name, ids))
        before = (
            names for first in firsts if first in (names := links.all_names_of_person(identity(first)))[:1]
        )
        after = [
            _decode_person(_decode_name(id), body).names
            for id, body in registry_rows.documents(KIND, ids).items()
        ]
        return links, PeopleChange.between(before, after)

    async def all(self) -> Sequence[LinkedPerson]:
        return await self._changes.read(lambda rows: list(read_people(rows)))

    def notify_watchers_of_persons(self) -> None:
        """Apply the links again after `privacy.emails` has changed."""
        self._people.persons.notify_watchers()

    async def link_names(self, people: Iterable[LinkedPerson], *, max_names: int, actor: Actor) -> int:
        """
        Link names of people. A label replaces the earlier label. Return the number of all names.

        Raises NotAllowed beyond `max_names` names, or beyond MAX_LINKED names of one person.
        """
        stated = list(map(_check_person, people))
        names = [name for person in stated for name in person.names]
        now = self._changes.now()

        def link_people(registry_rows: RegistryRows) -> tuple[int, PeopleChange]:
            known = KnownPeople(registry_rows, self._people)
            for portion in split_into_portions(stated):
                known.find_people(chain.from_iterable(person.names for person in portion))
                for person in portion:
                    known.link_names(person)
            count = known.size
            if known.has_more_names_than_stored and count > max_names:
                raise NotAllowed(
                    f"the table would hold {count} names ({LIMIT} = {max_names}): delete some first"
                )
            change = known.store_changes()
            registry_rows.add_audit(now, actor, "person.link", "names", after=_audited_names(names))
            return count, change

        count, _ = await self._changes.change_rows(
            link_people, lambda result: self._apply_people_change(result[1])
        )
        return count

    async def link_address_forms(
        self, people: Iterable[tuple[str, ...]], *, max_names: int, actor: Actor
    ) -> int:
        """
        Link the forms in which gateways store an address, as far as `max_names` and MAX_LINKED allow. Names that
        operators separated are left out. Return the number of links.
        """
        new = [own for own in people if len(set(map(self._people.person_identity, own))) > 1]
        if not new:
            return 0
        now = self._changes.now()

        def join_new_address_forms(registry_rows: RegistryRows) -> tuple[int, PeopleChange]:
            known = KnownPeople(registry_rows, self._people)
            joined = []
            for portion in split_into_portions(new):
                known.find_people(chain(*portion))
                joined += [own for own in portion if known.link_names_if_allowed(own, max_names)]
            change = known.store_changes()
            if joined:
                registry_rows.add_audit(
                    now, actor, "person.join", "names", after=_audited_names([*chain(*joined)])
                )
            return len(joined), change

        count, _ = await self._changes.change_rows(
            join_new_address_forms, lambda result: self._apply_people_change(result[1])
        )
        return count

    async def unlink_name(self, name: str, *, actor: Actor) -> None:
        """Separate a name from its person. Raises NotThere if it is linked with no other name."""
        now = self._changes.now()

        def split_known_name(registry_rows: RegistryRows) -> PeopleChange:
            known = KnownPeople(registry_rows, self._people)
            before = known.find_people([name])
            if not before or len(before[0].names) == 1:
                raise NotThere(f"{name[:MAX_NAME]} is linked with no other name")
            known.unlink_name(before[0], name)
            registry_rows.add_audit(
                now,
                actor,
                "person.split",
                "names",
                before=_audited_names([self._people.recorded_name_or_hash(name)]),
            )
            return known.store_changes()

        await self._changes.change_rows(split_known_name, self._apply_people_change)

    async def delete_people(self, names: Collection[str] | None, *, actor: Actor) -> int:
        """Delete these people, or all if `names` is None."""
        now = self._changes.now()

        def delete_known_people(registry_rows: RegistryRows) -> tuple[int, PeopleChange]:
            known = KnownPeople(registry_rows, self._people)
            deleted = known.find_people(_first_name_of_each(registry_rows) if names is None else names)
            known.remove_people(deleted)
            if deleted:
                deleted_names = [name for person in deleted for name in person.names]
                registry_rows.add_audit(
                    now, actor, "person.forget", "names", before=_audited_names(deleted_names)
                )
            return len(deleted), known.store_changes()

        count, _ = await self._changes.change_rows(
            delete_known_people, lambda result: self._apply_people_change(result[1])
        )
        return count

    async def store_finished_renaming(self, erasure: Erasure) -> None:
        """Store that the records of this storage were renamed once more."""
        await self._change_erasures([erasure.id], lambda known: replace(known, passes=erasure.passes + 1))

    async def store_agent_or_gateway_below(
        self, installation_name: str, confirmed_erasure_ids: Collection[str], *, actor: Actor
    ) -> None:
        """
        Store that an agent or gateway of a lower level exists, and which erasures it confirms. Raises
        KeyEnded.
        """

        def store_name_of_agent_or_gateway(registry_rows: RegistryRows) -> None:
            registry_rows.require_valid_actor_key(actor)
            registry_rows.put_document(BELOW, installation_name, {})

        if installation_name not in self.below:
            await self._changes.change_rows(
                store_name_of_agent_or_gateway,
                lambda _: self._remember_agent_or_gateway_below(installation_name),
            )
        pending = [
            each.id
            for each in self.erasures
            if installation_name in each.below and each.id in confirmed_erasure_ids
        ]
        if pending:
            await self._change_erasures(
                pending,
                lambda known: replace(known, below=_other_names(known.below, installation_name)),
                actor=actor,
            )

    def _remember_agent_or_gateway_below(self, installation_name: str) -> None:
        self.below |= {installation_name}

    async def _change_erasures(
        self, ids: Collection[str], change: Callable[[Erasure], Erasure], *, actor: Actor | None = None
    ) -> None:
        def apply_change_to_erasures(registry_rows: RegistryRows) -> Sequence[Erasure]:
            if actor is not None:
                registry_rows.require_valid_actor_key(actor)
            for erasure in stored_erasures(registry_rows):
                if erasure.id in ids:
                    registry_rows.put_document(ERASURE, erasure.id, asdict(change(erasure)))
            return stored_erasures(registry_rows)

        def keep_erasures_in_memory(erasures: Sequence[Erasure]) -> None:
            self.erasures = erasures

        await self._changes.change_rows(apply_change_to_erasures, keep_erasures_in_memory)

    def _apply_people_change(self, change: PeopleChange) -> None:
        self._people.persons.change_links(*change)


class PeopleChange(NamedTuple):
    """
    The people with several names that a change removes and adds. Each tuple has all names of one person.
    """

    removed: Sequence[tuple[str, ...]]
    added: Sequence[tuple[str, ...]]

    @classmethod
    def between(cls, before: Iterable[tuple[str, ...]], after: Iterable[tuple[str, ...]]) -> PeopleChange:
        removed, added = [{own for own in side if len(own) > 1} for side in (before, after)]
        return cls(sorted(removed - added), sorted(added - removed))


class KnownPeople:
    """The people within one change. Only people that the change concerns are read."""

    def __init__(self, registry_rows: RegistryRows, rules: People) -> None:
        self._rows = registry_rows
        self._key = rules.identity_of_name
        self._text = rules.hash_address
        # stored people by first name
        self._stored: dict[str, LinkedPerson] = {}
        self._people: dict[str, LinkedPerson | None] = {}
        # first name by each name, None if nobody has the name
        self._stored_firsts: dict[str, str] = {}
        self._firsts: dict[str, str | None] = {}
        self._stored_size = self.size = _read_name_count(registry_rows)

    @property
    def has_more_names_than_stored(self) -> bool:
        return self.size > self._stored_size

    def find_people(self, names: Iterable[str]) -> list[LinkedPerson]:
        firsts = dict[str | None, None]()
        for portion in split_into_portions(map(self._key, names)):
            self._load_people(portion)
            firsts.update(dict.fromkeys(self._firsts[key] for key in portion))
        people = (self._people[first] for first in firsts if first is not None)
        return [person for person in people if person is not None]

    def _load_people(self, keys: Iterable[str]) -> None:
        unread = list(dict.fromkeys(key for key in keys if key not in self._firsts))
        if not unread:
            return
        self._firsts.update(dict.fromkeys(unread))
        leads = self._rows.documents(NAME, map(_encode_name, unread))
        firsts = {str(body["first"]) for body in leads.values()}
        firsts.update(stored for key in unread if (stored := _encode_name(key)) not in leads)
        for id, body in self._rows.documents(KIND, firsts).items():
            person = _decode_person(_decode_name(id), body)
            first = person.names[0]
            self._stored[first] = self._people[first] = person
            own = dict.fromkeys(map(self._key, person.names), first)
            self._stored_firsts.update(own)
            self._firsts.update(own)

    def link_names(self, stated: LinkedPerson, max_names: int | None = None) -> None:
        """
        Link a person's names. Raises NotAllowed beyond MAX_LINKED names of the person, or beyond `max_names` names
        in total.
        """
        found = self.find_people(stated.names)
        names = dict[str, str]()
        for name in stated.names:
            for each in (*(name for person in self.find_people([name]) for name in person.names), name):
                names.setdefault(self._text(each), each)
        if len(names) > MAX_LINKED:
            raise NotAllowed(f"a person would have {len(names)} names, and {MAX_LINKED} are the limit")
        size = self.size + len(names) - sum(len(person.names) for person in found)
        if max_names is not None and size > max_names:
            raise NotAllowed(f"the table would hold {size} names, and {max_names} are the limit")
        label = stated.label or next((person.label for person in found if person.label), "")
        self.remove_people(found)
        self._remember_person(LinkedPerson(names=(*names.values(),), label=label))

    def link_names_if_allowed(self, names: tuple[str, ...], max_names: int) -> bool:
        free = tuple(name for name in names if not self._is_unlinked_by_operator(name))
        if len({self._firsts[self._key(name)] or name for name in free}) < 2:
            return False
        try:
            self.link_names(LinkedPerson(names=free), max_names)
        except NotAllowed:
            return False
        return True

    def _is_unlinked_by_operator(self, name: str) -> bool:
        return any(len(person.names) == 1 and not person.label for person in self.find_people([name]))

    def unlink_name(self, person: LinkedPerson, name: str) -> None:
        self.remove_people([person])
        if is_address_hash(self._text(name)):  # stored as unlinked, so that no report links it again
            self._remember_person(LinkedPerson(names=(self._text(name),)))
        remaining = tuple(other for other in person.names if self._text(other) != self._text(name))
        if len(remaining) > 1 or person.label:
            self._remember_person(LinkedPerson(names=remaining, label=person.label))

    def remove_people(self, people: Iterable[LinkedPerson]) -> None:
        for person in people:
            self._people[person.names[0]] = None
            self.size -= len(person.names)
            self._firsts.update(dict.fromkeys(map(self._key, person.names)))

    def store_changes(self) -> PeopleChange:
        rows = self._rows
        gone = [first for first, person in self._people.items() if person is None]
        rows.delete_documents(KIND, map(_encode_name, gone))
        changed = (
            (_encode_name(first), _encode_person(person))
            for first, person in self._people.items()
            if person is not None and self._stored.get(first) != person
        )
        rows.put_documents(KIND, changed)
        free, leads = [], dict[str, str]()
        for name, named in self._firsts.items():
            before = self._stored_firsts.get(name, name)
            after = name if named is None else named
            if after != name and after != before:
                leads[name] = after
            elif after == name and before != name:
                free.append(name)
        led = ((_encode_name(name), {"first": _encode_name(first)}) for name, first in leads.items())
        rows.put_documents(NAME, led)
        rows.delete_documents(NAME, map(_encode_name, free))
        if self.size != self._stored_size:
            rows.put_document(SIZE, SIZE, {"count": self.size})
        people = (person.names for person in self._people.values() if person is not None)
        return PeopleChange.between((person.names for person in self._stored.values()), people)

    def _remember_person(self, person: LinkedPerson) -> None:
        self._people[person.names[0]] = person
        self.size += len(person.names)
        self._firsts.update(dict.fromkeys(map(self._key, person.names), person.names[0]))


def _check_person(person: LinkedPerson) -> LinkedPerson:
    names = tuple(check_text("names", name, MAX_NAME) for name in person.names)
    for name in names:
        check_names_one_person(name)
    label = check_text("name", person.label, MAX_NAME) if person.label else ""
    if not names or (len(names) == 1 and not label):
        raise Invalid("a person needs two names to link, or one name and the name to show")
    return LinkedPerson(names=names, label=label)


def check_names_one_person(name: str) -> None:
    """Raise Invalid for a name that stands for several people or for an erased person."""
    if name in ("", OTHER, ERASED):
        raise Invalid(f"{name or 'an empty name'} has the calls of several people, so it names no person")
    if is_pseudonym(name):
        raise Invalid(f"{name} is the pseudonym of a person who was erased already")


def _other_names(names: Sequence[str], name: str) -> tuple[str, ...]:
    return tuple(other for other in names if other != name)


def _audited_names(names: Sequence[str]) -> Mapping[str, object]:
    return {"count": len(names), "names": list(names[:_SHOWN])}


def stored_erasures(registry_rows: RegistryRows) -> Sequence[Erasure]:
    erasures = [erasure_from_json(**body) for body in registry_rows.documents(ERASURE).values()]
    return sorted(erasures, key=lambda erasure: (erasure.at, erasure.id))


def read_people(registry_rows: RegistryRows) -> Iterator[LinkedPerson]:
    return (_decode_person(_decode_name(id), body) for id, body in registry_rows.each_document(KIND))


def _read_name_count(registry_rows: RegistryRows) -> int:
    return int((registry_rows.document(SIZE, SIZE) or {"count": 0})["count"])


def _first_name_of_each(registry_rows: RegistryRows) -> Iterator[str]:
    return (person.names[0] for person in read_people(registry_rows))


def _decode_person(first_name_of_person: str, body: Mapping[str, Any]) -> LinkedPerson:
    return LinkedPerson(
        names=(first_name_of_person, *map(_decode_name, body["names"])), label=str(body.get("label", ""))
    )


def _encode_person(person: LinkedPerson) -> Mapping[str, Any]:
    names = list(map(_encode_name, person.names[1:]))
    return {"names": names, "label": person.label} if person.label else {"names": names}


def _encode_name(name: str) -> str:
    """Encode a name for storage: a hash in 12 characters instead of 22, any other name after a mark."""
    if not is_address_hash(name):
        return f"={name}"
    return "#" + urlsafe_b64encode(bytes.fromhex(name.removeprefix("email:"))).decode().rstrip("=")


def _decode_name(stored: str) -> str:
    if stored.startswith("="):
        return stored[1:]
    try:
        return f"email:{urlsafe_b64decode(f'{stored[1:]}=').hex()}"
    except ValueError as error:
        raise RowDamaged(f"a stored name cannot be read: {error}") from error
