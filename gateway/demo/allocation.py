"""The definition that a demo has published: which cost centre a team's calls belong to."""

from __future__ import annotations

from gateway.allocation.language import Limits
from gateway.allocation.published import Published
from gateway.allocation.publishing import Publishing
from gateway.configuration.sections import AllocationSettings
from gateway.demo.samples import ACTOR
from spool.ledger.ledger import Ledger
from spool.registry.allocation import DEFAULT
from spool.registry.registry import Registry

DEFINITION = b"""\
Dimensions:
  CostCentre:
    Name: Cost centre
    Source: team
    DefaultValue: Overhead
    Rules:
      - Type: Group
        Name: Product
        Conditions:
          - Equals: [search, support]
      - Type: Group
        Name: Engineering
        Conditions:
          - HasValue: true
"""


async def publish_definition(registry: Registry, ledger: Ledger) -> None:
    settings = AllocationSettings()
    publishing = Publishing(
        registry.allocation,
        ledger,
        Published(ledger),
        limits=Limits,
        max_versions=lambda: settings.max_versions,
        max_jobs=lambda: settings.max_jobs,
        changed=lambda: None,
    )
    await publishing.publish(DEFINITION, namespace=DEFAULT, base=None, actor=ACTOR)
