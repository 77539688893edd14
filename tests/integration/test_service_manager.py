"""The messages of a real process to its service manager."""

from __future__ import annotations

import os
import queue
import signal
import socket
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from gateway.monitoring.service_manager import ServiceManager
from tests.acceptance.conftest import installations
from tests.waiting import limited, wait_until

__all__ = ["installations"]


class Manager:
    """
    A fake service manager. It reads all the time, because the system queues only ten messages and drops later ones.
    """

    def __init__(self, path: Path) -> None:
        self.address = str(path)
        self._messages: queue.Queue[str] = queue.Queue()
        self._listening = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self._listening.bind(self.address)
        self._reader = threading.Thread(target=self._read)
        self._reader.start()

    def _read(self) -> None:
        while message := self._listening.recv(4096).decode():
            self._messages.put(message)

    def heard(self, *, but: str = "WATCHDOG=1") -> list[str]:
        """Return the lines of the next message that differs from `but`."""
        while (message := self._messages.get(timeout=120)) == but:
            continue
        return message.split("\n")

    def close(self) -> None:
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as last:
            last.sendto(b"", self.address)
        self._reader.join()
        self._listening.close()


@pytest.fixture
def manager(tmp_path: Path) -> Iterator[Manager]:
    manager = Manager(tmp_path / "notify")
    yield manager
    manager.close()


def test_process_reports_its_state_to_its_manager(manager: Manager, installations: Any) -> None:
    """
    The process sends READY once it listens, WATCHDOG in time, RELOADING with the time, READY after the
    reload, and STOPPING at the end.
    """
    one = installations()
    one.start(env={"NOTIFY_SOCKET": manager.address, "WATCHDOG_USEC": "600000"})
    assert ["READY=1"] == manager.heard()
    assert ["WATCHDOG=1"] == manager.heard(but="")
    assert one.process is not None
    before_us = time.clock_gettime_ns(time.CLOCK_MONOTONIC) // 1000
    one.process.send_signal(signal.SIGHUP)
    reloading, at = manager.heard()
    assert "RELOADING=1" == reloading
    name, _, us = at.partition("=")
    assert "MONOTONIC_USEC" == name
    assert before_us <= int(us) <= time.clock_gettime_ns(time.CLOCK_MONOTONIC) // 1000
    assert ["READY=1"] == manager.heard()
    one.stop()
    assert ["STOPPING=1"] == manager.heard()


def catches(pid: int, signal_number: signal.Signals) -> bool:
    """
    Return whether the process handles the signal. Before that, the signal would have its default effect.
    """
    status = Path(f"/proc/{pid}/status").read_text()
    mask = next(line for line in status.splitlines() if line.startswith("SigCgt:")).split()[1]
    return bool(int(mask, 16) >> (signal_number - 1) & 1)


def test_sighup_does_not_end_a_starting_process(manager: Manager, installations: Any) -> None:
    """
    SIGHUP does not end a process that is still starting. Here it waits for the data directory of another process.
    """
    first, second = installations("one"), installations("two")
    first.start()
    second.config.write_text(
        f'data_dir = "{first.directory / "tollhouse-data"}"\n' + first.config.read_text()
    )
    starting = threading.Thread(
        target=second.start, args=({"NOTIFY_SOCKET": manager.address},), kwargs={"more": ["--take-over"]}
    )
    assert first.process is not None
    # stop the first process, so that it cannot answer and the second one waits
    os.kill(first.process.pid, signal.SIGSTOP)
    starting.start()
    wait_until(lambda: second.process is not None, "the second process")
    assert second.process is not None
    pid = second.process.pid
    wait_until(lambda: catches(pid, signal.SIGHUP), "the second process has heard of the signal")
    second.process.send_signal(signal.SIGHUP)
    os.kill(first.process.pid, signal.SIGCONT)
    starting.join()
    assert ["READY=1"] == manager.heard()
    assert "RELOADING=1" == manager.heard()[0]
    first.stop()


async def test_the_watchdog_hears_nothing_of_a_process_that_does_not_live() -> None:
    """
    While the log's writer is dead, the process sends no watchdog message. The test uses an abstract socket address.
    """
    states = iter([True, False, True])

    async def live() -> bool:
        return next(states)

    # the name is unique, because abstract addresses are shared by the whole machine
    name = f"tollhouse-test-watchdog-{os.getpid()}"
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as listening:
        listening.bind(f"\0{name}")
        listening.setblocking(False)
        manager = ServiceManager({"NOTIFY_SOCKET": f"@{name}", "WATCHDOG_USEC": "3000"})
        with pytest.raises(
            RuntimeError
        ):  # the third call of live() fails, because its iterator has only two states
            await manager.feed_watchdog(live)
        assert [b"WATCHDOG=1", b"WATCHDOG=1"] == [listening.recv(100), listening.recv(100)]
        with pytest.raises(BlockingIOError):
            listening.recv(100)


async def test_a_watchdog_of_another_process_is_not_fed() -> None:
    """No watchdog message is sent if WATCHDOG_PID names another process."""

    async def live() -> bool:
        raise AssertionError("nobody asks")

    async with limited():
        await ServiceManager({"WATCHDOG_USEC": "3000", "WATCHDOG_PID": "1"}).feed_watchdog(live)
