"""
Names of people, in a private table: a name to show, and the names under which records contain the person.

E-mail addresses are as in records, by default a hash. Names to show are not in memory.
"""

from __future__ import annotations

from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from hashlib import blake2b
from itertools import chain
from typing import Any, NamedTuple

import msgspec

from spool.erasure import Erasure, erasure_from_json, pseudonyms_by_digest, unconfirmed_pseudonyms
from spool.errors import Invalid, NotAllowed, NotThere, RowDamaged
from spool.ledger.work import OTHER
from spool.linked_names import LinkedNames
from spool.people import ERASED, People, is_address_hash, is_pseudonym, names_of_erased
from spool.registry.changes import RegistryChangeWriter
from spool.registry.documents import DocumentCollection, split_into_portions
from spool.registry.following import DOCUMENTS, PERSON, ChangedRowId
from spool.registry.operators import Actor
from spool.registry.registry_rows import RegistryRows
from spool.registry.texts import check_text
from spool.shares import is_within_share

# Kinds of documents. The id of a person is the first name. Each further name has a document that refers to it.
# All names in ids and bodies have a stored form, because a name with an e-mail hash then takes up half as much.
KIND, NAME, ERASURE, BELOW = PERSON, "name", "erasure", "erases_below"
# The hash keys of an agent or a gateway below, with the number of names that it linked; and what operators decide.
SENDER, CONFLICT = "name_sender", "name_conflict"
NAMES, HASH_KEY = CONFLICT_KINDS = ("names", "hash_key")
OPEN, APART = CONFLICT_STATES = ("open", "apart")
SIZE = "names"  # kind and id of the document with the number of names
LIMIT, KEY_LIMIT = "privacy.max_names", "privacy.max_hash_keys"
CONFLICT_LIMIT = "privacy.max_name_conflicts"
# A reported hash comes with at most one name of its person here, so senders together fill at most half of the limit.
_REPORTED_PART = 4
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


class ReportedForms(NamedTuple):
    """An e-mail address that a sender reports: its name in records here, and its hashes under the sender's keys."""

    name: str
    hashes: Sequence[str]


class NameConflict(msgspec.Struct, frozen=True, kw_only=True):
    """
    What a sender stated about names, and only an operator may decide.

    `kind`: NAMES if the two `names` belong to different people here, HASH_KEY if the sender uses a hash key that it may
    not use yet. `state`: APART if an operator decided against the sender.
    """

    id: str
    kind: str
    sender: str
    at: float
    names: Sequence[str] = ()
    key: str = ""  # digest of the hash key
    state: str = OPEN


CONFLICTS = DocumentCollection(CONFLICT, NameConflict, "conflict of names")


class _SenderRow(msgspec.Struct, frozen=True, kw_only=True):
    """`keys`: digests of the sender's hash keys. `names`: the number of names that it linked."""

    id: str
    keys: Sequence[str] = ()
    names: int = 0


