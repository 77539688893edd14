"""
The keys of a registry: every change in one transaction with its audit row, and the whole table in memory for checks.

Memory follows the commit before the change returns, so whoever was told of a deletion can rely on it.
"""

from __future__ import annotations

import hmac
import json
import sqlite3
from collections import OrderedDict
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from hashlib import blake2b

from spool.errors import AlreadyThere, Invalid, NotAllowed, NotThere
from spool.registry.keys import (
    DISABLED,
    ENABLED,
    Key,
    Secret,
    checked_description,
    checked_grant,
    checked_labels,
    checked_name,
    folded,
    new_secret,
)
from spool.registry.operators import Actor
from spool.sqlite.registry.file import RegistryFile, audit

MAX_OVERLAP_S = 90 * 86400.0
_REMEMBERED_DELETIONS = 10_000
_LEGACY_ACCESSED = "legacy_last_accessed"

_ALL = "SELECT * FROM keys ORDER BY id"
_ALL_SECRETS = "SELECT key_id, digest, ends_at FROM secrets ORDER BY rowid"
_TAKEN = "SELECT name FROM keys WHERE folded = :folded AND id <> :id"
_INSERT = """
    INSERT INTO keys (name, folded, status, description, scopes, use_cases, labels, created_by, updated_by,
                      last_modified)
    VALUES (:name, :folded, :status, :description, :scopes, :use_cases, :labels, :created_by, :updated_by,
            :last_modified)
    RETURNING id"""
_UPDATE = """
    UPDATE keys
       SET name = :name, folded = :folded, status = :status, description = :description, scopes = :scopes,
           use_cases = :use_cases, labels = :labels, updated_by = :updated_by, last_modified = :last_modified
     WHERE id = :id"""
_INSERT_SECRET = "INSERT INTO secrets (digest, key_id, ends_at) VALUES (?, ?, ?)"
_DELETE_SECRETS = "DELETE FROM secrets WHERE key_id = ?"
_DELETE = "DELETE FROM keys WHERE id = ?"
# A clock that was moved back must not make a key look unused for longer than it is.
_ACCESSED = "UPDATE keys SET last_accessed = MAX(?, COALESCE(last_accessed, 0)) WHERE id = ?"


