"""Operator accounts, their sessions and one-time console links: rules and hashes. Pure: no file, no protocol."""

from __future__ import annotations

import hmac
import re
import secrets
import unicodedata
from dataclasses import dataclass, field
from hashlib import scrypt

from spool.errors import Invalid
from spool.log.partial_reports import Expectation

NO_ROLE, VIEWER, OPERATOR, ADMIN = "none", "viewer", "operator", "admin"
ENABLED, DISABLED = "Enabled", "Disabled"
ROLES = (
    NO_ROLE,
    VIEWER,
    OPERATOR,
    ADMIN,
)  # each may do what the ones before it may; NO_ROLE: see spool.registry.roles

MIN_PASSWORD = 12
MAX_PASSWORD = 1024
LINK_LIFE_S = 600.0
SESSION_LIFE_S = 12 * 3600.0
SESSION_IDLE_S = 3600.0
MAX_TOKEN_LIFE_S = 7 * 86_400.0  # of a provider's token: what ended one before its time is kept for so long

# 32 MiB and about 0.2 s a guess (OWASP's password storage figures); kept beside each hash, so they can be
# raised.
SCRYPT_N, SCRYPT_R, SCRYPT_P = 2**15, 8, 3
# The hash of no password at all: guessing at an account that does not exist takes as long as at one that
# does.
NOBODY = f"scrypt${SCRYPT_N}${SCRYPT_R}${SCRYPT_P}${'00' * 16}${'00' * 32}".encode()
_EMAIL = re.compile(r"[^\s@<>\"]{1,64}@[^\s@<>\"]{1,189}")


@dataclass(frozen=True, slots=True)
class Actor:
    """
    Who changes something, and from where, as the audit list shows it.

    `expects`: of a key, that it is still good; else nothing is changed, where other processes may end it.
    `is_key`: no person, so that it has a share of what is one for all (spool.registry.document_table).
    """

    name: str
    address: str
    expects: tuple[Expectation, ...] = field(default=(), compare=False, repr=False)
    is_key: bool = field(default=False, compare=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class Operator:
    """A person with an account. The password is kept as its scrypt hash alone."""

    email: str
    role: str
    created_by: str
    created_at: float
    last_modified: float
    password: bytes = field(repr=False)
    disabled: bool = False  # may not sign in, in whatever way
    issuer: str = ""  # the OpenID provider whose person this is; "" for an account of Tollhouse's own
    subject: str = ""  # the person's id there


@dataclass(frozen=True, slots=True, kw_only=True)
class Person:
    """Who an OpenID provider says has signed in, once all of it was checked; `session` is its id of the sign-in."""

    email: str
    role: str
    decides_role: bool  # the role is the provider's to say, and not the list of operators'
    # the role is that of one of the groups, not the one that a person without such a group has
    is_mapped: bool = False
    issuer: str
    subject: str
    session: str = ""
    groups: tuple[str, ...] = ()
    refreshes: bool = False  # the provider is asked from time to time whether the person may go on


@dataclass(frozen=True, slots=True, kw_only=True)
class Session:
    """A signed-in browser. `csrf` goes with every change; the cookie's secret is kept as a keyed hash alone."""

    digest: bytes = field(repr=False)
    actor: str
    role: str
    csrf: str = field(repr=False)
    created_at: float
    seen_at: float
    operator: bool  # begun with an account's password, not with a console link
    account: str  # the account behind it, which it ends with; "" for a link made on the operator socket
    address: str  # where it was begun
    ends_at: float  # however busy
    issuer: str = ""  # the OpenID provider that signed the person in; "" for a password or a link
    subject: str = ""  # the person's id there
    provider_session: str = ""  # and the id of the sign-in, by which the provider ends it
    groups: str = "[]"  # the person's groups there, a JSON list
    refreshes: bool = False  # see Person

    @property
    def id(self) -> str:
        """Names it in lists and calls; the secret cannot be told from it."""
        return self.digest[:8].hex()

    def is_over(self, now: float) -> bool:
        return now >= self.ends_at or now >= self.seen_at + SESSION_IDLE_S


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsoleLink:
    """A link that signs its bearer in once, under the actor's name; its secret is kept as a keyed hash alone."""

    digest: bytes = field(repr=False)
    actor: str
    role: str
    ends_at: float
    account: str  # the account that made it, which it ends with; "" on the operator socket


def status(operator: Operator) -> str:
    return DISABLED if operator.disabled else ENABLED


def check_email(email: str) -> str:
    """Trimmed and in small letters: one person has one account."""
    email = unicodedata.normalize("NFC", email.strip()).lower()
    if not is_email(email):
        raise Invalid("an operator is named by an e-mail address, such as ada@example.com")
    return email


def is_email(text: str) -> bool:
    return _EMAIL.fullmatch(text) is not None and text.isprintable()


def check_role(role: str) -> str:
    if role not in ROLES:
        raise Invalid("a role is one of " + ", ".join(ROLES))
    return role


def check_password(password: str) -> str:
    if not MIN_PASSWORD <= len(password) <= MAX_PASSWORD:
        raise Invalid(f"a password has {MIN_PASSWORD} to {MAX_PASSWORD} characters")
    return password


def hashed(password: str) -> bytes:
    """Costs and salt with the hash; slow on purpose: call it off the loop."""
    salt = secrets.token_bytes(16)
    digest = _scrypt(password, salt, SCRYPT_N, SCRYPT_R, SCRYPT_P)
    return f"scrypt${SCRYPT_N}${SCRYPT_R}${SCRYPT_P}${salt.hex()}${digest.hex()}".encode()


def matches(password: str, kept: bytes) -> bool:
    """True if a password is the one behind a hash, in constant time; slow on purpose: call it off the loop."""
    _, n, r, p, salt, digest = kept.decode().split("$")
    found = _scrypt(password, bytes.fromhex(salt), int(n), int(r), int(p))
    return hmac.compare_digest(found, bytes.fromhex(digest))


def _scrypt(password: str, salt: bytes, n: int, r: int, p: int) -> bytes:
    text = unicodedata.normalize("NFKC", password).encode("utf-8", "surrogatepass")
    return scrypt(text, salt=salt, n=n, r=r, p=p, maxmem=256 * n * r + 2**20, dklen=32)
