"""
Mappings that operators set in the console, by command or by the API. Each sends the usage events of one type to your
cost service, as a unit-cost stream. A type that [upstream.events] names keeps the mapping of the configuration.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any

import msgspec

from gateway.core.fields import (
    KEPT,
    build_answer,
    changes_struct,
    item_struct,
    one_item_answer_struct,
)
from gateway.core.visibility import WHOLE
from gateway.http.lists import Filter, ListDefinition, Sort
from gateway.normalise.unit_cost import require_stream_name
from gateway.operations.files.declared import ResourceFiles
from gateway.operations.managed import (
    CHANGE,
    CREATE,
    DELETE,
    LIST,
    SHOW,
    ByCommands,
    ByPeople,
    JsonAnswer,
    ManagedResource,
)
from spool.errors import AlreadyThere
from spool.record import utc_iso
from spool.registry.document_table import ManagedTable, Sees
from spool.registry.documents import DocumentCollection, replace_fields, row_version
from spool.registry.field_notes import Option, example, words
from spool.registry.operators import Actor
from spool.registry.permission_sets import INSTALLATION_ADMINISTRATION, VIEW_STREAM_SETTINGS
from spool.registry.registry import Registry
from spool.registry.registry_rows import RegistryRows
from spool.registry.texts import check_one_of, check_optional_text, check_text

MAX_FIELD = 256
MOST = 200
STREAM_TYPES = ("allocation", "metric")
GRANULARITIES = ("HOURLY", "DAILY", "MONTHLY")


class NewEventMapping(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The fields that a person sets. They mean the same as in [upstream.events]."""

    event_type: Annotated[str, words("The type of the usage events."), example("order")]
    stream: Annotated[str, words("The unit-cost stream that receives the events."), example("orders")]
    value: Annotated[
        str,
        words(
            "The field of the event with the amount, or 1 to count events. If empty, the amount is `amount` or "
            "`value` of the event, or 1 if it has neither."
        ),
        example("", changed="pages"),
        Option(metavar="FIELD"),
    ] = ""
    element: Annotated[
        str,
        words(
            "The field that names the element of the stream (such as a team) to which the amount belongs: `subject`, "
            "`source` or a name in the data."
        ),
        Option(metavar="FIELD"),
    ] = "subject"
    type: Annotated[
        str,
        words("What the stream contains: allocation for amounts per element, metric for one amount."),
        Option(choices=STREAM_TYPES),
    ] = "allocation"
    granularity: Annotated[str, words("The period of one sum."), Option(choices=GRANULARITIES)] = "DAILY"


class EventMapping(NewEventMapping, frozen=True, kw_only=True, forbid_unknown_fields=False):
    """A stored mapping. Times are epoch seconds, and `author` is the creator."""

    id: str
    author: str
    created: float
    last_updated: float

    @property
    def name(self) -> str:
        return self.event_type

    @property
    def version(self) -> str:
        return row_version(self)


def check_mapping(draft: NewEventMapping) -> NewEventMapping:
    check_one_of("type", draft.type, STREAM_TYPES)
    check_one_of("granularity", draft.granularity, GRANULARITIES)
    return replace_fields(
        draft,
        stream=require_stream_name(draft.stream),
        event_type=check_text("event_type", draft.event_type, MAX_FIELD),
        value=check_optional_text("value", draft.value, MAX_FIELD),
        element=check_optional_text("element", draft.element, MAX_FIELD) or "subject",
    )


EventMappingItem = item_struct(
    NewEventMapping,
    "A mapping that an operator has set. Times are RFC 3339.",
    answer_only_fields={
        "author": Annotated[str, words("The creator of the mapping."), example("ada@example.com")],
        **KEPT,
    },
)


class EventMappingTable(ManagedTable[EventMapping]):
    """The table of mappings, one per event type. A method that raises changes nothing."""

    kind = DocumentCollection("event_mapping", EventMapping, "mapping")
    draft = NewEventMapping
    limit = "event mappings"
    most = MOST
    action = "event_mapping"

    def check_draft(self, draft: NewEventMapping) -> NewEventMapping:
        return check_mapping(draft)

    def creation_fields(self, actor: Actor, now: float) -> Mapping[str, Any]:
        return {"author": actor.name}

    def check_conflicts(
        self,
        registry_rows: RegistryRows,
        stored: Mapping[str, EventMapping],
        row: EventMapping,
        can_see_row: Sees[EventMapping],
    ) -> None:
        """Raise AlreadyThere if another mapping has the same event type."""
        others = [each for each in stored.values() if each.id != row.id]
        if any(each.event_type == row.event_type for each in others):
            raise AlreadyThere(f"the type {row.event_type!r} already has a mapping; change it")


def mappings_by_type(registry: Registry | None) -> Mapping[str, EventMapping]:
    if registry is None:
        return {}
    return {row.event_type: row for row in registry.declared_table(EventMappingTable).all()}


def _describe_mapping(row: EventMapping) -> JsonAnswer:
    return build_answer(
        EventMappingItem, row, created=utc_iso(row.created), last_updated=utc_iso(row.last_updated)
    )


class EventMappingResource(ManagedResource[EventMapping, object]):
    noun = "event_mapping"
    table = EventMappingTable
    new = NewEventMapping
    changes = changes_struct(NewEventMapping)
    item = EventMappingItem
    one = one_item_answer_struct(NewEventMapping, EventMappingItem)
    files = ResourceFiles(name="event-mappings", key=("event_type",), ignores_case=False)
    lists: ListDefinition[EventMapping] = ListDefinition(
        root="event_mappings",
        show=_describe_mapping,
        identity=Sort(value=lambda row: row.id),
        sorts={
            "event_type": Sort(value=lambda row: row.event_type),
            "stream": Sort(value=lambda row: row.stream),
        },
        default_sort=("event_type", "asc"),
        filters={
            "event_type": Filter(values=lambda row: (row.event_type,)),
            "stream": Filter(values=lambda row: (row.stream,)),
        },
    )
    people = ByPeople(
        path="/event-mappings", reads=VIEW_STREAM_SETTINGS, changes=INSTALLATION_ADMINISTRATION, shows=WHOLE
    )
    commands = ByCommands(
        help="Manage mappings, which send types of usage events to your cost service.",
        columns=("id", "event_type", "stream", "value", "element", "type", "author", "last_updated"),
        words={
            LIST: "List the mappings that operators set. [upstream.events] of the configuration may have more.",
            CREATE: "Create a mapping for a type of usage events.",
            SHOW: "Show a mapping.",
            CHANGE: "Change a mapping. Given options replace the present values.",
            DELETE: "Delete a mapping. The cost service then receives no more events of the type.",
        },
        filters={"event_type": "Only the mapping of this type.", "stream": "Only mappings to this stream."},
    )


EVENT_MAPPING = EventMappingResource()
