"""The invoices of bills, as FOCUS rows name them."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from gateway.money.costs.reader import CostReader
from spool import providers


@dataclass(frozen=True, slots=True, kw_only=True)
class Invoices:
    """
    Which months are closed, and the invoice numbers by provider and month. Only people who see all calls get
    numbers.
    """

    closed: frozenset[tuple[str, str]]
    numbers: Mapping[tuple[str, str], Sequence[str]]

    @classmethod
    def visible_to(cls, reader: CostReader) -> Invoices:
        registry = reader.require_registry()
        numbers = defaultdict(list)
        for row in () if reader.has_limited_data_access else registry.billed_invoices.all().values():
            numbers[row["provider"], row["month"]].append(str(row["number"]))
        closed = frozenset((row["provider"], row["month"]) for row in registry.closed_months.all().values())
        return cls(closed=closed, numbers=numbers)

    def only_invoice_number(self, provider: str, month: str) -> str:
        known = self.numbers.get((provider, month), ())
        return known[0] if len(known) == 1 else ""

    def invoice_number_in_closed_month(self, provider: str, month: str) -> str:
        """
        Return the number of the only invoice of a closed month, or "" for other months. `provider` is a name
        that calls report.
        """
        canonical = providers.canonical_provider_name(provider)
        return self.only_invoice_number(canonical, month) if (canonical, month) in self.closed else ""
