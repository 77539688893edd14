"""A requester's access to costs: the visible calls, dimensions and views."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass

from gateway.core.errors import Refusal
from gateway.core.visibility import EVERYTHING, VisibilityRules, check_view_usable
from spool.errors import NotThere
from spool.ledger.dimensions import (
    BILLED_DIMENSIONS,
    BILLED_TYPES,
    BUILT_IN_DIMENSIONS,
    PAID_COST,
    PAID_DIMENSIONS,
    DerivedDimension,
)
from spool.ledger.ledger import Ledger
from spool.ledger.queries import LedgerDefinitions
from spool.ledger.slices import SlicedLedger
from spool.ledger.work import UNITS
from spool.registry.registry import Registry
from spool.registry.roles import EVERYTHING as ALL_RIGHTS
from spool.registry.roles import Rights
from spool.registry.views import SavedView, view_dimensions


@dataclass(frozen=True, slots=True, kw_only=True)
class CostReader:
    """
    A person or key that requests costs. `whole` are the totals of all calls, and `rights` limit the calls and
    the kinds of money in them that are visible.

    Calls, dimensions and views that are not visible are treated as if they did not exist.
    """

    whole: Ledger
    # raises Refusal 503 while the registry cannot be read
    require_registry: Callable[[], Registry]
    rights: Rights = ALL_RIGHTS

    @property
    def has_limited_data_access(self) -> bool:
        return not self.rights.slice.is_everything

    @property
    def definitions(self) -> LedgerDefinitions:
        return self.whole

    @property
    def ledger(self) -> SlicedLedger:
        """Return the totals of the calls that the requester may see in every counted cost type."""
        return SlicedLedger(self.whole, self.rights.slice, person=self.rights.person)

    def ledger_for_cost_types(self, cost_types: Collection[str]) -> SlicedLedger:
        """
        Return the totals of the calls that the requester may see in all these cost types.

        Raises Refusal 403 if the requester's roles show no call in all of these types.
        """
        cost_slice = self.rights.slice_for_cost_types(cost_types)
        if self.rights.shown and not cost_slice.parts:
            raise hidden_cost_types_refusal(self.rights, cost_types)
        return SlicedLedger(self.whole, cost_slice, person=self.rights.person)

    async def read_visibility(self) -> VisibilityRules:
        """Return a test whether the requester may see a view, a budget, an insight or a recommendation."""
        if not self.has_limited_data_access:
            return EVERYTHING
        ledger = self.ledger
        return VisibilityRules(
            False,
            await ledger.filters_within_slice_test(),
            self.require_registry().views.find,
            limits=ledger.slice_dimensions,
        )

    async def visible_derived_dimensions(self) -> Sequence[DerivedDimension]:
        """
        Return the derived dimensions that the requester may use: built-in ones, and those defined by
        allocation rules.

        People with limited data access get only defined dimensions that their roles or visible views use.
        """
        derived = self.definitions.derived_dimensions()
        if not self.has_limited_data_access or not derived:
            return derived
        visible = await self.read_visibility()
        views = [view for view in self.require_registry().views.all() if visible.can_see_view(view)]
        named = {
            *BUILT_IN_DIMENSIONS,
            *visible.limits,
            *(name for view in views for name in view_dimensions(view)),
        }
        return [dimension for dimension in derived if dimension.name in named]

    async def visible_dimensions(
        self, cost_type: str = "", *, within: SlicedLedger | None = None, includes_work_units: bool = False
    ) -> Sequence[str]:
        """
        Return the dimensions by which the requester may group a cost type. With `includes_work_units`,
        counted costs also have units of work.

        Billed money also has dimensions of bills, and the tags of billing rows. `within` limits these tags to
        visible ones, by default to what the requester sees of counted costs. PAID_COST has its own
        dimensions.
        """
        of_work = UNITS if includes_work_units and cost_type not in BILLED_TYPES else ()
        derived = [dimension.name for dimension in await self.visible_derived_dimensions()]
        known = (*self.definitions.builtin_and_tag_dimensions(), *of_work, *derived)
        if cost_type == PAID_COST:
            return (*known, *PAID_DIMENSIONS)
        if cost_type not in BILLED_TYPES:
            return known
        return (*known, *BILLED_DIMENSIONS, *await (within or self.ledger).billing_row_tags())

    async def find_view(self, id_or_name: str) -> SavedView:
        """Return a view. Raises Refusal 400 if the view is unknown, hidden or broken."""
        return self.find_view_among(id_or_name, await self.read_visibility())

    def find_view_among(self, id_or_name: str, visibility_rules: VisibilityRules) -> SavedView:
        """Do the same as `find_view`, with a given test of visibility."""
        views = self.require_registry().views
        try:
            view = views.require_by_id_or_name(id_or_name, visibility_rules.can_see_view)
        except NotThere as error:
            raise Refusal(400, "invalid_parameter", f"view: {error}") from None
        return views.expand_names(check_view_usable(self.definitions.dimensions(), view))


def hidden_cost_types_refusal(rights: Rights, cost_types: Collection[str]) -> Refusal:
    requested = " and ".join(cost_types)
    shown = ", ".join(rights.cost_types)
    message = (
        f"this shows {requested}, but your roles show only {shown}; ask an Admin for a role that shows more"
    )
    return Refusal(403, "cost_type", message)
