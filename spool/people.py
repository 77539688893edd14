"""
Identity of people: the value that records contain for an e-mail address, by the setting `privacy.emails`.

Records, filters, seats and roles all use this module. So a person is found by the e-mail address, in upper or
lower case and with surrounding spaces, and by the hash of the address.

A record names its person by the user, and by the tag USER_EMAIL if its sender states an address beside the user.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from hashlib import blake2b

from spool.caches import remembered
from spool.errors import Invalid
from spool.installation import derived

# Tag with the address of the user whom a record names by an account. No sender can state a tag of this name.
USER_EMAIL = "user_email"
USER, SECOND_NAME = "user", f"tag:{USER_EMAIL}"  # the dimensions that name a person
KEEP, HASH, DROP = "keep", "hash", "drop"  # values of the setting `privacy.emails`

# The whole text must be an address, so that "git@host:path" and "package@1.2.3" do not match.
_ADDRESS = re.compile(r"[\w.%+'&!#$*/=?^{|}~-]+@(?:[\w-]+\.)+(?:[^\W\d_]{2,}|xn--[\w-]+)")
_HASH = re.compile(r"email:[0-9a-f]{16}")
BRANCH = "branch"  # the unit of work whose names may name people: the setting `work.branch`
_BRANCH_HASH = re.compile(r"branch:[0-9a-f]{16}")
_DROPPED = (
    'privacy.emails is "drop", so records contain no e-mail address and this address matches '
    "nothing. Use another name of the person, or the hash in older records"
)


def is_hash(text: str) -> bool:
    """Return True if a user is the hash of an e-mail address."""
    return _HASH.fullmatch(text) is not None


def is_address(text: str) -> bool:
    """Return True if a text is an e-mail address."""
    return _address_of(text) is not None


def folded(text: str) -> str:
    """Return an address as all its spellings are compared, and any other text unchanged."""
    return _address_of(text) or text


def may_be_second(name: str) -> bool:
    """Return True if records may contain this name of a person in SECOND_NAME."""
    return is_hash(name) or is_address(name)


def names_in(dimension: str, value_of: Callable[[str], str]) -> tuple[str, ...]:
    """Return the values of a dimension by which filters find a call: a person may have two names."""
    value = value_of(dimension)
    second = value_of(SECOND_NAME) if dimension == USER else ""
    return (value, second) if second else (value,)


@dataclass(slots=True, kw_only=True)
class People:
    """The people of one installation. Gateways with the same secret compute the same hash for a person."""

    policy: str
    secret: bytes = field(repr=False)

    @classmethod
    def of_installation(cls, secret: bytes, policy: str = HASH) -> People:
        return cls(policy=policy, secret=derived(secret, "e-mails"))

    def carried(self, text: str) -> str | None:
        """
        Return the value that new records contain: an address in lower case, its hash, or None if
        addresses are dropped.

        Any other text is returned unchanged.
        """
        address = _address_of(text)
        if address is None:
            return text
        if self.policy == DROP:
            return None
        return address if self.policy == KEEP else self._hash(address)

    def carried_values(self, texts: Mapping[str, str]) -> dict[str, str]:
        """Return a copy of the texts, with the values that new records contain."""
        carried_texts = {name: self.carried(value) for name, value in texts.items()}
        return {name: value for name, value in carried_texts.items() if value is not None}

    def hashed(self, text: str) -> str:
        """Return the hash of an address, and any other text unchanged."""
        address = _address_of(text)
        return text if address is None else self._hash(address)

    def forms(self, name: str) -> tuple[str, ...]:
        """
        Return every value that records may contain for a person, under the present or an earlier setting: the
        address and its hash.
        """
        address = _address_of(name)
        if address is not None:
            return tuple(dict.fromkeys((name.strip(), address, self._hash(address))))
        lower = name.strip().lower()
        return (lower,) if is_hash(lower) else (name,)

    def identity(self, name: str) -> str:
        """
        Return a text that is the same for every form of a person. Other names are compared without
        regard to case.
        """
        return self.hashed(name).strip().casefold()

    def matched(self, filter: Mapping[str, Iterable[str]]) -> dict[str, tuple[str, ...]]:
        """Return a filter by dimension that includes every form of each person and of each branch in it."""
        return {
            name: self._branch_forms(values) if name == BRANCH else self._all_forms(values)
            for name, values in filter.items()
        }

    def carried_branch(self, name: str, policy: str) -> str | None:
        """Return the value that new records contain for the name of a branch, or None if names are dropped."""
        if policy == KEEP or _BRANCH_HASH.fullmatch(name):
            return name
        return None if policy == DROP else self._hashed_branch(name)

    def _hashed_branch(self, name: str) -> str:
        return (
            f"{BRANCH}:{blake2b(name.encode(), key=self.secret, person=b'branch', digest_size=8).hexdigest()}"
        )

    def _branch_forms(self, values: Iterable[str]) -> tuple[str, ...]:
        forms = [
            form for value in values for form in ((value, self._hashed_branch(value)) if value else ("",))
        ]
        return tuple(dict.fromkeys((*forms, *self._all_forms(filter(None, forms)))))

    def asked(self, filter: Mapping[str, Iterable[str]]) -> dict[str, tuple[str, ...]]:
        """
        Return the result of `matched`. If records contain no addresses, raises Invalid for an address,
        because it would match nothing.
        """
        for values in filter.values():
            self.check(values)
        return self.matched(filter)

    def check(self, names: Iterable[str]) -> None:
        """Raise Invalid for an address if records contain no addresses."""
        if any(map(self.is_dropped, names)):
            raise Invalid(_DROPPED)

    def is_dropped(self, name: str) -> bool:
        """Return True if no new record contains this name."""
        return self.policy == DROP and _address_of(name) is not None

    def _hash(self, address: str) -> str:
        return _hash_of(address, self.secret)

    def _all_forms(self, values: Iterable[str]) -> tuple[str, ...]:
        return tuple(dict.fromkeys(form for value in values for form in self.forms(value)))


@lru_cache(maxsize=8192)  # a person makes many calls
def _hash_of(address: str, secret: bytes) -> str:
    return f"email:{blake2b(address.encode(), key=secret, digest_size=8).hexdigest()}"


def _address_of(text: str) -> str | None:
    """Return the address in a text, in lower case. None for any other text."""
    return _read_address(text) if "@" in text else None


@remembered(8192)
def _read_address(text: str) -> str | None:
    stripped = text.strip()
    return stripped.lower() if _ADDRESS.fullmatch(stripped) else None
