"""
Tokens for the enrolment of devices, each with a number of uses and an end.

Only a keyed hash of the secret is stored. The uses are the enrolled devices (`spool.devices`), and `spent`
counts deleted devices, so that a deletion gives no use back.
"""

from __future__ import annotations

import hmac
import re
import secrets
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from hashlib import blake2b

from spool.errors import AlreadyThere, Invalid, NotAllowed, NotThere
from spool.log.partial_reports import ExpectedVersion
from spool.registry.changes import RegistryChangeWriter
from spool.registry.document_table import DocumentTable, field_names
from spool.registry.documents import DocumentCollection, with_change_fields_if_changed
from spool.registry.file_owners import check_unmanaged
from spool.registry.key_expectations import live_token_expectation
from spool.registry.keys import check_key_name, check_labels
from spool.registry.operators import Actor
from spool.registry.registry_rows import RegistryRows

PREFIX = "the_"
_TEXT = re.compile(rf"{PREFIX}([0-9a-f]{{16}})_([0-9a-f]{{64}})")
ACTIVE, USED_UP, EXPIRED, REVOKED = "active", "used_up", "expired", "revoked"
STATES = (ACTIVE, USED_UP, EXPIRED, REVOKED)

MAX_USES = 1_000_000
PER_HOUR = 200  # default of the devices that a token may enrol within an hour
MAX_LIFE_S = 366 * 86_400.0
MAX_SERIAL = 64
KEPT_S = 90 * 86_400.0  # seconds for which an ended token stays in the list


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenDraft:
    """
    The fields of a token that people set. `serial` restricts the token to the machine with this serial
    number. It enrols at most `per_hour` devices within an hour, or any number if this is 0.
    """

    name: str
    uses: int
    expires_at: float
    labels: Mapping[str, str] = field(default_factory=dict)
    serial: str = ""
    per_hour: int = PER_HOUR


@dataclass(frozen=True, slots=True, kw_only=True)
class EnrolmentToken(TokenDraft):
    id: str
    digest: str = field(repr=False)
    created: float
    created_by: str
    last_updated: float
    spent: int = 0
    revoked_at: float | None = None

    @property
    def sender(self) -> str:
        """Return the name of this sender, in place of a key's name."""
        return f"token {self.name}"

    @property
    def max_devices(self) -> int:
        return self.uses - self.spent

    def state(self, devices: int, now: float) -> str:
        """
        Return the token's state. `devices`: the number of devices that it enrolled and that still exist.
        """
        if self.revoked_at is not None:
            return REVOKED
        if self.expires_at <= now:
            return EXPIRED
        return USED_UP if devices >= self.max_devices else ACTIVE

    @property
    def name_and_serial(self) -> tuple[str, str]:
        """Return name and serial number, which are unique among tokens that have not ended."""
        return self.name.casefold(), self.serial.casefold()

    def is_live(self, now: float) -> bool:
        return self.revoked_at is None and self.expires_at > now

    @property
    def ended_at(self) -> float:
        return self.expires_at if self.revoked_at is None else min(self.revoked_at, self.expires_at)


def check_token_draft(draft: TokenDraft, now: float) -> TokenDraft:
    if not 1 <= draft.uses <= MAX_USES:
        raise Invalid(f"the number of uses must be 1 to {MAX_USES}")
    if not 0 <= draft.per_hour <= MAX_USES:
        raise Invalid(f"the number of devices per hour must be 1 to {MAX_USES}, or 0 for no limit")
    if not now < draft.expires_at <= now + MAX_LIFE_S:
        raise Invalid("a token must expire in the future, and within 366 days")
    serial = draft.serial.strip()
    if len(serial) > MAX_SERIAL or not serial.isprintable():
        raise Invalid(f"a serial number must have at most {MAX_SERIAL} printable characters")
    return replace(draft, name=check_key_name(draft.name), labels=check_labels(draft.labels), serial=serial)


