"""
The connection of this server to the Tollhouse to which it forwards (the Tollhouse above), for names of
people.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING

from gateway.core.first_use import import_in_thread
from gateway.devices.states import device_revoker
from gateway.service.assembly.money import wait_until_configured
from gateway.service.assembly.parts import ServicePartsBuilder
from spool.installation import public_id
from spool.registry.operators import Actor
from spool.registry.registry import Registry

if TYPE_CHECKING:
    from exporters.service.people_above import UpstreamPeopleExchange
    from exporters.settings import UpstreamSettings
    from spool.erasure import Erasure


class UpstreamPeopleLink:
    """
    Opens the exchange about people with the Tollhouse above, at the start or after a reload, once [upstream]
    is a Tollhouse.
    """

    def __init__(self, parts_builder: ServicePartsBuilder, registry: Registry, *, is_agent: bool) -> None:
        self._assembler = parts_builder
        self._registry = registry
        self._is_agent = is_agent
        self.above: UpstreamPeopleExchange | None = None
        if self._tollhouse_upstream() is not None:
            self._open_link()

    def _tollhouse_upstream(self) -> UpstreamSettings | None:
        upstream = self._assembler.config.upstream
        is_tollhouse = self._is_agent or upstream.kind == "tollhouse"
        return upstream if is_tollhouse and upstream.base_url else None

    def _open_link(self) -> UpstreamPeopleExchange:
        from exporters.service.people_above import UpstreamPeopleExchange

        assembler = self._assembler
        self.above = UpstreamPeopleExchange(
            self._registry.people,
            self._registry.persons,
            upstream=self._tollhouse_upstream,
            clock=assembler.clock,
            installation=public_id(assembler.storage.secret),
            erase=self._erase_person,
        )
        return self.above

    async def try_send_addresses_upstream(
        self, keys: Sequence[bytes], addresses: Mapping[str, int]
    ) -> Collection[str] | None:
        return () if self.above is None else await self.above.try_send_addresses_upstream(keys, addresses)

    async def run(self) -> None:
        await wait_until_configured(lambda: self._tollhouse_upstream() is not None)
        above = self.above or self._open_link()
        orders = partial(
            self._assembler.storage.leases.run_while_leased, "erasures above", above.follow_erasures
        )
        await asyncio.gather(above.send_addresses_forever(), orders())

    async def _erase_person(self, order: Erasure) -> None:
        await import_in_thread("spool.erasing")
        from spool import erasing

        await erasing.erase_from_storage(
            self._assembler.storage,
            order,
            revoke_device=device_revoker(""),
            actor=Actor("the Tollhouse above", ""),
        )
