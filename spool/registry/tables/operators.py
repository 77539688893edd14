"""Operators, sessions and one-time console links. Every change has an audit row."""

from __future__ import annotations

import asyncio
import json
import secrets
from collections import OrderedDict, deque
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from hashlib import blake2b

from spool.errors import AlreadyThere, NotAllowed, NotThere, TokenEnded
from spool.registry.changes import RegistryChangeWriter
from spool.registry.documents import DocumentRows, with_change_fields_if_changed
from spool.registry.operators import (
    LINK_LIFE_S,
    MAX_TOKEN_LIFE_S,
    NOBODY,
    SESSION_IDLE_S,
    SESSION_LIFE_S,
    Actor,
    ConsoleLink,
    Operator,
    Person,
    SignInSession,
    check_account_role,
    check_email,
    check_password,
    hash_password,
    is_matching_password,
    operator_status,
)
from spool.registry.registry_rows import RegistryRows
from spool.registry.roles import Roles, read_roles, require_remaining_admin


class FairConcurrencyLimit:
    """
    A limit on concurrent work. If work waits, names take turns, and each name's longest waiting work is next.
    """

    def __init__(self, limit: int) -> None:
        self._free = limit
        self._waiting: OrderedDict[str, deque[asyncio.Future[None]]] = OrderedDict()

    @asynccontextmanager
    async def hold_turn(self, name: str) -> AsyncIterator[None]:
        if self._free:
            self._free -= 1
        else:
            await self._wait_for_turn(name)
        try:
            yield
        finally:
            self._free += 1
            self._wake_waiters()

    async def _wait_for_turn(self, name: str) -> None:
        waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.setdefault(name, deque()).append(waiter)
        try:
            await waiter
        except asyncio.CancelledError:
            # a waiter cancelled after it got the turn passes it on
            if waiter.done() and not waiter.cancelled():
                self._free += 1
                self._wake_waiters()
            raise

    def _wake_waiters(self) -> None:
        while self._free and self._waiting:
            name, waiters = self._waiting.popitem(last=False)
            while waiters and waiters[0].done():  # skip cancelled waiters
                waiters.popleft()
            if waiters:
                self._free -= 1
                waiters.popleft().set_result(None)
            if waiters:
                self._waiting[name] = waiters


TOKEN_END_KIND = "token_end"
_SIGN_IN, _PERSON, _NAMELESS = "sid", "sub", "sub without sid"


def end_tokens_of_sign_in(
    document_rows: DocumentRows, issuer: str, sign_in: str, *, subject: str | None, by: float, now: float
) -> None:
    """End the tokens of a sign-in, and tokens without a sign-in id that the person got until `by`."""
    _store_token_end_and_drop_expired(document_rows, _hash_id(issuer, _SIGN_IN, sign_in), {"by": by}, now)
    if subject is not None:
        _store_token_end_and_drop_expired(
            document_rows, _hash_id(issuer, _NAMELESS, subject), {"by": by}, now
        )


def end_tokens_of_person(
    document_rows: DocumentRows, issuer: str, subject: str, *, by: float, now: float
) -> None:
    _store_token_end_and_drop_expired(document_rows, _hash_id(issuer, _PERSON, subject), {"by": by}, now)


def has_token_ended(
    document_rows: DocumentRows, issuer: str, subject: str, sign_in: str, *, issued_at: float
) -> bool:
    """Return whether a token has ended. `sign_in`: "" for a token without a sign-in id."""
    if sign_in and document_rows.document(TOKEN_END_KIND, _hash_id(issuer, _SIGN_IN, sign_in)) is not None:
        return True
    kinds = (_PERSON,) if sign_in else (_PERSON, _NAMELESS)
    ended = [document_rows.document(TOKEN_END_KIND, _hash_id(issuer, kind, subject)) for kind in kinds]
    return any(ending is not None and issued_at <= ending["by"] for ending in ended)


def _store_token_end_and_drop_expired(
    document_rows: DocumentRows, id: str, body: dict[str, float], now: float
) -> None:
    for old, document in document_rows.documents(TOKEN_END_KIND).items():
        if document["until"] <= now:
            document_rows.delete_document(TOKEN_END_KIND, old)
    document_rows.put_document(TOKEN_END_KIND, id, {**body, "until": now + MAX_TOKEN_LIFE_S})


