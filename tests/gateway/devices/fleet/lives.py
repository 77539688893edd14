"""
Random lives of laptops, of which it is known which calls were lost: people, terminals, sessions and programs, in real
folders that the real probe reads, with a moved clock.
"""

from __future__ import annotations

import os
import random
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple
from uuid import UUID

MINUTE, HOUR, DAY = 60.0, 3600.0, 86_400.0
LOOK_S = 300.0
START = 1_800_000_000.0 - 1_800_000_000.0 % DAY

CLAUDE, CODEX, COPILOT, OPENCODE = "claude-code", "codex", "copilot_cli", "opencode"
GEMINI, QWEN = "gemini-cli", "qwen-code"
PROGRAMS = (CLAUDE, CODEX, COPILOT, GEMINI, QWEN)
# programs whose files grow by much only with a prompt: three uses are a loss, or one after a day
SURE = frozenset({CLAUDE, QWEN})
FOLDERS = {
    CLAUDE: ".claude",
    CODEX: ".codex",
    COPILOT: ".copilot",
    OPENCODE: ".local/share/opencode",
    GEMINI: ".gemini",
    QWEN: ".qwen",
}
MOVED = {CLAUDE: "CLAUDE_CONFIG_DIR", CODEX: "CODEX_HOME"}
# bytes that the real programs wrote: for a prompt, for its answer, and for what is no prompt (docs/fleet/coverage.md)
BYTES = {
    CLAUDE: (3423, 1296, (0, 671, 1545)),
    CODEX: (8406, 3081, (0, 2305, 25377)),
    COPILOT: (1245, 1624, (0, 724, 2511)),
    GEMINI: (351, 1668, (0, 926, 944, 3335)),
    QWEN: (785, 2141, (0, 704)),
    OPENCODE: (8240, 8240, (0, 8240)),
}


class Call(NamedTuple):
    """A call of a session, or of a container if `home` is -1. It arrives at `ended`, unless it is lost."""

    home: int
    program: str
    session: str
    began: float
    ended: float


class Use(NamedTuple):
    """A prompt in a terminal, whose call ended at `answered`. If the call was lost, `is_lost`."""

    at: float
    answered: float
    home: int
    program: str
    session: str
    terminal: int
    is_lost: bool


@dataclass
class Terminal:
    """A terminal with its own variables: the chance with which a call of it is lost, in times of a life."""

    home: int
    program: str
    number: int
    lost: Callable[[float, random.Random], bool]


@dataclass
class Life:
    """
    What happened on a laptop. All times are true ones; `offset_s` is how far its clock is ahead at a true time.

    `growths` are bytes that a file of a session got. `bad` and `cut` are times in which the settings of a home's
    program were visibly wrong, or the agent was stopped.
    """

    kind: str
    end: float
    homes: int = 1
    uses: list[Use] = field(default_factory=list)
    calls: list[Call] = field(default_factory=list)
    growths: list[tuple[float, int, str, str, int]] = field(default_factory=list)
    bad: list[tuple[float, float, int, str]] = field(default_factory=list)
    cut: list[tuple[float, float]] = field(default_factory=list)
    asleep: list[tuple[float, float]] = field(default_factory=list)
    clocks: list[tuple[float, float]] = field(default_factory=list)
    links: set[tuple[int, str]] = field(default_factory=set)
    moved: set[tuple[int, str]] = field(default_factory=set)
    programs: set[tuple[int, str]] = field(default_factory=set)

    def offset_s(self, at: float) -> float:
        return next((by for since, by in reversed(self.clocks) if at >= since), 0.0)

    def is_asleep(self, at: float) -> bool:
        return any(least <= at < most for least, most in self.asleep)

    def is_cut(self, at: float) -> bool:
        return any(least <= at < most for least, most in self.cut)

    def is_bad(self, at: float, home: int, program: str) -> bool:
        return any(each[0] <= at < each[1] and each[2:] == (home, program) for each in self.bad)


Kind = Callable[[random.Random, float], Life]


def never(at: float, dice: random.Random) -> bool:
    return False


def always(at: float, dice: random.Random) -> bool:
    return True


def often(at: float, dice: random.Random) -> bool:
    return dice.random() < 0.5


def between(least: float, most: float) -> Callable[[float, random.Random], bool]:
    return lambda at, dice: least <= at < most


