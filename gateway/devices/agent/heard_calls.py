"""
The calls that the agent received, by session, in a file that the probe compares with the growth of session files.

For each session, the file has the slots in which a use would be heard, and the end of the newest call. Calls that
name no session count for their user and program, see `gateway.devices.agent.sessions.user_key`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from math import ceil
from pathlib import Path
from typing import Final, NamedTuple

import msgspec

from gateway.devices.agent.identity import write_private_file
from gateway.devices.agent.link import HEARD_FILE
from gateway.devices.agent.sessions import PROGRAMS_BY_NAME, session_key, user_key
from gateway.devices.fleet.use_slots import CALL_AFTER_USE_S, DAY_S, SLOT_S, slot_of
from gateway.devices.fleet.uses import CALL_BEFORE_USE_S, RECENT_S

MOST_SESSIONS: Final = 2000
MOST_RANGES: Final = 64  # ranges of slots of a session
MOST_BYTES: Final = 200 * 1024


class ReceivedCall(NamedTuple):
    """
    A call that the agent received from a program. `session` is "" if the call names none, and `user` the id of the
    user who made it, or None if it is unknown. Times are in epoch seconds of this machine.
    """

    program: str
    session: str
    user: int | None
    began: float
    ended: float


class HeardCalls(msgspec.Struct, array_like=True):
    """
    The received calls of a session. `ended` is the end of the newest one. `slots` has the first and the last slot of
    each range in which a use is heard, in order.
    """

    ended: float = 0.0
    slots: list[int] = []

    def has_slot(self, slot: int) -> bool:
        return any(first <= slot <= last for first, last in self._ranges())

    def add_call(self, began: float, ended: float) -> None:
        self.ended = max(self.ended, ended)
        # the slots that end at most 10 minutes before the call, and those that begin at most 2 minutes after it
        ranges = [
            *self._ranges(),
            (ceil((began - CALL_AFTER_USE_S) / SLOT_S) - 1, slot_of(ended + CALL_BEFORE_USE_S)),
        ]
        merged: list[list[int]] = []
        for first, last in sorted(ranges):
            if merged and first <= merged[-1][1] + 1:
                merged[-1][1] = max(last, merged[-1][1])
            else:
                merged.append([first, last])
        self.slots = [slot for each in merged[-MOST_RANGES:] for slot in each]

    def forget_future(self, now: float) -> None:
        """Forget what is later than a call that ends now: the clock was set back, and the slots come again."""
        latest = slot_of(now + CALL_BEFORE_USE_S)
        self.slots = [
            min(slot, latest) for first, last in self._ranges() if first <= latest for slot in (first, last)
        ]
        self.ended = min(self.ended, now)

    def _ranges(self) -> Iterable[tuple[int, int]]:
        return zip(self.slots[::2], self.slots[1::2], strict=True)


class _StoredCalls(msgspec.Struct):
    """`number` is that of the next record of the agent's log, when the file was written."""

    number: int = 0
    sessions: dict[str, HeardCalls] = {}


class HeardSessions:
    """The calls that an agent received, by the key of a session or a user. `number` is the stored record number."""

    def __init__(self, directory: Path) -> None:
        self._path = directory / HEARD_FILE
        stored = _decode_file(self._path)
        self._sessions, self.number = stored.sessions, stored.number
        self._newest_end = max((each.ended for each in self._sessions.values()), default=0.0)

    def add_calls(self, calls: Iterable[ReceivedCall], now: float) -> None:
        self.forget_future(now)
        for program, session, user, began, ended in calls:
            ended = min(ended, now)
            self._newest_end = max(ended, self._newest_end)
            began = min(max(began, ended - DAY_S), ended)
            known = PROGRAMS_BY_NAME.get(program)
            has_session = bool(session) and known is not None and not known.is_database
            if has_session:
                self._sessions.setdefault(session_key(program, session), HeardCalls()).add_call(began, ended)
            for key in {user_key(program, None), user_key(program, user)}:
                of_user = self._sessions.setdefault(key, HeardCalls())
                of_user.ended = max(of_user.ended, ended)
                if not has_session:
                    of_user.add_call(began, ended)

    def forget_future(self, now: float) -> None:
        if self._newest_end > now:
            self._newest_end = now
            for heard in self._sessions.values():
                heard.forget_future(now)

    def write(self, number: int, now: float) -> None:
        """Write the newest sessions. Raises OSError."""
        newest = sorted(self._sessions.items(), key=lambda each: each[1].ended, reverse=True)[:MOST_SESSIONS]
        self._sessions = {key: heard for key, heard in newest if now - heard.ended <= RECENT_S}
        text = msgspec.json.encode(_StoredCalls(number, self._sessions))
        while len(text) > MOST_BYTES:
            self._sessions = dict(list(self._sessions.items())[: len(self._sessions) * 3 // 4])
            text = msgspec.json.encode(_StoredCalls(number, self._sessions))
        write_private_file(self._path, text.decode())
        self.number = number


def read_heard_calls(directory: Path) -> Mapping[str, HeardCalls]:
    return _decode_file(directory / HEARD_FILE).sessions


def _decode_file(path: Path) -> _StoredCalls:
    try:
        return msgspec.json.decode(path.read_bytes(), type=_StoredCalls)
    except (OSError, msgspec.DecodeError):
        return _StoredCalls()
