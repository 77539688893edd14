"""
Names of people: how records contain an e-mail address, according to `privacy.emails`.

Records, filters, seats and roles use this module, so an address is found in any case, with spaces, and by its
hash.

A record names its person by the user, and by USER_EMAIL if an address is also stated. Operators link names of
a person (`PersonNameLinks`). Records keep the stated names until an erasure (`spool.erasure`). Afterwards they
contain pseudonyms, and reports show ERASED.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from hashlib import blake2b
from itertools import chain
from typing import NamedTuple

from spool.caches import CachedResults, cache_by_text
from spool.errors import Invalid
from spool.installation import derive_secret
from spool.linked_names import LinkedNames

# The tag with the address of a user who is named by an account. No sender can state this tag.
USER_EMAIL = "user_email"
END_USER = "end_user"  # the tag with the person for whom the user of a gateway made the call
USER, SECOND_NAME = "user", f"tag:{USER_EMAIL}"  # the dimensions that name a person
# filters by these dimensions find all names of a person
_OF_PEOPLE = frozenset((USER, SECOND_NAME, f"tag:{END_USER}", "owner", "subject"))
MAX_REMEMBERED = 32_768  # maximum texts whose hashes are in memory, up to 10 MB
KEEP, HASH, DROP = "keep", "hash", "drop"  # values of the setting `privacy.emails`
# Bytes of an address hash. A sender knows its own key, so it could search for two addresses with one shorter hash.
HASH_BYTES = 16

# matches only a whole text, so "git@host:path" and "package@1.2.3" are no addresses
_ADDRESS = re.compile(r"[\w.%+'&!#$*/=?^{|}~-]+@(?:[\w-]+\.)+(?:[^\W\d_]{2,}|xn--[\w-]+)")
_HASH = re.compile(r"email:[0-9a-f]{32}")
ERASED = "(erased)"  # the name that reports show for all erased people
_PSEUDONYM = re.compile(r"erased:[0-9a-f]{16}")  # the name of an erased person in records
BRANCH = "branch"  # names of branches may name people; see `work.branch`
_BRANCH_HASH = re.compile(r"branch:[0-9a-f]{16}")
_DROPPED = (
    'privacy.emails is "drop", so records contain no e-mail address and this address matches '
    "nothing. Use another name of the person, or the hash in older records"
)


def is_address_hash(text: str) -> bool:
    return _HASH.fullmatch(text) is not None


def is_pseudonym(text: str) -> bool:
    return _PSEUDONYM.fullmatch(text) is not None


def is_address(text: str) -> bool:
    return _parse_if_address(text) is not None


def fold_address(text: str) -> str:
    """Return an e-mail address in the one spelling used for all its spellings. Other text is unchanged."""
    return _parse_if_address(text) or text


def is_hash_address_or_pseudonym(name: str) -> bool:
    return is_address_hash(name) or is_address(name) or is_pseudonym(name)


def filter_values_of_dimension(dimension: str, find_value: Callable[[str], str]) -> tuple[str, ...]:
    """Return the values of a dimension that a filter compares: one, or both names of a person."""
    value = find_value(dimension)
    second = find_value(SECOND_NAME) if dimension == USER else ""
    return (value, second) if second else (value,)


LATEST = sys.maxsize  # a call without a time counts as later than all erasures when it arrives


class CallTime(NamedTuple):
    """
    When a call began (nanoseconds), and the number of its record in `topic`. A call that is not stored yet has
    a number above all records.
    """

    start_ns: int
    topic: str = ""
    number: int = LATEST


STORED_BEFORE = CallTime(0)  # of a name that is stored without a time: each erasure is later


class ErasedName(NamedTuple):
    """
    The pseudonym of a name in the calls from before an erasure: records below `stored`, the next record
    number of each topic at the erasure, whatever their start, and later ones that began before `until_ns`.
    """

    until_ns: int
    stored: Mapping[str, int]
    pseudonym: str

    def is_in(self, call: CallTime) -> bool:
        return call.start_ns < self.until_ns or call.number < self.stored.get(call.topic, 0)


class Pseudonyms(NamedTuple):
    """
    The erased names by digest, the oldest erasure first (see spool.erasure.pseudonyms_by_digest). `keys`: the
    digests' keys, b"" for this installation's key.
    """

    by_digest: Mapping[str, Sequence[ErasedName]] = {}
    keys: Sequence[bytes] = ()


class PersonNameLinks:
    """
    The linked names of people. All parts of a process share one object, so links apply from the next query
    on. `meets` is called with each e-mail address that a call states, its hash and the call's time.
    """

    def __init__(self) -> None:
        self.links = LinkedNames(str)
        # all pseudonyms of a person by each pseudonym, and all pseudonyms by ERASED
        self.names_of_erased: Mapping[str, tuple[str, ...]] = {}
        self.version = 0  # number that grows with each change of a link
        self.erased = Pseudonyms()
        # erasures that an agent or gateway below has not confirmed, by the name of its key
        self.unconfirmed: Mapping[str, Pseudonyms] = {}
        self.meets: Callable[[str, str, int], None] | None = None
        self._watchers: list[Callable[[], None]] = []

    def __bool__(self) -> bool:
        return bool(self.links or self.names_of_erased)

    def set_links(self, links: LinkedNames, names_of_erased: Mapping[str, tuple[str, ...]]) -> None:
        was_empty = not self
        self.links, self.names_of_erased = links, names_of_erased
        if self or not was_empty:
            self.notify_watchers()

    def notify_watchers(self) -> None:
        self.version += 1
        for changed in self._watchers:
            changed()

    def change_links(self, removed: Collection[Sequence[str]], added: Collection[Sequence[str]]) -> None:
        if removed or added:
            self.links = self.links.with_changes(removed, added)
            self.notify_watchers()

    def add_watcher(self, changed: Callable[[], None]) -> None:
        self._watchers.append(changed)


@dataclass(slots=True, kw_only=True)
class People:
    """
    How names appear in records under the setting `policy`. Gateways with the same secret compute the same
    hashes.
    """

    policy: str
    secret: bytes = field(repr=False)
    persons: PersonNameLinks = field(default_factory=PersonNameLinks, repr=False)
    min_group: int = 0  # see spool.registry.roles.RoleTable.rights
    group_order: Sequence[str] = ()  # see spool.ledger.groups.cells

    @classmethod
    def for_installation(
        cls, secret: bytes, policy: str = HASH, persons: PersonNameLinks | None = None
    ) -> People:
        persons = PersonNameLinks() if persons is None else persons
        return cls(policy=policy, secret=derive_secret(secret, "e-mails"), persons=persons)

    def replace_links(
        self, people: Iterable[tuple[str, ...]], erased: Collection[tuple[str, ...]] = ()
    ) -> None:
        """
        Replace all links (see LinkedNames). Each person is a list of names; reports show the first. `erased`:
        the pseudonyms of each erased person. Reports show ERASED for all of these people, but count each one
        separately.
        """
        self.persons.set_links(LinkedNames(self.identity_of_name, people), names_of_erased(erased))

    @property
    def erasure_key(self) -> bytes:
        """
        Return the key for digests in an erasure, which gateways of lower levels also get. So it differs from
        the key of hashes.
        """
        return _erasure_key(self.secret)

    def erasure_digest(self, name: str, key: bytes = b"") -> str:
        """
        Return the digest of a name in an erasure. It is equal for all spellings of an address. `key`: that of
        an erasure which another Tollhouse ordered.
        """
        return _erasure_digest(fold_address(name), key or self.erasure_key)

    def pseudonym(self, name: str, call: CallTime, erased: Pseudonyms | None = None) -> str:
        """
        Return the person's pseudonym if the person was erased after the call, else the name. `erased`:
        default all erasures.
        """
        erased = self.persons.erased if erased is None else erased
        for key in erased.keys:
            for erased_name in erased.by_digest.get(self.erasure_digest(name, key), ()):
                if erased_name.is_in(call):
                    return erased_name.pseudonym
        return name

    def text_for_record(self, text: str, call_start_ns: int | None = None) -> str | None:
        """
        Return the text as a record contains it: for an address, the address in lower case, its hash, or None
        if addresses are dropped. Other text is unchanged.

        Hashes are offered for linking only with a call's time `call_start_ns` (nanoseconds).
        """
        hashed = self._hash_if_address(text)
        if hashed is None:
            return text
        if self.policy == DROP:
            return None
        if self.policy == KEEP:
            return fold_address(text)
        meets = self.persons.meets
        if (
            meets is not None
            and call_start_ns is not None
            and self.pseudonym(hashed, CallTime(call_start_ns)) == hashed
        ):
            meets(fold_address(text), hashed, call_start_ns)
        return hashed

    def recorded_name_or_hash(self, name: str) -> str:
        """Return the name as records contain it, or its hash if addresses are dropped."""
        return self.text_for_record(name) or self.hash_address(name)

    def texts_for_record(
        self, texts_by_field: Mapping[str, str], call_start_ns: int | None = None
    ) -> dict[str, str]:
        carried_texts = {
            name: self.text_for_record(value, call_start_ns) for name, value in texts_by_field.items()
        }
        return {name: value for name, value in carried_texts.items() if value is not None}

    def hash_address(self, text: str) -> str:
        """Return the hash of an address, and any other text unchanged."""
        return self._hash_if_address(text) or text

    def hash_key_digest(self, key: bytes) -> str:
        """Return the digest by which this installation stores a sender's hash key."""
        return blake2b(key, key=self.secret, person=b"hash key", digest_size=16).hexdigest()

    def _hash_if_address(self, text: str) -> str | None:
        return _address_hash_cache(self.secret)[text] if "@" in text else None

    def all_recorded_names(self, name: str) -> tuple[str, ...]:
        """
        Return every form in which records may contain a name, under any setting: address, hash, and linked
        names.
        """
        linked = chain.from_iterable(map(self._recorded_names_without_links, self.linked_names(name)))
        return tuple(dict.fromkeys((*self._recorded_names_without_links(name), *linked)))

    def linked_names(self, name: str) -> tuple[str, ...]:
        """Return the names of a person as records contain them, empty if the name is not linked."""
        persons, identity = self.persons, self.identity_of_name(name)
        if names := persons.links.all_names_of_person(identity):
            return tuple(map(self.recorded_name_or_hash, names))
        return persons.names_of_erased.get(identity, ())

    def _recorded_names_without_links(self, name: str) -> tuple[str, ...]:
        address = _parse_if_address(name)
        if address is not None:
            return tuple(dict.fromkeys((name.strip(), address, self.hash_address(name))))
        lower = name.strip().lower()
        return (lower,) if is_address_hash(lower) else (name,)

    def person_identity(self, name: str) -> str:
        """Return a text that is equal for every form of every linked name of a person."""
        identity = self.identity_of_name(name)
        persons = self.persons
        names = persons.links.all_names_of_person(identity) or persons.names_of_erased.get(identity)
        return self.identity_of_name(names[0]) if names else identity

    def identity_of_name(self, name: str) -> str:
        """Return a text that is equal for every form of one name, in any case."""
        return self.hash_address(name).strip().casefold()

    def shown_name(self, name: str) -> str:
        """
        Return the name that reports show for a name in a record. For a login name, upper and lower case
        differ.
        """
        persons = self.persons
        if name in persons.names_of_erased:
            return ERASED
        names = persons.links.all_names_of_person(self.identity_of_name(name))
        if not names:
            return name
        is_linked = self.hash_address(name) in map(self.hash_address, names)
        return self.recorded_name_or_hash(names[0]) if is_linked else name

    def expand_filter(self, filter: Mapping[str, Iterable[str]]) -> dict[str, tuple[str, ...]]:
        return {name: self._expand_values(name, values) for name, values in filter.items()}

    def _expand_values(self, dimension: str, values: Iterable[str]) -> tuple[str, ...]:
        if dimension == BRANCH:
            return self._recorded_git_branches(values)
        return _recorded_names_without_repeats(
            self.all_recorded_names if dimension in _OF_PEOPLE else self._recorded_names_without_links, values
        )

    def recorded_git_branch(self, branch_name: str, naming_policy: str) -> str | None:
        """Return a branch name as a record contains it under `naming_policy`, or None if names are dropped."""
        if naming_policy == KEEP or _BRANCH_HASH.fullmatch(branch_name):
            return branch_name
        return None if naming_policy == DROP else self._git_branch_hash(branch_name)

    def _git_branch_hash(self, branch_name: str) -> str:
        return f"{BRANCH}:{blake2b(branch_name.encode(), key=self.secret, person=b'branch', digest_size=8).hexdigest()}"

    def _recorded_git_branches(self, branch_names: Iterable[str]) -> tuple[str, ...]:
        forms = [
            form
            for value in branch_names
            for form in ((value, self._git_branch_hash(value)) if value else ("",))
        ]
        return tuple(
            dict.fromkeys(
                (
                    *forms,
                    *_recorded_names_without_repeats(self._recorded_names_without_links, filter(None, forms)),
                )
            )
        )

    def check_and_expand_filter(self, filter: Mapping[str, Iterable[str]]) -> dict[str, tuple[str, ...]]:
        """
        Return the filter with every form of each name. Raises Invalid for an address that would match
        nothing, because records contain no addresses.
        """
        for values in filter.values():
            self.reject_dropped_names(values)
        return self.expand_filter(filter)

    def reject_dropped_names(self, names: Iterable[str]) -> None:
        if any(map(self.is_left_out_of_new_records, names)):
            raise Invalid(_DROPPED)

    def is_left_out_of_new_records(self, name: str) -> bool:
        """Return whether no new record contains this name or another name of the person."""
        if self.policy != DROP or _parse_if_address(name) is None:
            return False
        return not self.linked_names(name)


