"""
Rules for when a use of an assistant lost its calls. The probe of a laptop and the gateway share them.

A use is unheard if no call ended shortly before it or later. The laptop decides, because it knows exact
times: each run of the probe (a look) sees the newest use, and remembers what it saw since the last one.
"""

from __future__ import annotations

from typing import Final

import msgspec

NONE, HEARD, WAITING, LOSING = "none", "heard", "waiting", "losing"
USES: Final = (NONE, HEARD, WAITING, LOSING)  # values that an agent may report about the use of an assistant
RECENT_S: Final = 14 * 86_400.0
CALL_BEFORE_USE_S: Final = 120.0  # seconds by which a call may end before the use that it belongs to
# seconds after a use before it is judged; until then, its call may still run or be on its way
JUDGED_AFTER_S: Final = 120.0
# A loss has three uses without a call in an hour. A program that is opened and closed writes twice, and while a tool
# runs for ten minutes, at most two uses of this distance fit.
USES_OF_A_LOSS: Final = 3
USES_APART_S: Final = 180.0
LOSS_WITHIN_S: Final = 3600.0
# uses without a call that show a loss for a person who uses the assistant seldom; such uses may be days apart
USES_OF_A_SLOW_LOSS: Final = 5
# seconds; a home directory without a use in this time before the end of a call did not make the call
OWN_CALL_S: Final = 600.0
LOSSES_OF_A_DAY: Final = 3  # number of losses on a day after which the loss lasts until a day without one
DAY_S: Final = 86_400.0


def is_use_without_call(used_at: float, newest_call_at: float | None) -> bool:
    """
    Return whether an assistant was used without a call. A call that ended (`newest_call_at`) shortly before the use,
    or later, belongs to it.
    """
    return newest_call_at is None or newest_call_at + CALL_BEFORE_USE_S < used_at


class UseObservation(msgspec.Struct, frozen=True, kw_only=True):
    """
    What one run of the probe found about an assistant in one home. Times are in epoch seconds of the laptop.

    `is_bad` says that the setting loses calls, and `cut` why calls cannot reach the agent. `used` is the
    newest use, and `heard` the end of the newest call of this home that the agent has.
    """

    setting: str
    is_bad: bool
    cut: str = ""
    used: float | None = None
    heard: float | None = None


class RememberedAssistantUses(msgspec.Struct, frozen=True, omit_defaults=True, kw_only=True):
    """
    What is remembered between two runs of the probe (looks) about an assistant in a user's home directory. If
    the assistant appeared since the last look, only `looked` is set, and its setting applies from then on.

    Otherwise, `since` is the first look with this setting, `cut_since` the first look at which calls could
    not reach the agent, and `looked` the last look. `cut` is why lost calls did not reach the agent. `used`
    is the newest use, and `heard` the newest call. `unheard` is the first use without a call, and `newest`
    are the latest such uses. `begun` has the last times at which calls began to be lost, and `lost` the last
    look at which calls were lost.
    """

    setting: str = ""
    since: float = 0.0
    cut_since: float | None = None
    cut: str = ""
    looked: float = 0.0
    used: float | None = None
    heard: float | None = None
    unheard: float | None = None
    newest: tuple[float, ...] = ()
    is_losing: bool = False
    begun: tuple[float, ...] = ()
    lost: float | None = None

    def use_state(self, *, now: float) -> str:
        if self.is_losing or self._has_frequent_call_losses(now):
            return LOSING
        if self.unheard is not None:
            return WAITING
        return NONE if self.used is None or now - self.used > RECENT_S else HEARD

    def _has_frequent_call_losses(self, now: float) -> bool:
        is_often = len(self.begun) == LOSSES_OF_A_DAY and self.begun[-1] - self.begun[0] <= DAY_S
        return is_often and self.lost is not None and now - self.lost < DAY_S


