"""
An oracle that knows which calls were lost: random lives of laptops, through the real probe in real folders, heartbeats
and the gateway's function, against the truth. `make proofs` tries more and longer lives.
"""

from __future__ import annotations

import json
import os
import random
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest

from gateway.devices.agent.heard_calls import HeardSessions, ReceivedCall, read_heard_calls
from gateway.devices.agent.policy.targets import LINUX, MANAGED, Destination
from gateway.devices.agent.probe import look
from gateway.devices.agent.probe.folders import GuardedFolder
from gateway.devices.agent.probe.look import AgentLink, ProbedMachine, UserHome, probe_and_remember_states
from gateway.devices.agent.probe.places import PLACES
from gateway.devices.agent.sessions import PROGRAMS_BY_NAME
from gateway.devices.fleet.assistant_states import updated_remembered_evidence_json
from gateway.devices.fleet.uses import LOSING, RememberedAssistantUses
from gateway.devices.machine_state import COVERED, MachineEvidence, MachineState, evaluate_machine_state
from spool.devices.device import Device
from tests.gateway.devices.fleet.lives import (
    BYTES,
    DAY,
    HOUR,
    KINDS,
    LOOK_S,
    MINUTE,
    OPENCODE,
    PROGRAMS,
    START,
    SURE,
    Call,
    Kind,
    Life,
    SessionFiles,
    Story,
    Terminal,
    Use,
    always,
    container_hides,
    two_people,
)
from tests.rounds import IS_LONG, examples

OURS, OTHER = "http://127.0.0.1:4318", "https://collector.example.net:4318"
INTERVAL_S = 60.0
ASSISTANT_OF = {"copilot_cli": "copilot"}
# a loss that stands this long after its rule must be shown: prompt and answer may be in the slots of two looks
SLACK_S = 2 * LOOK_S
# The third loss of a day is held until six slots in a row are heard. A laptop may find a loss a day after it happened.
LOSSES_HELD, HELD_DAYS, SLOTS_OF_A_HOLD = 3, 2, 7


def slot_of_growth(use: Use) -> float:
    """Return the slot in which a use is seen: that of its prompt, or of its answer where a prompt writes too little."""
    is_seen_at_once = BYTES[use.program][0] >= PROGRAMS_BY_NAME[use.program].least_growth
    return (use.at if is_seen_at_once else use.answered) // LOOK_S


class Agent:
    """The part of the agent that hears calls."""

    def __init__(self, place: Path) -> None:
        self._place = place
        self._heard = HeardSessions(place)

    def hear(self, calls: Sequence[Call], life: Life, now: float) -> None:
        local = now + life.offset_s(now)
        received = [
            ReceivedCall(
                each.program,
                each.session,
                None,
                each.began + life.offset_s(each.began),
                each.ended + life.offset_s(each.ended),
            )
            for each in calls
        ]
        self._heard.add_calls(received, local)
        self._heard.write(0, local)

    def link(self, cut: str) -> AgentLink:
        return AgentLink(path=cut, calls=read_heard_calls(self._place))