class KeyTable:
    """All verbs of a key's life. One that raises (Invalid, NotAllowed, NotThere) has changed nothing."""

    def __init__(self, file: RegistryFile) -> None:
        self._file = file
        self._pepper = file.secret("key hashes")
        self._keys: dict[int, Key] = {}
        self._owners: dict[bytes, tuple[bytes, int]] = {}  # first half of a digest -> digest, key
        self._deleted: OrderedDict[bytes, None] = OrderedDict()

    async def load(self) -> None:
        """Read the table once, at start."""
        keys, found = await self._file.select([(_ALL, ()), (_ALL_SECRETS, ())])
        for row in keys:
            owned = [Secret(each["digest"], each["ends_at"]) for each in found if each["key_id"] == row["id"]]
            self._remember(_key(row, owned))

    def find(self, secret: str) -> Key | None:
        """The key of a secret, disabled ones too. Takes as long for a near miss as for a stranger."""
        digest = self._digest(secret)
        owner = self._owners.get(digest[:16])
        if owner is None or not hmac.compare_digest(owner[0], digest):
            return None
        key = self._keys[owner[1]]
        ends_at = next(each.ends_at for each in key.secrets if each.digest == digest)
        return None if ends_at is not None and ends_at <= self._file.clock.now() else key

    def was_deleted(self, secret: str) -> bool:
        """Whether this was a key's secret until it was deleted or rotated away since the start."""
        digest = self._digest(secret)
        return digest in self._deleted or digest[:16] in self._owners

    def all(self) -> list[Key]:
        return list(self._keys.values())

    async def create(
        self,
        *,
        name: str,
        scopes: Iterable[str] = (),
        use_cases: Iterable[str] = (),
        description: str = "",
        labels: Mapping[str, str] | None = None,
        actor: Actor,
    ) -> tuple[Key, str]:
        """The new key and its secret, which is nowhere else from now on."""
        name = checked_name(name)
        fixed, managed = checked_grant(scopes, use_cases)
        secret = new_secret()
        draft = Key(
            id=0,
            name=name,
            status=ENABLED,
            description=checked_description(description),
            scopes=fixed,
            use_cases=managed,
            labels=checked_labels(labels or {}),
            created_by=actor.name,
            updated_by=actor.name,
            last_modified=self._file.clock.now(),
            secrets=(Secret(self._digest(secret)),),
        )

        def work(connection: sqlite3.Connection) -> Key:
            _free(connection, draft)
            key = replace(draft, id=connection.execute(_INSERT, _row(draft)).fetchone()["id"])
            _write_secrets(connection, key)
            audit(connection, actor, key.last_modified, "key.create", key.name, None, _shown(key))
            return key

        return await self._file.change(work, self._remember), secret

    async def edit(
        self,
        name: str,
        *,
        new_name: str | None = None,
        description: str | None = None,
        scopes: Iterable[str] | None = None,
        use_cases: Iterable[str] | None = None,
        labels: Mapping[str, str] | None = None,
        actor: Actor,
    ) -> Key:
        """
        Change what is given, leave the rest. Scopes take the place of the key's scopes or of its use cases, and the
        other way round.
        """
        if scopes is not None or use_cases is not None:
            grant = checked_grant(scopes or (), use_cases or ())

        def edited(key: Key) -> Key:
            return replace(
                key,
                name=key.name if new_name is None else checked_name(new_name),
                description=key.description if description is None else checked_description(description),
                scopes=key.scopes if scopes is None and use_cases is None else grant[0],
                use_cases=key.use_cases if scopes is None and use_cases is None else grant[1],
                labels=key.labels if labels is None else checked_labels(labels),
            )

        return await self._update(name, edited, "key.edit", actor)

    async def enable(self, name: str, *, actor: Actor) -> Key:
        return await self._update(name, lambda key: replace(key, status=ENABLED), "key.enable", actor)

    async def disable(self, name: str, *, actor: Actor) -> Key:
        return await self._update(name, lambda key: replace(key, status=DISABLED), "key.disable", actor)

    async def rotate(self, name: str, *, overlap_s: float, actor: Actor) -> tuple[Key, str]:
        """
        A new secret; the one before opens for `overlap_s` more. With 0 every older secret ends at once; otherwise a
        rotation whose overlap still runs must end first, so that no service loses a key it was promised.
        """
        if not 0 <= overlap_s <= MAX_OVERLAP_S:
            raise Invalid(f"an overlap lasts from 0 to {MAX_OVERLAP_S / 86400:.0f} days")
        secret = new_secret()
        now = self._file.clock.now()

        def rotated(key: Key) -> Key:
            if overlap_s and key.overlap_ends_at is not None and key.overlap_ends_at > now:
                raise NotAllowed(
                    "the last rotation's overlap still runs; wait for its end, or rotate with overlap 0 to end it now"
                )
            last = next(each for each in key.secrets if each.ends_at is None)
            before = (replace(last, ends_at=now + overlap_s),) if overlap_s else ()
            return replace(key, secrets=(*before, Secret(self._digest(secret))))

        return await self._update(name, rotated, "key.rotate", actor), secret

    async def delete(self, name: str, *, confirm: str, actor: Actor) -> None:
        """Cannot be undone; when it returns nobody passes with the key."""
        if confirm != name:
            raise Invalid("to delete a key, confirm with its exact name")

        def work(connection: sqlite3.Connection) -> Key:
            key = _read(connection, name)
            connection.execute(_DELETE_SECRETS, (key.id,))
            connection.execute(_DELETE, (key.id,))
            audit(connection, actor, self._file.clock.now(), "key.delete", name, _shown(key), None)
            return key

        await self._file.change(work, self._forget)

    async def accessed(self, times: Mapping[int, float]) -> None:
        """Last accesses, many in one transaction; the deployment's key has the number 0."""

        def work(connection: sqlite3.Connection) -> None:
            connection.executemany(_ACCESSED, [(at, key_id) for key_id, at in times.items() if key_id])
            if 0 in times:
                connection.execute("INSERT OR REPLACE INTO facts VALUES (?, ?)", (_LEGACY_ACCESSED, str(times[0])))

        def apply(_: None) -> None:
            for key_id in times.keys() & self._keys.keys():
                self._keys[key_id] = replace(self._keys[key_id], last_accessed=times[key_id])

        await self._file.change(work, apply)

    async def legacy_accessed(self) -> float | None:
        [rows] = await self._file.select([("SELECT value FROM facts WHERE name = ?", (_LEGACY_ACCESSED,))])
        return float(rows[0]["value"]) if rows else None

    async def _update(self, name: str, change: Callable[[Key], Key], action: str, actor: Actor) -> Key:
        def work(connection: sqlite3.Connection) -> Key:
            before = _read(connection, name)
            after = replace(change(before), updated_by=actor.name, last_modified=self._file.clock.now())
            _free(connection, after)
            connection.execute(_UPDATE, _row(after))
            if after.secrets != before.secrets:
                _write_secrets(connection, after)
            was, now = _shown(before), _shown(after)
            changed = [field for field in was if was[field] != now[field]]
            audit(
                connection, actor, after.last_modified, action, name,
                {field: was[field] for field in changed}, {field: now[field] for field in changed},
            )  # fmt: skip
            return after

        return await self._file.change(work, self._remember)

    def _digest(self, secret: str) -> bytes:
        return blake2b(secret.encode("utf-8", "surrogatepass"), key=self._pepper, digest_size=32).digest()

    def _remember(self, key: Key) -> None:
        before = self._keys.get(key.id)
        if before:
            self._forget(before)
            key = replace(key, last_accessed=before.last_accessed)
        self._keys[key.id] = key
        for secret in key.secrets:
            self._owners[secret.digest[:16]] = (secret.digest, key.id)
            self._deleted.pop(secret.digest, None)

    def _forget(self, key: Key) -> None:
        self._keys.pop(key.id, None)
        for secret in key.secrets:
            self._owners.pop(secret.digest[:16], None)
            self._deleted[secret.digest] = None
        while len(self._deleted) > _REMEMBERED_DELETIONS:
            self._deleted.popitem(last=False)


