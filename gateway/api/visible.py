"""What a person may see of the ledger, by roles."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from gateway.errors import Refusal
from gateway.http.visible import Visible
from gateway.rate_cards.names import FAMILY_NAMES
from spool.ledger.derived import Derived
from spool.ledger.slices import SlicedLedger
from spool.registry.registry import Registry
from spool.registry.roles import LedgerSlice, Rights
from spool.registry.views import dimensions


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
