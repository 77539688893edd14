"""
Names of people whose e-mail addresses are stored as hashes, in a private table of the registry. Records have
only the hashes.

Each name is a document whose id is the hash. No name is kept in memory.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

from spool.errors import Invalid, NotAllowed
from spool.people import is_hash
from spool.registry.changes import Changes
from spool.registry.operators import Actor
from spool.registry.registry_rows import RegistryRows
from spool.registry.texts import check_text

KIND = "person_name"
LIMIT = "privacy.max_names"
MAX_NAME = 200
_SHOWN = 100  # maximum number of hashes in one audit row


class PersonNameTable:
    """
    The table of names. A method that raises (Invalid, NotAllowed) changes nothing. The audit list contains
    hashes, never names.
    """

    def __init__(self, changes: Changes) -> None:
        self._changes = changes

    async def all(self) -> Mapping[str, str]:
        """Return the names by hash."""
        return await self._changes.read(_read)

    async def keep(self, names: Mapping[str, str], *, most: int, actor: Actor) -> int:
        """
        Add or replace names. Return the total number of names. Raises NotAllowed if there would be
        more than `most`.
        """
        checked = {user: check_text("name", name, MAX_NAME) for user, name in names.items()}
        wrong = next((user for user in checked if not is_hash(user)), None)
        if wrong:
            raise Invalid(
                f"{wrong[:MAX_NAME]!r} is not the hash of an e-mail address, such as email:0123456789abcdef"
            )
        now = self._changes.now()

        def work(rows: RegistryRows) -> int:
            count = len({*_read(rows), *checked})
            if count > most:
                raise NotAllowed(f"the table would hold {count} names ({LIMIT} = {most}): delete some first")
            for user, name in checked.items():
                rows.put_document(KIND, user, {"name": name})
            shown = {"count": len(checked), "users": list(checked)[:_SHOWN]}
            rows.add_audit(now, actor, "person_names.change", "names", after=shown)
            return count

        return await self._changes.change(work)

    async def forget(self, users: Collection[str] | None, *, actor: Actor) -> int:
        """
        Delete the names of these users, or all names if `users` is None. Return the number of deleted names.
        """
        now = self._changes.now()

        def work(rows: RegistryRows) -> int:
            known = _read(rows)
            deleted = [user for user in known if users is None or user in users]
            for user in deleted:
                rows.delete_document(KIND, user)
            if deleted:
                shown = {"count": len(deleted), "users": deleted[:_SHOWN]}
                rows.add_audit(now, actor, "person_names.forget", "names", before=shown)
            return len(deleted)

        return await self._changes.change(work)


def _read(rows: RegistryRows) -> Mapping[str, str]:
    return {user: str(body["name"]) for user, body in rows.documents(KIND).items()}
