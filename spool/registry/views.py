"""
Views: saved filters for costs, with display settings.

The published interface defines `name`, `filter`, `principal_dimension`, `connections` and `anomalies`.
Tollhouse adds defaults for a report: `granularity`, `group_by`, `cost_type` and `range`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterator, Mapping
from functools import partial
from typing import TYPE_CHECKING, Annotated, Literal, TypeAlias

import msgspec

from spool.errors import AskedTooMuch, Invalid, NotAllowed
from spool.ledger.dimensions import (
    BILLED_TYPES,
    COST_TYPES,
    GRANULARITIES,
    PAID_COST,
    PLAN_TYPES,
    TOTAL,
    WantedValues,
)
from spool.ledger.periods import RANGES
from spool.ledger.work import BOUNDED, TREES, UNITS
from spool.people import filter_values_of_dimension
from spool.registry.document_table import ManagedTable, NamedTable, Sees, check_name_free
from spool.registry.documents import DocumentCollection, StoredForm, replace_fields, row_version
from spool.registry.field_notes import Option, example, words
from spool.registry.operators import Actor
from spool.registry.registry_rows import RegistryRows
from spool.registry.texts import check_dimensions, check_one_of, check_text, storable_text

MAX_NAME = 200
MAX_VALUE = 256  # characters of a value, as in the ledger
MAX_VALUES = 1000  # maximum values in a filter
MAX_GROUPS = 8
MAX_CHANNELS = 50  # channels per kind of connection
MAX_PERCENT = 1_000_000
EXCLUDES = "!"  # prefix of a dimension whose values are excluded
AUTOMATIC, PERCENT = "Automatic", "Percent"
NO_VIEW = "view: no view has this id or name"

_EMAIL = re.compile(r"[^@\s]+@[^@\s]+")


# values of each dimension; null is the unknown value, stored as ""
StatedFilter = Mapping[str, tuple[str | None, ...]]


class Email(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    addresses: Annotated[tuple[str, ...], words("E-mail addresses.")] = ()
    include_all_organizers: Annotated[bool, words("Whether all organizers get the mail.")] = False


class Slack(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    id: Annotated[str, words("The id of the Slack channel.")]
    name: Annotated[str, words("The name of the Slack channel.")]


class Notified(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """
    The channels that a view notifies. Both `notify` and the names of Slack channels refer to configured
    channels.
    """

    email: Annotated[Email, words("The recipients of mails.")] = msgspec.field(default_factory=Email)
    slack: Annotated[tuple[Slack, ...], words("Slack channels.")] = ()
    notify: Annotated[tuple[str, ...], words("The names of notification channels.")] = ()


if TYPE_CHECKING:
    ThresholdType: TypeAlias = str
else:
    ThresholdType = Literal[AUTOMATIC, PERCENT]


class AnomalySettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Anomaly detection of a view. `threshold_value` is a percentage, used only with the type `Percent`."""

    enabled: Annotated[bool, words("Whether anomalies of the view's costs become insights.")] = True
    threshold_type: Annotated[
        ThresholdType, words("`Automatic`, or `Percent` for a threshold of your own.")
    ] = AUTOMATIC
    threshold_value: Annotated[
        int | None,
        words("With `Percent`: the increase over the day before, in percent, that counts as an anomaly."),
    ] = None