_SENDERS = DocumentCollection(SENDER, _SenderRow, "sender of names")


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
        erasures, self.below, links, change = await self._changes.read(
            lambda rows: (
                stored_erasures(rows),
                frozenset(rows.documents(BELOW)),
                *self._read_links(rows, ids),
            )
        )
        self._apply_erasures(erasures)
        persons = self._people.persons
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

    async def accepted_hash_keys(
        self, sender: str, keys: Sequence[bytes], *, max_keys: int, max_conflicts: int, actor: Actor
    ) -> Sequence[bytes]:
        """
        Return the keys with which this sender may hash addresses. Its first `max_keys` keys are fixed, the last of
        `keys`, its own, first. An operator decides about further keys.
        """
        digests = {self._people.hash_key_digest(key): key for key in reversed(keys)}
        row = await self._changes.read(lambda rows: _SENDERS.find(rows, sender))
        if row is None or not digests.keys() <= {*row.keys}:

            def fix_keys(registry_rows: RegistryRows) -> _SenderRow:
                registry_rows.require_valid_actor_key(actor)
                row = _SENDERS.find(registry_rows, sender) or _SenderRow(id=sender)
                new = [digest for digest in digests if digest not in row.keys]
                fixed = new[: max(0, max_keys - len(row.keys))]
                if fixed:
                    row = msgspec.structs.replace(row, keys=[*row.keys, *fixed])
                    _SENDERS.store_row(registry_rows, row)
                room = _ConflictRoom(registry_rows, max_conflicts, actor, self._changes.now())
                for digest in new[len(fixed) :]:
                    room.add(HASH_KEY, sender, key=digest)
                return row

            row = await self._changes.change_rows(fix_keys, lambda _: None)
        return [key for key in keys if self._people.hash_key_digest(key) in row.keys]

    async def link_address_forms(
        self,
        reported: Iterable[ReportedForms],
        *,
        sender: str,
        max_names: int,
        max_conflicts: int,
        actor: Actor,
    ) -> int:
        """
        Add the hashes of each address to its person. Names that operators separated are left out. A hash that belongs
        to another person is a conflict, and joins nobody.

        Return the number of addresses that were not linked whole, because the sender's share of `max_names`
        or MAX_LINKED is used up.
        """
        identity = self._people.person_identity
        new = [
            each for each in reported if any(identity(name) != identity(each.name) for name in each.hashes)
        ]
        if not new:
            return 0
        now = self._changes.now()

        def add_forms(registry_rows: RegistryRows) -> tuple[int, PeopleChange]:
            registry_rows.require_valid_actor_key(actor)
            known = KnownPeople(registry_rows, self._people)
            room = _ConflictRoom(registry_rows, max_conflicts, actor, now)
            linked, left_out = list[str](), 0
            for portion in split_into_portions(new):
                known.find_people(chain.from_iterable((each.name, *each.hashes) for each in portion))
                for each in portion:
                    added = known.add_reported_forms(each, sender, max_names)
                    linked += (each.name, *added.linked) if added.linked else ()
                    left_out += added.lacks_room
                    for name in added.of_others:
                        room.add(NAMES, sender, names=(each.name, name))
            change = known.store_changes()
            if linked:
                registry_rows.add_audit(now, actor, "person.join", "names", after=_audited_names(linked))
            return left_out, change

        count, _ = await self._changes.change_rows(
            add_forms, lambda result: self._apply_people_change(result[1])
        )
        return count

    async def conflicts(self) -> Sequence[NameConflict]:
        return await self._changes.read(lambda rows: [*CONFLICTS.all(rows).values()])

    async def decide_conflict(
        self, conflict_id: str, *, is_accepted: bool, max_names: int, actor: Actor
    ) -> NameConflict:
        """
        Link the two names of a conflict, or accept the sender's hash key. If not `is_accepted`, they stay apart for
        ever. Raises NotThere and NotAllowed.
        """
        now = self._changes.now()

        def decide(registry_rows: RegistryRows) -> tuple[NameConflict, PeopleChange]:
            conflict = CONFLICTS.find(registry_rows, conflict_id)
            if conflict is None:
                raise NotThere(f"no conflict of names has the id {conflict_id[:MAX_NAME]}")
            change = PeopleChange((), ())
            if not is_accepted:
                conflict = msgspec.structs.replace(conflict, state=APART)
                CONFLICTS.store_row(registry_rows, conflict)
            else:
                CONFLICTS.delete(registry_rows, conflict_id)
                if conflict.kind == NAMES:
                    known = KnownPeople(registry_rows, self._people)
                    known.link_names(LinkedPerson(names=tuple(conflict.names)), max_names)
                    change = known.store_changes()
                else:
                    row = _SENDERS.find(registry_rows, conflict.sender) or _SenderRow(id=conflict.sender)
                    keys = [*row.keys, conflict.key]
                    _SENDERS.store_row(registry_rows, msgspec.structs.replace(row, keys=keys))
            action = "conflict.accept" if is_accepted else "conflict.reject"
            registry_rows.add_audit(now, actor, action, conflict_id, after=_audited_conflict(conflict))
            return conflict, change

        conflict, _ = await self._changes.change_rows(
            decide, lambda result: self._apply_people_change(result[1])
        )
        return conflict

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

    async def store_numbers_at_erasure(
        self, erasure: Erasure, next_numbers: Mapping[str, int], *, log: str
    ) -> Erasure:
        """Store the next record number of each topic: the erasure applies to all earlier records of this log."""
        await self._change_erasures([erasure.id], lambda known: replace(known, stored=next_numbers, log=log))
        return replace(erasure, stored=next_numbers, log=log)

    async def forget_numbers_of_other_logs(self, log: str) -> None:
        """Forget the numbers of a log that was lost: in the log that replaced it, they are of later records."""
        others = [erasure.id for erasure in self.erasures if erasure.log not in ("", log)]
        if others:
            await self._change_erasures(others, lambda known: replace(known, stored={}, log=""))

    async def store_whether_totals_have_names(self, erasure: Erasure, totals_have_names: bool) -> None:
        await self._change_erasures(
            [erasure.id], lambda known: replace(known, totals_have_names=totals_have_names)
        )

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
                lambda known: replace(
                    known, below=tuple(other for other in known.below if other != installation_name)
                ),
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

        await self._changes.change_rows(apply_change_to_erasures, self._apply_erasures)

    def _apply_erasures(self, erasures: Sequence[Erasure]) -> None:
        self.erasures = erasures
        self._people.persons.erased = pseudonyms_by_digest(erasures)
        self._people.persons.unconfirmed = unconfirmed_pseudonyms(erasures)

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


