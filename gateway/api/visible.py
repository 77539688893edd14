"""What of views, budgets, insights and recommendations somebody sees: what is surely about calls that may be seen."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass

from gateway.errors import Refusal
from gateway.rate_cards.names import FAMILY_NAMES
from spool.ledger.derived import Derived
from spool.ledger.queries import Wanted
from spool.ledger.slices import SlicedLedger
from spool.registry.budgets import SpendBudget
from spool.registry.insights import Insight
from spool.registry.recommendations import Recommendation
from spool.registry.registry import Registry
from spool.registry.roles import LedgerSlice, Rights
from spool.registry.tables.annotations import Annotation
from spool.registry.views import EXCLUDES, View, dimensions


@dataclass(frozen=True, slots=True)
class Visible:
    """
    `contains`: whether the slice has everything that passes a filter, by what it includes and excludes.

    `limits` are the dimensions whose values bound it.
    """

    is_whole: bool
    contains: Callable[[Wanted, Wanted], bool]
    view_of: Callable[[str], View | None]  # by its id
    limits: Sequence[str] = ()

    def view(self, view: View | None) -> bool:
        return self.is_whole or (view is not None and self.contains(view.include, view.exclude))

    def budget(self, budget: SpendBudget) -> bool:
        """True if the person may see a budget. One of billed money has what is of nobody's calls in it."""
        if budget.arranged:
            return self.is_whole
        return self.view(self.view_of(budget.view_id))

    def annotation(self, annotation: Annotation) -> bool:
        """True if the person sees all calls that an annotation is about."""
        return self.view(self.view_of(annotation.view_id))

    def insight(self, insight: Insight) -> bool:
        """
        True if the person may see an insight. An insight that a person wrote does not say which calls it concerns.
        """
        about = insight.concerned
        return self.is_whole or (about is not None and self.contains(about.include, about.exclude))

    def recommendation(self, each: Recommendation) -> bool:
        about = each.saving.concerns
        return self.is_whole or (
            bool(about) and self.contains({name: (value,) for name, value in about.items()}, {})
        )

    def realized(self, each: Recommendation) -> bool:
        """
        True if the person may see what an addressed recommendation has saved: it is measured on work
        with any model.
        """
        about = each.saving.measured_by
        return self.is_whole or self.contains({name: (value,) for name, value in about.items()}, {})

    def check_filter(self, filter: Mapping[str, Sequence[str | None]]) -> None:
        """Refusal 403 for the filter of a view that is not surely within what may be seen."""
        given = {name: tuple(value or "" for value in values) for name, values in filter.items()}
        include = {name: values for name, values in given.items() if not name.startswith(EXCLUDES)}
        exclude = {
            name.removeprefix(EXCLUDES): values for name, values in given.items() if name not in include
        }
        if not self.contains(include, exclude):
            limits = ", ".join(self.limits) or "no calls at all"
            raise Refusal(
                403,
                "limited_data",
                "the filter passes calls that you may not see; let it name values of these that you see: "
                f"{limits}",
            )


def slice_of(rights: Rights, cost_types: Collection[str]) -> LedgerSlice:
    """
    Return what somebody may see in the money of cost types. Refusal 403 where there are calls to see, in
    other money alone.
    """
    found = rights.slice_of(cost_types)
    if rights.shown and not found.parts:
        raise hides(rights, cost_types)
    return found


def hides(rights: Rights, cost_types: Collection[str]) -> Refusal:
    """The refusal of somebody whose roles do not show these cost types together."""
    asked = " and ".join(cost_types)
    shown = ", ".join(rights.cost_types)
    words = (
        f"this shows {asked}, and your roles show {shown}; an Organizer can give you a role that shows more"
    )
    return Refusal(403, "cost_type", words)


EVERYTHING = Visible(True, lambda include, exclude: True, lambda id: None)


async def visible_in(ledger: SlicedLedger, registry: Registry) -> Visible:
    """Return what is visible with this view of the ledger."""
    contains = await ledger.contained()
    return Visible(ledger.is_whole, contains, registry.views.find, limits=ledger.limits)


async def named_dimensions(ledger: SlicedLedger, registry: Registry) -> Sequence[Derived]:
    """
    The dimensions that a person is shown beside those of the ledger: families of models and providers, and
    those of the organization.

    People who see only some calls get of the latter those that their roles and the views that they see name:
    definitions are closed.
    """
    derived = ledger.derived()
    if ledger.is_whole or not derived:
        return derived
    visible = await visible_in(ledger, registry)
    views = [view for view in registry.views.all() if visible.view(view)]
    named = {*FAMILY_NAMES, *ledger.limits, *(name for view in views for name in dimensions(view))}
    return [each for each in derived if each.name in named]
