"""Views: saved filters over costs. The fields from `granularity` onward exist only in Tollhouse."""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec

from gateway.core.fields import KEPT, changes_of, item_of, one_of
from spool.ledger.periods import RANGES
from spool.ledger.queries import BILLED_TYPES, COST_TYPES, GRANULARITIES, PLAN_TYPES, TOTAL
from spool.registry.field_notes import Option, example, words
from spool.registry.views import MAX_GROUPS, MAX_NAME, MAX_PERCENT, MAX_VALUE, MAX_VALUES

Values = list[str | None]  # a list of values, in which null is the unknown value


class Email(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    addresses: list[str] = []
    include_all_organizers: bool = False


class Slack(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    id: str
    name: str


class Notified(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """
    Notification targets of a view. `notify` and the name of a Slack channel both refer to configured channels.
    """

    email: Email = msgspec.field(default_factory=Email)
    slack: list[Slack] = []
    notify: list[str] = []


class AnomalySettings(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """Anomaly detection of a view. `threshold_value` is a percentage, used only with the type `Percent`."""

    enabled: bool = True
    threshold_type: Literal["Automatic", "Percent"] = "Automatic"
    threshold_value: int | None = None


class NewView(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """A new view. If `!` precedes a dimension in the filter, the values of that dimension are excluded."""

    name: Annotated[
        str,
        words(f"Unique among views, ignoring case. 1 to {MAX_NAME} printable characters."),
        example("Search"),
    ]
    filter: Annotated[
        dict[str, Values],
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
        list[str],
        words(f"Dimensions to group its reports by, at most {MAX_GROUPS}."),
        example(["model"], changed=["user", "model"]),
        Option("--by", "DIMENSION"),
    ] = []
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


ViewChanges = changes_of(NewView)
ViewItem = item_of(
    NewView,
    "A view in a response. Times are epoch seconds as text. `broken` is the reason why it cannot be used.",
    answered={
        "broken": Annotated[
            str | None,
            words("Why it cannot be used: a dimension of its filter no longer exists."),
            example(None),
        ],
        **KEPT,
    },
)
OneView = one_of(NewView, ViewItem)