def _hash_id(*parts: str) -> str:
    return blake2b(json.dumps(parts).encode("utf-8", "surrogatepass"), digest_size=20).hexdigest()


def create_or_update_operator(
    registry_rows: RegistryRows,
    roles: Roles,
    person: Person,
    actor: Actor,
    now: float,
    *,
    takes_over_accounts: bool,
) -> Operator:
    """
    Return the account of a person who signed in at an OpenID provider. Add it if it is new, update it if it
    differs.
    """
    email = actor.name
    account = replace(person, email=email)
    account = replace(account, role=roles.account_role(account))
    operator = _updated_operator(registry_rows, account, email, now, takes_over_accounts=takes_over_accounts)
    before = registry_rows.find(Operator, email)
    if before is None:
        after = {"role": operator.role, "issuer": person.issuer}
        registry_rows.add_audit(now, actor, "operator.add", email, after=after)
    elif before.role != operator.role:
        registry_rows.delete_sessions_of(email)
        old, new = {"role": before.role}, {"role": operator.role, "issuer": person.issuer}
        registry_rows.add_audit(now, actor, "operator.role", email, before=old, after=new)
    if before != operator:
        registry_rows.store_row(operator)
    return operator


def _updated_operator(
    registry_rows: RegistryRows, person: Person, email: str, now: float, *, takes_over_accounts: bool
) -> Operator:
    known = registry_rows.find(Operator, email)
    if known is None:
        return Operator(
            email=email,
            role=check_account_role(person.role),
            created_by=email,
            created_at=now,
            last_modified=now,
            password=NOBODY,
            issuer=person.issuer,
            subject=person.subject,
        )
    is_same_person = (known.issuer, known.subject) == (person.issuer, person.subject)
    if not is_same_person and (known.issuer or not takes_over_accounts):
        raise AlreadyThere("this e-mail address belongs to another operator")
    if known.disabled:
        raise NotAllowed("this operator is disabled")
    role = check_account_role(person.role) if person.decides_role else known.role
    if is_same_person and role == known.role:
        return known
    return replace(known, role=role, issuer=person.issuer, subject=person.subject, last_modified=now)


CHECK_KIND = "session_check"
_SEEN_EVERY_S = 60.0
_OTHER_CLOCK_S = 60.0  # seconds by which a provider's clock may be ahead


