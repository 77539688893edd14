"""What handlers of senders work with: their keys, devices, clusters and files of container metrics."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from gateway.http.holders.installation import WithRegistry
from gateway.service.errors import Refusal

if TYPE_CHECKING:
    from gateway.clusters.clusters import Clusters
    from gateway.devices.lifecycle import DeviceLifecycle
    from gateway.http.lists import Rows
    from gateway.people.authentication.access import Access
    from spool.container_files.files import ContainerFiles
    from spool.shares import KeyShare


async def _no_shares() -> Sequence[KeyShare]:
    return ()


@dataclass(kw_only=True)
class SenderServices(WithRegistry):
    """
    `listed_devices` are the rows of the list of `devices`. `shares` gives the keys that hold nearly what they may of
    what is one for all.
    """

    access: Access
    listed_devices: Rows[Any]
    devices: DeviceLifecycle | None = None
    clusters: Clusters | None = None
    container_files: ContainerFiles | None = None
    shares: Callable[[], Awaitable[Sequence[KeyShare]]] = _no_shares

    def require_devices(self) -> DeviceLifecycle:
        """The devices. Refusal 503 where there are none, or where their changes could not be audited."""
        self.require_registry()
        if self.devices is None:
            raise Refusal(503, "no_devices", "devices are not kept here")
        return self.devices

    def require_container_files(self) -> ContainerFiles:
        """The files of container metrics. Refusal 503 where there are none."""
        if self.container_files is None:
            raise Refusal(503, "no_container_files", "container metrics are not kept here")
        return self.container_files

    def require_clusters(self) -> Clusters:
        """The clusters. Refusal 503 where there are none, or where their changes could not be audited."""
        self.require_registry()
        if self.clusters is None:
            raise Refusal(503, "no_clusters", "clusters are not kept here")
        return self.clusters