def new_token_text() -> str:
    return f"{PREFIX}{secrets.token_hex(8)}_{secrets.token_hex(32)}"


def _require_unused_ids_and_names(
    stored: Mapping[str, EnrolmentToken], new_tokens: Iterable[EnrolmentToken], now: float
) -> None:
    """
    Raise AlreadyThere if a stored token has the same id, or is live and has the same name and serial number.
    """
    live = {token.name_and_serial for token in stored.values() if token.is_live(now)}
    for token in new_tokens:
        if token.name_and_serial in live or token.id in stored:
            of = f" for {token.serial}" if token.serial else ""
            raise AlreadyThere(
                f"a token named {token.name!r}{of} already exists; revoke it, or use another name"
            )


class EnrolmentTokenTable(DocumentTable[EnrolmentToken]):
    kind = DocumentCollection("enrolment_token", EnrolmentToken, "token")
    draft = TokenDraft
    limit = "enrolment tokens"
    most = 20_000
    action = "token"

    def __init__(self, change_writer: RegistryChangeWriter) -> None:
        super().__init__(change_writer)
        self._pepper = change_writer.derive_secret("enrolment tokens")

    def live_tokens(self) -> Sequence[EnrolmentToken]:
        now = self._changes.now()
        return [token for token in self.all() if token.is_live(now)]

    def find_by_text(self, text: str) -> EnrolmentToken | None:
        id, _, secret = text.removeprefix(PREFIX).partition("_")
        token = self.find(id)
        if token is None or not hmac.compare_digest(token.digest, self._secret_digest(secret)):
            return None
        return token

    def find_by_id_or_name(self, id_or_name: str) -> Sequence[EnrolmentToken]:
        token = self.find(id_or_name)
        tokens = [token] if token else [token for token in self.all() if token.name == id_or_name]
        if not tokens:
            raise NotThere("no token has this id or name")
        return tokens

    def not_revoked_expectations(self, token: EnrolmentToken) -> tuple[ExpectedVersion, ...]:
        """
        Return the expectation that the token is not revoked. Return none if no other process changes tokens.
        """
        return (live_token_expectation(token.id),) if self._changes.is_shared else ()

    async def create(
        self, drafts: Iterable[TokenDraft], *, secret_text: str = "", actor: Actor
    ) -> Sequence[tuple[EnrolmentToken, str]]:
        """
        Add tokens in one transaction, and delete tokens that ended long ago. Return each token with its
        secret text. Raises AlreadyThere if a live token has the name and serial number.
        """
        now = self._changes.now()
        made = [
            self._build_token(check_token_draft(draft, now), secret_text or new_token_text(), actor, now)
            for draft in drafts
        ]
        tokens = {token.id: token for token, _ in made}

        def store_tokens(registry_rows: RegistryRows) -> dict[str, EnrolmentToken]:
            stored = self._stored_rows(registry_rows)
            _require_unused_ids_and_names(stored, tokens.values(), now)
            old = [id for id, token in stored.items() if token.ended_at < now - KEPT_S]
            if len(stored) - len(old) + len(tokens) > self.most:
                raise NotAllowed(
                    f"the limit of {self.most} tokens is reached; ended tokens count for 90 days"
                )
            for id in old:
                self.kind.delete(registry_rows, id)
            for token in tokens.values():
                self.kind.store_row(registry_rows, token)
            for name, first in {token.name: token for token in tokens.values()}.items():
                after = self._audited_fields(first, ("uses", "expires_at", "labels", "per_hour"))
                count = sum(token.name == name for token in tokens.values())
                registry_rows.add_audit(now, actor, "token.create", name, after={"tokens": count, **after})
            return {id: token for id, token in stored.items() if id not in old} | tokens

        await self._changes.change_rows(store_tokens, self._set_rows)
        return made

    async def edit(self, id: str, draft: TokenDraft, *, actor: Actor) -> EnrolmentToken:
        """Change a token. Its secret stays; its name and serial number must not change."""
        now = self._changes.now()

        def edit_token(registry_rows: RegistryRows) -> EnrolmentToken:
            before = self._require_row(self._stored_rows(registry_rows), id)
            fields = {name: getattr(draft, name) for name in field_names(TokenDraft)}
            after: EnrolmentToken = with_change_fields_if_changed(
                before, replace(before, **fields), last_updated=now
            )
            if after is before:
                return before
            check_unmanaged(self._changes, registry_rows, self.action, id)
            after = replace(after, **{name: getattr(check_token_draft(draft, now), name) for name in fields})
            self.kind.store_row(registry_rows, after)
            names = [name for name in fields if getattr(before, name) != getattr(after, name)]
            old, new = (self._audited_fields(token, names) for token in (before, after))
            registry_rows.add_audit(now, actor, "token.change", before.name, before=old, after=new)
            return after

        return await self._changes.change_rows(edit_token, self._remember_row)

    async def revoke(self, id_or_name: str, *, actor: Actor) -> Sequence[EnrolmentToken]:
        """
        Revoke the token with this id, or all tokens with this name. Return all of them, also those revoked
        before.
        """
        now = self._changes.now()

        def with_revocation(token: EnrolmentToken) -> EnrolmentToken:
            return token if token.revoked_at else replace(token, revoked_at=now, last_updated=now)

        ids = [token.id for token in self.find_by_id_or_name(id_or_name)]
        return await self._change_tokens(ids, with_revocation, "token.revoke", id_or_name, actor)

    async def add_uses_of_deleted_devices(self, devices_by_token: Mapping[str, int], *, actor: Actor) -> None:
        """Add the uses of devices that will be deleted to `spent`, except for ended tokens."""
        now = self._changes.now()

        def add_uses_to_token(token: EnrolmentToken) -> EnrolmentToken:
            return replace(token, spent=token.spent + devices_by_token[token.id])

        tokens = [self.find(id) for id in devices_by_token]
        ids = [token.id for token in tokens if token is not None and token.ended_at > now]
        if ids:
            await self._change_tokens(ids, add_uses_to_token, "", "", actor)

    async def _change_tokens(
        self,
        ids: Collection[str],
        change: Callable[[EnrolmentToken], EnrolmentToken],
        action: str,
        target: str,
        actor: Actor,
    ) -> Sequence[EnrolmentToken]:
        def change_and_audit_tokens(registry_rows: RegistryRows) -> dict[str, EnrolmentToken]:
            found = {id: self.kind.find(registry_rows, id) for id in ids}
            changed = {id: change(token) for id, token in found.items() if token is not None}
            for id, token in changed.items():
                if token != found[id]:
                    self.kind.store_row(registry_rows, token)
            if action:
                now = self._changes.now()
                registry_rows.add_audit(now, actor, action, target, after={"tokens": len(changed)})
            return changed

        changed = await self._changes.change_rows(
            change_and_audit_tokens, lambda changed: self._set_rows({**self._rows, **changed})
        )
        return list(changed.values())

    def is_secret_of(self, token: EnrolmentToken, text: str) -> bool:
        return self.find_by_text(text) is token

    def _build_token(
        self, draft: TokenDraft, text: str, actor: Actor, now: float
    ) -> tuple[EnrolmentToken, str]:
        parts = _TEXT.fullmatch(text)
        if parts is None:
            raise Invalid(f"a token has the form {PREFIX}ID_SECRET: 16 and 64 characters of 0-9 and a-f")
        id, secret = parts.groups()
        token = EnrolmentToken(
            name=draft.name,
            uses=draft.uses,
            expires_at=draft.expires_at,
            labels=draft.labels,
            serial=draft.serial,
            per_hour=draft.per_hour,
            id=id,
            digest=self._secret_digest(secret),
            created=now,
            created_by=actor.name,
            last_updated=now,
        )
        return token, text

    def _secret_digest(self, secret: str) -> str:
        return blake2b(secret.encode(), key=self._pepper, digest_size=32).hexdigest()