class Laptop:
    """A laptop with its life. `looks` yields the device after each heartbeat."""

    def __init__(self, place: Path, life: Life) -> None:
        self.life = life
        self._root = place / "root"
        (place / "data").mkdir(parents=True)
        self._agent = Agent(place / "data")
        self._files = SessionFiles(self._root, life)
        self._bad: set[str] = {""}
        self.memories: dict[str, RememberedAssistantUses] = {}

    def looks(self) -> Iterator[tuple[float, Device]]:
        life = self.life
        device = Device(id="d", enrolled_at=START, enrolled_by="f", last_seen=START)
        growths, calls, now = list(reversed(life.growths)), list(reversed(life.calls)), START
        newest: dict[str, float] = {}
        while now < life.end:
            now += LOOK_S
            if life.is_asleep(now):
                continue
            self._set_up(now)
            while growths and growths[-1][0] <= now:
                at, home, program, session, size = growths.pop()
                self._files.grow(home, program, session, size, at + life.offset_s(at))
            heard = []
            while calls and calls[-1].ended <= now:
                heard.append(calls.pop())
                name = ASSISTANT_OF.get(heard[-1].program, heard[-1].program)
                newest[name] = max(heard[-1].ended, newest.get(name, 0.0))
            if heard:
                self._agent.hear(heard, life, now)
            local = now + life.offset_s(now)
            machine = ProbedMachine(
                system=LINUX,
                root=GuardedFolder(self._root),
                homes=[
                    UserHome(folder=GuardedFolder(self._files.home(home)), user=1000 + home)
                    for home in range(life.homes)
                ],
                ours=[OURS],
                only_http=[OURS],
            )
            link = self._agent.link("agent_down" if life.is_cut(now) else "")
            found = probe_and_remember_states(
                machine, link, ("use",), now=local, remembered_uses=self.memories
            )
            if life.is_cut(now):  # a stopped agent reports nothing
                continue
            device = replace(
                device,
                clock_offset_s=life.offset_s(now),
                last_seen=now,
                last_heartbeat=now,
                newest_calls=newest,
            )
            heartbeat = json.dumps({**found, "spool": {"records": 0}}).encode()
            uses = updated_remembered_evidence_json(device, heartbeat, now=now)
            device = replace(device, heartbeat=heartbeat, uses=uses, newest_calls=dict(newest))
            yield now, device

    def _set_up(self, now: float) -> None:
        """Write the policy. Where a program's setting is bad, the policy names another endpoint."""
        bad = {program for _, program in self.life.programs if self.life.is_bad(now, 0, program)}
        if bad == self._bad:
            return
        self._bad = bad
        for name in {ASSISTANT_OF.get(program, program) for _, program in self.life.programs}:
            is_bad = any(ASSISTANT_OF.get(program, program) == name for program in bad)
            policy = MANAGED[name]
            file = self._root / policy.files[LINUX].lstrip("/")
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(policy.settings_text(Destination(endpoint=OTHER if is_bad else OURS)))
            os.utime(file, (now, now))
        if not any(program == OPENCODE for _, program in self.life.programs):
            return
        variables = self._root / "etc/environment.d/50-tollhouse.conf"
        variables.parent.mkdir(parents=True, exist_ok=True)
        variables.write_text(f'OTEL_EXPORTER_OTLP_ENDPOINT="{OURS}"\n')


@dataclass
class Figures:
    """
    What a kind of life showed. `lost` counts slots with a lost use, and `hidden` those that were shown as covered
    although the rule's time was over. `healthy` and `false` count looks without a standing loss, and those of them
    that were `losing`. `loss_days` and `true_causes` count days of machines with a loss, and those with its cause.
    """

    lost: int = 0
    hidden: int = 0
    healthy: int = 0
    false: int = 0
    loss_days: int = 0
    true_causes: int = 0

    def add(self, other: Figures) -> None:
        for name, value in vars(other).items():
            setattr(self, name, getattr(self, name) + value)

    def __str__(self) -> str:
        return (
            f"hidden {self.hidden}/{self.lost} = {100 * self.hidden / max(1, self.lost):.1f} %, "
            f"false {self.false}/{self.healthy} = {100 * self.false / max(1, self.healthy):.2f} %, "
            f"cause {self.true_causes}/{self.loss_days}"
        )


@dataclass
class Standing:
    """
    A lost slot of a terminal that nothing has ended yet. A repair ends it, and a later heard use of the same terminal
    or of a session that began after the look that follows the loss: it shows that new sessions report.
    """

    use: Use
    awake: float
    is_hidden: bool = False
    is_known: bool = False


