"""Random days of a laptop, and which of its calls were lost. All times are true ones, in seconds."""

from __future__ import annotations

import random
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from math import inf
from typing import NamedTuple

MINUTE, HOUR, LOOK_S = 60.0, 3600.0, 300.0
ASSISTANTS = ("gemini-cli", "copilot")
OWN_VARIABLES = "gemini-cli"  # the assistant whose variables of a user take precedence over the managed file
USERS = ("ada", "bob")  # the users, who use the laptop one after the other


class Span(NamedTuple):
    begin: float
    end: float

    def has(self, at: float) -> bool:
        return self.begin <= at < self.end


class Call(NamedTuple):
    """
    A prompt and the end of its call. `heard_at` is when the agent got the call, or infinite if it never did. A dropped
    call is lost by the agent after that.
    """

    at: float
    ended: float
    heard_at: float = inf
    is_dropped: bool = False

    @property
    def is_lost(self) -> bool:
        return self.heard_at == inf


class Key(NamedTuple):
    assistant: str
    user: str


# what can be wrong with a laptop; a setting is wrong for one user, or for all
OVERRIDDEN, UNSET, HIDDEN = "overridden", "unset", "hidden"
AGENT_DOWN, DISK_FULL, NO_PROBE = "agent_down", "disk_full", "no_probe"
OFFLINE, BLOCKED, ASLEEP, DROPPED = "offline", "blocked", "asleep", "dropped"
SETTINGS = (OVERRIDDEN, UNSET, HIDDEN)
KINDS = (*SETTINGS, *SETTINGS, AGENT_DOWN, DISK_FULL, NO_PROBE, OFFLINE, BLOCKED, DROPPED, *[""] * 8)
LOSES = (OVERRIDDEN, UNSET, HIDDEN, AGENT_DOWN, DISK_FULL)
CAUSES = {  # the state of the cause that a loss by a fault has, and its name if it is always the same
    OVERRIDDEN: ("overridden", ""),
    UNSET: ("not_configured", "no_policy"),
    HIDDEN: ("unreachable", "no_record"),
    AGENT_DOWN: ("unreachable", "agent_down"),
    DISK_FULL: ("unreachable", "disk_full"),
    DROPPED: ("unreachable", "not_forwarded"),
}


class Fault(NamedTuple):
    """`assistant` and `user` are "" if the fault concerns all of them."""

    kind: str
    span: Span
    assistant: str = ""
    user: str = ""

    def concerns(self, key: Key) -> bool:
        return self.assistant in ("", key.assistant) and self.user in ("", key.user)


@dataclass
class History:
    end: float
    # for each change of the clock: from when on, and by how much it differs
    offsets: Sequence[tuple[float, float]]
    calls: dict[Key, list[Call]] = field(default_factory=dict)
    # times in which a program wrote a session file without a prompt, by user and assistant
    opened: dict[Key, list[float]] = field(default_factory=dict)
    faults: list[Fault] = field(default_factory=list)
    # when the system was installed again; the agent no longer knows what was lost before
    installed: float = 0.0

    def offset_s(self, at: float) -> float:
        return next(offset for begin, offset in reversed(self.offsets) if begin <= at)

    def has(self, kind: str, at: float, key: Key | None = None) -> bool:
        return any(
            fault.kind == kind and fault.span.has(at) and (key is None or fault.concerns(key))
            for fault in self.faults
        )

    def newest_use(self, key: Key, at: float) -> float | None:
        """Return the newest write to a session, with or without a prompt."""
        times = [newest_of([call.at for call in self.calls[key]], at), newest_of(self.opened[key], at)]
        return max((time for time in times if time is not None), default=None)

    def lost(self, key: Key, at: float) -> list[Call]:
        """Return the calls that were lost since a later call arrived or their fault was repaired."""
        calls = self.calls[key]
        heard = max((call.ended for call in calls if call.heard_at <= at), default=0.0)
        ends = (fault.span.end for fault in self.faults if fault.kind in LOSES and fault.kind != HIDDEN)
        since = max((self.installed, *(end for end in ends if end <= at)))
        return [call for call in calls if call.is_lost and max(heard, since) <= call.at and call.ended <= at]

    def lost_s(self, key: Key, at: float) -> float:
        """Return how long calls were lost while the probe looked. A pause between two prompts counts as one look."""
        times = [call.at for call in self.lost(key, at) if not self.has(NO_PROBE, call.at)]
        return sum(min(later - time, LOOK_S) for time, later in pairwise(times))

    def may_be_losing(self, key: Key, at: float) -> bool:
        """Return whether a call was lost, or a program was used while nothing could arrive."""
        heard = max((call.ended for call in self.calls[key] if call.heard_at <= at), default=0.0)
        uses = [*(call.at for call in self.calls[key] if call.is_lost), *self.opened[key]]
        if any(heard <= call.at <= at for call in self.calls[key] if call.is_lost):
            return True
        return any(heard <= use <= at and any(self.has(kind, use, key) for kind in LOSES) for use in uses)

    def causes(self, key: Key, at: float) -> set[tuple[str, str]]:
        """Return the causes of the losses since the newest call that the agent heard, and of faults of now."""
        heard = max((call.ended for call in self.calls[key] if call.heard_at <= at), default=0.0)
        lost = [time for call in self.calls[key] if call.is_lost for time in (call.at, call.ended)]
        times = [time for time in (*lost, *self.opened[key]) if heard <= time <= at]
        kinds = {kind for time in (*times, at) for kind in LOSES if self.has(kind, time, key)}
        return {CAUSES[kind] for kind in kinds or (HIDDEN,)} if times else set()


