"""
A request that its key admitted: its bearer, decoded body and the services.

With an Idempotency-Key, a sender identifies one request body. If the sender repeats the same body with the
same key, it gets the first answer again and nothing changes. A different body with that key is rejected, and
nothing of it is stored. Each API key and path has its own idempotency keys. They are remembered as long as
the dedup keys of calls (spool.duplicate_window).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from gateway.http.inflight_bytes import RequestByteReservation
from gateway.http.lists import ListDefinition, Rows
from gateway.http.requests import IDEMPOTENCY_KEY, AdmittedRequest, RequestServices
from gateway.operations.requests.receiver_services import ReceiverServices
from gateway.people.authentication.bearer import AuthenticatedKey
from spool.identity import (
    RecordIdentity,
    RequestDedupKeys,
    build_request_dedup_keys,
    dedup_key_of_request_item,
    random_identity,
)
from spool.registry.operators import Actor

Held = TypeVar("Held")
Body = TypeVar("Body")
Row = TypeVar("Row")


@dataclass(slots=True, kw_only=True)
class KeyRequest(AdmittedRequest[Body], Generic[Held, Body]):
    """
    A request that its key admitted.

    `services` is the holder that the handler names, as in `KeyRequest[MoneyServices, None]`. Every handler
    may use `receivers` and `shared`.
    """

    services: Held
    receivers: ReceiverServices
    shared: RequestServices
    bearer: AuthenticatedKey
    share: RequestByteReservation  # reserved memory that this request uses

    @property
    def actor(self) -> Actor:
        """
        Return the actor for the audit list. If the key expires before the change is committed, the change is
        rejected.

        For a person, the actor also has the network address and the client program.
        """
        person = self.bearer.person
        if person is not None:
            address_and_client = f"{self.http.remote or ''} {person.client}".strip()
            return Actor(person.email, address_and_client)
        return Actor(self.bearer.name, self.http.remote or "", self.bearer.expects, is_key=True)

    async def list_page(self, list_definition: ListDefinition[Row], rows: Rows[Row]) -> Mapping[str, object]:
        return await self.read_list_page(list_definition, rows, self.shared)


def names_for_repeat_detection(request: KeyRequest[Any, bytes], *more: bytes) -> RequestDedupKeys | None:
    """
    Return the names for recognizing a repeated request, from its Idempotency-Key. Return None without the
    header.

    `more` is compared together with the body.
    """
    key = request.http.headers.get(IDEMPOTENCY_KEY)
    if not key:
        return None
    return build_request_dedup_keys(request.bearer.name, request.http.path, key, request.body, *more)


def item_identity(
    names: RequestDedupKeys | None, item_index: int, relayed_id: bytes | None
) -> RecordIdentity:
    """
    Return the dedup key of an item: the id that another Tollhouse gave it, or its position in the request.
    Without an Idempotency-Key, the key is random.
    """
    if relayed_id is not None:
        return RecordIdentity(relayed_id)
    if names is None:
        return random_identity()
    return RecordIdentity(dedup_key_of_request_item(names, item_index))
