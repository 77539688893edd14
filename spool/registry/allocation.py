"""
Allocation as the registry keeps it: namespaces, versions of their definitions, and the jobs that publish them.

Values and rules; no file. What a definition means is not known here: it is a text.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

import msgspec

from spool.errors import Invalid, RegistryDamaged
from spool.registry.texts import checked_text

# The kinds of its documents. Texts are documents of their own: the others are read as a whole.
NAMESPACE_KIND, VERSION_KIND, JOB_KIND = "allocation-namespace", "allocation-version", "allocation-job"
VERSION_TEXT_KIND, JOB_TEXT_KIND = "allocation-version-text", "allocation-job-text"

DEFAULT = ""  # the namespace that is always there
DEFAULT_WORD = "default"  # how it is named where a word is needed; so no namespace has this id
MAX_NAME = 200
MAX_DESCRIPTION = 1000

QUEUED, VALIDATING, PUBLISHING, DONE, FAILED, CANCELLED = (
    "queued", "validating", "publishing", "done", "failed", "cancelled",
)  # fmt: skip
STATES = (QUEUED, VALIDATING, PUBLISHING, DONE, FAILED, CANCELLED)
WAITING = frozenset((QUEUED, VALIDATING))  # jobs that can be cancelled
OVER = frozenset((DONE, FAILED, CANCELLED))

_ID = re.compile(r"[a-z][a-z0-9_-]{0,63}")

T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class Namespace:
    """Owns the dimensions of its definition. Times are epoch seconds."""

    id: str
    name: str
    description: str
    created: float
    last_updated: float


@dataclass(frozen=True, slots=True, kw_only=True)
class DefinitionVersion:
    """A definition that was published: `number` counts from 1 within its namespace. `bytes` is how long its text is."""

    namespace: str
    number: int
    dimensions: tuple[str, ...]  # their ids
    bytes: int
    created: float
    created_by: str

    @property
    def id(self) -> str:
        return version_id(self.namespace, self.number)


@dataclass(frozen=True, slots=True, kw_only=True)
class JobFault:
    """As gateway.allocation.faults has it."""

    error: str
    value: str
    path: tuple[str | int, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class PublishJob:
    """
    A definition on its way. `base` is the version that it replaces, 0 for none; `version` the one that it became.

    `number` is its place among all jobs. `border` says since when the ledger has what its rules look at.
    """

    id: str
    number: int
    namespace: str
    base: int
    state: str
    submitted: float
    submitted_by: str
    submitted_from: str
    last_updated: float
    version: int | None = None
    error: str = ""
    faults: tuple[JobFault, ...] = ()
    border: Mapping[str, Any] = field(default_factory=dict)


def version_id(namespace: str, number: int) -> str:
    return f"{namespace}/{number}"


def checked_namespace_id(id: str) -> str:
    if not _ID.fullmatch(id) or id == DEFAULT_WORD:
        raise Invalid(
            "a namespace's id has 1 to 64 small letters, digits, _ and -, begins with a letter"
            f" and is not {DEFAULT_WORD!r}"
        )
    return id


def checked_name(name: str) -> str:
    return checked_text("name", name, MAX_NAME)


def checked_description(text: str) -> str:
    return checked_text("description", text, MAX_DESCRIPTION) if text.strip() else ""


def stored(value: Namespace | DefinitionVersion | PublishJob) -> dict[str, Any]:
    """As a document."""
    body: dict[str, Any] = msgspec.to_builtins(value)
    return body


def restored(body: Mapping[str, Any], kind: type[T]) -> T:
    """RegistryDamaged if the document is none of this kind."""
    try:
        return msgspec.convert(body, kind)
    except msgspec.ValidationError as error:
        raise RegistryDamaged(f"a document of allocation cannot be read: {error}") from error


def in_force(versions: Sequence[DefinitionVersion]) -> Mapping[str, DefinitionVersion]:
    """The newest version of each namespace, the default one first, then by their ids."""
    newest: dict[str, DefinitionVersion] = {}
    for each in versions:
        if each.namespace not in newest or newest[each.namespace].number < each.number:
            newest[each.namespace] = each
    return {name: newest[name] for name in sorted(newest)}
