"""
Erasure of people in the registry: names in all rows, and accounts.

In fields for people, a name becomes the pseudonym that calls have. In authors and audit rows, it becomes
ERASED. Names in other texts are listed, and replaced on request.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from dataclasses import asdict, dataclass, field
from functools import lru_cache
from typing import Any, NamedTuple

from spool.erasure import Erasure, erased_word_if_renamed, pseudonyms_by_digest, rename_words
from spool.errors import NotAllowed
from spool.people import (
    END_USER,
    ERASED,
    SECOND_NAME,
    STORED_BEFORE,
    USER,
    USER_EMAIL,
    People,
    Pseudonyms,
    is_address,
)
from spool.registry.changes import RegistryChangeWriter
from spool.registry.file_owners import FILE_OWNERS, owner_document_id
from spool.registry.operators import Actor, Operator
from spool.registry.registry_rows import RegistryRows
from spool.registry.tables import enforcers
from spool.registry.tables.operators import delete_operators
from spool.registry.tables.persons import (
    CONFLICTS,
    ERASURE,
    KIND,
    NAME,
    KnownPeople,
    read_people,
    stored_erasures,
)

# fields, and dimensions in filters, that contain people
PEOPLE = frozenset(
    (
        USER,
        SECOND_NAME,
        USER_EMAIL,
        END_USER,
        f"tag:{END_USER}",
        "users",
        "owner",
        "owners",
        "subject",
        "names",
        "person",
        "viewer",
    )
)
AUTHORS = frozenset(("author", "actor", "account", "assignee"))
MEMBERS = "members"  # field with the e-mail addresses of a role's members
FINDING = "finding"  # column that identifies an insight
MAX_PLACES = 1000  # maximum texts that a report lists


class TextPlace(NamedTuple):
    """A field whose text contains an erased name."""

    table: str
    id: str
    field: str


@dataclass(kw_only=True)
class ErasedRows:
    """
    What an erasure changed in the registry. `texts`: fields with a name in free text, replaced if the erasure
    says so. `managed`: files and lines that declare changed objects.
    """

    people: int = 0
    accounts: int = 0
    rows: int = 0
    texts: list[TextPlace] = field(default_factory=list)
    more_texts: int = 0
    managed: list[str] = field(default_factory=list)


async def erase_in_registry(
    change_writer: RegistryChangeWriter,
    erasure: Erasure,
    labels: Collection[str],
    actor: Actor,
    *,
    is_trial: bool = False,
) -> ErasedRows:
    """
    Erase a person in one transaction. `labels` are the names that the console showed.

    Raises NotAllowed if the actor is this person, or if no other Admin would be left. With `is_trial`,
    nothing changes.
    """
    now = change_writer.now()

    def erase_rows(registry_rows: RegistryRows) -> ErasedRows:
        erasing = _RegistryErasure(change_writer.people, erasure, labels, registry_rows)
        erasing.erase_person(actor, now)
        if all(each.id != erasure.id for each in stored_erasures(registry_rows)):
            registry_rows.put_document(ERASURE, erasure.id, {**asdict(erasure)})
        registry_rows.add_audit(now, actor, "person.erase", erasure.id)
        if is_trial:
            raise _TrialRolledBack(erasing.done)
        return erasing.done

    try:
        return await change_writer.change_any_table(erase_rows)
    except _TrialRolledBack as trial:
        return trial.done


class _TrialRolledBack(Exception):
    """Raised to undo the transaction of a trial."""

    def __init__(self, erased_rows: ErasedRows) -> None:
        super().__init__("nothing was changed")
        self.done = erased_rows


class _RegistryErasure:
    def __init__(
        self, people: People, erasure: Erasure, labels: Collection[str], registry_rows: RegistryRows
    ) -> None:
        self.done = ErasedRows()
        self._people = people
        self._rows = registry_rows
        self._replaces = erasure.texts
        self._labels = [label for label in labels if label.strip()]
        self._by_digest = pseudonyms_by_digest([erasure])
        self._named = lru_cache(maxsize=65536)(self._find_pseudonym)
        self._owners = FILE_OWNERS.all(registry_rows)

    def erase_person(self, actor: Actor, now: float) -> None:
        if self.replace_name(actor.name) != actor.name:
            raise NotAllowed("somebody else must erase you, because the audit list names who did it")
        self._delete_people()
        self._delete_accounts(now)
        self._rows.rewrite_texts(self._erase_person_in_row, (ERASURE, KIND, NAME))
        self._rows.announce_changes_without_ids()

    def replace_name(self, text: str) -> str:
        return self._named(text)

    def _find_pseudonym(self, text: str) -> str:
        return find_pseudonym(self._people, self._by_digest, text)

    def _delete_people(self) -> None:
        gone = [
            person
            for person in read_people(self._rows)
            if any(self.replace_name(name) != name for name in person.names)
        ]
        self._labels += [person.label for person in gone if person.label]
        for conflict in CONFLICTS.all(self._rows).values():
            if any(self.replace_name(name) != name for name in conflict.names):
                CONFLICTS.delete(self._rows, conflict.id)
        known = KnownPeople(self._rows, self._people)
        known.remove_people(known.find_people(person.names[0] for person in gone))
        known.store_changes()
        self.done.people = len(gone)

    def _delete_accounts(self, now: float) -> None:
        gone = [
            account
            for account in self._rows.all(Operator)
            if self.replace_name(account.email) != account.email
        ]
        delete_operators(self._rows, gone, now)
        self.done.accounts = len(gone)

    # -- texts -----------------------------------------------------------------------------------------------

    def _erase_person_in_row(
        self, table: str, id: str, column_values: Mapping[str, Any]
    ) -> Mapping[str, Any]:
        """Return a row with names replaced, and count it. `table`: name of a table or kind of a document."""
        if table == enforcers.KIND:
            after = enforcers.rename_in_reading(column_values, self.replace_name)
            self.done.rows += after != column_values
            return after
        everywhere = table in ("audit", "sessions")
        after = {
            name: self._erase_person_in_value(value, TextPlace(table, id, name), everywhere)
            for name, value in column_values.items()
        }
        if after != dict(column_values):
            self.done.rows += 1
            stated = [name for name in column_values if name not in AUTHORS and not name.endswith("_by")]
            owner = self._owners.get(owner_document_id(table, id))
            if owner and any(after[name] != column_values[name] for name in stated):
                self.done.managed.append(owner.set_name_file_and_line)
        return after

    def _erase_person_in_value(self, value: Any, place: TextPlace, replaces_in_all_fields: bool) -> Any:
        name = place.field
        if isinstance(value, Mapping):
            return self._erase_person_in_mapping(value, place, replaces_in_all_fields)
        if isinstance(value, list | tuple):
            if name == MEMBERS:
                return [each for each in value if self.replace_name(each) == each]
            return [self._erase_person_in_value(each, place, replaces_in_all_fields) for each in value]
        if not isinstance(value, str) or not value:
            return value
        if name == FINDING:  # the text identifies the insight, so it must stay unique
            return rename_words(value, self.replace_name)
        if replaces_in_all_fields or name in AUTHORS or name.endswith("_by"):
            return self._erase_names(value)
        if name in PEOPLE:
            return self.replace_name(value)
        return self._erase_person_in_text(value, place)

    def _erase_person_in_mapping(
        self, value: Mapping[str, Any], place: TextPlace, replaces_in_all_fields: bool
    ) -> dict[str, Any]:
        dimension = value.get("dimension")
        after = {}
        for name, each in value.items():
            of_person = name in ("value", "values") and dimension in PEOPLE
            inner = place._replace(field=USER if of_person else name)
            key = self.replace_name(name) if place.field in PEOPLE else name
            after[key] = self._erase_person_in_value(each, inner, replaces_in_all_fields)
        return after

    def _erase_person_in_text(self, text: str, place: TextPlace) -> str:
        after = self._erase_names(text)
        if after == text:
            return text
        if place not in self.done.texts:
            if len(self.done.texts) < MAX_PLACES:
                self.done.texts.append(place)
            else:
                self.done.more_texts += 1
        return after if self._replaces else text

    def _erase_names(self, text: str) -> str:
        if self.replace_name(text) != text:
            return ERASED
        for label in self._labels:
            text = re.sub(rf"(?<!\w){re.escape(label)}(?!\w)", ERASED, text, flags=re.IGNORECASE)
        return rename_words(text, lambda name: erased_word_if_renamed(name, self.replace_name))


def find_pseudonym(people: People, erased: Pseudonyms, name: str) -> str:
    """Return a name's pseudonym, even if the erasure only knows the hash of the address."""
    pseudonym = people.pseudonym(name, STORED_BEFORE, erased)
    if pseudonym == name and is_address(name):
        hashed = people.hash_address(name)
        pseudonym = people.pseudonym(hashed, STORED_BEFORE, erased)
        return name if pseudonym == hashed else pseudonym
    return pseudonym