@dataclass
class Truth:
    """The losses that stand at a look, by terminal."""

    life: Life
    figures: Figures = field(default_factory=Figures)
    standing: list[Standing] = field(default_factory=list)
    causes_of_day: dict[int, tuple[set[str], set[str]]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._uses = list(reversed(self.life.uses))
        self._awake, self._before = 0.0, START
        self._heard_since_loss: dict[tuple[int, str], set[float]] = {}
        self._losses: dict[tuple[int, str], list[float]] = defaultdict(list)
        self._slots: set[tuple[object, ...]] = set()
        self._began: dict[str, float] = {}

    def look(self, now: float, state: MachineState | None) -> None:
        """Take a look. Without a state, the agent is stopped."""
        life = self.life
        self._awake += min(now - self._before, 900)
        self._before = now
        while self._uses and self._uses[-1].answered <= now:
            self._take(self._uses.pop())
        repaired = [most for _, most, *_ in life.bad if most <= now]
        if repaired:
            self.standing = [
                each for each in self.standing if not any(each.use.at < most <= now for most in repaired)
            ]
        if state is None:
            return
        overdue = [each for each in self.standing if self._is_overdue(each, now)]
        for each in overdue:
            if state.word in COVERED and not each.is_hidden:
                each.is_hidden = True
                self.figures.hidden += 1
        if not self.standing and not any(map(self._may_be_held, self._losses)):
            self.figures.healthy += 1
            self.figures.false += state.word == LOSING
        elif state.word == LOSING and overdue:
            day = int(now // DAY)
            stated, known = self.causes_of_day.setdefault(day, (set(), set()))
            stated |= {each for cause in state.causes for each in cause}
            known |= {cause for each in overdue for cause in self._causes_of(each.use)}

    def finish(self) -> Figures:
        for stated, known in self.causes_of_day.values():
            self.figures.loss_days += 1
            self.figures.true_causes += bool(stated & known)
        return self.figures

    def _causes_of(self, use: Use) -> set[str]:
        if self.life.is_bad(use.at, use.home, use.program):
            return {"overridden"}
        is_cut = any(least - 400 <= use.at < most for least, most in self.life.cut)
        return {"agent_down"} if is_cut else {"no_record", "intermittent"}

    def _take(self, use: Use) -> None:
        where = (use.home, use.program)
        began = self._began.setdefault(use.session, use.at)
        if not use.is_lost:
            self.standing = [each for each in self.standing if not self._is_ended(each.use, use, began)]
            heard = self._heard_since_loss.setdefault(where, set())
            if all((each.use.home, each.use.program) != where for each in self.standing):
                heard.add(slot_of_growth(use))
            return
        if self._heard_since_loss.pop(where, None) is not None or not self._losses[where]:
            self._losses[where].append(use.answered)
        if self._is_beside_heard_call(use):
            return
        slot = (*where, use.terminal, use.session, slot_of_growth(use))
        if slot not in self._slots:
            self._slots.add(slot)
            self.figures.lost += 1
            self.standing.append(Standing(use, self._awake))

    def _may_be_held(self, where: tuple[int, str]) -> bool:
        """Return whether a home lost calls of a program so often that its loss stands although a later use is heard."""
        newest = self._losses[where][-LOSSES_HELD:]
        is_often = len(newest) == LOSSES_HELD and newest[-1] - newest[0] <= HELD_DAYS * DAY
        return is_often and len(self._heard_since_loss.get(where, ())) < SLOTS_OF_A_HOLD

    def _is_ended(self, lost: Use, heard: Use, began: float) -> bool:
        if (lost.home, lost.program) != (heard.home, heard.program) or slot_of_growth(lost) >= slot_of_growth(
            heard
        ):
            return False
        return lost.terminal == heard.terminal or lost.at < began // LOOK_S * LOOK_S

    def _is_beside_heard_call(self, use: Use) -> bool:
        """Return whether a call of the same session within ten minutes was heard, which hides the loss."""
        return any(
            each.session == use.session and each.began - 15 * MINUTE <= use.at <= each.ended + 7 * MINUTE
            for each in self.life.calls
        )

    def _is_overdue(self, loss: Standing, now: float) -> bool:
        """Return whether the rule must have found a loss."""
        use = loss.use
        if self._awake - loss.awake < SLACK_S:
            return False
        same = [
            each
            for each in self.standing
            if (each.use.home, each.use.program, each.use.terminal) == (use.home, use.program, use.terminal)
        ]
        least = 3 if use.program in SURE else 5
        slots = sorted({slot_of_growth(each.use) for each in same})
        if len(slots) >= least and now >= slots[least - 1] * LOOK_S + 2 * LOOK_S + SLACK_S:
            # uses during sleep are seen only afterwards
            return same[least - 1].awake + SLACK_S <= self._awake
        is_old = now - use.at >= DAY + 2 * LOOK_S and self._awake - loss.awake >= HOUR + 2 * LOOK_S
        return is_old and use.program in SURE


def figures_of(kind: Kind, seed: int, days: float, place: Path) -> Figures:
    """Return what a life shows. Only its own programs are looked at, because settings take most of the time."""
    life = kind(random.Random(seed), days)
    names = {program for _, program in life.programs}
    laptop, truth = Laptop(place, life), Truth(life)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("os.fsync", lambda descriptor: None)
        patch.setattr(look, "PLACES", {name: PLACES[name] for name in PLACES if name in names})
        for now, device in laptop.looks():
            truth.look(now, evaluate_machine_state(MachineEvidence(device, INTERVAL_S), now))
    return truth.finish()


# lives in which calls of one were hidden by those of another, each a day in all test runs
SHORT = (two_people, container_hides)


@pytest.mark.parametrize("kind", SHORT, ids=lambda kind: kind.__name__)
def test_another_sender_hides_no_loss(tmp_path: Path, kind: Kind) -> None:
    found = figures_of(kind, 1, 0.6, tmp_path)
    assert found.lost and not found.hidden, found
    assert found.healthy and not found.false, found


@pytest.mark.parametrize("program", PROGRAMS)
def test_a_lost_use_is_losing_a_day_later_and_an_opening_never_is(tmp_path: Path, program: str) -> None:
    """One use a day is lost. `losing` is the first look a day after its slot, if other actions write less."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("os.fsync", lambda descriptor: None)
        patch.setattr(look, "PLACES", {program: PLACES[program]})
        used, opened = (Story(random.Random(1), name, 1.6) for name in ("one lost use a day", "openings"))
        terminal = Terminal(0, program, 0, always)
        for day in range(2):
            used.prompt(terminal, used.new_id(), START + day * DAY + 9 * HOUR)
            for hour, size in enumerate(BYTES[program][2], start=10):
                at = START + day * DAY + hour * HOUR
                opened.life.growths.append((at, 0, program, opened.new_id(), size))
        opened.life.programs.add((0, program))
        losing = [
            now
            for now, device in Laptop(tmp_path / "used", used.told()).looks()
            if evaluate_machine_state(MachineEvidence(device, INTERVAL_S), now).word == LOSING
        ]
        ended = (slot_of_growth(used.life.uses[0]) + 1) * LOOK_S
        assert [ended + DAY] == losing[:1] if program in SURE else losing == []
        for now, device in Laptop(tmp_path / "opened", opened.told()).looks():
            assert LOSING != evaluate_machine_state(MachineEvidence(device, INTERVAL_S), now).word


@pytest.mark.proof
def test_losses_of_all_kinds_of_lives_are_shown(tmp_path: Path) -> None:
    """
    At most 2 % of the lost slots are shown as covered after the time in which the rule must find them. Laptops without
    a loss are losing for at most 0.5 % of their time, and 95 % of the days with a loss have its cause.
    """
    of_kinds: dict[str, Figures] = defaultdict(Figures)
    whole = Figures()
    for kind in KINDS:
        for seed in range(examples(100) // 5 if IS_LONG else 2):
            found = figures_of(kind, seed, 7.0 if IS_LONG else 2.0, tmp_path / f"{kind.__name__}{seed}")
            of_kinds[kind.__name__].add(found)
            whole.add(found)
    table = "\n".join(f"{name}: {found}" for name, found in of_kinds.items())
    print(table)
    assert whole.hidden <= whole.lost * 0.02, table
    assert whole.false <= whole.healthy * 0.005, table
    assert whole.true_causes >= whole.loss_days * 0.95, table


@pytest.mark.proof
@pytest.mark.parametrize("seed", range(examples(20)))
def test_the_silent_one_of_two_people_is_shown_within_20_minutes_of_use(tmp_path: Path, seed: int) -> None:
    """The other one, whose calls arrive, has a state that never becomes a loss. Some programs need five uses."""
    life = two_people(random.Random(seed), 2.0)
    losers = {use.home for use in life.uses if use.is_lost}
    others = [home for home in range(life.homes) if home not in losers]
    lost = [use for use in life.uses if use.is_lost]
    laptop = Laptop(tmp_path, life)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("os.fsync", lambda descriptor: None)
        for now, _ in laptop.looks():
            states = {
                home: memory.use_state(now=now)
                for home in range(life.homes)
                for name, memory in laptop.memories.items()
                if name.endswith(f" {1000 + home}") and memory.used is not None
            }
            assert all(states.get(home) != LOSING for home in others), (seed, now)
            of_slots = sorted({slot_of_growth(use) for use in lost if use.answered <= now - 15 * MINUTE})
            needed = 3 if lost and lost[0].program in SURE else 5
            if len(of_slots) > needed:
                assert all(states[home] == LOSING for home in losers), (seed, now)
