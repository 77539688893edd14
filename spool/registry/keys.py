"""
API keys and their rules (published interface, parts 2.1, 3.1 and 8). Pure.

Names are trimmed and NFC-normalized, and must differ in more than case, so that nobody deletes `prod` instead
of `Prod`. Lookups are exact.
"""

from __future__ import annotations

import difflib
import re
import secrets
import unicodedata
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace

from spool.errors import Invalid
from spool.registry.documents import row_version
from spool.registry.scopes import GROUPS, SCOPES, USE_CASES, resolve_scopes

ENABLED = "Enabled"
DISABLED = "Disabled"
EXPIRED = "Expired"
# the published interface has the first two states, as `status`
STATES = ENABLED, DISABLED, EXPIRED
NOT_IN_USE = "Not In Use"
# name of the key with the secret in server.api_key_file
LEGACY_NAME = "Legacy API Key"

FILE_KEY, DEPLOYMENT = "file_key", "deployment"  # kind and id of DeploymentKeyState's document
MOST_ENDED = 1000  # maximum stored digests of secrets that never work again

# Results of `KeyTable.adopt_file_secret`: valid, never again valid, or not adopted yet.
OPENS, DELETED, WAITS = "opens", "deleted", "waits"

MIN_NAME = 3
MAX_NAME = 200
MAX_DESCRIPTION = 1000
MAX_LABELS = 32
MAX_LABEL_VALUE = 256
SECRET_PREFIX = "th_"
MIN_SECRET, MAX_SECRET = 32, 512  # length of a secret in a file, in characters

_LABEL = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
_ORDER = {scope: index for index, scope in enumerate(scope for group in GROUPS.values() for scope in group)}


