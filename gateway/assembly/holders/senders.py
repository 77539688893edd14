"""Makes what handlers of senders work with."""

from __future__ import annotations

from gateway.assembly.parts import Assembler
from gateway.authentication.access import Access
from gateway.http.holders.senders import SenderServices
from gateway.operator.senders.listed_devices import ListedDevices


def sender_services(parts: Assembler, access: Access) -> SenderServices:
    storage = parts.storage
    return SenderServices(
        registry=storage.registry,
        registry_problem=storage.registry_problem,
        clock=parts.clock,
        access=access,
        devices=parts.devices,
        listed_devices=ListedDevices(parts.devices, parts.clock),
        clusters=parts.clusters,
        container_files=storage.container_files,
        shares=parts.shares,
    )