class _ConflictRoom:
    """
    The place for conflicts within one change. A sender may fill half of what other senders leave free; what it states
    beyond is left out until it states it again.
    """

    def __init__(self, registry_rows: RegistryRows, max_conflicts: int, actor: Actor, now: float) -> None:
        self._rows = registry_rows
        self._most = max_conflicts
        self._actor = actor
        self._now = now
        self._known: dict[str, NameConflict] | None = None

    def add(self, kind: str, sender: str, *, names: Sequence[str] = (), key: str = "") -> None:
        if self._known is None:
            self._known = CONFLICTS.all(self._rows)
        # a conflict of names is the same for all senders
        id = _conflict_id(sorted(names) if names else (sender, key))
        if id in self._known:
            return
        still_open = [each.sender for each in self._known.values() if each.state == OPEN]
        if not is_within_share(still_open.count(sender), len(still_open), 1, self._most):
            return
        conflict = NameConflict(id=id, kind=kind, sender=sender, at=self._now, names=names, key=key)
        self._known[id] = conflict
        CONFLICTS.store_row(self._rows, conflict)
        self._rows.add_audit(self._now, self._actor, "conflict.report", id, after=_audited_conflict(conflict))


def _conflict_id(parts: Sequence[str]) -> str:
    return blake2b("\n".join(parts).encode(errors="replace"), digest_size=16).hexdigest()


def _audited_conflict(conflict: NameConflict) -> Mapping[str, object]:
    return {"kind": conflict.kind, "sender": conflict.sender, "names": list(conflict.names)}


