"""
The people of this Tollhouse at the Tollhouse above: e-mail addresses, so that both know one person, and
erasures.

The hash of an address differs in each installation. So the address itself is sent once, with the keys of the
hashes that stand for it, and the upstream links the hashes. Addresses are in memory only until the upstream
has them. If one is lost, the person's next call sends it again.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from typing import NamedTuple

import msgspec

from exporters.errors import Retryable, SendError
from exporters.http.answers import HttpAnswer
from exporters.service.upstream_client import UpstreamClient
from exporters.settings import UpstreamSettings
from spool import erasure
from spool.clock import Clock
from spool.erasure import MAX_FILE_BYTES, Erasure
from spool.errors import Invalid, SpoolError
from spool.loops import log_failure, repeat
from spool.people import People
from spool.registry.tables.persons import MAX_NAME, PersonTable

ADDRESSES, ERASURES = "people-addresses", "people-erasures"
MAX_WAITING = 10_000  # maximum number of addresses in memory that the upstream does not know yet
MAX_AT_ONCE = 1000  # maximum number of addresses in one request
MAX_KNOWN = 200_000
AGAIN_S = 86_400.0  # seconds after which an address is sent again, because the upstream may have lost it
GATHER_S = 1.0
RETRY_S = 60.0
POLL_S = 900.0  # seconds between two requests for erasures

_log = logging.getLogger(__name__)


class _WaitingAddress(NamedTuple):
    """An address that the upstream does not know: the time of its newest call, and when it was first met."""

    newest_call_at: int
    since: float


class _LinkedAddresses(msgspec.Struct):
    waiting: list[int] = []
    left_out: int = 0


class UpstreamPeopleExchange:
    """
    The exchange with the upstream about people.

    `upstream`: returns the present settings, or None if the upstream is no Tollhouse. `erase`: erases a
    person here, and returns when nothing is left.
    """

    def __init__(
        self,
        people: People,
        persons: PersonTable,
        *,
        upstream: Callable[[], UpstreamSettings | None],
        clock: Clock,
        installation: str,
        erase: Callable[[Erasure], Awaitable[None]],
    ) -> None:
        self._people = people
        self._persons = persons
        self._upstream = upstream
        self._clock = clock
        self._installation = installation
        self._erase = erase
        self._waiting: dict[str, _WaitingAddress] = {}
        self._known: set[str] = set()  # hashes of addresses that were sent upstream
        self._known_since = clock.monotonic()
        self._reasons: dict[str, str] = {}  # why requests fail, by action
        self._loop = asyncio.get_running_loop()
        self._met = asyncio.Event()
        people.persons.meets = self.note_address

    def note_address(self, address: str, hashed: str, at: int) -> None:
        """
        Queue the e-mail address that a call names for the upstream. The call began at `at` (nanoseconds). Any
        thread may call this.
        """
        if hashed in self._known and self._clock.monotonic() < self._known_since + AGAIN_S:
            return
        is_more = len(self._waiting) >= MAX_WAITING and address not in self._waiting
        if is_more or len(address) > MAX_NAME:
            return
        known = self._waiting.get(address, _WaitingAddress(0, self._clock.monotonic()))
        self._waiting[address] = known._replace(newest_call_at=max(at, known.newest_call_at))
        self._loop.call_soon_threadsafe(self._met.set)

    async def _send_addresses_upstream(
        self, hash_keys: Sequence[bytes], newest_call_at_by_address: Mapping[str, int]
    ) -> Collection[str]:
        """
        Send addresses of this gateway or of gateways below it to the upstream, with the keys that hash them:
        `hash_keys`, and this gateway's, which is the last. Return those that wait there, because none of their calls
        has arrived yet. Raises SendError.
        """
        if not newest_call_at_by_address:
            return ()
        all_keys = [key.hex() for key in (*hash_keys, self._people.secret)]
        answer = await self._send_with_new_client(
            ADDRESSES, {"keys": all_keys, "addresses": newest_call_at_by_address}
        )
        if answer is None:
            return ()
        try:
            linked = msgspec.json.decode(answer.body, type=_LinkedAddresses)
        except msgspec.DecodeError as error:
            raise Invalid("the answer of the Tollhouse above cannot be read") from error
        if linked.left_out:
            _log.warning(
                "%d people are not linked at the Tollhouse above: it has no room for more names of this sender "
                "(privacy.max_names)",
                linked.left_out,
                extra={"action": "people_not_linked"},
            )
        waiting = set(linked.waiting)
        return [name for position, name in enumerate(newest_call_at_by_address) if position in waiting]

    async def try_send_addresses_upstream(
        self, hash_keys: Sequence[bytes], newest_call_at_by_address: Mapping[str, int]
    ) -> Collection[str] | None:
        """Return the addresses that wait at the upstream, or None if it cannot be reached."""
        waiting = list[str]()

        async def send() -> None:
            waiting.extend(await self._send_addresses_upstream(hash_keys, newest_call_at_by_address))

        rest_s = await self._try_request_and_return_wait_s("people_not_linked", send())
        return waiting if rest_s is None else None

    async def send_addresses_forever(self) -> None:
        unsent_s = RETRY_S

        async def send_addresses() -> None:
            nonlocal unsent_s
            await self._met.wait()
            await asyncio.sleep(GATHER_S)
            self._met.clear()
            rest_s = await self._try_request_and_return_wait_s(
                "people_not_linked", self._send_waiting_addresses()
            )
            if rest_s is None and not self._waiting:
                unsent_s = RETRY_S
                return
            if rest_s is None:  # their calls have not arrived at the upstream
                rest_s, unsent_s = unsent_s, min(unsent_s * 2, POLL_S)
            await asyncio.sleep(rest_s)
            self._met.set()

        await repeat(
            send_addresses,
            every_s=0.0,
            failed="people wait for the upstream",
            action="people_not_linked",
            retry_s=RETRY_S,
        )

    async def _send_waiting_addresses(self) -> None:
        now = self._clock.monotonic()
        addresses = list(self._waiting.items())
        for begin in range(0, len(addresses), MAX_AT_ONCE):
            some = addresses[begin : begin + MAX_AT_ONCE]
            waiting = {
                *await self._send_addresses_upstream(
                    (), {address: each.newest_call_at for address, each in some}
                )
            }
            if len(self._known) >= MAX_KNOWN or self._clock.monotonic() >= self._known_since + AGAIN_S:
                self._known.clear()
                self._known_since = self._clock.monotonic()
            for address, each in some:
                if address not in waiting:
                    self._known.add(self._people.hash_address(address))
                if address not in waiting or now >= each.since + AGAIN_S:
                    self._waiting.pop(address, None)

    async def follow_erasures(self) -> None:
        """Erase the people whom the upstream has erased, as it reports them, until cancelled."""

        async def follow_and_wait() -> None:
            rest_s = await self._try_request_and_return_wait_s(
                "erasures_not_followed", self._carry_out_erasure_orders()
            )
            await asyncio.sleep(POLL_S if rest_s is None else rest_s)

        await repeat(
            follow_and_wait,
            every_s=0.0,
            failed="people wait for the upstream",
            action="erasures_not_followed",
            retry_s=RETRY_S,
        )

    async def _try_request_and_return_wait_s(self, action: str, request: Awaitable[None]) -> float | None:
        """
        Await a request to the upstream. Return None, or the seconds to wait after an error.

        An error in an answer is logged once until the error changes. Routes log that the upstream cannot be
        reached, so it is not logged here.
        """
        try:
            await request
        except (SendError, SpoolError) as error:
            is_answered = isinstance(error, SpoolError) or error.answered
            if is_answered and str(error) != self._reasons.get(action):
                _log.warning("people wait for the upstream: %s", error, extra={"action": action})
            self._reasons[action] = str(error)
            return POLL_S if is_answered and not isinstance(error, Retryable) else RETRY_S
        except Exception as error:  # noqa: BLE001 - an order that fails costs only itself
            log_failure("people wait for the upstream", error, action=action)
            return POLL_S
        self._reasons.pop(action, None)
        return None

    async def _carry_out_erasure_orders(self) -> None:
        orders = await self._confirm_and_fetch_erasures()
        for order in orders:
            if self._find_stored_erasure(order) is None:
                self._waiting.clear()
                # an order that is refused, for example for the only Admin, does not delay others
                await self._try_request_and_return_wait_s(order.id, self._erase(order))
        done = [order.id for order in orders if self._is_erasure_done(order)]
        if done:
            await self._confirm_and_fetch_erasures(done)

    def _find_stored_erasure(self, order: Erasure) -> Erasure | None:
        return next((each for each in self._persons.erasures if each.id == order.id), None)

    def _is_erasure_done(self, order: Erasure) -> bool:
        stored = self._find_stored_erasure(order)
        return stored is not None and stored.passes > 0 and not stored.below

    async def _confirm_and_fetch_erasures(self, done_ids: Collection[str] = ()) -> Sequence[Erasure]:
        answer = await self._send_with_new_client(
            ERASURES, {"installation": self._installation, "done": list(done_ids)}
        )
        return [] if answer is None else erasure.read_erasures(answer.body)

    async def _send_with_new_client(self, stream: str, body: Mapping[str, object]) -> HttpAnswer | None:
        """Send a request with the present settings, by a new client, because requests are rare."""
        upstream = self._upstream()
        if upstream is None:
            return None
        client = UpstreamClient.from_settings(upstream, clock=self._clock)
        try:
            return await client.send(stream, msgspec.json.encode(body), max_answer_bytes=MAX_FILE_BYTES)
        finally:
            await client.close()