def names_of_erased(erased: Collection[tuple[str, ...]]) -> Mapping[str, tuple[str, ...]]:
    """Return all pseudonyms of an erased person by each of them, and all people's pseudonyms by ERASED."""
    names = {pseudonym: own for own in erased for pseudonym in own}
    return {**names, ERASED: (ERASED, *names)} if names else {}


def hash_address_with_key(key: bytes, address: str) -> str:
    return _hash_address(fold_address(address), key)


def _recorded_names_without_repeats(
    find_names: Callable[[str], Iterable[str]], names: Iterable[str]
) -> tuple[str, ...]:
    return tuple(dict.fromkeys(form for name in names for form in find_names(name)))


@lru_cache(maxsize=8)
def _address_hash_cache(secret: bytes) -> CachedResults[str | None]:
    """Return a cache of the hashes of e-mail addresses. Other texts have None. A cache pays, because a person makes
    many calls."""

    def hash_of(text: str) -> str | None:
        address = _parse_address(text)  # parsed again, because this result is cached
        return None if address is None else _hash_address(address, secret)

    return CachedResults(hash_of, MAX_REMEMBERED)


def _hash_address(address: str, secret: bytes) -> str:
    return f"email:{blake2b(address.encode(), key=secret, digest_size=HASH_BYTES).hexdigest()}"


@lru_cache(maxsize=8)
def _erasure_key(secret: bytes) -> bytes:
    return derive_secret(secret, "erasures")


@lru_cache(maxsize=8192)
def _erasure_digest(name: str, secret: bytes) -> str:
    return blake2b(name.encode(errors="replace"), key=secret, person=b"erasure", digest_size=16).hexdigest()


def _parse_if_address(text: str) -> str | None:
    return _read_address(text) if "@" in text else None


def _parse_address(text: str) -> str | None:
    stripped = text.strip()
    return stripped.lower() if _ADDRESS.fullmatch(stripped) else None


_read_address = cache_by_text(8192)(_parse_address)
