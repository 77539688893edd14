"""
Links of sessions, branches and commits to pull requests and tickets, for calls that state neither, and of sessions and
runs to those that started them. Operators add them by command or by the API, and CI jobs by an event.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Mapping
from contextlib import suppress
from datetime import UTC, date, datetime
from operator import attrgetter
from typing import TYPE_CHECKING, Annotated, Any, ClassVar

import msgspec

from gateway.core.fields import (
    KEPT,
    build_answer,
    changes_struct,
    given_fields,
    item_struct,
    one_item_answer_struct,
)
from gateway.core.visibility import WHOLE
from gateway.http.lists import Filter, ListDefinition, Sort
from gateway.normalise.reading.repositories import unify_work_tags
from gateway.operations.files.declared import NoResourceFiles
from gateway.operations.managed import ByPeople, HasLedger, JsonAnswer, ManagedResource, OperationCaller
from spool.errors import AlreadyThere, Invalid, NotAllowed
from spool.identity import has_unique_id_form
from spool.ledger.sums import DAY_S
from spool.ledger.work import (
    NONE,
    OTHER,
    REST,
    RUN,
    TREES,
    UNITS,
    WorkUnitHasher,
    is_digest,
    unit_number_from_name_or_digest,
    unit_numbers,
)
from spool.ledger.work_links import (
    BEGINNING,
    BRANCH,
    END,
    LINKED,
    NO_LINKS,
    REPOSITORY,
    TARGETS,
    WorkUnitLink,
    WorkUnitLinks,
)
from spool.loops import repeat
from spool.record import utc_iso
from spool.registry.document_table import ManagedTable, Sees, field_names
from spool.registry.document_table import draft_fields as drafted
from spool.registry.documents import DocumentCollection, replace_fields, row_version
from spool.registry.field_notes import Option, example, words
from spool.registry.operators import Actor
from spool.registry.permission_sets import MODIFY_DIMENSIONS, VIEW_COSTS
from spool.registry.registry_rows import RegistryRows
from spool.registry.texts import check_text

if TYPE_CHECKING:
    from spool.ledger.ledger import Ledger
    from spool.registry.registry import Registry

_PARENTS = {f"parent_{unit}": unit for unit in TREES}
_SOURCES = (*LINKED, RUN)  # units that can be linked
_TARGETS = (*TARGETS, *_PARENTS)
# field that is stored as a digest -> its unit
DIGESTS = {**{unit: unit for unit in TREES}, **_PARENTS}
MAX_NAME = 256
EVERY_S = 30.0  # seconds until the links in the totals are compared again
EXPIRE_EVERY_S = 86_400.0
# Maximum number of remembered events: of all deleted links together, and of each stored link.
MOST_DELETED, MOST_EVENTS = 1000, 16
_DELETED = "work_link_event"  # kind of the documents with the events of deleted links
EXPIRY = Actor("work.retention_units", "")  # actor in the audit log for the deletion of expired links

_log = logging.getLogger(__name__)


class NewWorkLink(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The fields that a person sets. In stored form, sessions and runs are digests."""

    session: Annotated[str, words("The session, by its id or by the digest that costs show.")] = ""
    run: Annotated[
        str,
        words("The run of an agent, by the digest that costs show, or by its id if that is a UUID or ULID."),
    ] = ""
    branch: Annotated[str, words("The branch. State its repository as well."), example("fix-totals")] = ""
    repository: Annotated[
        str, words("The repository of the branch, such as acme/shop."), example("acme/shop")
    ] = ""
    commit: Annotated[str, words("The commit, as calls state it.")] = ""
    since: Annotated[
        str,
        words("The first day (UTC) of calls on the branch. Empty means from the beginning."),
        example("2026-11-02"),
        Option(name="--from", metavar="DATE"),
    ] = ""
    until: Annotated[
        str,
        words("The last day (UTC) of calls on the branch. Empty means without end."),
        example("", changed="2026-11-20"),
        Option(metavar="DATE"),
    ] = ""
    pull_request: Annotated[
        str,
        words("The pull request, such as acme/shop#42. For a branch, the number is enough."),
        example("acme/shop#42"),
    ] = ""
    ticket: Annotated[str, words("The ticket.")] = ""
    parent_session: Annotated[
        str, words("The session that started this session. It then includes the cost of this session.")
    ] = ""
    parent_run: Annotated[
        str, words("The run that started this run. It then includes the cost of this run.")
    ] = ""


