"""What every holder has that keeps something in the registry."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from gateway.service.errors import Refusal

if TYPE_CHECKING:
    from spool.clock import Clock
    from spool.registry.registry import Registry


@dataclass(kw_only=True)
class WithRegistry:
    """
    `registry` is None when its file is damaged, and `registry_problem` says so: the spool can still be looked at.
    """

    registry: Registry | None
    clock: Clock
    registry_problem: str = ""

    def require_registry(self) -> Registry:
        """The registry. Refusal 503 with the reason why there is none."""
        if self.registry is None:
            raise Refusal(503, "registry_damaged", self.registry_problem or "the registry cannot be read")
        return self.registry
