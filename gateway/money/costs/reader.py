"""What somebody sees of costs: calls, dimensions and views, and what is surely about these calls alone."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass

from gateway.http.visible import EVERYTHING, Visible, check_usable
from gateway.service.errors import Refusal
from spool.errors import NotThere
from spool.ledger.ledger import Ledger
from spool.ledger.queries import BILLED_DIMENSIONS, BILLED_TYPES, BUILT_IN_DIMENSIONS, Derived
from spool.ledger.slices import SlicedLedger
from spool.registry.registry import Registry
from spool.registry.roles import EVERYTHING as ALL_RIGHTS
from spool.registry.roles import Rights
from spool.registry.views import View, dimensions


@dataclass(frozen=True, slots=True, kw_only=True)
class CostReader:
    """
    Who asks about costs: `rights` say which calls, in which money, are seen of the `whole` ledger. What is not seen is
    answered as if it were not there.
    """

    whole: Ledger
    require_registry: Callable[[], Registry]  # Refusal 503 while it cannot be read
    rights: Rights = ALL_RIGHTS

    @property
    def is_limited(self) -> bool:
        """True if a part of the calls is seen alone, or none."""
        return not self.rights.slice.is_everything

    @property
    def ledger(self) -> SlicedLedger:
        """The ledger cut to the calls that are seen in every counted cost type."""
        return SlicedLedger(self.whole, self.rights.slice)

    def ledger_of(self, cost_types: Collection[str]) -> SlicedLedger:
        """
        Return the ledger cut to the calls that are seen in the money of these cost types. Refusal 403 where there are
        calls to see, in other money alone.
        """
        found = self.rights.slice_of(cost_types)
        if self.rights.shown and not found.parts:
            raise hides(self.rights, cost_types)
        return SlicedLedger(self.whole, found)

    async def visible(self) -> Visible:
        """Return the test of views, budgets, insights and recommendations that are seen."""
        if not self.is_limited:
            return EVERYTHING
        ledger = self.ledger
        return Visible(
            False, await ledger.contained(), self.require_registry().views.find, limits=ledger.limits
        )

    async def derived(self) -> Sequence[Derived]:
        """
        Return the dimensions beside those of the ledger: the built-in ones, and those of the organization. Of
        the latter people who see some calls alone get those that their roles and the views that they see
        name: definitions are closed.
        """
        derived = self.whole.derived()
        if not self.is_limited or not derived:
            return derived
        visible = await self.visible()
        views = [view for view in self.require_registry().views.all() if visible.view(view)]
        named = {
            *BUILT_IN_DIMENSIONS,
            *visible.limits,
            *(name for view in views for name in dimensions(view)),
        }
        return [each for each in derived if each.name in named]

    async def dimensions(self, cost_type: str = "", *, within: SlicedLedger | None = None) -> Sequence[str]:
        """
        Return what a question may group and filter by; one about billed money by the dimensions of bills too, and by
        the tags of their rows that a ledger shows, `within` or that of every counted cost type.
        """
        known = (*self.whole.own_dimensions(), *(each.name for each in await self.derived()))
        if cost_type not in BILLED_TYPES:
            return known
        return (*known, *BILLED_DIMENSIONS, *await (within or self.ledger).row_tags())

    async def view(self, word: str) -> View:
        """Return the view of an id or a name. Refusal 400 for one that is unknown, not seen or broken."""
        return self.view_among(word, await self.visible())

    def view_among(self, word: str, visible: Visible) -> View:
        """Return what `view` does, for who has looked at what is visible already."""
        views = self.require_registry().views
        try:
            view = views.find_any(word, visible.view)
        except NotThere as error:
            raise Refusal(400, "invalid_parameter", f"view: {error}") from None
        return views.matched(check_usable(self.whole.dimensions(), view))


def hides(rights: Rights, cost_types: Collection[str]) -> Refusal:
    """Return the refusal of somebody whose roles do not show these cost types together."""
    asked = " and ".join(cost_types)
    shown = ", ".join(rights.cost_types)
    words = (
        f"this shows {asked}, and your roles show {shown}; an Organizer can give you a role that shows more"
    )
    return Refusal(403, "cost_type", words)
