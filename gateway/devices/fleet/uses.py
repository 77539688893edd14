"""
When a use of an assistant lost its calls. The probe of a laptop and the gateway share these rules.

A use is unheard if no call ended shortly before it or later. The laptop decides, because it knows exact times: it sees
the newest use at each look, and remembers what it saw between two looks.
"""

from __future__ import annotations

from typing import Final

import msgspec

NONE, HEARD, WAITING, LOSING = "none", "heard", "waiting", "losing"
USES: Final = (NONE, HEARD, WAITING, LOSING)  # what an agent may state
RECENT_S: Final = 14 * 86_400.0
CALL_BEFORE_USE_S: Final = 120.0  # a call that ended this long before a use may be the call of this use
JUDGED_AFTER_S: Final = 120.0  # until then, the call of a use may still run or be on its way
# A loss has three uses without a call. A program that is opened and closed writes twice, and while a tool runs for ten
# minutes, at most two uses of this distance fit.
USES_OF_A_LOSS: Final = 3
USES_APART_S: Final = 180.0
LOSS_WITHIN_S: Final = 3600.0


def is_unheard(used: float, heard: float | None) -> bool:
    """Return whether a use has no call that ended shortly before it or later."""
    return heard is None or heard + CALL_BEFORE_USE_S < used


class UseLook(msgspec.Struct, frozen=True, kw_only=True):
    """
    What one look sees of an assistant in one home. Times are in epoch seconds of the laptop.

    `is_bad` says that the setting loses calls, and `is_cut` that calls cannot reach the agent. `used` is the newest
    use, and `heard` the end of the newest call that the agent has.
    """

    setting: str
    is_bad: bool
    is_cut: bool = False
    used: float | None = None
    heard: float | None = None


class UseMemory(msgspec.Struct, frozen=True, omit_defaults=True, kw_only=True):
    """
    What is remembered between two looks. `since` is the first look with this setting, and `used` the newest use of the
    look before. `unheard` is the first use without a call, and `newest` are the latest ones.
    """

    setting: str = ""
    since: float = 0.0
    used: float | None = None
    unheard: float | None = None
    newest: tuple[float, ...] = ()
    is_losing: bool = False

    def use(self, *, now: float) -> str:
        if self.unheard is not None:
            return LOSING if self.is_losing else WAITING
        return NONE if self.used is None or now - self.used > RECENT_S else HEARD


def followed(before: UseMemory, look: UseLook, *, now: float) -> UseMemory:
    """Return the memory after a look. A loss ends with a later call or a repaired setting, and not by waiting."""
    is_same = before.setting == look.setting
    memory = msgspec.structs.replace(
        before, setting=look.setting, since=before.since if is_same else now, used=look.used
    )
    is_repaired = not is_same and before.setting != "" and not look.is_bad
    if memory.unheard is not None and (is_repaired or not is_unheard(memory.unheard, look.heard)):
        memory = msgspec.structs.replace(memory, unheard=None, newest=(), is_losing=False)
    is_disproved = look.heard is not None and look.heard >= memory.since
    is_certain = look.is_cut or (look.is_bad and not is_disproved)
    for used in sorted({each for each in (before.used, look.used) if each is not None}):
        is_judged = used >= memory.since and now - used >= JUDGED_AFTER_S
        if is_judged and is_unheard(used, look.heard):
            memory = _with_unheard(memory, used, is_certain=is_certain)
    return memory


def _with_unheard(memory: UseMemory, used: float, *, is_certain: bool) -> UseMemory:
    newest = memory.newest
    if not newest or used - newest[-1] >= USES_APART_S:
        newest = (*newest, used)[-USES_OF_A_LOSS:]
    is_loss = len(newest) == USES_OF_A_LOSS and newest[-1] - newest[0] <= LOSS_WITHIN_S
    return msgspec.structs.replace(
        memory,
        unheard=used if memory.unheard is None else memory.unheard,
        newest=newest,
        is_losing=memory.is_losing or is_certain or is_loss,
    )
