"""
What other processes changed in a registry that several share: each keeps some of the rows in memory.

An engine that one process has for itself has no news.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

Subject = tuple[str, str]  # a kind below, and the id that is changed; "" for all of them

KEYS = "key"
CONNECTIONS = "connection"
OPERATORS = "operator"
INSIGHTS = "insight"  # and their comments
DOCUMENTS = "documents"  # by their own kind
DEVICES = "device"
CLUSTERS = "cluster"


@dataclass(frozen=True, slots=True, kw_only=True)
class RegistryNews:
    """
    What others changed since a place in the order of changes; `seq` is the newest place.

    `changed` None: too much to tell, so that everything is to be read again.
    """

    seq: int
    changed: Collection[Subject] | None = ()

    def concerns(self, about: Collection[Subject]) -> bool:
        """True if one of these was changed."""
        if self.changed is None:
            return True
        return any(each in about or (each[0], "") in about for each in self.changed)

    def ids(self, kind: str) -> Collection[str] | None:
        """Return the changed ids of a kind; None for all of them."""
        return None if self.changed is None else {id for one, id in self.changed if one == kind}


NO_NEWS = RegistryNews(seq=0)