class WorkLink(NewWorkLink, frozen=True, kw_only=True, forbid_unknown_fields=False):
    """A stored link. Times are epoch seconds, and `author` is the person or key that added it."""

    id: str
    author: str
    created: float
    last_updated: float
    events: tuple[str, ...] = ()  # ids of the newest events that stated the link
    noted: ClassVar = ("events",)

    @property
    def name(self) -> str:
        return describe_linked_unit(self)

    @property
    def version(self) -> str:
        return row_version(self)


def describe_linked_unit(draft: NewWorkLink) -> str:
    if draft.branch:
        return f"branch {draft.branch} of {draft.repository}"
    return next(f"{unit} {name}" for unit in _SOURCES if (name := getattr(draft, unit)))


def unit_link(draft: NewWorkLink) -> WorkUnitLink:
    """Return a link as the totals store it. `draft` is in stored form."""
    unit = next(name for name in _SOURCES if getattr(draft, name))
    target = next(name for name in _TARGETS if getattr(draft, name))
    is_branch = unit == BRANCH
    return WorkUnitLink(
        unit,
        unit_number_from_name_or_digest(unit, getattr(draft, unit)),
        _PARENTS.get(target, target),
        getattr(draft, target),
        unit_number_from_name_or_digest(REPOSITORY, draft.repository) if is_branch else NONE,
        _midnight_utc(draft.since) if draft.since else BEGINNING,
        _midnight_utc(draft.until) + DAY_S if draft.until else END,
    )


def _midnight_utc(day: str) -> int:
    return int(datetime.fromisoformat(day).replace(tzinfo=UTC).timestamp())


def check_link(draft: NewWorkLink) -> NewWorkLink:
    texts = {
        name: check_text(name, value, MAX_NAME)
        for name in (*_SOURCES, REPOSITORY, *_TARGETS)
        if (value := getattr(draft, name))
    }
    if OTHER in texts.values():
        raise Invalid(f"a link cannot name {OTHER}, which stands for all units that are no longer listed")
    if len(texts.keys() & set(_SOURCES)) != 1:
        raise Invalid("state exactly one of session, branch, commit and run")
    if len(texts.keys() & set(_TARGETS)) != 1:
        raise Invalid("state exactly one of pull_request, ticket, parent_session and parent_run")
    for unit in TREES:
        if f"parent_{unit}" in texts and unit not in texts:
            raise Invalid(f"only a {unit} can have a parent_{unit}")
    if RUN in texts and "parent_run" not in texts:
        raise Invalid("a run can be linked only to its parent_run. Link its session instead")
    if (BRANCH in texts) != (REPOSITORY in texts):
        raise Invalid(
            "branch and repository belong together, because many repositories have a branch of the same name"
        )
    days = {name: _check_day(name, value) for name in ("since", "until") if (value := getattr(draft, name))}
    if days and BRANCH not in texts:
        raise Invalid("since and until apply only to a branch")
    if len(days) == 2 and days["since"] > days["until"]:
        raise Invalid("since must not be after until")
    named = unify_work_tags(texts)
    if texts.keys() != named.keys():
        raise Invalid("repository must be a name such as acme/shop")
    return NewWorkLink(**named, **days)


def _unit_digest(unit_hasher: WorkUnitHasher, name: str, text: str) -> str:
    unit = DIGESTS[name]
    if unit == RUN and not is_digest(unit, text) and not has_unique_id_form(text):
        raise Invalid(
            f"{name} must be the digest that costs show, because this id may be unique only within its session"
        )
    return unit_hasher.to_digest(unit, check_text(name, text, MAX_NAME))


