"""
Allocation as the registry keeps it: namespaces, versions of their definitions, and the jobs that publish them.

Values and rules; no file. What a definition means is not known here: it is a text.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from spool.errors import Invalid
from spool.registry.shared.documents import DocumentKind
from spool.registry.shared.texts import check_text, optional_text

# The kinds of texts, which are documents of their own: the others are read as a whole.
VERSION_TEXT_KIND, JOB_TEXT_KIND = "allocation-version-text", "allocation-job-text"

DEFAULT = ""  # the namespace that is always there
DEFAULT_WORD = "default"  # how it is named where a word is needed; so no namespace has this id
MAX_NAME = 200
MAX_DESCRIPTION = 1000

QUEUED, VALIDATING, PUBLISHING, DONE, FAILED, CANCELLED = (
    "queued",
    "validating",
    "publishing",
    "done",
    "failed",
    "cancelled",
)
STATES = (QUEUED, VALIDATING, PUBLISHING, DONE, FAILED, CANCELLED)
WAITING = frozenset((QUEUED, VALIDATING))  # jobs that can be cancelled
OVER = frozenset((DONE, FAILED, CANCELLED))

_ID = re.compile(r"[a-z][a-z0-9_-]{0,63}")


@dataclass(frozen=True, slots=True, kw_only=True)
class NamespaceDraft:
    """What a person or a key states of a namespace."""

    name: str
    description: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Namespace(NamespaceDraft):
    """Owns the dimensions of its definition. Times are epoch seconds."""

    id: str
    created: float
    last_updated: float


@dataclass(frozen=True, slots=True, kw_only=True)
class DefinitionVersion:
    """
    A definition that was published: `number` counts from 1 within its namespace. `bytes` is how long its text is.
    """

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
    """As gateway.money.allocation.faults has it."""

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
    is_of_key: bool = False  # `submitted_by` is a key's name

    @property
    def submitter(self) -> tuple[str, bool]:
        """Return the submitter's name and if it is a key's: a key and a person may have the same name."""
        return self.submitted_by, self.is_of_key


NAMESPACES = DocumentKind("allocation-namespace", Namespace, "namespace")
VERSIONS = DocumentKind("allocation-version", DefinitionVersion, "version of a definition")
JOBS = DocumentKind("allocation-job", PublishJob, "publish job")


def version_id(namespace: str, number: int) -> str:
    return f"{namespace}/{number}"


def check_namespace_id(id: str) -> str:
    if not _ID.fullmatch(id) or id == DEFAULT_WORD:
        raise Invalid(
            "a namespace's id has 1 to 64 small letters, digits, _ and -, begins with a letter"
            f" and is not {DEFAULT_WORD!r}"
        )
    return id


def check_namespace(draft: NamespaceDraft) -> NamespaceDraft:
    """The draft in its stored form; Invalid names the field and the rule."""
    return replace(
        draft,
        name=check_text("name", draft.name, MAX_NAME),
        description=optional_text("description", draft.description, MAX_DESCRIPTION),
    )


def in_force(versions: Sequence[DefinitionVersion]) -> Mapping[str, DefinitionVersion]:
    """The newest version of each namespace, the default one first, then by their ids."""
    newest: dict[str, DefinitionVersion] = {}
    for each in versions:
        if each.namespace not in newest or newest[each.namespace].number < each.number:
            newest[each.namespace] = each
    return {name: newest[name] for name in sorted(newest)}
