"""A view: a saved filter over the ledger. `granularity` and the fields after it are Tollhouse's own."""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec

from gateway.http.resources.declaration import KEPT, Option, changes_of, item_of, one_of, words
from spool.ledger.periods import RANGES
from spool.ledger.queries import BILLED_TYPES, COST_TYPES, GRANULARITIES, TOTAL
from spool.registry.views import MAX_GROUPS, MAX_NAME, MAX_PERCENT, MAX_VALUE, MAX_VALUES

Values = list[str | None]  # null is the unknown value


class Email(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    addresses: list[str] = []
    include_all_organizers: bool = False


class Slack(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    id: str
    name: str


class Notified(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """`notify` names channels of the configuration; so does the name of a Slack channel."""

    email: Email = msgspec.field(default_factory=Email)
    slack: list[Slack] = []
    notify: list[str] = []


class AnomalySettings(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """`threshold_value` is in percent, and of `Percent` alone."""

    enabled: bool = True
    threshold_type: Literal["Automatic", "Percent"] = "Automatic"
    threshold_value: int | None = None


class NewView(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """`!` before a dimension of the filter excludes its values."""

    name: Annotated[
        str, words(f"Unique among views, whatever the case: 1 to {MAX_NAME} printable characters.")
    ]
    filter: Annotated[
        dict[str, Values],
        words(
            f"The values that pass, by dimension; null is the unknown one. At most {MAX_VALUES} values of at "
            "most"
            f" {MAX_VALUE} characters; an empty filter lets everything pass."
        ),
    ]
    principal_dimension: Annotated[
        str, words("The dimension that the view is mainly about."), Option("--principal", "DIMENSION")
    ]
    connections: Annotated[
        Notified,
        words("Where its news goes. `notify` names channels of the configuration; the rest is kept."),
    ] = msgspec.field(default_factory=Notified)
    anomalies: Annotated[
        AnomalySettings,
        words(
            f"Whether days that cost far more are reported, and from which growth on: 1 to {MAX_PERCENT} "
            "percent."
        ),
    ] = msgspec.field(default_factory=AnomalySettings)
    granularity: Annotated[
        str,
        words("A row of its reports for each period, or `total`."),
        Option("--per", choices=(TOTAL, *GRANULARITIES), help="A line of its reports for each period."),
    ] = TOTAL
    group_by: Annotated[
        list[str],
        words(f"At most {MAX_GROUPS} dimensions that its reports group by."),
        Option("--by", "DIMENSION"),
    ] = []
    cost_type: Annotated[
        str,
        words(
            "The money that its reports show. Its budgets, scheduled reports and anomalies count real_cost."
        ),
        Option(choices=(*COST_TYPES, *BILLED_TYPES)),
    ] = "real_cost"
    range: Annotated[str, words("The time that its reports cover."), Option(choices=tuple(RANGES))] = "mtd"


ViewChanges = changes_of(NewView)
ViewItem = item_of(
    NewView,
    "A view as it is answered; times are epoch seconds as text. `broken` says why it cannot be asked.",
    answered={
        "broken": Annotated[str | None, words("Why it cannot be asked: the ledger lost a dimension.")],
        **KEPT,
    },
)
OneView = one_of(NewView, ViewItem)