def _check_day(name: str, value: str) -> str:
    try:
        return date.fromisoformat(value).isoformat()
    except ValueError:
        raise Invalid(f"{name} must be a day such as 2026-11-20, or empty") from None


WorkLinkItem = item_struct(
    NewWorkLink,
    "A link of a session, branch or commit to a pull request or ticket, or of a session or run to the one that "
    "started it. Sessions and runs are digests. Times are RFC 3339.",
    answer_only_fields={
        "author": Annotated[str, words("The person or key that added the link."), example("ada@example.com")],
        **KEPT,
    },
)


class WorkLinkTable(ManagedTable[WorkLink]):
    """The stored links of units of work."""

    kind = DocumentCollection("work_link", WorkLink, "link")
    draft = NewWorkLink
    limit = "work.links"
    action = "work_link"
    _by_id: Mapping[str, WorkUnitLink] = {}  # link by id, as read into memory
    _unit_links = NO_LINKS

    @property
    def unit_links(self) -> WorkUnitLinks:
        return self._unit_links

    def _set_rows(self, rows: dict[str, WorkLink]) -> None:
        before, known = self._rows, self._by_id
        self._by_id = {id: known[id] if before.get(id) is row else unit_link(row) for id, row in rows.items()}
        super()._set_rows(rows)
        oldest_first = sorted(rows.values(), key=lambda row: (row.created, row.id))
        self._unit_links = WorkUnitLinks(self._by_id[row.id] for row in oldest_first)

    def check_draft(self, draft: NewWorkLink) -> NewWorkLink:
        return check_link(draft)

    def creation_fields(self, actor: Actor, now: float) -> Mapping[str, Any]:
        return {"author": actor.name}

    def check_conflicts(
        self,
        registry_rows: RegistryRows,
        stored: Mapping[str, WorkLink],
        row: WorkLink,
        can_see_row: Sees[WorkLink],
    ) -> None:
        """Raise AlreadyThere if some calls would have two links, and Invalid if a run would be above itself."""
        link = unit_link(row)
        for other in stored.values():
            is_same_unit = getattr(other, link.unit) == getattr(row, link.unit)
            if other.id != row.id and is_same_unit and link.overlaps(before := unit_link(other)):
                raise AlreadyThere(
                    f"the {describe_linked_unit(row)} is already linked to {before.name} by the link {other.id}"
                )
        others = WorkUnitLinks(unit_link(other) for other in stored.values() if other.id != row.id)
        if others.can_make_cycle(link):
            raise Invalid(f"this {link.unit} would then be above itself")

    async def note_event(self, id: str, event_id: str) -> None:
        """Store with a link that an event stated it."""

        def add_event_to_row(registry_rows: RegistryRows) -> WorkLink:
            before = self._require_row(self.kind.all(registry_rows), id)
            if event_id in before.events:
                return before
            after = replace_fields(before, events=(*before.events, event_id)[-MOST_EVENTS:])
            self.kind.store_row(registry_rows, after)
            return after

        await self._changes.change_rows(add_event_to_row, self._remember_row)

    async def is_link_of_event_deleted(self, event_id: str) -> bool:
        """Return whether an operator deleted the link that this event stated."""
        return await self._changes.read(lambda rows: rows.document(_DELETED, event_id) is not None)

    async def delete(self, id: str, *, actor: Actor) -> None:
        check = self.check_deletion if actor == EXPIRY else self._remember_deleted_events
        await self._remove_row(id, check=check, actor=actor)

    def _remember_deleted_events(self, registry_rows: RegistryRows, row: WorkLink) -> None:
        now = self._changes.now()
        for event in row.events:
            registry_rows.put_document(_DELETED, event, {"deleted": now})
        deleted = registry_rows.documents(_DELETED) if row.events else {}
        oldest_first = sorted(deleted, key=lambda event: deleted[event]["deleted"])
        for event in oldest_first[: max(0, len(oldest_first) - MOST_DELETED)]:
            registry_rows.delete_document(_DELETED, event)

    def find_same_link(self, draft: NewWorkLink) -> WorkLink | None:
        """Return a stored link of the same calls to the same target, or None. `draft` is in stored form."""
        link = unit_link(draft)
        for id, before in self._by_id.items():
            if before.name == link.name and link.overlaps(before):
                return self.get(id)
        return None