class Story:
    """A life that is being told: each person works at some times of a day, in some terminals."""

    def __init__(self, dice: random.Random, kind: str, days: float, homes: int = 1) -> None:
        self.dice = dice
        self.life = Life(kind, START + days * DAY, homes)
        self._count = 0

    def office_hours(self) -> Iterator[tuple[float, float]]:
        """Yield when people work, day by day. Between two days, the laptop mostly sleeps."""
        day, before = START, START
        while day < self.life.end:
            began = day + self.dice.uniform(7, 10) * HOUR
            ended = min(began + self.dice.uniform(4, 10) * HOUR, self.life.end)
            if began < self.life.end:
                if self.dice.random() < 0.7 and before > START:
                    self.life.asleep.append((before + HOUR, began - 10 * MINUTE))
                yield began, ended
                before = ended
            day += DAY

    def work(
        self, terminals: Sequence[Terminal], gap: Callable[[], float], *, session_s: float = 2 * HOUR
    ) -> None:
        """Let a person work in some terminals at once, each with its own sessions one after the other."""
        for began, ended in list(self.office_hours()) if not self._days else self._days:
            for terminal in terminals:
                self._sit(terminal, began + self.dice.uniform(0, 20) * MINUTE, ended, gap, session_s)

    _days: Sequence[tuple[float, float]] = ()

    def fix_days(self) -> None:
        """Let all people of the laptop work on the same days."""
        self._days = list(self.office_hours())

    def fix_hours(self, days: Iterable[tuple[float, float]]) -> None:
        """Let all people of the laptop work at these times."""
        self._days = list(days)

    def _sit(
        self, terminal: Terminal, began: float, ended: float, gap: Callable[[], float], session_s: float
    ) -> None:
        now, session, until = began, "", 0.0
        while now < ended:
            if now >= until:
                session, until = self.new_id(), now + self.dice.uniform(0.2, 2) * session_s
            if not self.life.is_asleep(now):
                self.prompt(terminal, session, now)
            later = now + gap()
            if later >= min(until, ended):
                self.open(terminal, session, min(self.dice.uniform(now, later), ended))
            now = later

    def new_id(self) -> str:
        return str(UUID(int=self.dice.getrandbits(128), version=4))

    def prompt(self, terminal: Terminal, session: str, at: float) -> None:
        """Let a person send a prompt: the file grows, a call runs, and the file grows again."""
        life, dice = self.life, self.dice
        answered = at + dice.choice((dice.uniform(2, 40), dice.uniform(40, 400)))
        where = (terminal.home, terminal.program)
        life.programs.add(where)
        is_lost = terminal.lost(at, dice) or life.is_bad(at, *where) or life.is_cut(answered)
        # a laptop that falls asleep ends its call after it wakes up
        for least, most in life.asleep:
            if at < least < answered:
                answered = most + 30
        life.uses.append(Use(at, answered, *where, session, terminal.number, is_lost))
        prompt, answer, _ = BYTES[terminal.program]
        life.growths += [(at, *where, session, prompt), (answered, *where, session, answer)]
        if not is_lost:
            life.calls.append(Call(*where, session, at + 1, answered))

    def open(self, terminal: Terminal, session: str, at: float) -> None:
        """Open, resume or close a session, or run a command in it, without a prompt."""
        self.life.programs.add((terminal.home, terminal.program))
        size = self.dice.choice(BYTES[terminal.program][2])
        self.life.growths.append((at, terminal.home, terminal.program, session, size))

    def cancel(self, terminal: Terminal, session: str, at: float) -> None:
        """Cancel a prompt before its call ends."""
        size = BYTES[terminal.program][0]
        self.life.growths.append((at, terminal.home, terminal.program, session, size))

    def container(self, program: str) -> None:
        """Let a container send calls of its own sessions to the host's port, every few minutes."""
        now = START
        session = self.new_id()
        while now < self.life.end:
            self.life.calls.append(Call(-1, program, session, now, now + 20))
            now += self.dice.uniform(2, 10) * MINUTE

    def told(self) -> Life:
        life = self.life
        life.uses.sort(key=lambda use: use.answered)
        life.calls.sort(key=lambda call: call.ended)
        life.growths.sort()
        return life


def often_used(dice: random.Random) -> Callable[[], float]:
    return lambda: dice.choice((dice.uniform(1, 6), dice.uniform(3, 30))) * MINUTE


def seldom_used(dice: random.Random) -> Callable[[], float]:
    return lambda: dice.uniform(60, 240) * MINUTE


def two_programs(dice: random.Random) -> tuple[str, str]:
    one, other = dice.sample(PROGRAMS, 2)
    return one, other


