"""A random plan for sending conversations to one gateway: requests, repeats, pauses, stops and kills."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from spool.log.duplicates import MAX_AGE_S
from tests.integration.order.dealt.conversation import Conversation, Item, may_share
from tests.integration.order.dealt.families import FAMILIES, WITHOUT_COUNTERS
from tests.integration.order.running import HOLD_S

Family = Callable[[int, random.Random], Conversation]
STOP, KILL = "stop", "kill"
# seconds between two requests, so short that all reports of a call arrive while its record is open
OPEN = 0.0, 0.0, 0.5
ANY = (0.0, 0.0, 1.0, 5.0, HOLD_S - 0.5, HOLD_S + 1.0, 25.0, 100.0)
LONG = (*ANY, 1800.0, 7200.0)  # seconds between two requests in plans without counters
MOST_S = (
    # limit for the sum of pauses, because calls and counters that are further apart both count
    # (docs/promises/ordering.md)
    3000.0
)


@dataclass(frozen=True)
class Step:
    """A request and what follows it. A request that a kill interrupts is sent again."""

    items: Sequence[Item]
    as_protobuf: bool = False
    as_gzip: bool = False
    is_cut_off: bool = False
    then: str = ""
    pause_s: float = 0.0


@dataclass(frozen=True)
class Plan:
    conversations: Sequence[Conversation]
    steps: Sequence[Step]
    all_open: bool  # whether every report arrives while the records are open

    def apart(self) -> list[Conversation]:
        """
        Return a conversation for each call that counts once more than it was made. This happens if a report
        that fits two records arrives when the position of the first is no longer known (docs/promises/ordering.md).
        """
        owners = {item: one for one in self.conversations for item in one.items}
        names = {one: _Names() for one in self.conversations}
        now = 0.0
        for step in self.steps:
            for item in step.items:
                for known_by in item.calls:
                    names[owners[item]].tell(known_by, now)
            now += step.pause_s
        return [one for one in self.conversations for _ in range(names[one].count - one.calls)]


class _Names:
    """The records of one conversation, by the names that identify them."""

    def __init__(self) -> None:
        self.count = 0
        self._began: list[float] = []
        self._records: dict[str, int] = {}

    def tell(self, names: frozenset[str], now: float) -> None:
        found = sorted({self._records[name] for name in names if name in self._records})
        if not found:
            found = [len(self._began)]
            self._began.append(now)
            self.count += 1
        first, *others = found
        if others and now - self._began[first] < MAX_AGE_S:
            self.count -= len(others)
            self._records = {name: first if at in others else at for name, at in self._records.items()}
        for name in names:
            self._records.setdefault(name, first)


def dealt(
    chance: random.Random, *, most: int = 2, is_open: bool = False, families: Sequence[Family] = ()
) -> Plan:
    """
    Draw a plan with up to `most` conversations of each family, in shuffled requests. With `is_open`, no
    record closes in between.
    """
    families = families or (FAMILIES if chance.random() < 0.7 else WITHOUT_COUNTERS)
    names = [family for family in families for _ in range(chance.randint(0, most))] or [families[0]]
    conversations = [family(number, chance) for number, family in enumerate(names, start=1)]
    items = [item for one in conversations for item in one.items]
    chance.shuffle(items)
    items += chance.sample(items, len(items) // 4)  # some items also arrive in a second request
    all_open = is_open or chance.random() < 0.4
    has_counters = any(item.format == "otlp/metrics" for item in items)
    steps = list(_steps(items, chance, OPEN if all_open else ANY if has_counters else LONG))
    for step in chance.sample(steps, len(steps) // 5):  # some requests are repeated later
        steps.insert(chance.randint(steps.index(step) + 1, len(steps)), step)
    if all_open:
        longest = max(HOLD_S - 1.0, 0.0)
        total = sum(step.pause_s for step in steps)
        steps = [
            Step(**{**vars(step), "pause_s": step.pause_s * min(1.0, longest / (total or 1))})
            for step in steps
        ]
    elif has_counters and sum(step.pause_s for step in steps) > MOST_S:
        steps = [Step(**{**vars(step), "pause_s": min(step.pause_s, 10.5)}) for step in steps]
    return Plan(conversations, steps, all_open)


def _steps(items: Sequence[Item], chance: random.Random, pauses: Sequence[float]) -> Iterator[Step]:
    """Yield steps. Items of one sender may share a request."""
    waiting = list(items)
    while waiting:
        group = [waiting.pop(0)]
        while chance.random() < 0.4:
            other = next((one for one in waiting if may_share(group[0], one) and one not in group), None)
            if other is None:
                break
            waiting.remove(other)
            group.append(other)
        then = chance.choices(("", STOP, KILL), (0.8, 0.1, 0.1))[0]
        packing = {"as_protobuf": chance.random() < 0.5, "as_gzip": chance.random() < 0.3}
        yield Step(
            group, **packing, is_cut_off=chance.random() < 0.1, then=then, pause_s=chance.choice(pauses)
        )
