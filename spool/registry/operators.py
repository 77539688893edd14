"""Operator accounts, their sessions and one-time console links: rules and hashes. Pure: no I/O."""

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
)  # each role may do everything that the earlier ones may; for NO_ROLE see spool.registry.roles

MIN_PASSWORD = 12
MAX_PASSWORD = 1024
LINK_LIFE_S = 600.0
SESSION_LIFE_S = 12 * 3600.0
SESSION_IDLE_S = 3600.0
# maximum life of a provider's token; records of ended tokens are stored for this long
MAX_TOKEN_LIFE_S = 7 * 86_400.0

# Cost per guess: 32 MiB and about 0.2 s (OWASP's figures for password storage). They are stored with each
# hash, so they can be raised later.
SCRYPT_N, SCRYPT_R, SCRYPT_P = 2**15, 8, 3
# Hash that no password matches. A guess at an unknown account takes as long as at a known one.
NOBODY = f"scrypt${SCRYPT_N}${SCRYPT_R}${SCRYPT_P}${'00' * 16}${'00' * 32}".encode()
_EMAIL = re.compile(r"[^\s@<>\"]{1,64}@[^\s@<>\"]{1,189}")


@dataclass(frozen=True, slots=True)
class Actor:
    """
    The person or key that makes a change, and its address, as the audit list shows it.

    `expects`: for a key on shared storage, the expectation that it is still valid; otherwise the change is
    rejected. `is_key`: a key, which may use only its share of each limit (spool.registry.document_table).
    """

    name: str
    address: str
    expects: tuple[Expectation, ...] = field(default=(), compare=False, repr=False)
    is_key: bool = field(default=False, compare=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class Operator:
    """A person with an account. Only the scrypt hash of the password is stored."""

    email: str
    role: str
    created_by: str
    created_at: float
    last_modified: float
    password: bytes = field(repr=False)
    disabled: bool = False  # may not sign in by any method
    issuer: str = ""  # the OpenID provider of this person; "" for an account of Tollhouse itself
    subject: str = ""  # the person's id at the provider


@dataclass(frozen=True, slots=True, kw_only=True)
class Person:
    """
    A person who signed in at an OpenID provider, after all checks. `session` is the provider's id of the sign-in.
    """

    email: str
    role: str
    decides_role: bool  # the provider decides the role, not the operator's account
    # the role comes from one of the person's groups, not from the default role
    is_mapped: bool = False
    issuer: str
    subject: str
    session: str = ""
    groups: tuple[str, ...] = ()
    refreshes: bool = False  # the provider is asked regularly whether the sign-in is still valid


@dataclass(frozen=True, slots=True, kw_only=True)
class Session:
    """
    A signed-in browser. `csrf` must accompany every change. Only a keyed hash of the cookie's secret is stored.
    """

    digest: bytes = field(repr=False)
    actor: str
    role: str
    csrf: str = field(repr=False)
    created_at: float
    seen_at: float
    operator: bool  # began with an account, not with a console link
    account: str  # the account that owns it and ends it; "" for a link made on the operator socket
    address: str  # the client address at sign-in
    ends_at: float  # ends then, even if it is in use
    issuer: str = ""  # the OpenID provider that signed the person in; "" for a password or a link
    subject: str = ""  # the person's id at the provider
    provider_session: str = ""  # the provider's id of the sign-in, with which the provider can end it
    groups: str = "[]"  # the person's groups at the provider, a JSON list
    refreshes: bool = False  # see Person

    @property
    def id(self) -> str:
        """Return the id for lists and calls. It does not reveal the secret."""
        return self.digest[:8].hex()

    def is_over(self, now: float) -> bool:
        return now >= self.ends_at or now >= self.seen_at + SESSION_IDLE_S


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsoleLink:
    """
    A link that signs a person in once, under the actor's name. Only a keyed hash of its secret is stored.
    """

    digest: bytes = field(repr=False)
    actor: str
    role: str
    ends_at: float
    account: str  # the account that made it; the link ends with it; "" on the operator socket


def status(operator: Operator) -> str:
    return DISABLED if operator.disabled else ENABLED


def check_email(email: str) -> str:
    """Return the address trimmed and in lower case, so that one person has one account."""
    email = unicodedata.normalize("NFC", email.strip()).lower()
    if not is_email(email):
        raise Invalid("an operator name must be an e-mail address, such as ada@example.com")
    return email


def is_email(text: str) -> bool:
    return _EMAIL.fullmatch(text) is not None and text.isprintable()


def check_role(role: str) -> str:
    if role not in ROLES:
        raise Invalid("role must be one of " + ", ".join(ROLES))
    return role


def check_password(password: str) -> str:
    if not MIN_PASSWORD <= len(password) <= MAX_PASSWORD:
        raise Invalid(f"a password must have {MIN_PASSWORD} to {MAX_PASSWORD} characters")
    return password


def hashed(password: str) -> bytes:
    """
    Return the scrypt hash of a password with its costs and salt. Slow on purpose: call it off the event loop.
    """
    salt = secrets.token_bytes(16)
    digest = _scrypt(password, salt, SCRYPT_N, SCRYPT_R, SCRYPT_P)
    return f"scrypt${SCRYPT_N}${SCRYPT_R}${SCRYPT_P}${salt.hex()}${digest.hex()}".encode()


def matches(password: str, kept: bytes) -> bool:
    """
    Return True if the password matches the hash, in constant time. Slow on purpose: call it off the event loop.
    """
    _, n, r, p, salt, digest = kept.decode().split("$")
    computed = _scrypt(password, bytes.fromhex(salt), int(n), int(r), int(p))
    return hmac.compare_digest(computed, bytes.fromhex(digest))


def _scrypt(password: str, salt: bytes, n: int, r: int, p: int) -> bytes:
    text = unicodedata.normalize("NFKC", password).encode("utf-8", "surrogatepass")
    return scrypt(text, salt=salt, n=n, r=r, p=p, maxmem=256 * n * r + 2**20, dklen=32)