def fine(dice: random.Random, days: float) -> Life:
    story = Story(dice, "fine", days)
    one, other = two_programs(dice)
    terminals = [Terminal(0, one, number, never) for number in range(dice.randrange(1, 4))]
    story.work([*terminals, Terminal(0, other, 9, never)], often_used(dice))
    return story.told()


def fine_and_seldom(dice: random.Random, days: float) -> Life:
    story = Story(dice, "fine, seldom used", days)
    story.work([Terminal(0, dice.choice(PROGRAMS), 0, never)], seldom_used(dice))
    return story.told()


def idle_openings(dice: random.Random, days: float) -> Life:
    """Sessions are opened and resumed without a prompt, and sometimes a prompt is cancelled."""
    story = Story(dice, "openings without a prompt", days)
    story.fix_days()
    terminal = Terminal(0, dice.choice(PROGRAMS), 0, never)
    story.work([terminal], seldom_used(dice))
    used = list(story.life.uses)
    for began, ended in story._days:
        for _ in range(dice.randrange(4)):
            session = dice.choice(used).session if used and dice.random() < 0.5 else story.new_id()
            story.open(terminal, session, dice.uniform(began, ended))
        if used and dice.random() < 0.2:
            use = dice.choice(used)
            story.cancel(terminal, use.session, use.at + dice.uniform(-8, 30) * MINUTE)
    return story.told()


def silent(dice: random.Random, days: float) -> Life:
    """All calls of a home are lost from some time on, and no setting shows why."""
    story = Story(dice, "silent", days)
    one, other = two_programs(dice)
    since = START + dice.uniform(0.2, 0.8) * days * DAY
    until = since + dice.choice((6 * HOUR, DAY, 30 * DAY))
    gap = dice.choice((often_used, seldom_used))(dice)
    story.work([Terminal(0, one, 0, between(since, until)), Terminal(0, other, 1, never)], gap)
    return story.told()


def silent_seldom(dice: random.Random, days: float) -> Life:
    """One use a day, and it is lost."""
    story = Story(dice, "one lost use a day", days)
    story.work([Terminal(0, dice.choice(sorted(SURE)), 0, always)], lambda: 24 * HOUR)
    return story.told()


def bad_setting(dice: random.Random, days: float) -> Life:
    story = Story(dice, "bad setting", days)
    one, other = two_programs(dice)
    since = START + dice.uniform(0.3, 0.7) * days * DAY
    story.life.bad.append((since, since + dice.uniform(0.2, 1.5) * DAY, 0, one))
    story.work([Terminal(0, one, 0, never), Terminal(0, other, 1, never)], often_used(dice))
    return story.told()


def stopped_agent(dice: random.Random, days: float) -> Life:
    story = Story(dice, "stopped agent", days)
    since = START + dice.uniform(0.3, 0.7) * days * DAY
    story.life.cut.append((since, since + dice.uniform(0.2, 5) * HOUR))
    story.work([Terminal(0, dice.choice(PROGRAMS), 0, never)], often_used(dice))
    return story.told()


def two_people(dice: random.Random, days: float) -> Life:
    """Two or three people work at once, and all calls of one of them are lost."""
    story = Story(dice, "people, one silent", days, homes=dice.randrange(2, 4))
    story.fix_days()
    program = dice.choice(PROGRAMS)
    loser = dice.randrange(story.life.homes)
    since = START + dice.uniform(0.1, 0.6) * days * DAY
    for home in range(story.life.homes):
        lost = between(since, 1e12) if home == loser else never
        story.work([Terminal(home, program, home, lost)], often_used(dice))
    return story.told()


def one_shots(dice: random.Random, days: float) -> Life:
    """Two people run one-shot prompts every five minutes, and all calls of one of them are lost."""
    story = Story(dice, "one-shot prompts, one silent", days, homes=2)
    story.fix_days()
    program = dice.choice(PROGRAMS)
    for home in range(2):
        lost = always if home else never
        story.work([Terminal(home, program, home, lost)], lambda: 5 * MINUTE, session_s=1.0)
    return story.told()


def two_terminals(dice: random.Random, days: float) -> Life:
    """One person works in several terminals, of which one has its own variables."""
    story = Story(dice, "terminals, one silent", days)
    program = dice.choice(PROGRAMS)
    since = START + dice.uniform(0.1, 0.6) * days * DAY
    terminals = [Terminal(0, program, number, never) for number in range(dice.randrange(1, 3))]
    story.work([*terminals, Terminal(0, program, 9, between(since, 1e12))], often_used(dice))
    return story.told()