class OperatorTable:
    def __init__(self, change_writer: RegistryChangeWriter) -> None:
        self._changes = change_writer
        self._pepper = change_writer.derive_secret("sessions and links")
        # a check costs 32 MiB and a fraction of a second
        self._guesses = FairConcurrencyLimit(2)

    async def all(self) -> Sequence[Operator]:
        return await self._changes.read(lambda rows: rows.all(Operator))

    async def get(self, email: str) -> Operator:
        return await self._changes.read(lambda rows: _require_operator(rows, email))

    async def add(self, email: str, *, role: str, password: str, actor: Actor) -> Operator:
        now = self._changes.now()
        operator = Operator(
            email=check_email(email),
            role=check_account_role(role),
            password=await asyncio.to_thread(hash_password, check_password(password)),
            created_by=actor.name,
            created_at=now,
            last_modified=now,
        )

        def add_operator(registry_rows: RegistryRows) -> Operator:
            if registry_rows.find(Operator, operator.email) is not None:
                raise AlreadyThere("an operator with this e-mail address already exists")
            registry_rows.store_row(operator)
            after = {"role": operator.role}
            registry_rows.add_audit(now, actor, "operator.add", operator.email, after=after)
            return operator

        return await self._changes.change_rows(add_operator)

    async def change(
        self,
        email: str,
        *,
        role: str | None = None,
        password: str | None = None,
        disabled: bool | None = None,
        actor: Actor,
    ) -> Operator:
        """
        Change an operator. This ends the operator's sessions, and sessions of console links that the operator
        created.
        """
        if role is not None:
            check_account_role(role)
        digest = (
            None if password is None else await asyncio.to_thread(hash_password, check_password(password))
        )
        now = self._changes.now()

        def change_operator(registry_rows: RegistryRows) -> Operator:
            before = _require_operator(registry_rows, email.strip().lower())
            organizers = _read_admins(registry_rows)
            after = replace(
                before,
                role=role or before.role,
                password=digest or before.password,
                disabled=before.disabled if disabled is None else disabled,
            )
            after = with_change_fields_if_changed(before, after, last_modified=now)
            if after is before:
                return before
            registry_rows.store_row(after)
            require_remaining_admin(organizers, _read_admins(registry_rows))
            registry_rows.delete_sessions_of(before.email)
            if after.disabled != before.disabled:
                old, new = {"status": operator_status(before)}, {"status": operator_status(after)}
                registry_rows.add_audit(now, actor, "operator.status", before.email, before=old, after=new)
            if digest or after.role != before.role:
                action = "operator.password" if digest else "operator.role"
                old, new = {"role": before.role}, {"role": after.role}
                registry_rows.add_audit(now, actor, action, before.email, before=old, after=new)
            return after

        return await self._changes.change_rows(change_operator)

    async def remove(self, email: str, *, actor: Actor) -> None:
        def remove_operator(registry_rows: RegistryRows) -> None:
            operator = _require_operator(registry_rows, email.strip().lower())
            now, before = self._changes.now(), {"role": operator.role}
            delete_operators(registry_rows, [operator], now)
            registry_rows.add_audit(now, actor, "operator.remove", operator.email, before=before)

        await self._changes.change_rows(remove_operator)

    async def sign_in(
        self, email: str, password: str, *, address: str, turn_name: str = ""
    ) -> tuple[str, SignInSession] | None:
        """
        Return a new session and its secret, or None for a wrong address or password, which takes as long.

        Password checks take turns by `turn_name`, or by client address.
        """
        try:
            operator = await self.get(email.strip().lower())
        except NotThere:
            operator = None
        password_hash = operator.password if operator else NOBODY
        async with self._guesses.hold_turn(turn_name or address):
            right = await asyncio.to_thread(is_matching_password, password[:4096], password_hash)
        if operator is None or operator.disabled or not right:
            return None
        known, secret = operator, secrets.token_urlsafe(32)
        session = self._new_session(
            secret, known.email, known.role, address, account=known.email, operator=True
        )

        def store_session_if_unchanged(registry_rows: RegistryRows) -> bool:
            # the account may have changed during the slow hash
            if registry_rows.find(Operator, known.email) != known:
                return False
            self._store_session(registry_rows, session, {"role": known.role})
            return True

        return (secret, session) if await self._changes.change_rows(store_session_if_unchanged) else None

    async def sign_in_person(
        self, person: Person, *, address: str, life_s: float, takes_over_accounts: bool
    ) -> tuple[str, SignInSession]:
        """
        Return a new session and its secret. An unknown person is added as an operator.

        Raises NotAllowed if the account is disabled, and AlreadyThere if the address belongs to another
        person or, without `takes_over_accounts`, to a Tollhouse account.
        """
        secret, now = secrets.token_urlsafe(32), self._changes.now()
        email = check_email(person.email)
        actor = Actor(email, address)

        def start_session(registry_rows: RegistryRows) -> SignInSession:
            roles = read_roles(registry_rows)
            operator = create_or_update_operator(
                registry_rows, roles, person, actor, now, takes_over_accounts=takes_over_accounts
            )
            session = replace(
                self._new_session(secret, email, operator.role, address, account=email, operator=True),
                ends_at=now + min(life_s, SESSION_LIFE_S),
                issuer=person.issuer,
                subject=person.subject,
                provider_session=person.session,
                groups=json.dumps(person.groups),
                refreshes=person.refreshes,
            )
            self._store_session(registry_rows, session, {"role": operator.role, "issuer": person.issuer})
            return session

        return secret, await self._changes.change_rows(start_session)

    async def find_by_token(
        self, issuer: str, subject: str, *, sign_in: str, issued_at: float
    ) -> Operator | None:
        """
        Return the operator of a provider's token.

        Raises TokenEnded if the tokens of this sign-in have ended, or the person's tokens issued until
        `issued_at`.
        """

        def find_operator(registry_rows: RegistryRows) -> Operator | None:
            if has_token_ended(registry_rows, issuer, subject, sign_in, issued_at=issued_at):
                raise TokenEnded("the sign-in behind this token has ended")
            matching = (
                operator
                for operator in registry_rows.all(Operator)
                if (operator.issuer, operator.subject) == (issuer, subject)
            )
            return next(matching, None)

        return await self._changes.read(find_operator)

    async def add_person(self, person: Person, *, address: str, takes_over_accounts: bool) -> Operator:
        email, now = check_email(person.email), self._changes.now()
        actor, known = Actor(email, address), replace(person, email=email)

        return await self._changes.change_rows(
            lambda rows: create_or_update_operator(
                rows, read_roles(rows), known, actor, now, takes_over_accounts=takes_over_accounts
            )
        )

    async def end_tokens(
        self, issuer: str, *, subject: str | None, sign_in: str | None, issued_by: float
    ) -> None:

        now = self._changes.now()

        def store_end_of_tokens(registry_rows: RegistryRows) -> None:
            if sign_in is not None:
                end_tokens_of_sign_in(registry_rows, issuer, sign_in, subject=subject, by=issued_by, now=now)
            elif subject is not None:
                end_tokens_of_person(registry_rows, issuer, subject, by=issued_by, now=now)

        await self._changes.change_rows(store_end_of_tokens)

    async def end_sessions_where(self, is_meant: Callable[[SignInSession], bool], *, actor: Actor) -> int:
        if not any(map(is_meant, await self._changes.read(lambda rows: rows.all(SignInSession)))):
            return 0

        def end_matching_sessions(registry_rows: RegistryRows) -> int:
            meant = [session for session in registry_rows.all(SignInSession) if is_meant(session)]
            for session in meant:
                self._delete_session(registry_rows, session, actor)
            return len(meant)

        return await self._changes.change_rows(end_matching_sessions)

    async def create_sign_in_link(self, *, role: str, actor: Actor, account: str = "") -> str:
        """
        Return a secret that signs in once, within ten minutes, under the actor's name. It also ends with the
        `account` that created it.
        """
        secret = secrets.token_urlsafe(32)
        now = self._changes.now()
        link = ConsoleLink(
            digest=self._secret_digest(secret),
            actor=actor.name,
            role=check_account_role(role),
            ends_at=now + LINK_LIFE_S,
            account=account,
        )

        def store_sign_in_link(registry_rows: RegistryRows) -> None:
            registry_rows.delete_links_before(now)
            registry_rows.store_row(link)
            registry_rows.add_audit(now, actor, "console.link", actor.name, after={"role": role})

        await self._changes.change_rows(store_sign_in_link)
        return secret

    async def sign_in_by_link(self, secret: str, *, address: str) -> tuple[str, SignInSession] | None:
        """
        Begin a session by the secret of a link. Return the session and its secret, or None if the link is
        unknown, used or expired.
        """
        begun = secrets.token_urlsafe(32)

        def take_link_and_sign_in(registry_rows: RegistryRows) -> SignInSession | None:
            link = registry_rows.find_and_delete_sign_in_link(self._secret_digest(secret))
            if link is None or link.ends_at <= self._changes.now():
                return None
            session = self._new_session(
                begun, link.actor, link.role, address, account=link.account, operator=False
            )
            self._store_session(registry_rows, session, {"role": link.role})
            return session

        session = await self._changes.change_rows(take_link_and_sign_in)
        return None if session is None else (begun, session)

    async def find_and_extend_session(self, secret: str) -> SignInSession | None:
        """Return the session with this cookie, and extend it. Return None if it is unknown or expired."""
        digest, now = self._secret_digest(secret), self._changes.now()
        session = await self._changes.read(lambda rows: rows.find(SignInSession, digest))
        if session is None:
            return None
        if session.has_expired(now):
            await self.sign_out(session)
            return None
        if now - session.seen_at > _SEEN_EVERY_S:
            await self._changes.change_rows(lambda rows: rows.store_session_seen_at(digest, now))
        return session

    async def is_session_live(self, session: SignInSession) -> bool:
        now = self._changes.now()
        stored_session = await self._changes.read(lambda rows: rows.find(SignInSession, session.digest))
        return stored_session is not None and not stored_session.has_expired(now)

    async def sign_out(self, session: SignInSession, *, actor: Actor | None = None) -> None:
        """End a session. Without an actor, it has expired, and no audit row is written."""
        await self._changes.change_rows(lambda rows: self._delete_session(rows, session, actor))

    async def live_sessions(self) -> Sequence[SignInSession]:
        now = self._changes.now()
        return [
            session
            for session in await self._changes.read(lambda rows: rows.all(SignInSession))
            if not session.has_expired(now)
        ]

    async def check_claim_ends_by_session(self) -> Mapping[bytes, float]:
        """
        Return by session when a claim ends. The process with the claim checks at the provider whether the
        person may still sign in.
        """
        documents = await self._changes.read(lambda rows: rows.documents(CHECK_KIND))
        return {bytes.fromhex(id): float(body["until"]) for id, body in documents.items()}

    async def claim_provider_check(self, session: SignInSession, *, until: float) -> bool:
        """
        Note that this process checks the session with the OpenID provider until a time, so that no other
        process does. Return False if the session has ended.
        """
        own = session.digest.hex()

        def store_claimed_check(registry_rows: RegistryRows) -> bool:
            existing = {session.digest.hex() for session in registry_rows.all(SignInSession)}
            for id in registry_rows.documents(CHECK_KIND).keys() - existing:
                registry_rows.delete_document(CHECK_KIND, id)
            if own in existing:
                registry_rows.put_document(CHECK_KIND, own, {"until": until})
            return own in existing

        return await self._changes.change_rows(store_claimed_check)

    async def end_session(self, id: str, *, actor: Actor) -> None:
        def end_session_row(registry_rows: RegistryRows) -> None:
            match = next((session for session in registry_rows.all(SignInSession) if session.id == id), None)
            if match is None:
                raise NotThere("no session has this id; it may have expired")
            self._delete_session(registry_rows, match, actor)

        await self._changes.change_rows(end_session_row)

    def _new_session(
        self, secret: str, actor: str, role: str, address: str, *, account: str, operator: bool
    ) -> SignInSession:
        now = self._changes.now()
        return SignInSession(
            digest=self._secret_digest(secret),
            actor=actor,
            role=role,
            csrf=secrets.token_urlsafe(32),
            created_at=now,
            seen_at=now,
            operator=operator,
            account=account,
            address=address,
            ends_at=now + SESSION_LIFE_S,
        )

    def _delete_session(
        self, registry_rows: RegistryRows, session: SignInSession, actor: Actor | None
    ) -> None:
        registry_rows.delete(SignInSession, session.digest)
        if actor is not None:
            before = {"role": session.role}
            registry_rows.add_audit(self._changes.now(), actor, "session.end", session.actor, before=before)

    def _store_session(
        self, registry_rows: RegistryRows, session: SignInSession, audited_values: Mapping[str, object]
    ) -> None:
        now = self._changes.now()
        registry_rows.delete_sessions_before(created_at=now - SESSION_LIFE_S, seen_at=now - SESSION_IDLE_S)
        registry_rows.store_row(session)
        actor = Actor(session.actor, session.address)
        registry_rows.add_audit(now, actor, "session.begin", session.actor, after=audited_values)

    def _secret_digest(self, secret: str) -> bytes:
        return blake2b(secret.encode("utf-8", "surrogatepass"), key=self._pepper, digest_size=32).digest()


def delete_operators(registry_rows: RegistryRows, operators: Sequence[Operator], now: float) -> None:
    """Delete operators. Raises NotAllowed if no enabled Admin would be left."""
    organizers = _read_admins(registry_rows)
    for operator in operators:
        registry_rows.delete(Operator, operator.email)
    require_remaining_admin(organizers, _read_admins(registry_rows))
    for operator in operators:
        registry_rows.delete_sessions_of(operator.email)
        # only a later sign-in may create the operator again, not an existing token
        if operator.issuer:
            end_tokens_of_person(
                registry_rows, operator.issuer, operator.subject, by=now + _OTHER_CLOCK_S, now=now
            )


def _read_admins(registry_rows: RegistryRows) -> frozenset[str]:
    return read_roles(registry_rows).enabled_admins(registry_rows.all(Operator))


def _require_operator(registry_rows: RegistryRows, email: str) -> Operator:
    operator = registry_rows.find(Operator, email)
    if operator is None:
        raise NotThere("no operator has this e-mail address")
    return operator
