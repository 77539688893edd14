"""
Rules for when a use of an assistant lost its calls. The laptop decides, because it knows exact times.

A use is a slot of five minutes by the clock in which the file of a session grew. It is heard if a call of this session
ran or ended shortly before it or up to ten minutes after it. Each run of the probe (a look) sees how the sessions of a
home grew, and remembers the uses that are not heard yet. Waiting is measured by the awake clock, which stands still
while the machine sleeps, so sleep is no loss.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Final, NamedTuple

import msgspec

from gateway.devices.fleet.use_slots import DAY_S, OpenUse, UseCounts, counts_after_look, slot_of

NONE, HEARD, WAITING, LOSING, UNSEEN = "none", "heard", "waiting", "losing", "unseen"
# values that an agent may report about the use of an assistant
USES: Final = (NONE, HEARD, WAITING, LOSING, UNSEEN)
RECENT_S: Final = 14 * 86_400.0
CALL_BEFORE_USE_S: Final = 120.0  # seconds by which a call may end before the use that it belongs to
# seconds after a use before it counts as lost although the setting is wrong, because its call may be on its way
JUDGED_AFTER_S: Final = 120.0
MOST_AWAKE_GAP_S: Final = 900.0  # a longer gap between two looks counts as this, because the machine slept
# a program that also writes for commands without a call needs more unheard uses
USES_OF_A_LOSS: Final = 3
USES_OF_AN_UNSURE_LOSS: Final = 5
SINGLE_USE_AWAKE_S: Final = 3600.0  # awake time after which a use that is a day old counts as lost on its own
INTERMITTENT_LOSSES: Final = 3  # losses of a day after which only HEARD_IN_A_ROW uses end the loss
HEARD_IN_A_ROW: Final = 6
MOST_OPEN: Final = 256
SESSIONS_KEPT_S: Final = 30 * DAY_S


def is_use_without_call(used_at: float, newest_call_at: float | None) -> bool:
    """
    Return whether an assistant was used without a call, where only hours are known. A call that ended
    (`newest_call_at`) shortly before the use, or later, belongs to it.
    """
    return newest_call_at is None or newest_call_at + CALL_BEFORE_USE_S < used_at


class SessionFile(NamedTuple):
    """The files of one session: their bytes together, and the newest change in epoch seconds."""

    size: int
    changed_at: float


class KnownSession(msgspec.Struct, frozen=True, array_like=True):
    """The files of a session at the last look. `began` is the last look before it appeared, or 0."""

    size: int
    changed_at: float
    began: float = 0.0


class UseObservation(msgspec.Struct, frozen=True, kw_only=True):
    """
    What one run of the probe found about an assistant in one home. Times are in epoch seconds of the laptop.

    `is_bad` says that the setting loses calls, and `cut` why calls cannot reach the agent. `sessions` are the
    files by session, and `is_heard` returns whether a use of a session in a slot is heard. `heard` is the end of
    the newest call of this home. `unseen` is why uses cannot be compared with calls. The other fields are those of the
    program, see `gateway.devices.agent.sessions.SessionProgram`.
    """

    setting: str
    is_bad: bool
    cut: str = ""
    sessions: Mapping[str, SessionFile] = {}
    is_heard: Callable[[str, int], bool] = lambda session, slot: False
    heard: float | None = None
    unseen: str = ""
    is_database: bool = False
    least_growth: int = 0
    has_sure_uses: bool = True


class RememberedAssistantUses(msgspec.Struct, frozen=True, omit_defaults=True, kw_only=True):
    """
    What is remembered between two runs of the probe (looks) about an assistant in a user's home directory. If
    the assistant appeared since the last look, only `looked` is set, and its setting applies from then on.

    Otherwise, `since` is the first look with this setting, `cut_since` the first look at which calls could
    not reach the agent, and `looked` the last look. `awake` is the awake clock. `cut` is why lost calls did not reach
    the agent. `used` is the newest use, `heard` the newest call, and `heard_use` the newest use that is heard. `open`
    are the uses that are not heard. `losses` has the last times at which calls began to be lost. If `is_held`, the
    loss is intermittent, and `in_a_row` counts the uses that were heard since. `counts` decide no
    state.
    """

    setting: str = ""
    since: float = 0.0
    cut_since: float | None = None
    cut: str = ""
    looked: float = 0.0
    awake: float = 0.0
    used: float | None = None
    heard: float | None = None
    heard_use: float | None = None
    sessions: dict[str, KnownSession] = {}
    open: tuple[OpenUse, ...] = ()
    is_losing: bool = False
    losses: tuple[float, ...] = ()
    is_held: bool = False
    in_a_row: int = 0
    unseen: str = ""
    counts: UseCounts = UseCounts()

    def use_state(self, *, now: float) -> str:
        if self.is_losing or self.is_held:
            return LOSING
        if self.unseen:
            return UNSEEN
        if self.unheard is not None:
            return WAITING
        return NONE if self.used is None or now - self.used > RECENT_S else HEARD

    @property
    def unheard(self) -> float | None:
        """Return the first use without a call, or None. Calls of newer uses may still be on their way."""
        return next((each.at for each in self.open if each.is_due(self.awake)), None)


def remembered_uses_after_probe(
    earlier_uses: RememberedAssistantUses, observation: UseObservation, *, now: float
) -> RememberedAssistantUses:
    """
    Return what is remembered after a run of the probe (a look). A loss of calls ends if a later use is heard, or with
    a repaired setting, but not with time alone.
    """
    before = _shift_out_of_future(earlier_uses, now)
    is_same = before.setting == observation.setting
    is_new = before.setting == "" and before.looked > 0
    is_repaired = not is_same and before.setting != "" and not observation.is_bad
    sessions, grown = _grown_sessions(before, observation, now)
    # ignore a time that was written before the clock was set back
    least, files = observation.least_growth, observation.sessions.values()
    times = [each.changed_at for each in files if each.changed_at <= now and each.size >= least]
    is_future = observation.heard is not None and observation.heard > now
    heard = [time for time in (before.heard, None if is_future else observation.heard) if time is not None]
    memory = msgspec.structs.replace(
        before,
        setting=observation.setting,
        since=before.since if is_same else before.looked if is_new else now,
        cut_since=(now if before.cut_since is None else before.cut_since) if observation.cut else None,
        looked=now,
        awake=before.awake + min(now - before.looked, MOST_AWAKE_GAP_S) if before.looked else 0.0,
        used=max(times, default=before.used),
        heard=max(heard, default=None),
        sessions=sessions,
        unseen=observation.unseen,
    )
    if is_repaired or observation.unseen:
        memory = msgspec.structs.replace(
            memory, open=(), is_losing=False, cut="", losses=(), is_held=False, in_a_row=0
        )
    if observation.unseen:  # no call may be missing, because it would not be seen
        waiting = tuple(each for each in memory.counts.waiting if each.is_lost)
        memory = msgspec.structs.replace(
            memory, counts=msgspec.structs.replace(memory.counts, waiting=waiting)
        )
    else:
        # a use that this look sees first was not there at the last look, however long the machine slept since
        new = [
            OpenUse(name, at, max(before.awake, memory.awake + at - now))
            for name, at in grown.items()
            if at >= memory.since or not is_repaired
        ]
        memory = _without_heard_uses(memory, observation, new, now)
        memory = _with_losses(memory, observation, now)
        counts = counts_after_look(
            memory.counts,
            new,
            memory.open,
            is_heard=observation.is_heard,
            has_sure_uses=observation.has_sure_uses,
            awake=memory.awake,
            now=now,
            max_waiting=MOST_OPEN,
        )
        memory = msgspec.structs.replace(memory, counts=counts)
    is_cut = bool(observation.cut) and (memory.used or 0.0) > min(before.looked, memory.cut_since or now)
    return msgspec.structs.replace(memory, cut=observation.cut) if memory.is_losing and is_cut else memory


def _shift_out_of_future(remembered_uses: RememberedAssistantUses, now: float) -> RememberedAssistantUses:
    """
    Return the memory without times in the future: the clock may have been set back since the last look. A use whose
    call may still come is forgotten, because this call has another time.
    """
    by = remembered_uses.looked - now
    if by <= 0:
        return remembered_uses
    names = ("since", "cut_since", "looked", "used", "heard", "heard_use")
    times = {name: getattr(remembered_uses, name) for name in names}
    return msgspec.structs.replace(
        remembered_uses,
        **{name: None if time is None else time - by for name, time in times.items()},
        losses=tuple(time - by for time in remembered_uses.losses),
        open=tuple(
            msgspec.structs.replace(each, at=each.at - by)
            for each in remembered_uses.open
            if each.is_lost or each.is_due(remembered_uses.awake)
        ),
    )


def _grown_sessions(
    before: RememberedAssistantUses, observation: UseObservation, now: float
) -> tuple[dict[str, KnownSession], dict[str, float]]:
    """
    Return the sessions to remember, and the times at which sessions grew since the last look. The first look only
    learns which sessions exist.
    """
    sessions, grown = {}, {}
    for name, (size, changed_at) in observation.sessions.items():
        known = before.sessions.get(name)
        if changed_at > now:  # written after the look began, or before the clock was set back
            if known is not None:
                sessions[name] = known
            continue
        is_new = known is None and 0 < before.looked < changed_at
        if known is None:
            is_use = is_new and size >= observation.least_growth
        elif observation.is_database:
            is_use = changed_at != known.changed_at
        else:
            is_use = size - known.size >= observation.least_growth
        if is_use:
            grown[name] = changed_at
        if now - changed_at <= SESSIONS_KEPT_S:
            began = known.began if known is not None else before.looked if is_new else 0.0
            sessions[name] = KnownSession(size, changed_at, began)
    return sessions, grown


def _without_heard_uses(
    memory: RememberedAssistantUses, observation: UseObservation, new: Iterable[OpenUse], now: float
) -> RememberedAssistantUses:
    """
    Return the memory with new uses and without those that no longer count: those that are heard; those after which the
    same session, or a session that began later, is heard; and those of more than a day ago after which any is.

    Another session that was open all the time proves nothing: each terminal has its own variables.
    """
    known = {(each.session, each.slot) for each in memory.open}
    uses = [*memory.open, *(each for each in new if (each.session, each.slot) not in known)]
    heard = [each for each in uses if observation.is_heard(each.session, each.slot)]
    newest = max((each.at for each in heard), default=memory.heard_use)

    def is_over(use: OpenUse) -> bool:
        if newest is not None and slot_of(newest) > use.slot and now - use.at >= DAY_S:
            return True
        return any(
            each.slot > use.slot and (each.session == use.session or _began(memory, each.session) > use.at)
            for each in heard
        )

    open_uses = [each for each in uses if each not in heard and not is_over(each)]
    later = {each.slot for each in heard if memory.heard_use is None or each.slot > slot_of(memory.heard_use)}
    is_unheard = any(each.is_due(memory.awake) for each in open_uses)
    return msgspec.structs.replace(
        memory,
        open=tuple(sorted(open_uses, key=lambda each: each.at)[-MOST_OPEN:]),
        heard_use=newest if newest is None or memory.heard_use is None else max(newest, memory.heard_use),
        in_a_row=0 if is_unheard else memory.in_a_row + len(later),
    )


def _began(memory: RememberedAssistantUses, session: str) -> float:
    known = memory.sessions.get(session)
    return 0.0 if known is None else known.began


def _with_losses(
    memory: RememberedAssistantUses, observation: UseObservation, now: float
) -> RememberedAssistantUses:
    lost = {each for each in memory.open if each.is_lost or _is_certain_loss(memory, observation, each)}
    most = USES_OF_A_LOSS if observation.has_sure_uses else USES_OF_AN_UNSURE_LOSS
    if len({each.slot for each in memory.open}) >= most and memory.open[0].is_due(memory.awake):
        lost |= set(memory.open)
    if observation.has_sure_uses:
        lost |= {each for each in memory.open if _is_old_loss(each, memory.awake, now)}
    is_losing = bool(lost)
    losses = memory.losses
    if is_losing and not memory.is_losing:
        losses = (*(time for time in losses if now - time <= DAY_S), now)[-INTERMITTENT_LOSSES:]
    is_held = len(losses) == INTERMITTENT_LOSSES and (is_losing or memory.in_a_row < HEARD_IN_A_ROW)
    return msgspec.structs.replace(
        memory,
        open=tuple(
            msgspec.structs.replace(each, is_lost=True) if each in lost else each for each in memory.open
        ),
        is_losing=is_losing,
        cut=memory.cut if is_losing else "",
        losses=() if memory.is_held and not is_held else losses,
        is_held=is_held,
    )


def _is_certain_loss(memory: RememberedAssistantUses, observation: UseObservation, use: OpenUse) -> bool:
    """Return whether a use is lost because its calls could not arrive. A later call of the home disproves a setting."""
    if memory.awake - use.awake < JUDGED_AFTER_S:
        return False
    if memory.cut_since is not None and use.at >= memory.cut_since:
        return True
    is_disproved = memory.heard is not None and memory.heard >= memory.since
    return observation.is_bad and not is_disproved and use.at >= memory.since


def _is_old_loss(use: OpenUse, awake: float, now: float) -> bool:
    ended = use.at + use.left_of_slot_s
    return now - ended >= DAY_S and awake - use.awake >= use.left_of_slot_s + SINGLE_USE_AWAKE_S
