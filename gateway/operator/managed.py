"""Who asks for a resource as a person: by a role, which says what of the calls the person may see."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from gateway.api.managed import Asker
from gateway.api.visible import Visible
from gateway.http.holders.money import MoneyServices
from gateway.operator.requests import OperatorRequest
from gateway.operator.visible import known_dimensions, visible_to


def asking_person(request: OperatorRequest[Any, Any], money: MoneyServices | None = None) -> Asker:
    """`money` is given where the handler works with more than that holder."""

    async def known() -> Collection[str]:
        return await known_dimensions(request)

    async def sees() -> Visible:
        return await visible_to(request)

    return Asker(
        services=money or request.services,
        shared=request.shared,
        actor=request.actor,
        http=request.http,
        known=known,
        sees=sees,
        is_person=True,
        holder=request.asker,
    )
