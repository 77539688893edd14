"""Accounts of the console (operators), sessions and one-time console links: rules and hashes. Pure."""

from __future__ import annotations

import hmac
import re
import secrets
import unicodedata
from dataclasses import dataclass, field
from hashlib import scrypt

from spool.errors import Invalid
from spool.log.partial_reports import ExpectedVersion

NO_ROLE, VIEWER, OPERATOR, ADMIN = "none", "viewer", "operator", "admin"
ENABLED, DISABLED = "Enabled", "Disabled"
# each role has the rights of the roles before it; spool.registry.roles explains NO_ROLE
ROLES = (NO_ROLE, VIEWER, OPERATOR, ADMIN)

MIN_PASSWORD = 12
MAX_PASSWORD = 1024
LINK_LIFE_S = 600.0
SESSION_LIFE_S = 12 * 3600.0
SESSION_IDLE_S = 3600.0
# seconds for which a provider's token may live, and for which its end is recorded
MAX_TOKEN_LIFE_S = 7 * 86_400.0

# A guess costs 32 MiB and about 0.2 s (OWASP's figures for passwords). The figures are stored with each hash,
# so they can be raised.
SCRYPT_N, SCRYPT_R, SCRYPT_P = 2**15, 8, 3
# A hash that matches no password. It is checked for an unknown account, so that a guess takes as long as for
# a known one.
NOBODY = f"scrypt${SCRYPT_N}${SCRYPT_R}${SCRYPT_P}${'00' * 16}${'00' * 32}".encode()
_EMAIL = re.compile(r"[^\s@<>\"]{1,64}@[^\s@<>\"]{1,189}")


@dataclass(frozen=True, slots=True)
class Actor:
    """
    The author of a change, for the audit list.

    `expects`: on shared storage, the expectation that the author's key is still valid; if it is not, the
    change is rejected. `is_key`: the author is a key, so limits for keys apply
    (spool.registry.document_table).
    """

    name: str
    address: str
    expects: tuple[ExpectedVersion, ...] = field(default=(), compare=False, repr=False)
    is_key: bool = field(default=False, compare=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class Operator:
    email: str
    role: str
    created_by: str
    created_at: float
    last_modified: float
    password: bytes = field(repr=False)
    disabled: bool = False  # the operator cannot sign in by any method
    issuer: str = ""  # OpenID provider, "" for a Tollhouse account
    subject: str = ""  # id of the account at the provider


@dataclass(frozen=True, slots=True, kw_only=True)
class Person:
    """
    A person as signed in at an OpenID provider and checked. `session`: the provider's id of the sign-in.
    """

    email: str
    role: str
    decides_role: bool  # whether the provider decides the role; otherwise the account does
    # whether a group gives the role, and not the default
    is_mapped: bool = False
    issuer: str
    subject: str
    session: str = ""
    groups: tuple[str, ...] = ()
    refreshes: bool = False  # whether Tollhouse regularly asks the provider if the sign-in is still valid


@dataclass(frozen=True, slots=True, kw_only=True)
class SignInSession:
    """
    A signed-in browser. `csrf`: the token that every change must contain. Only a keyed hash of the cookie is
    stored.
    """

    digest: bytes = field(repr=False)
    actor: str
    role: str
    csrf: str = field(repr=False)
    created_at: float
    seen_at: float
    operator: bool  # whether the person signed in with an account, and not with a console link
    # account that can end the session; "" for a link from the operator socket
    account: str
    address: str  # client address at sign-in
    ends_at: float  # time at which the session ends even if it is in use
    issuer: str = ""  # OpenID provider, "" for a password or a link
    subject: str = ""  # id of the person at the provider
    # id by which the provider can end the session
    provider_session: str = ""
    groups: str = "[]"  # groups at the provider, a JSON list
    refreshes: bool = False  # as in `Person`: whether Tollhouse asks the provider again

    @property
    def id(self) -> str:
        """Return a part of the digest as an id, which does not reveal the secret."""
        return self.digest[:8].hex()

    def has_expired(self, now: float) -> bool:
        return now >= self.ends_at or now >= self.seen_at + SESSION_IDLE_S


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsoleLink:
    """A link that signs in once, under its creator's name. Only a keyed hash of it is stored."""

    digest: bytes = field(repr=False)
    actor: str
    role: str
    ends_at: float
    # account with whose end the link ends; "" for the operator socket
    account: str


def operator_status(operator: Operator) -> str:
    return DISABLED if operator.disabled else ENABLED


def check_email(email: str) -> str:
    """
    Return the address in lower case, because addresses that differ in case are one account. Raises Invalid
    for any other text.
    """
    email = unicodedata.normalize("NFC", email.strip()).lower()
    if not is_email(email):
        raise Invalid("an operator name must be an e-mail address, such as ada@example.com")
    return email


def is_email(text: str) -> bool:
    return _EMAIL.fullmatch(text) is not None and text.isprintable()


def check_account_role(role: str) -> str:
    if role not in ROLES:
        raise Invalid("role must be one of " + ", ".join(ROLES))
    return role


def check_password(password: str) -> str:
    if not MIN_PASSWORD <= len(password) <= MAX_PASSWORD:
        raise Invalid(f"a password must have {MIN_PASSWORD} to {MAX_PASSWORD} characters")
    return password


def hash_password(password: str) -> bytes:
    """Hash a password. Call this off the event loop, because it is slow on purpose."""
    salt = secrets.token_bytes(16)
    digest = _hash_password(password, salt, SCRYPT_N, SCRYPT_R, SCRYPT_P)
    return f"scrypt${SCRYPT_N}${SCRYPT_R}${SCRYPT_P}${salt.hex()}${digest.hex()}".encode()


def is_matching_password(password: str, kept: bytes) -> bool:
    """Check a password in constant time. Call this off the event loop, because it is slow on purpose."""
    _, n, r, p, salt, digest = kept.decode().split("$")
    computed = _hash_password(password, bytes.fromhex(salt), int(n), int(r), int(p))
    return hmac.compare_digest(computed, bytes.fromhex(digest))


def _hash_password(password: str, salt: bytes, n: int, r: int, p: int) -> bytes:
    text = unicodedata.normalize("NFKC", password).encode("utf-8", "surrogatepass")
    return scrypt(text, salt=salt, n=n, r=r, p=p, maxmem=256 * n * r + 2**20, dklen=32)
