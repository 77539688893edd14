"""
API keys, all in memory, so a check reads no storage.

Memory is updated before a change returns, so nobody can use a key after its deletion was acknowledged.
"""

from __future__ import annotations

import hmac
from collections import OrderedDict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from hashlib import blake2b
from math import inf

from msgspec import UNSET, UnsetType

from spool.errors import AlreadyThere, Invalid, NotAllowed, NotThere
from spool.log.partial_reports import ExpectedVersion
from spool.registry.changes import RegistryChangeWriter
from spool.registry.documents import check_version_unchanged, with_change_fields_if_changed
from spool.registry.file_owners import check_unmanaged
from spool.registry.following import DOCUMENTS, KEYS
from spool.registry.key_expectations import enabled_key_expectation, valid_key_expectation
from spool.registry.keys import (
    DELETED,
    DEPLOYMENT,
    DISABLED,
    ENABLED,
    FILE_KEY,
    LEGACY_NAME,
    OPENS,
    WAITS,
    ApiKey,
    DeploymentKeyState,
    Secret,
    check_description,
    check_expiry,
    check_key_name,
    check_labels,
    check_scopes_or_use_cases,
    check_secret,
    encode_file_key,
    fold_name,
    new_secret,
    restore_file_key,
    round_to_milliseconds,
)
from spool.registry.operators import Actor
from spool.registry.registry_rows import RegistryRows

MAX_OVERLAP_S = 90 * 86400.0
ACCESSES_S = 60.0  # seconds; accesses that other processes stored are read only if they are newer
_REMEMBERED_DELETIONS = 10_000