def container_hides(dice: random.Random, days: float) -> Life:
    """A container sends its calls to the port of the host, whose own calls are lost from some time on."""
    story = Story(dice, "container beside a silent host", days)
    program = dice.choice(PROGRAMS)
    since = START + dice.uniform(0.1, 0.6) * days * DAY
    story.container(program)
    story.work([Terminal(0, program, 0, between(since, 1e12))], often_used(dice))
    return story.told()


def linked(dice: random.Random, days: float) -> Life:
    """The sessions are behind a link or in a moved folder, and their calls are lost from some time on."""
    story = Story(dice, "linked or moved folder", days)
    program = dice.choice((CLAUDE, CODEX))
    (story.life.links if dice.random() < 0.5 else story.life.moved).add((0, program))
    since = START + dice.uniform(0.1, 1.2) * days * DAY
    story.work([Terminal(0, program, 0, between(since, 1e12))], often_used(dice))
    return story.told()


def half_lost(dice: random.Random, days: float) -> Life:
    """The exporter of a terminal loses half of its calls."""
    story = Story(dice, "half of the calls lost", days)
    program = dice.choice(PROGRAMS)
    story.work([Terminal(0, program, 0, often)], dice.choice((often_used, seldom_used))(dice))
    return story.told()


def moved_clock(dice: random.Random, days: float) -> Life:
    """The clock is set back or forward while somebody works, and sometimes calls are lost later."""
    story = Story(dice, "moved clock", days)
    at = START + dice.uniform(0.3, 0.6) * days * DAY
    story.life.clocks.append((at, dice.choice((-3.0, -0.5, 2.0)) * HOUR))
    since = dice.choice((START + 0.8 * days * DAY, 1e12))
    story.work([Terminal(0, dice.choice(PROGRAMS), 0, between(since, 1e12))], often_used(dice))
    return story.told()


def database(dice: random.Random, days: float) -> Life:
    """One person uses a program with a database, whose calls are lost from some time on."""
    story = Story(dice, "database", days)
    since = START + dice.uniform(0.1, 1.2) * days * DAY
    story.work([Terminal(0, OPENCODE, 0, between(since, 1e12))], often_used(dice))
    return story.told()


def night_shift(dice: random.Random, days: float) -> Life:
    """Somebody works over midnight, with the laptop asleep for some time around it. Sometimes calls are lost later."""
    story = Story(dice, "asleep over midnight", days)
    since = dice.choice((START + dice.uniform(0.2, 0.8) * days * DAY, 1e12))
    nights = [START + DAY * night for night in range(1, int(days))]
    story.fix_hours((at - dice.uniform(1, 4) * HOUR, at + dice.uniform(1, 4) * HOUR) for at in nights)
    for at in nights:
        story.life.asleep.append((at - dice.uniform(1, 50) * MINUTE, at + dice.uniform(1, 50) * MINUTE))
    terminals = [Terminal(0, dice.choice(PROGRAMS), number, never) for number in range(dice.randrange(1, 3))]
    terminals[0].lost = between(since, 1e12)
    story.work(terminals, dice.choice((often_used, seldom_used))(dice), session_s=dice.choice((HOUR, DAY)))
    return story.told()


def corrected_clock(dice: random.Random, days: float) -> Life:
    """The clock is set back by half an hour several times while somebody works, in the midst of losses too."""
    story = Story(dice, "clock corrected again and again", days)
    offset, at = 0.0, START + dice.uniform(0.1, 0.4) * days * DAY
    while at < story.life.end:
        offset -= dice.choice((HOUR / 2, HOUR / 2, -HOUR / 2))
        story.life.clocks.append((at, offset))
        at += dice.uniform(0.1, 0.6) * days * DAY
    since = START + dice.uniform(0.3, 1.5) * days * DAY
    until = since + dice.choice((3 * HOUR, 30 * DAY))
    story.work([Terminal(0, dice.choice(PROGRAMS), 0, between(since, until))], often_used(dice))
    return story.told()


