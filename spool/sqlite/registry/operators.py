"""The operators of a registry, their sessions and one-time console links; every change with its audit row."""

from __future__ import annotations

import asyncio
import secrets
import sqlite3
from dataclasses import replace
from hashlib import blake2b

from spool.errors import AlreadyThere, NotThere
from spool.registry.operators import (
    LINK_LIFE_S,
    NOBODY,
    SESSION_IDLE_S,
    SESSION_LIFE_S,
    Actor,
    Operator,
    Session,
    checked_email,
    checked_password,
    checked_role,
    hashed,
    matches,
)
from spool.sqlite.registry.file import RegistryFile, audit

_INSERT = """
    INSERT INTO operators (email, role, password, created_by, created_at, last_modified)
    VALUES (:email, :role, :password, :created_by, :created_at, :last_modified)
    ON CONFLICT DO NOTHING RETURNING email"""
_UPDATE = "UPDATE operators SET role = :role, password = :password, last_modified = :last_modified WHERE email = :email"
_INSERT_SESSION = """
    INSERT INTO sessions (digest, actor, role, csrf, created_at, seen_at, operator)
    VALUES (:digest, :actor, :role, :csrf, :created_at, :seen_at, :operator)"""
_OVER = "DELETE FROM sessions WHERE created_at <= :created_at OR seen_at <= :seen_at"
_SEEN_EVERY_S = 60.0


