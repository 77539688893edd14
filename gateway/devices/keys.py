"""
Device keys: `thd_<device>_<generation>_<HMAC in hex>`, derived from the installation's secret and kept nowhere.

A key is good while its device is not revoked and its generation is the device's: a reset ends it at once.
"""

from __future__ import annotations

import hmac
from dataclasses import replace
from hashlib import sha256

from gateway.people.authentication.access import Bearer
from gateway.service.errors import Refusal
from spool.clock import Clock
from spool.devices.device import REVOKED, Device
from spool.devices.table import DeviceTable
from spool.installation import derived
from spool.registry.bearers import device_is_good
from spool.registry.scopes import HEARTBEAT, INGEST, PING

PREFIX = "thd_"
SCOPES = frozenset({INGEST, HEARTBEAT, PING})
NEWS_S = 10.0  # within which every gateway has heard of a new device, whatever its clock says


class DeviceKeys:
    """`find` is what gateway.people.authentication.access asks on every request that brings such a key."""

    def __init__(self, table: DeviceTable, *, secret: bytes, clock: Clock) -> None:
        self._table = table
        self._clock = clock
        self._secret = derived(secret, "device keys")

    def key_of(self, device: Device) -> str:
        return f"{PREFIX}{device.id}_{device.generation}_{self._mac(device.id, device.generation)}"

    def find(self, secret: str) -> Bearer | None:
        """
        Returns the bearer; None if the key is forged. Refusal 401 if it is no longer valid, 503 if it is so
        new that this gateway has not heard of it.
        """
        id, _, rest = secret.removeprefix(PREFIX).rpartition("_")
        id, _, number = id.rpartition("_")
        if not (number.isascii() and number.isdecimal() and len(number) < 12):
            return None
        if not hmac.compare_digest(rest.encode(), self._mac(id, int(number)).encode()):
            return None
        device = self._table.find(id)
        if self._table.is_shared and self._is_newer(device, int(number)):
            message = "this key was given out by another gateway a moment ago; repeat"
            raise Refusal(503, "keys_unavailable", message, retry_after_s=1)
        if (
            device is None
            or device.state == REVOKED
            or not device.has_key
            or device.generation != int(number)
        ):
            raise Refusal(
                401, "dead_device_key", "this device was revoked or reset, and its key is no longer good"
            )
        expects = (device_is_good(id, int(number)),) if self._table.is_shared else ()
        if not device.key_used:
            self._table.touch(id, lambda known: replace(known, key_used=True), expects=expects)
        return Bearer(f"device {id}", SCOPES, device=id, expects=expects)

    def _is_newer(self, device: Device | None, generation: int) -> bool:
        """True if a key, which is genuine, was given out after what is known here of its device."""
        if device is None:  # the first generation is the time of the enrolment
            return generation > self._clock.now() - NEWS_S
        is_given = device.has_key or device.state == REVOKED
        return generation > device.generation or (generation == device.generation and not is_given)

    def _mac(self, id: str, generation: int) -> str:
        return hmac.new(self._secret, f"{id}\0{generation}".encode(), sha256).hexdigest()