def long_closed(dice: random.Random, days: float) -> Life:
    """A program is closed for most of the time, and then used heavily in many sessions. Another one is used as ever."""
    story = Story(dice, "closed for days, then used heavily", days)
    one, other = two_programs(dice)
    story.work([Terminal(0, other, 9, never)], often_used(dice))
    opened = START + dice.uniform(0.3, 0.7) * days * DAY
    story.fix_hours([(START + HOUR, START + 2 * HOUR), (opened, opened + 5 * HOUR)])
    lost = dice.choice((never, between(opened, 1e12), between(opened + HOUR, opened + 2 * HOUR)))
    terminals = [
        Terminal(0, one, number, lost if number else never) for number in range(dice.randrange(2, 5))
    ]
    story.work(terminals, lambda: dice.uniform(0.5, 4) * MINUTE, session_s=dice.choice((1.0, HOUR)))
    return story.told()


def mixed(dice: random.Random, days: float) -> Life:
    """Everything at once: people with two programs and some terminals, faults, containers, links and openings."""
    story = Story(dice, "mixed", days, homes=dice.randrange(1, 4))
    story.fix_days()
    life = story.life
    if dice.random() < 0.3:
        at = START + dice.uniform(0.2, 0.8) * days * DAY
        life.cut.append((at, at + dice.uniform(0.1, 3) * HOUR))
    for home in range(life.homes):
        for program in two_programs(dice):
            since = START + dice.uniform(0.1, 1.5) * days * DAY
            until = since + dice.choice((5 * HOUR, 30 * DAY))
            lost = dice.choice((never, never, always, often, between(since, until)))
            if program in MOVED and dice.random() < 0.2:
                dice.choice((life.links, life.moved)).add((home, program))
            terminals = [
                Terminal(home, program, number, dice.choice((never, lost)) if number else lost)
                for number in range(dice.randrange(1, 3))
            ]
            gap = dice.choice((often_used, often_used, seldom_used))(dice)
            story.work(terminals, gap, session_s=dice.choice((1.0, HOUR, 4 * HOUR)))
            for began, ended in story._days:
                for _ in range(dice.randrange(3)):
                    story.open(terminals[0], story.new_id(), dice.uniform(began, ended))
    if dice.random() < 0.3:
        story.container(dice.choice(PROGRAMS))
    return story.told()


KINDS = (
    fine, fine_and_seldom, idle_openings, silent, silent_seldom, bad_setting, stopped_agent, two_people, one_shots,
    two_terminals, container_hides, linked, half_lost, moved_clock, database,
    night_shift, corrected_clock, long_closed, mixed,
)  # fmt: skip


class SessionFiles:
    """The files of the sessions of a life, below its root."""

    def __init__(self, root: Path, life: Life) -> None:
        self._root, self._life = root, life
        self._sizes: dict[tuple[int, str, str], int] = {}
        for home, program in sorted(life.programs):
            folder = self.home(home) / FOLDERS[program]
            if (home, program) in life.links:
                target = self.home(home) / "elsewhere" / program
                target.mkdir(parents=True)
                folder.parent.mkdir(parents=True, exist_ok=True)
                folder.mkdir()
                name = {CLAUDE: "projects", CODEX: "sessions"}[program]
                (folder / name).symlink_to(target)
            elif (home, program) in life.moved:
                profile = self.home(home) / ".profile"
                profile.parent.mkdir(parents=True, exist_ok=True)
                profile.write_text(f'export {MOVED[program]}="$HOME/moved"\n')
                (self.home(home) / "moved").mkdir()
                folder.mkdir()
            else:
                folder.mkdir(parents=True)

    def home(self, number: int) -> Path:
        return self._root / "home" / str(number)

    def grow(self, home: int, program: str, session: str, size: int, local: float) -> None:
        file = self._file(home, program, session)
        key = (home, program, "" if program == OPENCODE else session)
        self._sizes[key] = self._sizes.get(key, 0) + size
        file.parent.mkdir(parents=True, exist_ok=True)
        with file.open("ab") as opened:
            opened.truncate(self._sizes[key])
        os.utime(file, (local, local))

    def _file(self, home: int, program: str, session: str) -> Path:
        folder = self.home(home) / FOLDERS[program]
        if (home, program) in self._life.moved:
            folder = self.home(home) / "moved"
        if program == CLAUDE:
            return folder / "projects/shop" / f"{session}.jsonl"
        if program == CODEX:
            return folder / "sessions/2027/01/15" / f"rollout-2027-01-15T08-00-00-{session}.jsonl"
        if program == COPILOT:
            return folder / "session-state" / session / "events.jsonl"
        if program == GEMINI:
            return folder / "tmp/shop/chats" / f"session-2027-01-15T08-00-{session[:8]}.jsonl"
        if program == QWEN:
            return folder / "projects/shop/chats" / f"{session}.jsonl"
        return folder / "opencode.db"