def links_and_units_that_saved_views_filter_by(registry: Registry) -> WorkUnitLinks:
    """
    Return the links, and the units of work that views name. These units stay listed, so a budget has all
    their calls.
    """
    links = registry.declared_table(WorkLinkTable).unit_links
    kept = {
        (unit, number)
        for view in registry.views.all()
        for filters in (view.include, view.exclude)
        for unit in filters.keys() & UNITS.keys()
        for number in unit_numbers(unit, filters[unit])
        if number > REST
    }
    return WorkUnitLinks(links.links, kept) if kept else links


def stored_unit_links(registry: Registry | None) -> WorkUnitLinks:
    """Return the links, or none while the registry is damaged."""
    return NO_LINKS if registry is None else registry.declared_table(WorkLinkTable).unit_links


def _describe_link(row: WorkLink) -> JsonAnswer:
    return build_answer(
        WorkLinkItem, row, created=utc_iso(row.created), last_updated=utc_iso(row.last_updated)
    )


def _work_link_field_filter(field_name: str) -> Filter[WorkLink]:
    return Filter(values=lambda row: (getattr(row, field_name),), is_open=True)


class WorkLinkResource(ManagedResource[WorkLink, HasLedger]):
    noun = "work_link"
    files = NoResourceFiles("links describe work that was done; they are not settings")
    table = WorkLinkTable
    new = NewWorkLink
    changes = changes_struct(NewWorkLink)
    item = WorkLinkItem
    one = one_item_answer_struct(NewWorkLink, WorkLinkItem)
    lists: ListDefinition[WorkLink] = ListDefinition(
        root="work_links",
        show=_describe_link,
        identity=Sort(value=lambda row: row.id),
        sorts={
            "created": Sort(value=lambda row: row.created),
            **{name: Sort(value=attrgetter(name)) for name in _TARGETS},
        },
        default_sort=("created", "desc"),
        filters={
            name: _work_link_field_filter(name) for name in (*_SOURCES, REPOSITORY, *_TARGETS, "author")
        },
    )
    people = ByPeople(path="/work/links", reads=VIEW_COSTS, changes=MODIFY_DIMENSIONS, shows=WHOLE)

    async def draft_fields(self, caller: OperationCaller[HasLedger], new_values: Any) -> dict[str, Any]:
        """Return the fields in stored form, with sessions and runs as digests."""
        digests, carried = caller.services.ledger.digests, self.fields_as_records_contain(caller, new_values)
        return {
            name: _unit_digest(digests, name, text) if text and name in DIGESTS else text
            for name, text in carried.items()
        }

    def fields_as_records_contain(
        self, caller: OperationCaller[HasLedger], new_values: Any
    ) -> dict[str, Any]:
        """
        Return the fields with e-mail addresses and branches in the form that records contain. Raises Invalid
        if records do not contain them.
        """
        people, texts = caller.shared.people, given_fields(new_values)
        carried = {name: people.text_for_record(text) for name, text in texts.items()}
        if None in carried.values():
            raise Invalid('privacy.emails is "drop", so no call has an e-mail address as a unit')
        if branch := carried.get(BRANCH):
            carried[BRANCH] = people.recorded_git_branch(branch, caller.shared.branches())
            if carried[BRANCH] is None:
                raise Invalid('work.branch is "drop", so no call has a branch. Link a session or a commit')
        return carried

    async def check_fields(
        self, caller: OperationCaller[HasLedger], fields: Mapping[str, Any], before: WorkLink | None
    ) -> None:
        """Raise NotAllowed if the calls of the unit cannot be found, because it is no longer listed."""
        known = {} if before is None else {name: getattr(before, name) for name in field_names(NewWorkLink)}
        link = unit_link(check_link(NewWorkLink(**{**known, **fields})))
        units = [(link.unit, link.id)]
        if link.unit == BRANCH:
            units.append((REPOSITORY, link.repository))
        if link.target in TREES:
            units.append((link.target, link.target_number))
        for unit, id in units:
            if await caller.services.ledger.is_unit_merged_into_other(unit, id):
                raise NotAllowed(
                    f"this {unit} is one of the units in `(other)`, so its calls cannot be found. The settings "
                    "work.ids_per_month and work.retention decide how many units are listed, and for how long"
                )

    async def create(self, caller: OperationCaller[HasLedger], new_values: Any) -> JsonAnswer:
        """
        Add a link. If the unit is already linked to the same target, change the days of that link. So a job may repeat
        its request, and may state the last day of a branch when its pull request is closed.
        """
        table = caller.registry.declared_table(WorkLinkTable)
        draft = await self.link_from_body(caller, new_values)
        before = table.find_same_link(draft)
        if before is None:
            return await super().create(caller, new_values)
        changed = await table.change(before.id, drafted(draft), actor=caller.actor)
        return await self.finish_write_and_answer(caller, changed)

    async def link_from_body(self, caller: OperationCaller[HasLedger], new_values: Any) -> NewWorkLink:
        return check_link(NewWorkLink(**await self.draft_fields(caller, new_values)))

    async def finish_write_and_answer(self, caller: OperationCaller[HasLedger], row: WorkLink) -> JsonAnswer:
        await self._apply_links_to_ledger(caller)
        return await super().finish_write_and_answer(caller, row)

    async def delete(self, caller: OperationCaller[HasLedger], id_or_name: str) -> str:
        id = await super().delete(caller, id_or_name)
        await self._apply_links_to_ledger(caller)
        return id

    async def _apply_links_to_ledger(self, caller: OperationCaller[HasLedger]) -> None:
        await caller.services.ledger.apply_links(links_and_units_that_saved_views_filter_by(caller.registry))