class KeyTable:
    announced_subjects = ((KEYS, ""), (DOCUMENTS, FILE_KEY))

    def __init__(self, change_writer: RegistryChangeWriter) -> None:
        self._changes = change_writer
        self._pepper = change_writer.derive_secret("key hashes")
        self._keys: dict[int, ApiKey] = {}
        # digest and key id by first half of the digest
        self._owners: dict[bytes, tuple[bytes, int]] = {}
        self._deleted: OrderedDict[bytes, None] = OrderedDict()
        self._file_key: DeploymentKeyState | None = None

    async def load(self) -> None:
        """Load the keys. Keys that are missing now were deleted, and missing secrets were rotated."""
        stored_keys, self._file_key = await self._changes.read(
            lambda rows: (rows.keys(), _read_deployment_file_key(rows))
        )
        ids = {key.id for key in stored_keys}
        for missing in [key for key in self._keys.values() if key.id not in ids]:
            self._forget_key(missing)
        for key in stored_keys:
            self._remember_key(key)

    def find_by_secret(self, secret: str) -> ApiKey | None:
        """
        Return the key with this secret, unless the secret has expired. The key may be disabled.

        A nearly correct secret takes as long as the correct one.
        """
        owner = self._find_key_and_end(secret)
        if owner is None:
            return None
        key, ends_at = owner
        return None if ends_at is not None and ends_at <= self._changes.now() else key

    def find_expired_by_secret(self, secret: str) -> ApiKey | None:
        """
        Return the key if the secret was valid until the key's expiry. A secret that a rotation ended earlier
        is not found, even if the expiry moves.
        """
        owner = self._find_key_and_end(secret)
        if owner is None:
            return None
        key, ends_at = owner
        if ends_at is None or ends_at != key.expires_at or ends_at > self._changes.now():
            return None
        return key

    def _find_key_and_end(self, secret: str) -> tuple[ApiKey, float | None] | None:
        digest = self._secret_digest(secret)
        owner = self._owners.get(digest[:16])
        if owner is None or not hmac.compare_digest(owner[0], digest):
            return None
        key = self._keys[owner[1]]
        return key, next(each.ends_at for each in key.secrets if each.digest == digest)

    def valid_secret_expectation(self, secret: str) -> ExpectedVersion | None:
        return valid_key_expectation(self._secret_digest(secret)) if self._changes.is_shared else None

    def next_secret_end(self, key: ApiKey) -> float:
        now = self._changes.now()
        ends = [secret.ends_at for secret in key.secrets if secret.ends_at is not None]
        return min((ends_at for ends_at in ends if ends_at > now), default=inf)

    def is_unchanged(self, key: ApiKey, ends_at: float) -> bool:
        return self._keys.get(key.id) is key and self._changes.now() < ends_at

    def find_by_number(self, id: int) -> ApiKey | None:
        return self._keys.get(id)

    def enabled_key_expectations(self, key_id: int) -> tuple[ExpectedVersion, ...]:
        """
        Return the expectation that the key exists and is enabled, for a submission that is not checked by the
        key's secret.
        """
        return (enabled_key_expectation(key_id),) if self._changes.is_shared else ()

    def is_secret_expired(self, secret: str) -> bool:
        """Return whether the text is the secret of an expired key, which another process may extend."""
        return self._secret_digest(secret)[:16] in self._owners and self.find_by_secret(secret) is None

    def is_known_or_ended_secret(self, secret: str) -> bool:
        """
        Return whether the text is a valid secret, or was one that was deleted, rotated or expired since this
        process started.

        Ended secrets of the deployment's key are stored, so they are also recognized after a restart.
        """
        if self.is_ended_file_secret(secret):
            return True
        digest = self._secret_digest(secret)
        return digest in self._deleted or digest[:16] in self._owners

    def is_file_key(self, key: ApiKey) -> bool:
        return self._file_key is not None and self._file_key.key == key.id

    def is_ended_file_secret(self, secret: str) -> bool:
        """
        Return whether the text is an ended secret of the deployment's key: the key was deleted, or its file
        changed.
        """
        return self._file_key is not None and self._file_key.has_ended_secret(self._secret_digest(secret))

    async def adopt_file_secret(
        self,
        secret: str,
        *,
        use_case: str,
        actor: Actor,
        works_after_deletion: bool = False,
        other_gateways: Sequence[str] = (),
    ) -> str:
        """
        Use the secret in the deployment's file for the deployment's key. Return OPENS if the secret is valid,
        DELETED if it has ended, or WAITS if it needs `works_after_deletion`.

        A deleted secret never works again. After a deletion, another secret works only if it is adopted with
        `works_after_deletion`. Raises NotAllowed if the secret would change while the gateways in
        `other_gateways` use the earlier one.
        """
        digest, now = self._secret_digest(secret), self._changes.now()

        def adopt_file_key(
            registry_rows: RegistryRows,
        ) -> tuple[ApiKey | None, DeploymentKeyState | None, str]:
            state = _read_deployment_file_key(registry_rows)
            key = _find_key(registry_rows, state.key) if state and state.key is not None else None
            if state is not None and state.has_ended_secret(digest):
                return None, state, DELETED
            if state is not None and key is None and not works_after_deletion:
                return None, state, WAITS
            if key is None:
                key = _add_file_key(registry_rows, digest, use_case, actor, now)
            elif all(secret.digest != digest for secret in key.secrets):
                if other_gateways:
                    raise NotAllowed(
                        f"the file holds another key than that of {', '.join(other_gateways)}, which uses the "
                        "same storage. Give all gateways the same file"
                    )
                state = (state or DeploymentKeyState()).with_ended_secrets(
                    secret.digest for secret in key.secrets
                )
                secrets = (Secret(digest, key.expires_at),)
                key = replace(key, secrets=secrets, last_modified=now, updated_by=actor.name)
                registry_rows.put_key(key)
                registry_rows.add_audit(now, actor, "key.rotate", key.name)
            elif state is not None:
                return None, state, OPENS
            state = replace(state or DeploymentKeyState(), key=key.id)
            registry_rows.put_document(FILE_KEY, DEPLOYMENT, encode_file_key(state))
            return key, state, OPENS

        def remember_adopted_key(done: tuple[ApiKey | None, DeploymentKeyState | None, str]) -> None:
            key, self._file_key, _ = done
            if key is not None:
                self._remember_key(key)

        return (await self._changes.change_rows(adopt_file_key, remember_adopted_key))[2]

    def all(self) -> list[ApiKey]:
        return list(self._keys.values())

    async def create(
        self,
        *,
        name: str,
        scopes: Iterable[str] = (),
        use_cases: Iterable[str] = (),
        description: str = "",
        labels: Mapping[str, str] | None = None,
        expires_at: float | None = None,
        secret: str | None = None,
        actor: Actor,
    ) -> tuple[ApiKey, str]:
        # an unknown scope is reported before a wrong name
        fixed, managed = check_scopes_or_use_cases(scopes, use_cases)
        name = check_key_name(name)
        secret, now = self._check_free_secret(secret) if secret else new_secret(), self._changes.now()
        draft = ApiKey(
            id=0,
            name=name,
            status=ENABLED,
            description=check_description(description),
            scopes=fixed,
            use_cases=managed,
            labels=check_labels(labels or {}),
            created_by=actor.name,
            updated_by=actor.name,
            last_modified=now,
            secrets=(
                Secret(self._secret_digest(secret), check_expiry(round_to_milliseconds(expires_at), now)),
            ),
        )

        def add_key(registry_rows: RegistryRows) -> ApiKey:
            _check_name_free(registry_rows, draft)
            key = registry_rows.add_key(draft)
            registry_rows.add_audit(
                key.last_modified, actor, "key.create", key.name, after=_audited_fields(key)
            )
            return key

        return await self._changes.change_rows(add_key, self._remember_key), secret

    async def edit(
        self,
        name: str,
        *,
        new_name: str | None = None,
        description: str | None = None,
        scopes: Iterable[str] | None = None,
        use_cases: Iterable[str] | None = None,
        labels: Mapping[str, str] | None = None,
        expires_at: float | UnsetType | None = UNSET,
        version: str | None = None,
        actor: Actor,
    ) -> ApiKey:
        """
        Change a key. New scopes or use cases replace all earlier ones. With `expires_at` None, the key never
        expires.

        Raises NotAllowed if the key's version is not `version`.
        """
        if scopes is not None or use_cases is not None:
            grant = check_scopes_or_use_cases(scopes or (), use_cases or ())

        def edit_key(key: ApiKey) -> ApiKey:
            check_version_unchanged(key.version, version)
            if expires_at is not UNSET and (at := round_to_milliseconds(expires_at)) != key.expires_at:
                key = key.with_expiry(check_expiry(at, self._changes.now()))
            return replace(
                key,
                name=key.name if new_name is None else check_key_name(new_name),
                description=key.description if description is None else check_description(description),
                scopes=key.scopes if scopes is None and use_cases is None else grant[0],
                use_cases=key.use_cases if scopes is None and use_cases is None else grant[1],
                labels=key.labels if labels is None else check_labels(labels),
            )

        return await self._change_key(name, edit_key, "key.edit", actor)

    async def replace_secret(self, name: str, secret: str, *, actor: Actor) -> ApiKey:
        digest = self._secret_digest(self._check_free_secret(secret))

        def set_key_secret(key: ApiKey) -> ApiKey:
            return replace(key, secrets=(Secret(digest, key.expires_at),))

        return await self._change_key(name, set_key_secret, "key.rotate", actor)

    def _check_free_secret(self, secret: str) -> str:
        if self._find_key_and_end(check_secret(secret)) is not None:
            raise NotAllowed("this secret is the secret of another key")
        return secret

    def is_newest_secret(self, key: ApiKey, secret: str) -> bool:
        return key.secrets[-1].digest == self._secret_digest(secret)

    async def enable(self, name: str, *, actor: Actor) -> ApiKey:
        return await self._change_key(name, lambda key: replace(key, status=ENABLED), "key.enable", actor)

    async def disable(self, name: str, *, actor: Actor) -> ApiKey:
        return await self._change_key(name, lambda key: replace(key, status=DISABLED), "key.disable", actor)

    async def rotate(self, name: str, *, overlap_s: float, actor: Actor) -> tuple[ApiKey, str]:
        """
        Give a key a new secret. The previous secret works for `overlap_s` more seconds; 0 ends all older
        secrets.

        Raises NotAllowed if an overlap already runs.
        """
        if not 0 <= overlap_s <= MAX_OVERLAP_S:
            raise Invalid(f"the overlap must be from 0 to {MAX_OVERLAP_S / 86400:.0f} days")
        secret = new_secret()
        now = self._changes.now()

        def rotate_key(key: ApiKey) -> ApiKey:
            if overlap_s and key.overlap_ends_at is not None and key.overlap_ends_at > now:
                raise NotAllowed(
                    "the overlap of the last rotation still runs. Wait for its end, or rotate with "
                    "overlap 0 to end it now"
                )
            before = (key.secrets[-1].with_end(now + overlap_s),) if overlap_s else ()
            return replace(key, secrets=(*before, Secret(self._secret_digest(secret), key.expires_at)))

        return await self._change_key(name, rotate_key, "key.rotate", actor), secret

    async def delete(self, name: str, *, confirm: str, actor: Actor) -> None:
        """Delete a key. Once this returns, nobody can use it."""
        if confirm != name:
            raise Invalid("confirm the deletion with the exact name of the key")

        def delete_key(registry_rows: RegistryRows) -> tuple[ApiKey, DeploymentKeyState | None]:
            key, state = _require_key(registry_rows, name), _read_deployment_file_key(registry_rows)
            check_unmanaged(self._changes, registry_rows, "key", str(key.id))
            registry_rows.delete_key(key.id)
            registry_rows.add_audit(
                self._changes.now(), actor, "key.delete", name, before=_audited_fields(key)
            )
            if state is not None and state.key == key.id:
                state = replace(state.with_ended_secrets(secret.digest for secret in key.secrets), key=None)
                registry_rows.put_document(FILE_KEY, DEPLOYMENT, encode_file_key(state))
            return key, state

        def forget_deleted_key(done: tuple[ApiKey, DeploymentKeyState | None]) -> None:
            key, self._file_key = done
            self._forget_key(key)

        await self._changes.change_rows(delete_key, forget_deleted_key)

    async def store_access_times(self, times: Mapping[int, float]) -> None:
        await self._changes.change_rows(
            lambda rows: rows.store_access_times(times), lambda _: self._apply_access_times(times)
        )

    async def load_access_times(self) -> None:
        """Load the times of last use that other processes stored."""
        since = self._changes.now() - ACCESSES_S
        self._apply_access_times(await self._changes.read(lambda rows: rows.key_access_times_by_id(since)))

    def _apply_access_times(self, times: Mapping[int, float]) -> None:
        for key_id in times.keys() & self._keys.keys():
            key = self._keys[key_id]
            self._keys[key_id] = replace(key, last_accessed=max(times[key_id], key.last_accessed or 0.0))

    async def _change_key(
        self, name: str, change: Callable[[ApiKey], ApiKey], action: str, actor: Actor
    ) -> ApiKey:
        def update_key(registry_rows: RegistryRows) -> ApiKey:
            before = _require_key(registry_rows, name)
            after = with_change_fields_if_changed(
                before, change(before), updated_by=actor.name, last_modified=self._changes.now()
            )
            if after is before:
                return before
            if action == "key.edit":
                check_unmanaged(self._changes, registry_rows, "key", str(before.id))
            _check_name_free(registry_rows, after)
            registry_rows.put_key(after)
            old_description, now = _audited_fields(before), _audited_fields(after)
            changed = [field for field in old_description if old_description[field] != now[field]]
            old, new = (
                {field: description[field] for field in changed} for description in (old_description, now)
            )
            registry_rows.add_audit(after.last_modified, actor, action, name, before=old, after=new)
            return after

        return await self._changes.change_rows(update_key, self._remember_key)

    def _secret_digest(self, secret: str) -> bytes:
        return blake2b(secret.encode("utf-8", "surrogatepass"), key=self._pepper, digest_size=32).digest()

    def _remember_key(self, key: ApiKey) -> None:
        before = self._keys.get(key.id)
        if before:
            self._forget_key(before)
            accesses = [at for at in (before.last_accessed, key.last_accessed) if at is not None]
            key = replace(key, last_accessed=max(accesses, default=None))
        self._keys[key.id] = key
        for secret in key.secrets:
            self._owners[secret.digest[:16]] = (secret.digest, key.id)
            self._deleted.pop(secret.digest, None)

    def _forget_key(self, key: ApiKey) -> None:
        self._keys.pop(key.id, None)
        for secret in key.secrets:
            self._owners.pop(secret.digest[:16], None)
            self._deleted[secret.digest] = None
        while len(self._deleted) > _REMEMBERED_DELETIONS:
            self._deleted.popitem(last=False)