def _read(connection: sqlite3.Connection, name: str) -> Key:
    row = connection.execute("SELECT * FROM keys WHERE name = ?", (name,)).fetchone()
    if row is None:
        raise NotThere(f"there is no key named {name!r}")
    owned = connection.execute("SELECT digest, ends_at FROM secrets WHERE key_id = ? ORDER BY rowid", (row["id"],))
    return _key(row, [Secret(each["digest"], each["ends_at"]) for each in owned])


def _free(connection: sqlite3.Connection, key: Key) -> None:
    taken = connection.execute(_TAKEN, {"folded": folded(key.name), "id": key.id}).fetchone()
    if taken:
        raise AlreadyThere(f"a key named {taken['name']!r} already exists; names are unique, whatever the case")


def _write_secrets(connection: sqlite3.Connection, key: Key) -> None:
    connection.execute(_DELETE_SECRETS, (key.id,))
    connection.executemany(_INSERT_SECRET, [(each.digest, key.id, each.ends_at) for each in key.secrets])


def _key(row: sqlite3.Row, owned: list[Secret]) -> Key:
    return Key(
        id=row["id"],
        name=row["name"],
        status=row["status"],
        description=row["description"],
        scopes=tuple(json.loads(row["scopes"])),
        use_cases=tuple(json.loads(row["use_cases"])),
        labels=json.loads(row["labels"]),
        created_by=row["created_by"],
        updated_by=row["updated_by"],
        last_modified=row["last_modified"],
        last_accessed=row["last_accessed"],
        secrets=tuple(owned),
    )


def _row(key: Key) -> dict[str, object]:
    return {
        **{name: getattr(key, name) for name in ("id", "name", "status", "description", "created_by", "updated_by")},
        **{name: json.dumps(getattr(key, name)) for name in ("scopes", "use_cases", "labels")},
        "folded": folded(key.name),
        "last_modified": key.last_modified,
    }


def _shown(key: Key) -> dict[str, object]:
    """What the audit list may say of a key: everything but its hashes."""
    return {
        "name": key.name,
        "status": key.status,
        "description": key.description,
        "scopes": list(key.scopes),
        "use_cases": list(key.use_cases),
        "labels": dict(key.labels),
        "overlap_ends_at": key.overlap_ends_at,
    }
