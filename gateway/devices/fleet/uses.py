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
PAIR_S: Final = (240.0, 3600.0)  # two uses without a call this far apart are a loss
LOOKS_APART_S: Final = 600.0  # if two looks are further apart, the machine slept, or the probe did not run
GAPS: Final = 50
FEW_GAPS, FEW_GAPS_WAIT_S, LEAST_WAIT_S = 20, 4 * 3600.0, 3600.0


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
    look before. `unheard` is the first use without a call, `pair` the one that a further use is compared with, and
    `waited_s` how long the machine was awake since. `gaps` are the latest times from a use to its call, and `answered`
    is the last use that they count.
    """

    setting: str = ""
    since: float = 0.0
    looked_at: float = 0.0
    used: float | None = None
    unheard: float | None = None
    pair: float | None = None
    waited_s: float = 0.0
    is_losing: bool = False
    answered: float = 0.0
    gaps: tuple[float, ...] = ()

    def use(self, *, now: float) -> str:
        if self.unheard is not None:
            return LOSING if self.is_losing else WAITING
        return NONE if self.used is None or now - self.used > RECENT_S else HEARD


def followed(before: UseMemory, look: UseLook, *, now: float) -> UseMemory:
    """Return the memory after a look. A loss ends with a later call or a repaired setting, and not by waiting."""
    is_same = before.setting == look.setting
    memory = msgspec.structs.replace(
        before, setting=look.setting, since=before.since if is_same else now, looked_at=now, used=look.used
    )
    is_repaired = not is_same and before.setting != "" and not look.is_bad
    if memory.unheard is not None and (is_repaired or not is_unheard(memory.unheard, look.heard)):
        memory = _ended(memory, look.heard)
    elif memory.unheard is not None:
        awake_s = min(max(0.0, now - before.looked_at), LOOKS_APART_S)
        memory = msgspec.structs.replace(memory, waited_s=memory.waited_s + awake_s)
    is_disproved = look.heard is not None and look.heard >= memory.since
    for used in sorted({each for each in (before.used, look.used) if each is not None}):
        if not is_unheard(used, look.heard):
            memory = _with_answer(memory, used)
        elif used >= memory.since and now - used >= JUDGED_AFTER_S:
            memory = _with_unheard(memory, used, is_certain=look.is_cut or (look.is_bad and not is_disproved))
    if memory.unheard is not None and memory.waited_s > _patience_s(memory.gaps):
        memory = msgspec.structs.replace(memory, is_losing=True)
    return memory


def _with_unheard(memory: UseMemory, used: float, *, is_certain: bool) -> UseMemory:
    if memory.unheard is None or memory.pair is None:
        return msgspec.structs.replace(memory, unheard=used, pair=used, waited_s=0.0, is_losing=is_certain)
    least_s, most_s = PAIR_S
    apart_s = used - memory.pair
    is_losing = memory.is_losing or is_certain or least_s <= apart_s <= most_s
    return msgspec.structs.replace(
        memory, pair=used if apart_s > most_s else memory.pair, is_losing=is_losing
    )


def _with_answer(memory: UseMemory, used: float) -> UseMemory:
    """Count a use whose call arrived in time. A use is seen by two looks, and counts once."""
    if used <= memory.answered:
        return memory
    return msgspec.structs.replace(_with_gap(memory, 0.0), answered=used)


def _ended(memory: UseMemory, heard: float | None) -> UseMemory:
    if memory.unheard is not None and heard is not None and not memory.is_losing:
        memory = _with_gap(memory, max(0.0, heard - memory.unheard))
    return msgspec.structs.replace(memory, unheard=None, pair=None, waited_s=0.0, is_losing=False)


def _with_gap(memory: UseMemory, gap_s: float) -> UseMemory:
    return msgspec.structs.replace(memory, gaps=(*memory.gaps, gap_s)[-GAPS:])


def _patience_s(gaps: tuple[float, ...]) -> float:
    """Return how long a single use may wait for its call: as long as nearly all uses here did."""
    if len(gaps) < FEW_GAPS:
        return FEW_GAPS_WAIT_S
    return max(LEAST_WAIT_S, sorted(gaps)[len(gaps) * 95 // 100])
