"""
E-mail addresses as `privacy.emails` says: an id that is itself an address is hashed, kept or dropped.

The same person becomes the same id however the address is written, in every gateway that is given the same
secret.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from hashlib import blake2b

# The whole text is an address: "git@host:path" and "package@1.2.3" are not.
_ADDRESS = re.compile(r"[\w.%+'&!#$*/=?^{|}~-]+@(?:[\w-]+\.)+(?:[^\W\d_]{2,}|xn--[\w-]+)")


class Emails:
    """`policy` is hash, keep or drop."""

    def __init__(self, policy: str, *, secret: bytes) -> None:
        self.kept = policy == "keep"
        self._dropped = policy == "drop"
        self._secret = secret

    def protected(self, text: str) -> str | None:
        """The text itself unless it is an address; a hash is none, so it is never hashed again."""
        if self.kept or "@" not in text or not _ADDRESS.fullmatch(text):
            return text
        if self._dropped:
            return None
        return f"email:{blake2b(text.lower().encode(), key=self._secret, digest_size=8).hexdigest()}"

    def protected_values(self, texts: Mapping[str, str]) -> dict[str, str]:
        """A copy with its addresses hashed or dropped."""
        kept = {name: self.protected(value) for name, value in texts.items()}
        return {name: value for name, value in kept.items() if value is not None}
