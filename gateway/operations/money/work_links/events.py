"""Links that CI jobs and hooks add by an event."""

from __future__ import annotations

from typing import Any, TypeVar

import msgspec

from gateway.normalise.events import LINK_EVENT, UsageEventBatch
from gateway.normalise.outcome import MALFORMED, RejectedPayloadItem
from gateway.operations.managed import HasLedger, OperationCaller
from gateway.operations.money.work_links.declared import DIGESTS, WORK_LINK, NewWorkLink, WorkLinkTable
from gateway.operations.requests.key_requests import item_identity
from gateway.operations.requests.operation_requests import OperationKeyRequest
from spool.errors import AlreadyThere, Invalid, NotAllowed
from spool.identity import RequestDedupKeys
from spool.record import UsageEvent

Held = TypeVar("Held", bound=HasLedger)

NOT_LINKED = (
    # reason for rejecting an item: its link conflicts with another link, or there are too many links
    "not_linked"
)


async def add_stated_links(
    request: OperationKeyRequest[Held, Any], events: UsageEventBatch, names: RequestDedupKeys | None
) -> None:
    """
    Add the links that events state. An event whose link is not added is rejected.

    Links are added before the events are stored, so the sender may repeat a failed request. An event is known by its
    id, or else by `names` and its place in the request, so a repeat undoes no edit and no deletion of an operator. An
    agent on a laptop only forwards the events of its programs.
    """
    if request.bearer.is_local:
        return
    asking: OperationCaller[HasLedger] = OperationCaller(
        services=request.services,
        shared=request.shared,
        actor=request.actor,
        query=request.http.query,
        known=_no_known_dimensions,
    )
    refused = {reject.item for reject in events.rejects}
    items = [item for item in range(events.received) if item not in refused]
    noted = {event for link in asking.registry.declared_table(WorkLinkTable).all() for event in link.events}
    kept = []
    for item, record, identity in zip(items, events.records, events.identities, strict=True):
        reject = None
        if record.event_type == LINK_EVENT:
            event = identity if identity.certain else item_identity(names, item, None)
            event_id = event.id.hex() if event.certain else None
            reject = await _add_work_link_of_event(asking, item, record, event_id, is_noted=event_id in noted)
        if reject is None:
            kept.append((record, identity))
        else:
            events.rejects.append(reject)
    events.records = [record for record, _ in kept]
    events.identities = [identity for _, identity in kept]


async def _add_work_link_of_event(
    caller: OperationCaller[HasLedger], item: int, event: UsageEvent, event_id: str | None, *, is_noted: bool
) -> RejectedPayloadItem | None:
    """
    Add the link of an event. Return why it was rejected, or None. The event is changed: its sessions and runs
    get the ids that calls contain.

    A repeat of an event whose link is noted or was deleted changes nothing.
    """
    table = caller.registry.declared_table(WorkLinkTable)
    try:
        given = msgspec.convert(event.data, NewWorkLink)
        ids = WORK_LINK.fields_as_records_contain(caller, given)
        await WORK_LINK.link_from_body(caller, given)
        if event_id is None:
            await WORK_LINK.create(caller, given)
        elif not is_noted and not await table.is_link_of_event_deleted(event_id):
            created: Any = await WORK_LINK.create(caller, given)
            await table.note_event(created[WORK_LINK.root]["id"], event_id)
    except (msgspec.ValidationError, Invalid) as error:
        return RejectedPayloadItem(item, MALFORMED, f"data: {error}")
    # the key may not read the target of the existing link, so the message does not name it
    except AlreadyThere:
        return RejectedPayloadItem(
            item, NOT_LINKED, "the unit is already linked elsewhere: see `tollhouse work links`"
        )
    except NotAllowed as error:
        return RejectedPayloadItem(item, NOT_LINKED, str(error))
    event.data |= {name: ids[name] for name in DIGESTS.keys() & event.data.keys()}
    return None


async def _no_known_dimensions() -> tuple[str, ...]:
    return ()
