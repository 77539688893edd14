"""
One identity of a person: what records carry of who is named by an e-mail address, as `privacy.emails` says.

Records, filters, seats and roles all ask this module, so a person is found by the address, in any case and with
spaces around it, and by the hash that stands for it.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from hashlib import blake2b

from spool.errors import Invalid
from spool.installation import derived

KEEP, HASH, DROP = "keep", "hash", "drop"  # policies of `privacy.emails`

# The whole text is an address: "git@host:path" and "package@1.2.3" are not.
_ADDRESS = re.compile(r"[\w.%+'&!#$*/=?^{|}~-]+@(?:[\w-]+\.)+(?:[^\W\d_]{2,}|xn--[\w-]+)")
_HASH = re.compile(r"email:[0-9a-f]{16}")
_DROPPED = (
    'privacy.emails is "drop": records carry no e-mail address, so an address matches nothing. Use another name of the'
    " person, or the hash that older records carry"
)


def is_hash(text: str) -> bool:
    """True if a user is the hash of an e-mail address."""
    return _HASH.fullmatch(text) is not None


@dataclass(slots=True, kw_only=True)
class People:
    """
    The people of one installation. Gateways that are given the same secret call the same person by the same hash.
    """

    policy: str
    secret: bytes = field(repr=False)

    @classmethod
    def of_installation(cls, secret: bytes, policy: str = HASH) -> People:
        """Return the people of an installation, by its secret."""
        return cls(policy=policy, secret=derived(secret, "e-mails"))

    def carried(self, text: str) -> str | None:
        """
        Return what a record carries from now on: an address in lower case, its hash, or None if addresses are
        dropped. Any other text stays as it is.
        """
        address = _address_of(text)
        if address is None:
            return text
        if self.policy == DROP:
            return None
        return address if self.policy == KEEP else self._hash(address)

    def carried_values(self, texts: Mapping[str, str]) -> dict[str, str]:
        """Return a copy with the values that records carry."""
        kept = {name: self.carried(value) for name, value in texts.items()}
        return {name: value for name, value in kept.items() if value is not None}

    def hashed(self, text: str) -> str:
        """Return the hash of an address; any other text as it is."""
        address = _address_of(text)
        return text if address is None else self._hash(address)

    def forms(self, name: str) -> tuple[str, ...]:
        """
        Return every value that records may carry for a person, whatever the policy was when they came: of an
        address itself and its hash.
        """
        address = _address_of(name)
        if address is not None:
            return tuple(dict.fromkeys((name.strip(), address, self._hash(address))))
        lower = name.strip().lower()
        return (lower,) if is_hash(lower) else (name,)

    def identity(self, name: str) -> str:
        """Return the same text for every form of a person; other names are compared without regard to case."""
        return self.hashed(name).strip().casefold()

    def matched(self, filter: Mapping[str, Iterable[str]]) -> dict[str, tuple[str, ...]]:
        """Return a filter by dimension whose values have every form of the people that they name."""
        return {name: self._all_forms(values) for name, values in filter.items()}

    def asked(self, filter: Mapping[str, Iterable[str]]) -> dict[str, tuple[str, ...]]:
        """Return what `matched` does. Invalid if addresses are dropped: they would match nothing, silently."""
        for values in filter.values():
            self.check(values)
        return self.matched(filter)

    def check(self, names: Iterable[str]) -> None:
        """Invalid for an address where records carry none."""
        if any(map(self.is_dropped, names)):
            raise Invalid(_DROPPED)

    def is_dropped(self, name: str) -> bool:
        """True if no record carries this name from now on."""
        return self.policy == DROP and _address_of(name) is not None

    def _hash(self, address: str) -> str:
        return f"email:{blake2b(address.encode(), key=self.secret, digest_size=8).hexdigest()}"

    def _all_forms(self, values: Iterable[str]) -> tuple[str, ...]:
        return tuple(dict.fromkeys(form for value in values for form in self.forms(value)))


def _address_of(text: str) -> str | None:
    """The address that a text is, in lower case; None for any other text."""
    if "@" not in text:
        return None
    stripped = text.strip()
    return stripped.lower() if _ADDRESS.fullmatch(stripped) else None
