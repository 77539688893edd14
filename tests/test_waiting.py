from __future__ import annotations

import asyncio
import re
from collections.abc import Callable
from pathlib import Path

import pytest

from tests import waiting
from tests.waiting import StillWaiting, awaited, limited, until, wait_until

TESTS = Path(__file__).parent
OWN_LIMIT = re.compile(
    r"asyncio\.(?:wait_for|timeout)\(|(?:deadline|until) = time\.(?:monotonic|time)\(\) \+|def _?wait_for\(condition"
)
# Programs whose own limits are tested.
MEASURED = ("bench/", "waiting.py", "test_waiting.py", "test_cancellation.py")
SHORT = {"clients/openid/test_signing_assistants.py": "a browser may hang, and is ended"}


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(waiting, "LIMIT_S", 0.05)


def counted(turns: int) -> Callable[[], int]:
    """Return a condition that is true from a number of calls on."""
    calls = iter(range(turns + 1))
    return lambda: next(calls) == turns and turns


def test_still_waiting_is_no_failed_comparison() -> None:
    assert not issubclass(StillWaiting, AssertionError | TimeoutError)


def test_polling_returns_the_first_true_value() -> None:
    assert 2 == wait_until(counted(2), "the second turn")


@pytest.mark.usefixtures("impatient")
def test_polling_ends_with_the_name_of_the_event() -> None:
    with pytest.raises(StillWaiting, match="for: the moon"):
        wait_until(lambda: False, "the moon")
    with pytest.raises(StillWaiting, match="for: state 7"):
        wait_until(lambda: False, lambda: f"state {7}")


async def test_conditions_of_a_loop_may_be_asynchronous() -> None:
    async def later() -> int:
        return condition()

    condition = counted(3)
    assert 3 == await until(later)
    assert 2 == await until(counted(2))


@pytest.mark.usefixtures("impatient")
async def test_a_loop_still_waits_after_the_limit() -> None:
    with pytest.raises(StillWaiting, match="for: the moon"):
        await until(lambda: False, "the moon")
    with pytest.raises(StillWaiting, match="Event"):
        await awaited(asyncio.Event().wait())
    with pytest.raises(StillWaiting, match="for: the sun"):
        async with limited("the sun"):
            await asyncio.Event().wait()


async def test_other_errors_pass_the_limit() -> None:
    """A TimeoutError of the product is its own, and a failed comparison stays one."""
    for error in (TimeoutError(), AssertionError("1 == 2"), asyncio.CancelledError()):
        with pytest.raises(type(error)):
            async with limited():
                raise error


def test_no_test_has_a_limit_of_its_own() -> None:
    """A second limit is too short on some machine, and its error cannot be told from wrong data."""
    found = set()
    for path in TESTS.rglob("*.py"):
        name = path.relative_to(TESTS).as_posix()
        if not name.startswith(MEASURED) and OWN_LIMIT.search(path.read_text("utf-8")):
            found.add(name)
    assert set(SHORT) == found