class OperatorTable:
    """Who may sign in, and who is signed in."""

    def __init__(self, file: RegistryFile) -> None:
        self._file = file
        self._pepper = file.secret("sessions and links")
        # A guess costs 32 MiB and a fraction of a second: two at a time, whoever asks.
        self._guesses = asyncio.Semaphore(2)

    async def all(self) -> list[Operator]:
        [rows] = await self._file.select([("SELECT * FROM operators ORDER BY email", ())])
        return [Operator(**dict(row)) for row in rows]

    async def get(self, email: str) -> Operator:
        [rows] = await self._file.select([("SELECT * FROM operators WHERE email = ?", (email,))])
        if not rows:
            raise NotThere("there is no operator with this e-mail address")
        return Operator(**dict(rows[0]))

    async def add(self, email: str, *, role: str, password: str, actor: Actor) -> Operator:
        now = self._file.clock.now()
        operator = Operator(
            email=checked_email(email),
            role=checked_role(role),
            password=await asyncio.to_thread(hashed, checked_password(password)),
            created_by=actor.name,
            created_at=now,
            last_modified=now,
        )

        def work(connection: sqlite3.Connection) -> Operator:
            if connection.execute(_INSERT, _row(operator)).fetchone() is None:
                raise AlreadyThere("an operator with this e-mail address already exists")
            audit(connection, actor, now, "operator.add", operator.email, None, {"role": operator.role})
            return operator

        return await self._file.change(work, lambda _: None)

    async def change(
        self, email: str, *, role: str | None = None, password: str | None = None, actor: Actor
    ) -> Operator:
        """A new role or password ends every session of the operator."""
        if role is not None:
            checked_role(role)
        digest = None if password is None else await asyncio.to_thread(hashed, checked_password(password))
        now = self._file.clock.now()

        def work(connection: sqlite3.Connection) -> Operator:
            before = _read(connection, email)
            after = replace(before, role=role or before.role, password=digest or before.password, last_modified=now)
            connection.execute(_UPDATE, _row(after))
            _sign_out(connection, before.email)
            what = "operator.password" if digest else "operator.role"
            audit(connection, actor, now, what, before.email, {"role": before.role}, {"role": after.role})
            return after

        return await self._file.change(work, lambda _: None)

    async def remove(self, email: str, *, actor: Actor) -> None:
        def work(connection: sqlite3.Connection) -> None:
            operator = _read(connection, email)
            connection.execute("DELETE FROM operators WHERE email = ?", (operator.email,))
            _sign_out(connection, operator.email)
            audit(connection, actor, self._file.clock.now(), "operator.remove", operator.email, {"role": operator.role})

        await self._file.change(work, lambda _: None)

    async def sign_in(self, email: str, password: str, *, address: str) -> tuple[str, Session] | None:
        """A new session and its secret; None when e-mail or password is wrong, after the same time for both."""
        try:
            operator = await self.get(email.strip().lower())
        except NotThere:
            operator = None
        async with self._guesses:
            right = await asyncio.to_thread(matches, password[:4096], operator.password if operator else NOBODY)
        if operator is None or not right:
            return None
        return await self._begin(operator.email, operator.role, address, operator=True)

    async def link(self, *, role: str, actor: Actor) -> str:
        """The secret of a link that signs its bearer in once, within ten minutes, under the actor's name."""
        secret = secrets.token_urlsafe(32)
        now = self._file.clock.now()

        def work(connection: sqlite3.Connection) -> None:
            connection.execute("DELETE FROM links WHERE ends_at <= ?", (now,))
            row = (self._digest(secret), actor.name, checked_role(role), now + LINK_LIFE_S)
            connection.execute("INSERT INTO links VALUES (?, ?, ?, ?)", row)
            audit(connection, actor, now, "console.link", actor.name, None, {"role": role})

        await self._file.change(work, lambda _: None)
        return secret

    async def follow(self, link: str, *, address: str) -> tuple[str, Session] | None:
        """Use a link up; None when it is unknown, used or too old."""

        def work(connection: sqlite3.Connection) -> sqlite3.Row | None:
            row: sqlite3.Row | None = connection.execute(
                "DELETE FROM links WHERE digest = ? RETURNING *", (self._digest(link),)
            ).fetchone()
            return row

        row = await self._file.change(work, lambda _: None)
        if row is None or row["ends_at"] <= self._file.clock.now():
            return None
        return await self._begin(row["actor"], row["role"], address, operator=False)

    async def session(self, secret: str) -> Session | None:
        """The session behind a cookie, kept alive by being asked for; None when there is none or it is over."""
        digest, now = self._digest(secret), self._file.clock.now()
        [rows] = await self._file.select([("SELECT * FROM sessions WHERE digest = ?", (digest,))])
        if not rows:
            return None
        session = _session(rows[0])
        if session.is_over(now):
            await self.sign_out(session)
            return None
        if now - session.seen_at > _SEEN_EVERY_S:
            await self._file.change(
                lambda connection: (
                    connection.execute("UPDATE sessions SET seen_at = ? WHERE digest = ?", (now, digest)).rowcount
                ),
                lambda _: None,
            )
        return session

    async def sign_out(self, session: Session) -> None:
        await self._file.change(
            lambda connection: connection.execute("DELETE FROM sessions WHERE digest = ?", (session.digest,)).rowcount,
            lambda _: None,
        )

    async def _begin(self, actor: str, role: str, address: str, *, operator: bool) -> tuple[str, Session]:
        secret = secrets.token_urlsafe(32)
        now = self._file.clock.now()
        session = Session(
            digest=self._digest(secret),
            actor=actor,
            role=role,
            csrf=secrets.token_urlsafe(32),
            created_at=now,
            seen_at=now,
            operator=operator,
        )

        def work(connection: sqlite3.Connection) -> None:
            connection.execute(_OVER, {"created_at": now - SESSION_LIFE_S, "seen_at": now - SESSION_IDLE_S})
            connection.execute(_INSERT_SESSION, {name: getattr(session, name) for name in _SESSION})
            audit(connection, Actor(actor, address), now, "session.begin", actor, None, {"role": role})

        await self._file.change(work, lambda _: None)
        return secret, session

    def _digest(self, secret: str) -> bytes:
        return blake2b(secret.encode("utf-8", "surrogatepass"), key=self._pepper, digest_size=32).digest()


_SESSION = ("digest", "actor", "role", "csrf", "created_at", "seen_at", "operator")


def _read(connection: sqlite3.Connection, email: str) -> Operator:
    row = connection.execute("SELECT * FROM operators WHERE email = ?", (email.strip().lower(),)).fetchone()
    if row is None:
        raise NotThere("there is no operator with this e-mail address")
    return Operator(**dict(row))


def _sign_out(connection: sqlite3.Connection, email: str) -> None:
    connection.execute("DELETE FROM sessions WHERE operator AND actor = ?", (email,))


def _session(row: sqlite3.Row) -> Session:
    return Session(**{**dict(row), "operator": bool(row["operator"])})


def _row(operator: Operator) -> dict[str, object]:
    return {
        name: getattr(operator, name)
        for name in ("email", "role", "password", "created_by", "created_at", "last_modified")
    }