WORK_LINK = WorkLinkResource()


async def follow_links(ledger: Ledger, registry: Registry) -> None:
    """
    Apply the stored links, and the units that views name, to the totals. Repeat this after each change, by
    any gateway, and regularly, because the totals may be lost. Once a day, delete expired links. Runs until
    cancelled.
    """
    table, expired_at = registry.declared_table(WorkLinkTable), -EXPIRE_EVERY_S

    async def apply_links_and_wait() -> None:
        nonlocal expired_at
        await ledger.apply_links(links_and_units_that_saved_views_filter_by(registry))
        if (now := time.monotonic()) - expired_at >= EXPIRE_EVERY_S:
            await expire_links(ledger, table)
            expired_at = now
        with suppress(TimeoutError):
            async with asyncio.timeout(EVERY_S):
                await registry.wait_for_change()

    await repeat(
        apply_links_and_wait,
        every_s=0.0,
        failed="links are not used yet",
        action="links_wait",
        retry_s=EVERY_S,
    )


async def expire_links(ledger: Ledger, table: WorkLinkTable) -> None:
    """
    Delete the links to pull requests and tickets whose target had no calls for `work.retention_units`, and
    the links of sessions and runs that had none themselves.
    """
    known = await ledger.expiry_time_and_recent_pull_requests_and_tickets() if table.count() else None
    if known is None:
        return
    since, in_use = known
    for row in table.all():
        link = unit_link(row)
        needed = (link.unit, link.id) if link.target in TREES else (link.target, link.target_number)
        if row.last_updated < since and needed not in in_use:
            await table.delete(row.id, actor=EXPIRY)