def remembered_uses_after_probe(
    earlier_uses: RememberedAssistantUses, observation: UseObservation, *, now: float
) -> RememberedAssistantUses:
    """
    Return what is remembered after a run of the probe (a look). A loss of calls ends with a later call or a
    repaired setting, but not with time alone.
    """
    earlier_uses = _shift_out_of_future(earlier_uses, now)
    is_same = earlier_uses.setting == observation.setting
    is_new = earlier_uses.setting == "" and earlier_uses.looked > 0
    # ignore a time that was written before the clock was set back
    used = earlier_uses.used if observation.used is not None and observation.used > now else observation.used
    heard = (
        earlier_uses.heard if observation.heard is not None and observation.heard > now else observation.heard
    )
    memory = msgspec.structs.replace(
        earlier_uses,
        setting=observation.setting,
        since=earlier_uses.since if is_same else earlier_uses.looked if is_new else now,
        cut_since=(now if earlier_uses.cut_since is None else earlier_uses.cut_since)
        if observation.cut
        else None,
        looked=now,
        used=used,
        heard=heard,
    )
    is_repaired = not is_same and earlier_uses.setting != "" and not observation.is_bad
    if memory.unheard is not None and (is_repaired or not is_use_without_call(memory.unheard, heard)):
        memory = msgspec.structs.replace(memory, unheard=None, newest=(), is_losing=False, cut="")
    for each in sorted({time for time in (earlier_uses.used, used) if time is not None}):
        if each >= memory.since and now - each >= JUDGED_AFTER_S and is_use_without_call(each, heard):
            memory = _with_use_without_call(
                memory, each, is_certain_loss=_is_certain_loss(memory, observation, each)
            )
    if not memory.is_losing:
        return memory
    if observation.cut and used is not None and used > min(earlier_uses.looked, memory.cut_since or now):
        memory = msgspec.structs.replace(memory, cut=observation.cut)
    return _with_call_loss_at(memory, now, is_new_loss=not earlier_uses.is_losing)


def _shift_out_of_future(remembered_uses: RememberedAssistantUses, now: float) -> RememberedAssistantUses:
    """Return the memory without times in the future: the clock may have been set back since the last look."""
    by = remembered_uses.looked - now
    if by <= 0:
        return remembered_uses
    times = {
        name: getattr(remembered_uses, name)
        for name in ("since", "cut_since", "used", "heard", "unheard", "lost")
    }
    earlier = {name: None if time is None else time - by for name, time in times.items()}
    lists = {
        name: tuple(time - by for time in getattr(remembered_uses, name)) for name in ("newest", "begun")
    }
    return msgspec.structs.replace(remembered_uses, **earlier, **lists)


def _is_certain_loss(
    remembered_uses: RememberedAssistantUses, observation: UseObservation, used: float
) -> bool:
    if remembered_uses.cut_since is not None and used >= remembered_uses.cut_since:
        return True
    return observation.is_bad and (
        remembered_uses.heard is None or remembered_uses.heard < remembered_uses.since
    )


def _with_use_without_call(
    remembered_uses: RememberedAssistantUses, used_at: float, *, is_certain_loss: bool
) -> RememberedAssistantUses:
    newest = remembered_uses.newest
    if not newest or used_at - newest[-1] >= USES_APART_S:
        newest = (*newest, used_at)[-USES_OF_A_SLOW_LOSS:]
    within = newest[-USES_OF_A_LOSS:]
    is_loss = len(within) == USES_OF_A_LOSS and within[-1] - within[0] <= LOSS_WITHIN_S
    return msgspec.structs.replace(
        remembered_uses,
        unheard=used_at if remembered_uses.unheard is None else remembered_uses.unheard,
        newest=newest,
        is_losing=remembered_uses.is_losing
        or is_certain_loss
        or is_loss
        or len(newest) == USES_OF_A_SLOW_LOSS,
    )


def _with_call_loss_at(
    remembered_uses: RememberedAssistantUses, now: float, *, is_new_loss: bool
) -> RememberedAssistantUses:
    begun = (*remembered_uses.begun, now)[-LOSSES_OF_A_DAY:] if is_new_loss else remembered_uses.begun
    return msgspec.structs.replace(remembered_uses, begun=begun, lost=now)
