"""
Words that rotate with the heartbeats of a device, so that a copy of its disk is noticed.

Each answer to a heartbeat has the next word, which the device returns with its next heartbeat. The last issued and
the last returned word are valid, because an answer can be lost. If two machines use one disk, one of them soon
returns an older word. A word is a number with its HMAC. So the gateway recognizes a word that is newer than its own
row: then its storage was restored from a backup, and the word is valid.
"""

from __future__ import annotations

import hmac
from hashlib import sha256
from typing import NamedTuple

from gateway.devices.reports import DeviceReport
from spool.devices.device import Device
from spool.installation import derive_secret

_MAC_DIGITS = 32
_MAX_DIGITS = 15  # maximum digits of the number in a word


class WordNumbers(NamedTuple):
    """
    The numbers of a device's rotating words: of the last issued word, of the last returned word, and of the
    heartbeat that returned it. 0 means none.
    """

    issued: int = 0
    returned: int = 0
    seq: int = 0

    @classmethod
    def from_device(cls, device: Device) -> WordNumbers:
        return cls(*map(int, device.words.split())) if device.words else cls()

    def __str__(self) -> str:
        return f"{self.issued} {self.returned} {self.seq}"


class WordTurn(NamedTuple):
    """
    The result of checking a device's rotating word, which shows copied disks. `is_copy`: the heartbeat
    returned an older word. `is_next`: the answer contains a new word.
    """

    numbers: WordNumbers
    is_copy: bool = False
    is_next: bool = False


class DeviceWords:
    def __init__(self, secret: bytes) -> None:
        self._secret = derive_secret(secret, "device words")

    def evaluate_word(self, device: Device, report: DeviceReport) -> WordTurn:
        """
        Check the rotating word of a device's report. A device that never returned a word is not checked.
        """
        before = WordNumbers.from_device(device)
        if report.seq is None and not report.word:
            return WordTurn(before)
        seq = before.seq if report.seq is None else report.seq
        # a repeated heartbeat gets the same word again, because the device reads only one response
        is_repeat = report.seq is not None and report.seq <= before.seq
        number = self._verify_number(device.id, report.word)
        if number is None:
            if before.returned:
                return WordTurn(before, is_copy=True)
            return (
                WordTurn(before)
                if is_repeat
                else WordTurn(WordNumbers(before.issued + 1, 0, seq), is_next=True)
            )
        # the device has a newer word, so the storage of this gateway was restored from an older copy
        if number > before.issued:
            return WordTurn(WordNumbers(number + 1, number, seq), is_next=True)
        if number == before.issued:
            return WordTurn(WordNumbers(before.issued + 1, number, seq), is_next=True)
        if number != before.returned:
            return WordTurn(before, is_copy=True)
        return (
            WordTurn(before)
            if is_repeat
            else WordTurn(WordNumbers(before.issued + 1, number, seq), is_next=True)
        )

    def make_word(self, id: str, number: int) -> str:
        return f"{number}.{self._word_mac(id, number)}"

    def _verify_number(self, id: str, heartbeat_word: str) -> int | None:
        text, _, mac = heartbeat_word.partition(".")
        if not (heartbeat_word.isascii() and text.isdecimal() and len(text) <= _MAX_DIGITS):
            return None
        return (
            int(text) if hmac.compare_digest(mac.encode(), self._word_mac(id, int(text)).encode()) else None
        )

    def _word_mac(self, id: str, number: int) -> str:
        return hmac.new(self._secret, f"{id}\0{number}".encode(), sha256).hexdigest()[:_MAC_DIGITS]