def _read_deployment_file_key(registry_rows: RegistryRows) -> DeploymentKeyState | None:
    return restore_file_key(registry_rows.document(FILE_KEY, DEPLOYMENT))


def _find_key(registry_rows: RegistryRows, id: int) -> ApiKey | None:
    return next((key for key in registry_rows.keys() if key.id == id), None)  # noqa: SIM118 - a table, no mapping


def _add_file_key(
    registry_rows: RegistryRows, digest: bytes, use_case: str, actor: Actor, now: float
) -> ApiKey:
    """Add the deployment's key. Raises AlreadyThere if another key has its name."""
    draft = ApiKey(
        id=0,
        name=LEGACY_NAME,
        status=ENABLED,
        description="Set by the deployment in server.api_key_file",
        use_cases=(use_case,),
        created_by=actor.name,
        updated_by=actor.name,
        last_modified=now,
        secrets=(Secret(digest),),
    )
    _check_name_free(registry_rows, draft)
    key = registry_rows.add_key(draft)
    registry_rows.add_audit(now, actor, "key.create", key.name, after=_audited_fields(key))
    return key


def _require_key(registry_rows: RegistryRows, name: str) -> ApiKey:
    key = registry_rows.find_key_by_name(name)
    if key is None:
        raise NotThere(f"no key is named {name!r}")
    return key


def _check_name_free(registry_rows: RegistryRows, key: ApiKey) -> None:
    same_name = registry_rows.find_key_by_folded_name(fold_name(key.name))
    if same_name is not None and same_name.id != key.id:
        raise AlreadyThere(
            f"a key named {same_name.name!r} already exists. Names must be unique, ignoring case"
        )


def _audited_fields(key: ApiKey) -> dict[str, object]:
    return {
        "name": key.name,
        "status": key.status,
        "description": key.description,
        "scopes": list(key.scopes),
        "use_cases": list(key.use_cases),
        "labels": dict(key.labels),
        "overlap_ends_at": key.overlap_ends_at,
        "expires_at": key.expires_at,
    }
