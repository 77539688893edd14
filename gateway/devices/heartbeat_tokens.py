"""
Tokens that rotate with the heartbeats of a device, so that a copy of its disk is noticed.

Each answer to a heartbeat has the next token, which the device returns with its next heartbeat. The last issued and
the last returned token are valid, because an answer can be lost. If two machines use one disk, one of them soon
returns an older token. A token is a number with its HMAC. So the gateway recognizes a token that is newer than its own
row: then its storage was restored from a backup, and the token is valid.
"""

from __future__ import annotations

import hmac
from hashlib import sha256
from typing import NamedTuple

from gateway.devices.reports import DeviceReport
from spool.devices.device import Device
from spool.installation import derive_secret

_MAC_DIGITS = 32
_MAX_DIGITS = 15  # maximum digits of the number in a token


class HeartbeatTokenNumbers(NamedTuple):
    """
    The numbers of a device's rotating tokens: of the last issued token, of the last returned token, and of the
    heartbeat that returned it. 0 means none.
    """

    issued: int = 0
    returned: int = 0
    seq: int = 0

    @classmethod
    def from_device(cls, device: Device) -> HeartbeatTokenNumbers:
        return cls(*map(int, device.words.split())) if device.words else cls()

    def __str__(self) -> str:
        return f"{self.issued} {self.returned} {self.seq}"


class HeartbeatTokenCheck(NamedTuple):
    """
    The result of checking a device's rotating token, which shows copied disks. `is_copy`: the heartbeat
    returned an older token. `is_next`: the answer contains a new token.
    """

    numbers: HeartbeatTokenNumbers
    is_copy: bool = False
    is_next: bool = False


class HeartbeatTokens:
    def __init__(self, secret: bytes) -> None:
        self._secret = derive_secret(secret, "device words")

    def check_token(self, device: Device, report: DeviceReport) -> HeartbeatTokenCheck:
        """
        Check the token in a device's heartbeat, which changes each time and so shows a copied disk. A device
        that never returned a token is not checked.
        """
        before = HeartbeatTokenNumbers.from_device(device)
        if report.seq is None and not report.word:
            return HeartbeatTokenCheck(before)
        seq = before.seq if report.seq is None else report.seq
        # a repeated heartbeat gets the same token again, because the device reads only one response
        is_repeat = report.seq is not None and report.seq <= before.seq
        number = self._verified_token_number(device.id, report.word)
        if number is None:
            if before.returned:
                return HeartbeatTokenCheck(before, is_copy=True)
            return (
                HeartbeatTokenCheck(before)
                if is_repeat
                else HeartbeatTokenCheck(HeartbeatTokenNumbers(before.issued + 1, 0, seq), is_next=True)
            )
        # the device has a newer token, so the storage of this gateway was restored from an older copy
        if number > before.issued:
            return HeartbeatTokenCheck(HeartbeatTokenNumbers(number + 1, number, seq), is_next=True)
        if number == before.issued:
            return HeartbeatTokenCheck(HeartbeatTokenNumbers(before.issued + 1, number, seq), is_next=True)
        if number != before.returned:
            return HeartbeatTokenCheck(before, is_copy=True)
        return (
            HeartbeatTokenCheck(before)
            if is_repeat
            else HeartbeatTokenCheck(HeartbeatTokenNumbers(before.issued + 1, number, seq), is_next=True)
        )

    def make_token(self, id: str, token_number: int) -> str:
        return f"{token_number}.{self._token_mac(id, token_number)}"

    def _verified_token_number(self, id: str, heartbeat_token: str) -> int | None:
        text, _, mac = heartbeat_token.partition(".")
        if not (heartbeat_token.isascii() and text.isdecimal() and len(text) <= _MAX_DIGITS):
            return None
        return (
            int(text) if hmac.compare_digest(mac.encode(), self._token_mac(id, int(text)).encode()) else None
        )

    def _token_mac(self, id: str, token_number: int) -> str:
        return hmac.new(self._secret, f"{id}\0{token_number}".encode(), sha256).hexdigest()[:_MAC_DIGITS]
