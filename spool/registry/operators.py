"""Operator accounts, their sessions and one-time console links: rules and hashes. Pure."""

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
# each role may do everything that the roles before it may; spool.registry.roles explains NO_ROLE
ROLES = (
    NO_ROLE,
    VIEWER,
    OPERATOR,
    ADMIN,
)

MIN_PASSWORD = 12
MAX_PASSWORD = 1024
LINK_LIFE_S = 600.0
SESSION_LIFE_S = 12 * 3600.0
SESSION_IDLE_S = 3600.0
# maximum life of a provider's token, in seconds; the record of an ended token is stored for the same time
MAX_TOKEN_LIFE_S = 7 * 86_400.0

# Scrypt parameters, which make a guess cost 32 MiB and about 0.2 s (OWASP's figures for password storage).
# They are stored with each hash, so they can be raised later.
SCRYPT_N, SCRYPT_R, SCRYPT_P = 2**15, 8, 3
# Hash that no password matches. It is checked if the account is unknown, so that a guess takes as long as for
# a known account.
NOBODY = f"scrypt${SCRYPT_N}${SCRYPT_R}${SCRYPT_P}${'00' * 16}${'00' * 32}".encode()
_EMAIL = re.compile(r"[^\s@<>\"]{1,64}@[^\s@<>\"]{1,189}")


@dataclass(frozen=True, slots=True)
class Actor:
    """
    The person or key that makes a change, with the address, as the audit list shows them.

    `expects`: for a key on shared storage, the expectation that the key is still valid. If it
    fails, the change is rejected. `is_key`: the actor is a key, which may use only its share of
    each limit (spool.registry.document_table).
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
    disabled: bool = False  # the person may not sign in by any method
    issuer: str = ""  # the OpenID provider of this person; "" for an account of Tollhouse itself
    subject: str = ""  # the person's id at the provider


@dataclass(frozen=True, slots=True, kw_only=True)
class Person:
    """
    A person who signed in at an OpenID provider, after all checks. `session` is the provider's id of the sign-in.
    """

    email: str
    role: str
    decides_role: bool  # True if the provider decides the role, False if the operator account does
    # True if the role comes from one of the person's groups, False if it is the default role
    is_mapped: bool = False
    issuer: str
    subject: str
    session: str = ""
    groups: tuple[str, ...] = ()
    refreshes: bool = False  # Tollhouse regularly asks the provider whether the sign-in is still valid


@dataclass(frozen=True, slots=True, kw_only=True)
class Session:
    """
    A browser in which a person is signed in. `csrf` must accompany every change. Of the cookie's secret, only
    a keyed hash is stored.
    """

    digest: bytes = field(repr=False)
    actor: str
    role: str
    csrf: str = field(repr=False)
    created_at: float
    seen_at: float
    operator: bool  # True if the session began with an account, False if it began with a console link
    # the account that owns the session and can end it; "" for a link that was made on the operator socket
    account: str
    address: str  # the client address at sign-in
    ends_at: float  # time at which the session ends even if it is in use
    issuer: str = ""  # the OpenID provider that signed the person in; "" for a password or a link
    subject: str = ""  # the person's id at the provider
    # the provider's id of the sign-in, with which the provider can end the session
    provider_session: str = ""
    groups: str = "[]"  # the person's groups at the provider, as a JSON list
    refreshes: bool = False  # same meaning as in Person

    @property
    def id(self) -> str:
        """Return the session's id for lists and requests. It does not reveal the secret."""
        return self.digest[:8].hex()

    def is_over(self, now: float) -> bool:
        return now >= self.ends_at or now >= self.seen_at + SESSION_IDLE_S


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsoleLink:
    """
    A link that signs a person in once, under the actor's name. Of its secret, only a keyed hash is stored.
    """

    digest: bytes = field(repr=False)
    actor: str
    role: str
    ends_at: float
    # the account that made the link; if the account ends, the link ends; "" if the link was made on
    # the operator socket
    account: str


def operator_status(operator: Operator) -> str:
    return DISABLED if operator.disabled else ENABLED


def check_email(email: str) -> str:
    """
    Return the address in lower case without surrounding spaces, so that upper and lower case are one account.
    Raises Invalid if the text is not an e-mail address.
    """
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


def hash_password(password: str) -> bytes:
    """
    Return the scrypt hash of a password, with its parameters and salt. Slow on purpose, so call it off
    the event loop.
    """
    salt = secrets.token_bytes(16)
    digest = _scrypt(password, salt, SCRYPT_N, SCRYPT_R, SCRYPT_P)
    return f"scrypt${SCRYPT_N}${SCRYPT_R}${SCRYPT_P}${salt.hex()}${digest.hex()}".encode()


def is_matching_password(password: str, kept: bytes) -> bool:
    """
    Return True if the password matches the hash. The comparison takes constant time. Slow on purpose, so call
    it off the event loop.
    """
    _, n, r, p, salt, digest = kept.decode().split("$")
    computed = _scrypt(password, bytes.fromhex(salt), int(n), int(r), int(p))
    return hmac.compare_digest(computed, bytes.fromhex(digest))


def _scrypt(password: str, salt: bytes, n: int, r: int, p: int) -> bytes:
    text = unicodedata.normalize("NFKC", password).encode("utf-8", "surrogatepass")
    return scrypt(text, salt=salt, n=n, r=r, p=p, maxmem=256 * n * r + 2**20, dklen=32)
