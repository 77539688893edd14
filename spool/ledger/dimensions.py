"""The names by which costs are grouped, filtered and counted: dimensions, cost types and periods. Pure."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import NamedTuple, TypeAlias


@dataclass(frozen=True, slots=True, kw_only=True)
class DerivedDimension:
    """
    A dimension computed from others. "" means unknown, in the sources and in the result.

    `value` gets the values of `sources` in order. It must be pure, callable from any thread, and must not
    raise.

    A source has the value `OTHER` if a sum does not keep its values apart. A dimension of Tollhouse then
    returns `OTHER` if its value depends on that source. Dimensions defined by the organization treat `OTHER`
    like any value.
    """

    name: str
    label: str  # display name
    sources: tuple[str, ...]
    value: Callable[[tuple[str, ...]], str]


DerivedDimensions: TypeAlias = Mapping[str, DerivedDimension]  # dimensions by name

# The dimensions to group and filter by, with their meanings.
DIMENSIONS: Mapping[str, str] = {
    "model": "the model that answered",
    "request_model": "the model that the caller requested",
    "provider": "the provider that runs the model",
    "team": "the team that a call is attributed to",
    "user": "the person or service that made the call",
    "device": "the device that reported the call",
    "source": "the product or gateway that reported the call",
    "api_key": "the key or alias that the AI gateway reported for the call",
    "status": "ok, error, or cached (answered by a gateway cache at no cost)",
    "cost_source": (
        "reported (by the source), estimated (from list prices), none (usage without a known price), free (cached, or "
        "failed without usage), or without_usage (no usage was reported)"
    ),
    "region": "the region that processed the call, in the provider's notation, if the source reports it",
    "sender": (
        "the name of the Tollhouse key that sent the record, unknown for calls from before key names "
        "were stored"
    ),
}
MODEL_FAMILY = "model_family"
PROVIDER_FAMILY = "provider_family"


class BuiltIn(NamedTuple):
    """A derived dimension that every installation has."""

    meaning: str
    label: str
    sources: tuple[str, ...]
    # column title in tables of commands, unless the dimension with this name is in the table as well
    title: str


# gateway/intake/rate_cards/names.py computes these dimensions. Restricted people may group by each of them,
# so a value must not reveal more than its sources. Of the dimensions that an organization defines, restricted
# people may use only those of their role or view (CostReader.derived).
BUILT_IN_DIMENSIONS: Mapping[str, BuiltIn] = {
    MODEL_FAMILY: BuiltIn(
        "the model without region prefix, seller prefix and date",
        label="Model, all variants",
        sources=("model",),
        title="model",
    ),
    PROVIDER_FAMILY: BuiltIn(
        "the provider that runs the model, with one name for all variants and services, such as Google",
        label="Provider, all variants",
        sources=("provider",),
        title="provider",
    ),
}
# Dimensions that decide prices, besides provider and models. No public query uses them.
PRICED_BY = ("mode", "size")
BILLED = "billed"  # kind of the dimensions of billed amounts without a call
OF_BILLS: Mapping[str, str] = {
    "charge": "the purpose of the billed amount: usage, discount, tax, credit, commitment, ...",
    "basis": "how the amount was assigned to calls: exact, value, pooled, shared, or unallocated",
    "corrects": "the day of a closed month that the entry corrects",
}
ROW_DIMENSIONS: Mapping[str, str] = {
    "origin": (
        "the origin of the amount: calls, billing (rows of a billing connection), or containers (usage "
        "of a cluster at its price)"
    ),
    "connection": "the billing connection that supplied the row",
    "service": "the service that the row charges",
    "account": "the account of the row",
    "resource": "the resource of the row",
    "usage_family": "the usage family of the row",
    "line_item": "the kind of the row: Usage, Tax, Support, Purchase, CommittedUsePurchase, Discount",
    "cluster": "the Kubernetes cluster of the row",
    "namespace": "the Kubernetes namespace of the row",
    "workload": "the Kubernetes deployment of the row",
}
ORIGINS = ("calls", "billing", "containers")
ROW_TAG = "row:"
BILLED_DIMENSIONS = {**OF_BILLS, **ROW_DIMENSIONS}
CHARGE, PLAN = PAID_DIMENSIONS = ("charge", "plan")
SEAT_FEE, OVERAGE = "seat_fee", "overage"  # values of CHARGE, besides usage
TAG = "tag:"
GRANULARITIES = ("hourly", "daily", "weekly", "monthly", "quarterly", "yearly")
TOTAL = "total"  # the whole time range as one period


class CostType(NamedTuple):
    """
    A type of cost: which amounts a query adds up. `meaning`: explanation for AI assistants, which need it to
    choose a type.

    Counted costs state a `field` of CostRow, and billed costs a bit of `CostQuery.arranged`. The remaining
    types have neither, because they are computed from plans.
    """

    meaning: str = ""
    field: str = ""
    arranged: int = 0


_COST_TYPES = {
    "real_cost": CostType(
        "the cost that counts: reported if the source states it, else estimated at list prices", field="cost"
    ),
    "reported_cost": CostType("the cost that sources report", field="reported"),
    "estimated_cost": CostType(
        "the estimate at list prices, for every call whose model has a price", field="estimated"
    ),
    "on_demand_cost": CostType(field="estimated"),
    "metered_cost": CostType("the cost that counts, without calls that the seats of a plan cover"),
    "covered_cost": CostType("the cost that counts, only of calls that the seats of a plan cover"),
    "paid_cost": CostType(
        "metered_cost with the fees and extra usage of seats and the amounts of contracts, by day"
    ),
    "billed_cost": CostType(
        "the amounts that providers billed, spread over the calls; discounts and taxes are separate rows",
        arranged=1,
    ),
    "discounted_cost": CostType(
        "billed_cost with discounts and taxes assigned to the usage that they apply to", arranged=2
    ),
    "amortized_cost": CostType(
        "billed_cost with commitment fees assigned to the usage that they cover instead of the day "
        "of purchase",
        arranged=4,
    ),
    "discounted_amortized_cost": CostType(
        "discounted_cost with commitment fees assigned to the usage that they cover", arranged=8
    ),
    "invoiced_amortized_cost": CostType(
        "discounted_amortized_cost, only of days whose bill the provider no longer changes", arranged=16
    ),
    "saved_cost": CostType("the estimated cost of the calls that a gateway cache answered", field="saved"),
}
COST_TYPES: Mapping[str, str] = {name: kind.field for name, kind in _COST_TYPES.items() if kind.field}
BILLED_TYPES: Mapping[str, int] = {name: kind.arranged for name, kind in _COST_TYPES.items() if kind.arranged}
METERED_COST, COVERED_COST, PAID_COST = PLAN_TYPES = tuple(
    name for name in _COST_TYPES if name not in COST_TYPES and name not in BILLED_TYPES
)
EXPLAINED_TYPES = {name: kind.meaning for name, kind in _COST_TYPES.items() if kind.meaning}
MISSING_IS_OF_BILLS = f"missing applies only to billed costs: add cost_type={', '.join(BILLED_TYPES)}"

Group = tuple[str | None, ...]  # values of `group_by` in order, None for unknown
WantedValues = Mapping[str, tuple[str, ...]]  # accepted values by dimension

# dimensions of the costs of groups of people, in this order unless `privacy.group_order` is set
SPLIT_BY = ("team", "provider", "model", "source")