@dataclass(frozen=True, slots=True)
class Secret:
    """
    A keyed hash of a secret. `ends_at`: the end of a rotation's overlap or, for the newest secret, the key's
    expiry.
    """

    digest: bytes
    ends_at: float | None = None

    def with_end(self, ends_at: float) -> Secret:
        return (
            self if self.ends_at is not None and self.ends_at <= ends_at else replace(self, ends_at=ends_at)
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class ApiKey:
    id: int
    name: str
    status: str
    description: str = ""
    scopes: tuple[str, ...] = ()
    use_cases: tuple[str, ...] = ()
    labels: Mapping[str, str] = field(default_factory=dict)
    created_by: str
    updated_by: str
    last_modified: float
    last_accessed: float | None = None
    secrets: tuple[Secret, ...] = field(default=(), repr=False)

    @property
    def current_scopes(self) -> frozenset[str]:
        """
        Return the key's scopes, with those that its use cases have in this version, not when the key was
        created.
        """
        return resolve_scopes(scopes=self.scopes, use_cases=self.use_cases)

    @property
    def scope_count(self) -> int:
        return len(self.current_scopes)

    @property
    def version(self) -> str:
        """Return the version of the fields that people change. Use of the key does not change it."""
        names = (
            "name",
            "status",
            "description",
            "scopes",
            "use_cases",
            "labels",
            "expires_at",
            "last_modified",
        )
        return row_version({name: getattr(self, name) for name in names})

    @property
    def overlap_ends_at(self) -> float | None:
        """Return until when the secrets before the newest one work, or None."""
        ends = [secret.ends_at for secret in self.secrets[:-1] if secret.ends_at is not None]
        return max(ends, default=None)

    @property
    def expires_at(self) -> float | None:
        return self.secrets[-1].ends_at if self.secrets else None

    def state(self, now: float) -> str:
        """Return the key's status, or EXPIRED if the key is enabled but its expiry has passed."""
        is_over = self.expires_at is not None and self.expires_at <= now
        return EXPIRED if is_over and self.status == ENABLED else self.status

    def with_expiry(self, expires_at: float | None) -> ApiKey:
        """Return the key with this expiry, which also limits older secrets. None removes the expiry."""
        *overlapping, newest = self.secrets
        earlier = [secret if expires_at is None else secret.with_end(expires_at) for secret in overlapping]
        return replace(self, secrets=(*earlier, replace(newest, ends_at=expires_at)))


@dataclass(frozen=True, slots=True, kw_only=True)
class DeploymentKeyState:
    """
    The stored state of the key in the deployment's file. `key`: its id, None after its deletion. `ended`:
    digests of secrets that never work again.
    """

    key: int | None = None
    ended: tuple[str, ...] = ()

    def with_ended_secrets(self, digests: Iterable[bytes]) -> DeploymentKeyState:
        ended = [*self.ended, *(digest.hex() for digest in digests if digest.hex() not in self.ended)]
        return replace(self, ended=tuple(ended[-MOST_ENDED:]))

    def has_ended_secret(self, digest: bytes) -> bool:
        return digest.hex() in self.ended


def encode_file_key(key_state: DeploymentKeyState) -> dict[str, object]:
    return {"key": key_state.key, "ended": list(key_state.ended)}


def restore_file_key(body: Mapping[str, object] | None) -> DeploymentKeyState | None:
    """Return the state of the deployment's key, or None if no file has ever had one."""
    if body is None:
        return None
    key = body.get("key")
    ended = body.get("ended")
    return DeploymentKeyState(
        key=key if isinstance(key, int) else None,
        ended=tuple(map(str, ended)) if isinstance(ended, list) else (),
    )


def new_secret() -> str:
    """Return a new secret of 256 random bits."""
    return SECRET_PREFIX + secrets.token_urlsafe(32)


OTHER_CREDENTIALS = ("the_", "thd_")  # prefixes of enrolment tokens and of the keys of devices


def check_secret(secret: str) -> str:
    """Return the secret. Raises Invalid if it could be guessed, cannot be sent in a header, or is never a key."""
    if secret.startswith(OTHER_CREDENTIALS):
        raise Invalid(
            f"the secret of a key must not begin with {' or '.join(OTHER_CREDENTIALS)}, because then it is read as an "
            "enrolment token or the key of a device"
        )
    is_sendable = secret.isascii() and secret.isprintable() and " " not in secret
    if not is_sendable or not MIN_SECRET <= len(secret) <= MAX_SECRET:
        raise Invalid(
            f"the secret of a key must be one line of {MIN_SECRET} to {MAX_SECRET} ASCII characters without spaces"
        )
    return secret


def fold_name(name: str) -> str:
    return unicodedata.normalize("NFC", name.strip()).casefold()


def check_key_name(name: str) -> str:
    name = unicodedata.normalize("NFC", name.strip())
    if len(name) < MIN_NAME:
        raise Invalid(f"a key name must have at least {MIN_NAME} characters after trimming")
    if len(name) > MAX_NAME:
        raise Invalid(f"a key name must have at most {MAX_NAME} characters")
    if _has_control_character(name):
        raise Invalid("a key name must not contain control characters or line breaks")
    return name


def check_description(text: str) -> str:
    if len(text) > MAX_DESCRIPTION:
        raise Invalid(f"a description must have at most {MAX_DESCRIPTION} characters")
    if _has_control_character(text, allowed="\n\t"):
        raise Invalid("a description must not contain control characters")
    return text


def check_scopes_or_use_cases(
    scopes: Iterable[str], use_cases: Iterable[str]
) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """
    Return the scopes and use cases, one of them empty, in the catalogue's order. Raises Invalid if both or
    none are given, or one is unknown.
    """
    scopes, use_cases = set(scopes), set(use_cases)
    if scopes and use_cases:
        raise Invalid("a key must have either fixed scopes or managed use cases, not both")
    if not scopes and not use_cases:
        raise Invalid("a key needs at least one scope or one managed use case")
    _check_known_names("scope", scopes, SCOPES)
    _check_known_names("use case", use_cases, USE_CASES)
    in_order = tuple(name for name in USE_CASES if name in use_cases)
    return tuple(sorted(scopes, key=_ORDER.__getitem__)), in_order


def round_to_milliseconds(moment: float | None) -> float | None:
    """
    Round a time to milliseconds, as interfaces show it, so that a client that sends it back changes nothing.
    """
    return None if moment is None else round(moment, 3)


def check_expiry(expires_at: float | None, now: float) -> float | None:
    """Return the time of expiry. Raises Invalid unless it is in the future."""
    if expires_at is not None and expires_at <= now:
        raise Invalid("expires_at must be in the future. To end a key now, disable or delete it")
    return expires_at


def check_labels(labels: Mapping[str, str]) -> dict[str, str]:
    if len(labels) > MAX_LABELS:
        raise Invalid(f"a key must have at most {MAX_LABELS} labels")
    for name, value in labels.items():
        if not _LABEL.fullmatch(name):
            raise Invalid(
                "a label name must have 1 to 64 letters, digits, '.', '_' or '-', and begin with a "
                "letter or digit"
            )
        if not value.strip() or len(value) > MAX_LABEL_VALUE or _has_control_character(value):
            raise Invalid(
                f"a label value must have 1 to {MAX_LABEL_VALUE} characters without control characters"
            )
    return dict(sorted(labels.items()))


def _check_known_names(word: str, names: set[str], catalogue: Collection[str]) -> None:
    for name in sorted(names - set(catalogue)):
        near = difflib.get_close_matches(name, catalogue, 1, 0.6)
        hint = f"did you mean {near[0]!r}?" if near else _known_scopes_hint(catalogue)
        raise Invalid(f"unknown {word} {name!r}; {hint}")


def _known_scopes_hint(known_scopes: Collection[str]) -> str:
    if len(known_scopes) < 10:
        return "known are " + ", ".join(map(repr, known_scopes))
    return "scopes have the form GROUP:OPERATION, for example 'ai-telemetry-ingest:ingest-ai-telemetry'"


def _has_control_character(text: str, *, allowed: str = "") -> bool:
    marks = set(text) - set(allowed)
    return any(unicodedata.category(mark) in ("Cc", "Cs", "Zl", "Zp") for mark in marks)