class AddedForms(NamedTuple):
    """`of_others`: hashes that belong to other people. `lacks_room`: whether a limit left out a hash."""

    linked: Sequence[str] = ()
    of_others: Sequence[str] = ()
    lacks_room: bool = False


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
        self._reporters: dict[str, str] = {}  # the sender that reported a new name
        self._senders: dict[str, _SenderRow] = {}
        self._reported_count = _read_name_count(registry_rows, "reported")

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

    def add_reported_forms(self, reported: ReportedForms, sender: str, max_names: int) -> AddedForms:
        """Add hashes that nobody has to the person with the reported name, as far as the limits allow."""
        if self._is_unlinked_by_operator(reported.name):
            return AddedForms()
        free = [name for name in dict.fromkeys(reported.hashes) if not self._is_unlinked_by_operator(name)]
        own = self._first_name(reported.name)
        of_others = [name for name in free if self._first_name(name) not in (None, own)]
        new = [name for name in free if self._first_name(name) is None and name != reported.name]
        if not new:
            return AddedForms(of_others=of_others)
        if not is_within_share(
            self._sender(sender).names, self._reported_count, len(new), max_names // _REPORTED_PART
        ):
            return AddedForms(of_others=of_others, lacks_room=True)
        try:
            self.link_names(LinkedPerson(names=(reported.name, *new)), max_names)
        except NotAllowed:
            return AddedForms(of_others=of_others, lacks_room=True)
        self._reporters |= dict.fromkeys(map(self._key, new), sender)
        self._count_for_sender(sender, len(new))
        return AddedForms(linked=new, of_others=of_others)

    def _first_name(self, name: str) -> str | None:
        self.find_people([name])
        return self._firsts[self._key(name)]

    def _sender(self, sender: str) -> _SenderRow:
        if sender not in self._senders:
            self._senders[sender] = _SENDERS.find(self._rows, sender) or _SenderRow(id=sender)
        return self._senders[sender]

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
        leads, stored_leads = dict[str, str](), list[str]()
        for name, named in self._firsts.items():
            before = self._stored_firsts.get(name, name)
            after = name if named is None else named
            if after != before:
                leads[name] = after
                stored_leads += [name] if before != name else []
        reporters = self._stored_reporters(stored_leads) | self._reporters
        for name in leads.keys() & reporters.keys():
            if (
                leads[name] == name
            ):  # a name that is nobody's, or somebody's first, no longer counts for its sender
                self._count_for_sender(reporters.pop(name), -1)
        rows.put_documents(
            NAME,
            (
                (_encode_name(name), _body_of_name(first, reporters.get(name)))
                for name, first in leads.items()
                if first != name
            ),
        )
        rows.delete_documents(NAME, [_encode_name(name) for name in stored_leads if leads[name] == name])
        for sender in self._senders.values():
            _SENDERS.store_row(rows, sender)
        if self.size != self._stored_size or self._senders:
            rows.put_document(SIZE, SIZE, {"count": self.size, "reported": self._reported_count})
        people = (person.names for person in self._people.values() if person is not None)
        return PeopleChange.between((person.names for person in self._stored.values()), people)

    def _stored_reporters(self, names: Iterable[str]) -> dict[str, str]:
        bodies = {
            _decode_name(id): body
            for portion in split_into_portions(names)
            for id, body in self._rows.documents(NAME, map(_encode_name, portion)).items()
        }
        return {name: str(body["by"]) for name, body in bodies.items() if "by" in body}

    def _count_for_sender(self, sender: str, names: int) -> None:
        row = self._sender(sender)
        self._senders[sender] = msgspec.structs.replace(row, names=max(0, row.names + names))
        self._reported_count = max(0, self._reported_count + names)

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


def _audited_names(names: Sequence[str]) -> Mapping[str, object]:
    return {"count": len(names), "names": list(names[:_SHOWN])}


def stored_erasures(registry_rows: RegistryRows) -> Sequence[Erasure]:
    erasures = [erasure_from_json(**body) for body in registry_rows.documents(ERASURE).values()]
    return sorted(erasures, key=lambda erasure: (erasure.at, erasure.id))


def read_people(registry_rows: RegistryRows) -> Iterator[LinkedPerson]:
    return (_decode_person(_decode_name(id), body) for id, body in registry_rows.each_document(KIND))


def _read_name_count(registry_rows: RegistryRows, name: str = "count") -> int:
    return int((registry_rows.document(SIZE, SIZE) or {}).get(name, 0))


def _first_name_of_each(registry_rows: RegistryRows) -> Iterator[str]:
    return (person.names[0] for person in read_people(registry_rows))


def _decode_person(first_name_of_person: str, body: Mapping[str, Any]) -> LinkedPerson:
    return LinkedPerson(
        names=(first_name_of_person, *map(_decode_name, body["names"])), label=str(body.get("label", ""))
    )


def _encode_person(person: LinkedPerson) -> Mapping[str, Any]:
    names = list(map(_encode_name, person.names[1:]))
    return {"names": names, "label": person.label} if person.label else {"names": names}


def _body_of_name(first: str, sender: str | None) -> Mapping[str, str]:
    """Return the document of a name: its person's first name, and the sender that linked it."""
    return {"first": _encode_name(first)} | ({"by": sender} if sender is not None else {})


def _encode_name(name: str) -> str:
    """Encode a name for storage: a hash in 23 characters instead of 38, any other name after a mark."""
    if not is_address_hash(name):
        return f"={name}"
    return "#" + urlsafe_b64encode(bytes.fromhex(name.removeprefix("email:"))).decode().rstrip("=")


def _decode_name(stored: str) -> str:
    if stored.startswith("="):
        return stored[1:]
    try:
        return f"email:{urlsafe_b64decode(f'{stored[1:]}==').hex()}"
    except ValueError as error:
        raise RowDamaged(f"a stored name cannot be read: {error}") from error