class NewView(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A new view. If `!` precedes a dimension in the filter, the values of that dimension are excluded."""

    name: Annotated[
        str,
        words(f"Unique among views, ignoring case. 1 to {MAX_NAME} printable characters."),
        example("Search"),
    ]
    filter: Annotated[
        StatedFilter,
        words(
            f"The values that match, by dimension; null is the unknown value. At most {MAX_VALUES} "
            f"values of at most {MAX_VALUE} characters. An empty filter matches everything."
        ),
        example({"team": ["search"]}),
    ]
    principal_dimension: Annotated[
        str, words("The main dimension of the view."), example("model"), Option("--principal", "DIMENSION")
    ]
    connections: Annotated[
        Notified,
        words(
            "Targets of its notifications. `notify` names configured channels; the other fields are only "
            "stored."
        ),
    ] = msgspec.field(default_factory=Notified)
    anomalies: Annotated[
        AnomalySettings,
        words(
            "Whether days with far higher costs are reported, and from which growth on: 1 to "
            f"{MAX_PERCENT} percent."
        ),
    ] = msgspec.field(default_factory=AnomalySettings)
    granularity: Annotated[
        str,
        words("The period of the rows in its reports, or `total`."),
        Option("--per", choices=(TOTAL, *GRANULARITIES), help="Period of the rows in its reports."),
    ] = TOTAL
    group_by: Annotated[
        tuple[str, ...],
        words(f"Dimensions to group its reports by, at most {MAX_GROUPS}."),
        example(["model"], changed=["user", "model"]),
        Option("--by", "DIMENSION"),
    ] = ()
    cost_type: Annotated[
        str,
        words(
            "The costs that its reports show. Its anomalies always count real_cost. Its scheduled "
            "reports do as well, unless this is a type of billed money."
        ),
        Option(choices=(*COST_TYPES, *PLAN_TYPES, *BILLED_TYPES)),
    ] = "real_cost"
    range: Annotated[
        str, words("The time range of its reports."), example("last_30d"), Option(choices=tuple(RANGES))
    ] = "this_month"


class EmailConnection(Email, frozen=True, kw_only=True, forbid_unknown_fields=False):
    """
    An e-mail connection as the public API defines it. It is only stored and shown, because e-mail is sent
    through configured channels.
    """


class SlackChannel(Slack, frozen=True, kw_only=True, forbid_unknown_fields=False):
    """A stored Slack channel as the public API defines it."""


class ViewConnections(Notified, frozen=True, kw_only=True, forbid_unknown_fields=False):
    """The stored channels of a view. Configured channels have the addresses and secrets."""

    email: EmailConnection = EmailConnection()
    slack: tuple[SlackChannel, ...] = ()


class Anomalies(AnomalySettings, frozen=True, kw_only=True, forbid_unknown_fields=False):
    """The stored settings of a view for anomaly detection, which reports unusually expensive days."""

    threshold_type: str = AUTOMATIC  # also a type of a newer release


DIMENSIONAL = frozenset(("filter", "principal_dimension", "group_by"))


class SavedView(NewView, frozen=True, kw_only=True, forbid_unknown_fields=False):
    """
    A stored view. Times are epoch seconds.

    `filter`: included values by dimension, or excluded values under EXCLUDES followed by the dimension. ""
    means unknown. An empty filter includes all calls.
    """

    filter: WantedValues = {}
    connections: ViewConnections = ViewConnections()
    anomalies: Anomalies = Anomalies()
    id: str
    created: float
    last_updated: float

    @property
    def version(self) -> str:
        return row_version(self)

    @property
    def include(self) -> WantedValues:
        """Return the view's included values by dimension, as CostQuery has them."""
        return {name: values for name, values in self.filter.items() if not name.startswith(EXCLUDES)}

    @property
    def unit_of_work(self) -> str | None:
        return next((name for name in (*self.include, *self.exclude) if name in UNITS), None)

    @property
    def exclude(self) -> WantedValues:
        return {name[1:]: values for name, values in self.filter.items() if name.startswith(EXCLUDES)}

    @property
    def channels(self) -> tuple[str, ...]:
        """Return the names of configured channels that the view notifies, including its Slack channels."""
        return tuple(
            dict.fromkeys(
                (*self.connections.notify, *(slack_channel.name for slack_channel in self.connections.slack))
            )
        )

    def has_call(self, value_of: Callable[[str], str]) -> bool:
        def has_value_in(name: str, values: Collection[str]) -> bool:
            return any(value in values for value in filter_values_of_dimension(name, value_of))

        return all(has_value_in(name, values) for name, values in self.include.items()) and not any(
            has_value_in(name, values) for name, values in self.exclude.items()
        )

    def broken_reason(self, known_dimensions: Collection[str]) -> str | None:
        """
        Return why the view's costs cannot be computed, or None: it uses a dimension that is not in `known_dimensions`.
        """
        unknown = sorted(set(view_dimensions(self)) - set(known_dimensions))
        if not unknown:
            return None
        return (
            f"the ledger no longer has {', '.join(unknown)}: add the tag to [ledger] tags, publish a "
            "definition of the dimension, or change the view"
        )


VIEWS = DocumentCollection("view", SavedView, "view")


def view_dimensions(view: NewView) -> Iterator[str]:
    """Yield the dimensions that the view uses, except units of work in filters."""
    yield view.principal_dimension
    names = (name.removeprefix(EXCLUDES) for name in view.filter)
    yield from (name for name in names if name not in BOUNDED)
    yield from view.group_by


def check_view(draft: NewView) -> NewView:
    """
    Return the checked view. Unknown dimensions are accepted. Raises Invalid with the field and the broken
    rule.
    """
    check_one_of("granularity", draft.granularity, (TOTAL, *GRANULARITIES))
    check_one_of("cost_type", draft.cost_type, (*COST_TYPES, *PLAN_TYPES, *BILLED_TYPES))
    check_one_of("range", draft.range, RANGES)
    unit = next((name for name in draft.filter if name.removeprefix(EXCLUDES) in UNITS), "").removeprefix(
        EXCLUDES
    )
    if unit and (draft.cost_type in BILLED_TYPES or draft.cost_type == PAID_COST):
        raise AskedTooMuch(f"{draft.cost_type} is not known by {unit}; use another cost_type for this view")
    if len(draft.group_by) > MAX_GROUPS:
        raise Invalid(f"group_by must name at most {MAX_GROUPS} dimensions")
    if sum(map(len, draft.filter.values())) > MAX_VALUES:
        raise Invalid(f"a filter must have at most {MAX_VALUES} values")
    return replace_fields(
        draft,
        name=check_text("name", draft.name, MAX_NAME),
        filter={name: tuple(_check_values(name, values)) for name, values in draft.filter.items()},
        connections=_check_connections(draft.connections),
        anomalies=_check_anomalies(draft.anomalies),
        group_by=tuple(dict.fromkeys(draft.group_by)),
    )


def _check_values(name: str, values: tuple[str | None, ...]) -> Iterator[str]:
    if not values:
        raise Invalid(f"filter: {name} needs at least one value")
    for value in dict.fromkeys(value or "" for value in values):
        if len(value) > MAX_VALUE:
            raise Invalid(f"filter: a value of {name} must have at most {MAX_VALUE} characters")
        yield storable_text(value)


def _check_connections(connections: Notified) -> ViewConnections:
    for name, entries in (
        ("email.addresses", connections.email.addresses),
        ("slack", connections.slack),
        ("notify", connections.notify),
    ):
        if len(entries) > MAX_CHANNELS:
            raise Invalid(f"connections.{name} must have at most {MAX_CHANNELS} entries")
    for address in connections.email.addresses:
        if not _EMAIL.fullmatch(check_text("connections.email.addresses", address, MAX_NAME)):
            raise Invalid("connections.email.addresses must be e-mail addresses")
    for channel in connections.slack:
        check_text("connections.slack.id", channel.id, MAX_NAME)
        check_text("connections.slack.name", channel.name, MAX_NAME)
    for channel_name in connections.notify:
        check_text("connections.notify", channel_name, MAX_NAME)
    return msgspec.convert(msgspec.to_builtins(connections), ViewConnections)


def _check_anomalies(anomalies: AnomalySettings) -> Anomalies:
    check_one_of("anomalies.threshold_type", anomalies.threshold_type, (AUTOMATIC, PERCENT))
    if anomalies.threshold_value is None and anomalies.threshold_type == PERCENT:
        raise Invalid("anomalies.threshold_value is required with threshold_type Percent")
    if anomalies.threshold_value is not None and not 1 <= anomalies.threshold_value <= MAX_PERCENT:
        raise Invalid(f"anomalies.threshold_value must be a whole number from 1 to {MAX_PERCENT}")
    return msgspec.convert(msgspec.to_builtins(anomalies), Anomalies)


# The form in documents of a field with the id of a view.
STORED_VIEW = StoredForm(lambda view: {"view_id": view}, lambda document: document["view_id"])

# Kinds of documents that refer to a view by `view_id`, with their plural nouns for messages.
ON_VIEWS: Mapping[str, str] = {"budget": "budgets", "plan": "plans"}


class ViewTable(ManagedTable[SavedView], NamedTable[SavedView]):
    kind = VIEWS
    draft = NewView
    limit = "views.max"
    action = "view"

    def expand_names(self, view: SavedView) -> SavedView:
        return replace_fields(view, filter=self._changes.people.expand_filter(view.filter))

    def check_draft(self, draft: NewView) -> NewView:
        return check_view(draft)

    def require_known_dimensions(
        self, draft: NewView, changed_fields: Collection[str], known_dimensions: Collection[str]
    ) -> None:
        """
        Check dimensions of changed fields only, so that a view with an unknown dimension can be renamed or
        repaired.
        """
        if DIMENSIONAL.isdisjoint(changed_fields):
            return
        for name in view_dimensions(draft):
            if name in TREES:
                raise AskedTooMuch(
                    f"a view cannot use {name}, because its number of ids is unlimited. Filter by "
                    f"{', '.join(BOUNDED)}, or use where={name}=ID in a report"
                )
            if name in UNITS:
                raise AskedTooMuch(
                    f"a view cannot name {name} here. Only its filter may have units of work: {', '.join(BOUNDED)}"
                )
        check_dimensions(view_dimensions(draft), known_dimensions)

    def check_conflicts(
        self,
        registry_rows: RegistryRows,
        stored: Mapping[str, SavedView],
        row: SavedView,
        can_see_row: Sees[SavedView],
    ) -> None:
        check_name_free(stored.values(), row, noun="view", can_see_row=can_see_row)
        if row.unit_of_work is not None and any(
            body.get("view_id") == row.id for body in registry_rows.documents("plan").values()
        ):
            raise NotAllowed(
                f"a plan uses this view, so its filter cannot have {row.unit_of_work}. Create another view"
            )

    async def delete(self, id: str, *, actor: Actor, shows_users: bool = True) -> None:
        """
        Delete a view. Raises NotAllowed while a document of a kind in ON_VIEWS uses it. With `shows_users`,
        the message names these documents.
        """
        await self._remove_row(id, check=partial(_require_view_unused, shows_users=shows_users), actor=actor)


def _require_view_unused(registry_rows: RegistryRows, view: SavedView, *, shows_users: bool) -> None:
    for kind, plural in ON_VIEWS.items():
        bodies = registry_rows.documents(kind).values()
        names = sorted(str(body["name"]) for body in bodies if body.get("view_id") == view.id)
        if names and not shows_users:
            raise NotAllowed(
                "budgets or plans use this view, and you may not see all of them. Ask the people who "
                "manage them to delete or move them"
            )
        if names:
            raise NotAllowed(
                f"{plural} use this view: {', '.join(names)}. Delete them or move them to another view first"
            )
