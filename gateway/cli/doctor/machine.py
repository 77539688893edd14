"""What is known of this machine: versions, the disk under the data directory, its clock, limits and file modes."""

from __future__ import annotations

import os
import platform
import resource
import shutil
import stat
import statistics
import tempfile
import time
from collections.abc import Iterable, Iterator
from importlib.metadata import version as installed
from pathlib import Path

from gateway.cli.doctor.diagnosis import NOTE, OK, PROBLEM, WARNING, Diagnosis
from gateway.configuration.sections import Config
from spool.clock import SystemClock
from spool.disks.mounts import mount_of, nearest
from spool.engines import engine_of
from spool.packed.native import use
from spool.settings import GIB, MIB
from spool.steady_clock import EARLIEST

FLUSHES = 30
SLOW_FLUSH_S, HANGING_FLUSH_S = 0.1, 2.0
LEAST_ROOM = 256 * MIB  # below this a start may find no room for its reserve
LEAST_DESCRIPTORS = 1024
SYNCHRONISED = (Path("/run/systemd/timesync/synchronized"), Path("/run/chrony"), Path("/run/chronyd.pid"))


def machine(config: Config) -> Iterator[Diagnosis]:
    """Looks at everything that needs no network."""
    yield from _versions(config)
    yield from _place(config)
    yield _flushes(config.data_dir)
    yield from _clock()
    yield _descriptors()
    yield from _modes(config)


def _versions(config: Config) -> Iterator[Diagnosis]:
    engine = engine_of(config.storage.engine)
    words = (
        f"tollhouse {installed('tollhouse')}, python {platform.python_version()}, {engine.version()}, "
        f"{platform.system().lower()} {platform.release()} {platform.machine()}"
    )
    yield Diagnosis(about="versions", status=OK, words=words)
    for fault in engine.known_faults():
        yield Diagnosis(about="engine", status=NOTE, words=fault)
    native = use(config.server.native)
    words = native.words if native.is_on else f"{native.words}; with it the same work takes a third less"
    yield Diagnosis(about="compiled module", status=OK if native.is_on else NOTE, words=words)


def _place(config: Config) -> Iterator[Diagnosis]:
    directory = config.data_dir
    there = directory.exists()
    if not os.access(nearest(directory), os.W_OK | os.X_OK):
        yield Diagnosis(about="data_dir", status=PROBLEM, words=f"{nearest(directory)} cannot be written to")
    else:
        yield Diagnosis(about="data_dir", status=OK, words=f"{directory}{'' if there else ' (not made yet)'}")
    mount = mount_of(directory)
    if mount is None:
        yield Diagnosis(
            about="mount", status=NOTE, words="the kind of the file system is not known on this system"
        )
    elif mount.read_only:
        yield Diagnosis(about="mount", status=PROBLEM, words=f"{mount.point} is mounted read-only")
    elif mount.warning:
        yield Diagnosis(about="mount", status=WARNING, words=mount.warning)
    else:
        yield Diagnosis(about="mount", status=OK, words=f"{mount.kind} on {mount.point}")
    yield _room(config)


def _room(config: Config) -> Diagnosis:
    usage = shutil.disk_usage(nearest(config.data_dir))
    words = f"{usage.free / GIB:.1f} GiB are free, spool.max_bytes is {config.spool.max_bytes / GIB:.1f} GiB"
    if usage.free < LEAST_ROOM:
        return Diagnosis(about="room", status=PROBLEM, words=f"{words}: make room")
    if usage.free < config.spool.max_bytes:
        return Diagnosis(about="room", status=WARNING, words=f"{words}: the disk is full before the spool is")
    return Diagnosis(about="room", status=OK, words=words)


def _flushes(directory: Path) -> Diagnosis:
    """Measures what a commit waits for, in a file of its own that is removed."""
    try:
        times = flush_times(nearest(directory))
    except OSError as error:
        return Diagnosis(about="flush", status=PROBLEM, words=f"cannot be measured: {error.strerror}")
    worst = max(times)
    middle = statistics.median(times)
    words = f"a flush takes {middle * 1000:.1f} ms, the slowest of {len(times)} took {worst * 1000:.0f} ms"
    if worst >= HANGING_FLUSH_S:
        return Diagnosis(about="flush", status=PROBLEM, words=f"{words}: senders time out")
    if middle >= SLOW_FLUSH_S:
        return Diagnosis(about="flush", status=WARNING, words=f"{words}: every acknowledgement waits for one")
    return Diagnosis(about="flush", status=OK, words=words)


def flush_times(directory: Path, flushes: int = FLUSHES) -> list[float]:
    """Seconds of each of some writes of a page with its flush."""
    times = []
    with tempfile.TemporaryFile(dir=directory) as file:
        for _ in range(flushes):
            began = time.perf_counter()
            os.write(file.fileno(), bytes(8192))
            os.fdatasync(file.fileno())
            times.append(time.perf_counter() - began)
    return times


def _clock() -> Iterator[Diagnosis]:
    now = SystemClock().now()
    shown = time.strftime("%Y-%m-%d %H:%M:%S UTC", time.gmtime(now))
    if now < EARLIEST:
        yield Diagnosis(about="clock", status=PROBLEM, words=f"{shown}: it was never set")
    elif not any(path.exists() for path in SYNCHRONISED):
        yield Diagnosis(about="clock", status=NOTE, words=f"{shown}; no time service is known to set it")
    else:
        yield Diagnosis(about="clock", status=OK, words=shown)


def _descriptors() -> Diagnosis:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    words = f"{soft} may be open at once (at most {hard})"
    status = WARNING if 0 <= soft < LEAST_DESCRIPTORS else OK
    return Diagnosis(about="descriptors", status=status, words=words)


def _modes(config: Config) -> Iterator[Diagnosis]:
    """Files that others than their owner may read: the data directory's, and those that hold secrets."""
    open_to_others = [str(path) for path in _private(config) if _mode(path) & 0o077]
    if open_to_others:
        shown = ", ".join(open_to_others[:5]) + (" and others" if len(open_to_others) > 5 else "")
        yield Diagnosis(about="modes", status=WARNING, words=f"others can read {shown}: chmod go= it")
    else:
        yield Diagnosis(about="modes", status=OK, words="data and secrets are their owner's alone")
    foreign = [str(path) for path in _private(config) if _owner(path) not in (None, os.geteuid())]
    if foreign and os.geteuid() != 0:
        words = f"{foreign[0]} belongs to another user than the one who runs this"
        yield Diagnosis(about="owner", status=WARNING, words=words)


def _private(config: Config) -> Iterator[Path]:
    if config.data_dir.is_dir():
        yield config.data_dir
        if _mode(config.data_dir) & 0o077:  # else nobody gets to the files in it
            yield from config.data_dir.iterdir()
    yield from _secret_files(config)


def _secret_files(config: Config) -> Iterable[Path]:
    found = [key.secret_file for key in config.upstream.keys]
    found += [destination.secret_file for destination in config.destinations]
    found += [source.signing_secret_file for source in config.sources.values()]
    found += [config.server.api_key_file, config.server.tls_key_file, config.agent.enrolment_key_file]
    return [path for path in found if path is not None]


def _mode(path: Path) -> int:
    try:
        return stat.S_IMODE(path.stat().st_mode)
    except OSError:
        return 0


def _owner(path: Path) -> int | None:
    try:
        return path.stat().st_uid
    except OSError:
        return None