def newest_of(times: Sequence[float], at: float) -> float | None:
    place = bisect_right(times, at)
    return times[place - 1] if place else None


def history(dice: random.Random, start: float, hours: float) -> History:
    """Return some days with work, sleep and faults."""
    jump = start + dice.uniform(5, 20) * HOUR
    first = dice.choice((0.0, 0.0, -3 * HOUR, 2 * HOUR))
    past = History(start + hours * HOUR, [(start - HOUR, first)])
    if first and dice.random() < 0.5:
        past.offsets = [*past.offsets, (jump, 0.0)]
    for assistant in ASSISTANTS:
        for user in USERS:
            past.calls[Key(assistant, user)], past.opened[Key(assistant, user)] = [], []
    sessions = list(_draw_sessions(dice, start, past.end))
    if dice.random() < 0.7:  # some laptops stay awake, as docked ones do
        nights = ((one.end, other.begin) for (one, _), (other, _) in pairwise(sessions))
        past.faults += [
            Fault(ASLEEP, Span(end + HOUR / 2, begin - HOUR / 4))
            for end, begin in nights
            if begin - end > 2 * HOUR
        ]
    for number, (session, user) in enumerate(sessions):
        _put_faults(dice, past, session, user, KINDS if number else (OVERRIDDEN, UNSET))
    for session, user in sessions:
        for assistant in dice.choice((ASSISTANTS, ASSISTANTS[:1], ASSISTANTS[1:])):
            _put_calls(dice, past, session, Key(assistant, user))
    for key in past.calls:
        past.opened[key].sort()
    return past


def _draw_sessions(dice: random.Random, start: float, end: float) -> Iterator[tuple[Span, str]]:
    """Yield when which user works."""
    at, user = start + HOUR, dice.choice(USERS)
    while at < end:
        most = at + dice.uniform(20, 150) * MINUTE
        yield Span(at, most), user
        at = most + dice.choice((dice.uniform(0.8, 3), dice.uniform(9, 14))) * HOUR
        user = dice.choice((*USERS[:1], user, *USERS))


def _put_faults(dice: random.Random, past: History, session: Span, user: str, kinds: Sequence[str]) -> None:
    kind = dice.choice(kinds)
    begin = dice.uniform(session.begin - 600, session.end - 900)
    span = Span(begin, begin + dice.uniform(20, 120) * MINUTE)
    if kind in SETTINGS:
        assistant = dice.choice(("", *ASSISTANTS))
        is_own = kind == HIDDEN or (kind == OVERRIDDEN and assistant == OWN_VARIABLES and dice.random() < 0.5)
        past.faults.append(Fault(kind, span, assistant, user if is_own else ""))
    elif kind:
        past.faults.append(Fault(kind, span))


def _put_calls(dice: random.Random, past: History, session: Span, key: Key) -> None:
    step = dice.choice((1.5, 6.0, 40.0)) * MINUTE
    now, calls = session.begin + dice.uniform(0, step), past.calls[key]
    while now < session.end:
        ended = now + dice.uniform(1, 90)
        is_lost = any(past.has(kind, ended, key) for kind in LOSES)
        heard_at = inf if is_lost else ended + dice.uniform(1, 10)
        calls.append(Call(now, ended, heard_at, is_dropped=past.has(DROPPED, heard_at)))
        now += max(95.0, dice.expovariate(1 / step))
    has_last = bool(calls) and calls[-1].at >= session.begin and not calls[-1].is_lost
    is_late = False
    if has_last and dice.random() < 0.15:  # the last export of a session came late, or never
        calls[-1] = calls[-1]._replace(heard_at=dice.choice((session.end + 30 * MINUTE, inf)))
        is_late = not calls[-1].is_lost
    if dice.random() < 0.4:
        later = session.end + dice.uniform(3, 12) * MINUTE
        opened = [later, later + dice.uniform(1, 15) * MINUTE]
        # with a call that is still to come, these are three uses without a call, as of a loss
        past.opened[key] += [] if is_late else opened
