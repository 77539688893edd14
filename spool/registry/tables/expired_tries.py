"""
The number of requests that were refused because their key had expired, by key, over all processes and
restarts.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass

from spool.registry.changes import RegistryChangeWriter
from spool.registry.keys import ApiKey
from spool.registry.registry_rows import RegistryRows

KIND, ID = "expired_tries", "all"


@dataclass(frozen=True, slots=True, kw_only=True)
class ExpiredKeyUses:
    """The requests with a key since it expired at `expires_at`."""

    expires_at: float
    count: int
    newest: float

    def add_or_keep_later_expiry(self, other: ExpiredKeyUses | None) -> ExpiredKeyUses:
        """
        Return the sum of both, if their expiry is equal. Otherwise return the one with the later expiry.
        """
        if other is None or other.expires_at < self.expires_at:
            return self
        if other.expires_at > self.expires_at:
            return other
        count, newest = self.count + other.count, max(self.newest, other.newest)
        return ExpiredKeyUses(expires_at=self.expires_at, count=count, newest=newest)


class ExpiredKeyUseTable:
    """The numbers of requests with expired keys, by key id, in one stored document."""

    def __init__(self, change_writer: RegistryChangeWriter) -> None:
        self._changes = change_writer

    async def add(self, tries: Mapping[int, ExpiredKeyUses], *, keys: Iterable[ApiKey]) -> None:
        """
        Add the requests by key id. The counts of keys that are deleted, or that now expire at another time,
        are deleted.
        """
        expiries = {key.id: key.expires_at for key in keys}

        def store_expired_key_uses(registry_rows: RegistryRows) -> None:
            stored = _read_expired_uses_by_key_id(registry_rows)
            stored |= {id: each.add_or_keep_later_expiry(stored.get(id)) for id, each in tries.items()}
            registry_rows.put_document(
                KIND,
                ID,
                {str(id): asdict(each) for id, each in stored.items() if expiries.get(id) == each.expires_at},
            )

        await self._changes.change_rows(store_expired_key_uses)

    async def expired_uses_by_key_id(self) -> Mapping[int, ExpiredKeyUses]:
        return await self._changes.read(_read_expired_uses_by_key_id)


def _read_expired_uses_by_key_id(registry_rows: RegistryRows) -> dict[int, ExpiredKeyUses]:
    return {
        int(id): ExpiredKeyUses(**fields) for id, fields in (registry_rows.document(KIND, ID) or {}).items()
    }
