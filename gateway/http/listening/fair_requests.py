"""
Requests take turns by whose they are: an address's until a key or a person is known, then theirs.

What is refused before that, or needs no key, waits for its turn with its answer.
"""

from __future__ import annotations

from aiohttp import web

from gateway.http.listening.short_way import Handle, PlainRequests
from gateway.service.attempts import neighbourhood
from spool.turns.fair_turns import FairTurns, current_work


def in_turns(turns: FairTurns, handle: Handle) -> Handle:
    """Wrap a handler so that each step of a request is charged to its party."""

    async def enter(request: web.Request) -> web.StreamResponse:
        with turns.request(address_party(request.remote or "")) as work:
            response = await work.run(handle(request))
            if work.party is None or turns.are_shared:
                await work.end_in_turn()
            if isinstance(request.protocol, PlainRequests):
                request.protocol.party = work.party
            return response

    return enter


def address_party(address: str) -> str:
    return f"address {neighbourhood(address)}"


def key_party(name: str) -> str:
    return f"key {name}"


async def begin_work(party: str = "") -> None:
    """
    Wait for the turn of a party, or of the address if nobody can know who asks.

    Returns at once outside of listeners that have turns, and for a request that has begun.
    """
    work = current_work()
    if work is not None:
        await work.begin(party)
