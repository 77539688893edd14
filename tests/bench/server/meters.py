"""Meters of a server: processor time, memory and written bytes of its processes, and its own metrics."""

from __future__ import annotations

import os
import shutil
import subprocess
import time
import urllib.request
from collections import defaultdict
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from urllib.error import HTTPError

TICKS = os.sysconf("SC_CLK_TCK")
PROC = Path("/proc")
SCRAPE_S = 60.0  # seconds in which a server may refuse a scrape


def processes(pid: int) -> list[int]:
    """List a process and its descendants."""
    children: dict[int, list[int]] = defaultdict(list)
    for entry in PROC.iterdir():
        if entry.name.isdigit() and (fields := _stat(int(entry.name))):
            children[int(fields[1])].append(int(entry.name))
    found = [pid]
    for one in found:
        found += children[one]
    return found


def _stat(pid: int) -> list[str]:
    """Read the fields of /proc/PID/stat after the command name. Return none if the process has ended."""
    try:
        return (PROC / str(pid) / "stat").read_text().rpartition(")")[2].split()
    except OSError:
        return []


def cpu_seconds(pid: int) -> float:
    """Return user and system time of a process and its children, including ended children."""
    return sum(sum(int(ticks) for ticks in _stat(one)[11:15]) for one in processes(pid)) / TICKS


def written_bytes(pid: int) -> int:
    """Return the bytes that a process and its children wrote to storage."""
    return sum(_field(one, "io", "write_bytes:") for one in processes(pid))


def peak_mib(pid: int) -> float:
    """Return the sum of the peak resident memory of the processes."""
    return sum(_field(one, "status", "VmHWM:") for one in processes(pid)) / 1024


def forget_peak(pid: int) -> None:
    """Let `peak_mib` begin again at the memory that the processes use now."""
    for one in processes(pid):
        (PROC / str(one) / "clear_refs").write_text("5")


def resident_mib(pid: int) -> float:
    return sum(_field(one, "status", "VmRSS:") for one in processes(pid)) / 1024


def _field(pid: int, file: str, name: str) -> int:
    try:
        lines = (PROC / str(pid) / file).read_text().splitlines()
    except OSError:
        return 0
    return next((int(line.split()[1]) for line in lines if line.startswith(name)), 0)


def busy_seconds() -> float:
    """Return the busy time of all cores, for any process."""
    user, nice, system, _, _, irq, softirq, *_ = map(int, (PROC / "stat").read_text().split()[1:9])
    return (user + nice + system + irq + softirq) / TICKS


def metrics(url: str) -> Mapping[str, float]:
    """Return a server's metrics by name, summed over their labels."""
    sums: dict[str, float] = defaultdict(float)
    for line in _scrape(url).splitlines():
        if not line.startswith("#"):
            series, _, value = line.rpartition(" ")
            sums[series.partition("{")[0]] += float(value)
    return sums


def _scrape(url: str) -> str:
    """Ask again after a 503, as a scraper does, because a busy server may refuse."""
    deadline = time.monotonic() + SCRAPE_S
    while True:
        try:
            with urllib.request.urlopen(f"{url}/metrics", timeout=30) as answer:
                return str(answer.read(), "utf-8")
        except HTTPError as error:
            with error:
                if error.code != 503 or time.monotonic() > deadline:
                    raise
                time.sleep(int(error.headers["Retry-After"]))


@contextmanager
def affinity(cores: set[int]) -> Iterator[None]:
    """Pin processes started inside the block, with all their threads, to these cores."""
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, cores)
    try:
        yield
    finally:
        os.sched_setaffinity(0, before)


def cores_for(server_cores: int) -> tuple[set[int], set[int]]:
    """Return the server's cores and the other cores. Both are all cores if there are too few."""
    cores = sorted(os.sched_getaffinity(0))
    if len(cores) <= server_cores:
        return set(cores), set(cores)
    return set(cores[:server_cores]), set(cores[server_cores:])


@contextmanager
def instructions(pid: int) -> Iterator[dict[str, int]]:
    """Count user instructions of a process into the dict. It stays empty if the machine has no counters."""
    counted: dict[str, int] = {}
    perf = shutil.which("perf")
    if perf is None:
        yield counted
        return
    process = subprocess.Popen(
        [perf, "stat", "-x", ",", "-e", "instructions:u", "-p", str(pid)], stderr=subprocess.PIPE, text=True
    )
    try:
        yield counted
    finally:
        process.send_signal(2)  # perf prints its counts on SIGINT
        _, said = process.communicate(timeout=120)
        for line in said.splitlines():
            value, _, rest = line.partition(",")
            if "instructions" in rest and value.isdigit():
                counted["instructions"] = int(value)
