"""Starts on random damage to each of the three files and their logs, made at rest and while running."""

from __future__ import annotations

import asyncio
import random
from pathlib import Path

import pytest

from spool.sqlite.damage.notes import MARKER
from tests.faults import damage
from tests.faults.damage import (
    KINDS,
    WHILE_RUNNING,
    Calls,
    Damage,
    Said,
    flip_in_header,
    fresh_copy,
    harm,
    judged,
    overwrite_pages,
    start_and_kill,
)
from tests.faults.scenarios import Trial

Corpora = dict[str, tuple[Path, Calls]]


@pytest.fixture(scope="module")
def corpora(tmp_path_factory: pytest.TempPathFactory) -> Corpora:
    """
    Create data directories with acknowledged calls by name. In half of them every call is delivered, in
    the others none.
    """
    made: Corpora = {}
    for name, archive in (("queued", False), ("delivered", True)):
        directory = tmp_path_factory.mktemp(name)
        calls = asyncio.run(damage.make_corpus(directory, random.Random(name), archive=archive))
        made |= {f"{name} {kind}": (directory / kind, calls) for kind in ("rest", "killed")}
    return made


def check(
    trial: Trial,
    rng: random.Random,
    corpora: Corpora,
    directory: Path,
    kinds: tuple[Damage, ...],
    *,
    only: str = "",
) -> None:
    """Damage a copy at rest, start on it, and judge."""
    name = rng.choice(sorted(corpora))
    corpus, known = corpora[name]
    calls = known.copy()
    copy = fresh_copy(corpus, directory / f"{rng.getrandbits(32):08x}")
    done = harm(copy, rng, kinds, only=only)
    print(f"{name}: {done}")
    with Said().listening() as said:
        judge(trial, copy, calls, rng, said)


def judge(trial: Trial, directory: Path, calls: Calls, rng: random.Random, said: Said) -> None:
    found = asyncio.run(judged(directory, calls, rng, said))
    repeats = sum(found.delivered.values()) - len(found.delivered)
    print(
        f"missing {len(found.missing)}, counted {found.counted}, repeated {repeats}, said "
        f"{dict(said.actions)}"
    )
    assert [] == found.problems
    lost = max(0, len(found.missing) - found.counted)
    trial.count(acknowledged=len(calls.acknowledged), lost=lost, duplicates=repeats)


@pytest.mark.proves("Nothing is dropped silently")
@pytest.mark.fault("F9")
def test_damage_at_rest(trial: Trial, corpora: Corpora, tmp_path: Path) -> None:
    """
    The server always starts, delivers the readable records, counts the rest, balances its accounting and
    accepts a new record.
    """
    for rng in trial.rounds(short=4, full=800):
        check(trial, rng, corpora, tmp_path, KINDS)


@pytest.mark.proof
@pytest.mark.fault("F10")
def test_damaged_headers(trial: Trial, corpora: Corpora, tmp_path: Path) -> None:
    """The server starts even if the first bytes of a file or a log are damaged."""
    for rng in trial.rounds(short=6, full=200):
        check(trial, rng, corpora, tmp_path, (flip_in_header,))


@pytest.mark.proof
@pytest.mark.fault("F9")
def test_damage_while_running(trial: Trial, corpora: Corpora, tmp_path: Path) -> None:
    """
    If files are damaged under a running server, only unreadable records are lost. All others are delivered,
    at the latest after a restart.
    """
    for rng in trial.rounds(short=4, full=200):
        name = rng.choice(sorted(corpora))
        corpus, known = corpora[name]
        calls = known.copy()
        copy = fresh_copy(corpus, tmp_path / f"{rng.getrandbits(32):08x}")
        with Said().listening() as said:
            asyncio.run(_run_damaged(copy, calls, rng))
            judge(trial, copy, calls, rng, said)


@pytest.mark.proof
@pytest.mark.fault("F4")
def test_killed_while_it_salvages(trial: Trial, corpora: Corpora, tmp_path: Path) -> None:
    """
    If the server is killed during its first starts on a damaged directory, the next start continues the salvage.
    """
    for rng in trial.rounds(short=2, full=60):
        corpus, known = corpora[rng.choice(sorted(corpora))]
        calls = known.copy()
        copy = fresh_copy(corpus, tmp_path / f"{rng.getrandbits(32):08x}")
        (copy / MARKER).touch()
        harm(copy, rng, (overwrite_pages,), only="spool.sqlite")
        for _ in range(3):
            start_and_kill(copy, share=rng.uniform(0.3, 1.5))
        with Said().listening() as said:
            judge(trial, copy, calls, rng, said)
        assert 1 >= len([path for path in copy.glob("spool.sqlite.damaged-*") if path.suffix[-1].isdigit()])


async def _run_damaged(directory: Path, calls: Calls, rng: random.Random) -> None:
    async with damage.running(directory, archive=False) as app:
        for _ in range(rng.choice([0, 3])):
            assert 200 == await calls.send(app, rng, 5)
        print(harm(directory, rng, WHILE_RUNNING))
        for _ in range(5):
            assert await calls.send(app, rng, 5) in (200, 401, 503)
